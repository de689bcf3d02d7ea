"""Records of several streams: the numbers of their rows, and the order in which records arrive.

A record arrives with the last of its rows. Records that arrive with the same row are in the order of the numbers of
their other rows, by stream in the order of the query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch.sql.text import quote_name

#: The column with the row numbers of a stream; a query may read several streams.
PART = "__part{}_{}"
#: The label of a query whose rows are the records that a trigger counts.
RECORDS = "__records"
#: The label of a query that is joined in a node of its own, so that its reader groups close by several times.
JOINED = "__joined{}"
#: The label of a query whose rows are joined with static tables once and for all.
MET = "__met"
_PART = re.compile(r"__part\d+_(.+)")


def parts_of(names: Sequence[str]) -> dict[str, str]:
    """The columns with row numbers, with the ids of their streams.

    >>> parts_of(["__r0", "__part0_bids", "__part1_asks"])
    {'__part0_bids': 'bids', '__part1_asks': 'asks'}
    """
    return {name: found[1] for name in names if (found := _PART.fullmatch(name)) is not None}


def order_sql(parts: Sequence[str], places: Sequence[str]) -> list[str]:
    """ORDER BY of records by arrival: the position of the last row of each, then the numbers of all."""
    return [f"array_max(array({', '.join(places)}))", *(f"{quote_name(name)} NULLS LAST" for name in parts)]
