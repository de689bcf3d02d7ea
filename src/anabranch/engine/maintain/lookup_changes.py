"""The changes of nodes that look up external tables: each new row with the matches found when it arrived.

    a new row        looked up once; the list of its matches is stored with it, and the version of the lookup
    a retracted row  its stored matches are retracted, whatever the table holds now; of several equal rows those of the
                     last lookup

Nodes above read only the ledger. A run that is repeated after a crash looks rows up again only if it was not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch.engine import read
from anabranch.engine.lookup_client import Key, LookupRequest
from anabranch.engine.maintain import deltas
from anabranch.engine.tables import net_sql
from anabranch.ledger.crash import reach
from anabranch.plan.definitions import Table
from anabranch.plan.describe import append_only
from anabranch.plan.view import LOOKUP_VERSION, TableLookup, View
from anabranch.sources.lookup import arrow_schema
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from anabranch.engine.maintain.commit import Commit

KEY = "__key_{}_{}"
#: Python's calendar, which is shorter than Spark's.
_CALENDAR = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp": ("0001-01-01 00:00:00+00:00", "9999-12-31 23:59:59.999999+00:00"),
}


@contextmanager
def changes(commit: Commit, view: View, *, recompute: bool = False) -> Iterator[DataFrame | None]:
    """The changes of such a node in a commit; None if its input has none.

    With `recompute`, the input is compared with the stored rows: it may have changed without new rows. The rows are
    cached until the context ends, since they are read for the keys and again for the result.
    """
    new = _difference(commit, view) if recompute else deltas.delta(commit, view, view.inputs[0])
    if new is None:
        yield None
        return
    rows = _keyed(commit, view, new).persist()
    try:
        found = _with_matches(commit, view, rows.where("_diff > 0"))
        if _only_grows(commit, view) and not recompute:
            yield found
        else:
            yield found.unionByName(_taken_back(commit, view, rows.where("_diff < 0")))
    finally:
        rows.unpersist()


def _only_grows(commit: Commit, view: View) -> bool:
    """Whether the input is append-only."""
    if commit.filling or view.inputs[0] in view.query.streams:
        return True
    return append_only(commit.catalog.view(view.query.views[view.inputs[0]]), commit.catalog)


def _keyed(commit: Commit, view: View, new: DataFrame) -> DataFrame:
    """The net changes of the input, with the lookup keys of each row."""
    columns = _columns(view)
    came = f"SELECT {columns}, 1 AS _diff FROM `@new`"
    net = came if view.inputs[0] in view.query.streams else net_sql(columns, "`@new`")
    keys = []
    for number, lookup in enumerate(view.query.asks):
        for index, (expression, type) in enumerate(zip(lookup.expressions, key_types(commit, lookup), strict=True)):
            keys.append(f"{key_sql(lookup, expression, type, type)} AS `{KEY.format(number, index)}`")
    text = f"SELECT *, {', '.join(keys)} FROM ({net}) AS {quote_name(view.query.asks[0].of)}"
    return commit.core.frames.sql(text, {"@new": new})


def _difference(commit: Commit, view: View) -> DataFrame | None:
    """The rows of the input that were not looked up yet, and stored rows that it no longer has; None for a stream,
    which is append-only."""
    if view.inputs[0] in view.query.streams:
        return None
    core, catalog = commit.core, commit.catalog
    source = catalog.view(view.query.views[view.inputs[0]])
    below = read.view_frame(core, catalog, source, commit.after, emitted=True)
    shown = read.changes_frame(core, catalog, view, commit.before)
    columns = _columns(view)
    text = f"SELECT {columns}, 1 AS _diff FROM `@now` UNION ALL SELECT {columns}, -_diff FROM `@shown`"
    return core.frames.sql(text, {"@now": below, "@shown": shown})


def _columns(view: View) -> str:
    return ", ".join(quote_name(field.name) for field in inputs_of(view))


def inputs_of(view: View) -> tuple[Field, ...]:
    """The columns of the rows that are looked up."""
    own = {LOOKUP_VERSION, *(lookup.into for lookup in view.query.asks)}
    return tuple(field for field in view.fields if field.name not in own)


# ---- new rows


def _with_matches(commit: Commit, view: View, rows: DataFrame) -> DataFrame:
    """New rows with their matches."""
    core = commit.core
    relations = {"@rows": rows}
    joins, shown = [], []
    for number, lookup in enumerate(view.query.asks):
        names = [f"`{KEY.format(number, index)}`" for index in range(len(lookup.by))]
        relations[f"@found{number}"] = _found(commit, lookup, names, rows)
        on = " AND ".join(f"__rows.{name} = __f{number}.{name}" for name in names)
        joins.append(f" LEFT JOIN `@found{number}` AS __f{number} ON {on}")
        shown.append(f"__f{number}.{quote_name(lookup.into)}")
    version = f"CAST({commit.before.version + 1} AS BIGINT) AS {LOOKUP_VERSION}"
    items = ", ".join([*(f"__rows.{quote_name(field.name)}" for field in inputs_of(view)), version, *shown])
    reach("after-lookup")
    return core.frames.sql(f"SELECT {items}, __rows._diff FROM `@rows` AS __rows{''.join(joins)}", relations)


def _found(commit: Commit, lookup: TableLookup, names: list[str], rows: DataFrame) -> DataFrame:
    """The matches of the keys of rows, one row per key."""
    import pyarrow as pa

    core = commit.core
    there = " AND ".join(f"{name} IS NOT NULL" for name in names)
    keys = core.frames.sql(f"SELECT DISTINCT {', '.join(names)} FROM `@rows` WHERE {there}", {"@rows": rows}).toArrow()
    matches, lists = fetch_matches(commit, lookup, zip(*(column.to_pylist() for column in keys.columns), strict=True))
    by = arrow_schema([Field(str(index), type) for index, type in enumerate(key_types(commit, lookup))])
    arrays = [pa.array([key[index] for key in matches], field.type) for index, field in enumerate(by)]
    found = pa.Table.from_arrays([*arrays, lists], names=[*(name.strip("`") for name in names), lookup.into])
    return core.spark.createDataFrame(found)


def fetch_matches(commit: Commit, lookup: TableLookup, keys: Iterable[Key]) -> tuple[list[Key], pa.ListArray]:
    """The keys that have matches, and the list of the matches of each."""
    table = commit.catalog[lookup.table]
    assert isinstance(table, Table)
    columns = arrow_schema(fields_of(commit, lookup, lookup.columns))
    return commit.core.lookup_client(table).lists(LookupRequest(lookup.columns, lookup.by, lookup.signs), keys, columns)


def key_sql(lookup: TableLookup, value: str, type: str, own: str) -> str:
    """A lookup key of a row, for Spark and DuckDB; `own` is the engine's name of the type.

    A date or time outside of the calendar equals nothing, and is ordered like the end of the calendar.
    """
    key = f"try_cast({value} AS {own})"
    if type not in _CALENDAR:
        return key
    first, last = (f"CAST('{end}' AS {own})" for end in _CALENDAR[type])
    ends = (first, last) if lookup.signs else ("NULL", "NULL")
    return f"CASE WHEN {key} < {first} THEN {ends[0]} WHEN {key} > {last} THEN {ends[1]} ELSE {key} END"


def key_types(commit: Commit, lookup: TableLookup) -> tuple[str, ...]:
    """The types of the lookup keys."""
    return lookup.types or tuple(field.type for field in fields_of(commit, lookup, lookup.by))


def fields_of(commit: Commit, lookup: TableLookup, names: tuple[str, ...]) -> list[Field]:
    table = commit.catalog[lookup.table]
    assert isinstance(table, Table)
    return [next(field for field in table.fields if field.name == name) for name in names]


# ---- retracted rows


def _taken_back(commit: Commit, view: View, gone: DataFrame) -> DataFrame:
    shown = read.changes_frame(commit.core, commit.catalog, view, commit.before)
    text = taken_back_sql(view, "`@shown`", "`@gone`", quote_name, "<=>")
    return commit.core.frames.sql(text, {"@shown": shown, "@gone": gone})


def taken_back_sql(view: View, shown: str, gone: str, quote: Callable[[str], str], same: str) -> str:
    """The stored rows to retract for the rows in `gone`, whose counts are negative; those of the last lookup first.

    For Spark and DuckDB: `quote` quotes a name, `same` is the null-safe equality operator.
    """
    inputs = [quote(field.name) for field in inputs_of(view)]
    on = " AND ".join(f"__s.{name} {same} __g.{name}" for name in inputs)
    lists = [quote(lookup.into) for lookup in view.query.asks]
    kept = ", ".join(inputs)
    rows = ", ".join(f"__s.{name}" for name in (*inputs, LOOKUP_VERSION))
    stored = (
        f"SELECT {rows}, {', '.join(f'first(__s.{name}) AS {name}' for name in lists)},"
        f" sum(__s._diff) AS __count, -first(__g._diff) AS __gone FROM {shown} AS __s JOIN {gone} AS __g ON {on}"
        f" GROUP BY {rows} HAVING sum(__s._diff) > 0"
    )
    later = f"PARTITION BY {kept} ORDER BY {LOOKUP_VERSION} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    ranked = f"SELECT *, coalesce(sum(__count) OVER ({later}), 0) AS __later FROM ({stored}) AS __stored"
    return (
        f"SELECT {kept}, {LOOKUP_VERSION}, {', '.join(lists)},"
        f" -CAST(least(__count, __gone - __later) AS BIGINT) AS _diff"
        f" FROM ({ranked}) AS __ranked WHERE __later < __gone"
    )
