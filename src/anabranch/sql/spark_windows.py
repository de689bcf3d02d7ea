"""Windows as Spark writes them: what GROUP BY calls becomes a window function in FROM.

    SELECT k, window.start, count(*) FROM s GROUP BY k, window(ts, '10 minutes', '5 minutes')

is rewritten to

    SELECT k, window_start AS start, count(*)
    FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 5 MINUTES, INTERVAL 10 MINUTES) AS s
    GROUP BY k, window_start, window_end

and `session_window` to SESSION, with the other columns of GROUP BY to keep its sessions apart. This goes for a SELECT
over one relation, with the time in a column of it and lengths that are written out. Of any other the call stays where
it is, for Spark to compute; only the name that Spark gives to it, `window`, is written out as the call it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.errors import SqlError, SyntaxProblem
from anabranch.sql.calls import closing
from anabranch.sql.clauses import Block, find_blocks
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import parse_duration
from anabranch.sql.emission import emission_ahead
from anabranch.sql.entries import Entry
from anabranch.sql.figures import Figure
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, STRING, SYMBOL, WORD, Span, Token, normal_form
from anabranch.sql.relations import take_relation
from anabranch.sql.spellings import Argument, WindowCall, as_written
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Relation
from anabranch.sql.terms import SET_OPERATORS, ends_value
from anabranch.sql.window_joins import wrapped

FUNCTIONS = ("window", "session_window")
_FIELDS = {"start": "window_start", "end": "window_end"}
_COLUMNS = (*_FIELDS.values(), "window_time")
_WHOLE = "named_struct('start', window_start, 'end', window_end)"
_WINDOW_TIME = "(window_end - INTERVAL '1' MICROSECOND)"  # as Spark has it of a window
_FILES = ("csv", "tsv", "json", "parquet", "orc", "avro", "text", "xml", "files")
_SETS = ("ALL", "ROLLUP", "CUBE", "GROUPING", "WITH", "SETS")
#: What the figures are called in messages, in the order in which they stand.
_FIGURES = {"window": ("the size", "the slide", "the start"), "session_window": ("the gap",)}


@dataclass(frozen=True)
class _Call:
    """A call of one of the functions: indexes of its first and its last token, and of those of each argument."""

    function: str
    first: int
    last: int
    arguments: tuple[tuple[int, int], ...]
    timed: bool = True  # without a time it is the event time of the stream that windows lie along

    @property
    def figures(self) -> tuple[tuple[int, int], ...]:
        return self.arguments[1:] if self.timed else self.arguments


@dataclass(frozen=True)
class _Mention:
    """A place that speaks of the window: all of it, a bound, or what window_time gives."""

    first: int
    last: int
    part: str  # "whole", "start", "end" or "time"
    called: bool  # by the call, not by its name

    def name(self, function: str) -> str:
        """The name that Spark gives to it where it stands alone in a SELECT list."""
        if self.part == "whole":
            return function
        if self.part == "time":
            return f"window_time({function})"
        return f"{function}.{self.part}" if self.called else self.part


def spark_edits(text: str, tokens: list[Token]) -> list[Edit]:
    """The edits that make window functions of the calls of window and session_window in GROUP BY."""
    calls = [call for index in range(len(tokens)) if (call := _call_at(tokens, index)) is not None]
    if not calls:
        return []
    for call in calls:
        _check(text, tokens, call)
    blocks = find_blocks(text, tokens, False)
    return [edit for block in blocks for edit in _Select(text, tokens, blocks, block, calls).all_edits()]


def _call_at(tokens: list[Token], index: int) -> _Call | None:
    token = tokens[index]
    if token.kind != WORD or token.text.lower() not in FUNCTIONS or tokens[min(index + 1, len(tokens) - 1)].text != "(":
        return None
    if index > 0 and tokens[index - 1].text == ".":
        return None
    last = closing(tokens, index + 1)
    arguments = tuple(_pieces(tokens, index + 2, last))
    timed = not arguments or tokens[arguments[0][0]].kind != STRING or _figure(tokens, *arguments[0]) is None
    return _Call(token.text.lower(), index, last, arguments, timed)


def _pieces(tokens: list[Token], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the pieces between commas start and end, as indexes."""
    depth, start = 0, first
    for index in range(first, end):
        token = tokens[index]
        if token.kind == SYMBOL:
            depth += (token.text in OPENING) - (token.text in CLOSING)
            if token.text == "," and depth == 0:
                yield start, index
                start = index + 1
    if start < end:
        yield start, end


def _check(text: str, tokens: list[Token], call: _Call) -> None:
    """Lengths that are written out are more than nothing, and no slide is longer than its window."""
    found: dict[str, Figure] = {}
    for what, (first, end) in zip(_FIGURES[call.function], call.figures, strict=False):
        figure = _figure(tokens, first, end)
        if figure is None:
            continue
        found[what] = figure
        if figure.value <= 0 and what != "the start":
            raise _wrong(text, figure.span, f"{what} of {call.function}() must be longer than nothing")
    size, slide, start = (found.get(what) for what in _FIGURES["window"])
    if size is not None and slide is not None and slide.value > size.value:
        hint = "HOP has windows with time between them: HOP(t, ts, slide, size)"
        raise _wrong(text, slide.span, "the slide of window() is at most as long as its windows", hint)
    every = slide or size
    if start is not None and every is not None and abs(start.value) >= every.value:
        hint = "windows start anew with each slide: what is left of it when slides are taken away is the same start"
        raise _wrong(text, start.span, "the start of window() is less than its slide", hint)


def _figure(tokens: list[Token], first: int, end: int) -> Figure | None:
    """A length of time that is written out: a text, or a number of microseconds."""
    minus = tokens[first].text == "-"
    rest = tokens[first + minus : end]
    if len(rest) != 1:
        return None
    token = rest[0]
    span = Span(tokens[first].start, token.end)
    if token.kind == NUMBER and token.text.isdecimal():
        return Figure(-int(token.text) if minus else int(token.text), "time", span)
    if token.kind != STRING or minus:
        return None
    written = token.value.strip()
    value = parse_duration(written[8:] if written[:9].lower() == "interval " else written)
    return None if value is None else Figure(value, "time", span)


def _wrong(text: str, span: Span, message: str, hint: str | None = None) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, start=span.start, end=span.end, hint=hint)


class _Select:
    """One SELECT, with the calls in it."""

    def __init__(self, text: str, tokens: list[Token], blocks: list[Block], block: Block, calls: list[_Call]) -> None:
        self.text = text
        self.tokens = tokens
        self.block = block
        self.inner = [each for each in blocks if block.select < each.select < block.end]
        self.tail_end = self._tail_end()
        self.calls = [each for each in calls if self._own(each.first)]
        self.items = [self._item(*each) for each in _pieces(tokens, block.items, block.items_end)]

    def all_edits(self) -> list[Edit]:
        edits = list(self.edits())
        untimed = next((call for call in self.calls if not call.timed), None)
        if untimed is not None and not edits:
            span = Span(self.tokens[untimed.first].start, self.tokens[untimed.last].end)
            message = "a window without a time column is one of GROUP BY over a single stream or view"
            raise _wrong(self.text, span, message, "name the column with the time first: TUMBLE(ts, INTERVAL ...)")
        return edits

    def edits(self) -> Iterator[Edit]:
        block = self.block
        if block.source is None or block.group is None or not self.calls:
            return
        groups = list(_pieces(self.tokens, block.group_items, block.group_end))
        if any(token.upper in _SETS for token in self.tokens[block.group_items : block.group_end]):
            return
        forms = {normal_form(self.tokens[each.first : each.last + 1]) for each in self.calls}
        stand = [self._stands_for(*group) for group in groups]
        grouped = [mention for each in stand if (mention := self._alone(*each)) is not None and mention.called]
        if len(forms) > 1 or not grouped:
            return
        self.call = self.calls[0]
        window = self._window(groups, stand)
        if window is None:
            yield from self._written_out()
        else:
            yield from self._rewritten(window, groups, stand)

    # ---- places

    def _own(self, index: int) -> bool:
        """Whether a token belongs to this SELECT, or to ORDER BY behind it, and to no query inside."""
        inside = self.block.holds(index) or self.block.end <= index < self.tail_end
        return inside and not any(each.select <= index < each.end for each in self.inner)

    def _tail_end(self) -> int:
        """Where ORDER BY behind the SELECT ends; it is that of all of a UNION, and then knows nothing of windows."""
        start = self.block.end
        before = [token.upper for token in self.tokens[max(self.block.select - 2, 0) : self.block.select]]
        if self.tokens[start].upper != "ORDER" or SET_OPERATORS & set(before):
            return start
        depth = 0
        for index in range(start, len(self.tokens)):
            token = self.tokens[index]
            opens = token.kind == SYMBOL
            depth += (opens and token.text in OPENING) - (opens and token.text in CLOSING)
            ends = token.kind == END or (opens and token.text == ";") or token.upper in ("LIMIT", "OFFSET")
            if depth < 0 or (depth == 0 and (ends or emission_ahead(Cursor(self.text, self.tokens, index)))):
                return index
        return len(self.tokens) - 1

    def _item(self, first: int, end: int) -> tuple[int, int, str | None]:
        """An item of the SELECT list without the name given to it, and that name."""
        if end - first > 2 and self.tokens[end - 2].upper == "AS":
            return first, end - 2, self.tokens[end - 1].name
        last, before = self.tokens[end - 1], self.tokens[max(end - 2, 0)]
        if end - first > 1 and last.is_name and before.text != "." and ends_value(before):
            return first, end - 1, last.name
        return first, end, None

    def _stands_for(self, first: int, end: int) -> tuple[int, int]:
        """What is grouped by: a number and a name given to an item stand for the item."""
        token = self.tokens[first]
        if end - first > 1:
            return first, end
        if token.kind == NUMBER and token.text.isdecimal() and 0 < int(token.text) <= len(self.items):
            return self.items[int(token.text) - 1][:2]
        named = [item for item in self.items if item[2] is not None and token.is_name]
        return next((item[:2] for item in named if (item[2] or "").lower() == token.name.lower()), (first, end))

    # ---- what speaks of the window

    def _mentions(self, first: int, end: int) -> Iterator[_Mention]:
        """The places of a stretch that speak of the window."""
        index = first
        while index < end:
            found = self._mention(index, end) if self._own(index) else None
            if found is not None:
                yield found
            index = found.last + 1 if found is not None else index + 1

    def _mention(self, index: int, end: int) -> _Mention | None:
        tokens = self.tokens
        token, following = tokens[index], tokens[min(index + 1, len(tokens) - 1)]
        if token.upper == "WINDOW_TIME" and following.text == "(" and tokens[index - 1].text != ".":
            inside = self._mention(index + 2, end)
            last = closing(tokens, index + 1)
            if inside is not None and inside.part == "whole" and inside.last + 1 == last:
                return _Mention(index, last, "time", True)
        call = next((each for each in self.calls if each.first == index), None)
        if call is not None:
            last = call.last
        elif self._names(index):
            last = index
        else:
            return None
        dot, field = tokens[min(last + 1, len(tokens) - 1)], tokens[min(last + 2, len(tokens) - 1)]
        if dot.text == "." and field.is_name and field.name.lower() in _FIELDS:
            return _Mention(index, last + 2, field.name.lower(), call is not None)
        return _Mention(index, last, "whole", call is not None)

    def _names(self, index: int) -> bool:
        """Whether this is the name of the window: not of something else, and not a word of the WINDOW clause."""
        tokens = self.tokens
        token, before, following = tokens[index], tokens[index - 1], tokens[min(index + 1, len(tokens) - 1)]
        if not token.is_name or token.name.lower() != self.calls[0].function:
            return False
        if before.text == "." or before.upper == "AS" or following.text == "(":
            return False
        return not (following.is_name and tokens[min(index + 2, len(tokens) - 1)].upper == "AS")

    def _alone(self, first: int, end: int) -> _Mention | None:
        """What speaks of the window if it is all that stands here."""
        found = next(self._mentions(first, end), None)
        return found if found is not None and (found.first, found.last + 1) == (first, end) else None

    # ---- whether it can be a window of FROM

    def _window(self, groups: list[tuple[int, int]], stand: list[tuple[int, int]]) -> WindowCall | None:
        """The window function that the call stands for; None if it has to stay what it is."""
        time = self._time()
        figures = [_figure(self.tokens, *each) for each in self.call.figures]
        if (
            (time is None and self.call.timed)
            or None in figures
            or not 1 <= len(figures) <= len(_FIGURES[self.call.function])
        ):
            return None
        assert self.block.source is not None
        if any(self.block.source <= each.first < self.block.rows_end for each in self.calls):
            return None
        if self._uses_columns():
            return None
        span = Span(self.tokens[self.call.first].start, self.tokens[self.call.last].end)
        size, slide, start = ([each for each in figures if each is not None] + [None, None])[:3]
        assert size is not None
        if self.call.function == "session_window":
            partition = self._partition(stand)
            if partition is None:
                return None
            return WindowCall(span, "SESSION", time, (Argument("GAP", size.sql, size.span),), partition)
        every = slide or size
        arguments = [Argument("SIZE", size.sql, size.span)]
        if every.value != size.value:
            arguments.insert(0, Argument("SLIDE", every.sql, every.span))
        if start is not None and start.value % every.value:
            shift = Figure(start.value % every.value, "time", start.span)
            arguments.append(Argument("`OFFSET`", shift.sql, shift.span))
        return WindowCall(span, "TUMBLE" if every.value == size.value else "HOP", time, tuple(arguments))

    def _time(self) -> Argument | None:
        first, end = self.call.arguments[0] if self.call.arguments and self.call.timed else (0, 0)
        plain = self._column(first, end)
        if plain is None or plain.name.lower() in (*FUNCTIONS, "row_num", "arrival_ts"):  # a window is a time, too
            return None
        span = Span(self.tokens[first].start, plain.end)
        return Argument("", span.of(self.text), span)

    def _column(self, first: int, end: int) -> Token | None:
        """The last part of the name of a column, if that is all that stands here."""
        stretch = self.tokens[first:end]
        dotted = len(stretch) % 2 == 1 and all(token.text == "." for token in stretch[1::2])
        plain = dotted and len(stretch) <= 3 and all(token.is_name for token in stretch[::2])
        return stretch[-1] if plain else None

    def _partition(self, stand: list[tuple[int, int]]) -> tuple[Argument, ...] | None:
        """The columns that keep sessions apart: all that is grouped by beside them, if it is columns."""
        whole, found = False, []
        for first, end in stand:
            mention = self._alone(first, end)
            column = self._column(first, end)
            if mention is not None:
                whole = whole or mention.part == "whole"
            elif column is None:
                return None
            else:
                found.append(Argument("", as_written(column.name), column.span))
        return tuple(found) if whole else None

    def _uses_columns(self) -> bool:
        """Whether the columns of a window function have another meaning here already."""
        given = {name.lower(): (first, end) for first, end, name in self.items if name is not None}
        own = set()
        for name in _COLUMNS:
            mention = self._alone(*given[name]) if name in given else None
            if mention is not None and _FIELDS.get(mention.part) == name:
                own.add(name)
        names = (
            token.name.lower()
            for index, token in enumerate(self.tokens[: self.tail_end])
            if token.is_name and self._own(index) and self.tokens[index + 1].text != "("
        )
        return any(name in _COLUMNS and name not in own for name in names)

    def _relation(self) -> Relation | None:
        """The only relation of FROM, if it is one that a window function can stand around."""
        block = self.block
        assert block.source is not None
        stop = self.tokens[block.source_end - 1].end
        cursor = Cursor(self.text, [*self.tokens[block.source : block.source_end], Token(END, "", stop, stop)])
        try:
            found = take_relation(cursor, "")
        except SqlError:
            return None  # the parser says what is wrong with it
        if not cursor.at_end or found.reshaped or found.alias_columns or found.refreshable is not None:
            return None
        after = found.alias_span is not None and found.version_span is not None
        if found.kind == "opaque" or (found.kind == "function" and found.function not in _FILES) or found.current:
            return None
        if after and (found.version_span or found.span).start > (found.alias_span or found.span).start:
            return None
        return None if (found.exposed or "").lower() in FUNCTIONS else found

    # ---- the edits

    def _rewritten(
        self, window: WindowCall, groups: list[tuple[int, int]], stand: list[tuple[int, int]]
    ) -> Iterator[Edit]:
        relation = self._relation()
        if relation is None:
            yield from self._written_out()
            return
        yield from self._around(relation, window)
        texts = {"whole": _WHOLE, "time": _WINDOW_TIME, **_FIELDS}
        for group, meant in zip(groups, stand, strict=True):
            mention = self._alone(*meant)
            if mention is not None:
                span = Span(self.tokens[group[0]].start, self.tokens[group[1] - 1].end)
                yield Edit(span, ", ".join(_FIELDS.values()) if mention.part == "whole" else texts[mention.part])
        yield from self._replaced(texts)

    def _around(self, relation: Relation, window: WindowCall) -> Iterator[Edit]:
        """The window function around the relation; around its conditions as well, where they say which rows count."""
        block = self.block
        assert block.source is not None
        start = self.tokens[block.source].start
        if window.function == "SESSION" and self.tokens[block.source_end].upper == "WHERE":
            place = self.tokens[block.rows_end - 1].end
            yield Edit(Span(start, start), f"{window.opening}(SELECT * FROM ", window.span)
            yield Edit(Span(place, place), ")", window.span)
            for piece, origin in window.closing():
                yield Edit(Span(place, place), piece, origin)
            if relation.exposed is not None:
                yield Edit(Span(place, place), f" AS {as_written(relation.exposed)}", relation.span)
            return
        alias = relation.alias_span.start if relation.alias_span is not None else None
        inside = [
            token.end for token in self.tokens[block.source : block.source_end] if alias is None or token.end <= alias
        ]
        name = as_written(relation.exposed) if relation.exposed is not None and alias is None else None
        yield from wrapped(Entry(start, inside[-1], name, relation.alias if alias is not None else None, window))

    def _written_out(self) -> Iterator[Edit]:
        """The call itself, wherever Spark would have its name; unless a column that it reads has the same one."""
        if not self.call.timed:
            return
        inside = self.tokens[self.call.first + 1 : self.call.last]
        if any(token.is_name and token.name.lower() == self._function for token in inside):
            return
        call = Span(self.tokens[self.call.first].start, self.tokens[self.call.last].end).of(self.text)
        texts = {"whole": call, **{field: f"{call}.{field}" for field in _FIELDS}}
        yield from self._replaced(texts, called=False)

    def _replaced(self, texts: dict[str, str], *, called: bool = True) -> Iterator[Edit]:
        """What speaks of the window in other words; where it is an item, under the name that it has."""
        shown: dict[str, str] = {}
        for first, end, name in self.items:
            alone = self._alone(first, end)
            for mention in self._mentions(first, end):
                if mention.part not in texts or (mention.called and not called):
                    continue
                named = (
                    "" if name is not None or mention != alone else f" AS {as_written(mention.name(self._function))}"
                )
                yield Edit(self._span(mention), texts[mention.part] + named)
            if alone is not None:
                shown.setdefault(alone.part, name or alone.name(self._function))
        for mention in self._mentions(self.block.group_end, self.tail_end):
            if mention.part not in texts or (mention.called and not called):
                continue
            behind = mention.first >= self.block.end  # what ORDER BY sorts is the list
            known = as_written(shown[mention.part]) if behind and mention.part in shown else texts[mention.part]
            yield Edit(self._span(mention), known)

    @property
    def _function(self) -> str:
        return self.call.function

    def _span(self, mention: _Mention) -> Span:
        return Span(self.tokens[mention.first].start, self.tokens[mention.last].end)
