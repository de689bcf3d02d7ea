"""Name resolution: every relation of a query becomes a placeholder for what it reads.

The result is Spark SQL over placeholders such as `@s:bids`, for which the engine substitutes frames. Only relations,
AS OF and the emission clause are edited, so an error of Spark's points into the user's own text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch.algebra.windows.sql import MOST_BETWEEN
from anabranch.errors import NotSupported, SqlError, UnknownFunction, UnknownName, did_you_mean
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import NUMBERED, ROW_NUM, Stream, Table
from anabranch.plan.view import View
from anabranch.sources import registry, secrets
from anabranch.sql.calls import Chain, chains, only_name
from anabranch.sql.columns import check_window
from anabranch.sql.functions import builtin
from anabranch.sql.own_calls import own_calls
from anabranch.sql.splice import Edit, Spliced, splice
from anabranch.sql.syntax import (
    Item,
    Query,
    Relation,
    Select,
    Watermark,
    WindowSpec,
    respelt,
)
from anabranch.sql.terms import option_value
from anabranch.sql.text import FILE_NAME, Span, quote_name
from anabranch.sql.watermarks import watermark_text
from anabranch.types import Field

if TYPE_CHECKING:
    from anabranch.sources.lookup import LookupSource

SYSTEM_TABLES = ("runs", "progress", "views", "nodes", "tables", "bad_rows", "late_rows", "sinks", "lookups")
STDIN = "/dev/stdin"


@dataclass(frozen=True)
class Reference:
    """What a placeholder refers to."""

    placeholder: str
    kind: str  # "stream", "table", "view", "file", "outside", "system", "temporary"
    target: str  # id, path or name of a system table
    version: int | None = None
    relation: Relation | None = None
    provisional: bool = False
    #: The open external table: a statement opens it once.
    opened: list[LookupSource] = field(default_factory=list, repr=False, compare=False)

    @property
    def plain(self) -> bool:
        """Whether it is the present version of a stream, table or view, which a view can read."""
        return self.kind in ("stream", "table", "view") and self.version is None and not self.provisional


@dataclass(frozen=True)
class Bound:
    """A query over placeholders; without a text where only its plan can be rendered."""

    text: Spliced
    references: dict[str, Reference] = field(default_factory=dict)
    binder: Binder | None = field(default=None, repr=False, compare=False)


def made_first(relation: Relation) -> str:
    """A hint: what to create for an external relation so that a view can read it."""
    kind = registry.find(relation.function)
    if kind is None:
        return "make a table of the file first: CREATE TABLE t FROM files(path => '...')"
    if kind.table is None and not kind.files:
        return f"make a stream of it first: CREATE STREAM s FROM {kind.name}(...)"
    return f"make a table of it first: CREATE TABLE t FROM {kind.name}(...)"


class Binder:
    """Resolves the relations of one query against one catalog."""

    def __init__(self, text: str, catalog: Catalog, query: Query) -> None:
        self.text = text
        self.catalog = catalog
        self.query = query
        self.ctes = {name.lower(): inner for each in query.queries() for name, inner in each.ctes}
        self.references: dict[str, Reference] = {}

    def bind(self) -> Bound:
        """The query as Spark SQL over placeholders."""
        if self.query.needs_plan:
            for relation in self.query.relations():
                self.source_sql(relation)
            return Bound(Spliced("", ()), dict(self.references), self)
        edits: list[Edit] = []
        for select, _ in self.query.selects():  # from the outermost in: its insertions come first
            edits.extend(_unwritten(select))
            for relation in select.relations:
                edits.extend(self._relation_edits(relation))
        edits += respelt(self.text, self.query.tokens)
        edits += [Edit(emission.span, "") for emission in self.query.emissions()]
        edits += [Edit(each.refreshable, "") for each in self.query.relations() if each.refreshable is not None]
        edits += [Edit(dropped, "") for query in self.query.queries() for dropped in query.dropped]
        edits += self._own_aggregates(edits)
        return Bound(splice(self.text, self.query.span, edits), dict(self.references), self)

    def _own_aggregates(self, edits: Sequence[Edit]) -> Iterator[Edit]:
        """Edits that expand aggregates that Spark does not have; a column keeps the name of the call as written."""
        tokens = self.query.tokens
        for first, behind, made in own_calls(self.text, tokens):
            span = Span(tokens[first].start, tokens[behind - 1].end)
            if not any(each.span.start <= span.start and span.end <= each.span.end for each in edits):
                yield Edit(span, made)
        for item in (item for select, _ in self.query.selects() for item in select.items):
            if item.alias is None and any(True for _ in own_calls(self.text, item.tokens)):
                end = Span(item.span.end, item.span.end)
                yield Edit(end, f" AS {quote_name(item.span.of(self.text))}")

    def _relation_edits(self, relation: Relation) -> list[Edit]:
        """The edits that replace a relation. A subquery is kept; its own relations are edited one by one."""
        edits = [] if relation.version_span is None else [Edit(relation.version_span, "")]
        if relation.sample is not None:
            start, end = (Span(place, place) for place in (relation.span.start, relation.span.end))
            text = f"{relation.sample.text}{_own_alias(relation)}"
            return [Edit(start, "("), Edit(end, ")"), Edit(relation.sample.span, text)]
        source = self.source_sql(relation)
        if source is None and relation.name is not None and relation.watermarks:
            source = quote_name(relation.name.last)  # a CTE
        if source is None and relation.subquery is not None and relation.watermarks:
            inner = relation.subquery.span
            return [
                *edits,
                Edit(Span(relation.span.start, inner.start), "("),
                Edit(Span(inner.end, relation.span.end), f"){_own_alias(relation)}"),
            ]
        return edits if source is None else [*edits, Edit(relation.span, f"{source}{_own_alias(relation)}")]

    def source_sql(self, relation: Relation) -> str | None:
        """The placeholder of a relation; None where the text is unchanged."""
        reference = self.resolve(relation)
        if reference is None:
            return None
        self.references[reference.placeholder] = reference
        return quote_name(reference.placeholder)

    def resolve(self, relation: Relation) -> Reference | None:
        """What a relation refers to; None for a CTE, a subquery and what Spark resolves itself."""
        reference = self._reference(relation)
        if relation.window is not None:
            self._check_window(relation, relation.window, reference)
        for mark in relation.watermarks:
            self._check_watermark(relation, mark)
        if relation.current and (reference is None or reference.kind not in ("table", "file")):
            raise refuse(
                self.text,
                relation.version_span or relation.span,
                "the current version depends on when a row arrives, and only static tables have one",
                "join by the event time: FOR SYSTEM_TIME AS OF a.ts",
            )
        if relation.refreshable is not None:
            self._check_refreshable(relation, relation.refreshable)
        return reference

    def _reference(self, relation: Relation) -> Reference | None:
        if relation.kind == "path":
            assert relation.path is not None
            kind = registry.of_path(relation.path)
            if registry.is_table(kind):
                return Reference(f"@f:{len(self.references)}", "outside", kind, relation=relation)
            return Reference(f"@f:{len(self.references)}", "file", relation.path, relation=relation)
        if relation.kind == "function":
            if registry.is_table(relation.function):
                return Reference(f"@f:{len(self.references)}", "outside", str(relation.function), relation=relation)
            if not registry.is_files(relation.function):
                self._refuse_unmeant(relation)
                return None
            path = next((a.value for a in relation.arguments if a.name in (None, "path")), None)
            if not isinstance(path, str):
                raise self._error(relation, f"{relation.function} needs a path in quotes", "as in csv('data.csv')")
            return Reference(f"@f:{len(self.references)}", "file", path, relation=relation)
        if relation.kind != "name":
            return None
        assert relation.name is not None
        parts = relation.name.parts
        if len(parts) == 1 and parts[0].lower() in self.ctes:
            return None
        if len(parts) == 2 and parts[0].lower() == "sys":
            if parts[1].lower() not in SYSTEM_TABLES:
                raise self._unknown(relation, [f"sys.{name}" for name in SYSTEM_TABLES])
            return Reference(f"@sys:{parts[1].lower()}", "system", parts[1].lower())
        if len(parts) == 2 and parts[0].lower() == "stdin":
            if parts[1].lower() not in registry.formats():
                raise self._unknown(relation, [f"stdin.{name}" for name in registry.formats()])
            return Reference(f"@f:{len(self.references)}", "file", STDIN, relation=relation)
        found = self.catalog.find(parts[0]) if len(parts) == 1 else None
        if found is None and len(parts) == 1 and parts[0].lower() in self.catalog.temporary:
            if relation.version is not None or relation.provisional:
                raise self._error(relation, f"{parts[0]} is a temporary view of Spark's", "it has no versions")
            return Reference(f"@x:{len(self.references)}", "temporary", parts[0].lower(), relation=relation)
        if found is None:
            raise self._unknown(relation, [*self.catalog.names(), *(name for name in self.ctes)])
        kind = "stream" if isinstance(found, Stream) else "table" if isinstance(found, Table) else "view"
        at = "" if relation.version is None else f":{relation.version}"
        if relation.provisional:
            if kind != "view":
                hint = "only views have provisional rows"
                raise self._error(relation, f"{found.name} is a {kind}: all of its rows are final", hint)
            at = ":provisional"
        prefix = f"@{kind[0]}:"
        if kind == "stream" and self._numbered(relation):
            prefix = NUMBERED
        return Reference(f"{prefix}{found.id}{at}", kind, found.id, relation.version, relation, relation.provisional)

    def _refuse_unmeant(self, relation: Relation) -> None:
        """Refuse sources that are not of tables, and unknown window types: Spark would take them for functions of its
        own, and their relations for columns."""
        name, kind = str(relation.function), registry.find(relation.function)
        given = relation.arguments[0].tokens if relation.arguments and not relation.lateral else ()
        if len(given) == 1 and self.catalog.find(given[0].name) is not None and name.lower() not in builtin():
            place = Span(relation.span.start, relation.span.start + len(name))
            message = f"there is no function {place.of(self.text)} in FROM"
            hint = "if it is a window function, install or import the package of its window type"
            raise UnknownFunction(message, text=self.text, at=place, hint=hint)
        if kind is not None:
            what = f"{name} is a source of streams"
            raise self._error(relation, what, f"CREATE STREAM s FROM {name}(...), and read s")
        if any(secrets.is_reference(option_value(argument)) for argument in relation.arguments):
            raise self._error(relation, f"there is no source {name}", did_you_mean(name, registry.of_tables()) or "")

    def _numbered(self, relation: Relation) -> bool:
        """Whether the query needs the row numbers of a stream: for its windows, or in its SELECT."""
        if relation.window is not None and relation.window.needs_numbers:
            return True
        return self._selects(relation, ROW_NUM)

    def _selects(self, relation: Relation, column: str) -> bool:
        """Whether the query selects a hidden column of the rows of a stream."""
        if column not in self.text:
            return False
        selects = [each for each, _ in self.query.selects() if any(r.span == relation.span for r in each.relations)]
        exposed = (relation.exposed or "").lower()
        names = [named for each in selects for item in each.items for named in chains(item.tokens)]
        return any(
            named.parts[-1] == column and (len(named.parts) == 1 or named.parts[0].lower() == exposed)
            for named in names
        )

    def check_versions(self, select: Select) -> None:
        """Refuse versions by event time of a relation without one."""
        for relation in select.relations:
            if relation.moment is not None:
                hint = "name it: ASOF JOIN ... MATCH_CONDITION (a.ts >= b.ts)"
                self._event_time(relation, relation.moment.span, hint)

    # ---- windows

    def window_of(self, relation: Relation) -> WindowSpec:
        """The windows of a relation, with their time column."""
        window = relation.window
        assert window is not None
        if window.slide and window.size // window.slide > MOST_BETWEEN:
            what = f"a row would be in {window.size // window.slide:,} windows, and {MOST_BETWEEN:,} are the most"
            raise self._error(relation, what, "give the windows a larger slide, or make them shorter")
        if window.time_column is not None or window.attribute != "column":
            return window
        hint = "name the column: DESCRIPTOR(ts)"
        return replace(window, time_column=self._event_time(relation, window.time_span, hint))

    def _event_time(self, relation: Relation, span: Span, hint: str) -> str:
        """The event time column of a relation, where the query names none."""
        reference = self._reference(relation)
        found = self.catalog.objects.get(reference.target) if reference is not None else None
        if isinstance(found, View):
            names = self.times_of(found)
        else:
            streams = list(self._streams(relation, frozenset()))
            names = list(dict.fromkeys(stream.time for stream in streams if stream.time is not None))
            if any(stream.time is None for stream in streams):
                names = []
        if len(names) != 1:
            what = "it is not clear which column has the time" if not names else f"{' or '.join(names)} can be the time"
            raise refuse(self.text, span, what, hint)
        return names[0]

    def times_of(self, view: View) -> list[str]:
        """The event times of a view: that of its windows, if it has windows."""
        names = [each.name for each in view.fields if each.name in view.progress.times]
        return [name for name in names if name.lower() == "window_time"] or names or self._passed_on(view)

    def _passed_on(self, view: View) -> list[str]:
        """The columns that pass on the event time of the only input of a view that computes row by row."""
        from anabranch.sql.parser import parse

        query = next((getattr(each, "query", None) for each in parse(view.sql)), None)
        select = query.body if isinstance(query, Query) else None
        if not isinstance(query, Query) or not isinstance(select, Select) or len(select.relations) != 1:
            return []
        relation = select.relations[0]
        if select.group or select.lateral or relation.name is None or relation.window is not None:
            return []
        try:
            time = Binder(view.sql, self.catalog, query)._event_time(relation, query.span, "").lower()
        except NotSupported:
            return []
        shown = [item.alias or named.parts[-1] for item in select.items if (named := _column(item, time))]
        stars = [field.name for field in view.fields if field.name.lower() == time]
        return stars if any(item.star for item in select.items) else shown

    def _check_window(self, relation: Relation, window: WindowSpec, reference: Reference | None) -> None:
        if reference is not None and reference.kind == "stream":
            self.window_of(relation)  # raises where it has no time column
        target = self.catalog.objects.get(reference.target) if reference is not None else None
        if isinstance(target, Stream | Table | View) and target.fields:
            self.check_window(window, target.fields)
        if window.needs_numbers and (reference is None or reference.kind != "stream"):
            what = "the time of arrival is" if window.attribute == "arrival_ts" else "the order of arrival is"
            message = f"{what} known of the rows of a stream only"
            raise refuse(self.text, window.time_span, message, "read a stream here, without a query around it")

    def check_window(self, window: WindowSpec, fields: Sequence[Field]) -> None:
        """Refuse windows by a column that does not exist or has another type: no row could be put into them."""
        check_window(self.text, window, {field.name: field.type for field in fields})

    def _check_watermark(self, relation: Relation, mark: Watermark) -> None:
        """Refuse a watermark function over anything but a stream that declares the same watermark."""
        clause = watermark_text(mark.column, mark.rule)
        streams = {stream.id: stream for stream in self._streams(relation, frozenset())}
        if len(streams) != 1:
            raise refuse(
                self.text,
                mark.span,
                f"a watermark belongs to one stream, and {'several are' if streams else 'none is'} read here",
                f"remove the function, and put {clause} into CREATE STREAM",
            )
        (stream,) = streams.values()
        declared = None
        if stream.time is not None and stream.rule is not None:
            declared = watermark_text(stream.time, stream.rule)
        if declared is None or declared.lower() != clause.lower():
            raise refuse(
                self.text,
                mark.span,
                f"stream {stream.name} has {'no watermark' if declared is None else declared}",
                f"a watermark belongs to the stream: put {clause} into CREATE STREAM {stream.name}",
            )

    def _streams(self, relation: Relation, around: frozenset[str]) -> Iterator[Stream]:
        """The streams below a relation, through CTEs (`around` are the enclosing ones) and subqueries."""
        name = relation.name.last.lower() if relation.name is not None else ""
        reference = self._reference(relation)
        if reference is not None:
            target = self.catalog.objects.get(reference.target)
            if isinstance(target, Stream):
                yield target
            return
        inner = relation.subquery or (self.ctes.get(name) if name not in around else None)
        for each in inner.relations() if inner is not None else ():
            yield from self._streams(each, around | {name})

    def _check_refreshable(self, relation: Relation, span: Span) -> None:
        """Refuse REFRESHABLE after anything but a static table: changes of other inputs reach every answer anyway."""
        for name, kind in self._live(relation, frozenset()):
            raise refuse(
                self.text,
                span,
                f"{name} is a {kind}, and its changes reach all answers anyway",
                "REFRESHABLE only applies to static tables: remove it",
            )

    def _live(self, relation: Relation, around: frozenset[str]) -> Iterator[tuple[str, str]]:
        """The names and kinds of the streams and views below a relation, through CTEs and subqueries."""
        name = relation.name.last.lower() if relation.name is not None else ""
        reference = self._reference(relation)
        if reference is not None:
            if reference.kind in ("stream", "view"):
                yield str(relation.name), reference.kind
            return
        inner = relation.subquery or (self.ctes.get(name) if name not in around else None)
        for each in inner.relations() if inner is not None else ():
            yield from self._live(each, around | {name})

    def is_live(self, relation: Relation) -> bool:
        """Whether a stream or a view is below a relation."""
        return any(True for _ in self._live(relation, frozenset()))

    def reads_stream(self, relation: Relation) -> bool:
        """Whether a stream is below a relation, directly or through views."""
        for name, _ in self._live(relation, frozenset()):
            found = self.catalog.find(name)
            if isinstance(found, Stream) or (isinstance(found, View) and self.catalog.sources_of(found)):
                return True
        return False

    def _unknown(self, relation: Relation, known: list[str]) -> UnknownName:
        assert relation.name is not None
        name, span = str(relation.name), relation.name.span
        hint = did_you_mean(name, known)
        if FILE_NAME.fullmatch(name):
            hint = f"a file is named in quotes: '{name}'"
        elif name.lower() == "stdin":
            hint = "what is piped in is read with its format: stdin.csv, stdin.tsv, stdin.json or stdin.parquet"
        return UnknownName(f"there is no stream, view or table {name}", text=self.text, at=span, hint=hint)

    def _error(self, relation: Relation, message: str, hint: str) -> SqlError:
        return SqlError(message, text=self.text, at=relation.span, hint=hint)


def _own_alias(relation: Relation) -> str:
    """The name of a relation as an alias, where the query gives none."""
    return f" AS {quote_name(relation.exposed)}" if relation.alias_span is None and relation.exposed else ""


def _unwritten(select: Select) -> Iterator[Edit]:
    """The edits that write out what a SELECT without a select list implies, around its relation."""
    before, behind = select.unwritten
    for piece, origin in before:
        yield Edit(Span(select.span.start, select.span.start), piece, origin)
    if behind:
        yield Edit(Span(select.span.end, select.span.end), behind, select.items[-1].span)


def _column(item: Item, name: str) -> Chain | None:
    """The chain of an item that is a plain column of this name."""
    named = only_name(item.tokens)
    return named if named is not None and named.parts[-1].lower() == name else None


def refuse(text: str, span: Span, message: str, hint: str | None = None) -> NotSupported:
    return NotSupported(message, text=text, at=span, hint=hint)
