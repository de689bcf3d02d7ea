"""Every error a user can meet, under one root.

A message says what was wrong, where, and what to do. An error that stems from SQL text carries the text and the
span in it, so that whoever prints it can underline the place. This module knows nothing of Spark or the ledger.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Protocol


class Place(Protocol):
    """A stretch of a text, such as a span or a token."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class Rewritten(str):
    """A text made from one that a user wrote. An error in it is shown in the user's text, at the place it came from."""

    original: str
    place: Callable[[int, int], tuple[int, int]]  # a stretch of this text -> the one of the original

    def __new__(cls, text: str, original: str, place: Callable[[int, int], tuple[int, int]]) -> Rewritten:
        made = super().__new__(cls, text)
        made.original, made.place = original, place
        return made


class AnabranchError(Exception):
    """The root: catch this to catch everything Anabranch raises on purpose."""

    #: Process exit code when this error ends a command.
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def placed(self, text: str, at: Place) -> SqlError:
        """The same, as an error at a place in a text."""
        return SqlError(self.message, text=text, at=at, hint=self.hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class SqlError(AnabranchError):
    """Something wrong at a place in SQL text."""

    def __init__(
        self,
        message: str,
        *,
        text: str | None = None,
        at: Place | None = None,
        start: int | None = None,
        end: int | None = None,
        hint: str | None = None,
    ) -> None:
        """The place in the text is `at`, or from `start` to `end`."""
        super().__init__(message, hint=hint)
        if at is not None:
            start, end = at.start, at.end
        while isinstance(text, Rewritten):
            if start is not None:
                start, end = text.place(start, start + 1 if end is None else end)
            text = text.original
        self.text = text
        self.start = start
        self.end = end

    def __str__(self) -> str:
        lines = [self.message]
        if self.text is not None and self.start is not None:
            lines.append(underline(self.text, self.start, self.end))
        if self.hint is not None:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


class SyntaxProblem(SqlError):
    """Text that is not a statement of the dialect."""


def problem(text: str, at: Place, message: str, hint: str | None = None) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, at=at, hint=hint)


class UnknownName(SqlError):
    """A stream, view, table, column, function or option that does not exist."""


class UnknownFunction(UnknownName):
    """A function that Spark does not have, and this process has not been given."""

    function = ""


class WrongType(SqlError):
    """An expression whose type does not fit its place."""


class NotSupported(SqlError):
    """A statement that is understood but cannot be carried out."""


class UsageError(AnabranchError):
    """A wrong call: options that contradict each other, a missing argument."""

    exit_code = 2


class EnvironmentProblem(AnabranchError):
    """The machine lacks something: Java, disk space, a package."""


class LedgerError(AnabranchError):
    """The ledger cannot be read or written as it is."""


class HomeInUse(LedgerError):
    """Another process has the home open for writing."""


class SourceError(AnabranchError):
    """A source cannot be read."""


class SinkError(AnabranchError):
    """A sink cannot be written."""


class QueryFailed(AnabranchError):
    """Spark refused or failed a query for a reason that has no place in the SQL text."""


class DataError(SqlError, QueryFailed):
    """A value that could not be computed: a division by zero, a text that is no number, an overflow.

    `expression` is the one that failed, as Spark was given it; empty if Spark does not say. `condition` is Spark's name
    for what is wrong.
    """

    def __init__(
        self,
        message: str,
        *,
        expression: str = "",
        condition: str = "",
        text: str | None = None,
        start: int | None = None,
        end: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, text=text, start=start, end=end, hint=hint)
        self.expression = expression
        self.condition = condition

    def at(self, text: str, start: int, end: int) -> DataError:
        """The same with its place in a text."""
        return DataError(
            self.message,
            expression=self.expression,
            condition=self.condition,
            text=text,
            start=start,
            end=end,
            hint=self.hint,
        )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, if one does.

    >>> nearest("acution", ["auction", "bidder"])
    'auction'
    """
    by_folded = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known name, or lists what exists."""
    candidates = sorted(set(known))
    match = nearest(name, candidates)
    if match is not None:
        return f"did you mean {match}?"
    if not candidates:
        return None
    shown = ", ".join(candidates[:12])
    return f"there is: {shown}{', ...' if len(candidates) > 12 else ''}"


def underline(text: str, start: int, end: int | None = None) -> str:
    """The line of `text` that holds `start`, with the span underlined.

    >>> print(underline("SELECT a\\nFORM b", 9, 13))
      line 2: FORM b
              ^^^^
    """
    start = min(max(start, 0), len(text))
    line_number = text.count("\n", 0, start) + 1
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    line = text[line_start:line_end]
    stop = start + 1 if end is None else max(end, start + 1)
    width = max(1, min(stop, line_end) - start)
    column = start - line_start
    # A long line is cut around the place, so that the mark stays on the screen.
    if len(line) > 160:
        cut = max(0, column - 60)
        line = line[cut : cut + 150]
        column -= cut
        width = min(width, max(1, len(line) - column))
    label = f"  line {line_number}: "
    return f"{label}{line}\n{' ' * (len(label) + column)}{'^' * width}"
