"""Hot state: the groups of a view and what it shows for them, in memory, so that a run costs what it touches.

The ledger is the truth. A hot table is loaded from its files on first use, updated with each commit, and reloaded if
the ledger has diverged. Closed windows are evicted; a late row reloads the groups that it touches from the ledger.
Whether the groups of a view fit into memory is estimated before they are loaded: otherwise only the groups that a run
touches are read from the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import END
from anabranch.algebra.windows import window_time
from anabranch.duck import connect, path_list, quoted, timestamp
from anabranch.engine.core import Core
from anabranch.engine.driver import copy_to_table
from anabranch.engine.memory_budget import BUDGET, estimated
from anabranch.engine.pane_sql import pane_source, window_text, windows_in
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.states import Panes
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View

if TYPE_CHECKING:
    import duckdb


#: A partial in an output expression of a view.
_PARTIAL = re.compile(r"\br(\d+)\b")
#: Tables of one commit.
_TOUCHED, _FRESH = "touched", "fresh"
_SCRATCH = ("added", "delta", "loaded", _FRESH, _TOUCHED)
_Key = tuple[Any, ...]


@dataclass
class _Table:
    """A hot table: its name, its groups, the files that it holds, the time up to which windows were evicted, and its
    number of rows. `waiting` are views with changes in its last step that they have not read yet."""

    name: str
    of: _Groups
    panes: frozenset[str]
    changes: dict[str, frozenset[str]]
    floor: int | None = None
    rows: int = 0
    step: tuple[int, tuple[DataFile, ...]] | None = None
    waiting: set[str] = field(default_factory=set)

    @property
    def fresh(self) -> str:
        return f"{_FRESH}_{self.name}"

    @property
    def tables(self) -> tuple[str, str]:
        return self.name, self.fresh


class Hot:
    """The hot tables of one home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._duck: duckdb.DuckDBPyConnection | None = None
        self._tables: dict[_Key, _Table] = {}
        self._left: dict[str, View] = {}
        #: Views that did not read their changes: they get a table of their own.
        self._apart: set[str] = set()
        self._alike: tuple[Catalog, dict[_Key, list[View]]] | None = None
        self._made = 0
        #: The new partials in the tables `added` and `delta`, which views with the same ones share.
        self._added: tuple[Panes, tuple[DataFile, ...]] | None = None
        self._delta: tuple[Any, ...] = ()

    @property
    def duck(self) -> duckdb.DuckDBPyConnection:
        if self._duck is None:
            self._duck = connect()
        return self._duck

    def close(self) -> None:
        for key in self._tables:
            BUDGET.release((id(self), key))
        self._tables.clear()
        self._added, self._delta = None, ()
        if self._duck is not None:
            self._duck.close()
            self._duck = None

    def forget(self, view_id: str) -> None:
        """Release the groups of a view whose query has changed, and of the views that share them."""
        self._added, self._delta = None, ()
        for name in _SCRATCH if self._duck is not None else ():
            self.duck.execute(f"DROP TABLE IF EXISTS {name}")
        for key in [key for key, hot in self._tables.items() if view_id in hot.changes]:
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        BUDGET.release((id(self), key))
        for name in self._tables.pop(key).tables:
            self.duck.execute(f"DROP TABLE IF EXISTS {name}")

    def leave(self, view: View) -> None:
        """Leave a view to Spark until its definition changes."""
        self._left[view.id] = view

    def left(self, view: View) -> bool:
        return self._left.get(view.id) == view

    def merged(self, table: str, removed: Iterable[str], added: Iterable[DataFile]) -> None:
        """Note that files of a table were merged: the contents are the same."""
        gone, new = frozenset(removed), frozenset(file.path for file in added)
        for hot in self._tables.values():
            if gone <= hot.panes and gone:
                hot.panes = (hot.panes - gone) | new
            for view, files in hot.changes.items():
                if gone <= files and gone:
                    hot.changes[view] = (files - gone) | new

    def groups(self, view: View) -> int:
        """How many groups of a view are in memory; views with the same groups share them."""
        return sum(hot.rows for hot in self._tables.values() if view.id in hot.changes)

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
        """The changes from new partials; None where the files of the groups are too large for the driver.

        `closed` is the progress up to which windows may be evicted.
        """
        import duckdb

        groups = self._groups(view, panes, snapshot)
        try:
            hot = self._moved(groups, snapshot, added, closed)
        except duckdb.Error:
            if len(groups.views) == 1:
                raise
            # One of the views fails: separate them, so that the others do not.
            self._apart |= {each.id for each in groups.views}
            groups = _Groups(panes, [view])
            hot = self._moved(groups, snapshot, added, closed)
        if hot is None:
            tables = (snapshot.files.get(table, {}).values() for table in (panes.id, view.changes_table))
            if not self.core.place.takes_changes(0, sum(file.rows for files in tables for file in files)):
                return None
            groups = _Groups(panes, [view])
            self._load_delta(groups, added)
            self._find_fresh(groups, _FRESH, self._touched(groups, snapshot).name)
        fresh = hot.fresh if hot is not None else _FRESH
        changed = groups.shape(view).changed(fresh, snapshot.version + 1, now)
        files = copy_to_table(self.core, self.duck, changed, view.changes_table, view.time or None)
        if hot is not None:
            hot.waiting.discard(view.id)
            hot.changes[view.id] |= {file.path for file in files}
            if not hot.waiting and not self._fits(groups, hot.rows):
                self._drop(groups.key)
        return files

    def _groups(self, view: View, panes: Panes, snapshot: Snapshot) -> _Groups:
        """The groups of a view, with all views that share them."""
        catalog = self.core.catalog(snapshot)
        if self._alike is None or self._alike[0] is not catalog:
            self._alike = catalog, {}
            for each in catalog.of(View):
                plain = (
                    each.operator == "keyed"
                    and each.query.direct
                    and each.emission.mode == "feed"
                    and not each.state.stopped
                )
                if plain and all(
                    catalog.panes(each.query.blocks[0].panes).column(n).duckdb for n in each.query.blocks[0].columns
                ):
                    self._alike[1].setdefault(_key(each), []).append(each)
        alike = self._alike[1].get(_key(view), [])
        views = tuple(each for each in alike if each.id not in self._apart and not self.left(each))
        views = views if any(each is view for each in views) else (view,)
        known = (hot.of for hot in self._tables.values() if hot.of.views == views and hot.of.panes == panes)
        return next(known, None) or _Groups(panes, views)

    def _moved(
        self, groups: _Groups, snapshot: Snapshot, added: tuple[DataFile, ...], closed: int | None
    ) -> _Table | None:
        """The hot table of some views with new partials in it, whichever view comes first; None if it does not fit into
        memory."""
        hot = self._tables.get(groups.key)
        if hot is None or hot.of is not groups or hot.step != (snapshot.version, added):
            hot = self._ready(groups, snapshot, closed)
            if hot is not None:
                self._step(hot, snapshot, added, closed)
        return hot

    def _step(self, hot: _Table, snapshot: Snapshot, added: tuple[DataFile, ...], closed: int | None) -> None:
        """Merge new partials into a hot table, and compute what its views showed and are to show of them."""
        groups = hot.of
        self._load_delta(groups, added)
        if hot.floor is not None:
            self._bring_back(groups, hot, snapshot)
        self._find_fresh(groups, hot.fresh, hot.name)
        self._count(hot, -1, f"DELETE FROM {hot.name} h USING delta d WHERE {groups.match('d', 'h')}")
        columns = ", ".join([*groups.names, *groups.partials, *groups.values])
        self._count(hot, 1, f"INSERT INTO {hot.name} SELECT {columns} FROM {hot.fresh}")
        hot.panes |= {file.path for file in added}
        hot.step, hot.waiting = (snapshot.version, added), set(hot.changes)
        self._evict(groups, hot, closed)

    def _find_fresh(self, groups: _Groups, name: str, hot: str) -> None:
        self.duck.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {groups.fresh(hot)}")

    def _count(self, hot: _Table, sign: int, text: str) -> None:
        """Run a statement that changes a hot table, and count its rows."""
        ((count,),) = self.duck.execute(text).fetchall()
        hot.rows += sign * int(count)

    def _load_delta(self, groups: _Groups, added: tuple[DataFile, ...]) -> None:
        """Load the groups of new partials, with the columns of all views on their pane table."""
        panes, use = groups.panes, groups.use
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
        self._load("delta", _Groups(panes, groups.views, columns), "added")
        self._delta = wanted

    def _ready(self, groups: _Groups, snapshot: Snapshot, closed: int | None) -> _Table | None:
        """The hot table of some views as of a snapshot; None if it does not fit into memory."""
        key, panes = groups.key, groups.panes
        names = frozenset(snapshot.files.get(panes.id, ()))
        changes = {view.id: frozenset(snapshot.files.get(view.changes_table, ())) for view in groups.views}
        hot = self._tables.get(key)
        same = hot is not None and hot.of is groups and (hot.panes, hot.changes) == (names, changes)
        if hot is not None and same and not hot.waiting and self._fits(groups, hot.rows):
            return hot
        if hot is not None and hot.panes == names:  # ahead of views that did not read their changes
            self._apart |= {view for view in hot.waiting if hot.changes[view] == changes.get(view)}
        for other in [each for each, there in self._tables.items() if there.changes.keys() & changes.keys()]:
            self._drop(other)
        floor = closed if groups.size and closed != END else None
        low = None if floor is None else floor - groups.size
        files = snapshot.files.get(panes.id, {}).values()
        if not self._fits(groups, sum(file.rows for file in files if file.may_hold(low, None))):
            return None
        self._made += 1
        hot = _Table(f"hot_{self._made}", groups, names, changes, floor)
        is_open = "" if floor is None else f"WHERE w + {groups.size} > {floor}"
        self._load(
            "loaded", groups, self._files(groups, snapshot.table_paths(self.core.ledger, panes.id, low)), is_open
        )
        self._join_shown(hot, snapshot, create=True)
        self._tables[key] = hot
        return hot

    def _fits(self, groups: _Groups, count: int) -> bool:
        return BUDGET.take((id(self), groups.key), estimated(count, groups.types()), self.core.place.limits.held_bytes)

    def _touched(self, groups: _Groups, snapshot: Snapshot) -> _Table:
        """A table of only the groups that new partials touch, for one commit."""
        only = f"WHERE EXISTS (SELECT 1 FROM delta d WHERE {groups.match('d', 'e')})"
        self._load("loaded", groups, self._files(groups, snapshot.table_paths(self.core.ledger, groups.panes.id)), only)
        self.duck.execute(f"DROP TABLE IF EXISTS {_TOUCHED}")
        touched = _Table(_TOUCHED, groups, frozenset(), {})
        self._join_shown(touched, snapshot, create=True)
        return touched

    def _files(self, groups: _Groups, paths: list[str]) -> str | None:
        return pane_source(groups.panes, groups.use.columns, paths) if paths else None

    def _load(self, name: str, groups: _Groups, source: str | None, only: str = "") -> None:
        """The groups of partials, reduced. The file of a column that came later says nothing of presence."""
        names = ", ".join(groups.names)
        if source is None:
            columns = ", ".join(f"{column} {kind}" for column, kind in groups.columns())
            self.duck.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({columns})")
            return
        relation = windows_in("exploded", groups.panes, groups.use, source)
        items = ", ".join([names, *groups.first_reduces(named=name == "delta")])
        self.duck.execute(
            f"CREATE OR REPLACE TEMP TABLE {name} AS WITH {relation} SELECT {items}"
            f" FROM exploded e {only} GROUP BY {names} HAVING sum({groups.presence}) > 0"
        )

    def _join_shown(self, hot: _Table, snapshot: Snapshot, *, create: bool) -> None:
        """Add to loaded groups what the views show for them in the ledger."""
        groups = hot.of
        items = [f"d.{column}" for column in (*groups.names, *groups.partials)]
        joins = []
        for number, shape in enumerate(groups.shapes):
            paths = snapshot.table_paths(self.core.ledger, shape.view.changes_table)
            shown = shape.shown(paths, "loaded") if paths else shape.nothing_shown()
            joins.append(f" LEFT JOIN ({shown}) s{number} ON {groups.match('d', f's{number}')}")
            items += [f"s{number}.{name}" for name in shape.values]
        into = f"CREATE TEMP TABLE {hot.name} AS" if create else f"INSERT INTO {hot.name}"
        self._count(hot, 1, f"{into} SELECT {', '.join(items)} FROM loaded d{''.join(joins)}")

    # ---- windows that have closed

    def _bring_back(self, groups: _Groups, hot: _Table, snapshot: Snapshot) -> None:
        """Reload the groups of late rows into the hot table, unless they are there."""
        size = groups.size
        late = self.duck.execute(f"SELECT min(w), max(w) FROM delta WHERE w + {size} <= {hot.floor}").fetchone()
        if late is None or late[0] is None:
            return
        paths = snapshot.table_paths(self.core.ledger, groups.panes.id, late[0], late[1] + size)
        only = (
            f"WHERE w + {size} <= {hot.floor} AND EXISTS (SELECT 1 FROM delta d WHERE {groups.match('d', 'e')})"
            f" AND NOT EXISTS (SELECT 1 FROM {hot.name} h WHERE {groups.match('h', 'e')})"
        )
        self._load("loaded", groups, self._files(groups, paths), only)
        self._join_shown(hot, snapshot, create=False)

    def _evict(self, groups: _Groups, hot: _Table, closed: int | None) -> None:
        if not groups.size or closed is None or closed == END:
            return
        self._count(hot, -1, f"DELETE FROM {hot.name} WHERE w + {groups.size} <= {closed}")
        hot.floor = closed if hot.floor is None else max(hot.floor, closed)


def _key(view: View) -> _Key:
    """The key of views with the same groups: pane table, windows, and the condition on rows."""
    use = view.query.blocks[0]
    return use.panes, use.windows, use.first, use.numbers, use.presence


class _Groups:
    """The groups of views on one pane table: k0.. and w, their partials r0.., and what each view shows."""

    def __init__(self, panes: Panes, views: Sequence[View], columns: Sequence[str] | None = None) -> None:
        self.panes, self.views = panes, tuple(views)
        first = self.views[0].query.blocks[0]
        used = dict.fromkeys(name for view in views for name in view.query.blocks[0].columns)
        self.use = use = replace(first, columns=tuple(used if columns is None else columns))
        self.key = (*_key(self.views[0]), *(view.id for view in views))
        self.size = use.sliding.size if use.sliding is not None else 0
        self.names = [f"k{index}" for index in range(len(panes.keys))] + (["w"] if use.sliding is not None else [])
        self.partials = [f"r{index}" for index in range(len(use.columns))]
        self.presence = quoted(use.presence)
        places = {name: index for index, name in enumerate(use.columns)}
        self.shapes = [_Shape(view, panes, number, places, self.names) for number, view in enumerate(self.views)]
        self.values = [name for shape in self.shapes for name in shape.values]

    def shape(self, view: View) -> _Shape:
        return next(shape for shape in self.shapes if shape.view.id == view.id)

    def columns(self) -> list[tuple[str, str | None]]:
        kinds = [duckdb_type(key.type) for key in self.panes.keys] + (["BIGINT"] if self.size else [])
        kinds += [duckdb_type(self.panes.column(name).type) for name in self.use.columns]
        return list(zip([*self.names, *self.partials], kinds, strict=True))

    def types(self) -> list[str]:
        """The types of a hot table."""
        kinds = [key.type for key in self.panes.keys] + (["bigint"] if self.size else [])
        kinds += [self.panes.column(name).type for name in self.use.columns]
        return kinds + [output.type for shape in self.shapes for output in shape.results]

    def match(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in self.names) or "true"

    def first_reduces(self, *, named: bool = False) -> list[str]:
        """The partials of panes, reduced, under short names or under their own."""
        columns = enumerate(self.use.columns)
        return [self._reduced(name, quoted(name), quoted(name) if named else f"r{i}") for i, name in columns]

    def _reduced(self, name: str, column: str, to: str) -> str:
        found = self.panes.column(name)
        return f"CAST({found.reduce_in_duckdb(column)} AS {duckdb_type(found.type)}) AS {to}"

    def fresh(self, hot: str) -> str:
        """The groups of `delta` reduced with those in memory; with what is to be shown, and what was."""
        names, partials = ", ".join(self.names), ", ".join(self.partials)
        given = ", ".join(map(quoted, self.use.columns))
        old = "".join(f", {name} AS was_{name}" for name in self.values)
        none = "".join(f", NULL AS was_{name}" for name in self.values)
        both = (
            f"SELECT {names}{', ' if names else ''}{partials}, true AS was{old} FROM {hot} h"
            f" SEMI JOIN delta d ON {self.match('d', 'h')}"
            f" UNION ALL SELECT {names}{', ' if names else ''}{given}, false{none} FROM delta"
        )
        shown = [f"any_value(was_{name}) FILTER (WHERE was) AS was_{name}" for name in self.values]
        again = [self._reduced(name, f"r{index}", f"r{index}") for index, name in enumerate(self.use.columns)]
        reduced = ", ".join([*self.names, *again, "bool_or(was) AS was", *shown])
        items = [item for shape in self.shapes for item in shape.shown_items()]
        everything = ", ".join([*self.names, *self.partials, *items, "was"])
        kept = "".join(f", was_{name}" for name in self.values)
        return f"SELECT {everything}{kept} FROM (SELECT {reduced} FROM ({both}) GROUP BY ALL)"


class _Shape:
    """What one of these views shows of a group: values o0_0.., with the number of the view first."""

    def __init__(self, view: View, panes: Panes, number: int, places: Mapping[str, int], names: Sequence[str]) -> None:
        self.view, self.panes, self.groups = view, panes, names
        self.use = view.query.blocks[0]
        self.size = self.use.sliding.size if self.use.sliding is not None else 0
        self.results = [output for output in view.query.direct if output.kind == "value"]
        self.values = [f"o{number}_{index}" for index in range(len(self.results))]
        self._partials = [f"r{places[name]}" for name in self.use.columns if name in places]

    def shown_items(self) -> list[str]:
        """The expressions to show, which name partials by their position in the view."""

        def placed(found: re.Match[str]) -> str:
            return self._partials[int(found[1])]

        pairs = zip(self.results, self.values, strict=True)
        return [f"{_PARTIAL.sub(placed, output.source)} AS {name}" for output, name in pairs]

    def _outputs(self) -> list[tuple[str, str]]:
        """The stored columns of a change: an expression over groups and values, and its name."""
        key = {each.name: f"k{index}" for index, each in enumerate(self.panes.keys)}
        value = {id(output): name for output, name in zip(self.results, self.values, strict=True)}
        stored = []
        for output in self.view.query.direct:
            if output.kind == "key":
                text = key[output.source]
            elif output.kind == "value":
                text = value[id(output)]
            else:
                text = window_text(output.kind, self.use)
            stored.append((f"CAST({text} AS {duckdb_type(output.type)})", quoted(output.name)))
        columns = self.view.keying.narrows[0].columns if self.view.keying.narrows else ()
        source = dict(zip((each.name for each in self.view.keying.columns), columns, strict=True))
        for hidden in self.view.hidden:
            name = source[hidden.name] or ""
            text = key[name] if name in key else window_text(name, self.use)
            stored.append((f"CAST({text} AS {duckdb_type(hidden.type)})", quoted(hidden.name)))
        return stored

    def changed(self, fresh: str, version: int, now: int) -> str:
        """The difference between what is to be shown of fresh groups and what was."""
        stored = ", ".join(f"{text} AS {name}" for text, name in self._outputs())
        new = ", ".join([*self.groups, *self.values, "1 AS _diff"])
        old = ", ".join([*self.groups, *(f"was_{name} AS {name}" for name in self.values), "-1 AS _diff"])
        same = " AND ".join(f"{name} IS NOT DISTINCT FROM was_{name}" for name in self.values) or "true"
        both = f"SELECT {new} FROM {fresh} WHERE NOT (was AND {same})"
        both += f" UNION ALL SELECT {old} FROM {fresh} WHERE was AND NOT ({same})"
        return (
            f"SELECT {stored}, CAST(_diff AS BIGINT) AS _diff, CAST({version} AS BIGINT) AS _version,"
            f" {timestamp(str(now))} AS _at FROM ({both})"
        )

    def shown(self, paths: list[str], groups: str) -> str:
        """The sum of changes, for the groups of a table."""
        columns = ", ".join(name for _, name in self._outputs())
        items = []
        for output in self.view.query.direct:
            column = f"c.{quoted(output.name)}"
            if output.kind == "key":
                index = next(i for i, each in enumerate(self.panes.keys) if each.name == output.source)
                items.append(f"{column} AS k{index}")
            elif output.kind == "value":
                items.append(f"{column} AS {self.values[self.results.index(output)]}")
            else:
                items.append(f"{_start_of(column, output.kind, self.size)} AS w")
        sources = self.view.keying.narrows[0].columns if self.view.keying.narrows else ()
        for key, name in zip(self.view.keying.columns, sources, strict=True):
            if key in self.view.hidden and name is not None:
                if name in {each.name for each in self.panes.keys}:
                    index = next(i for i, each in enumerate(self.panes.keys) if each.name == name)
                    items.append(f"c.{quoted(key.name)} AS k{index}")
                else:
                    items.append(f"{_start_of(f'c.{quoted(key.name)}', name, self.size)} AS w")
        unique = {item.rsplit(" AS ", 1)[1]: item for item in items}
        own = [f"g.{name} IS NOT DISTINCT FROM {unique[name].rsplit(' AS ', 1)[0]}" for name in self.groups]
        net = (
            f"SELECT {columns} FROM read_parquet({path_list(paths)}) c"
            f" WHERE EXISTS (SELECT 1 FROM {groups} g WHERE {' AND '.join(own) or 'true'})"
            f" GROUP BY {columns} HAVING sum(_diff) > 0"
        )
        return f"SELECT {', '.join(unique.values())} FROM ({net}) c"

    def nothing_shown(self) -> str:
        kinds = [duckdb_type(key.type) for key in self.panes.keys] + (["BIGINT"] if self.size else [])
        kinds += [duckdb_type(each.type) for each in self.results]
        names = (*self.groups, *self.values)
        items = [f"CAST(NULL AS {kind}) AS {name}" for kind, name in zip(kinds, names, strict=True)]
        return f"SELECT {', '.join(items) or '1'} WHERE false"


def _start_of(column: str, kind: str, size: int) -> str:
    """The start of a window in microseconds, from one of its bounds."""
    shift = {"window_start": 0, "window_end": size, "window_time": window_time(size, size)}[kind]
    return f"epoch_us({column}) - {shift}"
