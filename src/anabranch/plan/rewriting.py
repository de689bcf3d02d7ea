"""A query in other words: the same meaning, in a form that planning understands, with its places in the user's text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anabranch.errors import Rewritten
from anabranch.sql.cursor import MAX_QUERIES
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


def rewritten_throughout(text: str, query: Query, step: Callable[[str, Query], Sequence[Edit]]) -> tuple[str, Query]:
    """The query with the edits of one step after the other made, until there are none."""
    for _ in range(MAX_QUERIES):
        edits = step(text, query)
        if not edits:
            break
        text, query = rewritten(text, query, edits)
    return text, query
