"""The rows that a record of several streams is made of, by their numbers, and the order in which such records came.

A record comes with the last of its rows. Of those that come with the same row, the first is the one whose other rows
have the lowest numbers, in the order in which the query names their streams.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch.sql.lexer import quote_name

#: The column with the numbers of the rows of a stream, of which a query may read several.
PART = "__part{}_{}"
#: What a query is called whose rows are the records that a trigger counts.
RECORDS = "__records"
#: One that is joined in a node of its own, so that what groups it closes by several times.
JOINED = "__joined{}"
#: And one whose rows have met static tables once and for all.
MET = "__met"
_PART = re.compile(r"__part\d+_(.+)")


def parts_of(names: Sequence[str]) -> dict[str, str]:
    """The columns that hold the numbers of rows, and the ids of their streams.

    >>> parts_of(["__r0", "__part0_bids", "__part1_asks"])
    {'__part0_bids': 'bids', '__part1_asks': 'asks'}
    """
    return {name: found[1] for name in names if (found := _PART.fullmatch(name)) is not None}


def order_sql(parts: Sequence[str], places: Sequence[str]) -> list[str]:
    """What sorts records by when they came: the place of the last row of each, then the numbers of all."""
    return [f"array_max(array({', '.join(places)}))", *(f"{quote_name(name)} NULLS LAST" for name in parts)]
