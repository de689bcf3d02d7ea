"""The stream part: what one run of rows adds to the state of the views. Partials per pane and key, or rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.algebra.windows import pane_start_sql
from anabranch.engine.core import Core
from anabranch.engine.tables import PANE
from anabranch.plan.bind import micros_sql
from anabranch.plan.blocks import STREAM
from anabranch.plan.catalog import Catalog, Panes, PartialColumn, Rows, Stream, Table
from anabranch.sql.lexer import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StreamPart:
    """Frames of partials and rows, from frames of rows."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._columns: dict[Any, tuple[list[Any], list[Any]]] = {}

    def partials(
        self, panes: Panes, catalog: Catalog, good: DataFrame, columns: tuple[str, ...] | None = None
    ) -> DataFrame:
        """The stream part of the views on a pane table: one row a pane and key."""
        wanted = [column for column in panes.columns if columns is None or column.name in columns]
        keys = [(key.expression, key.name) for key in panes.keys]
        outer = [quote_name(key.name) for key in panes.keys]
        if panes.time is not None:
            keys.append((pane_start_sql(panes.time, panes.grain, panes.origin, "spark"), PANE))
            outer.append(f"timestamp_micros({PANE}) AS {PANE}")
        outer += [quote_name(column.name) for column in wanted]
        conditions = []
        if panes.conditions and all(condition is not None for condition in panes.conditions):
            conditions.append("(" + " OR ".join(f"({condition})" for condition in panes.conditions) + ")")
        if panes.time is not None:
            conditions.append(f"{panes.time} IS NOT NULL")
        where = " AND ".join(conditions) or "true"
        if panes.from_text == STREAM:
            grouping, partials = self._compiled(panes, keys, tuple(wanted))
            frame = good.where(where).groupBy(*grouping).agg(*partials)
            return (frame if keys else frame.where("_n > 0")).selectExpr(*outer)
        items = [f"{text} AS {quote_name(name)}" for text, name in keys]
        items += [f"{column.partial} AS {quote_name(column.name)}" for column in wanted]
        text = f"SELECT {', '.join(items)}, count(*) AS _n FROM {panes.from_text} WHERE {where}"
        if keys:
            text += f" GROUP BY {', '.join(f'({text})' for text, _ in keys)}"
        relations = self._relations(panes, catalog, good)
        return self.core.frames.sql(f"SELECT {', '.join(outer)} FROM ({text}) WHERE _n > 0", relations)

    def _compiled(
        self, panes: Panes, keys: list[tuple[str, str]], wanted: tuple[PartialColumn, ...]
    ) -> tuple[list[Any], list[Any]]:
        """The columns of a partial aggregate, made once: each costs round trips to the JVM."""
        key = (panes.id, tuple(keys), wanted)
        if key not in self._columns:
            from pyspark.sql import functions as F

            partials = [F.expr(column.partial).alias(column.name) for column in wanted]
            if not keys:  # without keys there is a row even for no rows: it is left out by its count
                partials.append(F.count("*").alias("_n"))
            self._columns[key] = ([F.expr(text).alias(name) for text, name in keys], partials)
        return self._columns[key]

    def rows(self, rows: Rows, catalog: Catalog, good: DataFrame) -> DataFrame:
        """The rows a stateless view appends."""
        frame = self.core.frames.sql(rows.text, self._relations(rows, catalog, good))
        return frame.toDF(*(field.name for field in rows.fields))

    def _relations(self, state: Panes | Rows, catalog: Catalog, good: DataFrame) -> dict[str, DataFrame]:
        columns = [quote_name(field.name) for field in catalog.stream(state.stream).fields]
        relations: dict[str, DataFrame] = {"@stream": good.select(*columns)}
        for placeholder, id in state.statics.items():
            table = catalog[id]
            assert isinstance(table, Table)
            relations[placeholder] = self.core.static_frame(id, table.fields, state.statics_at[id])
        return relations

    def carries(self, panes: Panes, stream: Stream) -> bool:
        """Whether a pane table sees every row, so that the figures of a run can be added up from its groups."""
        whole = not panes.conditions or None in panes.conditions
        own_time = stream.time is None or panes.time in (None, micros_sql(quote_name(stream.time)))
        return panes.from_text == STREAM and whole and own_time

    def carrying(self, panes: Panes, stream: Stream, good: str, bound: int | None, rows: DataFrame) -> DataFrame:
        """Partials together with the figures of the run, in one small job: bad rows are a group of their own.

        Each step on a frame costs round trips to the JVM, which is most of the time of a small run; this is one step.
        """
        keys = [(f"CASE WHEN _good THEN ({key.expression}) END", quote_name(key.name)) for key in panes.keys]
        outer = [name for _, name in keys]
        if panes.time is not None:
            pane = pane_start_sql(panes.time, panes.grain, panes.origin, "spark")
            keys.append((f"CASE WHEN _good THEN {pane} END", PANE))
            outer.append(f"timestamp_micros({PANE}) AS {PANE}")
        time = f"unix_micros({quote_name(stream.time)})" if stream.time is not None else "CAST(NULL AS BIGINT)"
        late = "CAST(0 AS BIGINT)" if bound is None or stream.time is None else f"count_if({time} < {bound})"
        figures = ["count(*) AS _n", f"{late} AS _late", f"min({time}) AS _low", f"max({time}) AS _high"]
        items = [f"{text} AS {name}" for text, name in keys]
        items += [f"{column.partial} AS {quote_name(column.name)}" for column in panes.columns]
        outer += [quote_name(column.name) for column in panes.columns]
        text = (
            f"SELECT _good, {', '.join([*outer, '_n', '_late', '_low', '_high'])} FROM"
            f" (SELECT _good, {', '.join([*items, *figures])} FROM (SELECT *, {good} AS _good FROM {STREAM})"
            f" GROUP BY {', '.join(['_good', *(text for text, _ in keys)])})"
        )
        return self.core.frames.sql(text, {"@stream": rows})
