"""What the names in a SELECT mean, and of what types its expressions are, for those who write it in other words."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze
from anabranch.plan.catalog import WINDOW_COLUMNS, Field, Stream, Table, View
from anabranch.sql.lexer import Span, Token
from anabranch.sql.parser import parse
from anabranch.sql.syntax import Query, Select, SelectStatement


class Unfit(Exception):
    """A query cannot be written in other words, or it is not certain that they would mean the same."""


def span_of(tokens: Sequence[Token]) -> Span:
    return Span(tokens[0].start, tokens[-1].end)


class Scope:
    """The relations of a SELECT whose columns can be named, with these columns; in its joins, those of all."""

    def __init__(self, select: Select, binder: Binder, *, joins: bool = False) -> None:
        self.relations = select.relations
        self.columns: list[frozenset[str]] = []
        for relation in select.relations:
            if not joins and {"SEMI", "ANTI"} & set(relation.join.split()):
                self.columns.append(frozenset())
                continue
            names = binder.columns_of(relation)
            names = [*relation.alias_columns, *names[len(relation.alias_columns) :]]
            if not names or not all(names) or relation.reshaped:
                raise Unfit
            more = WINDOW_COLUMNS if relation.window is not None else ()
            self.columns.append(frozenset(name.lower() for name in (*names, *more)))

    def find(self, parts: Sequence[str]) -> tuple[int, str, bool] | None:
        """The relation and the column, and whether the name tells which relation it is."""
        if len(parts) > 1:
            named = [i for i, each in enumerate(self.relations) if (each.exposed or "").lower() == parts[0]]
            if named:
                if len(named) > 1 or parts[1] not in self.columns[named[0]]:
                    raise Unfit
                return named[0], parts[1], True
        owners = [index for index, columns in enumerate(self.columns) if parts[0] in columns]
        if len(owners) > 1:
            raise Unfit
        return (owners[0], parts[0], False) if owners else None


def types_of(expressions: Sequence[str], source: str, root: Query, binder: Binder, analyze: Analyze) -> list[str]:
    """The types of expressions over a FROM clause of a query, or one like it."""
    items = ", ".join(f"{each} AS `x{index}`" for index, each in enumerate(expressions))
    ctes = bool(root.ctes or root.dropped)
    prefix = binder.text[root.span.start : root.body.span.start] if ctes else ""
    (statement,) = parse(f"{prefix}SELECT {items} FROM {source}")
    assert isinstance(statement, SelectStatement)
    return shown_types(Binder(statement.text, binder.catalog, statement.query), analyze)


def shown_types(binder: Binder, analyze: Analyze) -> list[str]:
    """The types of the columns of a query, as Spark gives them."""
    bound = binder.bind()
    schemas: dict[str, tuple[Field, ...]] = {}
    for placeholder, reference in bound.references.items():
        found = binder.catalog.objects.get(reference.target)
        if not isinstance(found, Stream | Table | View):
            raise Unfit
        schemas[placeholder] = found.seen_as(placeholder) if isinstance(found, Stream) else found.fields
    return [field.type for field in analyze(bound.text.text, schemas)]
