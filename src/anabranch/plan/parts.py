"""The rows that a record of several streams is made of, by their numbers, and the order in which such records came.

A record comes with the last of its rows. Of those that come with the same row, the first is the one whose other rows
have the lowest numbers, in the order in which the query names their streams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anabranch.sql.lexer import quote_name
from anabranch.sql.syntax import Select

#: The column with the numbers of the rows of a stream, of which a query may read several.
PART = "__part{}_{}"
_PART = re.compile(r"__part\d+_(.+)")


def parts_of(names: Sequence[str]) -> dict[str, str]:
    """The columns that hold the numbers of rows, and the ids of their streams.

    >>> parts_of(["__r0", "__part0_bids", "__part1_asks"])
    {'__part0_bids': 'bids', '__part1_asks': 'asks'}
    """
    return {name: found[1] for name in names if (found := _PART.fullmatch(name)) is not None}


def gives_records(select: Select) -> bool:
    """Whether a SELECT is one whose rows are counted."""
    return bool(parts_of([item.alias for item in select.items if item.alias is not None]))


def order_sql(parts: Mapping[str, str], starts: Mapping[str, Sequence[tuple[int, int]]]) -> list[str]:
    """What sorts records by when they came: the place of the last row of each, then the numbers of all.

    `starts` has, for each stream, the numbers of rows with which stretches of it begin, and the places of these among
    those of all streams.
    """
    rows = [(quote_name(name), starts[stream]) for name, stream in parts.items()]
    places = [
        f"CASE WHEN {row} IS NOT NULL THEN named_struct('at', {place_sql(row, known)}, 'row', {row}) END"
        for row, known in rows
    ]
    return [f"array_max(array({', '.join(places)}))", *(f"{row} NULLS LAST" for row, _ in rows)]


def place_sql(row: str, starts: Sequence[tuple[int, int]]) -> str:
    """The place of the stretch that a row is in, by its number.

    >>> place_sql("n", [(0, 1), (5, 3), (9, 4)])
    'CASE WHEN n < 5 THEN 1 ELSE CASE WHEN n < 9 THEN 3 ELSE 4 END END'
    """
    if len(starts) == 1:
        return str(starts[0][1])
    middle = len(starts) // 2
    low, high = place_sql(row, starts[:middle]), place_sql(row, starts[middle:])
    return f"CASE WHEN {row} < {starts[middle][0]} THEN {low} ELSE {high} END"
