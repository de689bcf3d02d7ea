"""Changes of a node by DuckDB on the driver: for small runs, and queries that DuckDB computes like Spark.

The same difference as Spark computes, f(state | touched keys) - shown, in one statement of milliseconds. Spark computes
what DuckDB cannot, or computes differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.algebra.reach import Range
from anabranch.duck import LEFT_TO_SPARK, WHOLE, Variable, counting_all, quoted, timestamp
from anabranch.engine.driver import copy_to_table
from anabranch.engine.maintain import bands, deltas, keyed, sessions
from anabranch.engine.maintain.late_drop import input_fields, without_dropped_sql
from anabranch.engine.pane_sql import pane_source, window_rows
from anabranch.engine.place import Verdict
from anabranch.engine.table_cache import CachedRange, file_rows
from anabranch.engine.tables import net_sql
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import ROW_NUM, Stream, Table
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.states import BlockUse
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View
from anabranch.render.duckdb import driver_sql, why_declined
from anabranch.types import INTEGERS, Field

if TYPE_CHECKING:
    from anabranch.engine.maintain.commit import Commit

#: DuckDB's table of the changes of a node, before they are in a file.
CHANGES = "__changes"

Within = Mapping[str, Range]


class DriverChanges:
    """Which nodes of one catalog DuckDB can compute; decided once a node."""

    def __init__(self) -> None:
        self._fits: dict[str, tuple[View, bool]] = {}

    def fits(self, commit: Commit, view: View) -> bool:
        return self.known(view, lambda: Query(commit, view).fits())

    def known(self, view: View, decide: Callable[[], bool]) -> bool:
        """Whether DuckDB can compute a node; calls `decide` if that is not known yet."""
        known = self._fits.get(view.id)
        if known is None or known[0] != view:
            known = (view, decide())
            self._fits[view.id] = known
        return known[1]

    def leave(self, view: View) -> None:
        """Leave a node to Spark from now on."""
        self._fits[view.id] = (view, False)


def changes(commit: Commit, view: View) -> tuple[DataFile, ...] | None:
    """The changes of a node for a commit; None if Spark has to compute them."""
    import duckdb

    query, rows = Query(commit, view), commit.new_rows(view)
    verdict = commit.core.place.takes_changes(rows, query.state_rows())
    if verdict and not commit.core.driver_changes.fits(commit, view):
        verdict = Verdict(False, query.declined())
    commit.backends[view.id] = str(verdict)
    if not verdict:
        return None
    try:
        table_cache = commit.core.table_cache
        table_cache.settle(commit.after)
        text = query.text()
        if text is None:
            return ()
        if view.row_by_row or view.join.steps or rows > commit.core.place.limits.held_rows:
            return copy_to_table(commit.core, table_cache.duck, text, view.changes_table, view.time or None)
        return kept(commit, view, text)
    except (NotApplicable, duckdb.Error) as error:
        if LEFT_TO_SPARK in str(error):
            commit.core.driver_changes.leave(view)
        reason = (str(error).splitlines() or ["an input of it is not available on the driver"])[0]
        commit.backends[view.id] = str(Verdict(False, reason))
        return None  # an overflow, say: Spark reports it


def kept(commit: Commit, view: View, text: str) -> tuple[DataFile, ...]:
    """Write changes, and cache them for the next run to compare with."""
    table_cache = commit.core.table_cache
    try:
        with counting_all(text):
            table_cache.duck.execute(f"CREATE OR REPLACE TEMP TABLE {CHANGES} AS {text}")
        rows = f"SELECT * FROM {CHANGES}"
        files = copy_to_table(commit.core, table_cache.duck, rows, view.changes_table, view.time or None)
        if files:
            stored = _stored(view)
            rows = f"(SELECT {_columns(stored)} FROM {CHANGES})"
            table_cache.add(view.changes_table, commit.before, stored, files, rows)
        return files
    finally:
        table_cache.duck.execute(f"DROP TABLE IF EXISTS {CHANGES}")


@dataclass(frozen=True)
class Touched:
    """Statistics of a column of the touched keys: the number of NULLs, the minimum and the maximum."""

    type: str
    nulls: int
    low: int | None
    high: int | None

    def within(self, column: str, least: int = 0, most: int = 0) -> list[str]:
        """Conditions that skip most of a table, where keys come in about the order of their values.

        The column minus the key is between `least` and `most`.
        """
        if self.nulls or self.low is None or self.high is None:
            return []
        low, high = str(self.low + least), str(self.high + most)
        if self.type == "timestamp":
            low, high = timestamp(low), timestamp(high)
        return [f"{column} BETWEEN {low} AND {high}"]


def since_start(view: View, stream: Stream, placeholder: str, rows: str) -> str:
    """The rows of a stream from the first one of a view on."""
    if stream.id not in view.beginning.rows:
        return rows
    columns, first = _columns(stream.seen_as(placeholder)), view.beginning.rows[stream.id][1]
    return f"(SELECT {columns} FROM {rows} WHERE coalesce({ROW_NUM}, 0) >= {first})"


class Query:
    """The statement of one node for one commit."""

    def __init__(self, commit: Commit, view: View) -> None:
        self.commit = commit
        self.catalog: Catalog = commit.catalog
        self.table_cache = commit.core.table_cache
        self.view = view
        self.touched: tuple[Touched, ...] = ()
        #: Where only some sessions of the keys are touched: their range of times.
        self.within: Range | None = None

    # ---- whether it is possible

    def fits(self) -> bool:
        """Whether DuckDB has the types and returns the same columns for the query."""
        import duckdb

        view = self.view
        if view.emission.mode == "triggers" or view.emission.counted or not view.operator or view.query.asks:
            return False
        fields = self.all_fields(view)
        if any(duckdb_type(field.type) is None for field in fields):
            return False
        empty, *touches = (
            driver_sql(text, lambda placeholder: self.empty(view, placeholder), self.fields_read(view))
            for text in (view.query.text, *(touch.text for touch in view.keying.touches))
        )
        if empty is None or any(touch is None for touch in touches):
            return False
        try:
            duck = self.table_cache.duck
            made = duck.sql(empty)
            kinds = [str(kind) for kind in made.types]
            for touch in touches:
                duck.sql(touch or "")
        except duckdb.Error:
            return False
        wanted = [duckdb_type(field.type) or "" for field in (*view.fields, *view.hidden)]
        return len(kinds) == len(wanted) and all(map(alike, kinds, wanted))

    def declined(self) -> str:
        """Why DuckDB cannot compute the node."""
        view = self.view
        unknown = [field for field in self.all_fields(view) if duckdb_type(field.type) is None]
        if unknown:
            return f"the driver has no type {unknown[0].type}" if unknown[0].type != "?" else "partials of Spark's own"
        read = self.fields_read(view)
        texts = (why_declined(text, read) for text in (view.query.text, *(touch.text for touch in view.keying.touches)))
        return next((text for text in texts if text), "the driver does not compute it as Spark does")

    def all_fields(self, view: View) -> list[Field]:
        return [*view.fields, *view.hidden, *self.fields_read(view)]

    def fields_read(self, view: View) -> list[Field]:
        """The columns of all relations that a node reads."""
        fields: list[Field] = []
        for id in view.query.streams.values():
            fields += self.catalog.stream(id).row_fields
        for id in view.query.views.values():
            fields += self.catalog.view(id).fields
        for id in view.query.tables.values():
            table = self.catalog[id]
            assert isinstance(table, Table)
            fields += table.fields
        for use in view.query.blocks:
            panes = self.catalog.panes(use.panes)
            if use.bins is not None or not all(panes.column(name).duckdb for name in use.columns):
                return [Field("?", "?")]
            fields += use.fields(panes)
        return fields

    # ---- relations

    def fields_of(self, view: View, placeholder: str) -> tuple[Field, ...] | None:
        if placeholder in view.query.streams:
            return self.catalog.stream(view.query.streams[placeholder]).fields
        if placeholder in view.query.views:
            return self.catalog.view(view.query.views[placeholder]).fields
        if placeholder in view.query.tables:
            table = self.catalog[view.query.tables[placeholder]]
            return table.fields if isinstance(table, Table) else None
        for use in view.query.blocks:
            if use.placeholder == placeholder:
                return use.fields(self.catalog.panes(use.panes))
        return None

    def empty(self, view: View, placeholder: str) -> str | None:
        fields = self.fields_of(view, placeholder)
        return None if fields is None else file_rows([], fields)

    def paths(self, table: str, snapshot: Snapshot) -> list[str] | Variable:
        """The files of a table."""
        return snapshot.table_paths(self.commit.core.ledger, table)

    def _panes(self, use: BlockUse, paths: list[str] | Variable) -> str | None:
        panes = self.catalog.panes(use.panes)
        return window_rows(panes, use, pane_source(panes, use.columns, paths)) if paths else None

    def relation(
        self,
        view: View,
        placeholder: str,
        snapshot: Snapshot,
        within: Range | None = None,
        kept_by: tuple[View, str] | None = None,
    ) -> str | None:
        """The relation of a placeholder at a snapshot; if it has event times, its rows within bounds.

        `kept_by` is the join that keeps the rows, and its input, where they reach it through another query.
        """
        rows = self._all_rows(view, placeholder, snapshot, within, kept_by)
        if rows is None or placeholder not in view.drops_late_of:
            return rows
        table = view.dropped_table(placeholder)
        if not snapshot.files.get(table):
            return rows
        fields = input_fields(self.catalog, view, placeholder)
        return without_dropped_sql(
            rows, self.table_cache.relation(table, snapshot, fields), [field.name for field in fields]
        )

    def _all_rows(
        self, view: View, placeholder: str, snapshot: Snapshot, within: Range | None, kept_by: tuple[View, str] | None
    ) -> str | None:
        ledger = self.commit.core.ledger
        if placeholder in view.query.streams:
            stream = self.catalog.stream(view.query.streams[placeholder])
            fields = stream.row_fields if stream.id in view.beginning.rows else stream.seen_as(placeholder)
            if within is None or stream.time is None:
                found = self.table_cache.relation(stream.rows_table, snapshot, fields)
            else:
                keeper, input = kept_by or (view, placeholder)
                share = CachedRange(keeper.id, input, stream.time, bands.needed(self.commit, keeper).get(input))
                found = self.table_cache.within(share, stream.rows_table, snapshot, fields, within)
            return since_start(view, stream, placeholder, found)
        for use in view.query.blocks:
            if use.placeholder == placeholder:
                return self._panes(use, self.paths(use.panes, snapshot)) or self.empty(view, placeholder)
        if placeholder in view.query.tables:
            id = view.query.tables[placeholder]
            table = self.catalog[id]
            assert isinstance(table, Table)
            at = ledger.snapshot(view.beginning.table_versions[id][0])
            return file_rows(at.table_paths(ledger, id), table.fields)
        if placeholder not in view.query.views:
            return None
        below = self.catalog.view(view.query.views[placeholder])
        if not below.kept:
            passed = within if placeholder in {**view.join.streams, **view.join.views} else None
            by = kept_by or (view, placeholder)
            read = self.fields_read(below)
            inner = driver_sql(below.query.text, lambda each: self.relation(below, each, snapshot, passed, by), read)
            return None if inner is None else f"(SELECT {_columns(below.fields)} FROM ({inner}))"
        if below.emission.mode == "read" or below.emission.as_changes:
            return None
        if not snapshot.files.get(below.changes_table):
            return file_rows([], below.fields)
        columns, stored = _columns(below.fields), (*below.fields, Field("_diff", "bigint"))
        keeper, input = kept_by or (view, placeholder)
        if within is None or placeholder not in view.join.views or not below.time or not keeper.lets_go(input):
            changed = self.table_cache.relation(below.changes_table, snapshot, stored)
        else:  # a retraction has the time of its row, so any range of times adds up by itself
            share = CachedRange(keeper.id, input, below.time, bands.needed(self.commit, keeper).get(input))
            changed = self.table_cache.within(share, below.changes_table, snapshot, stored, within)
        net = f"SELECT {columns}, sum(_diff) AS _n FROM {changed} GROUP BY {columns} HAVING sum(_diff) > 0"
        return f"(SELECT {columns} FROM (SELECT *, unnest(range(CAST(_n AS BIGINT))) FROM ({net})))"

    # ---- new rows

    def delta(self, view: View, placeholder: str, sign: int) -> str | None:
        """New rows of a placeholder: inserted (sign 1), retracted (-1) or both (0); None for none."""
        if placeholder in view.query.streams:
            stream = self.catalog.stream(view.query.streams[placeholder])
            paths = self.commit.paths(stream.rows_table)
            if not paths or sign < 0:
                return None
            fields = stream.row_fields if stream.id in view.beginning.rows else stream.seen_as(placeholder)
            return since_start(view, stream, placeholder, file_rows(paths, fields))
        for use in view.query.blocks:
            if use.placeholder == placeholder:
                return self._panes(use, self.commit.paths(use.panes)) if sign >= 0 else None
        below = self.catalog.view(view.query.views[placeholder])
        if not below.kept:
            return self._through(below, sign)
        paths = self.commit.paths(below.changes_table)
        if not paths:
            return None
        columns = _columns(below.fields)
        changed = file_rows(paths, (*below.fields, Field("_diff", "bigint")))
        where = {1: " WHERE _diff > 0", -1: " WHERE _diff < 0", 0: ""}[sign]
        return f"(SELECT {columns} FROM (SELECT *, unnest(range(abs(_diff))) FROM {changed}{where}))"

    def _through(self, view: View, sign: int) -> str | None:
        """The node's SQL over the new rows of each input in turn, with all rows of the others; None for none."""
        parts = []
        for index, placeholder in enumerate(view.inputs):
            new = self.delta(view, placeholder, sign)
            if new is None:
                continue
            within = bands.partner_ranges(self.commit, view, placeholder)

            def relation(each: str, index: int = index, new: str = new, within: Within = within) -> str | None:
                if each in view.query.tables:
                    return self.relation(view, each, self.commit.before)
                place = view.inputs.index(each)
                if place == index:
                    return new
                at = self.commit.after if place < index else self.commit.before
                return self.relation(view, each, at, within.get(each))

            part = driver_sql(view.query.text, relation, self.fields_read(view))
            if part is None:
                raise NotApplicable("an input of it is not available in DuckDB")
            parts.append(part)
        if not parts:
            return None
        renamed = _columns(view.fields)
        return f"({' UNION ALL '.join(f'SELECT {renamed} FROM ({part}) AS __f({renamed})' for part in parts)})"

    def state_rows(self) -> int:
        tables = [self.view.changes_table]
        tables += [] if keyed.continues_from_shown(self.commit, self.view) else self.catalog.tables_read(self.view)
        return sum(file.rows for table in tables for file in self.commit.after.files.get(table, {}).values())

    # ---- the statement

    def text(self) -> str | None:
        """The changes of this commit as a query; None if there are none."""
        view = self.view
        if view.row_by_row:
            parts = []
            for sign in (1, -1):
                rows = self._through(view, sign)
                if rows is not None:
                    parts.append(f"SELECT {_columns(view.fields)}, CAST({sign} AS BIGINT) AS _diff FROM {rows}")
            if not parts:
                return None
            both = " UNION ALL ".join(parts)
            if deltas.may_cancel_out(self.commit, view):
                both = net_sql(_columns(view.fields), f"({both})")
            return self.stamped(both, view.fields)
        touched = self.touch_sessions()
        if touched is None and view.operator == "keyed":
            touched = self.touch()
        if touched is False:
            return None
        within = bands.band_ranges(self.commit, view)
        if self.within is not None and view.progress.ends is not None:
            within = {view.progress.ends.input: self.within}

        def answer(at: Snapshot) -> str | None:
            read = self.fields_read(view)
            return driver_sql(view.query.text, lambda each: self.narrowed(each, at, within.get(each)), read)

        before = answer(self.commit.before) if view.join.steps and within else None
        return self.difference(answer(self.commit.after), before)

    def difference(self, fresh: str | None, before: str | None = None) -> str:
        """The difference for touched keys between what is to be shown and what was: `before`, or from the ledger."""
        view, fields = self.view, (*self.view.fields, *self.view.hidden)
        columns = _columns(fields)
        given = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in fields)
        ctes = f"WITH __fresh AS (SELECT {given} FROM ({fresh}) AS __f({columns})) "
        if before is not None:
            shown = f"(SELECT {given}, 1 AS _diff FROM ({before}) AS __f({columns}))"
        else:
            shown = self.table_cache.relation(view.changes_table, self.commit.before, _stored(view))
        keyed = ""
        if view.operator == "keyed" or self.within is not None:
            during = self._during() if self.within is not None else None
            keyed = f" WHERE {self.is_touched([key.name for key in view.keying.columns], during)}"
        both = (
            f"SELECT {columns}, 1 AS _diff FROM __fresh r{keyed}"
            f" UNION ALL SELECT {columns}, -_diff FROM {shown} r{keyed}"
        )
        return self.stamped(net_sql(columns, f"({both})"), fields, ctes)

    def touch(self) -> bool:
        """Write the keys that new rows touch to a table; returns whether there are any."""
        keys = self.view.keying.columns
        parts = []
        # A number that is too large for the type of the key equals no key, as in keyed.keyed_columns.
        names = ", ".join(f"TRY_CAST(k{i} AS {duckdb_type(key.type)}) AS k{i}" for i, key in enumerate(keys))
        for touch in self.view.keying.touches:
            new = self.delta(self.view, touch.input, 0)
            if new is not None:
                parts.append(f"SELECT {names} FROM ({self._touching(touch.text, touch.input, new)})")
        return bool(parts) and self.touch_keys(f"SELECT DISTINCT * FROM ({' UNION ALL '.join(parts)})")

    def touch_sessions(self) -> bool | None:
        """The same, with the range of times of the sessions of each key that new rows touch; None where whole keys have
        to be computed."""
        view, ends = self.view, self.view.progress.ends
        stream = sessions.stream_of(self.commit, view) if ends is not None and ends.gap else None
        if ends is None or stream is None or not ends.shows_session:
            return None
        new = self.delta(view, ends.input, 0)
        if new is None:
            return False
        pairs = enumerate(zip(sessions.columns_of(view, ends), view.keying.columns, strict=True))
        keys = [f"CAST({quoted(name)} AS {duckdb_type(key.type)}) AS k{index}" for index, (name, key) in pairs]
        time = f"epoch_us({quoted(ends.time)})"
        items = ", ".join([*keys, f"1 AS {sessions.ALL}", f"min({time}) AS low", f"max({time}) AS high"])
        most = self.commit.core.place.limits.session_keys
        text = f"SELECT {items} FROM {new} WHERE {time} IS NOT NULL GROUP BY ALL LIMIT {most + 1}"
        seeds = self.table_cache.duck.sql(text).to_arrow_table()
        if not 0 < seeds.num_rows <= most:
            return False if not seeds.num_rows else None
        found = sessions.follow_chains(self.commit, view, ends, stream, seeds)
        if found is None:
            return None
        self.within = sessions.range_of(found)
        self.table_cache.duck.register("__spans", found)
        try:
            return self.touch_keys("SELECT * FROM __spans")
        finally:
            self.table_cache.duck.unregister("__spans")

    def _during(self) -> str:
        """The time of the first or the last row of the session of a row of the answer."""
        ends = self.view.progress.ends
        assert ends is not None
        if ends.starts:
            return f"epoch_us(r.{quoted(ends.starts[0])})"
        return f"epoch_us(r.{quoted(ends.columns[0])}) + {self.view.progress.times[ends.columns[0]] - ends.after}"

    def touch_keys(self, text: str) -> bool:
        """Write the keys that a query returns to a table; returns whether there are any."""
        duck, keys = self.table_cache.duck, self.view.keying.columns
        duck.execute(f"CREATE OR REPLACE TEMP TABLE __touched AS {text}")
        statistics = ["count(*)"]
        for index, key in enumerate(keys):
            along = {"timestamp": f"epoch_us(k{index})"}.get(key.type, f"k{index}" if key.type in INTEGERS else "NULL")
            statistics += [f"count(*) - count(k{index})", f"min({along})", f"max({along})"]
        (found,) = duck.execute(f"SELECT {', '.join(statistics)} FROM __touched").fetchall()
        self.touched = tuple(Touched(key.type, *found[3 * index + 1 : 3 * index + 4]) for index, key in enumerate(keys))
        return bool(found[0])

    def is_touched(self, columns: Sequence[str | None], during: str | None = None) -> str:
        """The condition that a row has a touched key; NULL is a key like any other. Missing columns are None. With
        `during`, a time, also that it is in a touched session of the key."""
        same, within = [f"{during} BETWEEN t.low AND t.high"] if during is not None else [], []
        for index, (column, keys) in enumerate(zip(columns, self.touched, strict=True)):
            if column is None:
                continue
            name = f"r.{quoted(column)}"
            same.append(f"{name} {'IS NOT DISTINCT FROM' if keys.nulls else '='} t.k{index}")
            within += keys.within(name)
        return " AND ".join([*within, f"EXISTS (SELECT 1 FROM __touched t WHERE {' AND '.join(same)})"])

    def _touching(self, text: str, placeholder: str, new: str) -> str:
        view, before = self.view, self.commit.before
        read = self.fields_read(view)
        found = driver_sql(text, lambda each: new if each == placeholder else self.relation(view, each, before), read)
        assert found is not None
        return found

    def retained(self, placeholder: str) -> str | None:
        """The stream's rows as far as the view shows them, and those of this commit."""
        view = self.view
        new = self.delta(view, placeholder, 1)
        if not view.keying.retained or new is None:
            return new
        shown = self.table_cache.relation(view.changes_table, self.commit.before, _stored(view))
        again = ", ".join(f"{quoted(name)} AS {quoted(column)}" for column, name in view.keying.retained.items())
        columns = ", ".join(map(quoted, view.keying.retained))
        keyed = self.is_touched([key.name for key in view.keying.columns])
        names = _columns((*view.fields, *view.hidden))
        net = net_sql(names, f"(SELECT {names}, _diff FROM {shown} r WHERE {keyed})")
        return (
            f"(SELECT {again} FROM (SELECT *, unnest(range(_diff)) FROM ({net})) UNION ALL SELECT {columns} FROM {new})"
        )

    def narrowed(self, placeholder: str, at: Snapshot, within: Range | None) -> str | None:
        whole = (
            self.retained(placeholder)
            if keyed.continues_from_shown(self.commit, self.view)
            else self.relation(self.view, placeholder, at, within)
        )
        narrow = next((each for each in self.view.keying.narrows if each.input == placeholder), None)
        if whole is None or narrow is None:
            return whole
        during = (
            f"epoch_us(r.{quoted(self.view.progress.ends.time)})"
            if self.within is not None and self.view.progress.ends
            else None
        )
        where = [self.is_touched(narrow.columns, during)] if any(narrow.columns) or during else []
        for keys, along in zip(self.touched, narrow.times, strict=False):
            where += keys.within(f"r.{quoted(along[0])}", *along[1:]) if along is not None else []
        return f"(SELECT * FROM {whole} r WHERE {' AND '.join(where) or 'true'})"

    def stamped(self, text: str, fields: Sequence[Field], ctes: str = "") -> str:
        items = [f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in fields]
        version = self.commit.before.version + 1
        return (
            f"{ctes}SELECT {', '.join(items)}, CAST(_diff AS BIGINT) AS _diff, CAST({version} AS BIGINT) AS _version,"
            f" {timestamp(str(self.commit.now))} AS _at FROM ({text})"
        )


def _stored(view: View) -> tuple[Field, ...]:
    """The columns by which changes of a node that compares with what it showed are stored."""
    return (*view.fields, *view.hidden, Field("_diff", "bigint"))


def _columns(fields: Sequence[Field]) -> str:
    return ", ".join(quoted(field.name) for field in fields)


def alike(given: str, wanted: str) -> bool:
    """Whether two types have the same values, except for their width."""
    given = given.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")
    return given == wanted or (given in WHOLE and wanted in WHOLE)
