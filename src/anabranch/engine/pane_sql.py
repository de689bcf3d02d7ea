"""Pane tables as DuckDB SQL: the partials of files by window, and what views show of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.algebra.windows import SlidingWindows, last_window_sql, window_time
from anabranch.duck import Variable, path_list, quoted, timestamp
from anabranch.engine.partial_windows import starts_sql
from anabranch.engine.tables import PANE, change_fields, group_size_fields, hidden_keys, window_position_fields
from anabranch.engine.writing import least
from anabranch.plan.states import WINDOW_COLUMNS, BlockUse, Panes
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import View

#: Further from the epoch than any event time (some 36,000 years), and near DuckDB's limit.
FAR = 2**60
#: Up to so many numbers are written as a list.
LISTED = 32


@dataclass(frozen=True)
class Columns:
    """Names on the way from panes to changes: keys k0.., the window's start w, reduced partials r0..."""

    view: View
    panes: Panes
    use: BlockUse
    windows: SlidingWindows

    def keys(self) -> list[str]:
        return [f"k{index}" for index in range(len(self.panes.keys))]

    def outputs(self) -> list[str]:
        """The stored outputs of a shown window, from a group of reduced partials."""
        hidden = [(f.name.removeprefix("_key_"), f.name) for f in hidden_keys(self.view, self.panes)]
        index = {key.name: f"k{i}" for i, key in enumerate(self.panes.keys)}
        return [
            *self.shown(),
            *(f"{index[key]} AS {quoted(name)}" for key, name in hidden),
            f"{timestamp('w')} AS _window",
        ]

    def shown(self) -> list[str]:
        """The shown columns of a view, from a group of reduced partials."""
        index = {key.name: f"k{i}" for i, key in enumerate(self.panes.keys)}
        items = []
        for output in self.view.query.direct:
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
        for output in self.view.query.direct:
            if output.kind == "key" and output.source == name:
                return quoted(output.name)
        return quoted(f"_key_{name}")


def pane_relation(
    name: str, panes: Panes, use: BlockUse, paths: list[str] | Variable, low: int | None = None, high: int | None = None
) -> str:
    """Files of a pane table as a DuckDB relation: keys k0.., w for the start of each window, and the partials."""
    return windows_in(name, panes, use, pane_source(panes, use.columns, paths), low, high)


def windows_in(
    name: str, panes: Panes, use: BlockUse, source: str, low: int | None = None, high: int | None = None
) -> str:
    """The same for partials in a relation."""
    columns = [quoted(column) for column in use.columns]
    where = f" WHERE true{within(low, high)}"
    keys = [f"{quoted(key.name)} AS k{index}" for index, key in enumerate(panes.keys)]
    windows = use.sliding
    starts = [f"{window_starts(panes, windows)} AS w"] if windows is not None else []
    if windows is not None and not windows.tumbling and _even(panes, windows):
        # Each pane is in as many windows: in DuckDB a join with numbers costs half as much as unnesting lists.
        last = last_window_sql(f"epoch_us({PANE})", windows, panes.grain, "duckdb")
        starts = [f"__last - __back * {windows.slide} AS w"]
        numbers = f"range({windows.size // windows.slide}) AS __before(__back)"
        source = f"(SELECT *, {last} AS __last FROM {source}), {numbers}"
    items = ", ".join([*keys, *starts, *columns])
    return f"{name} AS (SELECT {items} FROM {source}{where})"


def window_rows(panes: Panes, use: BlockUse, source: str) -> str:
    """Partials of a pane table as a view sees them: a row for each window of a pane, with the window's bounds."""
    keys = [f"k{index} AS {quoted(key.name)}" for index, key in enumerate(panes.keys)]
    bounds = [f"{window_text(name, use)} AS {name}" for name in WINDOW_COLUMNS] if use.windows is not None else []
    items = ", ".join([*keys, *bounds, *(quoted(name) for name in use.columns)])
    return f"(WITH {windows_in('__panes', panes, use, source)} SELECT {items} FROM __panes)"


def _even(panes: Panes, windows: SlidingWindows) -> bool:
    """Whether all partials are in the same number of windows."""
    return windows.size % windows.slide == 0 and not panes.spanned


def windows_shown(view: View, panes: Panes, use: BlockUse, paths: list[str]) -> str | None:
    """The answer of a view with plain items for all its windows, as a relation over files of its pane table.

    Groups are only by window number: the bounds follow from it, and the range of numbers from the files, so that DuckDB
    can use an array instead of a hash table. Counts are never negative, so their maximum says whether there are rows,
    unless all partials have some. None where partials are in different numbers of windows.
    """
    windows = use.sliding
    if windows is None or not view.query.direct or not _even(panes, windows):
        return None
    names = Columns(view, panes, use, windows)
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
        f"SELECT {', '.join([*names.keys(), f'__number * {slide} + {first} AS w', *reduced_columns(panes, use)])}"
        f" FROM ({placed}) GROUP BY {', '.join([*names.keys(), '__number'])}{there}"
    )
    return f"(SELECT {', '.join(names.shown())} FROM ({reduced}))"


def _numbers(count: int) -> str:
    """The numbers from 0 on: a list, whose length DuckDB knows, or, if they are many, a range."""
    if count > LISTED:
        return f"range({count})"
    return f"({' UNION ALL '.join(f'SELECT CAST({number} AS BIGINT)' for number in range(count))})"


def within(low: int | None, high: int | None) -> str:
    """The additional conditions for panes in [low, high); without bounds that no time exceeds, such as the end."""
    since = f" AND {PANE} >= {timestamp(str(min(low, FAR)))}" if low is not None and low > -FAR else ""
    return since + (f" AND {PANE} < {timestamp(str(high))}" if high is not None and high < FAR else "")


def window_starts(panes: Panes, windows: SlidingWindows) -> str:
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


def pane_source(panes: Panes, columns: Iterable[str], paths: list[str] | Variable) -> str:
    """Files of a pane table as a DuckDB relation. Columns that no file has yet are NULL."""
    shape = [(key.name, duckdb_type(key.type)) for key in panes.keys]
    shape += [
        (field.name, duckdb_type(field.type)) for field in (*window_position_fields(panes), *group_size_fields(panes))
    ]
    shape += [(name, duckdb_type(panes.column(name).type)) for name in columns]
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in shape)
    files = f"read_parquet({path_list(paths)}, union_by_name = true)"
    return f"(SELECT * FROM {files} UNION ALL BY NAME SELECT {empty} WHERE false)"


def reduced_columns(panes: Panes, use: BlockUse) -> list[str]:
    items = []
    for index, name in enumerate(use.columns):
        items.append(f"{panes.column(name).reduce_in_duckdb(quoted(name))} AS r{index}")
    return items
