"""Subqueries in expressions, wherever they stand: what is asked of them, and what of the text that question is.

    v > (SELECT max(v) FROM b) OR EXISTS (SELECT 1 FROM c) OR (k, v) NOT IN (SELECT k, v FROM b)

asks for a value, whether there is a row, and whether there is a row that is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from anabranch.plan.scope import Unfit
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.lexer import Span, Token
from anabranch.sql.syntax import Query

#: Words and signs that an operand of IN cannot reach over.
_ENDS = frozenset(["AND", "OR", "NOT", "WHEN", "THEN", "ELSE", "CASE", "ON", "WHERE", "HAVING"])
_COMPARES = frozenset(("=", "==", "<=>", "<", ">", "<=", ">=", "<>", "!=", "!"))
_PREDICATES = frozenset(["BETWEEN", "LIKE", "ILIKE", "RLIKE", "IS"])


@dataclass(frozen=True)
class Asked:
    """A subquery, what is asked of it, and the place of that question in the text: the subquery in its brackets, with
    EXISTS before it, or with `left` and [NOT] IN."""

    kind: Literal["value", "exists", "in"]
    inner: Query
    span: Span
    left: tuple[tuple[Token, ...], ...] = ()
    negated: bool = False


def asked_in(tokens: Sequence[Token], subqueries: Sequence[Query]) -> Iterator[Asked]:
    """The subqueries of an expression."""
    inner = {each.span.start: each for each in subqueries}
    for index, token in enumerate(tokens):
        if token.text != "(" or index + 1 >= len(tokens) or tokens[index + 1].start not in inner:
            continue
        query, end = inner[tokens[index + 1].start], tokens[closing(tokens, index)].end
        before = tokens[index - 1].upper if index else ""
        if before == "EXISTS":
            yield Asked("exists", query, Span(tokens[index - 1].start, end))
        elif before == "IN":
            negated = index > 1 and tokens[index - 2].upper == "NOT"
            left = _operand(tokens, index - 2 - negated)
            yield Asked("in", query, Span(left[0].start, end), tuple(_parts(left)), negated)
        elif before in ("ANY", "ALL", "SOME"):
            raise Unfit(f"a comparison with {before} of the rows of a subquery")
        else:
            yield Asked("value", query, Span(token.start, end))


def _operand(tokens: Sequence[Token], last: int) -> Sequence[Token]:
    """What stands before IN: back to a word or a sign that ends it."""
    first, depth = last, 0
    while first >= 0:
        token = tokens[first]
        if token.kind == "symbol":
            depth += (token.text in ")]}") - (token.text in "([{")
        if depth < 0 or (depth == 0 and (token.text == "," or token.upper in _ENDS)):
            break
        if depth == 0 and (token.text in _COMPARES or token.upper in _PREDICATES):
            raise Unfit("a comparison before IN: brackets around it tell what is asked")
        first -= 1
    if first == last:
        raise Unfit("IN without anything before it")
    return tokens[first + 1 : last + 1]


def _parts(left: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """The values that are to be equal: one, or several in brackets."""
    if left[0].text == "(" and closing(left, 0) == len(left) - 1:
        yield from (tuple(each) for each in split_commas(left[1:-1]))
    else:
        yield tuple(left)


def around(asked: Asked, spans: Sequence[Span]) -> bool:
    """Whether a question stands inside one of these places."""
    return any(span.start <= asked.span.start and asked.span.end <= span.end for span in spans)
