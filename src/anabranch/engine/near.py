"""The scan of a small run on the driver: its rows as an Arrow table, its partials by DuckDB, without a Spark job.

Most of the time of a small run is the time that Spark takes to plan and start. What means the same in DuckDB is
computed here; what does not, and every run with a row that is bad, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.algebra.windows.spans import COUNT, WEIGHT
from anabranch.duck import quoted, timestamp
from anabranch.engine.emit import connection
from anabranch.engine.frames import arrow_schema
from anabranch.engine.numbering import number_table
from anabranch.engine.places import place_sql, settle_sql
from anabranch.engine.tables import PANE, pane_fields
from anabranch.plan.blocks import STREAM
from anabranch.plan.catalog import Field, Panes, Rows, Stream
from anabranch.plan.keys import INTEGERS
from anabranch.plan.local import local_text
from anabranch.plan.views import duckdb_type
from anabranch.plan.windows import micros_sql
from anabranch.sql.lexer import quote_name

if TYPE_CHECKING:
    import pyarrow as pa

#: What a query of this module reads.
ROWS = "__near"

#: Rows of a run that are at hand without a Spark job; None where they are not.
AtHand = Callable[[], "pa.Table | None"]


class Near:
    """The rows of one small run, all of them good, with their numbers."""

    def __init__(self, stream: Stream, rows: Any) -> None:
        self.stream = stream
        self.rows = rows

    @classmethod
    def of(cls, stream: Stream, at_hand: AtHand, first: int, at: int) -> Near | None:
        """The rows of a run, if they are at hand and no figure is needed that only Spark gives."""
        if stream.live or not stream.policy.simple:
            return None
        rows = at_hand()
        if rows is None or (stream.time is not None and rows.column(stream.time).null_count):
            return None
        return cls(stream, number_table(rows, first, at))

    def figures(self, bound: int | None) -> dict[str, Any]:
        """What a scan by Spark would have counted."""
        import pyarrow.compute as compute

        values: dict[str, Any] = {"rows": self.rows.num_rows, "bad": 0}
        if self.stream.time is not None:
            times = self.rows.column(self.stream.time).cast("int64")
            ends = compute.min_max(times)
            late = compute.sum(compute.less(times, bound)).as_py() if bound is not None else 0
            values |= {"low": ends["min"].as_py(), "high": ends["max"].as_py(), "late": late or 0}
        return values

    def partials(self, panes: Panes) -> Any:
        """What the rows add to a pane table; None if that is Spark's to say."""
        if panes.from_text != STREAM:
            return None
        keys = [local_text(key.expression, _nothing) for key in panes.keys]
        along = self._along(panes)
        if any(key is None for key in keys) or (panes.time is not None and along is None):
            return None
        place = place_sql(panes, along or "", "duckdb")
        items = [f"{key} AS {quoted(each.name)}" for key, each in zip(keys, panes.keys, strict=True)]
        if panes.spanned:
            items += [f"{text} AS {name}" for text, name in zip(place, (PANE, COUNT), strict=True)]
        elif place:
            items.append(f"{timestamp(place[0])} AS {PANE}")
        for column in panes.columns:
            text, kind = local_text(column.partial, _nothing), duckdb_type(column.type)
            if text is None or kind is None or not column.duckdb:
                return None
            items.append(f"CAST({text} AS {kind}) AS {quoted(column.name)}")
        wanted = [] if None in panes.conditions else [local_text(each or "", _nothing) for each in panes.conditions]
        if None in wanted:
            return None
        where = " AND ".join(["true", *(f"{each} IS NOT NULL" for each in place)])
        if panes.spanned:
            items.append(f"count(*) AS {WEIGHT}")
            where += f" AND {place[1]} > 0"
        if wanted:
            where += " AND (" + " OR ".join(f"({each})" for each in wanted) + ")"
        group = [str(index + 1) for index in range(len(keys) + len(place))]
        having = f" GROUP BY {', '.join(group)}" if group else " HAVING count(*) > 0"
        text = f"SELECT {', '.join(items)} FROM {ROWS} WHERE {where}{having}"
        if panes.spanned:
            text = settle_sql(panes, panes.columns, f"({text})", "duckdb")
        return self._query(text, pane_fields(panes))

    def selected(self, rows: Rows) -> Any:
        """What the rows add to the table of a stateless view; None if that is Spark's to say."""
        columns = ", ".join(quoted(field.name) for field in self.stream.fields)
        plain = f"(SELECT {columns} FROM {ROWS})"
        text = local_text(rows.text, lambda placeholder: plain if quote_name(placeholder) == STREAM else None)
        return None if text is None else self._query(text, rows.fields)

    def _along(self, panes: Panes) -> str | None:
        """What windows lie along, if that is a column of the stream as it is."""
        for field in self.stream.row_fields:
            name = quote_name(field.name) if field in self.stream.fields else field.name
            if field.type == "timestamp" and panes.time == micros_sql(name):
                return f"epoch_us({quoted(field.name)})"
            if field.type in INTEGERS and panes.time in (name, f"CAST({name} AS BIGINT)"):
                return f"CAST({quoted(field.name)} AS BIGINT)"
        return None

    def _query(self, text: str, fields: tuple[Field, ...]) -> Any:
        import duckdb
        import pyarrow as pa

        duck = connection()
        duck.register(ROWS, self.rows)
        try:
            made = duck.sql(text)
            if len(made.columns) != len(fields) or not all(map(_alike, made.types, fields)):
                return None
            found = made.to_arrow_table().rename_columns([field.name for field in fields])
            return found.cast(arrow_schema(fields))
        except (duckdb.Error, pa.ArrowInvalid):
            return None  # an overflow, say: Spark tells of it in its own words
        finally:
            duck.unregister(ROWS)


def _nothing(_: str) -> None:
    return None


def _alike(kind: Any, field: Field) -> bool:
    return str(kind).replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ") == duckdb_type(field.type)
