"""Changes of a view that shows windows when they close, by Spark: the same as `emit` computes on the driver, for
windows of any size. No keys of a window are collected on the driver, only one row for each window with late rows."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.algebra.progress import END
from anabranch.algebra.smoothing import Budget
from anabranch.engine import read
from anabranch.engine.closing_bounds import Closing, Scope
from anabranch.engine.core import Core
from anabranch.engine.late import LateRows
from anabranch.engine.maintain.closing import marks_frames, spark_bounds
from anabranch.engine.pane_sql import FAR
from anabranch.engine.tables import PANE, change_fields, hidden_keys, net_sql, pane_fields
from anabranch.engine.writing import write_frame
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.states import Panes
from anabranch.plan.view import View
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_END = "unix_micros(__r.window_end)"


@dataclass(frozen=True)
class ClosingJob:
    """The windows that close in one commit of a view, and the files to read."""

    core: Core
    catalog: Catalog
    view: View
    snapshot: Snapshot
    closing: Closing
    scope: Scope
    wide: bool = False  # whether sums of BIGINT are computed as decimals: intermediate sums may overflow

    def changes(self, counted: list[LateRows]) -> tuple[DataFile, ...]:
        """The changes of the commit as files; adds late rows of shown windows to `counted`."""
        touched = self._touched(counted) if self.scope.late else None
        touched = touched.persist() if touched is not None else None
        try:
            fresh = self._to_show(self._chosen(touched)).selectExpr("*", "CAST(1 AS BIGINT) AS _diff")
            stored = self._stored()
            if touched is not None:
                shown = self._shown(touched).selectExpr(*stored, "-_diff AS _diff")
                both = fresh.select(*stored, "_diff").unionAll(shown)
                fresh = self.core.frames.sql(net_sql(", ".join(stored), "`@both`"), {"@both": both})
            version = f"CAST({self.snapshot.version + 1} AS BIGINT) AS _version"
            return self._write(fresh.selectExpr(*stored, "_diff", version))
        finally:
            if touched is not None:
                touched.unpersist()

    def counts(self, before: int | None, after: int) -> list[tuple[int, int]]:
        """The ends of the windows that closed in (before, after], and their numbers of keys, where these matter."""
        use = self.view.query.blocks[0]
        keys = self._keys() if (self.view.emission.budget or Budget()).rows else []
        there = f"{quote_name(use.presence)} > 0 AND {_END} <= {after}"
        there += "" if before is None else f" AND {_END} > {before}"
        text = (
            f"SELECT unix_micros(window_end), count(*) FROM (SELECT DISTINCT {', '.join([*keys, 'window_end'])}"
            f" FROM `@rows` AS __r WHERE {there}) GROUP BY window_end"
        )
        return [(end, count) for end, count in self.core.frames.sql(text, {"@rows": self._panes()}).collect()]

    # ---- partials

    @cached_property
    def panes(self) -> Panes:
        return self.catalog.panes(self.view.query.blocks[0].panes)

    def _keys(self) -> list[str]:
        return [quote_name(key.name) for key in self.panes.keys]

    def _panes(self, *, new: bool = False) -> DataFrame:
        """Partials by each of their windows; with `new`, those that this commit adds to closed windows."""
        low, high = self.scope.low, self.scope.high
        paths = self.scope.paths(self.core, self.snapshot)
        if new:
            low, high, paths = None, self.closing.furthest_before, self.scope.new_paths(self.core)
        frame = self.core.frames.parquet(paths, pane_fields(self.panes))
        if low is not None and low > -FAR:
            frame = frame.where(f"{PANE} >= timestamp_micros({min(low, FAR)})")
        if high is not None and high < FAR:
            frame = frame.where(f"{PANE} < timestamp_micros({high})")
        frame = read.pane_frame(self.core, self.panes, self.view.query.blocks[0], paths, partials=frame)
        sums = [each.name for each in self.panes.columns if each.type == "bigint" and "sum({c})" in each.reduce]
        wide = {quote_name(name) for name in sums} if self.wide else set()
        columns = map(quote_name, frame.columns)
        return frame.selectExpr(*(f"CAST({c} AS DECIMAL(38, 0)) AS {c}" if c in wide else c for c in columns))

    def _bounds(self) -> tuple[str, str, str, dict[str, DataFrame]]:
        """The bounds of a row __r before and after the commit, and the join that they need."""
        keys = self.closing.keys
        column = self.panes.keys[keys.index].name if keys is not None else ""
        return (*spark_bounds(self.closing, column), marks_frames(self.core, self.closing))

    def _chosen(self, touched: DataFrame | None) -> DataFrame:
        """The partials of windows that close, and of shown windows with late rows."""
        before, after, marks, frames = self._bounds()
        closes = f"{_END} > {before}"
        closes += "" if self.closing.furthest_after == END else f" AND {_END} <= {after}"
        rows = self._panes()
        chosen = self.core.frames.sql(
            f"SELECT __r.* FROM `@rows` AS __r{marks} WHERE {closes}", {"@rows": rows, **frames}
        )
        if touched is None:
            return chosen
        return chosen.unionAll(self._of(rows, touched, self._keys(), "window_start"))

    def _of(self, rows: DataFrame, touched: DataFrame, keys: list[str], start: str) -> DataFrame:
        """The rows whose window and key late rows touch; NULL is a key like any other."""
        same = [f"__r.{key} <=> __t.k{index}" for index, key in enumerate(keys)]
        on = " AND ".join([*same, f"__r.{start} = __t.start"])
        text = f"SELECT __r.* FROM `@rows` AS __r LEFT SEMI JOIN `@touched` AS __t ON {on}"
        return self.core.frames.sql(text, {"@rows": rows, "@touched": touched})

    def _touched(self, counted: list[LateRows]) -> DataFrame | None:
        """The windows and keys that late rows change; None for none, or if the view ignores late rows."""
        before, _, marks, frames = self._bounds()
        frames["@rows"] = self._panes(new=True)
        late, presence = (
            f"FROM `@rows` AS __r{marks} WHERE {_END} <= {before}",
            quote_name(self.view.query.blocks[0].presence),
        )
        text = (
            f"SELECT unix_micros(window_start) AS w, CAST(sum({presence}) AS BIGINT) AS n {late}"
            f" GROUP BY window_start HAVING sum({presence}) > 0 ORDER BY w"
        )
        rows = self.core.frames.sql(text, frames).collect()
        found = [LateRows(self.view, start, start + self.scope.size, count) for start, count in rows]
        for each in found:
            each.check()
        counted += found
        if not found or self.view.emission.late != "correct":
            return None
        keys = [f"__r.{key} AS k{index}" for index, key in enumerate(self._keys())]
        return self.core.frames.sql(f"SELECT DISTINCT {', '.join([*keys, 'window_start AS start'])} {late}", frames)

    # ---- shown rows

    def _stored(self) -> list[str]:
        """The columns of a change without its count and version."""
        fields = change_fields(self.view, self.panes)
        return [quote_name(field.name) for field in fields if field.name not in ("_diff", "_version")]

    def _to_show(self, partials: DataFrame) -> DataFrame:
        """The view's own query over partials, with its hidden keys and the start of the window."""
        view, use = self.view, self.view.query.blocks[0]
        hidden = hidden_keys(view, self.panes)
        more = [f"any_value({quote_name(each.name.removeprefix('_key_'))})" for each in hidden]
        source = re.compile(rf"\sFROM\s+{re.escape(quote_name(use.placeholder))}")
        (place,) = [match.start() for match in source.finditer(view.query.text)]
        text = f"{view.query.text[:place]}, {', '.join([*more, 'min(window_start)'])}{view.query.text[place:]}"
        names = [field.name for field in (*view.fields, *hidden)]
        return self.core.frames.sql(text, {use.placeholder: partials}).toDF(*names, "_window")

    def _shown(self, touched: DataFrame) -> DataFrame:
        """The shown rows of touched windows and keys, as changes."""
        low, high = self.scope.low, self.closing.furthest_before
        fields = change_fields(self.view, self.panes)
        changes = self.core.table_frame(self.view.changes_table, fields, self.snapshot, low, high)
        shown = {output.source: output.name for output in self.view.query.direct if output.kind == "key"}
        keys = [quote_name(shown.get(key.name, f"_key_{key.name}")) for key in self.panes.keys]
        return self._of(changes, touched, keys, "_window")

    def _write(self, changed: DataFrame) -> tuple[DataFile, ...]:
        small = self.scope.rows(self.snapshot) <= self.core.place.limits.small_rows
        ledger, staged = self.core.ledger, list[Path]()
        try:
            return write_frame(ledger, self.view.changes_table, changed, small=small, time="_window", staged=staged)
        finally:
            for folder in staged:
                shutil.rmtree(folder, ignore_errors=True)
