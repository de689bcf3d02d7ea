"""Views that count rows which come and go, beside the files of the ledger, by DuckDB: for small runs, without a Spark
job.

The same rows as Spark gives: what came and went with a run and when (the history of the query below), the keys that it
did so for, and what those that fire show. What DuckDB cannot do, or does not do alike, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.duck import ANOTHER_TYPE, counting_all, quoted, quoted_text
from anabranch.engine import local
from anabranch.engine.frames import arrow_schema, table_of
from anabranch.engine.numbering import place_of_first, placed, shift_of_new
from anabranch.engine.read import take_fields
from anabranch.engine.tables import net_sql
from anabranch.engine.warm import file_rows
from anabranch.ledger import DataFile
from anabranch.plan.build import LEFT, PLACE, TAKES
from anabranch.plan.catalog import ARRIVAL_TS, CAME, NUMBERED, ROW_NUM, Field, Stream, Touch, View
from anabranch.plan.driver_types import fits_driver
from anabranch.plan.histories import moved_only
from anabranch.plan.intervals import FROM, MOVED, TO
from anabranch.plan.local import local_text
from anabranch.plan.local_histories import counted_text, history_text
from anabranch.plan.views import duckdb_type

if TYPE_CHECKING:
    from anabranch.engine.maintain import Maintainer
    from anabranch.engine.trigger import Fired

#: What came and went, what keys that fired may show, their keys, and which run brought which rows; for DuckDB.
_MOVED, _TAKES, _FIRED, _RUNS = "__moved", "__takes", "__fired", "__runs"
_PLACES = (Field(PLACE, "bigint"), Field(LEFT, "bigint"))
_MOMENTS = (Field(FROM, "bigint"), Field(TO, "bigint"))
_Found = TypeVar("_Found")
_RUN = (Field("stream", "string"), Field("first", "bigint"), Field("shift", "bigint"))


def moved(maintainer: Maintainer, view: View) -> Any:
    """The rows below a view that came or went with a commit, with their places among all that did, as an Arrow table;
    None if they are Spark's to tell."""
    return _told(maintainer, view, lambda counting: counting.moved())


def records(maintainer: Maintainer, view: View, touch: Touch, moved: Any) -> Any:
    """The keys of these rows with the places at which they came or went, as an Arrow table; None if Spark has to."""
    return _told(maintainer, view, lambda counting: counting.records(touch, moved))


def changes(maintainer: Maintainer, view: View, fired: Fired, moved: Any) -> tuple[DataFile, ...] | None:
    """The changes of the keys that fire in a commit; None if they are Spark's to compute."""
    return _told(maintainer, view, lambda counting: counting.changes(fired, moved))


def _told(maintainer: Maintainer, view: View, ask: Callable[[_Counting], _Found]) -> _Found | None:
    """What DuckDB tells; None where it fails, and the view is left to Spark if that will be so ever again."""
    import duckdb
    import pyarrow as pa

    counting = _fitting(maintainer, view)
    if counting is None:
        return None
    try:
        return ask(counting)
    except (local.Unfit, duckdb.Error, pa.ArrowInvalid) as error:
        if ANOTHER_TYPE in str(error):
            maintainer.core.local.leave(view)
        return None


def _fitting(maintainer: Maintainer, view: View) -> _Counting | None:
    if not maintainer.core.uses_driver:
        return None
    counting = _Counting(maintainer, view)
    if not maintainer.core.local.known(view, counting.fits):
        return None
    return counting if local.small_enough(maintainer, counting.new_rows(), counting.state_rows()) else None


class _Counting:
    """One such view in one commit."""

    def __init__(self, maintainer: Maintainer, view: View) -> None:
        self.maintainer = maintainer
        self.view = view
        self.query = local.query_of(maintainer, view)
        self.warm = maintainer.core.warm
        self.below = maintainer.catalog.view(view.views[view.counted or ""])

    # ---- whether it can be

    def fits(self) -> bool:
        """Whether DuckDB knows the types, and gives all queries the same columns."""
        import duckdb

        view, below = self.view, self.below
        if not view.told_alike or view.spread or view.asks or (view.node == "keyed" and not view.keys):
            return False
        if not all(isinstance(self.maintainer.catalog[id], Stream) for id in view.told.values()):
            return False
        seen = {each: self._stream(id).seen_as(each) for each, id in view.told.items()}
        fields = [*self.query.all_fields(view), *(field for columns in seen.values() for field in columns), *view.keys]
        if any(duckdb_type(field.type) is None for field in fields) or not fits_driver(view.text, self._fields()):
            return False
        history = history_text(view.history, {each: file_rows([], columns) for each, columns in seen.items()}.get)
        keys = tuple(Field(f"k{index}", key.type) for index, key in enumerate(view.keys))
        shown = (*view.fields, *view.hidden)
        asked = [(history, (*below.fields, *_MOMENTS)), (counted_text(view.text, self._nothing), shown)]
        asked += [
            (local_text(touch.text, self._nothing, self._fields()), (*keys, _PLACES[0])) for touch in view.touches
        ]
        try:
            return all(text is not None and self._gives(text, given) for text, given in asked)
        except duckdb.Error:
            return False

    def _gives(self, text: str, fields: tuple[Field, ...]) -> bool:
        kinds = [str(kind) for kind in self.warm.duck.sql(text).types]
        wanted = [duckdb_type(field.type) or "" for field in fields]
        return len(kinds) == len(wanted) and all(map(local.alike, kinds, wanted))

    def _nothing(self, placeholder: str) -> str | None:
        if placeholder == TAKES:
            return file_rows([], take_fields(self.view))
        if placeholder == self.view.counted:
            return file_rows([], (*self.below.fields, *_PLACES))
        return self.query.empty(self.view, placeholder)

    def _fields(self) -> list[Field]:
        """The columns of all relations that the view reads."""
        return [*self.query.fields_read(self.view), *_PLACES, *take_fields(self.view)]

    def _stream(self, id: str) -> Stream:
        return self.maintainer.catalog.stream(id)

    def new_rows(self) -> int:
        if self.maintainer.filling:
            return self._kept_rows()
        return sum(file.rows for table in self._tables() for file in self.maintainer.added.get(table, ()))

    def state_rows(self) -> int:
        return self.query.state_rows() + self._kept_rows()

    def _kept_rows(self) -> int:
        files = self.maintainer.after.files
        return sum(file.rows for table in self._tables() for file in files.get(table, {}).values())

    def _tables(self) -> set[str]:
        """Where the rows are that the history is told by."""
        return {self._stream(id).rows_table for id in self.view.told.values()}

    # ---- what came and went

    def moved(self) -> Any:
        maintainer, below = self.maintainer, self.below
        self.warm.settle(maintainer.after)
        narrowed = self._touched_below()
        runs = self._runs() if maintainer.filling else None
        whole = maintainer.whole(self.view)
        history = self.view.history if whole else moved_only(self.view.history)
        text = history_text(history, lambda each: self._rows(each, narrowed))
        fields = (*below.fields, *_MOMENTS)
        where = "" if whole else f" WHERE {MOVED}"
        found = self._found(f"SELECT * FROM ({text}) AS __f({_columns(fields)}){where}", fields, {_RUNS: runs})
        return placed(found, [field.name for field in below.fields])

    def _touched_below(self) -> Mapping[str, str]:
        """By stream, the condition that one of its rows can matter: it has a key that the new rows touch."""
        maintainer, below = self.maintainer, self.below
        narrows = {each.input: each.columns for each in below.narrows if each.input in below.streams}
        whole = maintainer.whole(self.view)
        if below.node != "keyed" or not narrows or whole or not set(below.inputs) <= set(below.streams):
            return {}
        query = local.query_of(maintainer, below)
        if not maintainer.core.local.fits(maintainer, below) or not query.touch():
            return {}
        return {below.streams[each]: query.is_touched(columns) for each, columns in narrows.items() if any(columns)}

    def _rows(self, placeholder: str, narrowed: Mapping[str, str]) -> str:
        """The rows of a stream with their places among all, those from before this commit at the very first."""
        maintainer, view, stream = self.maintainer, self.view, self._stream(self.view.told[placeholder])
        numbered = any(name in view.history for name in (ROW_NUM, ARRIVAL_TS))
        columns, parts = _columns(stream.row_fields if numbered else stream.fields), list[str]()
        if not maintainer.filling:
            fields = stream.row_fields if numbered or stream.id in view.begins else stream.fields
            kept = self.warm.relation(stream.rows_table, maintainer.before, fields)
            kept = local.since_start(view, stream, NUMBERED if numbered else "", kept)
            parts.append(f"SELECT {columns}, CAST(-1 AS BIGINT) AS {CAME} FROM {kept} r")
        paths = maintainer.paths(stream.rows_table)
        if paths or not parts:
            first = view.begins[stream.id][1] if stream.id in view.begins else None
            since = "" if first is None else f" WHERE coalesce({ROW_NUM}, 0) >= {first}"
            place, runs = self._place(stream)
            came = f"coalesce({place}, 0) AS {CAME}"
            parts.append(f"SELECT {columns}, {came} FROM {file_rows(paths, stream.row_fields)} r{runs}{since}")
        where = f" WHERE {narrowed[stream.id]}" if stream.id in narrowed else ""
        return f"(SELECT * FROM ({' UNION ALL '.join(parts)}) r{where})"

    def _place(self, stream: Stream) -> tuple[str, str]:
        """The place of a row among all, and what to join for it. What is new came with one run."""
        if self.maintainer.filling:
            on = f"__t.stream = {quoted_text(stream.id)} AND r.{ROW_NUM} >= __t.first"
            return f"r.{ROW_NUM} + __t.shift", f" ASOF LEFT JOIN {_RUNS} AS __t ON {on}"
        return f"r.{ROW_NUM} + {shift_of_new(self.maintainer.before, stream.id)}", ""

    def _runs(self) -> Any:
        """Which run brought which rows, by their numbers."""
        arrivals, before = self.maintainer.core.arrivals, self.maintainer.before
        rows = [
            (id, first, place_of_first(version) - first)
            for id in dict.fromkeys(self.view.told.values())
            for first, version in arrivals.runs(id, before)
        ]
        return table_of(_RUN, rows)

    # ---- who fires, and shows what

    def records(self, touch: Touch, moved: Any) -> Any:
        if touch.input != self.view.counted:
            raise local.Unfit
        columns = _columns(self.below.fields)
        came, went = (
            f"SELECT {columns}, {place} AS {PLACE} FROM {_MOVED} WHERE {place} IS NOT NULL" for place in (PLACE, LEFT)
        )
        over = self._over(f"({came} UNION ALL {went})")
        text = local_text(touch.text.replace("SELECT DISTINCT", "SELECT", 1), over, self._fields())
        keys = tuple(Field(f"k{index}", key.type) for index, key in enumerate(self.view.keys))
        return self._found(f"SELECT * FROM ({text})", (*keys, _PLACES[0]), {_MOVED: moved})

    def changes(self, fired: Fired, moved: Any) -> tuple[DataFile, ...]:
        view, maintainer = self.view, self.maintainer
        self.warm.settle(maintainer.after)
        keys = tuple(Field(f"k{index}", key.type) for index, key in enumerate(view.keys))
        takes = table_of(take_fields(view), [(*key, place) for key, place in fired.upto.items()])
        with self._given({_MOVED: moved, _TAKES: takes, _FIRED: table_of(keys, fired.keys) if keys else None}):
            if keys:
                self.query.touch_keys(f"SELECT {_columns(keys)} FROM {_FIRED}")
            fresh = counted_text(view.text, self._over(self._counted(limited=bool(fired.upto))))
            return local.kept(maintainer, view, self.query.difference(fresh))

    def _over(self, counted: str) -> Any:
        """What stands behind placeholders, the records that are counted being these."""

        def relation(placeholder: str) -> str | None:
            if placeholder in (TAKES, self.view.counted):
                return counted if placeholder == self.view.counted else _TAKES
            return self.query.relation(self.view, placeholder, self.maintainer.before)

        return relation

    def _counted(self, *, limited: bool) -> str:
        """The records of the keys that fired. With limits, those that were there before, and did not go with this
        commit; and those that came or went with it, with their places."""
        maintainer, columns = self.maintainer, _columns(self.below.fields)
        none = ", ".join(f"CAST(NULL AS BIGINT) AS {field.name}" for field in _PLACES)
        narrow = next((each.columns for each in self.view.narrows if each.input == self.view.counted), ())
        where = f" WHERE {self.query.is_touched(narrow)}" if any(narrow) else ""
        new = f"SELECT {columns}, {PLACE}, {LEFT} FROM {_MOVED} r{where}"
        if limited and maintainer.whole(self.view):
            return f"({new})"
        at = maintainer.before if limited else maintainer.after
        there = self.query.relation(self.view, self.view.counted or "", at)
        if there is None:
            raise local.Unfit
        there = f"SELECT {columns} FROM {there} r{where}"
        if not limited:
            return f"(SELECT {columns}, {none} FROM ({there}))"
        gone = f"SELECT {columns}, -1 AS _diff FROM {_MOVED} r{where} {'AND' if where else 'WHERE'} {PLACE} IS NULL"
        net = net_sql(columns, f"(SELECT {columns}, 1 AS _diff FROM ({there}) UNION ALL {gone})")
        stayed = f"SELECT {columns}, {none} FROM (SELECT *, unnest(range(CAST(_diff AS BIGINT))) FROM ({net}))"
        return f"({stayed} UNION ALL {new})"

    # ---- DuckDB

    def _found(self, text: str, fields: tuple[Field, ...], given: Mapping[str, Any]) -> Any:
        """What a query gives, in the types of some fields."""
        items = ", ".join(f"CAST({quoted(f.name)} AS {duckdb_type(f.type)}) AS {quoted(f.name)}" for f in fields)
        with self._given(given), counting_all(self.warm.duck, text):
            found = self.warm.duck.sql(f"SELECT {items} FROM ({text})").to_arrow_table()
        return found.cast(arrow_schema(fields))

    @contextmanager
    def _given(self, given: Mapping[str, Any]) -> Iterator[None]:
        """Arrow tables under their names."""
        tables = {name: table for name, table in given.items() if table is not None}
        for name, table in tables.items():
            self.warm.duck.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self.warm.duck.unregister(name)


def _columns(fields: tuple[Field, ...]) -> str:
    return ", ".join(quoted(field.name) for field in fields)
