"""CREATE, DROP and REFRESH: definitions and the state that they need, in one commit each."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.engine import backfill, queries, read, remote
from anabranch.engine.core import Core
from anabranch.engine.frames import arrow_schema, fields_of, is_data_error, struct, translate
from anabranch.engine.joined_partials import write_own_files
from anabranch.engine.run import Runner
from anabranch.engine.set_aside import lacking
from anabranch.engine.sinks import target_of
from anabranch.engine.tables import pane_fields
from anabranch.engine.writing import write_frame
from anabranch.errors import (
    AnabranchError,
    NotSupported,
    SinkError,
    SourceError,
    SqlError,
    UnknownName,
    WrongType,
    did_you_mean,
)
from anabranch.ir.show import show
from anabranch.ledger import DataFile, Draft, Record, Snapshot, TableChange
from anabranch.plan.alter import beginnings, missing
from anabranch.plan.bind import Binder, Bound, refuse
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Sink, Stream, Table
from anabranch.plan.describe import because, waiting
from anabranch.plan.explain import unbounded_joins
from anabranch.plan.hints import with_hints
from anabranch.plan.lookup_nodes import needs_lookups
from anabranch.plan.placer import Planned, PlanningContext
from anabranch.plan.planner import plan
from anabranch.plan.relation_builder import builder
from anabranch.plan.states import Panes, Rows, own_signature
from anabranch.plan.stored import to_json
from anabranch.plan.strategy import Load
from anabranch.plan.view import View
from anabranch.sinks import kinds
from anabranch.sinks.base import CHANGE_COLUMNS
from anabranch.sources import lookup, registry
from anabranch.sources.base import Leaving
from anabranch.sources.files import FilesSource
from anabranch.sources.paths import absolute, check_path, format_of, is_pipe, scheme_of
from anabranch.sql.definitions import check_policies, check_sink, check_watermark
from anabranch.sql.parser import parse
from anabranch.sql.syntax import (
    CreateSink,
    CreateStream,
    CreateTable,
    CreateView,
    Drop,
    Expression,
    Name,
    Query,
    Refresh,
    SelectStatement,
    SourceSpec,
    Statement,
    Subscribe,
)
from anabranch.sql.text import Span, quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_IDLE = 30_000_000
DEFAULT_AHEAD = 300_000_000
RESERVED = ("sys", "stdin")


class Definer:
    """Changes the catalog of one home."""

    def __init__(self, core: Core, runner: Runner) -> None:
        self.core = core
        self.runner = runner
        runner.refresh = self.refresh_table
        self._given: set[str] = set()

    # ---- streams

    def create_stream(self, statement: CreateStream, *, again_is_fine: bool) -> str:
        name = self._free_name(statement, statement.name, "stream", again_is_fine)
        if name is None:
            return f"stream {statement.name} already exists"
        options = dict(statement.source.options) if statement.source is not None else {}
        kind = statement.source.kind if statement.source is not None else None
        fields = tuple(self._declared(statement))
        check_policies(statement)
        try:
            if registry.is_files(kind) and options.pop("follow", False):
                check_path(str(options.get("path", "")))
                options["path"] = absolute(str(options["path"]))
                kind, options = "follow", options if kind == "files" else {**options, "format": kind}
                options = self._with_header(options, fields)
            if registry.is_files(kind) and "path" in options:
                check_path(str(options["path"]))
                if is_pipe(str(options.get("path", ""))):
                    hint = "create it without FROM, and COPY from the pipe"
                    raise SourceError("a pipe can be read once, and a stream may have to be read again", hint=hint)
                if "bad_rows" in options:
                    hint = "ON ERROR FAIL at the end of CREATE STREAM stops it at a bad row"
                    raise SourceError("a stream sets bad rows aside, in sys.bad_rows", hint=hint)
            if kind is not None:
                source = self.core.make_source(kind, options, fields or None)
                if isinstance(source, FilesSource) and scheme_of(source.path) is not None:
                    source.listing()  # fails for a store that cannot be listed, which would otherwise look empty
                if kind != "files" and registry.is_files(kind):
                    kind, options = "files", {**options, "format": kind}
                if kind == "files":
                    options = self._with_header(options, () if statement.on_schema_change == "add" else fields)
                fields = fields or _unreserved(source.fields())
                found = registry.find(kind)
                if found is not None and found.stored is not None:
                    kind, options = found.stored[0], {**found.stored[1], **options}
                if statement.keep == "nothing" and registry.reads_once(kind):
                    hint = "remove KEEP NOTHING: the stream keeps its rows"
                    raise SourceError("the rows of this source cannot be read again", hint=hint)
        except AnabranchError as error:
            if statement.source is not None and not isinstance(error, SqlError):
                raise _at(statement, statement.source.span, error) from error
            raise
        if kind == "files" and "path" in options:
            options["path"] = absolute(str(options["path"]))
        time = self._event_time(statement, fields)
        keep = statement.keep or ("all" if kind is None or registry.reads_once(kind) else "nothing")
        mark = statement.watermark
        stream = Stream(
            self._new_id(statement.name.last),
            statement.name.last,
            statement.sql,
            fields,
            time,
            mark.rule if mark is not None else None,
            self._idle(statement, kind),
            (mark.ahead if mark is not None else None) or DEFAULT_AHEAD,
            kind,
            options,
            keep,
            statement.fail_on_bad,
            0 if keep == "all" else None,
            self._watermark_key(statement, fields),
            mark is not None and mark.lull is not None,
            statement.on_gap,
            statement.on_schema_change,
            not statement.columns,
        )
        schemas = {stream.rows_table: arrow_schema(stream.row_fields)} if keep == "all" else {}
        tables = {stream.rows_table: TableChange()} if keep == "all" else {}
        self._replace_or_commit(
            statement, Draft("create", tables=tables, catalog={stream.id: to_json(stream)}, schemas=schemas)
        )
        return f"stream {stream.name} created"

    def _declared(self, statement: CreateStream | CreateTable) -> list[Field]:
        fields = []
        _ = self.core.spark  # Spark's parser reads types
        for column in statement.columns:
            try:
                type = struct((Field(column.name, column.type),)).fields[0].dataType.simpleString()
            except Exception as error:
                raise WrongType(
                    f"{column.type} is not a type of Spark SQL",
                    text=statement.text,
                    start=column.span.start,
                    end=column.span.end,
                    hint="an array is ARRAY<INT>" if "[" in column.type else None,
                ) from error
            # Times are stored as UTC timestamps. Texts have any length: Spark has no other type for rows.
            type = re.sub(r"\b(var)?char\(\d+\)", "string", type)
            fields.append(Field(column.name, "timestamp" if type == "timestamp_ntz" else type))
        return fields

    def _event_time(self, statement: CreateStream, fields: tuple[Field, ...]) -> str | None:
        mark = statement.watermark
        if mark is None:
            return None
        time = check_watermark(statement, mark, {field.name: field.type for field in fields})
        if mark.expression is not None:
            wanted = "boolean" if mark.rule.kind == "punctuation" else "timestamp"
            self._check_rule(statement, mark.expression, wanted, fields)
        return time

    def _check_rule(self, statement: CreateStream, given: Expression, wanted: str, fields: tuple[Field, ...]) -> None:
        """Have Spark analyse the rule's expression over a row."""

        def wrong(message: str) -> WrongType:
            return WrongType(message, text=statement.text, start=given.span.start, end=given.span.end)

        try:
            frame = self.core.frames.empty(fields).selectExpr(f"({given.sql(statement.text)})")
            type = frame.schema.fields[0].dataType.simpleString()
        except Exception as error:
            found = translate(error)
            raise wrong(found.message if isinstance(found, AnabranchError) else str(found)) from error
        if type.removesuffix("_ntz") != wanted and not (wanted == "timestamp" and type == "date"):
            raise wrong(f"this is not a {'time' if wanted == 'timestamp' else 'condition'}, but of type {type.upper()}")

    def _idle(self, statement: CreateStream, kind: str | None) -> int | None:
        """How long a silent partition holds progress back. By key, the stream sets it, or it follows from the clock."""
        mark = statement.watermark
        if mark is None or mark.key is None or registry.is_live(kind):
            return (mark.idle if mark is not None else None) or DEFAULT_IDLE
        return mark.idle

    def _watermark_key(self, statement: CreateStream, fields: tuple[Field, ...]) -> str | None:
        mark = statement.watermark
        if mark is None or mark.key is None:
            return None
        return next(field.name for field in fields if field.name.lower() == str(mark.key).lower())

    # ---- tables

    def create_table(self, statement: CreateTable, *, again_is_fine: bool) -> str:
        name = self._free_name(statement, statement.name, "table", again_is_fine)
        if name is None:
            return f"table {statement.name} already exists"
        id = self._new_id(statement.name.last)
        declared = tuple(self._declared(statement))
        query: str | None = None
        options: dict[str, Any] = {}
        frame: DataFrame | None = None
        if statement.source is not None:
            options = dict(statement.source.options)
            if registry.is_table(statement.source.kind):
                return self._create_outside(statement, statement.source, id, declared)
            if not registry.is_files(statement.source.kind):
                raise NotSupported(
                    f"a table cannot come from {statement.source.kind}",
                    text=statement.text,
                    start=statement.source.span.start,
                    end=statement.source.span.end,
                    hint="files(path => '...') can",
                )
            if statement.source.kind != "files":
                options["format"] = statement.source.kind
            if "path" in options:
                options["path"] = absolute(str(options["path"]))
            frame = self._load(statement, options, declared, statement.source.span)
        elif statement.query is not None:
            query = statement.query.span.of(statement.text)
            snapshot = self.core.snapshot()
            bound = Binder(statement.text, self.core.catalog(snapshot), statement.query).bind()
            queries.check_views(self.core, bound, snapshot)
            frame = queries.frame(self.core, bound, snapshot, statement.text)
            for field in fields_of(frame):
                check_type(field, statement.text, statement.query)
        fields = declared or (tuple(_plain(fields_of(frame))) if frame is not None else ())
        kind = "files" if statement.source is not None else None
        return self._fill_table(
            statement,
            Table(id, statement.name.last, statement.sql, fields, kind, options, query, statement.every_run),
            frame,
        )

    def _create_outside(self, statement: CreateTable, source: SourceSpec, id: str, declared: tuple[Field, ...]) -> str:
        """A table in a database: loaded if it is small, looked up by key if it is large."""
        options = dict(source.options)
        if isinstance(options.get("path"), str):
            options["path"] = str(Path(str(options["path"]).removeprefix("file://")).absolute())
        try:
            asking = lookup.Asking.of(options)
            opened = lookup.open_source(source.kind, options, declared or None)
            fields = opened.fields()
            lookup.arrow_schema(fields)
            why = lookup.why_asked(asking, opened.size() if asking.mode == "auto" else None)
            rows = None if why else remote.frame(self.core, opened)
        except registry.WrongOption as error:
            raise _at(statement, source.spans.get(error.option, source.span), error) from error
        except lookup.NoColumn as error:
            column = next(each for each in statement.columns if each.name == error.column)
            raise _at(statement, column.span, error) from error
        except SourceError as error:
            raise _at(statement, source.span, error) from error
        every_run = statement.every_run and not why  # every run looks its keys up anyway
        table = Table(id, statement.name.last, statement.sql, fields, source.kind, options, None, every_run, why)
        if rows is not None:
            return self._fill_table(statement, table, rows)
        self._fill_table(statement, table, None)
        return f"table {table.name} created; it is looked up by key, because {because(why)}"

    def _fill_table(self, statement: CreateTable, table: Table, frame: DataFrame | None) -> str:
        """Commit a new table with the rows of a frame."""
        id, fields = table.id, table.fields
        staged: list[Path] = []
        files: tuple[DataFile, ...] = ()
        if frame is not None:
            cast = frame.selectExpr(
                *(
                    f"CAST({quote_name(c)} AS {f.type}) AS {quote_name(f.name)}"
                    for c, f in zip(frame.columns, fields, strict=True)
                )
            )
            files = write_frame(self.core.ledger, id, cast, small=False, time=None, staged=staged)
        draft = Draft(
            "create",
            tables={id: TableChange(add=files)},
            catalog={id: to_json(table)},
            schemas={id: arrow_schema(fields)},
            staged=tuple(staged),
        )
        self._replace_or_commit(statement, draft)
        rows = sum(file.rows for file in files)
        return f"table {table.name} created" + (f" with {rows:,} rows" if frame is not None else "")

    def _load(
        self,
        statement: Statement | None,
        options: dict[str, Any],
        declared: tuple[Field, ...],
        span: Span | None,
    ) -> DataFrame:
        try:
            check_path(str(options.get("path", "")))
            source = self.core.files(options, declared or None)
            fields = declared or source.fields()
            source = self.core.files({**self._with_header(options, declared)}, fields)
            return read.good_rows_of_files(self.core, source, source.everything(self.core.pause))
        except AnabranchError as error:
            if statement is None or span is None or isinstance(error, SqlError):
                raise
            raise _at(statement, span, error) from error

    def _with_header(self, options: dict[str, Any], declared: tuple[Field, ...]) -> dict[str, Any]:
        """The options with a header where columns were inferred from one: it is not a row."""
        text = format_of(str(options.get("path", "")), options.get("format")) in ("csv", "tsv")
        return {"header": True, **options} if text and not declared else options

    def refresh(self, statement: Refresh) -> str:
        table = self.find(statement, statement.target, Table)
        if table.asked:
            hint = "new rows are joined with its contents when they arrive; earlier matches do not change"
            error = AnabranchError(f"table {table.name} is looked up by key: there is nothing to reload", hint=hint)
            raise _at(statement, statement.target.span, error)
        self.refresh_table(table)
        return f"table {table.name} refreshed; views read it as it is now, for rows from here on"

    def refresh_table(self, table: Table, *, only_changed: bool = False) -> None:
        """Load a table again for its views to read; with `only_changed`, only if its rows have changed."""
        with self._still(table), self.core.ledger.commit_lock:
            snapshot = self.core.snapshot()
            staged: list[Path] = []
            tables: dict[str, TableChange] = {}
            if table.source is not None and registry.is_table(table.source):
                frame = remote.frame(self.core, lookup.open_source(table.source, table.options, table.fields))
            elif table.source is not None:
                frame = self._load(None, dict(table.options), (), None)
            elif table.query is not None:
                again = parse(table.query)[0]
                query: Query = again.query  # type: ignore[attr-defined]
                bound = Binder(table.query, self.core.catalog(snapshot), query).bind()
                queries.check_views(self.core, bound, snapshot)
                frame = queries.frame(self.core, bound, snapshot, table.query)
            else:
                frame = None
            version, own = snapshot.version, snapshot.delta_versions.get(table.id, 0)
            if frame is not None:
                cast = frame.selectExpr(
                    *(
                        f"CAST({quote_name(c)} AS {f.type}) AS {quote_name(f.name)}"
                        for c, f in zip(frame.columns, table.fields, strict=True)
                    )
                )
                known = self.core.table_frame(table.id, table.fields, snapshot)
                if only_changed and cast.exceptAll(known).isEmpty() and known.exceptAll(cast).isEmpty():
                    return
                files = write_frame(self.core.ledger, table.id, cast, small=False, time=None, staged=staged)
                tables[table.id] = TableChange(add=files, remove=tuple(snapshot.files.get(table.id, {})))
                version, own = version + 1, own + 1
            catalog = self.core.catalog(snapshot)
            changed: dict[str, Any] = {}
            schemas: dict[str, Any] = {}
            for each in catalog.objects.values():
                if isinstance(each, Panes | Rows | View) and table.id in each.table_versions:
                    at = {**each.table_versions, table.id: (version, own)}
                    if own != each.table_versions[table.id][1]:
                        if isinstance(each, Panes) and each.above is not None:  # its join read the old table
                            tables[each.id] = TableChange(
                                add=write_own_files(self.core, catalog, each, snapshot, staged)
                            )
                            schemas[each.id] = arrow_schema(pane_fields(each))
                            each = replace(each, above=None, settled=True)
                        each = each.after_refresh()
                    changed[each.id] = to_json(each.with_table_versions(at))
            draft = Draft("refresh", tables=tables, catalog=changed, schemas=schemas, staged=tuple(staged))
            self.core.ledger.commit(self._tidied(draft, catalog))
            self.runner.renew(table.id)

    def _still(self, table: Table) -> contextlib.ExitStack:
        """Block runs whose partials are yet to be joined with a table: all or none are joined with its old version."""
        while True:
            waiting = self._waiting(table)
            held = stream_locks(self.core, waiting)
            if self._waiting(table) <= waiting:
                return held
            held.close()

    def _waiting(self, table: Table) -> set[str]:
        panes = self.core.catalog().of(Panes)
        return {each.stream for each in panes if each.above is not None and table.id in each.table_versions}

    def _tidied(self, draft: Draft, catalog: Catalog) -> Draft:
        """A commit that also drops partials that others derived from until now, if they are no longer needed."""
        bases = {each.above.panes for each in catalog.of(Panes) if each.above is not None}
        if not bases:
            return draft
        after = catalog.after(draft.catalog)
        gone = {id: values for id, values in unneeded(after, list(after.of(View))).items() if id in bases}
        files = self.core.ledger.snapshot().files
        drops = {id: TableChange(drop=True) for id, values in gone.items() if values is None and id in files}
        return replace(draft, catalog={**draft.catalog, **gone}, tables={**draft.tables, **drops})

    # ---- views

    def create_view(self, statement: CreateView, *, again_is_fine: bool) -> str:
        name = self._free_name(statement, statement.name, "view", again_is_fine)
        if name is None:
            return f"view {statement.name} already exists"
        with self.core.frames.cached_analysis():
            view = self.make_view(
                statement.name.last, statement.text, statement.sql, statement.query, statement.start, statement
            )
            snapshot = self.core.snapshot()
            catalog = self.core.catalog(snapshot)
            notes = [
                *waiting(view, catalog),
                *unbounded_joins(view, catalog, self.planning(snapshot, view.beginning.start)),
            ]
        return "\n".join([f"view {statement.name.last} created", *notes])

    def make_view(
        self,
        name: str,
        text: str,
        sql: str,
        query: Query,
        start: str | int,
        statement: Statement | None = None,
        *,
        feed: bool = False,
    ) -> View:
        """Plan a view, fill its state from past rows, and commit both together.

        With `feed`, its changes are kept even if its text does not say so.
        """
        core = self.core
        if feed or query.emits or needs_lookups(text, with_hints(text, query, core.catalog()), query):
            self.keep_below(text, query)
        snapshot = core.snapshot()
        catalog = core.catalog(snapshot)
        if isinstance(statement, CreateView) and statement.or_replace:
            catalog = self._without(catalog, statement.name.last)
        bound = Binder(text, catalog, query).bind()
        refuse_stars(text, query, bound, catalog)
        fields = tuple(queries.analyze(self.core, bound, catalog, text))
        check_names(fields, text, query)
        queries.check_views(core, bound, snapshot)
        if start != "beginning":
            _refuse_start(text, query, bound, start)
        streams = {r.target for r in bound.references.values() if r.kind == "stream"}
        for reference in bound.references.values():  # a rule may merge the views' queries, over their streams
            streams |= catalog.sources_of(catalog.view(reference.target)) if reference.kind == "view" else set()
        with stream_locks(core, streams), core.ledger.commit_lock:
            # Read again under the lock: another thread may have added columns to a pane table that this view shares.
            snapshot = core.snapshot()
            catalog = core.catalog(snapshot)
            if isinstance(statement, CreateView) and statement.or_replace:
                catalog = self._without(catalog, statement.name.last)
            planning = self.planning(snapshot, start)

            def planned_in(planning: PlanningContext) -> Planned:
                return plan(
                    id=self._new_id(name), name=name, text=text, sql=sql, query=query, start=str(start), fields=fields,
                    catalog=catalog, planning=planning, feed=feed,
                )  # fmt: skip

            planned = planned_in(planning)
            _refuse_gone(planned, catalog, planning, text, query)
            try:
                draft = backfill.draft(core, self.runner.stream_part, planned, catalog, snapshot, planning.begins)
            except Exception as error:
                if isinstance(error, WrongType) and error.text is None:
                    error.text, error.start, error.end = text, query.span.start, query.span.start + 6
                if not is_data_error(error):
                    raise
                # Past rows that it cannot compute are set aside: it shares no tables with views that have them.
                planned = _with_own_panes(planned_in(replace(planning, own_panes=True)))
                _refuse_gone(planned, catalog, planning, text, query)
                draft = backfill.draft(
                    core, self.runner.stream_part, planned, catalog, snapshot, planning.begins, sieve=True
                )
            draft = self._tidied(draft, catalog)
            try:
                if statement is not None:
                    self._replace_or_commit(statement, draft)
                else:
                    core.ledger.commit(draft)
            except BaseException:
                core.ledger.give_up({table: change.add for table, change in draft.tables.items()}, draft.staged)
                raise
        made = core.catalog().view(planned.view.id)
        if made.state.lacks:
            core.warn(lacking(name, made.state.lacks))
        return planned.view

    def keep_changes(self, view: View) -> View:
        """Keep the changes of a view from now on; its present answer is its first change."""
        core = self.core
        for below in core.catalog().all_below(view):
            if below.state.stopped:
                raise queries.stopped(below)
        if view.emission.mode != "read":
            return view
        statement = parse(view.sql)[0]
        assert isinstance(statement, CreateView | SelectStatement)
        self.keep_below(statement.text, statement.query)
        with stream_locks(core, core.catalog().sources_of(view)), core.ledger.commit_lock:
            snapshot = core.snapshot()
            catalog = core.catalog(snapshot)
            view = catalog.view(view.id)
            old = self.drop_draft(catalog, view, keep_readers=True)
            begins = all_begins(catalog, view)
            planning = self.planning(snapshot, view.beginning.start, begins)
            planning = replace(_with_read_versions(planning, catalog, view), own=view.id)
            for each in (_from_present_runs(planning, catalog, view), planning):
                planned = plan(
                    id=view.id, name=view.name, text=statement.text, sql=view.sql, query=statement.query,
                    start=view.beginning.start, fields=view.fields, catalog=catalog, planning=each, feed=True,
                )  # fmt: skip
                if not planned.fill_columns and not planned.fill_rows:
                    break  # it continues with its partials, even if their rows are gone
            read = {id for each in (view, *catalog.nodes_of(view)) for id in each.query.streams.values()}
            _refuse_gone(planned, catalog, planning, statement.text, statement.query, frozenset(read))
            _refuse_other_tables(planned, catalog, view)
            state = replace(planned.view.state, lacks=view.state.lacks)
            rows = catalog.objects.get(view.query.rows or "")
            if isinstance(rows, Rows):  # its rows are its first changes
                state = replace(state, refreshed=rows.refreshed)
            planned = replace(planned, view=replace(planned.view, state=state))
            draft = backfill.draft(core, self.runner.stream_part, planned, catalog, snapshot, planning.begins)
            catalog_changes = {
                **{id: each for id, each in old.catalog.items() if id not in draft.catalog},
                **draft.catalog,
            }
            used = {each.id for each in planned.objects}
            tables = {id: change for id, change in old.tables.items() if id not in used and id not in draft.tables}
            draft = replace(draft, catalog=catalog_changes, tables={**tables, **draft.tables})
            core.ledger.commit(self._tidied(draft, catalog))
        return planned.view

    def keep_below(self, text: str, query: Query) -> None:
        """Keep the changes of the views that a view reads, which its own changes need."""
        catalog = self.core.catalog()
        bound = Binder(text, catalog, query).bind()
        for reference in bound.references.values():
            if reference.kind == "view" and reference.version is None:
                self.keep_changes(catalog.view(reference.target))

    def planning_context(self) -> PlanningContext:
        """The context for a plan that is only explained: its ids remain free."""
        given = set(self._given)
        return replace(self.planning(self.core.snapshot(), "beginning"), new_id=lambda name: self._new_id(name, given))

    def planning(
        self, snapshot: Snapshot, start: str | int, known: Mapping[str, tuple[int, int]] | None = None
    ) -> PlanningContext:
        """The planning context; `known` are the beginnings of an existing view."""

        def first_run(stream: Stream) -> int:
            begin = begins(stream)
            return 0 if begin is None else begin[0]

        def gone(stream: Stream) -> str | None:
            state = snapshot.streams.get(stream.id)
            if state is None or not state.rows or begins(stream) is not None:
                return None
            return missing(stream, state.runs, 0)

        def begins(stream: Stream) -> tuple[int, int] | None:
            if known is not None and stream.id in known:
                return known[stream.id]
            if start == "beginning":
                return None
            at = snapshot if start == "now" else self.core.ledger.snapshot(int(start))
            state = at.streams.get(stream.id)
            begin = (state.runs, state.rows) if state is not None else (0, 0)
            _check_start(stream, snapshot, start, begin[0])
            return begin

        return PlanningContext(
            lambda text, schemas: self.core.frames.analyze(text, schemas),
            first_run,
            lambda id: bool(snapshot.files.get(id)),
            lambda id: (snapshot.version, snapshot.delta_versions.get(id, 0)),
            self._new_id,
            lambda id: _load(snapshot, id),
            begins,
            gone,
        )

    # ---- sinks

    def create_sink(self, statement: CreateSink, *, again_is_fine: bool) -> str:
        """Define a sink, in one commit, and write the present answer."""
        core = self.core
        name = self._free_name(statement, statement.name, "sink", again_is_fine)
        if name is None:
            return f"sink {statement.name} already exists"
        options = check_sink(statement)
        if "path" in options:
            options["path"] = os.path.abspath(options["path"].removeprefix("file://"))
        view = self.find(statement, statement.view, View)
        # Folders contain the id, so it is not reused for a new sink of the same name.
        id = self._new_id(f"{name[:31]}_{uuid.uuid4().hex[:8]}")
        sink = Sink(id, name, statement.sql, view.id, statement.into.kind, options)
        try:
            self._check_columns(view)
            if "path" in options:
                self._check_place(Path(options["path"]))
            target_of(sink, core.ledger).check(view.fields)
        except (SinkError, SourceError) as error:
            raise _at(statement, statement.into.span, error) from error
        self.keep_changes(view)
        with core.ledger.commit_lock:
            core.ledger.commit(Draft("create", catalog={sink.id: to_json(sink)}))
        core.sinks.move()
        return f"sink {name} created"

    def _check_columns(self, view: View) -> None:
        taken = [field.name for field in view.fields if field.name.lower() in CHANGE_COLUMNS]
        if taken:
            raise SinkError(
                f"view {view.name} has a column {taken[0]}, which is the name of a column that the sink adds",
                hint="give it another name with AS",
            )

    def _check_place(self, path: Path) -> None:
        """Refuse a folder that overlaps the home or another sink."""
        core = self.core
        taken = {core.ledger.home: f"the home {core.ledger.home}"}
        for other in core.catalog().of(Sink):
            if "path" in other.options:
                taken[Path(str(other.options["path"]))] = f"the folder of sink {other.name}"
        for folder, what in taken.items():
            inside = path.resolve().is_relative_to(folder.resolve())
            if inside or folder.resolve().is_relative_to(path.resolve()):
                raise SinkError(
                    f"{path} {'is in' if inside else 'holds'} {what}", hint="give the sink a folder of its own"
                )

    # ---- DROP

    def drop(self, statement: Drop) -> str:
        snapshot = self.core.snapshot()
        catalog = self.core.catalog(snapshot)
        found = catalog.find_any(statement.name.last)
        if found is None or found.kind != statement.kind:
            if statement.if_exists:
                return f"there is no {statement.kind} {statement.name}"
            raise self.no_such(statement, statement.name, statement.kind, found)
        readers = catalog.readers_of(found.id)
        if readers and not statement.cascade:
            names = ", ".join(reader.name for reader in readers)
            raise SqlError(
                f"{found.name} is read by {names}",
                text=statement.text,
                start=statement.name.span.start,
                end=statement.name.span.end,
                hint="drop them first, or add CASCADE to drop them too",
            )
        streams = catalog.sources_of(found) if isinstance(found, View) else {s.id for s in catalog.of(Stream)}
        if isinstance(found, Sink):
            self.core.ledger.commit(self.drop_draft(catalog, found))
            return f"sink {found.name} dropped; what it wrote stays in {kinds.place_of(found.into, found.options)}"
        with stream_locks(self.core, streams), self.core.ledger.commit_lock:
            self.core.ledger.commit(self.drop_draft(self.core.catalog(), found))
        if isinstance(found, Stream):
            self._leave(found)
        self.core.forget_source(found.id)
        return f"{statement.kind} {found.name} dropped"

    def _leave(self, stream: Stream) -> None:
        """Remove what the source of a stream created outside, or warn that it remains."""
        try:
            source = self.core.source(stream)
            if isinstance(source, Leaving):
                source.left()
        except AnabranchError as error:
            self.core.warn(
                f"stream {stream.name} is dropped, but {error.message}{f'; {error.hint}' if error.hint else ''}"
            )

    def drop_draft(self, catalog: Catalog, found: Stream | Table | View | Sink, *, keep_readers: bool = False) -> Draft:
        """Drop an object, its readers (unless `keep_readers`), and state that is no longer needed."""
        doomed: dict[str, Any] = {}

        def doom(each: Stream | Table | View | Sink) -> None:
            if each.id not in doomed:
                doomed[each.id] = each
                for reader in () if keep_readers else catalog.readers_of(each.id):
                    doom(reader)
                for node in catalog.nodes_of(each) if isinstance(each, View) else ():
                    doom(node)

        doom(found)
        snapshot = self.core.snapshot()
        left = [view for view in catalog.of(View) if view.id not in doomed]
        changes: dict[str, Any] = {**dict.fromkeys(doomed), **unneeded(catalog, left)}
        tables = {
            id: TableChange(drop=True)
            for id, definition in changes.items()
            if definition is None and isinstance(catalog[id], Panes | Rows)
        }
        for each in doomed.values():
            own = [each.id] if isinstance(each, Table) else []
            own += [each.rows_table] if isinstance(each, Stream) else []
            own += each.own_tables if isinstance(each, View) else []
            for table in own:
                tables[table] = TableChange(drop=True)
        tables = {id: change for id, change in tables.items() if id in snapshot.files}
        return Draft("drop", tables=tables, catalog=changes)

    def _without(self, catalog: Catalog, name: str) -> Catalog:
        """The catalog without an object that is being replaced."""
        found = catalog.find(name)
        if found is None:
            return catalog
        draft = self.drop_draft(catalog, found)
        return catalog.after(draft.catalog)

    def _replace_or_commit(self, statement: Any, draft: Draft) -> Record:
        """Commit a definition; OR REPLACE drops the old one in the same commit."""
        with self.core.ledger.commit_lock:
            snapshot = self.core.snapshot()
            catalog = self.core.catalog(snapshot)
            found = catalog.find(statement.name.last) if statement.or_replace else None
            if found is not None:
                readers = catalog.readers_of(found.id)
                if readers:
                    names = ", ".join(view.name for view in readers)
                    raise SqlError(
                        f"{found.name} cannot be replaced: it is read by {names}",
                        text=statement.text,
                        start=statement.name.span.start,
                        end=statement.name.span.end,
                        hint="drop them first",
                    )
                gone = self.drop_draft(catalog, found)
                draft = replace(
                    draft,
                    tables={**gone.tables, **draft.tables},
                    catalog={**gone.catalog, **draft.catalog},
                )
            record = self.core.ledger.commit(draft)
            if found is not None:
                self.core.forget_source(found.id)
            return record

    # ---- names

    def _is_same(self, sql: str, statement: Statement) -> bool:
        """Whether a statement equals the one that created an object. Older homes stored NET, windows of windows and the
        syntax of other systems rewritten as queries: these are compared as relations."""
        (made,) = parse(sql)
        if made.normal == statement.normal:
            return True
        if not isinstance(made, CreateView) or not isinstance(statement, CreateView):
            return False
        respelt = any(each.implied or each.window for each, _ in statement.query.selects())
        if made.start != statement.start or not (respelt or statement.query.spelled):
            return False
        emissions = [[replace(each, span=made.span) for each in one.query.emissions()] for one in (made, statement)]
        if emissions[0] != emissions[1]:
            return False
        catalog, analyze = self.core.catalog(), self.planning_context().analyze
        rels = [
            builder(each.text, each.query, catalog, analyze).query(each.query, None, {}) for each in (made, statement)
        ]
        return show(rels[0]) == show(rels[1])

    def _free_name(self, statement: Any, name: Name, kind: str, again_is_fine: bool) -> str | None:
        """The name, if it is free; None if an identical object has it."""
        if len(name.parts) > 1 or name.last.lower() in RESERVED or name.last.startswith("_"):
            raise SqlError(
                f"{name} cannot be the name of a {kind}",
                text=statement.text,
                start=name.span.start,
                end=name.span.end,
                hint="use one plain word without a leading underscore",
            )
        found = self.core.catalog().find_any(name.last)
        same = found is not None and found.kind == kind
        if found is None or (statement.or_replace and same and kind != "sink"):
            return name.last
        if statement.if_not_exists and same:
            return None
        if again_is_fine and self._is_same(found.sql, statement):
            return None
        hint = f"DROP {found.kind.upper()} {found.name} first, or use CREATE OR REPLACE"
        if not same or kind == "sink":  # replacing must not turn a view into a stream whose rows are gone
            hint = f"DROP {found.kind.upper()} {found.name} first, or take another name"
        elif again_is_fine:
            hint = f"its definition differs from the one in the home; CREATE OR REPLACE {kind.upper()} recreates it"
            if (
                isinstance(statement, CreateView)
                and isinstance(found, View)
                and str(statement.start) == found.beginning.start
            ):
                query = statement.query.span.of(statement.text)
                hint = f"its query differs from the one in the home; to change it: ALTER VIEW {found.name} AS {query}"
        raise SqlError(
            f"{found.kind} {found.name} already exists",
            text=statement.text,
            start=name.span.start,
            end=name.span.end,
            hint=hint,
        )

    def find(self, statement: Statement, name: Name, kind: type[Any]) -> Any:
        found = self.core.catalog().find_any(name.last) if len(name.parts) == 1 else None
        if not isinstance(found, kind):
            raise self.no_such(statement, name, kind.kind, found)
        return found

    def no_such(self, statement: Statement, name: Name, kind: str, found: Any) -> SqlError:
        catalog = self.core.catalog()
        known = [*catalog.names(), *(sink.name for sink in catalog.of(Sink))]
        names = [each for each in known if (o := catalog.find_any(each)) is not None and o.kind == kind]
        message = f"there is no {kind} {name}" if found is None else f"{name} is a {found.kind}, not a {kind}"
        hint = did_you_mean(str(name), names)
        if found is not None:
            hint = f"SELECT * FROM {found.name} EMIT CHANGES follows it" if isinstance(statement, Subscribe) else None
            hint = f"DROP {found.kind.upper()} {found.name}" if isinstance(statement, Drop) else hint
        return UnknownName(message, text=statement.text, start=name.span.start, end=name.span.end, hint=hint)

    def _new_id(self, name: str, given: set[str] | None = None) -> str:
        """A readable id that was never used in this home, nor is in `given`."""
        given = self._given if given is None else given
        base = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:40] or "x"
        snapshot = self.core.snapshot()
        taken = {*snapshot.catalog, *snapshot.files, *snapshot.removed, *given}
        number = 1
        id = base
        while id in taken or f"{id}.rows" in taken or f"{id}.changes" in taken or f"{id}.pending" in taken:
            number += 1
            id = f"{base}_{number}"
        given.add(id)
        return id


def _with_own_panes(planned: Planned) -> Planned:
    """A plan whose pane tables no other view can share."""
    objects = tuple(
        replace(each, signature=own_signature(each.signature, planned.view.id)) if isinstance(each, Panes) else each
        for each in planned.objects
    )
    return replace(planned, objects=objects)


def unneeded(catalog: Catalog, left: list[View]) -> dict[str, Any]:
    """State that the remaining views do not need: None for a whole table, or a pane table with fewer columns."""
    changes: dict[str, Any] = {}
    used: dict[str, set[str]] = {}
    presences: dict[str, list[str]] = {}
    for use in (use for view in left for use in view.query.blocks):
        used.setdefault(use.panes, set()).update(use.columns)
        presences.setdefault(use.panes, []).append(use.presence)
    for state in catalog.of(Panes):
        if state.above is not None and state.id in used:  # the columns that its partials derive from are used too
            below = state.above.columns
            used.setdefault(state.above.panes, set()).update(below[name] for name in used[state.id])
            presences.setdefault(state.above.panes, []).extend(below[name] for name in presences[state.id])
    for state in catalog.of(Panes):
        if state.id not in used:
            changes[state.id] = None
            continue
        columns = tuple(column for column in state.columns if column.name in used[state.id])
        # A condition of dropped views may fail for rows that the others can compute.
        kept = replace(state, columns=columns, conditions=state.conditions_of(presences[state.id]))
        if (kept.columns, set(kept.conditions)) != (state.columns, set(state.conditions)):
            changes[state.id] = to_json(kept)
    for rows in catalog.of(Rows):
        if not any(view.query.rows == rows.id for view in left):
            changes[rows.id] = None
    return changes


def _unreserved(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The columns of a source; refuses names that runs reserve, which the user has to exclude."""
    taken = [field.name for field in fields if field.name.startswith("_")]
    if taken:
        raise SourceError(
            f"the source has a column {taken[0]}, and names that start with _ are Anabranch's own",
            hint="name the columns that you want: CREATE STREAM s (a BIGINT, ...) FROM ...",
        )
    return fields


def same_text(one: str, other: str) -> bool:
    """Whether two statements differ only in blanks, comments and the case of words."""
    return parse(one)[0].normal == parse(other)[0].normal


def _plain(fields: list[Field]) -> list[Field]:
    return [Field(f.name, "timestamp" if f.type == "timestamp_ntz" else f.type) for f in fields]


def _at(statement: Statement, span: Span, error: AnabranchError) -> SqlError:
    return SqlError(error.message, text=statement.text, start=span.start, end=span.end, hint=error.hint)


def check_names(fields: tuple[Field, ...], text: str, query: Query) -> None:
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise SqlError(
                f"the view would have two columns {field.name}",
                text=text,
                start=query.span.start,
                end=query.span.start + 6,
                hint="give one of them another name with AS",
            )
        if field.type == "void":
            raise WrongType(
                f"the column {field.name} has no type",
                text=text,
                start=query.span.start,
                end=query.span.start + 6,
                hint="CAST(NULL AS ...) gives it one",
            )
        check_type(field, text, query)
        seen.add(field.name.lower())


def check_type(field: Field, text: str, query: Query) -> None:
    """Refuse a column that neither a table nor an answer can hold."""
    if re.search(r"\b(interval$|interval (year|month)|interval[,>]|time\()", field.type):
        raise WrongType(
            f"the column {field.name} is of type {field.type.upper()}, which cannot be stored",
            text=text,
            start=query.span.start,
            end=query.span.start + 6,
            hint="cast it to a string, CAST(... AS STRING), or to a number",
        )


def stream_locks(core: Core, streams: set[str]) -> contextlib.ExitStack:
    """Block the runs of several streams, always in the same order."""
    stack = contextlib.ExitStack()
    for id in sorted(streams):
        stack.enter_context(core.stream_lock(id))
    return stack


def _from_present_runs(planning: PlanningContext, catalog: Catalog, view: View) -> PlanningContext:
    """The context for a view that continues with its state, from the first runs of that state."""
    known = beginnings(catalog, view)
    return replace(planning, first_run=lambda stream: known.get(stream.id, planning.first_run(stream)))


def _with_read_versions(planning: PlanningContext, catalog: Catalog, view: View) -> PlanningContext:
    """The context for a view that continues with the versions of static tables that it has read."""
    nodes = [view, *catalog.nodes_of(view)]
    states = [
        catalog[id]
        for each in nodes
        for id in (*(use.panes for use in each.query.blocks), *filter(None, [each.query.rows]))
    ]
    versions = {
        id: at
        for each in (*nodes, *states)
        if isinstance(each, Panes | Rows | View)
        for id, at in each.table_versions.items()
    }
    return replace(planning, table_at=lambda id: versions.get(id) or planning.table_at(id))


def _refuse_other_tables(planned: Planned, catalog: Catalog, view: View) -> None:
    """Refuse to refill partials of a view whose rows were joined with a table that has changed since."""
    states = [catalog[use.panes] for each in (view, *catalog.nodes_of(view)) for use in each.query.blocks]
    refreshed = {id for each in states if isinstance(each, Panes) and each.refreshed for id in each.statics.values()}
    filled = [each for each in planned.objects if isinstance(each, Panes) and each.id in planned.fill_columns]
    for table in (catalog[id] for each in filled for id in each.statics.values() if id in refreshed):
        assert isinstance(table, Table)
        raise NotSupported(
            f"the changes of view {view.name} cannot be stored: its rows were joined with table {table.name} as it was"
            " before a REFRESH, and would now be joined with its new rows",
            hint=f"CREATE OR REPLACE VIEW {view.name} AS ... EMIT CHANGES recreates it, over the table as it is now",
        )


def refuse_stars(text: str, query: Query, bound: Bound, catalog: Catalog) -> None:
    """Refuse * in a view over a stream that can get more columns: the view would have to change."""
    targets = [catalog.stream(each.target) for each in bound.references.values() if each.kind == "stream"]
    growing = next((stream.name for stream in targets if stream.on_schema_change == "add"), None)
    for item in (item for select, _ in query.selects() for item in select.items if item.star and growing is not None):
        raise NotSupported(
            f"the view would change when stream {growing} gets columns: it was created with ON SCHEMA CHANGE ADD",
            text=text,
            start=item.tokens[0].start,
            end=item.tokens[-1].end,
            hint="name the columns of the view",
        )


def all_begins(catalog: Catalog, view: View) -> dict[str, tuple[int, int]]:
    """The first run and row of each stream for a view and its nodes."""
    return {id: begin for each in (*catalog.nodes_of(view), view) for id, begin in each.beginning.rows.items()}


def _check_start(stream: Stream, snapshot: Snapshot, start: str | int, run: int) -> None:
    """Refuse to start with past rows that are gone."""
    state = snapshot.streams.get(stream.id)
    kept = stream.kept_since is not None and stream.kept_since <= run
    if state is not None and state.runs > run and not stream.rereadable and not kept:
        raise NotSupported(
            f"START AT VERSION {start} needs the rows that stream {stream.name} has had since, and it keeps them"
            + (" not" if stream.kept_since is None else f" from run {stream.kept_since} on, not from run {run}"),
            hint="create the stream with KEEP ALL, or start with new rows: START AT NOW",
        )


def _refuse_gone(
    planned: Planned,
    catalog: Catalog,
    planning: PlanningContext,
    text: str,
    query: Query,
    known: frozenset[str] = frozenset(),
) -> None:
    """Refuse a view that needs past rows which are gone and in no partials either: its answer would be incomplete.
    `known` are streams whose rows it has read so far."""
    needed: dict[str, str] = {}  # stream -> what needs its rows
    for each in (*planned.objects, planned.view):
        if isinstance(each, View):
            needed |= dict.fromkeys(set(each.query.streams.values()) - known, "each row")
        elif isinstance(each, Rows) and each.id in planned.fill_rows:
            needed[each.stream] = "each row"
    for id, columns in planned.fill_columns.items():
        panes = next(each for each in planned.objects if isinstance(each, Panes) and each.id == id)
        if id not in planned.fill_from:
            partials = ", ".join(panes.column(name).partial for name in columns)
            by = ", ".join(key.expression for key in panes.keys)
            needed.setdefault(panes.stream, partials + (f" by {by}" if by else ""))
    for id, what in needed.items():
        stream = catalog.stream(id)
        reason = planning.gone(stream)
        if reason is not None:
            raise refuse(
                text,
                query.span,
                f"{reason}, and no other view has partials of it that hold {what}",
                "start with the rows that come from now on: CREATE VIEW ... AS ... START AT NOW",
            )


def _refuse_start(text: str, query: Query, bound: Bound, start: str | int) -> None:
    """Refuse a start other than the beginning over a view: its answer has no rows that came before or after."""
    for reference in bound.references.values():
        if reference.kind == "view":
            at = "NOW" if start == "now" else f"VERSION {start}"
            span = reference.relation.span if reference.relation is not None else query.span
            raise refuse(
                text,
                span,
                f"START AT {at} applies to the rows of streams, and this is a view, which is read as a whole",
                "put START AT into the definition of that view, or add a condition on the event time here",
            )


def _load(snapshot: Snapshot, id: str) -> Load | None:
    """The load of the last run on a stream or a pane table."""
    state = snapshot.streams.get(id)
    if state is not None and state.last is not None:
        last = state.last
        return Load(last.rows, last.low, last.high) if last.low is not None and last.high is not None else None
    for file in reversed(list(snapshot.files.get(id, {}).values())):
        if file.low is not None and file.high is not None:
            return Load(file.rows, file.low, file.high)
    return None
