"""The stream part of a plan: what a run adds to the state of views, as partials per pane and key, or as rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anabranch.algebra.windows.spans import VOLUME, WAS_LARGE, WEIGHT
from anabranch.engine.core import Core
from anabranch.engine.group_sizes import GroupSizes
from anabranch.engine.partial_windows import kept_partials_sql, window_position_sql
from anabranch.engine.tables import PANE, window_position_fields
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.panes import STREAM
from anabranch.plan.states import Panes, PartialColumn, Rows
from anabranch.plan.windows import micros_sql
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: The placeholder of the rows of a run in the text of a query.
STREAM_ROWS = "@stream"


class StreamPart:
    """Turns frames of rows into frames of partials, or of rows of stateless views."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._columns: dict[Any, tuple[list[Any], list[Any]]] = {}

    def partials(
        self,
        panes: Panes,
        catalog: Catalog,
        good: DataFrame,
        columns: tuple[str, ...] | None = None,
        group_sizes: GroupSizes | None = None,
    ) -> DataFrame:
        """The partials of a pane table: one row per pane and key. `group_sizes` are the sizes of the groups so far, if
        they decide how rows are stored."""
        wanted = [column for column in panes.columns if columns is None or column.name in columns]
        keys = list(zip(_keys(panes), _key_names(panes), strict=True))
        if group_sizes is not None:
            relations = {"@entries": self._entries(panes, catalog, good, keys, wanted)}
            known = None
            if group_sizes.known is None or group_sizes.known.num_rows:
                known, relations["@known"] = "`@known`", self._known(panes, group_sizes)
            text = kept_partials_sql(panes, wanted, "`@entries`", "spark", group_sizes.judging, known)
            return self.core.frames.sql(text, relations)
        outer = [quote_name(key.name) for key in panes.keys]
        if panes.time is not None:
            outer.append(f"timestamp_micros({PANE}) AS {PANE}")
        outer += [quote_name(column.name) for column in wanted]
        return self._entries(panes, catalog, good, keys, wanted).selectExpr(*outer)

    def _known(self, panes: Panes, group_sizes: GroupSizes) -> DataFrame:
        """The known groups, one row for keys that Spark takes as equal (0.0 and -0.0, strings of a collation): a second
        one would duplicate the rows that are joined with it."""
        from pyspark.sql import functions as F

        keys = [F.expr(f"CAST({quote_name(key.name)} AS {key.type})").alias(key.name) for key in panes.keys]
        frame = (
            group_sizes.frame if group_sizes.frame is not None else self.core.spark.createDataFrame(group_sizes.known)
        )
        groups = frame.groupBy(*keys)
        return groups.agg(F.sum(VOLUME).alias(VOLUME), F.bool_or(WAS_LARGE).alias(WAS_LARGE))

    def _entries(
        self, panes: Panes, catalog: Catalog, good: DataFrame, keys: list[tuple[str, str]], wanted: list[PartialColumn]
    ) -> DataFrame:
        """The partials of rows, each with its pane in microseconds and its number of rows."""
        conditions = []
        if panes.conditions and all(condition is not None for condition in panes.conditions):
            conditions.append("(" + " OR ".join(f"({condition})" for condition in panes.conditions) + ")")
        if panes.time is not None:
            conditions.append(f"{panes.time} IS NOT NULL")
        if panes.spanned:
            conditions.append(f"{keys[-1][0]} > 0")  # a row between two windows is in none
        where = " AND ".join(conditions) or "true"
        if panes.from_text == STREAM:
            grouping, partials = self._compiled(panes, keys, tuple(wanted))
            frame = good.where(where).groupBy(*grouping).agg(*partials)
            return frame if keys else frame.where(f"{WEIGHT} > 0")
        items = [f"{text} AS {quote_name(name)}" for text, name in keys]
        items += [f"{column.computed} AS {quote_name(column.name)}" for column in wanted]
        text = f"SELECT {', '.join(items)}, count(*) AS {WEIGHT} FROM {panes.from_text} WHERE {where}"
        if keys:
            text += f" GROUP BY {', '.join(f'({text})' for text, _ in keys)}"
        relations = self.relations(panes, catalog, good)
        return self.core.frames.sql(f"SELECT * FROM ({text}) WHERE {WEIGHT} > 0", relations)

    def _compiled(
        self, panes: Panes, keys: list[tuple[str, str]], wanted: tuple[PartialColumn, ...]
    ) -> tuple[list[Any], list[Any]]:
        """The columns of a partial aggregate, cached, since each costs round trips to the JVM."""
        key = (panes.id, tuple(keys), wanted)
        if key not in self._columns:
            from pyspark.sql import functions as F

            partials = [F.expr(column.computed).alias(column.name) for column in wanted]
            if not keys or panes.spanned:  # without keys, no rows make one group: it is dropped by its count
                partials.append(F.count("*").alias(WEIGHT))
            self._columns[key] = ([F.expr(text).alias(name) for text, name in keys], partials)
        return self._columns[key]

    def rows(self, rows: Rows, catalog: Catalog, good: DataFrame) -> DataFrame:
        """The rows that a stateless view appends."""
        frame = self.core.frames.sql(rows.text, self.relations(rows, catalog, good))
        return frame.toDF(*(field.name for field in rows.fields))

    def relations(
        self, state: Panes | Rows, catalog: Catalog, good: DataFrame, more: Iterable[str] = ()
    ) -> dict[str, DataFrame]:
        """The relations of a state table by placeholder: the rows, with `more` columns, and static tables."""
        columns = [quote_name(field.name) for field in catalog.stream(state.stream).fields]
        relations: dict[str, DataFrame] = {STREAM_ROWS: good.select(*columns, *more)}
        for placeholder, id in state.statics.items():
            table = catalog[id]
            assert isinstance(table, Table)
            relations[placeholder] = self.core.static_frame(id, table.fields, state.table_versions[id])
        return relations

    def has_every_row(self, panes: Panes, stream: Stream) -> bool:
        """Whether a pane table has every row, so that the counts of a run can be added up from its groups."""
        whole = not panes.conditions or None in panes.conditions
        own_time = panes.time is None or (stream.time is not None and panes.time == micros_sql(quote_name(stream.time)))
        return panes.from_text == STREAM and whole and own_time and not panes.spanned


#: Spark's number of a grouping set has one bit per column.
MOST_COLUMNS = 60


class CombinedPartials:
    """The partials of several pane tables and the counts of a run, in one small job.

    Planning a query takes tens of milliseconds, most of the time of a small run; so the tables are the grouping sets of
    one query, with the bad rows as one more group of each. All tables have every row: the groups of any of them add up
    to the counts.
    """

    def __init__(self, tables: list[Panes], stream: Stream, good: str, bound: int | None) -> None:
        self.tables = tables
        self.good = good
        #: Expression -> its column; tables share equal expressions.
        self._grouped: dict[str, str] = {}
        self._partials: dict[str, str] = {}
        self._keys = {panes.id: [self._name(text, self._grouped, "k") for text in _keys(panes)] for panes in tables}
        self._values = {
            panes.id: [self._name(column.computed, self._partials, "v") for column in panes.columns] for panes in tables
        }
        #: Distinct sets, with columns in one order: Spark would return the groups of a duplicate set twice.
        self._sets = set(map(self._set, tables))
        time = f"unix_micros({quote_name(stream.time)})" if stream.time is not None else "CAST(NULL AS BIGINT)"
        late = "CAST(0 AS BIGINT)" if bound is None or stream.time is None else f"count_if({time} < {bound})"
        self._aggregates = [
            "count(*) AS _n",
            f"{late} AS _late",
            f"min(CASE WHEN _good THEN {time} END) AS _low",
            f"max(CASE WHEN _good THEN {time} END) AS _high",
        ]

    @staticmethod
    def _name(text: str, names: dict[str, str], letter: str) -> str:
        return names.setdefault(text, f"_{letter}{len(names)}")

    @property
    def fits(self) -> bool:
        return len(self._grouped) < MOST_COLUMNS

    def text(self) -> str:
        """The query over the placeholder of the stream."""
        grouped = ["_good", *self._grouped.values()]
        inner = [f"CASE WHEN _good THEN ({text}) END AS {name}" for text, name in self._grouped.items()]
        items = [f"{text} AS {name}" for text, name in self._partials.items()]
        group, number = ", ".join(grouped), "0"
        if len(self._sets) > 1:
            sets = (f"({', '.join(['_good', *names])})" for names in self._sets)
            group, number = f"{group} GROUPING SETS ({', '.join(sets)})", "grouping_id()"
        return (
            f"SELECT {number} AS _set, {', '.join([*grouped, *items, *self._aggregates])} FROM"
            f" (SELECT {', '.join(['*', *inner])} FROM (SELECT *, {self.good} AS _good FROM {STREAM})) GROUP BY {group}"
        )

    def split(self, groups: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The partials of each table, and the counts of the run."""
        import pyarrow as pa
        import pyarrow.compute as compute

        partials = {}
        values: dict[str, Any] = {}
        for panes in self.tables:
            own = groups
            if len(self._sets) > 1:
                own = groups.filter(compute.equal(groups.column("_set"), self._number(panes)))
            good = own.filter(own.column("_good"))
            names = _key_names(panes)
            columns = [good.column(name) for name in self._keys[panes.id]]
            if panes.time is not None:
                columns[-1] = columns[-1].cast(pa.timestamp("us", "UTC"))
            names += [column.name for column in panes.columns]
            columns += [good.column(name) for name in self._values[panes.id]]
            partials[panes.id] = pa.table(columns, names=names)
            if not values:
                total, rows = (compute.sum(each.column("_n")).as_py() or 0 for each in (own, good))
                values = {
                    "rows": rows,
                    "bad": total - rows,
                    "late": compute.sum(good.column("_late")).as_py(),
                    "low": compute.min(good.column("_low")).as_py(),
                    "high": compute.max(good.column("_high")).as_py(),
                }
        return partials, values

    def _set(self, panes: Panes) -> tuple[str, ...]:
        """The columns that a table is grouped by, in their common order."""
        return tuple(name for name in self._grouped.values() if name in self._keys[panes.id])

    def _number(self, panes: Panes) -> int:
        """Spark's number of a table's grouping set: one bit per column, the first highest; 1: it is not in the set."""
        names = list(self._grouped.values())
        return sum(1 << (len(names) - 1 - at) for at, name in enumerate(names) if name not in self._keys[panes.id])


def _key_names(panes: Panes) -> list[str]:
    return [key.name for key in panes.keys] + [field.name for field in window_position_fields(panes)]


def _keys(panes: Panes) -> list[str]:
    """The expressions that rows of a pane table are grouped by, the pane last."""
    return [*(key.expression for key in panes.keys), *window_position_sql(panes, panes.time or "", "spark")]
