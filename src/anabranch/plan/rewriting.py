"""A query in other words: the same meaning, in a form that planning understands, with its places in the user's text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anabranch.errors import Rewritten
from anabranch.sql.cursor import MAX_QUERIES
from anabranch.sql.lexer import Span, quote_name
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Query, Select, SelectStatement


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


def with_hidden(select: Select, hidden: Iterable[tuple[str, str]]) -> list[Edit]:
    """Edits that add columns to a SELECT list."""
    added = "".join(f", {expression} AS {quote_name(name)}" for name, expression in hidden)
    last = select.items[-1].span
    return [Edit(Span(last.end, last.end), added)] if added else []


def with_condition(select: Select, condition: str) -> list[Edit]:
    """Edits that ask one thing more of the rows of a SELECT."""
    if select.where is not None:
        start, end = select.where.span.start, select.where.span.end
        return [Edit(Span(start, start), "("), Edit(Span(end, end), f") AND {condition}")]
    assert select.from_span is not None
    return [Edit(Span(select.from_span.end, select.from_span.end), f" WHERE {condition}")]
