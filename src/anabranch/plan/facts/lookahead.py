"""What a row of a SELECT with window functions waits for until no row in time can change it.

    last_value(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 5 MINUTES FOLLOWING)

reads rows up to five minutes later, so a row is final when progress is five minutes past it. A frame that ends with
the current row only looks back. With LEAD and ROWS n FOLLOWING a row is final when progress is past the n-th next row:
until then another may come between. UNBOUNDED FOLLOWING, NTILE and the like, and orders other than by time wait for
the end of the stream: FOREVER. Rows that are partitioned by a time are final when that time has passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.algebra.progress import FOREVER
from anabranch.ir.expr import Call, Expr
from anabranch.ir.select import SelectBlock
from anabranch.plan.facts.time_differences import sum_of
from anabranch.sql.lexer import tokenize

#: The column with the progress at which a row is final, in microseconds.
FINAL = "__final"
_BACK = ("row_number", "rank", "dense_rank")
_WHOLE = ("ntile", "percent_rank", "cume_dist")

#: The offset from a time to the progress that is past it; None if it need not have passed when a row is shown.
Passes = Callable[[Expr], int | None]


@dataclass(frozen=True)
class NextRow:
    """A later row in the order of a window, whose time a row waits for."""

    number: int  # 1: the next row
    time: Expr
    shift: int  # offset from its time to the progress that is past it
    call: Call


@dataclass(frozen=True)
class Ahead:
    """What rows wait for: a distance of progress past their own time, and next rows."""

    time: int = 0
    rows: tuple[NextRow, ...] = ()


def looks_ahead(block: SelectBlock, passes: Passes) -> Ahead | None:
    """What a row of a SELECT waits for; None if it has no window functions."""
    found = [_of_call(call, passes) for call in block.over]
    if not found:
        return None
    return Ahead(
        max((each for each in found if isinstance(each, int)), default=0),
        tuple(each for each in found if isinstance(each, NextRow)),
    )


def _of_call(call: Call, passes: Passes) -> int | NextRow:
    """How long after its own time a row waits for a call; or the next row that it waits for."""
    over = call.over
    assert over is not None
    if any(passes(expr) is not None for expr in over.partition):
        return 0
    if not over.order or call.name in _WHOLE:
        return FOREVER
    first = over.order[0]
    shift = passes(first.expr)
    if shift is None or "DESC" in first.order.split():
        return FOREVER
    ignoring = call.nulls == "IGNORE"
    frame = over.frame.upper().split()
    if call.name in ("lag", "lead"):
        number = _integer(call.args[1]) if len(call.args) > 1 else 1
        number = -number if number is not None and call.name == "lag" else number
    elif call.name in _BACK or "BETWEEN" not in frame[1:2]:
        return 0
    else:
        tokens = tokenize(over.frame)[:-1]
        at = _between(tokens)
        bound = tokens[at + 1 :] if at is not None else []
        if not bound or bound[-1].upper == "ROW":
            return 0 if bound else FOREVER
        distance = Expr(tuple(token.text for token in bound[:-1]))
        if bound[-1].upper == "PRECEDING":  # a negative distance means FOLLOWING
            return 0 if not any("-" in token.text for token in bound[:-1]) else FOREVER
        if frame[0] != "ROWS":
            length = sum_of(distance) if frame[0] == "RANGE" else None
            return max(0, int(length.high)) if length is not None and length.kind == "length" else FOREVER
        number, ignoring = _integer(distance), False
    if number is None or (number > 0 and ignoring):
        return FOREVER
    return NextRow(number, first.expr, shift, call) if number > 0 else 0


def _between(tokens: list) -> int | None:  # type: ignore[type-arg]
    """The index of the AND between the bounds of a frame."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth == 0 and token.upper == "AND":
            return index
    return None


def _integer(expr: Expr) -> int | None:
    """The value of an integer literal; None for any other expression."""
    parts = [part for part in expr.parts if isinstance(part, str)]
    if len(parts) != len(expr.parts) or not parts:
        return None
    sign = -1 if parts[0] == "-" else 1
    digits = parts[1:] if sign < 0 else parts
    if len(digits) != 1 or not digits[0].isdigit():
        return None
    return sign * int(digits[0])
