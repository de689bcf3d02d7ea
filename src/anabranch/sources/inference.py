"""The types of columns that are found out: what holds the values of several files, and what holds long numbers exactly.

whole numbers of up to 38 digits     INT, BIGINT, DECIMAL
with fractions                       DOUBLE; DECIMAL if a DOUBLE does not hold the whole numbers among them
longer than that                     STRING
"""

from __future__ import annotations

import re

#: A DOUBLE holds all whole numbers of so many digits.
EXACT_DIGITS = 15
_MOST_DIGITS = 38
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def wider(one: str, other: str) -> str:
    """The type that holds values of both.

    >>> wider("int", "bigint"), wider("int", "double"), wider("decimal(20,0)", "bigint"), wider("date", "int")
    ('bigint', 'double', 'decimal(20,0)', 'string')
    """
    if one == other or other == "void":
        return one
    if one == "void":
        return other
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    if {one, other} <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp"
    sizes = [_decimal(each) for each in (one, other)]
    if sizes[0] is not None and sizes[1] is not None:
        whole, fraction = (max(each) for each in zip(*sizes, strict=True))
        return f"decimal({whole + fraction},{fraction})" if whole + fraction <= _MOST_DIGITS else "string"
    for each, size in ((one, sizes[1]), (other, sizes[0])):
        if each == "double" and size is not None:
            return "double" if size[0] <= 19 and size[1] == 0 else "string"
    return "string"


def _decimal(type: str) -> tuple[int, int] | None:
    """How many digits a number has before and behind its point."""
    if type in _INTEGERS:
        return (3, 5, 10, 19)[_INTEGERS.index(type)], 0
    match = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", type)
    return (int(match.group(1)) - int(match.group(2)), int(match.group(2))) if match else None


def measures(column: str) -> list[str]:
    """What is to be known of the texts of a column, as aggregates: the most digits before and behind the point, whether
    there is a long whole number, and whether any number is written in another way."""
    text = f"trim({column})"
    plain = f"{text} RLIKE '^[+-]?[0-9]+([.][0-9]*)?$'"
    whole = f"length(regexp_extract({text}, '^[+-]?0*([0-9]*)', 1))"
    fraction = f"length(regexp_extract({text}, '[.]([0-9]*)$', 1))"
    return [
        f"max(IF({plain}, {whole}, 0))",
        f"max(IF({plain}, {fraction}, 0))",
        f"max({text} RLIKE '^[+-]?0*[1-9][0-9]{{{EXACT_DIGITS},}}$')",
        f"max(NOT ({plain}) AND {text} <> '')",
    ]


def exact_type(whole: int | None, fraction: int | None, long: bool | None, other: bool | None) -> str:
    """The type for numbers as they were measured, where Spark says DOUBLE.

    >>> exact_type(30, 0, True, False), exact_type(44, 0, True, False), exact_type(2, 20, False, False)
    ('decimal(30,0)', 'string', 'double')
    """
    if not long or whole is None or fraction is None:
        return "double"
    return "string" if other or whole + fraction > _MOST_DIGITS else f"decimal({whole + fraction},{fraction})"
