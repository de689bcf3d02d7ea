"""Spark types that DuckDB has too."""

from __future__ import annotations

import re

from anabranch.duck import quoted

_DUCKDB_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "binary": "BLOB",
}


def duckdb_type(spark_type: str) -> str | None:
    """The DuckDB type that holds the same values, if there is one."""
    if spark_type.startswith("array<"):
        inner = duckdb_type(spark_type[6:-1])
        return f"{inner}[]" if inner is not None else None
    if spark_type.startswith("struct<`"):
        return _struct_type(spark_type)
    if re.fullmatch(r"decimal\(\d+,\d+\)", spark_type):
        return spark_type.upper()
    return _DUCKDB_TYPES.get(spark_type)


def _struct_type(spark_type: str) -> str | None:
    """A struct type with all its names in quotes, as in partials and in rows of external tables.

    >>> _struct_type("struct<`id`:bigint,`a``b`:decimal(3,1)>")
    'STRUCT("id" BIGINT, "a`b" DECIMAL(3,1))'
    >>> _struct_type("struct<`o`:struct<`k0`:int,`k1`:decimal(3,1)>,`v`:double>")
    'STRUCT("o" STRUCT("k0" INTEGER, "k1" DECIMAL(3,1)), "v" DOUBLE)'
    """
    fields: list[str] = []
    for name, type in _FIELD.findall(spark_type[len("struct<") : -1]):
        kind = duckdb_type(type)
        if kind is None:
            return None
        fields.append(f"{quoted(name.replace('``', '`'))} {kind}")
    return f"STRUCT({', '.join(fields)})"


#: A field of a struct, and its type: a plain type, or a struct of plain types.
_FIELD = re.compile(r"`((?:[^`]|``)*)`:(\w+(?:\(\d+,\d+\)|<(?:`(?:[^`]|``)*`:\w+(?:\(\d+,\d+\))?,?)*>)?)")
