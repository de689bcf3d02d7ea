"""INSERT, COPY, ADVANCE on streams; INSERT, COPY, UPDATE, DELETE on tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.algebra import progress as progress_algebra
from anabranch.engine import insertion, queries, read, temp_views
from anabranch.engine.core import Core
from anabranch.engine.driver_scan import ReadArrow
from anabranch.engine.frames import arrow_schema, in_text, translate
from anabranch.engine.run import Runner
from anabranch.engine.scan import Incoming
from anabranch.engine.set_aside import Check, where
from anabranch.engine.tables import BAD_ROWS
from anabranch.engine.writing import write_frame
from anabranch.errors import (
    AnabranchError,
    DataError,
    NotSupported,
    QueryFailed,
    SqlError,
    UnknownName,
    WrongType,
    did_you_mean,
)
from anabranch.ledger import Draft, Record, TableChange
from anabranch.plan.bind import Binder
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.view import View
from anabranch.sources.base import BadRow
from anabranch.sources.parts import Part
from anabranch.sources.paths import nothing_at
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.definitions import no_column
from anabranch.sql.syntax import Advance, Copy, Delete, Expression, Insert, Name, Opaque, Statement, Update
from anabranch.sql.text import Span, quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: How many set-aside rows a statement reports, and how many values one query checks.
MOST_REPORTED, MOST_ASKED = 5, 500


class DmlExecutor:
    """Changes rows of one home."""

    def __init__(self, core: Core, runner: Runner) -> None:
        self.core = core
        self.runner = runner

    def insert(self, statement: Insert, applied: tuple[str, ...]) -> tuple[str, Record]:
        target = self._target(statement, statement.target)
        snapshot = self.core.snapshot()
        catalog = temp_views.catalog_for(self.core, statement.query, snapshot)
        bound = Binder(statement.text, catalog, statement.query).bind()
        columns = self._columns(statement, target)
        queries.check_views(self.core, bound, snapshot)
        try:
            frame = queries.frame(self.core, bound, snapshot, statement.text)
        except SqlError as error:  # values of one column without a common type
            raise self._misfit(statement, columns) or error from error
        if len(frame.columns) != len(columns):
            raise WrongType(
                f"{len(columns)} columns are filled, but the query gives {len(frame.columns)}",
                text=statement.text,
                at=statement.query.span,
                hint=f"the columns are {', '.join(field.name for field in columns)}",
            )
        fitted = self._fit(statement, frame, columns, target)
        # A query may return other rows when it runs again; values do not.
        try:
            if isinstance(statement.query.body, Opaque):
                return self._take(target, lambda: fitted, statement.sql, applied, arrow_rows=lambda _: fitted.toArrow())
            with _kept(fitted):
                return self._take(target, lambda: fitted, statement.sql, applied)
        except Exception as error:
            translated = translate(error)
            if isinstance(translated, DataError) and translated.hint is None:  # not of a view that stops the stream
                span = statement.query.span
                located = in_text(translated, statement.text)
                located = located if located.text else translated.at(statement.text, span.start, span.end)
                raise self._misfit(statement, columns) or located from error
            raise

    def insert_rows(self, name: str, data: Any) -> tuple[str, Record]:
        """Insert rows from Python into a stream or table, as one run and one commit."""
        target = self._target(None, Name((name,), Span(0, 0)))
        given = insertion.rows_to_insert(self.core, data, target.name, target.fields)
        statement = f"insert({target.name})"
        ready = insertion.as_given(given, target.fields)
        if ready is not None and isinstance(target, Stream):  # Spark hears of the rows only if it is to read them
            return self._take(
                target, lambda: insertion.fitted(given, target.fields), statement, (),
                arrow_rows=lambda _: ready, size=given.bytes,
            )  # fmt: skip
        frame = insertion.fitted(given, target.fields)
        try:
            if given.table is None:
                with _kept(frame):
                    return self._take(target, lambda: frame, statement, ())
            arrow_rows: ReadArrow = lambda _: frame.toArrow()  # noqa: E731
            return self._take(target, lambda: frame, statement, (), arrow_rows=arrow_rows, size=given.bytes)
        except Exception as error:
            failed = translate(error)
            if not isinstance(failed, QueryFailed):
                raise
            raise insertion.misfit(self.core, given, target.fields) or failed from error

    def _take(
        self, target: Stream | Table, read: Callable[[], DataFrame], statement: str, applied: tuple[str, ...], *,
        arrow_rows: ReadArrow | None = None, size: int = 0,
    ) -> tuple[str, Record]:  # fmt: skip
        """Append rows with the columns of the target to it."""
        with self.core.ledger.intent(statement):
            if isinstance(target, Stream):
                incoming = self._incoming(target, read, size)
                if arrow_rows is not None:
                    incoming = replace(incoming, arrow_rows=arrow_rows)
                record = self.runner.run(target.id, incoming, kind="insert", applied=applied)
                rows = record.streams[target.id].rows
            else:
                record, rows = self._append(target, read(), applied)
        done = f"{rows:,} row{'' if rows == 1 else 's'} inserted into {target.name}"
        return "\n".join([done, *self._set_aside(record)]), record

    def copy(self, statement: Copy, applied: tuple[str, ...]) -> tuple[str, Record]:
        target = self._target(statement, statement.target)
        options = {"path": statement.path, **statement.options}
        try:
            source = self.core.files(options, target.fields)
            taken = source.everything(self.core.pause)
            if not taken:
                raise nothing_at(statement.path)
        except SqlError:
            raise
        except AnabranchError as error:
            span = statement.path_span
            raise error.placed(statement.text, span) from error
        with self.core.ledger.intent(statement.sql):
            if isinstance(target, Stream):
                whole = [part for each in taken for part in each]
                size = sum(Part.of(part).size for part in whole)
                frame = source.read(taken)
                incoming = self._incoming(target, lambda: frame, size)
                unclosed = [row for part in whole for row in source.reader.unclosed(Part.of(part))]
                incoming = replace(
                    incoming,
                    typed="_corrupt" not in frame.columns,
                    files=source.files_of(whole),
                    bad=tuple(unclosed),
                    verify=lambda: source.verify(taken),
                    explain=source.explain,
                    arrow_rows=partial(source.arrow_rows, whole),
                    rows_in_files=partial(source.rows_in_files, whole),
                    in_groups=partial(source.in_groups, whole),
                )
                record = self.runner.run(target.id, incoming, kind="copy", applied=applied)
                rows = record.streams[target.id].rows
            else:
                record, rows = self._append(target, read.good_rows_of_files(self.core, source, taken), applied)
        done = f"{rows:,} row{'' if rows == 1 else 's'} copied into {target.name}"
        return "\n".join([done, *self._set_aside(record)]), record

    def _set_aside(self, record: Record) -> list[str]:
        """The message on rows that a stream, or one of its views, has set aside."""
        from pyarrow import parquet

        change = record.tables.get(BAD_ROWS)
        folder = self.core.ledger.table_folder(BAD_ROWS)
        rows = (
            [row for file in change.add for row in parquet.read_table(folder / file.path).to_pylist()] if change else []
        )
        lines = []
        for row in rows[:MOST_REPORTED]:
            bad = BadRow(row["source"], row["offset"], row["reason"], row["raw"])
            reason = f"excluded from view {row['view']}" if row["view"] is not None else "excluded"
            failed = f"{row['expression']}: " if row["expression"] else ""
            lines.append(f"{reason} ({where(bad)}): {failed}{row['reason']}")
        if len(rows) > MOST_REPORTED:
            lines.append(f"and {len(rows) - MOST_REPORTED:,} more, which sys.bad_rows lists")
        return lines

    def _misfit(self, statement: Insert, columns: tuple[Field, ...]) -> DataError | None:
        """The error of the first of VALUES that does not fit its column, with its position; None if all fit."""
        body = statement.query.body
        values = [list(_values(row)) for row in body.rows] if isinstance(body, Opaque) else []
        if not all(len(row) == len(columns) for row in values):
            return None
        items = [
            (value.span, field.name, f"CAST(({value.sql(statement.text)}) AS {field.type})")
            for row in values
            for value, field in zip(row, columns, strict=True)
        ]
        for start in range(0, len(items), MOST_ASKED):
            part = items[start : start + MOST_ASKED]
            flags = ", ".join(Check(text).fails for _, _, text in part)
            fails = self.core.frames.sql(f"SELECT array({flags}) AS fails", {}).collect()[0]["fails"]
            for (span, name, text), wrong in zip(part, fails, strict=True):
                if wrong:
                    error = self._error_of(text)
                    error.message = f"column {name}: {error.message}"
                    return error.at(statement.text, span.start, span.end)
        return None

    def _error_of(self, text: str) -> DataError:
        try:
            self.core.frames.sql(f"SELECT {text} AS x", {}).collect()
        except Exception as error:
            translated = translate(error)
            if isinstance(translated, DataError):
                return translated
        return DataError("it cannot be computed")

    def _incoming(self, stream: Stream, read: Callable[[], DataFrame], size: int) -> Incoming:
        state = self.core.ledger.snapshot().streams.get(stream.id)
        position = state.last.position if state is not None and state.last is not None else None
        return Incoming(read, position, None, size, typed=True)

    def _fit(
        self, statement: Insert, frame: DataFrame, columns: tuple[Field, ...], target: Stream | Table
    ) -> DataFrame:
        """The rows with the target's columns and types; unnamed columns are NULL."""
        given = {field.name: name for field, name in zip(columns, frame.columns, strict=True)}
        renamed = frame.toDF(*(f"c{index}" for index in range(len(columns))))
        position = {field.name: f"c{index}" for index, field in enumerate(columns)}
        items = [
            f"CAST({position[field.name]} AS {field.type}) AS {quote_name(field.name)}"
            if field.name in given
            else f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}"
            for field in target.fields
        ]
        try:
            return renamed.selectExpr(*items)
        except Exception as error:
            found = translate(error)
            message = found.message if isinstance(found, AnabranchError) else str(found)
            raise WrongType(
                message,
                text=statement.text,
                at=statement.query.span,
                hint=f"the columns are {', '.join(f'{f.name} {f.type}' for f in columns)}",
            ) from error

    def _columns(self, statement: Insert, target: Stream | Table) -> tuple[Field, ...]:
        if not statement.columns:
            return target.fields
        by_name = {field.name.lower(): field for field in target.fields}
        for name, span in zip(statement.columns, statement.column_spans, strict=True):
            if name.lower() not in by_name:
                raise no_column(statement, span, target.name, name, [field.name for field in target.fields])
        return tuple(by_name[name.lower()] for name in statement.columns)

    def _append(self, table: Table, frame: DataFrame, applied: tuple[str, ...]) -> tuple[Record, int]:
        staged: list[Path] = []
        files = write_frame(self.core.ledger, table.id, frame, small=False, time=None, staged=staged)
        with self.core.ledger.commit_lock:
            record = self.core.ledger.commit(
                Draft("insert", tables={table.id: TableChange(add=files)}, applied=applied, staged=tuple(staged))
            )
        return record, sum(file.rows for file in files)

    # ---- tables only

    def update(self, statement: Update, applied: tuple[str, ...]) -> tuple[str, Record]:
        table = self._table(statement, statement.target)
        by_name = {field.name.lower(): field for field in table.fields}
        values: dict[str, str] = {}
        for name, expression in statement.assignments:
            if name.last.lower() not in by_name:
                raise no_column(statement, name.span, table.name, str(name), [field.name for field in table.fields])
            values[by_name[name.last.lower()].name] = expression.sql(statement.text)
        condition = statement.where.sql(statement.text) if statement.where is not None else "true"
        items = [
            f"CASE WHEN {condition} THEN CAST({values[f.name]} AS {f.type}) ELSE {quote_name(f.name)} END"
            f" AS {quote_name(f.name)}"
            if f.name in values
            else quote_name(f.name)
            for f in table.fields
        ]
        return self._rewrite(statement, table, statement.alias, ", ".join(items), None, condition, applied, "updated")

    def delete(self, statement: Delete, applied: tuple[str, ...]) -> tuple[str, Record]:
        table = self._table(statement, statement.target)
        condition = statement.where.sql(statement.text) if statement.where is not None else "true"
        items = ", ".join(quote_name(field.name) for field in table.fields)
        keep = f"NOT coalesce({condition}, false)"
        return self._rewrite(statement, table, statement.alias, items, keep, condition, applied, "deleted")

    def _rewrite(
        self, statement: Statement, table: Table, alias: str | None, items: str, keep: str | None, condition: str,
        applied: tuple[str, ...], verb: str,
    ) -> tuple[str, Record]:  # fmt: skip
        """Rewrite a whole table; tables are small, since every run joins them."""
        core = self.core
        with core.ledger.intent(statement.sql), core.ledger.commit_lock:
            snapshot = core.snapshot()
            relations = {"@table": core.table_frame(table.id, table.fields, snapshot)}
            source = f"`@table` AS {quote_name(alias or table.name)}"
            touched = core.frames.sql(f"SELECT count_if({condition}) AS n FROM {source}", relations, source=None)
            frame = core.frames.sql(f"SELECT {items} FROM {source}" + (f" WHERE {keep}" if keep else ""), relations)
            count = touched.collect()[0]["n"]
            staged: list[Path] = []
            files = write_frame(core.ledger, table.id, frame, small=False, time=None, staged=staged)
            change = TableChange(add=files, remove=tuple(snapshot.files.get(table.id, {})))
            record = core.ledger.commit(
                Draft("change", tables={table.id: change}, applied=applied, staged=tuple(staged),
                      schemas={table.id: arrow_schema(table.fields)})
            )  # fmt: skip
        return f"{count:,} row{'' if count == 1 else 's'} {verb} in {table.name}", record

    # ---- streams only

    def advance(self, statement: Advance) -> str:
        target = self._target(statement, statement.target)
        if not isinstance(target, Stream):
            raise self._wrong_kind(statement, statement.target, target, "stream")
        if statement.to is None:
            record = self.runner.move(target.id, lambda _, state: progress_algebra.end(state), "advance")
            return f"stream {target.name} has ended"
        bound = self.moment(statement, statement.to)
        record = self.runner.move(target.id, lambda _, state: progress_algebra.advance_to(state, bound), "advance")
        if record is None:
            return f"the progress of stream {target.name} is later already, and never goes back"
        return f"stream {target.name} advanced"

    def moment(self, statement: Statement, given: Expression) -> int:
        """The value of a time expression, in microseconds."""
        text = given.sql(statement.text)
        found = self.core.frames.sql(f"SELECT unix_micros(CAST(({text}) AS TIMESTAMP)) AS p", {}).collect()[0]["p"]
        if found is None:
            raise WrongType(
                "this is not a time", text=statement.text, at=given.span, hint="as in TIMESTAMP '2026-01-01 00:00:00'"
            )
        return int(found)

    # ---- targets

    def _target(self, statement: Statement | None, name: Name) -> Stream | Table:
        catalog = self.core.catalog()
        found = catalog.find(name.last) if len(name.parts) == 1 else None
        if found is None:
            raise UnknownName(
                f"there is no stream or table {name}",
                **_span_of(statement, name),
                hint=did_you_mean(str(name), catalog.names()),
            )
        if isinstance(found, View):
            raise self._wrong_kind(statement, name, found, "stream or table")
        if isinstance(found, Table) and found.asked:
            raise NotSupported(
                f"{found.name} is a table in {found.source}(...), and can only be queried here",
                **_span_of(statement, name),
                hint="change it in its database",
            )
        if isinstance(found, Stream) and found.source is not None and not isinstance(statement, Advance):
            raise NotSupported(
                f"the rows of {found.name} come from {found.source}(...)",
                **_span_of(statement, name),
                hint="a stream without FROM takes INSERT and COPY",
            )
        return found

    def _table(self, statement: Statement, name: Name) -> Table:
        found = self._target(statement, name)
        if not isinstance(found, Table):
            raise NotSupported(
                f"{found.name} is a stream, which is append-only",
                text=statement.text,
                at=name.span,
                hint="tables can be updated; a stream takes more rows",
            )
        return found

    def _wrong_kind(self, statement: Statement | None, name: Name, found: Any, wanted: str) -> SqlError:
        hint = None
        if isinstance(found, View):
            catalog = self.core.catalog()
            streams = ", ".join(sorted(catalog.stream(id).name for id in catalog.sources_of(found)))
            hint = f"insert into what it reads: {streams}" if streams else None
        return SqlError(f"{found.name} is a {found.kind}, not a {wanted}", **_span_of(statement, name), hint=hint)


def _span_of(statement: Statement | None, name: Name) -> dict[str, Any]:
    """The position of a name, for an error; empty if it is not from SQL."""
    return {} if statement is None else {"text": statement.text, "start": name.span.start, "end": name.span.end}


@contextmanager
def _kept(frame: DataFrame) -> Iterator[None]:
    """Caches a frame that might return other rows when it is computed again."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


def _values(row: Expression) -> Iterator[Expression]:
    """The values of a row of VALUES."""
    tokens = row.tokens
    if tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    parts = (part for part in split_commas(tokens) if part)
    return (Expression(Span(part[0].start, part[-1].end), tuple(part)) for part in parts)
