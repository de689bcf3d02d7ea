"""Joins of streams that are cut into chunks, from ECQ: each epoch joins the newest chunks of all streams.

    FROM STREAM(s, 'CUT ON ts BY 60 SECS', 'BLOCK', 1) a, STREAM(t, 'CUT ON ts BY 60 SECS', 'BLOCK', 12) b

are windows that slide by one chunk and end with an epoch, and rows join if their windows have the same end:

    FROM TUMBLE(TABLE s, ...) a, SLIDING(TABLE t, ...) b WHERE a.window_end = b.window_end

The identity of an epoch is the label of its newest chunk, not a count, so a gap shifts nothing. If every input keeps
older chunks, `__newest` marks the new rows: a pair that is emitted ONCE needs a row of the newest chunk, and an epoch
exists only if its newest chunk has a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anabranch.errors import NotSupported, problem
from anabranch.sql.dialects.windows import Cut, SpelledWindow
from anabranch.sql.syntax import NEWEST, ImpliedCondition, Name, Relation
from anabranch.sql.text import Span
from anabranch.sql.window_arguments import WindowArgument
from anabranch.sql.windows import word_argument

_INNER = ("", ",", "JOIN", "INNER JOIN", "CROSS JOIN")


@dataclass(frozen=True)
class Epochs:
    """A rewritten join of chunks: its relations with their windows, and the added conditions. `name` is the relation
    whose window an unqualified window column refers to; None if there is only one."""

    relations: tuple[Relation, ...]
    conditions: tuple[ImpliedCondition, ...]
    name: str | None = None


def join_chunks(text: str, relations: Sequence[Relation]) -> Epochs | None:
    """Rewrite a FROM clause with chunks; None if it joins no chunks."""
    places = [index for index, each in enumerate(relations) if each.spelled is not None and each.spelled.cut]
    windows = [window for index in places if (window := relations[index].spelled) is not None]
    cuts = [window.cut for window in windows if window.cut is not None]
    if not cuts or (len(cuts) == 1 and cuts[0].block == 1 and cuts[0].pairs is None):
        return None
    _check(text, windows, cuts)
    made = list(relations)
    if len(cuts) == 1:
        by_key = cuts[0].length is None and cuts[0].block > 1
        made[places[0]] = replace(made[places[0]], spelled=_blocks(windows[0], cuts[0], "every" if by_key else None))
        named = _named(text, made)
        newest = (ImpliedCondition("n0", (_column(named[places[0]], NEWEST, windows[0].span),)),) if by_key else ()
        return Epochs(tuple(named), newest)
    pairs: Literal["once", "every"] = next((cut.pairs for cut in cuts if cut.pairs is not None), "every")
    older = all(cut.block > 1 for cut in cuts)  # otherwise a pair has one epoch, that of the input with one chunk
    for index, window, cut in zip(places, windows, cuts, strict=True):
        made[index] = replace(made[index], spelled=_blocks(window, cut, pairs if older else None))
    made = _named(text, made)
    first = made[places[0]]
    if first.join not in _INNER:
        raise _outer(text, windows[0])
    conditions = []
    for index, window in zip(places[1:], windows[1:], strict=True):
        names = _column(first, "window_end", window.span), _column(made[index], "window_end", window.span)
        if made[index].join in _INNER:
            conditions.append(ImpliedCondition("n0 = n1", names))
            continue
        if not made[index].join.startswith("LEFT") or any(cut.block > 1 for cut in cuts):
            raise _outer(text, window)  # a row without a match would be in the epoch of its own chunk
        if made[index].condition is None:
            raise problem(text, window.span, f"{made[index].join} of chunks needs ON")
        made[index] = replace(made[index], implied_conditions=(ImpliedCondition("n0 = n1", names),))
    if older:
        newest_of = tuple(_column(made[index], NEWEST, windows[0].span) for index in places)
        conditions.append(
            ImpliedCondition(f"({' OR '.join(f'n{index}' for index in range(len(newest_of)))})", newest_of)
        )
    return Epochs(tuple(made), tuple(conditions), first.exposed)


def _blocks(window: SpelledWindow, cut: Cut, pairs: Literal["once", "every"] | None) -> SpelledWindow:
    """The windows of `cut.block` chunks."""
    said = {} if pairs is None else {"pairs": word_argument("pairs", pairs, cut.span)}
    if cut.length is None:
        return replace(window, arguments={"block": WindowArgument(cut.block, "number", cut.span), **said})
    if cut.block == 1:
        return window
    size = replace(cut.length, value=cut.length.value * cut.block)
    return replace(window, function="SLIDING", arguments={"slide": cut.length, "size": size, **said})


def _column(relation: Relation, name: str, span: Span) -> Name:
    return Name((relation.exposed or "", name), span)


def _named(text: str, relations: Sequence[Relation]) -> list[Relation]:
    """The relations, with a unique name for each that is cut."""
    found: list[Relation] = []
    taken: list[str] = []
    for each in relations:
        if each.spelled is not None:
            name = each.exposed or f"__chunks{len(taken) + 1}"
            if name.lower() in taken:
                hint = "give each an alias"
                raise problem(text, each.spelled.span, f"two streams of this join are called {name}", hint)
            taken.append(name.lower())
            each = each if each.exposed is not None else replace(each, alias=name)
        found.append(each)
    return found


def _check(text: str, windows: Sequence[SpelledWindow], cuts: Sequence[Cut]) -> None:
    """Refuse streams of a join with different cuts or pairing."""
    said: Cut | None = None
    for window, cut in zip(windows, cuts, strict=True):
        if cut.filled:
            raise problem(text, window.span, "an empty chunk has nothing to join", "remove FILLED")
        lengths = [None if each.length is None else (each.length.value, each.length.unit) for each in (cuts[0], cut)]
        if lengths[0] != lengths[1]:
            hint = "cut both by the same length, by the same number of rows, or both by a change"
            raise problem(
                text, window.span, "all streams of a join are cut in the same way, and this cut differs", hint
            )
        if said is not None and cut.pairs not in (None, said.pairs):
            raise problem(text, cut.span, "the other stream of this join has another setting", "give it once")
        said = cut if cut.pairs is not None else said
    if len(cuts) == 1 and said is not None:
        raise problem(text, said.span, "this option is for joins of chunks, and this is not a join", "remove it")


def _outer(text: str, window: SpelledWindow) -> NotSupported:
    return NotSupported(
        "chunks are joined by inner joins, or one by one with LEFT JOIN",
        text=text,
        at=window.span,
        hint="join those that match here, and the others in a view of their own",
    )
