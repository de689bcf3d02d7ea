"""Bound queries as frames: their columns by Spark's analyser, their rows at a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from anabranch.engine import read, remote
from anabranch.engine.core import Core
from anabranch.engine.frames import fields_of, in_text, named, translate
from anabranch.engine.set_aside import lacking
from anabranch.engine.tables import FINAL
from anabranch.errors import AnabranchError, DataError, QueryFailed, SourceError, SqlError
from anabranch.ledger import Snapshot
from anabranch.plan.bind import Bound, Reference
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.query_ties import break_query_ties
from anabranch.plan.view import View
from anabranch.sql.functions import calls
from anabranch.sql.lexer import Token
from anabranch.sql.text import words
from anabranch.sql.windows import WINDOW_FUNCTIONS
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Kinds of references outside of the home; and those whose columns are only known from a frame.
_EXTERNAL = ("file", "outside", "temporary")
_FILES = ("file", "temporary")
#: Functions, and keywords before a bracket, that nobody redefines.
_PLAIN = words(
    """count sum avg min max coalesce row_number rank dense_rank lead lag cast unix_micros timestamp_micros pmod
    explode sequence from join on where and or not in over using select exists as values filter union all between
    when then else by having distinct table descriptor net except"""
)
#: Settings of Spark's on which the columns of a query depend, or whether it is valid.
_SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.caseSensitive")


def analyze(core: Core, bound: Bound, catalog: Catalog, text: str) -> list[Field]:
    """The columns of a bound query, by Spark's analyser over empty relations and over files.

    The result is cached, unless the query calls a function that may be redefined.
    """
    files = {
        each: _external_frame(core, found, text) for each, found in bound.references.items() if found.kind in _FILES
    }
    schemas = {
        placeholder: _columns(catalog, reference, text)
        for placeholder, reference in bound.references.items()
        if placeholder not in files
    }
    known: list[list[Field]] = []
    if not files and not (bound.binder is None or _calls_others(bound.binder.query.tokens)):
        settings = tuple(core.spark.conf.get(name) for name in _SETTINGS)
        written = bound.text.text or bound.binder.query.sql(text)
        known = _known(written, tuple(schemas.items()), settings)
    if known:
        return list(known[0])
    relations = files | {placeholder: core.frames.empty(fields) for placeholder, fields in schemas.items()}
    planned = bound.binder is not None and bound.binder.query.needs_plan
    found = over(core, bound, relations, text) if planned else core.frames.sql(bound.text, relations, source=text)
    known.append(fields_of(found))
    return list(known[0])


def _calls_others(tokens: Sequence[Token]) -> bool:
    """Whether a query calls a function that may have been registered in place of Spark's."""
    others = (token for _, token in calls(tokens) if token.name.lower() not in _PLAIN)
    return any(token.upper not in WINDOW_FUNCTIONS for token in others)


@lru_cache(maxsize=1024)
def _known(text: str, schemas: tuple[tuple[str, tuple[Field, ...]], ...], settings: tuple[Any, ...]) -> list[Any]:
    """The cache entry for the columns of a query: a list that `analyze` fills."""
    return []


def _columns(catalog: Catalog, reference: Reference, text: str) -> tuple[Field, ...]:
    """The columns of a reference."""
    if reference.kind == "outside":
        with at_reference(reference, text):
            return remote.opened(reference).fields()
    if reference.kind == "system":
        from anabranch.engine.system import FIELDS

        return tuple(FIELDS[reference.target])
    target = catalog[reference.target]
    assert isinstance(target, Stream | Table | View)
    if reference.provisional:
        return (*target.fields, FINAL)
    if isinstance(target, Stream):
        return target.seen_as(reference.placeholder)
    return target.shown_fields if isinstance(target, View) else target.fields


def _external_frame(core: Core, reference: Any, text: str) -> DataFrame:
    """A file, an external table or a temporary view."""
    with at_reference(reference, text):
        return read.relation(core, reference, core.ledger.snapshot())


@contextmanager
def at_reference(reference: Any, text: str) -> Iterator[None]:
    """Errors of a relation, at its position in the text."""
    try:
        yield
    except SqlError:
        raise
    except AnabranchError as error:
        span = reference.relation.span
        raise SqlError(error.message, text=text, start=span.start, end=span.end, hint=error.hint) from error


def check_views(core: Core, bound: Bound, snapshot: Snapshot) -> None:
    """Refuse to read a stopped view, and warn about views that lack rows."""
    for view in _views(core, bound, snapshot):
        if view.state.stopped:
            raise stopped(view)
        if view.state.lacks:
            core.warn(lacking(view.name, view.state.lacks))


def stopped(view: View) -> QueryFailed:
    """The error for reading a stopped view."""
    hint = "CREATE OR REPLACE VIEW recreates it with another query; DROP VIEW drops it"
    return QueryFailed(
        f"view {view.name} is stopped, because it could not be computed: {view.state.stopped}", hint=hint
    )


def _views(core: Core, bound: Bound, snapshot: Snapshot) -> list[View]:
    """The views that a query reads, each at its version, and all views below them."""
    found: dict[str, View] = {}
    for reference in bound.references.values():
        if reference.kind == "view":
            at = snapshot if reference.version is None else core.ledger.snapshot(reference.version)
            catalog = core.catalog(at)
            view = catalog.objects.get(reference.target)
            found |= {each.id: each for each in catalog.all_below(view)} if isinstance(view, View) else {}
    return list(found.values())


def located(core: Core, bound: Bound, snapshot: Snapshot, text: str, error: Exception) -> Exception:
    """An error of a query, at its position in the text, or in the text of the view that caused it."""
    found = translate(error, text)
    if not isinstance(found, DataError) or found.text is not None:
        return found
    views = _views(core, bound, snapshot)
    blamed = [view for view in views if in_text(found, view.sql).text is not None] or views[:1]
    return named(blamed[0], found) if len(blamed) == 1 else found


def frame(core: Core, bound: Bound, snapshot: Snapshot, text: str) -> DataFrame:
    """A bound query over its relations at a version, with pushdown into databases."""
    found = remote_query(core, bound, snapshot, text)
    if not isinstance(found, remote.RemoteQuery):
        return found
    with at_external_table(bound, text):
        return found.frame(core)


def remote_query(core: Core, bound: Bound, snapshot: Snapshot, text: str) -> DataFrame | remote.RemoteQuery:
    """A bound query as a frame; if it reads tables of databases, as the queries to push down."""
    with at_external_table(bound, text):
        sources = remote.sources(core, bound, snapshot)
    relations: dict[str, DataFrame] = {}
    for placeholder, reference in bound.references.items():
        if placeholder in sources:
            continue
        if reference.kind in _EXTERNAL:
            relations[placeholder] = _external_frame(core, reference, text)
        else:
            relations[placeholder] = read.relation(core, reference, snapshot)
    if not sources:
        return over(core, bound, relations, text)
    # The time is fixed, so that the queries to databases and the rest of the query use the same one.
    moment = core.now()
    with at_external_table(bound, text):
        return remote.remote_query(core, sources, lambda found: over(core, bound, {**relations, **found}, text, moment))


def pushed_down_queries(core: Core, bound: Bound, snapshot: Snapshot, text: str) -> list[str]:
    """The queries that are pushed down into databases, for EXPLAIN."""
    with at_external_table(bound, text):
        sources = remote.sources(core, bound, snapshot)
        if not sources:
            return []
        catalog, moment = core.catalog(snapshot), core.now()
        empty = {
            each: _external_frame(core, reference, text)
            if reference.kind in _FILES
            else core.frames.empty(_columns(catalog, reference, text))
            for each, reference in bound.references.items()
            if each not in sources
        }
        return remote.remote_query(
            core, sources, lambda found: over(core, bound, {**empty, **found}, text, moment)
        ).shown()


@contextmanager
def at_external_table(bound: Bound, text: str) -> Iterator[None]:
    """Errors of external tables, at the position of the table in the text, if there is only one."""
    try:
        yield
    except SourceError as error:
        spans = [each.relation.span for each in bound.references.values() if each.kind == "outside" and each.relation]
        if len(spans) != 1:
            raise
        raise SqlError(error.message, text=text, start=spans[0].start, end=spans[0].end, hint=error.hint) from error


def over(
    core: Core, bound: Bound, relations: Mapping[str, DataFrame], text: str, moment: int | None = None
) -> DataFrame:
    """A bound query over given relations."""
    settled = break_query_ties(
        bound,
        lambda name: fields_of(relations[name]),
        core.frames.analyze,
    )
    return core.frames.sql(settled, relations, source=text, moment=moment)
