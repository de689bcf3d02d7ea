"""Row numbers and arrival times of a stream's kept rows: in order of arrival, and the same when computed again.

Rows arrive file by file, in the order of the source, and row by row in each file. Spark's partitions make no
difference.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from anabranch.engine.core import Core
from anabranch.engine.frames import table_of
from anabranch.engine.row_conditions import good_rows
from anabranch.ledger import Ledger, Snapshot
from anabranch.plan.definitions import ARRIVAL_TS, ROW_NUM, Stream
from anabranch.sources.base import CORRUPT, ORIGIN
from anabranch.sources.parts import path_of
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The column with the positions of rows, by the number of their part.
POSITIONS = "__place{}"
_STRETCH = (
    Field("stream", "string"),
    Field("bucket", "bigint"),
    Field("first", "bigint"),
    Field("end", "bigint"),
    Field("shift", "bigint"),
)
_GROUP = (Field("__part", "int"), Field("__file", "string"), Field("__base", "bigint"), Field("__at", "timestamp"))


def number_frame(rows: DataFrame, files: Sequence[str], first: int, at: int | Mapping[str, int]) -> DataFrame:
    """Rows with their numbers from `first` on, and their arrival times: one for all, or one for each file.

    A pass over the rows counts those of each file in each partition; then the number of each row follows.
    """
    from pyspark.sql import functions as F

    file = ORIGIN if ORIGIN in rows.columns else "''"
    marked = rows.selectExpr(
        "*", "monotonically_increasing_id() AS __id", "spark_partition_id() AS __part", f"{file} AS __file"
    )
    positions = {name: index for index, name in enumerate(files)}
    counted = marked.groupBy("__part", "__file").agg(F.count("*").alias("n"), F.min("__id").alias("low")).collect()
    groups: list[tuple[Any, ...]] = []
    for part, name, count, low in sorted(
        counted, key=lambda each: (positions.get(path_of(each[1]), len(files)), each[0])
    ):
        when = at if isinstance(at, int) else at[path_of(name)]
        groups.append((part, name, first - low, when))
        first += count
    small = rows.sparkSession.createDataFrame(table_of(_GROUP, groups))
    joined = marked.join(F.broadcast(small), ["__part", "__file"])
    return joined.selectExpr(
        *(quote_name(name) for name in rows.columns), f"__id + __base AS {ROW_NUM}", f"__at AS {ARRIVAL_TS}"
    )


def number_table(rows: Any, first: int, at: int) -> Any:
    """The same for an Arrow table whose rows are in order."""
    import pyarrow as pa
    import pyarrow.compute as compute

    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    rows = rows.append_column(ROW_NUM, compute.cumulative_sum(ones, start=first - 1))
    return rows.append_column(ARRIVAL_TS, pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), rows.num_rows))


def past_rows(core: Core, stream: Stream, snapshot: Snapshot) -> DataFrame | None:
    """All good rows that a stream has read from its source, with the numbers that they would have; None where there are
    none, or the source cannot return them again."""
    if stream.kept_since is not None:
        return core.table_frame(stream.rows_table, stream.row_fields, snapshot)
    stretches = [each for each in core.ledger.captured(stream.id, snapshot.version) if each]
    source = core.past_source(stream)
    if source is None or not stretches:
        return None
    runs = _runs(core, stream, snapshot)[-len(stretches) :]
    good = good_rows(stream, (CORRUPT,))
    columns = [quote_name(field.name) for field in stream.fields]
    files = [source.files_of(each) for each in stretches]
    if all(files):
        rows = source.read(stretches).where(good).select(*columns, ORIGIN)
        at = {name: when for names, (when, _) in zip(files, runs, strict=True) for name in names}
        numbered = number_frame(rows, [name for names in files for name in names], 0, at)
        return numbered.drop(ORIGIN)
    first, whole = 0, core.frames.empty(stream.row_fields)
    for stretch, (when, count) in zip(stretches, runs, strict=True):
        rows = source.read([stretch]).where(good).select(*columns)
        whole = whole.unionByName(number_frame(rows, (), first, when))
        first += count
    return whole


class Arrivals:
    """The runs of rows of a stream, by number: the first row of each run, and its version."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._upto = 0
        self._counts: dict[str, int] = {}
        self._runs: dict[str, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def runs(self, stream: str, snapshot: Snapshot) -> list[tuple[int, int]]:
        """The runs of a stream at a version, and the pending run, which has all later rows."""
        with self._lock:
            for record in self._ledger.records(self._upto + 1, snapshot.version):
                for id, run in record.streams.items():
                    if run.rows:
                        self._runs.setdefault(id, []).append((self._counts.get(id, 0), record.version))
                        self._counts[id] = self._counts.get(id, 0) + run.rows
            self._upto = max(self._upto, snapshot.version)
            found = [each for each in self._runs.get(stream, ()) if each[1] <= snapshot.version]
        state = snapshot.streams.get(stream)
        return [*found, (state.rows if state is not None else 0, snapshot.version + 1)]


def number_of_first(version: int) -> int:
    """The global position of the first row of a run. A run has rows of one stream."""
    return version << 32


def with_arrival_numbers(core: Core, records: DataFrame, parts: Mapping[str, str], snapshot: Snapshot) -> DataFrame:
    """Records with the positions of their source rows, a column `POSITIONS` for each part: the column with the row
    numbers of a stream.

    A join by number finds the run of each row; buckets of numbers avoid comparing each row with all runs.
    """
    from pyspark.sql import functions as F

    found = []
    for stream in dict.fromkeys(parts.values()):
        runs = core.arrivals.runs(stream, snapshot)
        ends = [*(first for first, _ in runs[1:]), None]
        found += [(stream, first, end, version) for (first, version), end in zip(runs, ends, strict=True)]
    closed = [end - first for _, first, end, _ in found if end is not None]
    width = max(sum(closed) // max(len(closed), 1), 1)
    # The last run of each stream is the pending one, or none: all rows from its first on are its own.
    rows = [
        (stream, bucket, first, end, number_of_first(version) - first)
        for stream, first, end, version in found
        if end is not None
        for bucket in range(first // width, (end - 1) // width + 1)
    ]
    last = {stream: number_of_first(version) - first for stream, first, end, version in found if end is None}
    small = core.spark.createDataFrame(table_of(_STRETCH, rows))
    joins = "".join(
        f" LEFT JOIN `@runs` AS __t{index} ON __t{index}.stream = '{stream}'"
        f" AND __r.{quote_name(name)} div {width} = __t{index}.bucket"
        f" AND __r.{quote_name(name)} >= __t{index}.first AND __r.{quote_name(name)} < __t{index}.end"
        for index, (name, stream) in enumerate(parts.items())
    )
    places = "".join(
        f", __r.{quote_name(name)} + coalesce(__t{index}.shift, {last[stream]}) AS {POSITIONS.format(index)}"
        for index, (name, stream) in enumerate(parts.items())
    )
    text = f"SELECT __r.*{places} FROM `@records` AS __r{joins}"
    return core.frames.sql(text, {"@records": records, "@runs": F.broadcast(small)})


def _runs(core: Core, stream: Stream, snapshot: Snapshot) -> list[tuple[int, int]]:
    """The time and the number of rows of each run of a stream that read from its source."""
    found = []
    for record in core.ledger.records(1, snapshot.version):
        run = record.streams.get(stream.id)
        if run is not None and run.captured:
            moment = datetime.fromisoformat(record.at)
            found.append((int(moment.timestamp()) * 1_000_000 + moment.microsecond, run.rows))
    return found
