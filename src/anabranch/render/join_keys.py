"""The equality keys of joins, as columns of the relations that a query reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from anabranch.render.duckdb import parsed

if TYPE_CHECKING:
    from sqlglot import exp

#: A column of a placeholder.
Source = tuple[str, str]


@lru_cache(maxsize=512)
def join_keys(text: str, columns: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[dict[str, str], ...]:
    """Classes of columns that are equal in each row of an inner join, each as placeholder -> column, largest first.

    `columns` are those of the placeholders. Each row of the query must come from one row of each placeholder, so that a
    column that is passed on under another name is still that column.

    >>> columns = (("@b", ("auction", "price")), ("@a", ("id", "price")), ("@c", ("k",)))
    >>> join_keys("SELECT * FROM `@b` AS b JOIN (SELECT *, 1 AS one FROM `@a`) AS a ON b.auction = a.id", columns)
    ({'@b': 'auction', '@a': 'id'},)
    >>> join_keys("SELECT 1 FROM `@b` JOIN `@a` JOIN `@c` ON k = id WHERE auction = k AND 1 = one", columns)
    ({'@b': 'auction', '@a': 'id', '@c': 'k'},)
    >>> join_keys("SELECT 1 FROM `@b` b JOIN `@a` a USING (price) LEFT JOIN `@c` c ON c.k = a.id", columns)
    ({'@b': 'price', '@a': 'price'},)
    >>> join_keys("SELECT 1 FROM `@b` b JOIN `@a` a ON auction = id WHERE auction IN (SELECT id FROM `@a`)", columns)
    ()
    >>> join_keys("SELECT 1 FROM `@c` x JOIN `@a` a ON x.k = a.id OR a.price = 1", columns)
    ()
    """
    from sqlglot import errors, exp

    try:
        tree = parsed(text)
    except (errors.SqlglotError, RecursionError):
        return ()
    if not isinstance(tree, exp.Select) or tree.args.get("with_") is not None:
        return ()
    known = {name: {each.lower(): each for each in names} for name, names in columns}
    items = [_Item.of(each, known) for each in _relations(tree)]
    classes: list[set[tuple[int, str, str]]] = []
    for one, other in _equal(tree, items):
        both = [each for each in classes if one in each or other in each]
        classes = [each for each in classes if each not in both] + [set().union({one, other}, *both)]
    reads = Counter(each.name for each in tree.find_all(exp.Table))
    found = [_by_placeholder(each, items, reads) for each in classes]
    return tuple(sorted((each for each in found if len(each) > 1), key=lambda each: -len(each)))


class _Item:
    """A relation of FROM: its name, and the columns of placeholders that it passes on, by their names in it."""

    def __init__(self, name: str, placeholder: str | None, columns: Mapping[str, str]) -> None:
        self.name, self.placeholder, self.columns = name, placeholder, columns

    @classmethod
    def of(cls, node: exp.Expr, known: Mapping[str, Mapping[str, str]]) -> _Item:
        from sqlglot import exp

        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            return cls(node.alias_or_name.lower(), None, {})
        if isinstance(node, exp.Table) and node.name in known:
            return cls(node.alias_or_name.lower(), node.name, known[node.name])
        inner = node.this if isinstance(node, exp.Subquery) else None
        if not isinstance(inner, exp.Select) or len(_relations(inner)) != 1:
            return cls(node.alias_or_name.lower(), None, {})
        below = cls.of(_relations(inner)[0], known)
        passed: dict[str, str | None] = {}
        for item in inner.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                passed = {**below.columns, **passed}
                continue
            plain = item.unalias()
            source = below.columns.get(plain.name.lower()) if isinstance(plain, exp.Column) else None
            passed[item.alias_or_name.lower()] = source
        return cls(node.alias_or_name.lower(), below.placeholder, {name: each for name, each in passed.items() if each})


def _relations(select: exp.Expr) -> list[exp.Expr]:
    source = select.args.get("from_")
    return [each.this for each in ([source] if source is not None else []) + (select.args.get("joins") or [])]


def _equal(select: exp.Expr, items: Sequence[_Item]) -> Iterator[tuple[tuple[int, str, str], tuple[int, str, str]]]:
    """The pairs of columns that inner joins and WHERE equate, each with the index of its relation."""
    from sqlglot import exp

    where = select.args.get("where")
    conditions = [where.this] if where is not None else []
    for number, join in enumerate(select.args.get("joins") or [], start=1):
        if join.side or join.kind not in ("", "INNER", "CROSS") or join.method:
            continue
        if join.args.get("on") is not None:
            conditions.append(join.args["on"])
        for name in join.args.get("using") or []:
            left, right = _found(name.name, "", items[:number]), _found(name.name, "", items[number : number + 1])
            if left is not None and right is not None:
                yield left, (number, right[1], right[2])
    for condition in conditions:
        for part in condition.unnest().flatten() if isinstance(condition.unnest(), exp.And) else [condition]:
            part = part.unnest()
            if isinstance(part, exp.EQ | exp.NullSafeEQ):
                sides = [
                    _found(side.name, side.table, items) if isinstance(side, exp.Column) else None
                    for side in (part.left.unnest(), part.right.unnest())
                ]
                if sides[0] is not None and sides[1] is not None:
                    yield sides[0], sides[1]


def _found(name: str, relation: str, items: Sequence[_Item]) -> tuple[int, str, str] | None:
    """The relation of a column, and the placeholder column that it is."""
    for number, item in enumerate(items):
        if relation.lower() in ("", item.name) and name.lower() in item.columns and item.placeholder is not None:
            return number, item.placeholder, item.columns[name.lower()]
    return None


def _by_placeholder(
    equal: set[tuple[int, str, str]], items: Sequence[_Item], reads: Mapping[str, int]
) -> dict[str, str]:
    """Of equal columns, those that partition all rows of a placeholder, wherever it is read."""
    found: dict[str, str] = {}
    for placeholder in dict.fromkeys(item.placeholder for item in items if item.placeholder is not None):
        numbers = [number for number, item in enumerate(items) if item.placeholder == placeholder]
        columns = [{column for each, _, column in equal if each == number} for number in numbers]
        shared = sorted(set.intersection(*columns))
        if shared and len(numbers) == reads[placeholder]:  # a subquery elsewhere may need all of its rows
            found[placeholder] = shared[0]
    return found
