"""Frames for reading: streams, tables, views and system tables at one version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import END
from anabranch.algebra.reach import Range
from anabranch.algebra.windows import last_window_sql, window_time
from anabranch.engine import joined_partials, remote, system, temp_views
from anabranch.engine.core import Core
from anabranch.engine.differences import bins_text, sliding_text
from anabranch.engine.maintain import late_drop
from anabranch.engine.numbering import past_rows
from anabranch.engine.partial_windows import starts_sql
from anabranch.engine.progress_bounds import progress
from anabranch.engine.row_conditions import good_rows
from anabranch.engine.tables import PANE, change_fields, net_sql, pane_fields
from anabranch.errors import AnabranchError, SourceError
from anabranch.ledger import Snapshot
from anabranch.plan.bind import Reference
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import ROW_NUM, Stream, Table
from anabranch.plan.facts.lookahead import FINAL
from anabranch.plan.node import POSITION, TAKES
from anabranch.plan.states import BlockUse, Panes, Rows
from anabranch.plan.strategy import by_difference
from anabranch.plan.view import View
from anabranch.plan.windows import bounds_sql, ending_columns_sql
from anabranch.sources.base import CORRUPT, ORIGIN, BadRow, Source
from anabranch.sources.files import FilesSource
from anabranch.sources.listing import File
from anabranch.sources.parts import Part, file_and_start
from anabranch.sources.paths import CALLED, check_path, format_of, is_pipe, nothing_at
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def relation(core: Core, reference: Reference, snapshot: Snapshot) -> DataFrame:
    """The frame behind a placeholder of an ad hoc query."""
    if reference.kind == "file":
        return file_frame(core, reference)
    if reference.kind == "outside":
        return remote.frame(core, remote.opened(reference))
    if reference.kind == "temporary":
        return temp_views.frame(core, reference.target)
    if reference.version is not None:
        snapshot = core.ledger.snapshot(reference.version)
    catalog = core.catalog(snapshot)
    if reference.kind == "system":
        return system.frame(core, reference.target, snapshot)
    found = catalog.objects.get(reference.target)
    if found is None:
        raise AnabranchError(
            f"{reference.target} did not exist at version {snapshot.version}",
            hint="sys.runs lists the versions",
        )
    if isinstance(found, Stream):
        return rows_frame(core, found, reference.placeholder, snapshot)
    if isinstance(found, Table) and found.asked:
        raise AnabranchError(
            f"table {found.name} is not loaded: it is looked up by key, for the rows of a view",
            hint=f"CREATE VIEW v AS SELECT ... FROM s JOIN {found.name} t ON t.id = s.id, and read the view",
        )
    if isinstance(found, Table):
        return core.table_frame(found.id, found.fields, snapshot)
    assert isinstance(found, View)
    if reference.provisional:
        return provisional_frame(core, catalog, found, snapshot)
    return view_frame(core, catalog, found, snapshot)


def named_files(core: Core, reference: Reference) -> tuple[FilesSource, dict[str, Any], list[File]]:
    """The files that a query names, the options for them, and each with its size and time."""
    options: dict[str, Any] = {}
    given: str | None = None
    if reference.relation is not None and reference.relation.function is not None:
        given = None if reference.relation.function == "files" else reference.relation.function
        for argument in reference.relation.arguments:
            if argument.name not in (None, "path"):
                options[str(argument.name)] = argument.value
    if reference.relation is not None and reference.relation.name is not None:
        given = reference.relation.name.last.lower()  # stdin.csv
    check_path(reference.target)
    options |= {"path": reference.target, "format": format_of(reference.target, options.pop("format", given))}
    files = core.files(options)
    found = files.listing()
    if not found:
        raise nothing_at(reference.target)
    if not any(size for _, size, _ in found):
        if is_pipe(reference.target):
            raise SourceError(f"nothing came through {reference.target}", hint="as in: cat x.csv | anabranch '...'")
        what = f"{reference.target} has no columns: there is no row in it"
        raise SourceError(what, hint="name a file that has rows, or wait until it is written")
    if files.typed:
        part = next((name for name, size, _ in found if files.cheap and not files.has_footer(name, size)), None)
        if part is not None:
            named = reference.target if files.path == part else part
            raise SourceError(
                f"{named} is not a whole {CALLED[files.format]} file", hint="wait until it is written, or name another"
            )
    return files, options, found


def file_frame(core: Core, reference: Reference) -> DataFrame:
    """A file, folder or glob named in a query; types are inferred."""
    files, options, found = named_files(core, reference)
    if files.typed and files.format != "avro":
        return files.reader.spark_reader(infer=True).load([name for name, _, _ in found])
    key = (str(sorted(options.items())), tuple(found))
    taken = [Part(name, size, time, 0, files.mark(name, size)) for name, size, time in found]
    if key not in core.inferred:
        if len(core.inferred) > 100:
            core.inferred.clear()
        core.inferred[key] = files.columns_of(taken)
    files = core.files({"header": True, **options, "settle": 0}, core.inferred[key])
    return good_rows_of_files(core, files, [[part.to_json() for part in taken]], key)


def good_rows_of_files(core: Core, files: FilesSource, taken: list[Any], key: Any = None) -> DataFrame:
    """The rows of files that are read once. A bad one is an error, or is counted and left out if that was asked for.

    With a key it is remembered that they were looked through.
    """
    assert files.declared is not None
    columns = [quote_name(field.name) for field in files.declared]
    if files.typed:
        return files.read(taken).select(*columns)
    if key not in core.looked_through:
        bad = [row for stretch in taken for part in stretch for row in files.reader.unclosed(Part.of(part))]
        corrupt = files.read(taken).where(f"{CORRUPT} IS NOT NULL").select(ORIGIN, CORRUPT)
        count = len(bad) + (corrupt.count() if files.skips else 0)
        if not bad and (count or not files.skips):
            rows = [(row[ORIGIN], row[CORRUPT]) for row in corrupt.limit(1).collect()]
            reasons = zip(rows, files.explain(rows), strict=True)
            bad = [BadRow(file_and_start(origin)[0], why.line, why.reason, raw) for (origin, raw), why in reasons]
        if bad:
            pipes = {file: path for (path, _), file in core.spools.items()}
            where = pipes.get(bad[0].source, bad[0].source)
            where += f", line {bad[0].offset}" if bad[0].offset is not None else ""
            if not files.skips:
                raise SourceError(
                    f"{where}: {bad[0].reason}",
                    hint=f"fix it, or skip bad rows: {files.format}('...', bad_rows => 'skip')",
                )
            rest = "" if count == 1 else f", the first of {count:,}"
            core.warn(f"bad rows are skipped{rest}: {where}: {bad[0].reason}")
        if key is not None:
            core.looked_through.add(key)
    if files.skips:
        return files.read(taken).where(f"{CORRUPT} IS NULL").select(*columns)
    return files.read(taken, checked=True).select(*columns)


def source_frame(core: Core, stream: Stream, source: Source, snapshot: Snapshot, first: int) -> DataFrame:
    """The good rows that a stream has read from its source, from a run on."""
    captured = [each for each in list(core.ledger.captured(stream.id, snapshot.version))[first:] if each]
    good = good_rows(stream, (CORRUPT,))
    return source.read(captured).where(good).select(*(quote_name(field.name) for field in stream.fields))


def stream_frame(core: Core, stream: Stream, snapshot: Snapshot) -> DataFrame:
    """The rows of a stream: those it keeps, or, where the source can be read again, all that it has read so far."""
    if stream.kept_since == 0:
        return core.table_frame(stream.rows_table, stream.fields, snapshot)
    source = core.past_source(stream)
    if source is not None:
        return source_frame(core, stream, source, snapshot, 0)
    if stream.kept_since is not None:
        return core.table_frame(stream.rows_table, stream.fields, snapshot)
    raise AnabranchError(
        f"stream {stream.name} keeps no rows",
        hint="create it with KEEP ALL to read them; its views can be read",
    )


def kept_rows(
    core: Core,
    view: View,
    stream: Stream,
    fields: tuple[Field, ...],
    snapshot: Snapshot,
    low: int | None = None,
    high: int | None = None,
) -> DataFrame:
    """The kept rows of a stream from the first one of a view on."""
    paths = snapshot.table_paths(core.ledger, stream.rows_table, low, high)
    return since_start(view, stream, fields, lambda columns: core.frames.parquet(paths, columns))


def since_start(
    view: View,
    stream: Stream,
    fields: tuple[Field, ...],
    rows: Callable[[tuple[Field, ...]], DataFrame],
) -> DataFrame:
    """The rows with these columns from the first one of a view on."""
    if stream.id not in view.beginning.rows:
        return rows(fields)
    since = rows(stream.row_fields).where(f"coalesce({ROW_NUM}, 0) >= {view.beginning.rows[stream.id][1]}")
    return since.select(*(quote_name(field.name) for field in fields))


def rows_frame(core: Core, stream: Stream, placeholder: str, snapshot: Snapshot) -> DataFrame:
    """The rows of a stream for a placeholder of a view, with their numbers if it needs them."""
    if stream.seen_as(placeholder) == stream.fields:
        return stream_frame(core, stream, snapshot)
    return past_rows(core, stream, snapshot) or core.frames.empty(stream.row_fields)


def view_frame(core: Core, catalog: Catalog, view: View, snapshot: Snapshot, *, emitted: bool = False) -> DataFrame:
    """The answer of a view at a version. A view whose changes are kept shows what has fired.

    For readers it includes archived late rows. Views above, which compute changes from changes, read what was
    `emitted`, on all levels.
    """
    if view.emission.as_changes:
        return stream_of_changes(core, catalog, view, snapshot)
    if view.emission.late == "archive" and view.progress.clock == "event" and not emitted:  # else no late rows
        return archive_frame(core, catalog, view, snapshot)
    if view.kept and not (view.query.ordered and view.emission.mode == "feed"):
        return shown_frame(core, catalog, view, snapshot)
    return view_query(core, catalog, view, snapshot, emitted=emitted)


def view_query(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    *,
    closed_by: int | None = None,
    narrow: Callable[[str, DataFrame], DataFrame] = lambda _, frame: frame,
    hidden: bool = False,
    takes: DataFrame | None = None,
    emitted: bool = False,
    late: bool = False,
) -> DataFrame:
    """The view's query over reduced partials; with `closed_by`, only over closed windows.

    `narrow` may drop irrelevant rows of an input; with `hidden`, the whole key is shown. `takes` are the last positions
    in a run that the keys of a counting view may show. With `late`, rows that came too late count too.
    """
    if view.query.rows is not None:
        rows = catalog[view.query.rows]
        assert isinstance(rows, Rows)
        return core.table_frame(rows.id, rows.fields, snapshot)
    relations: dict[str, DataFrame] = {}
    for use in view.query.blocks:
        panes, paths = catalog.panes(use.panes), snapshot.table_paths(core.ledger, use.panes)
        partials = joined_partials.frame(core, catalog, panes, snapshot) if panes.above is not None else None
        relations[use.placeholder] = pane_frame(core, panes, use, paths, closed_by, partials)
    for placeholder, id in view.query.streams.items():
        stream = catalog.stream(id)
        if id in view.beginning.rows:
            relations[placeholder] = kept_rows(core, view, stream, stream.seen_as(placeholder), snapshot)
        else:
            relations[placeholder] = rows_frame(core, stream, placeholder, snapshot)
    relations |= static_frames(core, catalog, view)
    for placeholder, id in view.query.views.items():
        below = catalog.view(id)
        fired = emitted or (
            view.kept and not (late and view.emission.mode == "feed")
        )  # else it also reads pending rows below it
        relations[placeholder] = view_frame(core, catalog, below, snapshot, emitted=fired)
    for placeholder in () if late else view.drops_late_of:
        there = relations[placeholder]
        relations[placeholder] = late_drop.without_dropped(core, catalog, view, placeholder, there, snapshot)
    relations = {placeholder: narrow(placeholder, frame) for placeholder, frame in relations.items()}
    if view.emission.counted is not None:
        counted = relations[view.emission.counted]
        if POSITION not in counted.columns:
            relations[view.emission.counted] = counted.selectExpr("*", f"CAST(NULL AS BIGINT) AS {POSITION}")
        relations[TAKES] = takes if takes is not None else core.frames.empty(take_fields(view))
    named = [field.name for field in (*view.fields, *view.hidden)]
    if hidden and view.emission.closing and view.progress.final:
        return core.frames.sql(view.progress.final, relations).toDF(*named, FINAL)
    frame = core.frames.sql(view.query.spark_text or view.query.text, relations).toDF(*named)
    return frame if hidden or not view.hidden else frame.select(*(quote_name(f.name) for f in view.fields))


def take_fields(view: View) -> tuple[Field, ...]:
    return (
        *(Field(f"__k{index}", key.type) for index, key in enumerate(view.keying.columns)),
        Field("__upto", "bigint"),
    )


def static_frames(core: Core, catalog: Catalog, view: View) -> dict[str, DataFrame]:
    """The static tables of a view, at the versions that it reads."""
    found = {}
    for placeholder, id in view.query.tables.items():
        table = catalog[id]
        assert isinstance(table, Table)
        found[placeholder] = core.static_frame(id, table.fields, view.beginning.table_versions[id])
    return found


def pane_frame(
    core: Core,
    panes: Panes,
    use: BlockUse,
    paths: list[str],
    closed_by: int | None = None,
    partials: DataFrame | None = None,
) -> DataFrame:
    """Files of a pane table as a view sees them: a row for each window of a pane, with the window's bounds.

    `partials` replace the files."""
    frame = partials if partials is not None else core.frames.parquet(paths, pane_fields(panes))
    windows = use.sliding
    names = [quote_name(name) for name in (*(key.name for key in panes.keys), *use.columns)]
    if use.bins is not None:
        bounds = ending_columns_sql(f"__wid - {use.bins[0]}", "__wid", number=use.numbers)
        items = ", ".join([*names, bounds, "__wid AS window_id"])
        return core.frames.sql(f"SELECT {items} FROM ({bins_text(panes, use)})", {"@panes": frame})
    if windows is None:
        return frame.select(*names) if names else frame
    columns = ", ".join(names)
    where = "" if closed_by in (None, END) else f" WHERE window_end <= timestamp_micros({closed_by})"
    pane = f"unix_micros({PANE})"
    id = f"({{}} - {use.window_zero}) div {windows.slide} AS window_id".format
    if use.numbers:
        starts = starts_sql(panes, windows, "spark")
        bounds = bounds_sql("__starts.start", f"__starts.start + {windows.size}", windows.size, number=True)
        bounds += f", {id('__starts.start')}"
        source = f"`@panes` LATERAL VIEW explode({starts}) __starts AS start"
    elif windows.tumbling and panes.grain == windows.size:
        # The pane is the window: its start remains a plain column, so that Spark can push filters down to the files.
        bounds = (
            f"{PANE} AS window_start, timestamp_micros({pane} + {windows.size}) AS window_end,"
            f" timestamp_micros({pane} + {window_time(windows.size, windows.size)}) AS window_time, {id(pane)}"
        )
        source = "`@panes`"
    elif windows.tumbling:
        start = last_window_sql(pane, windows, panes.grain, "spark")
        bounds = f"{bounds_sql(start, f'{start} + {windows.size}', windows.size)}, {id(start)}"
        source = "`@panes`"
    elif by_difference(panes, use):
        bounds = f"{bounds_sql('__start', f'__start + {windows.size}', windows.size)}, {id('__start')}"
        source = f"({sliding_text(panes, use, windows)})"
    else:
        starts = starts_sql(panes, windows, "spark")
        bounds = bounds_sql("__starts.start", f"__starts.start + {windows.size}", windows.size)
        bounds += f", {id('__starts.start')}"
        source = f"`@panes` LATERAL VIEW explode({starts}) __starts AS start"
    return core.frames.sql(f"SELECT * FROM (SELECT {columns}, {bounds} FROM {source}){where}", {"@panes": frame})


def changes_frame(
    core: Core, catalog: Catalog, view: View, snapshot: Snapshot, within: Range = (None, None)
) -> DataFrame:
    """The changes of a view in the ledger whose event time is within bounds."""
    panes = catalog.panes(view.query.blocks[0].panes) if view.query.blocks else None
    fields = change_fields(view, panes)
    if not view.time or within == (None, None):
        return core.table_frame(view.changes_table, fields, snapshot)
    low, high = within
    paths = snapshot.table_paths(core.ledger, view.changes_table, low, None if high is None else high + 1)
    return in_range(core.frames.parquet(paths, fields), view.time, within)


def in_range(frame: DataFrame, time: str, within: Range) -> DataFrame:
    """The rows of a frame with a time within bounds."""
    low, high = within
    if low is not None:
        frame = frame.where(f"{quote_name(time)} >= timestamp_micros({low})")
    return frame if high is None else frame.where(f"{quote_name(time)} <= timestamp_micros({high})")


def stream_of_changes(core: Core, catalog: Catalog, view: View, snapshot: Snapshot) -> DataFrame:
    """The changes of a view as a stream: with the time of each, and its number among those of its key."""
    frame = changes_frame(core, catalog, view, snapshot)
    columns = ", ".join(quote_name(field.name) for field in view.fields)
    partition = ", ".join(quote_name(key.name) for key in view.keying.columns) or "1"
    copied = "`@changes` LATERAL VIEW explode(array_repeat(1, CAST(abs(_diff) AS INT))) __copies AS __copy"
    text = (
        f"SELECT {columns}, CASE WHEN _diff < 0 THEN 'undo' ELSE '' END AS undo, _at AS ptime,"
        f" CAST(row_number() OVER (PARTITION BY {partition} ORDER BY _version, _diff, {columns}) - 1 AS BIGINT) AS ver"
        f" FROM {copied}"
    )
    return core.frames.sql(text, {"@changes": frame})


def provisional_frame(core: Core, catalog: Catalog, view: View, snapshot: Snapshot) -> DataFrame:
    """The answer over all rows so far, with a column that says whether each row has fired."""
    fresh = view_query(core, catalog, view, snapshot, late=view.emission.late == "archive")
    if view.emission.mode in ("read", "feed"):
        return fresh.selectExpr("*", "true AS _final")
    shown = shown_frame(core, catalog, view, snapshot)
    columns = ", ".join(quote_name(field.name) for field in view.fields)
    counted = (
        f"SELECT {columns}, sum(_fresh) AS _fresh, sum(1 - _fresh) AS _shown FROM (SELECT {columns}, 1 AS _fresh FROM"
        f" `@fresh` UNION ALL SELECT {columns}, 0 AS _fresh FROM `@shown`) GROUP BY {columns} HAVING sum(_fresh) > 0"
    )
    text = (
        f"SELECT {columns}, __copy <= _shown AS _final FROM ({counted})"
        " LATERAL VIEW explode(sequence(1, CAST(_fresh AS INT))) __copies AS __copy"
    )
    return core.frames.sql(text, {"@fresh": fresh, "@shown": shown})


def archive_frame(core: Core, catalog: Catalog, view: View, snapshot: Snapshot) -> DataFrame:
    """The answer of a view that archives late rows: its closed windows, with these rows."""
    bound = progress(core, catalog, view, snapshot, {}, 0)
    if view.emission.budget is not None:
        bound = snapshot.bounds.get(view.id)
    if bound is None:
        return core.frames.empty(view.fields)
    if not view.operator:
        return view_query(core, catalog, view, snapshot, closed_by=bound)
    if view.emission.mode == "feed":  # it does not wait for windows itself
        return view_query(core, catalog, view, snapshot, late=True)
    timed = (
        [view.emission.closing]
        if view.emission.closing
        else [key.name for key in view.keying.columns if key.name in view.progress.times]
    )
    ends = (view.progress.joint.ends if view.progress.joint is not None and not view.emission.closing else ()) or timed[
        :1
    ]
    passed = (f"unix_micros({quote_name(key)}) + {view.progress.times[key]} <= {min(bound, END)}" for key in ends)
    closed = " AND ".join(passed)
    frame = view_query(core, catalog, view, snapshot, hidden=True, late=True).where(closed)
    return frame.select(*(quote_name(field.name) for field in view.fields))


def shown_frame(
    core: Core,
    catalog: Catalog,
    view: View,
    snapshot: Snapshot,
    *,
    counted: bool = False,
    hidden: bool = False,
    within: Range = (None, None),
) -> DataFrame:
    """The net rows that a view has emitted, each as often as its changes add up to, with times within bounds."""
    frame = changes_frame(core, catalog, view, snapshot, within)
    fields = (*view.fields, *view.hidden) if hidden else view.fields
    columns = ", ".join(quote_name(field.name) for field in fields)
    net = net_sql(columns, "`@changes`")
    if not counted:
        net = (
            f"SELECT {columns} FROM ({net}) LATERAL VIEW"
            " explode(array_repeat(1, CAST(_diff AS INT))) __copies AS __copy"
        )
    return core.frames.sql(net, {"@changes": frame})
