"""Changes of a view that shows a window when it closes: insert what closed, correct what was shown and changed.

    delta = f(partials of the touched windows and keys) - what was shown for them

Plain aggregates are computed beside the ledger's files by DuckDB, which costs milliseconds where a Spark job costs
tenths of a second. Anything of the user's own (expressions, HAVING, what stands above the aggregate) is Spark's, as in
any other node that waits for progress.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.algebra.plane import needed
from anabranch.algebra.progress import END
from anabranch.algebra.rules import highest
from anabranch.algebra.windows import SlidingWindows, last_window_sql, window_time
from anabranch.duck import connect, counting_all, path_list, quoted, quoted_text, timestamp
from anabranch.engine import read
from anabranch.engine.core import Core
from anabranch.engine.late import LateRows
from anabranch.engine.moves import Held, KeyBounds, Moves, hold, key_bounds, progress, shown_before
from anabranch.engine.place import TAKEN
from anabranch.engine.places import starts_sql
from anabranch.engine.tables import PANE, change_fields, hidden_keys, place_fields, standing_fields
from anabranch.engine.writing import footer_range, least
from anabranch.ledger import DataFile, Snapshot
from anabranch.ledger.arrivals import Written
from anabranch.ledger.crash import reach
from anabranch.plan.catalog import WINDOW_COLUMNS, BlockUse, Catalog, Panes, View
from anabranch.plan.views import duckdb_type

if TYPE_CHECKING:
    import duckdb

#: The bounds of keys that are further than their stream, for DuckDB.
MARKS = "_marks"
#: Before all times.
EARLIEST = -(2**62)
#: No event time is as far from the epoch as this (some 36,000 years), and DuckDB has no times that are much further.
FAR = 2**60
#: Up to so many numbers are written down one by one.
LISTED = 32
Added = Mapping[str, tuple[DataFile, ...]]


def changes(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    moves: Moves,
    added: Added,
    late: list[LateRows],
    held: dict[str, Held],
    made: bool = False,
) -> tuple[tuple[DataFile, ...], str]:
    """Compute the changes of one view for a commit and write them; its files, none if nothing changed, and where.

    Late rows of windows that were shown are added to `late`. A view with a budget says in `held` how far it has come;
    one that is just made shows everything.
    """
    before, after = (progress(core, catalog, view, snapshot, moves, which) for which in (0, 1))
    if view.budget is not None and after is not None:
        before = shown_before(view, snapshot, before)
        held[view.id] = Held(after) if made else _within_budget(core, catalog, view, snapshot, before, after, added)
        after = held[view.id].bound
    closing = Closing(before, after, key_bounds(core, catalog, view, snapshot, moves))
    if closing.furthest_after is None or not _anything_to_do(view, closing, added):
        return (), str(TAKEN)
    scope = _scope(catalog, view, closing, added)
    verdict = core.place.takes_closing(scope.rows(snapshot))
    if not verdict:
        from anabranch.engine.emit_spark import ClosingJob

        return ClosingJob(core, catalog, view, snapshot, closing, scope).changes(late), str(verdict)
    import duckdb

    try:
        return _by_duckdb(core, catalog, view, snapshot, closing, scope, late), str(verdict)
    except duckdb.DataError:
        _ask_spark(core, catalog, view, snapshot, closing, added)
        raise


def _ask_spark(core: Core, catalog: Catalog, view: View, snapshot: Snapshot, closing: Closing, added: Added) -> None:
    """Let Spark compute the windows that DuckDB has no value for: it tells of an overflow, say, in its own words."""
    from anabranch.engine.maintain import overlaid

    after = overlaid(snapshot, added)
    whole = read.view_query(core, catalog, view, after, closed_by=closing.furthest_after)
    whole.write.format("noop").mode("overwrite").save()


def _within_budget(
    core: Core, catalog: Catalog, view: View, snapshot: Snapshot, before: int | None, after: int, added: Added
) -> Held:
    """How far a view with a budget shows its windows in this commit."""
    use = view.blocks[0]
    panes, windows = catalog.panes(use.panes), use.sliding
    assert windows is not None
    if after == END or needed(before, [windows]) == needed(after, [windows]):
        return hold(view, snapshot, after, ())
    low = None if before is None else before - windows.size
    new = tuple(file for file in added.get(panes.id, ()) if file.may_hold(low, after))
    scope = Scope(panes.id, windows, new, low, after)
    paths = scope.paths(core, snapshot)
    if not paths:
        return hold(view, snapshot, after, ())
    if not core.place.takes_closing(scope.rows(snapshot)):
        from anabranch.engine.emit_spark import ClosingJob

        job = ClosingJob(core, catalog, view, snapshot, Closing(before, after), scope)
        return hold(view, snapshot, after, job.counts(before, after))
    # Only a budget of rows has to know how many keys a window has; without them there is little to put into windows.
    keys = panes.keys if (view.budget or {}).get("rows") else ()
    place = [field.name for field in place_fields(panes)]
    there = ", ".join([*(f"{quoted(key.name)} AS k{index}" for index, key in enumerate(keys)), *place])
    exploded = ", ".join([*(f"k{index}" for index in range(len(keys))), f"{_starts(panes, windows)} AS w"])
    size, present = windows.size, f"{quoted(use.presence)} > 0{_within(low, after)}"
    text = (
        f"WITH there AS (SELECT DISTINCT {there} FROM {pane_source(panes, use.columns, paths)}"
        f" WHERE {present}), exploded AS (SELECT DISTINCT {exploded}"
        f" FROM there) SELECT w + {size}, count(*) FROM exploded"
        f" WHERE w + {size} > {EARLIEST if before is None else before} AND w + {size} <= {after} GROUP BY w"
    )
    return hold(view, snapshot, after, connection().sql(text).fetchall())


@dataclass(frozen=True)
class Scope:
    """Which partials a commit of a view reads: its own, and those of panes in [low, high) that were there.

    `late`: some of its own may be in windows that were shown.
    """

    panes: str
    windows: SlidingWindows
    new: tuple[DataFile, ...]
    low: int | None
    high: int | None
    late: bool = False

    @property
    def size(self) -> int:
        return self.windows.size

    def rows(self, snapshot: Snapshot) -> int:
        """How many partials that is, each as often as it is in some window."""
        there = snapshot.files.get(self.panes, {}).values()
        rows = sum(file.rows for file in (*self.new, *(each for each in there if each.may_hold(self.low, self.high))))
        return rows * -(-self.windows.size // self.windows.slide)

    def paths(self, core: Core, snapshot: Snapshot) -> list[str]:
        return snapshot.table_paths(core.ledger, self.panes, self.low, self.high) + self.new_paths(core)

    def new_paths(self, core: Core) -> list[str]:
        folder = core.ledger.table_folder(self.panes)
        return [str(folder / file.path) for file in self.new]


def _scope(catalog: Catalog, view: View, closing: Closing, added: Added) -> Scope:
    """Panes of windows that close now start at the earliest a window's length before the old bound; those of windows
    that late rows change, before these."""
    use = view.blocks[0]
    windows, new = use.sliding, added.get(use.panes, ())
    assert windows is not None
    before, after = closing.furthest_before, closing.furthest_after
    lows = [file.low for file in new if file.low is not None]
    late = before is not None and any(_in_closed(windows, low, before) for low in lows)
    low = closing.floor - windows.size
    low = min(low, min(lows) - windows.size) if late else low
    return Scope(catalog.panes(use.panes).id, windows, new, low, None if after == END else after, late)


@dataclass(frozen=True)
class Closing:
    """Up to where windows had closed before a commit, and have closed after it; some keys further than the others."""

    before: int | None
    after: int | None
    keys: KeyBounds | None = None

    @property
    def floor(self) -> int:
        return EARLIEST if self.before is None else self.before

    @property
    def furthest_before(self) -> int | None:
        return self.before if self.keys is None else highest(self.before, self.keys.furthest[0])

    @property
    def furthest_after(self) -> int | None:
        return self.after if self.keys is None else highest(self.after, self.keys.furthest[1])

    def moves(self) -> Iterable[tuple[int | None, int | None]]:
        """The bounds of the stream, and of each key that has its own."""
        yield self.before, self.after
        for part in self.keys.parts() if self.keys is not None else ():
            assert self.keys is not None
            yield highest(self.before, self.keys.before.get(part)), highest(self.after, self.keys.after.get(part))

    def marks(self) -> Any:
        """The bounds of keys as an Arrow table."""
        import pyarrow as pa

        assert self.keys is not None
        parts = self.keys.parts()
        columns = [[bounds.get(part) for part in parts] for bounds in (self.keys.before, self.keys.after)]
        return pa.table(
            {
                "part": pa.array(parts, pa.string()),
                "before": pa.array(columns[0], pa.int64()),
                "after": pa.array(columns[1], pa.int64()),
            }
        )

    def sql(self) -> tuple[str, str, str]:
        """For a row with keys: its bounds before and after, and what to join for them."""
        before, after = (str(EARLIEST if bound is None else bound) for bound in (self.before, self.after))
        if self.keys is None:
            return before, after, ""
        key = f"coalesce('=' || CAST(k{self.keys.index} AS VARCHAR), '')"
        join = f" LEFT JOIN {MARKS} m ON m.part = {key}"
        return (
            f"greatest({before}, coalesce(m.before, {before}))",
            f"greatest({after}, coalesce(m.after, {after}))",
            join,
        )


def _anything_to_do(view: View, closing: Closing, added: Added) -> bool:
    """A run that closes no window and touches no closed one changes nothing that is shown."""
    for use in view.blocks:
        windows = use.sliding
        assert windows is not None
        if any(needed(before, [windows]) != needed(after, [windows]) for before, after in closing.moves()):
            return True
        before = closing.furthest_before
        if before is not None and any(
            file.low is None or _in_closed(windows, file.low, before) for file in added.get(use.panes, ())
        ):
            return True
    return False


def _in_closed(windows: SlidingWindows, pane: int, before: int) -> bool:
    """Whether the first window that holds a pane had closed; a pane below the bound can be in open windows only."""
    return windows.closed_before(pane) < windows.closed_before(before)


# ------------------------------------------------------------------------------------------ on the driver


@dataclass(frozen=True)
class _Columns:
    """Names on the way from panes to changes: keys k0.., the window's start w, reduced partials r0..."""

    view: View
    panes: Panes
    use: BlockUse
    windows: SlidingWindows

    def keys(self) -> list[str]:
        return [f"k{index}" for index in range(len(self.panes.keys))]

    def outputs(self) -> list[str]:
        """What is kept of a window that is shown, from a group of reduced partials."""
        hidden = [(f.name.removeprefix("_key_"), f.name) for f in hidden_keys(self.view, self.panes)]
        index = {key.name: f"k{i}" for i, key in enumerate(self.panes.keys)}
        return [
            *self.shown(),
            *(f"{index[key]} AS {quoted(name)}" for key, name in hidden),
            f"{timestamp('w')} AS _window",
        ]

    def shown(self) -> list[str]:
        """What a view shows, from a group of reduced partials."""
        index = {key.name: f"k{i}" for i, key in enumerate(self.panes.keys)}
        items = []
        for output in self.view.direct:
            if output.kind == "key":
                text = index[output.source]
            elif output.kind == "value":
                text = output.source
            else:
                text = window_text(output.kind, self.use)
            items.append(f"CAST({text} AS {duckdb_type(output.type)}) AS {quoted(output.name)}")
        return items

    def stored(self) -> list[str]:
        """The columns of a change without its count and version."""
        return [quoted(f.name) for f in change_fields(self.view, self.panes) if f.name not in ("_diff", "_version")]

    def stored_key(self, index: int) -> str:
        """The column of the changes that holds a key."""
        name = self.panes.keys[index].name
        for output in self.view.direct:
            if output.kind == "key" and output.source == name:
                return quoted(output.name)
        return quoted(f"_key_{name}")


def _by_duckdb(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    closing: Closing,
    scope: Scope,
    counted: list[LateRows],
) -> tuple[DataFile, ...]:
    use = view.blocks[0]
    panes, windows = catalog.panes(use.panes), use.sliding
    assert windows is not None
    names = _Columns(view, panes, use, windows)
    ledger, fresh_paths = core.ledger, scope.new_paths(core)
    before, after = closing.furthest_before, closing.furthest_after
    duck = connection()
    if closing.keys is not None:
        duck.register(MARKS, closing.marks())
    shown_before, shown_after, marks = closing.sql()
    if scope.late and before is not None:
        came = _late_rows(names, fresh_paths, before, f"{marks} WHERE w + {windows.size} <= {shown_before}")
        counted += came
        if not came or view.late != "correct":
            scope = replace(scope, low=closing.floor - windows.size, late=False)
    late, low, high = scope.late, scope.low, scope.high
    paths = scope.paths(core, snapshot)
    if not paths:
        return ()
    closes = f"w + {windows.size} > {shown_before}"
    closes += "" if after == END else f" AND w + {windows.size} <= {shown_after}"
    keys, reduces = names.keys(), _reduces(panes, use)
    ctes = [pane_relation("exploded", panes, use, paths, low, high)]
    chosen = closes
    if late:
        ctes.append(pane_relation("late", panes, use, fresh_paths, None, before))
        ctes.append(
            f"touched AS (SELECT DISTINCT {', '.join([*keys, 'w'])} FROM late{marks}"
            f" WHERE w + {windows.size} <= {shown_before})"
        )
        matches = " AND ".join(["t.w = e.w", *(f"t.{key} IS NOT DISTINCT FROM e.{key}" for key in keys)])
        chosen = f"({closes}) OR EXISTS (SELECT 1 FROM touched t WHERE {matches})"
    ctes.append(
        f"reduced AS (SELECT {', '.join([*keys, 'w', *reduces])} FROM exploded e{marks} WHERE {chosen}"
        f" GROUP BY {', '.join([*keys, 'w'])} HAVING sum({quoted(use.presence)}) > 0)"
    )
    ctes.append(f"fresh AS (SELECT {', '.join(names.outputs())} FROM reduced)")
    stored = ", ".join(names.stored())
    version = snapshot.version + 1
    final = f"SELECT {stored}, CAST(1 AS BIGINT) AS _diff FROM fresh"
    if late:
        shown_paths = snapshot.table_paths(ledger, view.changes_table, low, before)
        if shown_paths:
            on = " AND ".join(
                [
                    "epoch_us(c._window) = t.w",
                    *(f"c.{names.stored_key(i)} IS NOT DISTINCT FROM t.k{i}" for i in range(len(keys))),
                ]
            )
            columns = ", ".join(f"c.{name}" for name in names.stored())
            ctes.append(
                f"shown AS (SELECT {columns}, sum(c._diff) AS _count"
                f" FROM read_parquet({path_list(shown_paths)}) c JOIN touched t ON {on}"
                " GROUP BY ALL HAVING _count <> 0)"
            )
            final = (
                f"SELECT {stored}, CAST(sum(_count) AS BIGINT) AS _diff FROM (SELECT {stored}, 1 AS _count FROM fresh"
                f" UNION ALL SELECT {stored}, -_count FROM shown) GROUP BY ALL HAVING sum(_count) <> 0"
            )
    text = f"WITH {', '.join(ctes)} SELECT *, CAST({version} AS BIGINT) AS _version FROM ({final})"
    return copy_to_table(core, duck, text, view.changes_table, "_window")


def _late_rows(names: _Columns, paths: list[str], before: int, closed: str) -> list[LateRows]:
    """How many rows came for windows that had closed; a view that is made to fail then does so."""
    size, presence = names.windows.size, quoted(names.use.presence)
    relation = pane_relation("late", names.panes, names.use, paths, None, before)
    text = (
        f"WITH {relation} SELECT w, CAST(sum({presence}) AS BIGINT) AS n"
        f" FROM late{closed} GROUP BY w HAVING n > 0 ORDER BY w"
    )
    found = [LateRows(names.view, start, start + size, rows) for start, rows in connection().sql(text).fetchall()]
    for each in found:
        each.check()
    return found


def pane_relation(
    name: str, panes: Panes, use: BlockUse, paths: list[str], low: int | None = None, high: int | None = None
) -> str:
    """Files of a pane table as a DuckDB relation: keys k0.., w for the start of each window, and the partials."""
    return windows_in(name, panes, use, pane_source(panes, use.columns, paths), low, high)


def windows_in(
    name: str, panes: Panes, use: BlockUse, source: str, low: int | None = None, high: int | None = None
) -> str:
    """The same of partials that are in a relation."""
    columns = [quoted(column) for column in use.columns]
    where = f" WHERE true{_within(low, high)}"
    keys = [f"{quoted(key.name)} AS k{index}" for index, key in enumerate(panes.keys)]
    windows = use.sliding
    starts = [f"{_starts(panes, windows)} AS w"] if windows is not None else []
    if windows is not None and not windows.tumbling and _even(panes, windows):
        # Each pane is in as many windows: DuckDB joins with so many numbers at half the price of lists of them.
        last = last_window_sql(f"epoch_us({PANE})", windows, panes.grain, "duckdb")
        starts = [f"__last - __back * {windows.slide} AS w"]
        numbers = f"range({windows.size // windows.slide}) AS __before(__back)"
        source = f"(SELECT *, {last} AS __last FROM {source}), {numbers}"
    items = ", ".join([*keys, *starts, *columns])
    return f"{name} AS (SELECT {items} FROM {source}{where})"


def window_rows(panes: Panes, use: BlockUse, source: str) -> str:
    """Partials of a pane table as a view sees them: a row for each window a pane is in, with the window's bounds."""
    keys = [f"k{index} AS {quoted(key.name)}" for index, key in enumerate(panes.keys)]
    bounds = [f"{window_text(name, use)} AS {name}" for name in WINDOW_COLUMNS] if use.windows is not None else []
    items = ", ".join([*keys, *bounds, *(quoted(name) for name in use.columns)])
    return f"(WITH {windows_in('__panes', panes, use, source)} SELECT {items} FROM __panes)"


def _even(panes: Panes, windows: SlidingWindows) -> bool:
    """Whether each partial is in as many windows as any other."""
    return windows.size % windows.slide == 0 and not panes.spanned


def windows_shown(view: View, panes: Panes, use: BlockUse, paths: list[str]) -> str | None:
    """What a view with plain items shows of all its windows, as a relation over files of its pane table.

    Windows are grouped by their number and nothing else: their bounds follow from it, and between which numbers they
    are is known from the files, so that DuckDB may have a place for each in the stead of a hash table. Counts are never
    below 0, so the greatest says whether there are rows, unless that is known of all partials. None where these are not
    in as many windows each.
    """
    windows = use.sliding
    if windows is None or not view.direct or not _even(panes, windows):
        return None
    names = _Columns(view, panes, use, windows)
    first, slide, count = windows.first_start, windows.slide, windows.size // windows.slide
    last = last_window_sql(f"epoch_us({PANE})", windows, panes.grain, "duckdb")
    number, source = f"({last} - {first}) // {slide}", pane_source(panes, use.columns, paths)
    keys = [f"{quoted(key.name)} AS {name}" for key, name in zip(panes.keys, names.keys(), strict=True)]
    columns = [quoted(name) for name in use.columns]
    placed = f"SELECT {', '.join([*keys, f'{number} AS __number', *columns])} FROM {source}"
    if count > 1:
        items = ", ".join([*names.keys(), "__number - __back AS __number", *columns])
        placed = f"SELECT {items} FROM ({placed}), {_numbers(count)} AS __before(__back)"
    presence = quoted(use.presence)
    there = "" if all(least(path, use.presence) for path in paths) else f" HAVING max({presence}) > 0"
    reduced = (
        f"SELECT {', '.join([*names.keys(), f'__number * {slide} + {first} AS w', *_reduces(panes, use)])}"
        f" FROM ({placed}) GROUP BY {', '.join([*names.keys(), '__number'])}{there}"
    )
    return f"(SELECT {', '.join(names.shown())} FROM ({reduced}))"


def _numbers(count: int) -> str:
    """The numbers from 0 on, so that DuckDB knows how many they are; of a range it does not, but they may be many."""
    if count > LISTED:
        return f"range({count})"
    return f"({' UNION ALL '.join(f'SELECT CAST({number} AS BIGINT)' for number in range(count))})"


def _within(low: int | None, high: int | None) -> str:
    """What holds besides for panes of [low, high); bounds that no time is beyond, such as the end, say nothing."""
    since = f" AND {PANE} >= {timestamp(str(min(low, FAR)))}" if low is not None and low > -FAR else ""
    return since + (f" AND {PANE} < {timestamp(str(high))}" if high is not None and high < FAR else "")


def _starts(panes: Panes, windows: SlidingWindows) -> str:
    if windows.tumbling:
        return last_window_sql(f"epoch_us({PANE})", windows, panes.grain, "duckdb")
    return f"unnest({starts_sql(panes, windows, 'duckdb')})"


def window_text(kind: str, use: BlockUse) -> str:
    """A column of the window that starts at w."""
    assert use.windows is not None
    size, slide, _ = use.windows
    if kind == "window_id":
        return f"CAST((w - {use.window_zero}) // {slide} AS BIGINT)"
    if use.numbers:
        return f"w + { {'window_start': 0, 'window_end': size, 'window_time': size - 1}[kind] }"
    return timestamp(f"w + { {'window_start': 0, 'window_end': size, 'window_time': window_time(size, size)}[kind] }")


def pane_source(panes: Panes, columns: Iterable[str], paths: list[str]) -> str:
    """Files of a pane table as a DuckDB relation. A column that none of them has yet is there all the same, as NULL."""
    shape = [(key.name, duckdb_type(key.type)) for key in panes.keys]
    shape += [(field.name, duckdb_type(field.type)) for field in (*place_fields(panes), *standing_fields(panes))]
    shape += [(name, duckdb_type(panes.column(name).type)) for name in columns]
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in shape)
    files = f"read_parquet({path_list(paths)}, union_by_name = true)"
    return f"(SELECT * FROM {files} UNION ALL BY NAME SELECT {empty} WHERE false)"


def _reduces(panes: Panes, use: BlockUse) -> list[str]:
    items = []
    for index, name in enumerate(use.columns):
        items.append(f"{panes.column(name).reduce_in_duckdb(quoted(name))} AS r{index}")
    return items


def copy_to_table(
    core: Core, duck: duckdb.DuckDBPyConnection, text: str, table_id: str, time: str | None
) -> tuple[DataFile, ...]:
    """Write what a DuckDB query gives as files of a table."""
    import duckdb

    options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 100000"

    def write(path: Path) -> Written:
        try:
            with counting_all(text):
                done = duck.execute(f"COPY ({text}) TO {quoted_text(str(path))} ({options})").fetchone()
        except duckdb.IOException as error:
            raise OSError((str(error).splitlines() or [""])[0]) from error
        assert done is not None
        low, high = footer_range(path, time) if time is not None and done[0] else (None, None)
        return done[0], low, high

    file = core.ledger.write(table_id, write)
    reach("after-adopt")
    if file.rows:
        return (file,)
    core.ledger.discard(table_id, file)
    return ()


_connections = threading.local()


def connection() -> duckdb.DuckDBPyConnection:
    """The DuckDB of this thread."""
    duck: Any = getattr(_connections, "duck", None)
    if duck is None:
        duck = _connections.duck = connect()
    return duck  # type: ignore[no-any-return]
