"""A band join without an equality, for Spark: rows are put into buckets of time, and equal buckets are joined.

Without an equality Spark compares every row of the left with every row of the right. Where a band bounds the distance
of their times, a row of one input goes into the bucket of its time, and a row of the other into the one or two buckets
that can hold its partners.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.algebra.reach import JoinBand
from anabranch.algebra.windows.sql import quotient
from anabranch.sql.text import quote_name

_BUCKET = "__bucket_{}"
#: The join condition: equal buckets.
SAME = f"{_BUCKET.format(0)} = {_BUCKET.format(1)}"


def join_by_time_buckets(text: str, band: JoinBand, times: tuple[str, str], columns: Sequence[str]) -> str:
    """A query with the condition SAME, over inputs with buckets. `times` are the event times of both inputs."""
    assert band.least is not None and band.most is not None
    width = max(band.most - band.least, 1)
    one, other = (f"unix_micros({quote_name(time)})" for time in times)
    first, last = (quotient(f"{one} + {shift}", width) for shift in (band.least, band.most))
    buckets = (f"explode(sequence({first}, {last}))", quotient(other, width))
    for index, (input, bucket) in enumerate(zip((band.one, band.other), buckets, strict=True)):
        rows = f"(SELECT *, {bucket} AS {_BUCKET.format(index)} FROM {quote_name(input)})"
        text = text.replace(quote_name(input), rows)
    return f"SELECT {', '.join(quote_name(name) for name in columns)} FROM ({text})"
