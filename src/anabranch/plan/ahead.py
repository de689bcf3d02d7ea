"""How long after its own time a row of a query with window functions can still change.

    last_value(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 5 MINUTES FOLLOWING)

looks at rows up to five minutes later, so a row is final when progress is five minutes past it. A frame that ends with
the current row looks back alone. Where the end of the stream is waited for, it is FOREVER: LEAD and ROWS n FOLLOWING (a
row may come between), UNBOUNDED FOLLOWING, NTILE and the like, an order that is not that of time. What is partitioned
by a time is final when that time has passed. Knows the tokens of a SELECT and nothing of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anabranch.plan.distances import outside_brackets, sum_of
from anabranch.plan.keys import partition_by
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.lexer import NUMBER, Token
from anabranch.sql.syntax import Query, Select

#: Longer than any stream, in microseconds.
FOREVER = 10**18
_BACK = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_WHOLE = ("NTILE", "PERCENT_RANK", "CUME_DIST", "LEAD")

#: Whether an expression is a time that has passed when a row is shown.
Passes = Callable[[Sequence[Token]], bool]


def looks_ahead(select: Select, owner: Query, passes: Passes, text: str) -> int | None:
    """The longest time after which a row of a SELECT is final; None if it has no window functions."""
    places = [item.tokens for item in select.items]
    places += [expression.tokens for expression in select.tail_expressions]
    if owner.body is select:
        places.append(owner.order_tokens)
    found = [each for tokens in places for each in _in_tokens(tokens, passes, text)]
    return max(found, default=None)


def _in_tokens(tokens: Sequence[Token], passes: Passes, text: str) -> Iterator[int]:
    for index, token in enumerate(tokens):
        if token.upper != "OVER":
            continue
        if index + 1 >= len(tokens) or tokens[index + 1].text != "(":
            yield FOREVER  # a name of the WINDOW clause
        else:
            name, arguments = _called(tokens[:index])
            yield _of_call(name, arguments, tokens[index + 2 : closing(tokens, index + 1)], passes, text)


def _called(tokens: Sequence[Token]) -> tuple[str, list[list[Token]]]:
    """The function that stands in front of OVER, and its arguments."""
    end = len(tokens) - 1
    while end > 0 and tokens[end].upper in ("NULLS", "IGNORE", "RESPECT"):
        end -= 1
    start = next((i for i in range(end, 0, -1) if tokens[i].text == "(" and closing(tokens, i) == end), 0)
    name = tokens[start - 1].upper if start else ""
    if name == "FILTER":
        return _called(tokens[: start - 1])
    return name, list(split_commas(tokens[start + 1 : end]))


def _of_call(name: str, arguments: list[list[Token]], inside: Sequence[Token], passes: Passes, text: str) -> int:
    if any(passes(tokens) for tokens in partition_by(inside)):
        return 0
    words = {inside[index].upper: index for index in reversed(list(outside_brackets(inside)))}
    frame = min((words[word] for word in ("ROWS", "RANGE") if word in words), default=len(inside))
    if "ORDER" not in words or name in _WHOLE:
        return FOREVER
    first = next(iter(split_commas(inside[words["ORDER"] + 2 : frame])), [])
    while first and first[-1].upper in ("ASC", "NULLS", "FIRST", "LAST"):
        first = first[:-1]
    if not passes(first):  # DESC is no part of a column either
        return FOREVER
    if name == "LAG":  # by less than nothing it is LEAD
        return 0 if len(arguments) < 2 or [each.kind for each in arguments[1]] == [NUMBER] else FOREVER
    if name in _BACK or frame == len(inside) or "BETWEEN" not in words:
        return 0
    bound = inside[words["AND"] + 1 :] if "AND" in words else ()
    if not bound or bound[-1].upper != "FOLLOWING":
        return 0 if bound and bound[-1].upper in ("ROW", "PRECEDING") else FOREVER
    distance = sum_of(bound[:-1], text) if "RANGE" in words else None
    return max(0, int(distance.high)) if distance is not None and distance.kind == "length" else FOREVER
