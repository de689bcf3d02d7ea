"""A window function over a window function: the inner one becomes a query of its own.

    TUMBLE(HOP(s, ts, ...), window_time, ...)

is rewritten to

    TUMBLE((SELECT * FROM HOP(s, ts, ...)), window_time, ...) AS s
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.sql.calls import closing
from anabranch.sql.cursor import MAX_QUERIES, Cursor
from anabranch.sql.lexer import CLOSING, OPENING, STRING, WORD, Span, Token, quote_name
from anabranch.sql.relations import take_alias, take_relation
from anabranch.sql.splice import Edit
from anabranch.sql.windows import WINDOW_FUNCTIONS, names_source


def nested_edits(text: str, tokens: list[Token]) -> list[Edit]:
    """The edits that make queries of the innermost window functions that stand in others."""
    nested = {index: outer for index in range(len(tokens)) if (outer := _outer(tokens, index)) is not None}
    deep: dict[int, int] = {}
    for index, outer in nested.items():
        deep[index] = deep.get(outer, 0) + 1
    if max(deep.values(), default=0) > MAX_QUERIES:
        return []  # the parser refuses that
    edits: list[Edit] = []
    for index, outer in nested.items():
        if index in nested.values():
            continue
        relation = take_relation(Cursor(text, tokens, index), "")
        start, end = relation.span.start, relation.span.end
        edits.append(Edit(Span(start, start), "(SELECT * FROM ", relation.span))
        edits.append(Edit(Span(end, end), ")", relation.span))
        if outer not in nested and relation.alias is None and relation.exposed is not None:
            edits += _named(text, tokens, outer, relation.exposed)
    return edits


def _named(text: str, tokens: list[Token], outer: int, name: str) -> Iterator[Edit]:
    """The name of what is read innermost for the outermost window function, if it has no other."""
    last = closing(tokens, outer + 1)
    if [token.text.upper() for token in tokens[max(outer - 2, 0) : outer]] == ["TABLE", "("]:
        last = closing(tokens, outer - 1)
    if take_alias(Cursor(text, tokens, min(last + 1, len(tokens) - 1))) is None:
        place = tokens[last].end
        yield Edit(Span(place, place), f" AS {quote_name(name)}", tokens[last].span)


def _at_call(tokens: list[Token], index: int) -> bool:
    token = tokens[index]
    called = token.kind == WORD and token.upper in WINDOW_FUNCTIONS
    return called and index + 1 < len(tokens) and tokens[index + 1].text == "("


def _outer(tokens: list[Token], index: int) -> int | None:
    """The window function that is called with the one that stands here as its relation; None if there is none."""
    if not _at_call(tokens, index):
        return None
    before = index - 1
    while before > 0 and (tokens[before].upper == "TABLE" or _is_plain(tokens, before)):
        before -= 1
    if before > 0 and tokens[before].text == "=>" and names_source(tokens[before - 1]):
        before = _opening(tokens, before)
    called = before > 0 and tokens[before].text == "(" and _at_call(tokens, before - 1)
    return before - 1 if called else None


def _is_plain(tokens: list[Token], index: int) -> bool:
    """Whether this is a bracket around a relation, and not that of a call."""
    before = tokens[index - 1]
    return tokens[index].text == "(" and (before.text in ("(", "=>") or before.upper == "TABLE")


def _opening(tokens: list[Token], index: int) -> int:
    """The bracket that is open before a token; -1 for none."""
    depth = 0
    for place in range(index - 1, -1, -1):
        token = tokens[place]
        if token.kind == STRING:
            continue
        if token.text in OPENING and depth == 0:
            return place
        depth += (token.text in CLOSING) - (token.text in OPENING)
    return -1
