"""Subplans that a database can compute itself: joins of its own tables, and aggregates over them.

Found in the same optimised plan that `pushdown` reads. The rows that the database returns replace the subplan; the plan
above it is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch.plan.pushdown import Node, Reader, both, conjuncts, id_of, tree
from anabranch.sources.wanted import Call, Computed, Meets, Part, Place

_SIGNS = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CALLS = {"Count": "COUNT", "Sum": "SUM", "Min": "MIN", "Max": "MAX", "Average": "AVG"}

#: Tables, and their output columns by the ids of the plan.
_Rows: TypeAlias = tuple[tuple[Part, ...], dict[str, Place]]


@dataclass(frozen=True)
class Replaced:
    """A subplan, by its path from the root, and the query that replaces it.

    Of an aggregate, `calls` locates the aggregate calls in the order of the query: the number of the output, and the
    path in it. The query selects the keys before them, in the order of GROUP BY. Of a join, `ids` are its outputs.
    """

    path: tuple[int, ...]
    asked: Computed
    ids: tuple[str, ...] = ()
    calls: tuple[tuple[int, tuple[int, ...]], ...] = ()


def replaced(
    reader: Reader, node: Node, can: Callable[[Computed], bool], path: tuple[int, ...] = ()
) -> Iterator[Replaced]:
    """The largest subplans that a database can compute, as `can` decides."""
    found = _aggregate(reader, node) if node.kind == "Aggregate" else None
    if node.kind in ("Join", "Project"):
        rows = _rows(reader, node)
        if rows is not None and len(rows[0]) > 1:
            found = Replaced((), Computed(rows[0], tuple(rows[1].values())), tuple(rows[1]))
    if found is not None and can(found.asked):
        yield replace(found, path=path)
        return
    for place, child in enumerate(node.children):
        yield from replaced(reader, child, can, (*path, place))


def _rows(reader: Reader, node: Node) -> _Rows | None:
    """Rows of tables: all, filtered, or joined."""
    reference = reader.reference(node)
    if reference is not None:
        given = [tree(each) for each in node.fields["output"]]
        return (Part(reference),), {id_of(each): Place(0, reader.numbers[each.fields["name"]][1]) for each in given}
    if node.kind == "Join":
        return _join(reader, node)
    below = _rows(reader, node.children[0]) if node.kind in ("Filter", "Project") else None
    if below is None:
        return None
    (first, *others), known = below
    if node.kind == "Project":
        items = [tree(each) for each in node.fields["projectList"]]
        passed = {id_of(item): _place(item.children[0] if item.kind == "Alias" else item, known) for item in items
                  if item.kind in ("Alias", "AttributeReference")}  # fmt: skip
        kept = {id: place for id, place in passed.items() if place is not None}
        return ((first, *others), kept) if len(kept) == len(items) else None
    conditions, exactly = reader.conditions(node)
    if others or not exactly:
        return None
    before = [] if first.condition is None else [first.condition]
    return (replace(first, condition=both([*before, *conditions])),), known


def _join(reader: Reader, node: Node) -> _Rows | None:
    kind = str(node.fields["joinType"].get("object", "")).rpartition(".")[2]
    outer = kind == "LeftOuter$"
    if kind not in ("Inner$", "LeftOuter$") or not node.fields.get("condition"):
        return None
    left, right = (_rows(reader, child) for child in node.children)
    if left is None or right is None:
        return None
    if len(right[0]) > 1 and not outer:
        left, right = right, left
    if len(right[0]) > 1:
        return None
    at = len(left[0])
    other = {id: Place(at, place.column) for id, place in right[1].items()}
    on: list[Meets] = []
    for test in conjuncts(tree(node.fields["condition"])):
        if test.kind not in _SIGNS:
            return None
        one, two = (_place(child, left[1] | other) for child in test.children)
        if one is None or two is None or (one.table == at) is (two.table == at):
            return None
        sign = _SIGNS[test.kind]
        on.append(Meets(two, _TURNED[sign], one) if one.table == at else Meets(one, sign, two))
    if not any(comparison.sign == "=" for comparison in on):
        return None
    return (*left[0], replace(right[0][0], outer=outer, on=tuple(on))), left[1] | other


def _aggregate(reader: Reader, node: Node) -> Replaced | None:
    below = _rows(reader, node.children[0])
    if below is None:
        return None
    keys = [_place(tree(each), below[1]) for each in node.fields["groupingExpressions"]]
    calls: list[Call] = []
    paths: list[tuple[int, tuple[int, ...]]] = []
    for number, item in enumerate(node.fields["aggregateExpressions"]):
        for path, expression in _aggregates(tree(item)):
            call = _call(expression, below[1])
            if call is None:
                return None
            calls.append(call)
            paths.append((number, path))
    known = tuple(key for key in keys if key is not None)
    if len(known) < len(keys):
        return None
    return Replaced((), Computed(below[0], (*known, *calls), grouped=True), calls=tuple(paths))


def _aggregates(node: Node, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Node]]:
    if node.kind == "AggregateExpression":
        yield path, node
        return
    for place, child in enumerate(node.children):
        yield from _aggregates(child, (*path, place))


def _call(node: Node, known: dict[str, Place]) -> Call | None:
    function = node.children[0]
    plain = (
        len(node.children) == 1
        and not node.fields["isDistinct"]
        and node.fields["mode"]["object"].endswith("Complete$")
    )
    if not plain or function.kind not in _CALLS or len(function.children) != 1:
        return None
    inner = function.children[0]
    if function.kind == "Count" and inner.kind == "Literal":
        return Call("COUNT") if inner.fields["value"] is not None else None
    unscaled = inner.kind == "UnscaledValue"
    place = _place(inner.children[0] if unscaled else inner, known)
    return None if place is None else Call(_CALLS[function.kind], place, unscaled)


def _place(node: Node, known: dict[str, Place]) -> Place | None:
    return known.get(id_of(node)) if node.kind == "AttributeReference" else None
