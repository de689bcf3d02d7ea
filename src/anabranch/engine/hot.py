"""Hot state: the groups of a view and what it shows for them, in memory, so that a run costs what it touches.

The ledger is the truth. A hot table is built from its files when first needed, moves on with each commit, and is built
anew if the ledger went another way. Windows that have closed are left out; a late row brings the groups it touches back
from the ledger. Whether the groups of a view fit is estimated before they are loaded: those that do not are read from
the files, as far as a run touches them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import END
from anabranch.algebra.windows import window_time
from anabranch.duck import connect, path_list, quoted, timestamp
from anabranch.engine.core import Core
from anabranch.engine.driver import copy_to_table
from anabranch.engine.held import BUDGET, estimated
from anabranch.engine.pane_sql import pane_source, window_text, windows_in
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import BlockUse, Panes, View
from anabranch.plan.types import duckdb_type

if TYPE_CHECKING:
    import duckdb


#: Tables of one commit.
_TOUCHED = "touched"
_SCRATCH = ("added", "delta", "loaded", "fresh", _TOUCHED)


@dataclass
class _Table:
    """A hot table: its name, the files it stands for, up to which time windows have been left out, and its rows."""

    name: str
    panes: frozenset[str]
    changes: frozenset[str]
    floor: int | None = None
    rows: int = 0


class Hot:
    """The hot tables of one home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._duck: duckdb.DuckDBPyConnection | None = None
        self._tables: dict[str, _Table] = {}
        self._left: dict[str, View] = {}
        self._made = 0
        #: Of which new partials the tables `added` and `delta` are: views that read the same share them.
        self._added: tuple[Panes, tuple[DataFile, ...]] | None = None
        self._delta: tuple[Any, ...] = ()

    @property
    def duck(self) -> duckdb.DuckDBPyConnection:
        if self._duck is None:
            self._duck = connect()
        return self._duck

    def close(self) -> None:
        for view_id in self._tables:
            BUDGET.release((id(self), view_id))
        self._tables.clear()
        self._added, self._delta = None, ()
        if self._duck is not None:
            self._duck.close()
            self._duck = None

    def forget(self, view_id: str) -> None:
        """Let go of the groups of a view whose query is another one now."""
        hot = self._tables.pop(view_id, None)
        BUDGET.release((id(self), view_id))
        self._added, self._delta = None, ()
        for name in (*_SCRATCH, *([hot.name] if hot is not None else ())) if self._duck is not None else ():
            self.duck.execute(f"DROP TABLE IF EXISTS {name}")

    def leave(self, view: View) -> None:
        """Leave a view to Spark, for as long as it is this one."""
        self._left[view.id] = view

    def left(self, view: View) -> bool:
        return self._left.get(view.id) == view

    def merged(self, table: str, removed: Iterable[str], added: Iterable[DataFile]) -> None:
        """Files of a table were merged into others: what they hold is the same."""
        gone, new = frozenset(removed), frozenset(file.path for file in added)
        for hot in self._tables.values():
            if gone <= hot.panes and gone:
                hot.panes = (hot.panes - gone) | new
            elif gone <= hot.changes and gone:
                hot.changes = (hot.changes - gone) | new

    def groups(self, view: View) -> int:
        """How many groups of a view are in memory."""
        hot = self._tables.get(view.id)
        return 0 if hot is None else hot.rows

    # ---- one commit

    def changes(
        self,
        view: View,
        panes: Panes,
        snapshot: Snapshot,
        added: tuple[DataFile, ...],
        closed: int | None,
        now: int,
    ) -> tuple[DataFile, ...] | None:
        """The changes that new partials bring; None where the groups are in files that are too large for the driver.

        `closed` is the progress up to which windows need not stay hot.
        """
        shape = _Shape(view, panes, view.blocks[0])
        hot = self._ready(shape, snapshot, closed)
        if hot is None:
            tables = (snapshot.files.get(table, {}).values() for table in (panes.id, view.changes_table))
            if not self.core.place.takes_changes(0, sum(file.rows for files in tables for file in files)):
                return None
        self._load_delta(shape, added)
        hot = hot or self._touched(shape, snapshot)
        if hot.floor is not None:
            self._bring_back(shape, hot, snapshot)
        self.duck.execute(f"CREATE OR REPLACE TEMP TABLE fresh AS {shape.fresh(hot.name)}")
        changed = shape.changed(snapshot.version + 1, now)
        files = copy_to_table(self.core, self.duck, changed, view.changes_table, view.time or None)
        self._count(hot, -1, f"DELETE FROM {hot.name} h USING delta d WHERE {shape.match('d', 'h')}")
        columns = ", ".join([*shape.groups, *shape.partials, *shape.values])
        self._count(hot, 1, f"INSERT INTO {hot.name} SELECT {columns} FROM fresh")
        hot.panes |= {file.path for file in added}
        hot.changes |= {file.path for file in files}
        self._evict(shape, hot, closed)
        if not self._fits(shape, self.groups(view)):
            self.forget(view.id)
        return files

    def _count(self, hot: _Table, sign: int, text: str) -> None:
        """Run a statement that changes a hot table, and count its rows."""
        ((count,),) = self.duck.execute(text).fetchall()
        hot.rows += sign * int(count)

    def _load_delta(self, shape: _Shape, added: tuple[DataFile, ...]) -> None:
        """The groups of new partials, with all that views on their pane table know of them."""
        panes, use = shape.panes, shape.use
        columns = tuple(column.name for column in panes.columns if column.duckdb)
        wanted = (panes, added, use.sliding, use.presence)
        if self._delta == wanted:
            return
        self._delta = ()
        if self._added != (panes, added):
            folder = self.core.ledger.table_folder(panes.id)
            source = pane_source(panes, columns, [str(folder / file.path) for file in added])
            self._added = None
            self.duck.execute(f"CREATE OR REPLACE TEMP TABLE added AS SELECT * FROM {source}")
            self._added = panes, added
        whole = _Shape(shape.view, panes, replace(use, columns=columns))
        self._load("delta", whole, "added")
        self._delta = wanted

    def _ready(self, shape: _Shape, snapshot: Snapshot, closed: int | None) -> _Table | None:
        """The hot table of a view, as of a snapshot; None if it does not fit into memory."""
        view, panes = shape.view, shape.panes
        names = frozenset(snapshot.files.get(panes.id, ())), frozenset(snapshot.files.get(view.changes_table, ()))
        hot = self._tables.get(view.id)
        if hot is not None and (hot.panes, hot.changes) == names:
            return hot
        if hot is not None:
            self.duck.execute(f"DROP TABLE IF EXISTS {self._tables.pop(view.id).name}")
        floor = closed if shape.size and closed != END else None
        low = None if floor is None else floor - shape.size
        files = snapshot.files.get(panes.id, {}).values()
        if not self._fits(shape, sum(file.rows for file in files if file.may_hold(low, None))):
            return None
        self._made += 1
        hot = _Table(f"hot_{self._made}", *names, floor)
        is_open = "" if floor is None else f"WHERE w + {shape.size} > {floor}"
        self._load("loaded", shape, self._files(shape, snapshot.table_paths(self.core.ledger, panes.id, low)), is_open)
        self._join_shown(hot, shape, snapshot, create=True)
        self._tables[view.id] = hot
        return hot

    def _fits(self, shape: _Shape, groups: int) -> bool:
        return BUDGET.take(
            (id(self), shape.view.id), estimated(groups, shape.types()), self.core.place.limits.held_bytes
        )

    def _touched(self, shape: _Shape, snapshot: Snapshot) -> _Table:
        """The groups that new partials touch, and no others, for one commit."""
        only = f"WHERE EXISTS (SELECT 1 FROM delta d WHERE {shape.match('d', 'e')})"
        self._load("loaded", shape, self._files(shape, snapshot.table_paths(self.core.ledger, shape.panes.id)), only)
        self.duck.execute(f"DROP TABLE IF EXISTS {_TOUCHED}")
        touched = _Table(_TOUCHED, frozenset(), frozenset())
        self._join_shown(touched, shape, snapshot, create=True)
        return touched

    def _files(self, shape: _Shape, paths: list[str]) -> str | None:
        return pane_source(shape.panes, shape.use.columns, paths) if paths else None

    def _load(self, name: str, shape: _Shape, source: str | None, only: str = "") -> None:
        """The groups of partials, reduced. The file of a column that came later says nothing of presence."""
        groups = ", ".join(shape.groups)
        if source is None:
            columns = ", ".join(f"{column} {kind}" for column, kind in shape.columns())
            self.duck.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({columns})")
            return
        relation = windows_in("exploded", shape.panes, shape.use, source)
        items = ", ".join([groups, *shape.first_reduces(named=name == "delta")])
        self.duck.execute(
            f"CREATE OR REPLACE TEMP TABLE {name} AS WITH {relation} SELECT {items}"
            f" FROM exploded e {only} GROUP BY {groups} HAVING sum({shape.presence}) > 0"
        )

    def _join_shown(self, hot: _Table, shape: _Shape, snapshot: Snapshot, *, create: bool) -> None:
        """Groups that were loaded into a hot table, with what the ledger says is shown for them."""
        paths = snapshot.table_paths(self.core.ledger, shape.view.changes_table)
        shown = shape.nothing_shown() if not paths else shape.shown(paths, "loaded")
        items = ", ".join([f"d.{column}" for column in (*shape.groups, *shape.partials)])
        values = ", ".join(f"s.{column}" for column in shape.values)
        into = f"CREATE TEMP TABLE {hot.name} AS" if create else f"INSERT INTO {hot.name}"
        self._count(
            hot,
            1,
            f"{into} SELECT {items}{', ' + values if values else ''} FROM loaded d LEFT JOIN ({shown}) s"
            f" ON {shape.match('d', 's')}",
        )

    # ---- windows that have closed

    def _bring_back(self, shape: _Shape, hot: _Table, snapshot: Snapshot) -> None:
        """Put the groups of late rows back into the hot table, but for those that have stayed there or are back."""
        size = shape.size
        late = self.duck.execute(f"SELECT min(w), max(w) FROM delta WHERE w + {size} <= {hot.floor}").fetchone()
        if late is None or late[0] is None:
            return
        paths = snapshot.table_paths(self.core.ledger, shape.panes.id, late[0], late[1] + size)
        only = (
            f"WHERE w + {size} <= {hot.floor} AND EXISTS (SELECT 1 FROM delta d WHERE {shape.match('d', 'e')})"
            f" AND NOT EXISTS (SELECT 1 FROM {hot.name} h WHERE {shape.match('h', 'e')})"
        )
        self._load("loaded", shape, self._files(shape, paths), only)
        self._join_shown(hot, shape, snapshot, create=False)

    def _evict(self, shape: _Shape, hot: _Table, closed: int | None) -> None:
        if not shape.size or closed is None or closed == END:
            return
        self._count(hot, -1, f"DELETE FROM {hot.name} WHERE w + {shape.size} <= {closed}")
        hot.floor = closed if hot.floor is None else max(hot.floor, closed)


class _Shape:
    """Names on the way from partials to changes: groups k0.. and w, partials r0.., shown values o0..."""

    def __init__(self, view: View, panes: Panes, use: BlockUse) -> None:
        self.view = view
        self.panes = panes
        self.use = use
        windows = use.sliding
        self.size = windows.size if windows is not None else 0
        self.groups = [f"k{index}" for index in range(len(panes.keys))] + (["w"] if windows is not None else [])
        self.partials = [f"r{index}" for index in range(len(use.columns))]
        self.results = [output for output in view.direct if output.kind == "value"]
        self.values = [f"o{index}" for index in range(len(self.results))]
        self.presence = quoted(use.presence)

    def columns(self) -> list[tuple[str, str | None]]:
        kinds = [duckdb_type(key.type) for key in self.panes.keys] + (["BIGINT"] if self.size else [])
        kinds += [duckdb_type(self.panes.column(name).type) for name in self.use.columns]
        return list(zip([*self.groups, *self.partials], kinds, strict=True))

    def match(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in self.groups) or "true"

    def first_reduces(self, *, named: bool = False) -> list[str]:
        """Partials as they are in panes, reduced, under short names or under their own."""
        columns = enumerate(self.use.columns)
        return [self._reduced(name, quoted(name), quoted(name) if named else f"r{i}") for i, name in columns]

    def reduces(self) -> list[str]:
        """Reduced partials, reduced again."""
        return [self._reduced(name, f"r{i}", f"r{i}") for i, name in enumerate(self.use.columns)]

    def _reduced(self, name: str, column: str, to: str) -> str:
        found = self.panes.column(name)
        return f"CAST({found.reduce_in_duckdb(column)} AS {duckdb_type(found.type)}) AS {to}"

    def shown_items(self) -> list[str]:
        return [f"{output.source} AS o{index}" for index, output in enumerate(self.results)]

    def _outputs(self) -> list[tuple[str, str]]:
        """What is stored of a change: a text over groups and values, and its name."""
        key = {each.name: f"k{index}" for index, each in enumerate(self.panes.keys)}
        value = {id(output): f"o{index}" for index, output in enumerate(self.results)}
        stored = []
        for output in self.view.direct:
            if output.kind == "key":
                text = key[output.source]
            elif output.kind == "value":
                text = value[id(output)]
            else:
                text = window_text(output.kind, self.use)
            stored.append((f"CAST({text} AS {duckdb_type(output.type)})", quoted(output.name)))
        columns = self.view.narrows[0].columns if self.view.narrows else ()
        source = dict(zip((each.name for each in self.view.keys), columns, strict=True))
        for hidden in self.view.hidden:
            name = source[hidden.name] or ""
            text = key[name] if name in key else window_text(name, self.use)
            stored.append((f"CAST({text} AS {duckdb_type(hidden.type)})", quoted(hidden.name)))
        return stored

    def fresh(self, hot: str) -> str:
        """The groups of `delta` with what is in memory of them, reduced; what is to be shown, and what was."""
        groups, partials = ", ".join(self.groups), ", ".join(self.partials)
        given = ", ".join(map(quoted, self.use.columns))
        old = "".join(f", {name} AS was_{name}" for name in self.values)
        none = "".join(f", NULL AS was_{name}" for name in self.values)
        both = (
            f"SELECT {groups}{', ' if groups else ''}{partials}, true AS was{old} FROM {hot} h"
            f" SEMI JOIN delta d ON {self.match('d', 'h')}"
            f" UNION ALL SELECT {groups}{', ' if groups else ''}{given}, false{none} FROM delta"
        )
        shown = [f"any_value(was_{name}) FILTER (WHERE was) AS was_{name}" for name in self.values]
        reduced = ", ".join([*self.groups, *self.reduces(), "bool_or(was) AS was", *shown])
        everything = ", ".join([*self.groups, *self.partials, *self.shown_items(), "was"])
        kept = "".join(f", was_{name}" for name in self.values)
        return f"SELECT {everything}{kept} FROM (SELECT {reduced} FROM ({both}) GROUP BY ALL)"

    def changed(self, version: int, now: int) -> str:
        """The difference between what is to be shown and what was."""
        stored = ", ".join(f"{text} AS {name}" for text, name in self._outputs())
        new = ", ".join([*self.groups, *self.values, "1 AS _diff"])
        old = ", ".join([*self.groups, *(f"was_{name} AS {name}" for name in self.values), "-1 AS _diff"])
        same = " AND ".join(f"{name} IS NOT DISTINCT FROM was_{name}" for name in self.values) or "true"
        both = f"SELECT {new} FROM fresh WHERE NOT (was AND {same})"
        both += f" UNION ALL SELECT {old} FROM fresh WHERE was AND NOT ({same})"
        return (
            f"SELECT {stored}, CAST(_diff AS BIGINT) AS _diff, CAST({version} AS BIGINT) AS _version,"
            f" {timestamp(str(now))} AS _at FROM ({both})"
        )

    def types(self) -> list[str]:
        """The types of a hot table."""
        kinds = [key.type for key in self.panes.keys] + (["bigint"] if self.size else [])
        kinds += [self.panes.column(name).type for name in self.use.columns]
        return kinds + [output.type for output in self.results]

    def shown(self, paths: list[str], groups: str) -> str:
        """What changes add up to, for the groups of a table."""
        columns = ", ".join(name for _, name in self._outputs())
        items = []
        for output in self.view.direct:
            column = f"c.{quoted(output.name)}"
            if output.kind == "key":
                index = next(i for i, each in enumerate(self.panes.keys) if each.name == output.source)
                items.append(f"{column} AS k{index}")
            elif output.kind == "value":
                items.append(f"{column} AS o{self.results.index(output)}")
            else:
                items.append(f"{_start_of(column, output.kind, self.size)} AS w")
        sources = self.view.narrows[0].columns if self.view.narrows else ()
        for field, name in zip(self.view.keys, sources, strict=True):
            if field in self.view.hidden and name is not None:
                if name in {each.name for each in self.panes.keys}:
                    index = next(i for i, each in enumerate(self.panes.keys) if each.name == name)
                    items.append(f"c.{quoted(field.name)} AS k{index}")
                else:
                    items.append(f"{_start_of(f'c.{quoted(field.name)}', name, self.size)} AS w")
        unique = {item.rsplit(" AS ", 1)[1]: item for item in items}
        own = [f"g.{name} IS NOT DISTINCT FROM {unique[name].rsplit(' AS ', 1)[0]}" for name in self.groups]
        net = (
            f"SELECT {columns} FROM read_parquet({path_list(paths)}) c"
            f" WHERE EXISTS (SELECT 1 FROM {groups} g WHERE {' AND '.join(own) or 'true'})"
            f" GROUP BY {columns} HAVING sum(_diff) > 0"
        )
        return f"SELECT {', '.join(unique.values())} FROM ({net}) c"

    def nothing_shown(self) -> str:
        kinds = dict(self.columns())
        items = [f"CAST(NULL AS {kinds[name]}) AS {name}" for name in self.groups]
        items += [f"CAST(NULL AS {duckdb_type(each.type)}) AS o{i}" for i, each in enumerate(self.results)]
        return f"SELECT {', '.join(items) or '1'} WHERE false"


def _start_of(column: str, kind: str, size: int) -> str:
    """The start of a window in microseconds, from one of its bounds."""
    shift = {"window_start": 0, "window_end": size, "window_time": window_time(size, size)}[kind]
    return f"epoch_us({column}) - {shift}"
