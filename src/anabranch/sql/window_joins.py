"""Joins of windows as Li writes them, and windows over joins, as edits of the text.

    FROM a [RANGE 3 MINUTES, WA ts], b [RANGE 2 MINUTES, WA ts]

joins a row of a with those of b up to 3 minutes after it, and one of b with those of a up to 2 minutes after it:

    FROM a, b WHERE b.ts >= a.ts - INTERVAL 2 MINUTES AND b.ts <= a.ts + INTERVAL 3 MINUTES

A bound is in the band; OPEN in a bracket leaves the bound of that bracket out. FROM a, b [RANGE TUMBLING 5 MINUTES,
WA ts] joins rows of equal windows. A window behind an aggregate over a join is one over the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.calls import chains, split_commas
from anabranch.sql.clauses import Block
from anabranch.sql.entries import Entry
from anabranch.sql.figures import Figure
from anabranch.sql.lexer import CLOSING, END, OPENING, SYMBOL, Span, Token
from anabranch.sql.spellings import Argument, Bracket, WindowCall, as_written
from anabranch.sql.splice import Edit
from anabranch.sql.terms import SET_OPERATORS

_INNER = ("", ",", "JOIN", "INNER JOIN", "CROSS JOIN")
_HINT = "as in FROM a [RANGE 3 MINUTES, WA ts], b [RANGE 2 MINUTES, WA ts]"


def joined_edits(text: str, tokens: Sequence[Token], block: Block, sources: Sequence[Entry]) -> Iterator[Edit]:
    """The join of a FROM clause some of whose inputs have brackets behind them."""
    for each in sources:
        if each.window is not None:
            raise _wrong(text, each.window.span, "this window does not go with those of other inputs", _HINT)
        if each.bracket is not None:
            _check(text, each.bracket)
    windowed = [index for index, each in enumerate(sources) if each.bracket is not None]
    last = sources[windowed[-1]].bracket
    assert last is not None
    if last.tumbling:
        made = _tumbling(text, sources[: windowed[-1] + 1], last)
        first = _exposed(text, made[0])
        told = {
            index: [(f"{_exposed(text, each)}.window_start = {first}.window_start", last.span)]
            for index, each in enumerate(made)
            if index
        }
        sources = [*made, *sources[windowed[-1] + 1 :]]
    else:
        one, other = _sliding(text, sources, windowed)
        told = {other: _band(text, sources[one], sources[other])}
    yield from relation_edits(sources)
    behind: list[list[tuple[str, Span]]] = []
    for index, condition in told.items():
        on = sources[index].on
        if on is not None:
            yield from _and(tokens, on, condition)
        else:
            _check_inner(text, sources, index)
            behind.append(condition)
    yield from _where(tokens, block, behind)


def _check(text: str, found: Bracket) -> None:
    """A bracket behind an input has a RANGE along a column, and nothing else."""
    for name, why in (("SLIDE", "the window of an input moves with its rows"), ("PA", "put it into the conditions"),
                      ("RATTR", "use WA"), ("SATTR", "use WA")):  # fmt: skip
        if name in found.seen:
            raise _wrong(text, found.seen[name], f"{name} is for the windows of aggregates", why)
    if found.range is None or found.range == "all":
        span = found.span if found.range is None else found.seen["RANGE"]
        raise _wrong(text, span, "the window of an input has a RANGE: how long its rows are joined", _HINT)
    if found.range.unit == "rows" or (found.attribute is not None and _special(found.attribute.last)):
        span = found.range.span if found.range.unit == "rows" else found.seen["WA"]
        raise NotSupported(
            "inputs are joined along a column of theirs, not by the order in which rows came",
            text=text, start=span.start, end=span.end, hint=_HINT,
        )  # fmt: skip
    if found.origin is not None and not found.tumbling:
        raise _wrong(text, found.seen["ORIGIN"], "ORIGIN is for windows that tumble", "leave it out")
    if found.tumbling and found.open:
        raise _wrong(text, found.seen.get("OPEN", found.seen["RANGE"]), "OPEN is for windows that slide")


def _special(name: str) -> bool:
    return name.lower().replace("-", "_") in ("row_num", "arrival_ts")


def _exposed(text: str, entry: Entry) -> str:
    if entry.exposed is None:
        raise _wrong(text, Span(entry.start, entry.end), "this input needs a name", "put AS and a name behind it")
    return entry.exposed


# ---- bands


def _sliding(text: str, sources: Sequence[Entry], windowed: list[int]) -> tuple[int, int]:
    brackets = [each.bracket for each in sources if each.bracket is not None]
    for each in brackets:
        if each.tumbling:
            raise _wrong(text, each.span, "windows that slide are not joined with windows that tumble")
    if len(windowed) == 1:
        raise _wrong(text, brackets[0].span, "both inputs of a join have windows, and this one stands alone", _HINT)
    if len(windowed) > 2:
        span = brackets[2].span
        raise NotSupported(
            "windows that slide are joined two at a time", text=text, start=span.start, end=span.end,
            hint="make a view of the first two, and join that",
        )  # fmt: skip
    return windowed[0], windowed[1]


def _band(text: str, one: Entry, other: Entry) -> list[tuple[str, Span]]:
    """The condition of a band, each piece with the place it was written at."""
    assert one.bracket is not None and other.bracket is not None
    left, right = _time(text, one, one.bracket), _time(text, other, other.bracket)
    pieces: list[tuple[str, Span]] = []
    for bracket, sign, shift in ((other.bracket, ">", "-"), (one.bracket, "<", "+")):
        assert isinstance(bracket.range, Figure)
        sign = sign if bracket.open else f"{sign}="
        pieces += [right, (f" {sign} ", bracket.span), left, (f" {shift} ", bracket.span)]
        pieces += [(bracket.range.sql, bracket.range.span), (" AND ", bracket.span)]
    return pieces[:-1]


def _time(text: str, entry: Entry, bracket: Bracket) -> tuple[str, Span]:
    if bracket.attribute is None:
        raise _wrong(text, bracket.span, "this window does not tell which column has the times", _HINT)
    name = _exposed(text, entry)
    parts = bracket.attribute.parts
    if len(parts) > 1 and as_written(parts[-2]).lower() != name.lower():
        raise _wrong(text, bracket.attribute.span, f"a window behind {name} lies along a column of it")
    return f"{name}.{as_written(parts[-1])}", bracket.attribute.span


# ---- equal windows


def _tumbling(text: str, sources: Sequence[Entry], last: Bracket) -> list[Entry]:
    """The inputs up to the last that has a bracket, each with its window; one without has the next one's."""
    if len(sources) == 1:
        raise _wrong(text, last.span, "a window behind a relation is for the inputs of a join", _HINT)
    found: list[Entry] = []
    bracket = last
    for entry in reversed(sources):
        bracket = entry.bracket or bracket
        assert isinstance(bracket.range, Figure) and isinstance(last.range, Figure)
        if not bracket.tumbling:
            raise _wrong(text, bracket.span, "windows that slide are not joined with windows that tumble")
        if bracket.range.value != last.range.value or _origin(bracket) != _origin(last):
            raise _wrong(text, bracket.span, "windows that tumble are joined if they are equally long")
        column = None
        if bracket.attribute is not None:
            column = Argument("", as_written(bracket.attribute.last), bracket.attribute.span)
        size = Argument("SIZE", bracket.range.sql, bracket.range.span)
        offset = _offset(bracket)
        window = WindowCall(bracket.span, "TUMBLE", column, (size, *([] if offset is None else [offset])))
        found.insert(0, replace(entry, window=window))
    return found


def _origin(bracket: Bracket) -> int:
    return 0 if bracket.origin is None else bracket.origin.value


def _offset(bracket: Bracket) -> Argument | None:
    if bracket.origin is None or not isinstance(bracket.range, Figure):
        return None
    shift = replace(bracket.range, value=bracket.origin.value % bracket.range.value)
    return Argument("`OFFSET`", shift.sql, bracket.seen["ORIGIN"], named=True) if shift.value else None


# ---- relations and conditions


def relation_edits(sources: Sequence[Entry]) -> Iterator[Edit]:
    """Relations with the window functions around them, and unions as queries."""
    for each in sources:
        yield from wrapped(each) if each.window is not None else _as_it_is(each)


def wrapped(source: Entry) -> Iterator[Edit]:
    """The window function around a relation."""
    window = source.window
    assert window is not None
    start, end = Span(source.start, source.start), Span(source.end, source.end)
    yield Edit(start, window.opening + ("(SELECT * FROM " if source.union else ""), window.span)
    yield from source.edits
    if source.union:
        yield Edit(end, ")", window.span)
    for text, origin in window.closing():
        yield Edit(end, text, origin)
    if source.alias is None and (name := "__union" if source.union else source.name) is not None:
        yield Edit(end, f" AS {name}", Span(source.start, source.end))


def _as_it_is(source: Entry) -> Iterator[Edit]:
    """A relation without a window; a union becomes a query."""
    if source.union:
        yield Edit(Span(source.start, source.start), "(SELECT * FROM ", Span(source.start, source.end))
    yield from source.edits
    if source.union:
        yield Edit(Span(source.end, source.end), ")", Span(source.start, source.end))


def _check_inner(text: str, sources: Sequence[Entry], index: int) -> None:
    """What is not in ON stands in WHERE, which is the same where no row comes out without a partner."""
    joins = [each.join for each in sources]
    if joins[index] not in _INNER or any(join not in _INNER and "LEFT" not in join for join in joins):
        span = Span(sources[index].start, sources[index].end)
        raise _wrong(text, span, "the windows of an outer join need a condition behind ON", "as in ON a.k = b.k")


def _and(tokens: Sequence[Token], condition: Span, more: list[tuple[str, Span]]) -> Iterator[Edit]:
    """One more condition."""
    inside = [token for token in tokens if condition.start <= token.start < condition.end]
    depth = 0
    either = False
    for token in inside:
        if token.kind == SYMBOL:
            depth += (token.text in OPENING) - (token.text in CLOSING)
        either = either or (depth == 0 and token.upper == "OR")
    # In front of the condition as it was written, so that what is missing at its end is missed there.
    start, end = Span(condition.start, condition.start), Span(condition.end, condition.end)
    for piece, origin in more:
        yield Edit(start, piece, origin)
    yield Edit(start, " AND (" if either else " AND ", more[-1][1])
    if either:
        yield Edit(end, ")", condition)


def _where(tokens: Sequence[Token], block: Block, conditions: list[list[tuple[str, Span]]]) -> Iterator[Edit]:
    if tokens[block.source_end - 1].text == ",":  # as printed queries have it before WHERE
        yield Edit(tokens[block.source_end - 1].span, "")
    if not conditions:
        return
    more = [piece for each in conditions for piece in (*each, (" AND ", each[-1][1]))][:-1]
    if block.rows_end > block.source_end:
        span = Span(tokens[block.source_end + 1].start, tokens[block.rows_end - 1].end)
        yield from _and(tokens, span, more)
        return
    end = Span(tokens[block.source_end - 1].end, tokens[block.source_end - 1].end)
    yield Edit(end, " WHERE ", more[0][1])
    for piece, origin in more:
        yield Edit(end, piece, origin)


# ---- windows over joins


def pairs_edits(
    text: str,
    tokens: Sequence[Token],
    block: Block,
    sources: Sequence[Entry],
    inside: Sequence[Edit],
    window: WindowCall,
) -> Iterator[Edit]:
    """FROM and WHERE of a join as a query of the columns that the rest asks for, with the window around it.

    `inside` are the edits of the join itself.
    """
    assert block.source is not None
    if window.partition:
        span = window.partition[0].origin
        raise _wrong(text, span, "PA is not for windows over a join", "put the column into GROUP BY")
    if window.column is None or window.column.text in ("row_num", "arrival_ts"):
        raise NotSupported(
            "a window over a join lies along a column of one of its inputs",
            text=text, start=window.span.start, end=window.span.end, hint="name it, as in WA a.ts",
        )  # fmt: skip
    names = {each.exposed.strip("`").lower() for each in sources if each.exposed is not None}
    columns = _Columns(names)
    along = columns.name(window.column.text, window.column.origin)
    renamed = list(_renamed(text, tokens, block, columns))
    listed = [piece for each in columns.pieces() for piece in each]
    start, end = tokens[block.source].start, tokens[block.rows_end - 1].end
    yield Edit(Span(start, start), f"{window.opening}(SELECT ", window.span)
    for piece, origin in listed:
        yield Edit(Span(start, start), piece, origin)
    yield Edit(Span(start, start), " FROM ", window.span)
    yield from inside
    yield from renamed
    around = replace(window, column=replace(window.column, text=along))
    yield Edit(Span(end, end), ")", window.span)
    for piece, origin in around.closing():
        yield Edit(Span(end, end), piece, origin)
    yield Edit(Span(end, end), " AS __pairs", window.span)


class _Columns:
    """The columns of pairs: each under a name that tells its input."""

    def __init__(self, inputs: set[str]) -> None:
        self.inputs = inputs
        self.found: dict[str, tuple[str, str, Span]] = {}  # what it is -> its name, as it is written, where

    def name(self, written: str, origin: Span) -> str:
        key = "".join(written.lower().split())
        if key not in self.found:
            parts = [part.strip("` ") for part in written.split(".")]
            name = "_".join(parts[-2:])
            taken = {known.lower() for known, _, _ in self.found.values()}
            while name.lower() in taken:
                name += "_"
            self.found[key] = (as_written(name), written, origin)
        return self.found[key][0]

    def pieces(self) -> Iterator[list[tuple[str, Span]]]:
        for index, (name, written, origin) in enumerate(self.found.values()):
            before = [(", ", origin)] if index else []
            yield [*before, (written, origin), *([] if name == written else [(f" AS {name}", origin)])]


def _renamed(text: str, tokens: Sequence[Token], block: Block, columns: _Columns) -> Iterator[Edit]:
    """The names of columns outside FROM and WHERE, as those of pairs."""
    items = list(split_commas(tokens[block.items : block.items_end]))
    given = {item[-1].name.lower() for item in items if len(item) > 1 and item[-1].is_name and item[-2].text != "."}
    for item in items:
        named = list(chains(item))
        alone = len(named) == 1 and named[0].span == Span(item[0].start, item[-1].end)
        for each in named:
            if len(each.parts) > 1 and each.parts[0].lower() in columns.inputs:
                name = columns.name(each.span.of(text), each.span)
                shown = f" AS {as_written(each.parts[-1])}" if alone else ""
                yield Edit(each.span, name + shown, each.span)
            elif alone and each.parts[-1].lower() not in ("window_start", "window_end", "window_time", "window_id"):
                columns.name(each.span.of(text), each.span)
    groups = tokens[block.group_items : block.group_end] if block.group is not None else []
    for group in split_commas(groups):
        alone_here = len(group) == 1 and group[0].is_name and group[0].name.lower() not in given
        if alone_here and not group[0].name.lower().startswith("window_"):
            columns.name(group[0].text, group[0].span)
    rest = [*groups, *_behind(tokens, block)]
    for each in chains(rest):
        if len(each.parts) > 1 and each.parts[0].lower() in columns.inputs:
            yield Edit(each.span, columns.name(each.span.of(text), each.span), each.span)


def _behind(tokens: Sequence[Token], block: Block) -> list[Token]:
    """What stands behind GROUP BY, up to the end of the query: HAVING, ORDER BY."""
    found: list[Token] = []
    depth = 0
    for token in tokens[block.group_end :]:
        if token.kind == SYMBOL:
            depth += (token.text in OPENING) - (token.text in CLOSING)
        if depth < 0 or token.kind == END or (depth == 0 and token.upper in SET_OPERATORS):
            break
        found.append(token)
    return found


def _wrong(text: str, span: Span, message: str, hint: str | None = None) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, start=span.start, end=span.end, hint=hint)
