"""What building a plan needs of a home: the objects of names, and Spark's types of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.ir.build import Found
from anabranch.ir.rel import Scan, Source
from anabranch.plan.bind import Binder, Reference
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import NUMBERED, Stream, Table
from anabranch.plan.view import View
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Query, Relation
from anabranch.sql.text import quote_name
from anabranch.types import Field

Analyze = Callable[[Spliced, Mapping[str, Sequence[Field]]], list[Field]]


class NotApplicable(Exception):
    """A plan or a computation does not apply to a query; the message says why."""


@dataclass(frozen=True)
class NameResolver:
    """The names of one catalog. `columns` returns those of files and of system tables."""

    text: str
    catalog: Catalog
    query: Query
    analysis: Analyze
    columns: Callable[[Reference], Sequence[Field]]

    def find(self, relation: Relation) -> Found:
        binder = Binder(self.text, self.catalog, self.query)
        reference = binder.resolve(relation)
        assert reference is not None, f"{relation} is for Spark to know"
        name = str(relation.name) if relation.name is not None else reference.target
        source = Source(reference.kind, reference.target, name, reference.version, reference.provisional)  # type: ignore[arg-type]
        target = self.catalog.objects.get(reference.target)
        if isinstance(target, Stream):
            times = (target.time,) if target.time is not None else ()
            return Found(source, target.fields, times, target.row_fields)
        if isinstance(target, View) and not reference.provisional:
            return Found(source, target.shown_fields, tuple(binder.times_of(target)))
        if isinstance(target, Table):
            return Found(replace(source, looked_up=bool(target.asked)), target.fields)
        return Found(source, tuple(self.columns(reference)))

    def analyze(self, text: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        return self.analysis(text, schemas)


def placeholder(scan: Scan, numbered: bool | None = None) -> str:
    """The engine's placeholder of what a scan reads. With `numbered`, rows have their numbers."""
    source = scan.source
    if numbered is None:
        numbered = source.kind == "stream" and any(column.name == "_row_num" for column in scan.columns)
    prefix = NUMBERED if numbered else "@sys:" if source.kind == "system" else f"@{source.kind[0]}:"
    at = ":provisional" if source.provisional else "" if source.version is None else f":{source.version}"
    return quote_name(f"{prefix}{source.target}{at}")
