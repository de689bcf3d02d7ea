"""How the columns of a join progress, from what its conditions say about their distance to the times of its inputs.

A pair comes out when its second row does. So no later pair has a time of one side far below where both sides have come:
only as far as its conditions let it be behind the other. The later of both times is not behind at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.algebra.plane import Behind, Distances, latest
from anabranch.plan.bands import Reach, place_of
from anabranch.plan.blocks import grouped_tokens
from anabranch.plan.catalog import WINDOW_COLUMNS, Field, Meets, View
from anabranch.plan.keys import INNER, Input
from anabranch.sql.calls import aggregate_calls, chains, closing, split_commas
from anabranch.sql.lexer import Span, Token, normal_form, quote_name, tokenize
from anabranch.sql.syntax import Select


@dataclass(frozen=True)
class Join:
    """A SELECT over inputs that progress, each with its placeholder and its event times."""

    select: Select
    inputs: Sequence[Input]
    placeholders: Sequence[str]  # of each input; empty for one that never changes
    times: Sequence[frozenset[str]]
    inner: bool  # whether what it reads has all rows with their partners
    text: str

    @property
    def live(self) -> list[int]:
        return [index for index, each in enumerate(self.inputs) if not each.static]


def find_meets(join: Join, view: View, keys: Mapping[str, Sequence[Token]]) -> Meets | None:
    """How the columns of a view progress; `keys` are the expressions of its key, by name."""
    select = join.select
    shown = dict(columns_shown(select, join.inputs, view.fields))
    if select.subqueries or select.tail or any(token.upper == "OVER" for item in select.items for token in item.tokens):
        return None
    if select.lateral or any(each.relation.reshaped for each in join.inputs):
        return None
    grouped = None
    if select.group or any(aggregate_calls([token for item in select.items for token in item.tokens])):
        names = {name for each in join.inputs for name in each.columns}
        grouped = {normal_form(list(grouped_tokens(group, select, names))) for group in select.group}
    inner = join.inner and all(join.inputs[index].relation.join in INNER for index in join.live)
    search = _Search(join, Reach(select, join.inputs, join.times, join.text), inner)
    columns = {name: tokens for name, tokens in {**keys, **shown}.items() if _counts(tokens, grouped)}
    behind: dict[str, Distances] = {}
    closes: dict[str, Distances] = {}
    for name, tokens in columns.items():
        found = search.distances(tokens)
        if found is None or name not in view.times:
            continue
        closes[name] = _later(_plain(found), view.times[name] - 1)
        # The bound of a column of windows that overlap would be that of none of them.
        begun = all(any(each.size > 1 for each in side) for side in found)
        if name in shown and (begun or tokens[-1].name.lower() not in WINDOW_COLUMNS):
            behind[name] = found
    ends = tuple(key.name for key in view.keys if key.name in closes)
    if not closes:
        return None
    return Meets(
        tuple(join.placeholders[index] for index in join.live),
        behind,
        closes,
        ends if inner and len(ends) > 1 else (),
        inner,
    )


def _counts(tokens: Sequence[Token], grouped: set[str] | None) -> bool:
    """Whether a pair can only change rows with its own value: any column of pairs, and what groups go by."""
    return grouped is None or normal_form(list(tokens)) in grouped


def columns_shown(
    select: Select, inputs: Sequence[Input], fields: Sequence[Field], starred: Sequence[str] = ()
) -> Iterator[tuple[str, Sequence[Token]]]:
    """The columns of a SELECT list, with what they are; those of * too, where there is only one input.

    `starred` are the names of what * stands for, if they are not those of `fields`.
    """
    position = 0
    for item in select.items:
        if not item.star:
            if position < len(fields):
                yield fields[position].name, item.tokens
            position += 1
            continue
        if len(inputs) > 1:
            return
        if inputs[0].relation.window is not None:
            # How many columns a window has depends on it; names are kept, so where * is the last they are all told.
            whole = item.tokens[-1].text == "*" and not starred and not inputs[0].relation.alias_columns
            if item is select.items[-1] and whole:
                yield from ((field.name, tokenize(quote_name(field.name))[:-1]) for field in fields[position:])
            return
        left_out = item.left_out
        names = [name for name in starred or inputs[0].columns if name.lower() not in left_out]
        for name, field in zip(names, fields[position:], strict=False):
            yield field.name, tokenize(quote_name(name))[:-1]
        if select.lateral:  # what it adds stands behind
            return
        position += len(names)


def _plain(distances: Distances) -> Distances:
    """What is told without windows, where that is enough: when a window begins says no more about those that end."""
    return tuple(tuple(each for each in side if each.size == 1) or side for side in distances)


def _later(distances: Distances, shift: int) -> Distances:
    return tuple(tuple(replace(each, by=each.by - shift) for each in side) for side in distances)


#: Of an operand of a union: its placeholder, and by their places its event times, with what passes them.
Operand = tuple[str, Mapping[int, tuple[str, int]]]


def of_union(operands: Sequence[Operand], fields: Sequence[Field]) -> Meets | None:
    """How the columns of a union progress: as the last of its operands."""
    columns = union_times(operands, fields)
    places = {field.name: place for place, field in enumerate(fields)}
    behind = {name: tuple((Behind(times[places[name]][0], 0),) for _, times in operands) for name in columns}
    return Meets(tuple(placeholder for placeholder, _ in operands), behind, behind) if behind else None


def union_times(operands: Sequence[Operand], fields: Sequence[Field]) -> dict[str, int]:
    """The columns of a union that are event times in all of its operands; windows close in each on its own."""
    return {
        field.name: 1
        for place, field in enumerate(fields)
        if operands and all(place in times and times[place][1] == 1 for _, times in operands)
    }


def through(upper: Meets | None, below: Meets | None) -> Meets | None:
    """How the columns of one node progress that is made of two: `upper` reads nothing but `below`."""
    if upper is None or below is None:
        return None
    behind: dict[str, Distances] = {}
    for name, (side,) in upper.behind.items():
        passed = [each.column for each in side if each.by == 0 and each.size == 1]
        found = next((below.behind[known] for known in below.behind if known.lower() in passed), None)
        if found is not None:
            behind[name] = found
    return Meets(below.inputs, behind, {}, (), below.inner) if behind else None


def time_call(tokens: Sequence[Token]) -> tuple[str, list[list[Token]]] | None:
    """greatest(a, b) or least(a, b), and its arguments."""
    called = len(tokens) > 3 and tokens[0].upper in ("GREATEST", "LEAST") and tokens[1].text == "("
    if not called or closing(tokens, 1) != len(tokens) - 1:
        return None
    return tokens[0].upper, list(split_commas(tokens[2:-1]))


class _Search:
    def __init__(self, join: Join, reach: Reach, inner: bool) -> None:
        self.join = join
        self.reach = reach
        self.inner = inner

    def distances(self, tokens: Sequence[Token]) -> Distances | None:
        """How far an expression is behind the times of each input; None where one of them puts no limit to it."""
        call = time_call(tokens)
        if call is None:
            return self._column(tokens)
        parts = [self._any(each) for each in call[1]]
        known = [each for each in parts if each is not None]
        if len(known) != len(parts) or not self.inner:  # a NULL is passed over by both functions
            return None
        if call[0] == "GREATEST":
            return _limited(latest(known))
        sides = zip(*known, strict=True)
        return _limited(tuple(side for each in sides for side in [_earliest(each)]))

    def _column(self, tokens: Sequence[Token]) -> Distances | None:
        found = self._any(tokens)
        return None if found is None else _limited(found)

    def _any(self, tokens: Sequence[Token]) -> Distances | None:
        """The same of a column, without limits too; None for what is no column."""
        named = list(chains(tokens))
        if len(named) != 1 or named[0].span != Span(tokens[0].start, tokens[-1].end):
            return None
        place = place_of(tuple(part.lower() for part in named[0].parts), self.join.inputs)
        return None if place is None else tuple(self.reach.behind(place, index) for index in self.join.live)


def _limited(found: Distances) -> Distances | None:
    return found if all(found) else None


def _earliest(parts: Sequence[tuple[Behind, ...]]) -> tuple[Behind, ...]:
    """How far the least of some columns is behind: as far as the one that is furthest."""
    columns = {each.column for part in parts for each in part}
    found = []
    for column in sorted(columns):
        by = [[each.by for each in part if each.column == column and each.size == 1] for part in parts]
        if all(by):
            found.append(Behind(column, max(min(each) for each in by)))
    return tuple(found)
