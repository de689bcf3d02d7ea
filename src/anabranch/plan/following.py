"""How far a row looks for the one behind it: what the end of a version depends on, where it need not be known for ever.

    CASE WHEN LEAD(q.ts) OVER (PARTITION BY q.k ORDER BY q.ts) <= q.ts + INTERVAL 5 MINUTES
         THEN LEAD(q.ts) OVER (PARTITION BY q.k ORDER BY q.ts) END

The next version counts if it comes within five minutes, so a new row changes those that are at most five minutes before
it, and itself: no others have to be looked at. Knows the tokens of a SELECT and nothing of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.plan.distances import Column, outside_brackets, sum_of
from anabranch.sql.calls import chains, closing
from anabranch.sql.lexer import Span, Token, normal_form
from anabranch.sql.syntax import Select


def find_following(select: Select, text: str) -> tuple[Column, int] | None:
    """The column of times and the greatest distance at which a SELECT looks for a next row; None: it looks further.

    That is so if each of its window functions is one that looks no further.
    """
    if select.group or select.distinct or select.lateral or select.tail or select.subqueries:
        return None
    windows = [item.tokens for item in select.items if any(token.upper == "OVER" for token in item.tokens)]
    found = [_following(tokens, text) for tokens in windows]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found) or len({column for column, _ in known}) > 1:
        return None
    return known[0][0], max(distance for _, distance in known)


def _following(tokens: Sequence[Token], text: str) -> tuple[Column, int] | None:
    """The column and the distance of CASE WHEN next <= column + distance THEN next END, or the same backwards."""
    words = {tokens[index].upper: index for index in outside_brackets(tokens)}
    then = words.get("THEN")
    whole = [tokens[0].upper, tokens[1].upper, tokens[-1].upper] == ["CASE", "WHEN", "END"]
    if then is None or not whole or "ELSE" in words:
        return None
    condition, value = tokens[2:then], tokens[then + 1 : -1]
    at = [index for index in outside_brackets(condition) if condition[index].text in ("<=", ">=")]
    if len(at) != 1 or normal_form(list(condition[: at[0]])) != normal_form(list(value)):
        return None
    forwards = condition[at[0]].text == "<="
    column = _next_of(value, forwards)
    limit = sum_of(condition[at[0] + 1 :], text)
    if column is None or limit is None or limit.kind != "moment" or dict(limit.columns) != {column: 1}:
        return None
    distance = limit.high if forwards else -limit.low
    return (column, int(distance)) if distance >= 0 and distance.denominator == 1 else None


def _next_of(tokens: Sequence[Token], forwards: bool) -> Column | None:
    """The column of LEAD(column) OVER (... ORDER BY column): the next one in the order of its own values."""
    if len(tokens) < 4 or tokens[0].upper != "LEAD" or tokens[1].text != "(":
        return None
    end = closing(tokens, 1)
    if end + 2 >= len(tokens) or tokens[end + 1].upper != "OVER" or closing(tokens, end + 2) != len(tokens) - 1:
        return None
    inside = tokens[end + 3 : -1]
    order = [index for index in outside_brackets(inside) if inside[index].upper == "ORDER"]
    by = inside[order[-1] + 2 :] if order else ()
    if (bool(by) and by[-1].upper == "DESC") == forwards:
        return None
    column = _column(tokens[2:end])
    return column if column is not None and column == _column(by if forwards else by[:-1]) else None


def _column(tokens: Sequence[Token]) -> Column | None:
    named = list(chains(tokens))
    if len(named) != 1 or named[0].span != Span(tokens[0].start, tokens[-1].end):
        return None
    return tuple(part.lower() for part in named[0].parts)
