"""How far apart the event times of the two sides of a join are, as its conditions say.

    r.ts BETWEEN s.ts - INTERVAL 2 MINUTES AND s.ts + INTERVAL 3 MINUTES
    r.ts >= s.ts AND r.ts < s.ts + INTERVAL 3 MINUTES
    TUMBLE(s, ts, INTERVAL 5 MINUTES) s JOIN TUMBLE(r, ts, INTERVAL 5 MINUTES) r ON s.window_start = r.window_start

Only what must hold is looked at; how a condition is read, `distances` knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.plan.catalog import WINDOW_COLUMNS
from anabranch.plan.distances import Apart, Column, differences, follow
from anabranch.plan.keys import INNER, Input
from anabranch.sql.calls import aggregate_calls
from anabranch.sql.durations import MILLISECOND
from anabranch.sql.lexer import Token
from anabranch.sql.syntax import Select

__all__ = ["Apart", "Found", "Place", "differences", "find_band", "find_distance", "place_of"]

Place = tuple[int, str]  # an input, and a column of it
Found = tuple[Place, Place, int, int]


def find_band(select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str) -> Found | None:
    """The event times of the two sides of a join that are near each other, and how far the second is from the first.

    `times` has the event times of each input, none for one that never changes. Only a join that gives each pair as it
    is has a band: aggregates and window functions look at many pairs at once.
    """
    tokens = [token for item in select.items for token in item.tokens]
    apart = select.group or select.distinct or select.subqueries or any(token.upper == "OVER" for token in tokens)
    if apart or any(aggregate_calls(tokens)):
        return None
    for one, other, least, most in _distances(select, inputs, times, text):
        if least is not None and most is not None:
            return one, other, least, most
    return None


def find_distance(
    select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str
) -> tuple[Place, Place, int | None, int | None] | None:
    """The same for any use of the pairs, and where they are known to be near on one side only; None for the other."""
    found = list(_distances(select, inputs, times, text))
    return max(found, key=lambda each: (each[2] is not None) + (each[3] is not None), default=None)


def _distances(
    select: Select, inputs: Sequence[Input], times: Sequence[frozenset[str]], text: str
) -> Iterator[tuple[Place, Place, int | None, int | None]]:
    live = [index for index, each in enumerate(inputs) if not each.static]
    if len(live) != 2:
        return
    hidden = [frozenset() if each.relation.window is None else frozenset(WINDOW_COLUMNS) for each in inputs]
    times = [own - covered for own, covered in zip(times, hidden, strict=True)]
    known: dict[tuple[Place, Place], int] = {}

    def tell(one: Place, other: Place, most: int) -> None:
        known[one, other] = min(known.get((one, other), most), most)

    for each in differences(_conditions(select, inputs, live[1]), text):
        first, second = place_of(each.one, inputs), place_of(each.other, inputs)
        if first is not None and second is not None and each.most is not None:
            tell(first, second, each.most)
    for first, second in _using(inputs, live[1]):
        tell(first, second, 0)
        tell(second, first, 0)
    for index, each_input in enumerate(inputs):
        for first, second, most in _of_windows(index, each_input, times[index]):
            tell(first, second, most)
    found = follow(known)
    for one in sorted((live[0], name) for name in times[live[0]]):
        for other in sorted((live[1], name) for name in times[live[1]]):
            below, above = found.get((other, one)), found.get((one, other))
            if below is not None or above is not None:
                yield one, other, None if below is None else -below, above


def _conditions(select: Select, inputs: Sequence[Input], last: int) -> list[Sequence[Token]]:
    """What holds for every pair. Of an outer join only its own ON tells: a row without a partner comes out as well."""
    joins = [each.relation.join for each in inputs]
    counted = range(len(inputs)) if all(join in INNER for join in joins) else [last]
    found: list[Sequence[Token]] = []
    if joins[last] in INNER and not any(word in join for join in joins for word in ("RIGHT", "FULL")):
        found += [select.where.tokens] if select.where is not None else []
    conditions = [inputs[index].relation.condition_tokens for index in counted]
    return found + [tokens[1:] for tokens in conditions if tokens and tokens[0].upper == "ON"]


def _using(inputs: Sequence[Input], last: int) -> Iterator[tuple[Place, Place]]:
    """Columns that USING makes equal."""
    tokens = inputs[last].relation.condition_tokens
    if tokens and tokens[0].upper == "USING":
        for name in (token.name.lower() for token in tokens[1:] if token.is_name):
            owners = [index for index in range(last) if name in inputs[index].columns]
            if len(owners) == 1:
                yield (owners[0], name), (last, name)


def _of_windows(index: int, each: Input, times: frozenset[str]) -> Iterator[tuple[Place, Place, int]]:
    """Where the time of a row is in its window."""
    window = each.relation.window
    if (
        window is None
        or not window.by_row
        or window.rows
        or window.attribute != "column"
        or each.relation.alias_columns
    ):
        return
    column = window.time_column.lower() if window.time_column is not None else None
    if column is None:
        (column,) = times if len(times) == 1 else (None,)
    if column is None or column in WINDOW_COLUMNS:
        return
    time, start, end, last = ((index, name) for name in (column, "window_start", "window_end", "window_time"))
    yield start, time, window.size - 1
    yield time, start, 0
    yield time, end, window.size
    yield end, time, -1
    yield last, end, MILLISECOND
    yield end, last, -MILLISECOND
    if window.kind != "cumulate":
        yield start, end, window.size
        yield end, start, -window.size


def place_of(name: Column, inputs: Sequence[Input]) -> Place | None:
    """The input that a column is of."""
    if len(name) == 1:
        owners = [index for index, each in enumerate(inputs) if name[0] in each.columns]
    else:
        owners = [index for index, each in enumerate(inputs) if each.exposed == name[0] and name[-1] in each.columns]
    return (owners[0], name[-1]) if len(owners) == 1 and len(name) <= 2 else None
