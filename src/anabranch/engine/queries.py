"""A bound query as a frame: its columns by Spark's analyser, its rows over what a version holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.engine import read
from anabranch.engine.core import Core
from anabranch.engine.frames import fields_of
from anabranch.engine.tables import FINAL
from anabranch.errors import AnabranchError, SqlError
from anabranch.ledger import Snapshot
from anabranch.plan.bind import Bound
from anabranch.plan.catalog import Catalog, Field, Stream, Table, View
from anabranch.plan.ties import settle_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def analyze(core: Core, bound: Bound, catalog: Catalog, text: str) -> list[Field]:
    """The columns of a bound query, by Spark's analyser over empty relations; files are looked into."""
    relations: dict[str, DataFrame] = {}
    for placeholder, reference in bound.references.items():
        if reference.kind == "file":
            relations[placeholder] = _file(core, reference, text)
        elif reference.kind == "system":
            from anabranch.engine.system import FIELDS

            relations[placeholder] = core.frames.empty(FIELDS[reference.target])
        else:
            target = catalog[reference.target]
            assert isinstance(target, Stream | Table | View)
            fields = target.shown_fields if isinstance(target, View) else target.fields
            if isinstance(target, Stream):
                fields = target.seen_as(placeholder)
            fields = (*target.fields, FINAL) if reference.provisional else fields
            relations[placeholder] = core.frames.empty(fields)
    return fields_of(core.frames.sql(bound.text, relations, source=text))


def _file(core: Core, reference: Any, text: str) -> DataFrame:
    try:
        return read.file_frame(core, reference)
    except SqlError:
        raise
    except AnabranchError as error:
        span = reference.relation.span
        raise SqlError(error.message, text=text, start=span.start, end=span.end, hint=error.hint) from error


def frame(core: Core, bound: Bound, snapshot: Snapshot, text: str) -> DataFrame:
    """A bound query over what its relations hold at a version."""
    relations: dict[str, DataFrame] = {}
    for placeholder, reference in bound.references.items():
        if reference.kind == "file":
            relations[placeholder] = _file(core, reference, text)
        else:
            relations[placeholder] = read.relation(core, reference, snapshot)
    return over(core, bound, relations, text)


def over(core: Core, bound: Bound, relations: dict[str, DataFrame], text: str) -> DataFrame:
    """A bound query over these relations."""
    settled = settle_versions(bound, lambda part: fields_of(core.frames.sql(part, relations)))
    return core.frames.sql(settled, relations, source=text)
