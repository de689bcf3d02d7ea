"""Tables that views read as they are when a row comes: CREATE TABLE, and REFRESH, which loads them again."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.engine import queries, read, remote
from anabranch.engine.create_stream import declared_fields, with_header
from anabranch.engine.drop import replace_or_commit, tidied
from anabranch.engine.frames import arrow_schema, fields_of
from anabranch.engine.joined_partials import write_own_files
from anabranch.engine.names import Names
from anabranch.engine.run import Runner
from anabranch.engine.tables import pane_fields
from anabranch.engine.writing import write_frame
from anabranch.errors import AnabranchError, NotSupported, SourceError, SqlError
from anabranch.ledger import DataFile, Draft, Snapshot, TableChange
from anabranch.plan.bind import Binder
from anabranch.plan.definitions import Table
from anabranch.plan.describe import because
from anabranch.plan.states import Panes, Rows
from anabranch.plan.stored import to_json
from anabranch.plan.view import View
from anabranch.plan.view_checks import check_type
from anabranch.sources import lookup, registry
from anabranch.sources.paths import absolute, check_path
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateTable, Query, Refresh, SelectStatement, SourceSpec
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StaticTables:
    """Makes and loads the static tables of one home."""

    def __init__(self, names: Names, runner: Runner) -> None:
        self.core = names.core
        self.names = names
        self.runner = runner
        runner.refresh = self.refresh_table

    def create(self, statement: CreateTable, *, again_is_fine: bool) -> str:
        name = self.names.free(statement, statement.name, "table", again_is_fine)
        if name is None:
            return f"table {statement.name} already exists"
        id = self.names.new_id(name)
        declared = tuple(declared_fields(self.core, statement))
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
                    at=statement.source.span,
                    hint="files(path => '...') can",
                )
            if statement.source.kind != "files":
                options["format"] = statement.source.kind
            if "path" in options:
                options["path"] = absolute(str(options["path"]))
            try:
                frame = self._load(options, declared)
            except SqlError:
                raise
            except AnabranchError as error:
                raise error.placed(statement.text, statement.source.span) from error
        elif statement.query is not None:
            query = statement.query.span.of(statement.text)
            frame = self._answer(statement.text, statement.query, self.core.snapshot())
            for field in fields_of(frame):
                check_type(field, statement.text, statement.query)
        found = fields_of(frame) if frame is not None else ()
        plain = (Field(f.name, "timestamp" if f.type == "timestamp_ntz" else f.type) for f in found)
        kind = "files" if statement.source is not None else None
        table = Table(id, name, statement.sql, declared or tuple(plain), kind, options, query, statement.every_run)
        return self._fill(statement, table, frame)

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
            raise error.placed(statement.text, source.spans.get(error.option, source.span)) from error
        except lookup.NoColumn as error:
            column = next(each for each in statement.columns if each.name == error.column)
            raise error.placed(statement.text, column.span) from error
        except SourceError as error:
            raise error.placed(statement.text, source.span) from error
        every_run = statement.every_run and not why  # every run looks its keys up anyway
        table = Table(id, statement.name.last, statement.sql, fields, source.kind, options, None, every_run, why)
        made = self._fill(statement, table, rows)
        return f"{made}; it is looked up by key, because {because(why)}" if why else made

    def _fill(self, statement: CreateTable, table: Table, frame: DataFrame | None) -> str:
        """Commit a new table with the rows of a frame."""
        id, fields = table.id, table.fields
        staged: list[Path] = []
        files: tuple[DataFile, ...] = ()
        if frame is not None:
            files = write_frame(self.core.ledger, id, _cast(frame, fields), small=False, time=None, staged=staged)
        draft = Draft(
            "create",
            tables={id: TableChange(add=files)},
            catalog={id: to_json(table)},
            schemas={id: arrow_schema(fields)},
            staged=tuple(staged),
        )
        replace_or_commit(self.core, statement, draft)
        rows = sum(file.rows for file in files)
        return f"table {table.name} created" + (f" with {rows:,} rows" if frame is not None else "")

    def _load(self, options: dict[str, Any], declared: tuple[Field, ...]) -> DataFrame:
        check_path(str(options.get("path", "")))
        source = self.core.files(options, declared or None)
        fields = declared or source.fields()
        source = self.core.files(with_header(options, declared), fields)
        return read.good_rows_of_files(self.core, source, source.everything(self.core.pause))

    def _answer(self, text: str, query: Query, snapshot: Snapshot) -> DataFrame:
        bound = Binder(text, self.core.catalog(snapshot), query).bind()
        queries.check_views(self.core, bound, snapshot)
        return queries.frame(self.core, bound, snapshot, text)

    def refresh(self, statement: Refresh) -> str:
        table = self.names.find(statement, statement.target, Table)
        if table.asked:
            hint = "new rows are joined with its contents when they arrive; earlier matches do not change"
            error = AnabranchError(f"table {table.name} is looked up by key: there is nothing to reload", hint=hint)
            raise error.placed(statement.text, statement.target.span)
        self.refresh_table(table)
        return f"table {table.name} refreshed; views read it as it is now, for rows from here on"

    def refresh_table(self, table: Table, *, only_changed: bool = False) -> None:
        """Load a table again for its views to read; with `only_changed`, only if its rows have changed."""
        with self._still(table), self.core.ledger.commit_lock:
            snapshot = self.core.snapshot()
            staged: list[Path] = []
            tables: dict[str, TableChange] = {}
            frame = self._again(table, snapshot)
            version, own = snapshot.version, snapshot.delta_versions.get(table.id, 0)
            if frame is not None:
                cast = _cast(frame, table.fields)
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
                            own_files = write_own_files(self.core, catalog, each, snapshot, staged)
                            tables[each.id] = TableChange(add=own_files)
                            schemas[each.id] = arrow_schema(pane_fields(each))
                            each = replace(each, above=None, settled=True)
                        each = each.after_refresh()
                    changed[each.id] = to_json(each.with_table_versions(at))
            draft = Draft("refresh", tables=tables, catalog=changed, schemas=schemas, staged=tuple(staged))
            self.core.ledger.commit(tidied(self.core, draft, catalog))
            self.runner.renew(table.id)

    def _again(self, table: Table, snapshot: Snapshot) -> DataFrame | None:
        """The rows of a table where they come from, as they are now; None if it has only what was inserted."""
        if table.source is not None and registry.is_table(table.source):
            return remote.frame(self.core, lookup.open_source(table.source, table.options, table.fields))
        if table.source is not None:
            return self._load(dict(table.options), ())
        if table.query is None:
            return None
        statement = parse(table.query)[0]
        assert isinstance(statement, SelectStatement)
        return self._answer(table.query, statement.query, snapshot)

    def _still(self, table: Table) -> contextlib.ExitStack:
        """Block runs whose partials are yet to be joined with a table: all or none are joined with its old version."""
        while True:
            waiting = self._waiting(table)
            held = self.core.stream_locks(waiting)
            if self._waiting(table) <= waiting:
                return held
            held.close()

    def _waiting(self, table: Table) -> set[str]:
        panes = self.core.catalog().of(Panes)
        return {each.stream for each in panes if each.above is not None and table.id in each.table_versions}


def _cast(frame: DataFrame, fields: tuple[Field, ...]) -> DataFrame:
    """A frame with the columns of a table, by their places."""
    pairs = zip(frame.columns, fields, strict=True)
    return frame.selectExpr(*(f"CAST({quote_name(name)} AS {f.type}) AS {quote_name(f.name)}" for name, f in pairs))
