"""Finds the rows for which a view fails, sets them aside for this view, and lists them.

It starts when a job of a run fails because of a value in a row: a division by zero, a string that is no number. Then
one job evaluates each expression over rows on its own. A row for which an expression fails is set aside for the view
of the expression, and for no other. This depends only on the row and the view, not on the order of rows or runs.

Errors that no expression explains are found by bisection. If two halves succeed but not both together, as with a sum
that overflows, no row is at fault: both halves are kept, and the query that adds them up fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.engine.core import Core
from anabranch.engine.frames import arrow_schema, in_text, is_data_error, translate
from anabranch.engine.numbering import number_frame
from anabranch.engine.row_conditions import good_rows
from anabranch.engine.scan import LISTED_BAD_ROWS, Output, Scan, Scanned, marked
from anabranch.engine.stream_part import StreamPart
from anabranch.engine.tables import PANE, pane_fields
from anabranch.engine.writing import write_frame
from anabranch.errors import AnabranchError, DataError, QueryFailed
from anabranch.ledger import DataFile, Draft, TableChange
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import ARRIVAL_TS, ROW_NUM, Stream
from anabranch.plan.panes import STREAM
from anabranch.plan.states import Panes, Rows, own_signature
from anabranch.plan.stored import Object, to_json
from anabranch.plan.view import View
from anabranch.sources.base import ORIGIN, BadRow, Found
from anabranch.sources.parts import path_of
from anabranch.sql.calls import aggregate_calls
from anabranch.sql.lexer import Token, tokenize
from anabranch.sql.parser import parse
from anabranch.sql.syntax import Select, SelectStatement
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The position of a row among the rows to check, from 0.
POSITION = "_place"
#: Conditions whose message is the same for every row.
_SAME_MESSAGE = ("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO", "ARITHMETIC_OVERFLOW")
#: For other conditions: of how many rows of an expression Spark is asked for the message.
_MOST_MESSAGES = 10
#: The number of bisections to find a failing row before a view is stopped.
MOST_HALVES = 64


class Stopped(Exception):
    """A view cannot continue: no single row causes its error, or the row was not found."""

    def __init__(self, error: DataError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True)
class Check:
    """An expression that a view evaluates over rows; `when` is the condition on these rows."""

    expression: str
    when: str | None = None

    @property
    def value(self) -> str:
        return self.expression if self.when is None else f"CASE WHEN {self.when} THEN {self.expression} END"

    @property
    def fails(self) -> str:
        """An expression that never fails: whether this one fails for a row.

        try_add of a date and an interval is the only function that returns NULL for any error in its argument. It is in
        a lambda because Spark evaluates common subexpressions first, outside of try_add.
        """
        length = f"coalesce(length(CAST(({self.value}) AS STRING)), 0) % 2"
        return f"exists(array(0), __each -> try_add(DATE'1970-01-01', make_ym_interval(0, {length})) IS NULL)"


def checks_of(catalog: Catalog, view: View, state: Panes | Rows) -> list[Check]:
    """The expressions that a view and its nodes evaluate over each row for a state table."""
    if isinstance(state, Rows):
        return _checks_of_rows(state)
    found: list[Check] = []
    for presence, names in _uses(catalog, view, state):
        wanted = state.condition_of(presence)
        found += [Check(wanted)] if wanted is not None else []
        found += [Check(key.expression, wanted) for key in state.keys]
        found += [Check(state.time, wanted)] if state.time is not None else []
        for name in names:
            for call in aggregate_calls(tokenize(state.column(name).partial)[:-1]):
                text = state.column(name).partial
                when = _text(text, call.condition) if call.condition else None
                found += [Check(when)] if when is not None else []
                found += [Check(_text(text, argument), when) for argument in (*call.arguments, call.order) if argument]
    plain = {field.name for field in catalog.stream(state.stream).fields}
    return [each for each in dict.fromkeys(found) if each.expression not in plain]


def _uses(catalog: Catalog, view: View, state: Panes) -> Iterator[tuple[str, Sequence[str]]]:
    """The columns of a pane table that a view needs, by block, with the block's presence column."""
    for use in (use for node in (view, *catalog.nodes_of(view)) for use in node.query.blocks):
        panes = catalog.panes(use.panes)
        if panes.id == state.id:
            yield use.presence, use.columns
        elif panes.above is not None and panes.above.panes == state.id:
            below = panes.above.columns
            yield below[use.presence], [below[name] for name in use.columns]


def _text(text: str, tokens: Sequence[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end]


def _select(text: str) -> Select | None:
    try:
        statement = parse(text)[0]
    except AnabranchError:
        return None
    body = statement.query.body if isinstance(statement, SelectStatement) else None
    return body if isinstance(body, Select) and body.from_span is not None else None


def _checks_of_rows(rows: Rows) -> list[Check]:
    select = _select(rows.text)
    if select is None:
        return []
    wanted = select.where.span.of(rows.text) if select.where is not None else None
    found = [Check(wanted)] if wanted is not None else []
    return found + [Check(item.expression.of(rows.text), wanted) for item in select.items if not item.star]


def _from_text(state: Panes | Rows) -> str:
    if isinstance(state, Panes):
        return state.from_text
    select = _select(state.text)
    assert select is not None and select.from_span is not None
    return select.from_span.of(state.text)


class Checking:
    """Finds the rows that views cannot compute, by position."""

    def __init__(self, core: Core, stream_part: StreamPart, stream: Stream, rows: DataFrame, whole: DataFrame) -> None:
        self.core = core
        self.stream_part = stream_part
        self.stream = stream
        self.rows = rows
        self._whole = whole  # including bad rows of the stream
        self._left = MOST_HALVES
        self._firsts: dict[str, int] | None = None
        self._without: dict[frozenset[int], DataFrame] = {}
        self._rows_seen: dict[int, tuple[str | None, int | None, str]] = {}

    # ---- rows for which an expression fails

    def failing(self, catalog: Catalog, views: Sequence[View], states: Sequence[Panes | Rows]) -> dict[str, Found]:
        """By view: the rows for which one of its expressions fails, if there are any."""
        work = []
        for state in states:
            users = {user.id for user in catalog.users_of(state)}
            work.append((state, {view.id: checks_of(catalog, view, state) for view in views if view.id in users}))
        return self._failing(catalog, views, work)

    def failing_in(self, catalog: Catalog, view: View, rows: Rows) -> Found:
        """The same for a view that works row by row."""
        return self._failing(catalog, [view], [(rows, {view.id: _checks_of_rows(rows)})]).get(view.id) or Found()

    def _failing(
        self, catalog: Catalog, views: Sequence[View], work: Sequence[tuple[Panes | Rows, dict[str, list[Check]]]]
    ) -> dict[str, Found]:
        failed: dict[str, dict[int, tuple[Panes | Rows, Check]]] = {}
        for state, checks in work:
            every = list(dict.fromkeys(check for each in checks.values() for check in each))
            for index, fails in self._flagged(catalog, state, every):
                wrong = {check for check, failing in zip(every, fails, strict=True) if failing}
                for id, own in checks.items():
                    first = next((check for check in own if check in wrong), None)
                    if first is not None:
                        failed.setdefault(id, {}).setdefault(index, (state, first))
        found: dict[str, Found] = {}
        found_errors: dict[Check, dict[int, DataError]] = {}
        listed = {id: sorted(indexes)[:LISTED_BAD_ROWS] for id, indexes in failed.items()}
        self._collect_rows({index for indexes in listed.values() for index in indexes})
        for view in views:
            if view.id in failed:
                errors: dict[int, DataError] = {}
                for index in listed[view.id]:
                    state, check = failed[view.id][index]
                    errors[index] = self._error(catalog, state, check, index, found_errors.setdefault(check, {}))
                found[view.id] = Found(set(failed[view.id]))
                self._list(view, errors, found[view.id])
        return found

    def _flagged(self, catalog: Catalog, state: Panes | Rows, checks: list[Check]) -> list[tuple[int, list[bool]]]:
        """The rows for which checks fail, and which of the checks; none if they cannot be evaluated outside of the
        query."""
        if not checks:
            return []
        flags = f"array({', '.join(check.fails for check in checks)})"
        text = f"SELECT * FROM (SELECT {POSITION}, {flags} AS _fails FROM {_from_text(state)})"
        try:
            relations = self._relations(catalog, state, self.rows)
            found = self.core.frames.sql(f"{text} WHERE array_contains(_fails, true)", relations).toArrow()
        except Exception as error:
            if not (is_data_error(error) or isinstance(error, AnabranchError)):
                raise
            return []
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def _error(
        self, catalog: Catalog, state: Panes | Rows, check: Check, index: int, known: dict[int, DataError]
    ) -> DataError:
        """Spark's error for an expression that fails for a row."""
        first = next(iter(known.values()), None)
        if first is not None and first.condition in _SAME_MESSAGE:
            return first
        if index not in known and len(known) < _MOST_MESSAGES:
            known[index] = self._find_error(catalog, state, check, index)
        return known.get(index) or DataError("it cannot be computed", expression=check.expression)

    def _find_error(self, catalog: Catalog, state: Panes | Rows, check: Check, index: int) -> DataError:
        row = self.rows.where(f"{POSITION} = {index}")
        text = f"SELECT CAST(({check.value}) AS STRING) AS x FROM {_from_text(state)}"
        try:
            self.core.frames.sql(text, self._relations(catalog, state, row)).collect()
        except Exception as error:
            translated = translate(error)
            if isinstance(translated, DataError):
                translated.expression = translated.expression or check.expression
                return translated
            raise
        return DataError("it cannot be computed", expression=check.expression)

    def _relations(self, catalog: Catalog, state: Panes | Rows, rows: DataFrame) -> dict[str, DataFrame]:
        more = [name for name in (POSITION, ROW_NUM, ARRIVAL_TS) if name in rows.columns]
        return self.stream_part.relations(state, catalog, rows, more)

    # ---- the other rows

    def without(self, indexes: set[int]) -> DataFrame:
        """The rows without some of them.

        The frame is cached: otherwise Spark would push a query's filters down, and evaluate them for all rows.
        """
        if not indexes:
            return self.rows
        key = frozenset(indexes)
        if key in self._without:
            return self._without[key]
        import pyarrow as pa
        from pyspark.sql import functions as F

        gone = self.core.spark.createDataFrame(pa.table({POSITION: pa.array(sorted(indexes), pa.int64())}))
        self._without[key] = self.rows.join(F.broadcast(gone), POSITION, "left_anti").persist()
        return self._without[key]

    def close(self) -> None:
        """Release the rows."""
        for frame in (*self._without.values(), self.rows, self._whole):
            frame.unpersist()

    def written(
        self, table: str, rows: DataFrame, write: Callable[[DataFrame], tuple[DataFile, ...]], *, halves: bool
    ) -> tuple[tuple[DataFile, ...], dict[int, DataError]]:
        """Write rows to a table, and find rows that fail although no check does."""
        files: list[DataFile] = []
        row_errors: dict[int, DataError] = {}

        def part(ends: tuple[int, int] | None) -> None:
            some = rows if ends is None else rows.where(f"{POSITION} >= {ends[0]} AND {POSITION} < {ends[1]}")
            try:
                files.extend(write(some))
            except Exception as error:
                translated = translate(error)
                if not isinstance(translated, DataError):
                    raise
                low, high = ends or self._ends()
                if high - low <= 1:
                    row_errors[low] = translated
                    return
                if not halves or self._left == 0:
                    raise Stopped(translated) from error
                self._left -= 1
                middle = (low + high) // 2
                part((low, middle))
                part((middle, high))

        try:
            part(None)
        except BaseException:
            self.core.ledger.give_up({table: files})
            raise
        return tuple(files), row_errors

    def _ends(self) -> tuple[int, int]:
        low, high = self.rows.selectExpr(
            f"coalesce(min({POSITION}), 0)", f"coalesce(max({POSITION}) + 1, 0)"
        ).collect()[0]
        return low, high

    # ---- the list of rows

    def add(self, view: View, row_errors: dict[int, DataError], found: Found) -> None:
        """Set aside rows that were found by bisection."""
        found.indexes |= row_errors.keys()
        self._list(view, dict(sorted(row_errors.items())[: LISTED_BAD_ROWS - len(found.rows)]), found)

    def _list(self, view: View, errors: dict[int, DataError], found: Found) -> None:
        self._collect_rows(errors)
        for index, failure in sorted(errors.items()):
            origin, number, raw = self._rows_seen[index]
            error = in_text(failure, view.sql)
            source, offset = self._where(index, origin, number)
            expression = failure.expression or None
            if error.start is not None and error.end is not None and error.text is not None:
                expression = error.text[error.start : error.end]
            found.rows.append(BadRow(source, offset, error.message, raw, None, view.name, expression))
            found.errors.append(error)

    def _collect_rows(self, indexes: Iterable[int]) -> None:
        """Collect rows to be listed: their origin, their number, and their columns as text."""
        wanted = [str(index) for index in indexes if index not in self._rows_seen]
        if not wanted:
            return
        columns = ", ".join(quote_name(each.name) for each in self.stream.fields)
        origin = ORIGIN if ORIGIN in self.rows.columns else "CAST(NULL AS STRING)"
        number = ROW_NUM if ROW_NUM in self.rows.columns else "CAST(NULL AS BIGINT)"
        here = self.rows.where(f"{POSITION} IN ({', '.join(wanted)})")
        for row in here.selectExpr(POSITION, origin, number, f"to_json(struct({columns}))").collect():
            self._rows_seen[row[0]] = tuple(row[1:])

    def _where(self, index: int, origin: str | None, number: int | None) -> tuple[str, int | None]:
        """The origin of a row, and its number there from 1: in a file, in a statement, or in its stream."""
        if origin is None:
            return f"the rows of {self.stream.name}", None if number is None else number + 1
        if not origin:
            return "insert", index + 1
        if self._firsts is None:
            firsts = self._whole.groupBy(ORIGIN).agg({POSITION: "min"}).collect()
            self._firsts = {path_of(file): least for file, least in firsts if file}
        return path_of(origin), index - self._firsts[path_of(origin)] + 1


def with_positions(rows: DataFrame, files: Sequence[str], first: int) -> DataFrame:
    """The rows of a run, including bad ones, with their positions."""
    if ROW_NUM in rows.columns:
        return rows.selectExpr("*", f"{ROW_NUM} - {first} AS {POSITION}")
    return number_frame(rows, files, 0, 0).withColumnRenamed(ROW_NUM, POSITION).drop(ARRIVAL_TS)


def with_cached_positions(rows: DataFrame) -> DataFrame:
    """Past rows with positions, which are stable as long as the frame is cached."""
    return rows.selectExpr("*", f"monotonically_increasing_id() AS {POSITION}")


def row_by_row_query(view: View) -> Rows | None:
    """The query of a view over the rows of a run, if it works row by row on one stream."""
    if (
        view.operator != "stateless"
        or view.emission.mode != "feed"
        or len(view.query.streams) != 1
        or view.emission.counted is not None
    ):
        return None
    if view.query.views or view.query.blocks or view.query.tables or view.query.asks:
        return None
    ((placeholder, stream),) = view.query.streams.items()
    return Rows(view.id, stream, view.query.text.replace(quote_name(placeholder), STREAM), {}, view.fields)


def computable(rows: Rows) -> str:
    """The query, over the placeholder of a stream, for the rows of a run for which a row-by-row query does not fail."""
    fails = " OR ".join(check.fails for check in _checks_of_rows(rows))
    return f"SELECT * FROM {_from_text(rows)} WHERE NOT ({fails or 'false'})"


# ---- views with pane tables of their own


def split_shared_panes(core: Core, stream: Stream, views: Sequence[View]) -> None:
    """Give views copies of the pane tables that they share with views which have more rows."""
    staged: list[Path] = []
    with core.ledger.commit_lock:
        snapshot = core.ledger.snapshot()
        before = catalog = core.catalog(snapshot)
        copies: dict[str, str] = {}  # copy -> original
        for view in views:
            for state in catalog.states_of(stream.id):
                users = [each.id for each in catalog.users_of(state)]
                if isinstance(state, Panes) and view.id in users and len(users) > 1:
                    catalog = _with_copies(catalog, view, state, [id for id in users if id != view.id])
                    copies[_copy_of(state, view)] = state.id
        if not copies:
            return
        tables = {}
        for id, of in copies.items():
            panes = catalog.panes(id)
            frame = core.frames.parquet(snapshot.table_paths(core.ledger, of), pane_fields(panes))
            time = PANE if panes.time is not None else None
            files = write_frame(core.ledger, id, frame, small=False, time=time, staged=staged)
            tables[id] = TableChange(add=files)
        changed: dict[str, Any] = {id: None for id in before.objects if id not in catalog.objects}
        changed |= {id: to_json(each) for id, each in catalog.objects.items() if before.objects.get(id) != each}
        schemas = {id: arrow_schema(pane_fields(catalog.panes(id))) for id in copies}
        draft = Draft("split_shared_panes", tables=tables, catalog=changed, schemas=schemas, staged=tuple(staged))
        core.ledger.commit(draft, intended=False)


def _copy_of(panes: Panes, view: View) -> str:
    return f"{panes.id}_of_{view.id}"


def _with_copies(catalog: Catalog, view: View, panes: Panes, others: Sequence[str]) -> Catalog:
    """The catalog with a copy of a pane table for one view, and copies of the pane tables computed from it."""
    nodes = [catalog.view(view.id), *catalog.nodes_of(view)]
    uppers = [each for each in catalog.of(Panes) if each.above is not None and each.above.panes == panes.id]
    objects: list[Object] = [_for(catalog, panes, others)]
    for each in (panes, *uppers):
        own = own_signature(each.signature, view.id)
        copy = replace(_for(catalog, each, [view.id]), id=_copy_of(each, view), signature=own)
        if copy.above is not None:
            copy = replace(copy, above=replace(copy.above, panes=_copy_of(panes, view)))
            objects.append(_for(catalog, each, others))
        objects.append(copy)
    of = {each.id: _copy_of(each, view) for each in (panes, *uppers)}
    for node in nodes:
        blocks = tuple(replace(use, panes=of.get(use.panes, use.panes)) for use in node.query.blocks)
        objects.append(replace(node, query=replace(node.query, blocks=blocks)))
    unused = {each.id for each in objects if isinstance(each, Panes) and not each.columns}
    after = catalog.with_objects(each for each in objects if each.id not in unused)
    return after.after(dict.fromkeys(unused))


def _for(catalog: Catalog, panes: Panes, views: Sequence[str]) -> Panes:
    """A pane table with only the columns and rows that some of its views need."""
    uses = [use for id in views for use in _uses(catalog, catalog.view(id), panes)]
    names = {name for _, used in uses for name in used}
    columns = tuple(column for column in panes.columns if column.name in names)
    return replace(panes, columns=columns, conditions=panes.conditions_of(presence for presence, _ in uses))


# ---- a run


@dataclass
class Losses:
    """The losses of views in a commit: rows that were set aside, and reasons why views have stopped."""

    rows: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)

    def changes(self, catalog: Catalog) -> list[Object]:
        """The definitions with these losses."""
        found: dict[str, Object] = {}
        for id, count in self.rows.items():
            view = catalog.view(id)
            found[id] = replace(view, state=replace(view.state, lacks=view.state.lacks + count))
            uses = [use.panes for node in (view, *catalog.nodes_of(view)) for use in node.query.blocks]
            for panes in (catalog.panes(each) for use in uses for each in (use, catalog.kept_panes(use))):
                if [user.id for user in catalog.users_of(panes)] == [id]:  # that of another stream may be shared
                    found[panes.id] = replace(panes, signature=own_signature(panes.signature, id))
        for id, reason in self.stopped.items():
            view = found.get(id) or catalog.view(id)  # type: ignore[assignment]
            found[id] = replace(view, state=replace(view.state, stopped=view.state.stopped or reason))
        return list(found.values())


def write_computable(
    core: Core,
    stream_part: StreamPart,
    stream: Stream,
    scan: Scan,
    scanned: Scanned,
    outputs: Callable[[Catalog], list[Output]],
) -> tuple[list[Output], Losses]:
    """Write the outputs of a run that failed because of a row, without the rows for which views fail.

    Return all outputs of the run, and the losses of views.
    """
    # Rows in memory do not know their file.
    rows = marked(scan.incoming.read() if scan.incoming.files else scan.rows)
    whole = with_positions(rows, scan.incoming.files, scan.first).persist()
    good = whole.where(good_rows(stream, rows.columns))
    if ROW_NUM not in good.columns and any(output.numbered for output in scan.outputs):
        good = number_frame(good, scan.incoming.files, scan.first, scan.at)
    checking = Checking(core, stream_part, stream, good, whole)
    try:
        catalog = core.catalog(core.ledger.snapshot())
        failed = [state for state in catalog.states_of(stream.id) if state.id in scanned.failed]
        views = {view.id: view for state in failed for view in catalog.users_of(state) if not view.state.stopped}
        found = checking.failing(catalog, list(views.values()), catalog.states_of(stream.id))
        refuse(stream, found.values())
        split_shared_panes(core, stream, [views[id] for id in found])
        catalog = core.catalog(core.ledger.snapshot())
        made, lost = outputs(catalog), Losses()
        for output in made:
            state = catalog.objects.get(output.table)
            if isinstance(state, Panes | Rows):
                _write_again(checking, catalog, state, output, scanned, found, lost)
        refuse(stream, found.values())
        for id, each in found.items():
            if id not in lost.stopped:
                lost.rows[id] = len(each.indexes)
                scanned.bad += each.rows
        if lost.stopped and stream.fail_on_bad:
            id, reason = next(iter(lost.stopped.items()))
            raise QueryFailed(f"view {catalog.view(id).name}: {reason}", hint=_STRICT)
        return made, lost
    finally:
        checking.close()


def _write_again(
    checking: Checking,
    catalog: Catalog,
    state: Panes | Rows,
    output: Output,
    scanned: Scanned,
    found: dict[str, Found],
    lost: Losses,
) -> None:
    """Write an output again that failed, or that has rows which were set aside; other outputs are correct."""
    users = [view for view in catalog.users_of(state) if not view.state.stopped]
    gone = set().union(*(found[view.id].indexes for view in users if view.id in found))
    if not users or (output.table in scanned.files and not gone):
        return
    core = checking.core
    core.ledger.give_up({output.table: scanned.files.pop(output.table, ())})

    def write(rows: DataFrame) -> tuple[DataFile, ...]:
        frame = output.frame(rows)
        return write_frame(
            core.ledger, output.table, frame, small=output.small, time=output.time, staged=scanned.staged
        )

    try:
        spanned = isinstance(state, Panes) and bool(state.spanned)
        files, row_errors = checking.written(output.table, checking.without(gone), write, halves=not spanned)
        tables = [each for each in catalog.states_of(state.stream) if users[0] in catalog.users_of(each)]
        if row_errors and (
            len(users) > 1 or len(tables) > 1
        ):  # the row also concerns another view, or another table of the view
            core.ledger.give_up({output.table: files})
            raise Stopped(next(iter(row_errors.values())))
    except Stopped as stopped:
        lost.stopped |= {view.id: reason_of(stopped.error) for view in users}
        return
    scanned.files[output.table] = files
    for view in users if row_errors else ():
        checking.add(view, row_errors, found.setdefault(view.id, Found()))


_STRICT = "the stream was created with ON ERROR FAIL; fix the row, or recreate it with ON ERROR SKIP"


def refuse(stream: Stream, found: Iterable[Found]) -> None:
    """Raise the error of the first row found, if the stream stops at bad rows."""
    for each in found if stream.fail_on_bad else ():
        if not each.rows:
            continue
        row, error = each.rows[0], each.errors[0]
        raise DataError(
            f"view {row.view}: {error.message} ({where(row)})",
            expression=error.expression,
            condition=error.condition,
            text=error.text,
            start=error.start,
            end=error.end,
            hint=_STRICT,
        )


def where(row: BadRow) -> str:
    """The origin of a row, as text."""
    return row.source if row.offset is None else f"{row.source}, row {row.offset}"


def reason_of(error: DataError) -> str:
    """The expression that failed, and its error."""
    return f"{error.expression}: {error.message}" if error.expression else error.message


def lacking(name: str, count: int) -> str:
    """The warning about a view that lacks rows."""
    rows = f"{count:,} row{'' if count == 1 else 's'}"
    return f"view {name} lacks {rows} that could not be computed; sys.bad_rows lists them"
