"""GROUP BY: its keys, and the grouping sets of ROLLUP, CUBE and GROUPING SETS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from anabranch.ir.expr import Expr
from anabranch.ir.read import Reader
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.lexer import Token
from anabranch.sql.syntax import Expression

_Set = tuple[Expr, ...]


@dataclass(frozen=True)
class Groups:
    """Keys, and the grouping sets as positions of keys; no sets: all keys at once."""

    keys: tuple[Expr, ...]
    sets: tuple[tuple[int, ...], ...]


def read(
    group: Sequence[Expression], reader: Reader, ordinal: Callable[[Expr], Expr], shown: Sequence[Expr]
) -> Groups | None:
    """The groups of GROUP BY; None without one. `ordinal` replaces a number by that item of the SELECT list."""
    if not group:
        return None
    if [token.upper for token in group[0].tokens] == ["ALL"]:
        plain = [each for each in shown if not any(each.calls()) and each.columns()]
        return Groups(tuple(dict.fromkeys(plain)), ())
    every = [list(entry.tokens) for entry in group]
    words = [token.upper for token in every[-1]]
    behind: list[_Set] | None = None
    if words[-2:] in (["WITH", "ROLLUP"], ["WITH", "CUBE"]):
        every[-1] = every[-1][:-2]
        listed = [_key(tokens, reader, ordinal) for tokens in every]
        behind = _rollup(listed) if words[-1] == "ROLLUP" else _cube(listed)
    elif "SETS" in words[1:] and words[0] != "GROUPING":  # a, b GROUPING SETS ((a, b), a)
        at = words.index("SETS")
        behind = _sets(every[-1][at - 1 :], reader, ordinal)
    factors = [behind] if behind is not None else [_sets(tokens, reader, ordinal) for tokens in every]
    sets = [tuple(dict.fromkeys(expr for part in each for expr in part)) for each in product(*factors)]
    keys = tuple(dict.fromkeys(expr for each in sets for expr in each))
    return Groups(keys, () if len(sets) == 1 else tuple(tuple(keys.index(expr) for expr in each) for each in sets))


def _sets(tokens: Sequence[Token], reader: Reader, ordinal: Callable[[Expr], Expr]) -> list[_Set]:
    """The grouping sets of one entry of GROUP BY."""
    words = [token.upper for token in tokens[:3]]
    if words[:2] == ["GROUPING", "SETS"]:
        inside = tokens[3 : closing(tokens, 2)]
        return [each for part in split_commas(inside) for each in _sets(part, reader, ordinal)]
    if words[:1] in (["ROLLUP"], ["CUBE"]) and words[1:2] == ["("]:
        parts = [_tuple(part, reader, ordinal) for part in split_commas(tokens[2 : closing(tokens, 1)])]
        grown = _rollup(parts) if words[0] == "ROLLUP" else _cube(parts)
        return [tuple(expr for part in each for expr in part) for each in grown]
    return [_tuple(tokens, reader, ordinal)]


def _tuple(tokens: Sequence[Token], reader: Reader, ordinal: Callable[[Expr], Expr]) -> _Set:
    """(a, b), or one expression."""
    if tokens and tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1:
        parts = list(split_commas(tokens[1:-1]))
        return tuple(_key(part, reader, ordinal) for part in parts)
    return (_key(tokens, reader, ordinal),)


def _key(tokens: Sequence[Token], reader: Reader, ordinal: Callable[[Expr], Expr]) -> Expr:
    return unbracketed(ordinal(reader.expr(tokens)))


def unbracketed(expr: Expr) -> Expr:
    """An expression without the brackets that the expansion of an alias adds."""
    named = expr.parts[:1] == ("(",) and expr.parts[-1:] == (")",) and len(set(expr.spans)) == 1
    return Expr(expr.parts[1:-1], spans=expr.spans[1:-1]) if named else expr


def _rollup(parts: Sequence[object]) -> list[tuple]:  # type: ignore[type-arg]
    return [tuple(parts[:end]) for end in range(len(parts), -1, -1)]


def _cube(parts: Sequence[object]) -> list[tuple]:  # type: ignore[type-arg]
    return [each for size in range(len(parts), -1, -1) for each in combinations(parts, size)]
