"""The clauses that control emission: EMIT, TRIGGER and LATE."""

from __future__ import annotations

from typing import Literal, cast

from anabranch.algebra.smoothing import Budget
from anabranch.errors import SyntaxProblem, nearest
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import take_duration
from anabranch.sql.lexer import WORD, Token
from anabranch.sql.syntax import Emission
from anabranch.sql.text import Span

_SECOND_WORDS: dict[str, frozenset[str]] = {
    "EMIT": frozenset({"ON", "CHANGES", "STREAM", "AFTER"}),
    "TRIGGER": frozenset({"ON", "COUNTING", "AFTER"}),
    "LATE": frozenset({"CORRECT", "ARCHIVE", "DROP", "FAIL"}),
}

_FORMS = {
    "EMIT": "EMIT CHANGES, EMIT ON WINDOW CLOSE, EMIT [STREAM] [AFTER WATERMARK] [AND] [AFTER DELAY INTERVAL ...]",
    "TRIGGER": "TRIGGER COUNTING n, AFTER DELAY INTERVAL ..., ON WATERMARK, ON END OF STREAM, one or several of these",
    "LATE": "LATE CORRECT, LATE ARCHIVE, LATE DROP, LATE FAIL",
}


def emission_ahead(cursor: Cursor, distance: int = 0) -> bool:
    """TRIGGER, EMIT and LATE are ordinary names unless the words after them make them a clause."""
    second = cursor.ahead(distance + 1).upper
    if second not in _SECOND_WORDS.get(cursor.ahead(distance).upper, ()):
        return False
    if second == "ON":  # JOIN t emit ON emit.x = ... has an alias, unless one of these follows ON
        return cursor.ahead(distance + 2).upper in ("WINDOW", "WATERMARK", "END", "UPDATE")
    return True


def half_clause(problem: SyntaxProblem, text: str, tokens: list[Token]) -> SyntaxProblem:
    """Replace a problem by a better message if EMIT, TRIGGER or LATE before it starts an incomplete clause.

    The parser reads an incomplete clause as a name, so it reports the next word, or the name itself.
    """
    at = next((i for i, token in enumerate(tokens) if token.end > (problem.start or 0)), len(tokens) - 1)
    if problem.hint is not None or problem.start is None:
        return problem
    for index in (i for i in (at, at - 1) if 0 <= i < len(tokens) - 1):
        first, second = tokens[index], tokens[index + 1]
        forms = _FORMS.get(first.upper)
        if first.kind != WORD or second.kind != WORD or forms is None or emission_ahead(Cursor(text, tokens[index:])):
            continue
        meant = nearest(second.upper, [word for word in _SECOND_WORDS[first.upper] if word != "ON"])
        hint = f"did you mean {first.upper} {meant}?" if meant not in (None, second.upper) else f"there is: {forms}"
        words = f"{first.text} {second.text}"
        return SyntaxProblem(f"{words} is not a clause", text=text, start=first.start, end=second.end, hint=hint)
    return problem


def take_emission(cursor: Cursor) -> Emission | None:
    """The clause, if there is one here."""
    if not emission_ahead(cursor):
        return None
    start = cursor.current.start
    clause = _Clause(cursor)
    if cursor.at("TRIGGER"):
        cursor.advance()
        clause.triggers()
    elif cursor.at("EMIT"):
        cursor.advance()
        clause.emit()
    else:
        clause.silent = True
    late = _late(cursor)
    if emission_ahead(cursor):
        raise cursor.problem("one emission clause is enough")
    return clause.emission(late, Span(start, cursor.previous.end))


def _late(cursor: Cursor) -> Literal["correct", "archive", "drop", "fail"]:
    if not (cursor.at("LATE") and emission_ahead(cursor)):
        return "correct"
    cursor.advance()
    return cast(Literal["correct", "archive", "drop", "fail"], cursor.advance().text.lower())


class _Clause:
    """A clause, read word by word."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.counting: int | None = None
        self.delay: int | None = None
        self.budget: Budget | None = None
        self.first = self.watermark = self.end = self.stream = self.close = self.silent = False

    def triggers(self) -> None:
        """COUNTING n, AFTER DELAY d, ON WATERMARK, ON END OF STREAM: any of them, in any order."""
        cursor = self.cursor
        while True:
            start = cursor.current.start
            if cursor.take("COUNTING"):
                self._once(start, self.counting is not None)
                number = cursor.current
                self.counting = cursor.expect_whole_number("a number of records")
                if self.counting < 1:
                    raise self._problem("COUNTING takes a number of at least 1", number.start, number.end)
            elif cursor.take("AFTER", "DELAY"):
                self._once(start, self.delay is not None)
                self._delay()
            elif cursor.take("ON", "WATERMARK"):
                self._once(start, self.watermark)
                self.watermark = True
            elif cursor.take("ON", "END"):
                self._once(start, self.end)
                cursor.expect("OF", "STREAM")
                self.end = True
            else:
                raise cursor.problem(
                    "expected COUNTING n, AFTER DELAY d, ON WATERMARK or ON END OF STREAM",
                    known=("COUNTING", "AFTER", "ON"),
                )
            if not cursor.take(","):
                break
        if cursor.at_any({"COUNTING", "AFTER"}) or cursor.at("ON", "WATERMARK") or cursor.at("ON", "END"):
            raise cursor.problem("expected a comma between two triggers")
        self.close = self.watermark and self.counting is None and self.delay is None

    def emit(self) -> None:
        """ON WINDOW CLOSE [AT MOST n WINDOWS A RUN], CHANGES, or [STREAM] [AFTER WATERMARK] [AND] [AFTER DELAY d]."""
        cursor = self.cursor
        if cursor.take("ON"):
            cursor.expect("WINDOW", "CLOSE")
            self.watermark = self.close = True
            if cursor.take("AT", "MOST"):
                self.budget = self._budget()
            return
        if cursor.take("CHANGES"):
            return
        self.stream = cursor.take("STREAM")
        self.first = True
        while cursor.at("AFTER") or cursor.at("AND", "AFTER"):
            cursor.take("AND")
            start = cursor.advance().start
            if cursor.take("WATERMARK"):
                self._once(start, self.watermark)
                self.watermark = True
            else:
                cursor.expect("DELAY")
                self._once(start, self.delay is not None)
                self._delay()
        self.close = self.watermark and self.delay is None

    def emission(self, late: Literal["correct", "archive", "drop", "fail"], span: Span) -> Emission:
        fires = self.counting is not None or self.delay is not None or self.watermark or self.end
        mode: Literal["read", "feed", "close", "triggers"] = "triggers" if fires else "feed"
        if self.close or self.silent:
            mode = "close" if self.close else "read"
        if late != "correct" and not self.watermark and not (late == "drop" and mode == "feed"):
            raise SyntaxProblem(
                f"LATE {late.upper()} needs windows that close: this query does not wait for any",
                text=self.cursor.text,
                at=span,
                hint=f"add EMIT ON WINDOW CLOSE in front of it, as in EMIT ON WINDOW CLOSE LATE {late.upper()}",
            )
        return Emission(
            mode, span, self.counting, self.delay, self.first, self.watermark, self.end, late, self.stream, self.budget
        )

    def _budget(self) -> Budget:
        """n WINDOWS or ROWS A RUN [WITHIN m RUNS]."""
        cursor = self.cursor
        most = self._at_least_one("AT MOST", "a number of windows or rows")
        windows = cursor.take("WINDOWS") or cursor.take("WINDOW")
        if not windows and not (cursor.take("ROWS") or cursor.take("ROW")):
            raise cursor.problem("expected WINDOWS or ROWS", known=("WINDOWS", "ROWS"))
        cursor.expect("A", "RUN")
        delay: int | None = None
        if cursor.take("WITHIN"):
            delay = self._at_least_one("WITHIN", "a number of runs")
            if not (cursor.take("RUNS") or cursor.take("RUN")):
                raise cursor.problem("expected RUNS", known=("RUNS",))
        return Budget(windows=most, delay=delay) if windows else Budget(rows=most, delay=delay)

    def _at_least_one(self, word: str, what: str) -> int:
        number = self.cursor.current
        value = self.cursor.expect_whole_number(f"{what}, at least 1")
        if value < 1:
            raise self._problem(f"{word} takes a number of at least 1", number.start, number.end)
        return value

    def _delay(self) -> None:
        token = self.cursor.current
        self.delay = take_duration(self.cursor, "a delay")
        if self.delay < 0:
            raise self._problem("a delay is not negative", token.start, self.cursor.previous.end)

    def _once(self, start: int, again: bool) -> None:
        if again:
            raise self._problem("this trigger is given twice", start, self.cursor.previous.end)

    def _problem(self, message: str, start: int, end: int) -> SyntaxProblem:
        return SyntaxProblem(message, text=self.cursor.text, start=start, end=end)
