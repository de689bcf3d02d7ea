"""Integer arithmetic in SQL: floor division and remainders that are correct for negative numbers."""

from __future__ import annotations

import re
from typing import Literal

Engine = Literal["spark", "duckdb"]


def modulo(dividend: str, divisor: int, engine: Engine) -> str:
    """A remainder that is never negative; SQL's own takes the sign of the dividend."""
    if engine == "spark":
        return f"pmod({dividend}, {divisor})"
    if engine == "duckdb":
        return f"({operand(dividend)} - {multiple(dividend, divisor)})"
    raise ValueError(f"SQL is written for 'spark' or 'duckdb', not for {engine!r}")


def multiple(dividend: str, divisor: int) -> str:
    """The greatest multiple of the divisor up to the dividend, in DuckDB, whose division is fast and whose % is slow.

    >>> multiple("ts", 60)
    '(CASE WHEN ts >= 0 THEN ts ELSE ts - 59 END // 60 * 60)'
    """
    return f"({floor_quotient(dividend, divisor)[1:-1]} * {divisor})"


def floor_quotient(dividend: str, divisor: int) -> str:
    """Floor division in DuckDB, whose `//` rounds towards zero.

    >>> floor_quotient("ts", 60)
    '(CASE WHEN ts >= 0 THEN ts ELSE ts - 59 END // 60)'
    """
    whole = operand(dividend)
    return f"(CASE WHEN {whole} >= 0 THEN {whole} ELSE {whole} - {divisor - 1} END // {divisor})"


def quotient(dividend: str, divisor: int) -> str:
    """Floor division in Spark SQL, whose `div` rounds towards zero.

    >>> quotient("ts - 5", 60)
    '(((ts - 5) - pmod((ts - 5), 60)) div 60)'
    """
    whole = operand(dividend)
    return f"(({whole} - {modulo(whole, divisor, 'spark')}) div {divisor})"


def operand(sql: str) -> str:
    """An expression as an operand, in brackets if needed."""
    return sql if re.fullmatch(r"[A-Za-z_][\w.]*", sql) else f"({sql})"


def shifted(sql: str, by: int) -> str:
    """An operand and a number added to it."""
    if by == 0:
        return sql
    return f"{sql} - {-by}" if by < 0 else f"{sql} + {by}"


#: The maximum number of windows for the time between two rows, or for one row.
MOST_BETWEEN = 5_000_000


def all_between_sql(value: str, step: int) -> str:
    """All values from the lowest to the highest of some rows, an array of BIGINT; an error if they are too many.

    One row with a wrong year would otherwise use up the memory.
    """
    judged = (
        f"there would be more than {MOST_BETWEEN:,} windows between the first row and the last: one of the two is far"
        " from all others. Leave it out with WHERE in a query around the stream, or make the windows larger"
    )
    far = f"max({value}) / {step} - min({value}) / {step} > {MOST_BETWEEN}"
    every = f"sequence(min({value}), max({value}), CAST({step} AS BIGINT))"
    return f"CASE WHEN {far} THEN raise_error('{judged}') ELSE {every} END"
