"""Windows in GROUP BY as Flink had them once, and as Arroyo has them: calls of Spark's own window function.

    SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)

is rewritten to

    SELECT window(ts, '1 minute').start AS window_start, count(*) FROM s GROUP BY window(ts, '1 minute')

and so are HOP and SESSION. Without a column, as in TUMBLE(INTERVAL '1' MINUTE), windows lie along the event time of the
stream. What becomes of calls of Spark's function is for `spark_windows` to know; their intervals become texts here,
because Spark takes no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.errors import NotSupported, SqlError, SyntaxProblem
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.clauses import Block, find_blocks
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import duration_text, take_duration
from anabranch.sql.lexer import END, NUMBER, STRING, WORD, Span, Token, normal_form, quote_string
from anabranch.sql.splice import Edit

#: The figures of each, in the order in which they stand behind the time; those after the first | can be left out.
_FIGURES = {"TUMBLE": ("size", "|", "offset"), "HOP": ("slide", "size", "|", "offset"), "SESSION": ("gap",)}
_PARTS = ("START", "END", "ROWTIME", "PROCTIME")
_PART_OF = {f"{function}_{part}": (function, part) for function in _FIGURES for part in _PARTS}
_OWN = ("WINDOW", "SESSION_WINDOW")  # Spark's


@dataclass(frozen=True)
class _Call:
    """A call that is looked at: indexes of its first and its last token, and the tokens of each argument."""

    function: str
    part: str | None  # of the window; None is all of it
    first: int
    last: int
    arguments: tuple[list[Token], ...]

    @property
    def timed(self) -> bool:
        """Whether the first argument is a time, and not a figure."""
        if not self.arguments or not self.arguments[0]:
            return True
        first = self.arguments[0][0]
        return first.upper not in ("INTERVAL", "-") and first.kind not in (STRING, NUMBER)

    @property
    def form(self) -> str:
        """Equal for calls that speak of the same window."""
        return " ".join((self.function, *(normal_form(each) for each in self.arguments)))


def group_edits(text: str, tokens: list[Token]) -> list[Edit]:
    """The edits that make calls of Spark's window functions of those of others outside FROM."""
    calls = [call for index in range(len(tokens)) if (call := _call_at(tokens, index)) is not None]
    if not calls:
        return []
    blocks = find_blocks(text, tokens, True)
    owners = {call.first: _owner(blocks, call.first) for call in calls}
    grouped = {each.form for each in calls if each.part is None and owners[each.first] is not None}
    edits: list[Edit] = []
    for call in calls:
        block = owners[call.first]
        if call.function in _OWN:
            edits += _own_intervals(text, tokens, call)
        elif block is not None or call.form in grouped:  # what is in no block stands behind ORDER BY
            edits += _Rewritten(text, tokens, call, block, grouped).edits()
    return edits


def _call_at(tokens: list[Token], index: int) -> _Call | None:
    token = tokens[index]
    if token.kind != WORD or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
        return None
    if index > 0 and tokens[index - 1].text == ".":
        return None
    function, part = _PART_OF.get(token.upper, (token.upper, None))
    if function not in (*_FIGURES, *_OWN, "CUMULATE"):
        return None
    last = closing(tokens, index + 1)
    return _Call(function, part, index, last, tuple(split_commas(tokens[index + 2 : last])))


def _owner(blocks: list[Block], index: int) -> Block | None:
    """The innermost SELECT around a token, unless it stands in its FROM."""
    block = next((each for each in reversed(blocks) if each.holds(index)), None)
    if block is None or (block.source is not None and block.source <= index < block.source_end):
        return None
    return block


def _own_intervals(text: str, tokens: list[Token], call: _Call) -> Iterator[Edit]:
    """INTERVAL 10 MINUTES of a call of Spark's own as '10 minutes'."""
    for argument in call.arguments[1:]:
        if argument and argument[0].upper == "INTERVAL":
            try:
                micros = _duration(text, argument, "a length of time")
            except SqlError:
                continue  # Spark says what is wrong with it
            yield Edit(_span(argument), quote_string(duration_text(micros)))


def _duration(text: str, argument: list[Token], what: str) -> int:
    end = argument[-1].end
    cursor = Cursor(text, [*argument, Token(END, "", end, end)])
    micros = take_duration(cursor, what)
    cursor.expect_end()
    return micros


def _span(tokens: list[Token]) -> Span:
    return Span(tokens[0].start, tokens[-1].end)


@dataclass(frozen=True)
class _Rewritten:
    """A call of TUMBLE, HOP or SESSION, or of a function of a part of it."""

    text: str
    tokens: list[Token]
    call: _Call
    block: Block | None
    grouped: set[str]

    def edits(self) -> Iterator[Edit]:
        call = self.call
        span = Span(self.tokens[call.first].start, self.tokens[call.last].end)
        name = self.tokens[call.first].upper
        if call.function == "CUMULATE":
            raise SyntaxProblem(
                "CUMULATE stands in FROM",
                text=self.text,
                start=span.start,
                end=span.end,
                hint="FROM CUMULATE(TABLE t, DESCRIPTOR(ts), step, size) ... GROUP BY window_start, window_end",
            )
        if call.part == "PROCTIME":
            raise NotSupported(
                "windows have no time of processing",
                text=self.text,
                start=span.start,
                end=span.end,
                hint=f"{call.function}_END is where a window ends; windows along ARRIVAL_TS go by when rows came",
            )
        if call.part is not None and call.form not in self.grouped:
            raise SyntaxProblem(
                f"{name} goes with GROUP BY {call.function} of the same time and lengths",
                text=self.text,
                start=span.start,
                end=span.end,
                hint=f"GROUP BY {call.function}({self._arguments()})",
            )
        figures = self._figures(span)
        function = "session_window" if call.function == "SESSION" else "window"
        behind = ", ".join(quote_string(duration_text(figures[each])) for each in _in_order(figures))
        if not call.timed:
            yield Edit(span, self._part(f"{function}({behind})"))
            return
        time = _span(call.arguments[0])
        before, after = self._part("|").split("|")
        yield Edit(Span(span.start, time.start), f"{before}{function}(")
        yield Edit(Span(time.end, span.end), f", {behind}){after}")

    def _arguments(self) -> str:
        return ", ".join(_span(each).of(self.text) for each in self.call.arguments if each)

    def _figures(self, span: Span) -> dict[str, int]:
        """The lengths by name, in microseconds."""
        wanted = _FIGURES[self.call.function]
        names = [each for each in wanted if each != "|"]
        needed = wanted.index("|") if "|" in wanted else len(wanted)
        given = self.call.arguments[1 if self.call.timed else 0 :]
        if not needed <= len(given) <= len(names) or not all(self.call.arguments):
            raise SyntaxProblem(
                f"in GROUP BY, {self.call.function} takes a column with the time and {' and '.join(names[:needed])}",
                text=self.text,
                start=span.start,
                end=span.end,
                hint=f"as in {self.call.function}(ts{', INTERVAL 1 MINUTE' * needed})",
            )
        return {
            name: _duration(self.text, argument, f"the {name} of the window")
            for name, argument in zip(names, given, strict=False)
        }

    def _part(self, window: str) -> str:
        """What the call stands for, of a window; an item without a name gets one."""
        part = self.call.part
        if part is None:
            return window
        if part == "ROWTIME":
            return f"({window}.end - INTERVAL 1 MILLISECOND){self._name('rowtime')}"
        return f"{window}.{part.lower()}{self._name(f'window_{part.lower()}')}"

    def _name(self, name: str) -> str:
        block, call = self.block, self.call
        if block is None or not block.items <= call.first < block.items_end:
            return ""
        before = call.first == block.items or self.tokens[call.first - 1].text == ","
        alone = before and (call.last + 1 == block.items_end or self.tokens[call.last + 1].text == ",")
        return f" AS {name}" if alone else ""


def _in_order(figures: dict[str, int]) -> list[str]:
    """The order in which Spark has them: the size before the slide; a start needs a slide before it."""
    if "gap" in figures:
        return ["gap"]
    if "offset" in figures:
        figures.setdefault("slide", figures["size"])
    return [each for each in ("size", "slide", "offset") if each in figures]
