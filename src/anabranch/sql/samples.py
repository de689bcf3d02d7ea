"""TABLESAMPLE: what is sampled becomes a query of its own, with its name behind the sample, where Spark has it.

    FROM bids b TABLESAMPLE BERNOULLI (10) REPEATABLE (7)

is rewritten to

    FROM (SELECT * FROM bids) TABLESAMPLE (10 PERCENT) REPEATABLE (7) AS b
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.sql.calls import closing
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import CLOSING, NUMBER, OPENING, STRING, SYMBOL, WORD, Span, Token
from anabranch.sql.relations import take_alias
from anabranch.sql.splice import Edit
from anabranch.sql.terms import CLAUSES, JOIN_WORDS

#: Methods that take a percentage, in Postgres and DuckDB.
_METHODS = ("BERNOULLI", "SYSTEM", "RESERVOIR")


def at_sample(tokens: list[Token], index: int) -> bool:
    """Whether TABLESAMPLE (...) starts here, with or without the name of a method."""
    if tokens[index].upper != "TABLESAMPLE":
        return False
    following, behind = (tokens[min(index + distance, len(tokens) - 1)] for distance in (1, 2))
    return following.text == "(" or (following.upper in _METHODS and behind.text == "(")


def sample_edits(text: str, tokens: list[Token]) -> list[Edit]:
    places = [index for index in range(1, len(tokens)) if at_sample(tokens, index)]
    return [edit for index in places for edit in _sampled(text, tokens, index)]


def _sampled(text: str, tokens: list[Token], index: int) -> Iterator[Edit]:
    method = tokens[index + 1].text != "("
    last = closing(tokens, index + 1 + method)
    if method:
        yield Edit(tokens[index + 1].span, "")
        if tokens[last - 1].kind == NUMBER and last == index + 4:
            yield Edit(Span(tokens[last].start, tokens[last].start), " PERCENT", tokens[last].span)
    if tokens[last + 1].upper == "REPEATABLE" and tokens[last + 2].text == "(":
        last = closing(tokens, last + 2)
    end = index  # behind the last token of the relation
    alias = _alias_before(tokens, index)
    if alias is not None:
        end = index - (2 if tokens[index - 2].upper == "AS" else 1)
        yield Edit(Span(tokens[end].start, tokens[index - 1].end), "")
    first = _start(tokens, end)
    name = alias or (tokens[end - 1].text if tokens[end - 1].is_name else None)
    if take_alias(Cursor(text, tokens, last + 1)) is None and name is not None:
        yield Edit(Span(tokens[last].end, tokens[last].end), f" AS {name}", tokens[end - 1].span)
    if not (tokens[first].text == "(" and tokens[first + 1].upper in ("SELECT", "WITH", "VALUES")):
        whole = Span(tokens[first].start, tokens[end - 1].end)
        yield Edit(Span(whole.start, whole.start), "(SELECT * FROM ", whole)
        yield Edit(Span(whole.end, whole.end), ")", whole)


def _alias_before(tokens: list[Token], index: int) -> str | None:
    """The alias that stands before TABLESAMPLE, as others have it."""
    token, before = tokens[index - 1], tokens[index - 2]
    if not token.is_name or (before.upper, token.upper) == ("INCLUDING", "PROVISIONAL"):
        return None
    a_relation = before.kind == STRING or before.text == ")" or before.upper == "AS"
    named = before.is_name and before.upper not in CLAUSES | JOIN_WORDS | {"TABLE"}
    return token.text if a_relation or named else None


def _start(tokens: list[Token], end: int) -> int:
    """Where the relation starts that ends before a token."""
    start = end - 1
    if [token.upper for token in tokens[max(start - 3, 0) : start]] == ["AS", "OF", "VERSION"]:
        start -= 4
    elif tokens[start].upper == "PROVISIONAL" and tokens[start - 1].upper == "INCLUDING":
        start -= 2
    if tokens[start].text == ")":
        start = _opening(tokens, start)
        called = tokens[start - 1].kind == WORD and tokens[start - 1].upper not in CLAUSES | JOIN_WORDS
        return start - 1 if called else start
    while start > 1 and tokens[start - 1].text == ".":
        start -= 2
    return start


def _opening(tokens: list[Token], index: int) -> int:
    """The bracket that the one at a token closes."""
    depth = 0
    for place in range(index, -1, -1):
        if tokens[place].kind == SYMBOL:
            depth += (tokens[place].text in CLOSING) - (tokens[place].text in OPENING)
            if depth == 0:
                return place
    return 0
