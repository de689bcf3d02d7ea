"""Late rows for shown windows: counted and listed in `sys.late_rows`, or refused by views with LATE FAIL.

The count is the view's own, and exact. The list has the first rows of each run as JSON texts: a stream that keeps its
rows writes it with the run, since files are merged later; where the source can be read again, a query of the list does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from anabranch.duck import path_list, quoted, timestamp
from anabranch.engine.core import Core
from anabranch.engine.frames import table_of
from anabranch.engine.progress_bounds import micros
from anabranch.engine.writing import write_table
from anabranch.errors import QueryFailed
from anabranch.ledger import DataFile, Snapshot
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.view import View
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE_ROWS = "late_rows"
#: How many rows a run lists for a view.
LISTED = 1000
#: For how many runs, the newest first, the source is read again to list rows.
LISTED_RUNS = 20
LATE_ROW_FIELDS = (
    Field("view", "string"),
    Field("window_start", "timestamp"),
    Field("window_end", "timestamp"),
    Field("rows", "bigint"),
    Field("policy", "string"),
    Field("version", "bigint"),
    Field("at", "timestamp"),
    Field("listed", "array<string>"),
)


@dataclass(frozen=True)
class LateRows:
    """Rows of one commit for a window of a view that was already shown; without an end, for several windows.

    For windows that depend on other rows the window is unknown.
    """

    view: View
    start: int | None
    end: int | None
    rows: int

    def check(self) -> None:
        """Raise if the view refuses such rows."""
        if self.view.emission.late == "fail":
            of = "for a window that was shown" if self.end is not None else "below what its windows had closed by"
            raise QueryFailed(
                f"view {self.view.name}: {self.rows:,} late row{'' if self.rows == 1 else 's'} {of}",
                hint="the view was created with LATE FAIL; LATE CORRECT, ARCHIVE or DROP let such rows in",
            )


def write(
    core: Core,
    catalog: Catalog,
    late: Sequence[LateRows],
    added: Mapping[str, tuple[DataFile, ...]],
    version: int,
    now: int,
) -> tuple[DataFile, ...]:
    """The late rows of a commit as a file; `added` are the files of the commit."""
    lists: dict[str, list[list[str] | None]] = {}
    for view in {each.view.id: each.view for each in late}.values():
        windows = [(each.start, each.end) for each in late if each.view.id == view.id]
        lists[view.id] = _kept(core, _stream(catalog, view), windows, added)
    rows = [
        (
            each.view.name,
            each.start,
            each.end,
            each.rows,
            each.view.emission.late,
            version,
            now,
            lists[each.view.id].pop(0),
        )
        for each in late
    ]
    return write_table(core.ledger, LATE_ROWS, table_of(LATE_ROW_FIELDS, rows), None)


def rows_before(core: Core, stream: Stream, files: Sequence[DataFile], end: int) -> int:
    """The number of rows before a time in files of a stream."""
    from anabranch.engine.driver import connection

    folder = core.ledger.table_folder(stream.rows_table)
    paths = [str(folder / file.path) for file in files]
    if not core.place.takes_changes(sum(file.rows for file in files), 0):
        there = core.frames.parquet(paths, stream.fields)
        return there.where(f"{quote_name(stream.time or '')} < timestamp_micros({end})").count()
    rows = f"read_parquet({path_list(paths)}, union_by_name = true)"
    text = f"SELECT count(*) FROM {rows} WHERE {quoted(stream.time or '')} < {timestamp(str(end))}"
    ((count,),) = connection().execute(text).fetchall()
    return int(count)


def frame(core: Core, snapshot: Snapshot) -> DataFrame:
    """The late rows so far; reads rereadable sources to list theirs."""
    kept = core.table_frame(LATE_ROWS, LATE_ROW_FIELDS, snapshot)
    catalog = core.catalog(snapshot)
    streams = {view.name: _stream(catalog, view) for view in catalog.of(View)}
    again = {name for name, stream in streams.items() if stream is not None and stream.rereadable}
    if not again or LATE_ROWS not in snapshot.files:
        return kept
    import pyarrow as pa

    table = kept.toArrow()
    rows = table.to_pylist()
    lists: list[list[str] | None] = [row["listed"] for row in rows]
    missing = [i for i, row in enumerate(rows) if row["listed"] is None and row["view"] in again]
    runs = sorted({(rows[i]["version"], rows[i]["view"]) for i in missing}, reverse=True)
    for version, name in runs[:LISTED_RUNS]:
        chosen = [i for i in missing if (rows[i]["version"], rows[i]["view"]) == (version, name)]
        windows = [(micros(rows[i]["window_start"]), micros(rows[i]["window_end"])) for i in chosen]
        stream = streams[name]
        assert stream is not None
        for i, texts in zip(chosen, _read_again(core, stream, windows, version), strict=True):
            lists[i] = texts
    column = table.schema.field("listed")
    filled = table.set_column(table.schema.get_field_index("listed"), column, pa.array(lists, column.type))
    return core.spark.createDataFrame(filled)


Windows = Sequence[tuple[int | None, int | None]]


def _stream(catalog: Catalog, view: View) -> Stream | None:
    """The stream whose event times the windows of a view use, if there is just one."""
    streams = [catalog.stream(id) for id in catalog.sources_of(view)]
    return streams[0] if len(streams) == 1 and streams[0].time is not None else None


def _kept(
    core: Core, stream: Stream | None, windows: Windows, added: Mapping[str, tuple[DataFile, ...]]
) -> list[list[str] | None]:
    """The rows of a commit for windows, from the stream's kept rows."""
    from anabranch.engine.driver import connection

    span = _span(windows)
    files = added.get(stream.rows_table, ()) if stream is not None else ()
    if stream is None or stream.time is None or span is None or not files:
        return [None] * len(windows)
    folder = core.ledger.table_folder(stream.rows_table)
    if not core.place.takes_changes(sum(file.rows for file in files), 0):
        there = core.frames.parquet([str(folder / file.path) for file in files], stream.fields)
        along = f"unix_micros({quote_name(stream.time)})"
        there = there.where(f"{along} >= {span[0]} AND {along} < {span[1]}").limit(LISTED)
        return _by_window(there.toArrow().to_pylist(), stream, windows)
    time = quoted(stream.time)
    text = (
        f"SELECT {', '.join(quoted(field.name) for field in stream.fields)} FROM"
        f" read_parquet({path_list([str(folder / file.path) for file in files])}, union_by_name = true)"
        f" WHERE {time} >= {timestamp(str(span[0]))} AND {time} < {timestamp(str(span[1]))} LIMIT {LISTED}"
    )
    found: Any = connection().sql(text).to_arrow_table()
    return _by_window(found.to_pylist(), stream, windows)


def _read_again(core: Core, stream: Stream, windows: Windows, version: int) -> list[list[str] | None]:
    """The rows of a version's run for windows, read from the source again."""
    from anabranch.engine.row_conditions import good_rows
    from anabranch.sources.base import CORRUPT

    source, span = core.past_source(stream), _span(windows)
    before = len(list(core.ledger.captured(stream.id, version - 1)))
    captured = [each for each in list(core.ledger.captured(stream.id, version))[before:] if each]
    if source is None or span is None or not captured or stream.time is None:
        return [None] * len(windows)
    micros = f"unix_micros(CAST({quote_name(stream.time)} AS TIMESTAMP))"
    rows = source.read(captured).where(good_rows(stream, (CORRUPT,)))
    rows = rows.where(f"{micros} >= {span[0]} AND {micros} < {span[1]}").limit(LISTED)
    found = rows.select(*(quote_name(field.name) for field in stream.fields)).toArrow().to_pylist()
    return _by_window(found, stream, windows)


def _span(windows: Windows) -> tuple[int, int] | None:
    """The range from the first start to the last end, if all are known."""
    starts, ends = [start for start, _ in windows], [end for _, end in windows]
    if any(each is None for each in (*starts, *ends)) or not windows:
        return None
    return min(each for each in starts if each is not None), max(each for each in ends if each is not None)


def _by_window(rows: Iterable[dict[str, Any]], stream: Stream, windows: Windows) -> list[list[str] | None]:
    lists: list[list[str]] = [[] for _ in windows]
    for row in rows:
        time = micros(row[stream.time or ""])
        text = json.dumps(row, default=_plain, ensure_ascii=False)
        for (start, end), listed in zip(windows, lists, strict=True):
            if time is not None and start is not None and end is not None and start <= time < end:
                listed.append(text)
    return [sorted(listed) for listed in lists]


def _plain(value: Any) -> str:
    """A value without a JSON form, as a text."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    return value.hex() if isinstance(value, bytes) else str(value)
