"""Relations where a query is meant, and tokens that stand for others, as Spark SQL over placeholders."""

from __future__ import annotations

import pytest

from anabranch.algebra.progress import Delay
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.stored import to_json
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CopyTo, Explain, SelectStatement
from anabranch.types import Field

FIELDS = (Field("k", "string"), Field("n", "int"), Field("ts", "timestamp"))
S = Stream("s", "s", "", FIELDS, "ts", Delay(5_000_000), None, None, None, {}, "all", False)
CATALOG = Catalog({"s": to_json(S)})
SAMPLE = "(SELECT * FROM `@s:s` AS `s`) TABLESAMPLE (1 ROWS)"


def bound(text: str) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement | CopyTo | Explain)
    return " ".join(Binder(statement.text, CATALOG, statement.query).bind().text.text.split())


@pytest.mark.parametrize(
    ("relation", "spark"),
    [
        ("s TABLESAMPLE (1 ROWS)", f"{SAMPLE} AS `s`"),
        ("s x TABLESAMPLE SYSTEM (5)", "(SELECT * FROM `@s:s` x) TABLESAMPLE (5 PERCENT) AS `x`"),
    ],
)  # fmt: skip
def test_a_relation_stands_for_a_query(relation: str, spark: str) -> None:
    assert bound(f"SELECT * FROM {relation}") == f"SELECT * FROM {spark}"


@pytest.mark.parametrize("text", ["COPY s TO 'f.csv'", "EXPLAIN s"])
def test_a_name_alone_is_a_query(text: str) -> None:
    assert bound(text) == "SELECT * FROM `@s:s` AS `s`"


def test_types_are_named_as_spark_has_them() -> None:
    assert bound("SELECT k::TEXT || 'x'::char FROM s WHERE CAST(n AS INT8) > 1") == (
        "SELECT k::STRING || 'x'::CHAR(1) FROM `@s:s` AS `s` WHERE CAST(n AS BIGINT) > 1"
    )
