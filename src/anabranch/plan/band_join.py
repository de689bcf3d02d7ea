"""A join by nearness alone, for Spark: rows are put into buckets of time, and those of equal buckets meet.

Without an equality Spark compares each row of one side with each of the other. Where the times of the two are at most
so much apart, each row of one side is in the one bucket of its time, and each of the other in the one or two that its
partners can be in.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.algebra.reach import JoinBand
from anabranch.algebra.windows.sql import quotient
from anabranch.sql.lexer import quote_name

_BUCKET = "__bucket_{}"
#: What holds for rows that can meet.
SAME = f"{_BUCKET.format(0)} = {_BUCKET.format(1)}"


def join_by_time_buckets(text: str, band: JoinBand, times: tuple[str, str], columns: Sequence[str]) -> str:
    """A query that asks for SAME, over inputs that have the buckets. `times` are the event times of both sides."""
    assert band.least is not None and band.most is not None
    width = max(band.most - band.least, 1)
    one, other = (f"unix_micros({quote_name(time)})" for time in times)
    first, last = (quotient(f"{one} + {shift}", width) for shift in (band.least, band.most))
    buckets = (f"explode(sequence({first}, {last}))", quotient(other, width))
    for index, (input, bucket) in enumerate(zip((band.one, band.other), buckets, strict=True)):
        rows = f"(SELECT *, {bucket} AS {_BUCKET.format(index)} FROM {quote_name(input)})"
        text = text.replace(quote_name(input), rows)
    return f"SELECT {', '.join(quote_name(name) for name in columns)} FROM ({text})"
