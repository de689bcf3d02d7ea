"""A query in other words: the same meaning, in a form that planning understands, with its places in the user's text."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.errors import Rewritten
from anabranch.sql.lexer import Span
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Query, SelectStatement


def rewritten(text: str, query: Query, edits: Iterable[Edit]) -> tuple[str, Query]:
    """The query with these edits made, parsed anew."""
    made = splice(text, query.span, edits)

    def place(start: int, end: int) -> tuple[int, int]:
        there: Span = made.original(start, end)
        return there.start, there.end

    (statement,) = parse(Rewritten(made.text, text, place))
    assert isinstance(statement, SelectStatement)
    return statement.text, statement.query
