"""Joins of streams that are cut into chunks: in each epoch the newest chunks of one with the newest of the others.

    FROM STREAM(s, 'CUT ON ts BY 60 SECS', 'BLOCK', 1) a, STREAM(t, 'CUT ON ts BY 60 SECS', 'BLOCK', 12) b

are windows that slide by one chunk and end with an epoch, and rows meet where their windows end together:

    FROM TUMBLE(TABLE s, ...) a, SLIDING(TABLE t, ...) b WHERE a.window_end = b.window_end

An epoch is known by the label of its newest chunk, never by how many there were before: a gap moves nothing. Where
every side keeps older chunks, a side also says what is new (`__newest`): a pair that is to come ONCE needs a row of the
newest chunk, and an epoch is one only if some row is in its newest chunk at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.entries import Entry
from anabranch.sql.lexer import Span
from anabranch.sql.spellings import Argument, Cut, WindowCall
from anabranch.sql.syntax import NEWEST

_INNER = ("", ",", "JOIN", "INNER JOIN", "CROSS JOIN")


@dataclass(frozen=True)
class Epochs:
    """What a join of chunks becomes: the entries of FROM with their windows, and what else has to hold.

    `inside` are conditions for the joins that need them in their own: where that starts, and what to add. `name` is the
    entry whose window a column of windows without a name before it is meant of; None: there is but one.
    """

    entries: tuple[Entry, ...]
    condition: str
    origin: Span
    inside: tuple[tuple[int, str, Span], ...] = ()
    name: str | None = None


def join_chunks(text: str, entries: Sequence[Entry]) -> Epochs | None:
    """What a FROM clause with chunks in it becomes; None if each chunk in it is met alone."""
    chunked = [(each, each.window, each.window.cut) for each in entries if each.window and each.window.cut]
    if not chunked or (len(chunked) == 1 and chunked[0][2].block == 1 and chunked[0][2].pairs is None):
        return None
    windows, cuts = [window for _, window, _ in chunked], [cut for _, _, cut in chunked]
    _check(text, windows, cuts)
    if len(chunked) == 1:
        return _alone(entries, chunked[0][0], windows[0], cuts[0])
    named = _named(text, [entry for entry, _, _ in chunked])
    pairs: Literal["once", "every"] = next((cut.pairs for cut in cuts if cut.pairs is not None), "every")
    older = all(cut.block > 1 for cut in cuts)  # otherwise a pair has but one epoch, that of the side with one chunk
    made = {
        id(entry): replace(new, window=_blocks(window, cut, pairs if older else None))
        for (entry, window, cut), new in zip(chunked, named, strict=True)
    }
    first, origin = named[0], windows[1].span
    outside, inside = [], []
    for each, window in zip(named[1:], windows[1:], strict=True):
        same = f"{_name(first)}.window_end = {_name(each)}.window_end"
        if each.join in _INNER:
            outside.append(same)
        else:
            inside.append((_place(text, each, window, cuts), same, window.span))
    if first.join not in _INNER:
        raise _outer(text, windows[0])
    if older:
        outside.append("(" + " OR ".join(f"{_name(each)}.{NEWEST}" for each in named) + ")")
    whole = tuple(made.get(id(each), each) for each in entries)
    return Epochs(whole, " AND ".join(outside), origin, tuple(inside), _name(first))


def _alone(entries: Sequence[Entry], entry: Entry, window: WindowCall, cut: Cut) -> Epochs:
    """The newest chunks of one stream, without another one: windows that slide by a chunk."""
    by_key = cut.length is None and cut.block > 1
    (named,) = _named("", [entry])
    made = replace(named, window=_blocks(window, cut, "every" if by_key else None))
    whole = tuple(made if each is entry else each for each in entries)
    return Epochs(whole, f"{_name(named)}.{NEWEST}" if by_key else "", window.span)


def _blocks(window: WindowCall, cut: Cut, pairs: Literal["once", "every"] | None) -> WindowCall:
    """The windows of so many chunks."""
    said = (Argument("PAIRS", f"'{pairs}'", cut.span, named=True),) if pairs is not None else ()
    if cut.length is None:
        return replace(window, arguments=(Argument("BLOCK", str(cut.block), cut.span, named=True), *said))
    if cut.block == 1:
        return window
    size = replace(cut.length, value=cut.length.value * cut.block)
    slide = Argument("SLIDE", cut.length.sql, cut.length.span)
    return replace(window, function="SLIDING", arguments=(slide, Argument("SIZE", size.sql, cut.length.span), *said))


def _name(entry: Entry) -> str | None:
    """The name that its columns can have before them; a union is given one."""
    return entry.alias or ("__union" if entry.union else entry.name)


def _named(text: str, entries: Sequence[Entry]) -> list[Entry]:
    """The entries, each with a name of its own."""
    found: list[Entry] = []
    for number, each in enumerate(entries, 1):
        name = _name(each) or f"__chunks{number}"
        if any((_name(other) or "").lower() == name.lower() for other in found) and each.window is not None:
            raise _wrong(text, each.window.span, f"two streams of this join are called {name}", "give each an alias")
        found.append(each if _name(each) is not None else replace(each, name=name))
    return found


def _check(text: str, windows: Sequence[WindowCall], cuts: Sequence[Cut]) -> None:
    """The streams of a join are cut alike, and agree about how chunks pair up."""
    said: Cut | None = None
    for window, cut in zip(windows, cuts, strict=True):
        if cut.filled:
            raise _wrong(text, window.span, "an empty chunk has nothing to join", "leave FILLED out")
        lengths = [None if each.length is None else (each.length.value, each.length.unit) for each in (cuts[0], cut)]
        if lengths[0] != lengths[1]:
            hint = "cut both by the same length, by the same number of rows, or both by a change"
            raise _wrong(text, window.span, "the streams of a join are cut alike, and this is another cut", hint)
        if said is not None and cut.pairs not in (None, said.pairs):
            raise _wrong(text, cut.span, "the other stream of this join says otherwise", "say it once")
        said = cut if cut.pairs is not None else said
    if len(cuts) == 1 and said is not None:
        raise _wrong(text, said.span, "chunks pair up in a join, and there is none here", "leave it out")


def _place(text: str, entry: Entry, window: WindowCall, cuts: Sequence[Cut]) -> int:
    """Where the condition of an outer join starts; a row without a partner is one in the epoch of its own chunk."""
    if not entry.join.startswith("LEFT") or any(cut.block > 1 for cut in cuts):
        raise _outer(text, window)
    if entry.on is None:
        raise _wrong(text, window.span, f"{entry.join} of chunks needs ON")
    return entry.on.start


def _outer(text: str, window: WindowCall) -> NotSupported:
    return NotSupported(
        "chunks are joined by inner joins, or one by one with LEFT JOIN",
        text=text,
        start=window.span.start,
        end=window.span.end,
        hint="join those that match here, and the others in a view of their own",
    )


def _wrong(text: str, span: Span, message: str, hint: str | None = None) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, start=span.start, end=span.end, hint=hint)
