"""The pushdown of a query to external tables, found in the plan of Spark's optimiser.

The optimiser has pushed predicates down to the tables, pruned columns and folded constants. So the nodes above a
stand-in for a table, in a plan as JSON, show what the database can do: finding it needs no Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from anabranch.sources.wanted import All, Condition, Not, Order, Some, Test, Wanted

_SIGNS = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WHOLE = ("byte", "short", "integer", "long")


def mark(reference: int, column: int) -> str:
    """The name of a column of a stand-in."""
    return f"__outside{reference}_{column}"


@dataclass
class Node:
    """A node of a plan or an expression."""

    kind: str
    fields: Mapping[str, Any]
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Scan:
    """A stand-in in a plan: its number, the nodes above it, the nearest first, and its path.

    `path` has the number of the child at each node from the root; None inside an expression.
    """

    reference: int
    above: tuple[Node, ...]
    path: tuple[int, ...] | None


def together(uses: Sequence[Wanted]) -> Wanted:
    """A request that covers several uses of the same table."""
    if len(uses) == 1:
        return uses[0]
    conditions = [use.condition for use in uses if use.condition is not None]
    condition = Some(tuple(conditions)) if len(conditions) == len(uses) else None
    if any(use.columns is None for use in uses):
        return Wanted(None, condition)
    return Wanted(tuple(dict.fromkeys(name for use in uses for name in use.columns or ())), condition)


class Reader:
    """Reads a plan over stand-ins. Timestamps are read only where the session's time zone is UTC."""

    def __init__(self, columns: Mapping[int, Sequence[str]], utc: bool) -> None:
        self.utc = utc
        self.numbers = {
            mark(number, place): (number, name) for number, names in columns.items() for place, name in enumerate(names)
        }
        self.columns = columns

    # ---- the plan

    def scans(
        self, node: Node, path: tuple[int, ...] | None = (), above: tuple[Node, ...] = (), without: Collection[Any] = ()
    ) -> Iterator[Scan]:
        """Every stand-in, including subqueries, except those below the paths in `without`."""
        if path is not None and path in without:
            return
        reference = self.reference(node)
        if reference is not None:
            yield Scan(reference, above, path)
            return
        yield from self._inside(list(node.fields.values()))
        for place, child in enumerate(node.children):
            yield from self.scans(child, None if path is None else (*path, place), (node, *above), without)

    def _inside(self, value: Any) -> Iterator[Scan]:
        """The stand-ins in subqueries, which are inside expressions."""
        if isinstance(value, list) and value and isinstance(value[0], dict) and "num-children" in value[0]:
            yield from self.scans(tree(value), None)
        elif isinstance(value, list | dict):
            for each in value if isinstance(value, list) else value.values():
                yield from self._inside(each)

    def reference(self, node: Node) -> int | None:
        """The number of a stand-in; None for other nodes."""
        if node.kind != "LogicalRDD":
            return None
        names = [each[0].get("name") for each in node.fields["output"]]
        return self.numbers[names[0]][0] if names and names[0] in self.numbers else None

    def wanted(self, scan: Scan) -> Wanted:
        names = self.columns[scan.reference]
        conditions: list[Condition] = []
        whole, read = True, list(scan.above)
        used: set[str] = set()
        while read and read[0].kind == "Filter":
            used |= self._names(read[0].fields)
            pushed, exactly = self.conditions(read[0])
            conditions, whole, read = conditions + pushed, whole and exactly, read[1:]
        condition = both(conditions)
        if not read or read[0].kind not in ("Project", "Aggregate"):
            return Wanted(None, condition)
        used |= self._names(read[0].fields)
        columns = tuple(name for name in names if name in used) or tuple(names[:1])
        order, limit = self._limit(read) if whole else ((), None)
        return Wanted(columns, condition, order, limit)

    def _limit(self, above: Sequence[Node]) -> tuple[tuple[Order, ...], int | None]:
        """The ORDER BY and LIMIT above a stand-in, if only projections are in between."""
        known = {key: name for key, (_, name) in self.numbers.items()}  # column name, by name or id
        order: tuple[Order, ...] = ()
        for node in above:
            if node.kind == "Project":
                known = dict(_passed(node, known))
            elif node.kind == "Sort" and node.fields.get("global") and not order:
                found = [_order(tree(each), known) for each in node.fields["order"]]
                if None in found:
                    return (), None
                order = tuple(each for each in found if each is not None)
            elif node.kind == "LocalLimit":
                number = tree(node.fields["limitExpr"])
                return (order, int(number.fields["value"])) if number.kind == "Literal" else ((), None)
            else:
                break
        return (), None

    def _names(self, value: Any) -> set[str]:
        """The columns of stand-ins that a part of the plan reads."""
        if isinstance(value, list):
            return {name for each in value for name in self._names(each)}
        if not isinstance(value, dict):
            return set()
        own = (
            {self.numbers[value["name"]][1]}
            if kind(value) == "AttributeReference" and value["name"] in self.numbers
            else set()
        )
        return own | {name for each in value.values() for name in self._names(each)}

    # ---- conditions

    def conditions(self, filter: Node) -> tuple[list[Condition], bool]:
        """The translatable conjuncts of a filter, and whether these are all of it."""
        found = [self._condition(each) for each in conjuncts(tree(filter.fields["condition"]))]
        return [each for each in found if each is not None], None not in found

    def _condition(self, node: Node) -> Condition | None:
        """A condition in portable form; None if it has none."""
        if node.kind in ("And", "Or"):
            parts = [self._condition(child) for child in node.children]
            if node.kind == "And" or None not in parts:
                known = tuple(part for part in parts if part is not None)
                if len(known) == len(parts):
                    return All(known) if node.kind == "And" else Some(known)
            return None
        if node.kind == "Not":
            part = self._condition(node.children[0])
            return None if part is None else Not(part)
        first = self._column(node.children[0]) if node.children else self._column(node)
        if node.kind == "AttributeReference":
            return Test(first[0], "IS TRUE") if first is not None and first[1] == "boolean" else None
        if node.kind in ("IsNull", "IsNotNull"):
            return None if first is None else Test(first[0], "IS NULL" if node.kind == "IsNull" else "IS NOT NULL")
        if node.kind == "In":
            values = [self._value(child, first[1]) for child in node.children[1:]] if first is not None else [None]
            return None if first is None or None in values else Test(first[0], "IN", tuple(values))
        if node.kind not in (*_SIGNS, "EqualNullSafe", "StartsWith"):
            return None
        left, right = node.children
        sign = _SIGNS.get(node.kind, "=")
        if first is None and node.kind != "StartsWith":
            left, right, sign, first = right, left, _TURNED[sign], self._column(right)
        value = self._value(right, first[1]) if first is not None else None
        if first is None or value is None:
            return None
        if node.kind == "EqualNullSafe":
            return All((Test(first[0], "IS NOT NULL"), Test(first[0], "=", (value,))))
        return Test(first[0], "STARTS WITH" if node.kind == "StartsWith" else sign, (value,))

    def _column(self, node: Node) -> tuple[str, str] | None:
        """Name and type of a column of a stand-in."""
        if node.kind != "AttributeReference" or node.fields["name"] not in self.numbers:
            return None
        return self.numbers[node.fields["name"]][1], str(node.fields["dataType"])

    def _value(self, node: Node, type: str) -> Any:
        """A constant of the same type as the column that it is compared with; None for any other."""
        if node.kind != "Literal" or node.fields["dataType"] != type or node.fields["value"] is None:
            return None
        text = str(node.fields["value"])
        try:
            if type in _WHOLE:
                return int(text)
            if type.startswith("decimal"):
                return Decimal(text)
            if type == "date":
                return date.fromisoformat(text) if len(text) == 10 else None
            if type == "timestamp" and self.utc:
                return datetime.fromisoformat(_six_places(text)).replace(tzinfo=timezone.utc)
        except ValueError:
            return None
        return {"string": text, "boolean": text == "true", "double": float(text) if type == "double" else None}.get(
            type
        )


def _six_places(text: str) -> str:
    """A timestamp with six decimals: older Pythons parse no other number of them.

    >>> _six_places("2026-01-01 00:00:00.5")
    '2026-01-01 00:00:00.500000'
    """
    whole, dot, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6}" if dot else text


def kind(fields: Mapping[str, Any]) -> str:
    return str(fields.get("class", "")).rpartition(".")[2]


def tree(nodes: Sequence[Mapping[str, Any]]) -> Node:
    """The first node of a list that has parents before their children."""
    at = iter(nodes)

    def take() -> Node:
        each = next(at)
        node = Node(kind(each), each)
        node.children = [take() for _ in range(int(each["num-children"]))]
        return node

    return take()


def conjuncts(node: Node) -> Iterator[Node]:
    if node.kind == "And":
        for child in node.children:
            yield from conjuncts(child)
    else:
        yield node


def both(conditions: Sequence[Condition]) -> Condition | None:
    return All(tuple(conditions)) if len(conditions) > 1 else conditions[0] if conditions else None


def _passed(project: Node, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The columns that a projection passes on, with their new ids."""
    for item in project.fields["projectList"]:
        node = tree(item)
        inner = node.children[0] if node.kind == "Alias" else node
        if inner.kind == "AttributeReference":
            name = known.get(id_of(inner)) or known.get(str(inner.fields["name"]))
            if name is not None:
                yield id_of(node), name


def id_of(node: Node) -> str:
    """The id of a column in a plan."""
    return f"#{node.fields['exprId']['id']}"


def _order(node: Node, known: Mapping[str, str]) -> Order | None:
    inner = node.children[0]
    if inner.kind != "AttributeReference":
        return None
    name = known.get(id_of(inner))
    if name is None:
        return None
    down = "Descending" in node.fields["direction"]["object"]
    return Order(name, down, "NullsFirst" in node.fields["nullOrdering"]["object"])
