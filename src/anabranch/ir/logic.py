"""Predicates: their conjuncts, comparisons and subquery tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.ir.expr import Expr, Part, Subquery
from anabranch.sql.text import Span

_EQUALS = ("=", "==", "<=>")
_SIGNS = (*_EQUALS, "<", ">", "<=", ">=", "<>", "!=")
#: Words that bind less tightly than a comparison, or make one of an expression.
_LOOSE = ("NOT", "!", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "AND", "OR", "ESCAPE", "EXISTS")
_LOGIC = ("AND", "OR", "NOT", "BETWEEN", "CASE", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "REGEXP", "!")


def word(part: Part) -> str:
    """A part as a word of the language, in capitals; nothing for anything but text."""
    return part.upper() if isinstance(part, str) else ""


def depths(parts: Sequence[Part]) -> Iterator[int]:
    """The depth of each part in brackets and CASEs."""
    depth = 0
    for part in parts:
        text = word(part)
        if text in (")", "]", "}", "END"):
            depth -= depth > 0 or text != "END"
        yield depth
        depth += text in ("(", "[", "{", "CASE")


def unwrapped(expr: Expr) -> Expr:
    """An expression without the brackets around all of it."""
    while (
        len(expr.parts) > 2
        and word(expr.parts[0]) == "("
        and list(depths(expr.parts)).index(0, 1) == (len(expr.parts) - 1)
    ):
        expr = piece(expr, 1, len(expr.parts) - 1)
    return expr


def piece(expr: Expr, start: int, end: int) -> Expr:
    """The parts of an expression from `start` to `end`."""
    return Expr(expr.parts[start:end], "", expr.spans[start:end])


def conjuncts(expr: Expr) -> list[Expr]:
    """The operands of AND, in brackets too; the whole expression if OR joins its operands."""
    inner = unwrapped(expr)
    cuts, between = [-1], 0
    for index, (part, depth) in enumerate(zip(inner.parts, depths(inner.parts), strict=True)):
        text = word(part) if depth == 0 else ""
        if text == "OR":
            return [expr]
        between += text == "BETWEEN"
        if text == "AND" and between:
            between -= 1
        elif text == "AND":
            cuts.append(index)
    if len(cuts) == 1:
        return [inner]
    bounds = zip(cuts, [*cuts[1:], len(inner.parts)], strict=True)
    return [each for start, end in bounds for each in conjuncts(piece(inner, start + 1, end))]


def conjunction(exprs: Iterable[Expr]) -> Expr | None:
    """The conditions joined by AND; None if there are none."""
    listed = list(exprs)
    parts: list[Part] = []
    spans: list[Span | None] = []
    for index, each in enumerate(listed):
        alternatives = len(listed) > 1 and any(
            word(part) == "OR" and depth == 0 for part, depth in zip(each.parts, depths(each.parts), strict=True)
        )
        own = list(each.spans or (None,) * len(each.parts))
        parts += [*(["AND"] if index else []), *(["("] if alternatives else [])]
        spans += [own[0]] * (len(parts) - len(spans))
        parts += each.parts
        spans += own
        parts += [")"] if alternatives else []
        spans += [own[-1]] * (len(parts) - len(spans))
    return Expr(tuple(parts), "boolean", tuple(spans)) if parts else None


def equation(expr: Expr) -> tuple[Expr, str, Expr] | None:
    """The operands and the operator, if the whole expression is an equation."""
    found = comparison(expr)
    return found if found is not None and found[1] in _EQUALS else None


def comparison(expr: Expr) -> tuple[Expr, str, Expr] | None:
    """The operands and the operator, if the whole expression is a comparison."""
    signs = []
    for index, (part, depth) in enumerate(zip(expr.parts, depths(expr.parts), strict=True)):
        if word(part) in _LOGIC:
            return None
        if depth == 0 and word(part) in _SIGNS:
            signs.append(index)
    if len(signs) != 1 or signs[0] in (0, len(expr.parts) - 1):
        return None
    sign = expr.parts[signs[0]]
    assert isinstance(sign, str)
    return piece(expr, 0, signs[0]), sign, piece(expr, signs[0] + 1, len(expr.parts))


def compared(expr: Expr) -> Iterator[tuple[Expr, str, Expr]]:
    """The pairs of operands, if the whole expression is a comparison by an operator, BETWEEN or LIKE."""
    outside = [(index, word(expr.parts[index])) for index, depth in enumerate(depths(expr.parts)) if depth == 0]
    words = [(index, each) for index, each in outside if each in _LOOSE]
    signs = [(index, each) for index, each in outside if each in _SIGNS]
    end = len(expr.parts)
    places: list[tuple[int, str, int, int]] = []  # left end, operator, start and end of the right
    if not words and len(signs) == 1 and signs[0][1] != "<=>":
        places = [(*signs[0], signs[0][0] + 1, end)]
    elif not signs and [each for _, each in words] == ["BETWEEN", "AND"]:
        (middle, _), (other, _) = words
        places = [(middle, ">=", middle + 1, other), (middle, "<=", other + 1, end)]
    elif not signs and [each for _, each in words] == ["LIKE"]:
        places = [(*words[0], words[0][0] + 1, end)]
    for left, sign, start, stop in places:
        if left and start < stop:
            yield piece(expr, 0, left), sign, piece(expr, start, stop)


def called(expr: Expr) -> tuple[str, list[Expr]] | None:
    """The name of the function, in capitals, and the arguments, if the whole expression is a call."""
    parts = expr.parts
    if len(parts) < 3 or not word(parts[0]).isidentifier() or word(parts[1]) != "(":
        return None
    inside = list(depths(parts))
    if 0 in inside[2:-1] or inside[-1] != 0:
        return None
    cuts = [index for index, part in enumerate(parts) if part == "," and inside[index] == 1]
    bounds = zip([1, *cuts], [*cuts, len(parts) - 1], strict=True)
    found = [piece(expr, start + 1, end) for start, end in bounds]
    return word(parts[0]), [each for each in found if each.parts]


def listed(expr: Expr, length: int) -> list[Expr] | None:
    """An expression, or `length` of them in brackets; None if their number differs."""
    if length == 1:
        return [expr]
    inner = unwrapped(expr)
    cuts = [i for i, (p, d) in enumerate(zip(inner.parts, depths(inner.parts), strict=True)) if p == "," and d == 0]
    if inner is expr or len(cuts) != length - 1:
        return None
    bounds = zip([-1, *cuts], [*cuts, len(inner.parts)], strict=True)
    return [piece(inner, start + 1, end) for start, end in bounds]


@dataclass(frozen=True)
class Membership:
    """[NOT] EXISTS (SELECT ...), or `left` [NOT] IN (SELECT ...), as the whole expression."""

    subquery: Subquery
    negated: bool
    left: Expr | None = None


def membership(expr: Expr) -> Membership | None:
    negated = word(expr.parts[0]) == "NOT"
    rest = unwrapped(piece(expr, 1, len(expr.parts))) if negated else expr
    asked = rest.parts[-1]
    if not isinstance(asked, Subquery) or asked.kind == "scalar" or len(rest.parts) < 2:
        return None
    if asked.kind == "exists":
        return Membership(asked, negated) if len(rest.parts) == 2 else None
    end = len(rest.parts) - 2
    if word(rest.parts[end - 1]) == "NOT":
        negated, end = not negated, end - 1
    left = piece(rest, 0, end)
    compared = any(word(part) in (*_LOGIC, *_SIGNS) for part in left.parts)
    return None if compared or not left.parts else Membership(asked, negated, left)
