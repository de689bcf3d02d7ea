"""The changes of nodes that look up external tables, computed by DuckDB on the driver: no Spark job for small runs.

The result is that of `lookup_changes`, which computes what DuckDB cannot compute, or would compute differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.duck import quoted
from anabranch.engine import driver_changes
from anabranch.engine.driver import copy_to_table
from anabranch.engine.lookup_client import Key
from anabranch.engine.maintain.lookup_changes import KEY, fetch_matches, inputs_of, key_sql, key_types, taken_back_sql
from anabranch.engine.tables import net_sql
from anabranch.ledger import DataFile
from anabranch.ledger.crash import reach
from anabranch.plan.name_resolution import NotApplicable
from anabranch.plan.types import duckdb_type
from anabranch.plan.view import LOOKUP_VERSION, TableLookup, View
from anabranch.render.duckdb import driver_sql
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.engine.maintain.commit import Commit

NEW, FOUND = "__new_rows", "__found_rows"


def changes(commit: Commit, view: View) -> tuple[DataFile, ...] | None:
    """The changes of such a node in a commit; None if Spark has to compute them."""
    import duckdb

    tables = commit.catalog.tables_read(view)
    read = commit.after.files if commit.filling else {}
    rows = sum(file.rows for table in tables for file in read.get(table, {}).values()) or commit.new_rows(view)
    if not commit.core.place.takes_changes(rows, 0):
        return None
    query = driver_changes.Query(commit, view)
    if any(duckdb_type(field.type) is None for field in query.all_fields(view)):
        return None
    table_cache = commit.core.table_cache
    try:
        text = _new_text(commit, view)
        if not text:
            return () if text is not None else None
        table_cache.settle(commit.after)
        duck = table_cache.duck
        duck.execute(f"CREATE OR REPLACE TEMP TABLE {NEW} AS {text}")
        duck.register(FOUND, _found(commit, view, duck.sql(f"SELECT * FROM {NEW} WHERE _diff > 0").to_arrow_table()))
        changed = f"SELECT {_columns(view.fields)}, _diff FROM {FOUND}"
        if duck.execute(f"SELECT 1 FROM {NEW} WHERE _diff < 0 LIMIT 1").fetchone() is not None:
            stored = (*view.fields, Field("_diff", "bigint"))
            shown = table_cache.relation(view.changes_table, commit.before, stored)
            gone = f"(SELECT * FROM {NEW} WHERE _diff < 0)"
            taken = taken_back_sql(view, shown, gone, quoted, "IS NOT DISTINCT FROM")
            changed += f" UNION ALL SELECT {_columns(view.fields)}, _diff FROM ({taken})"
        stamped = query.stamped(changed, view.fields)
        return copy_to_table(commit.core, duck, stamped, view.changes_table, view.time or None)
    except (NotApplicable, duckdb.Error):
        return None
    finally:
        table_cache.duck.unregister(FOUND)
        table_cache.duck.execute(f"DROP TABLE IF EXISTS {NEW}")


def _columns(fields: tuple[Field, ...]) -> str:
    return ", ".join(quoted(field.name) for field in fields)


def _new_text(commit: Commit, view: View) -> str | None:
    """The net changes of the input, with the lookup keys of each row. Empty if there are none; None if Spark has to."""
    query = driver_changes.Query(commit, view)
    columns = _columns(inputs_of(view))
    parts = []
    for sign in (1, -1):
        rows = query.delta(view, view.inputs[0], sign)
        if rows is not None:
            parts.append(f"SELECT {columns}, {sign} AS _diff FROM {rows}")
    if not parts:
        return ""
    both = " UNION ALL ".join(parts)
    if view.inputs[0] in view.query.views:
        both = net_sql(columns, f"({both})")
    wanted, keys = [], []
    for number, lookup in enumerate(view.query.asks):
        for index, (expression, type) in enumerate(zip(lookup.expressions, key_types(commit, lookup), strict=True)):
            name, own = KEY.format(number, index), duckdb_type(type)
            assert own is not None
            wanted.append(f"{expression} AS {quote_name(name)}")
            keys.append(f"{key_sql(lookup, quoted(name), type, own)} AS {quoted(name)}")
    given = ", ".join(quote_name(field.name) for field in inputs_of(view))
    asking = f"SELECT {given}, `_diff`, {', '.join(wanted)} FROM `@rows` AS {quote_name(view.query.asks[0].of)}"
    text = driver_sql(asking, lambda _: f"({both})", inputs_of(view))
    return None if text is None else f"SELECT {columns}, _diff, {', '.join(keys)} FROM ({text})"


def _found(commit: Commit, view: View, rows: pa.Table) -> pa.Table:
    """New rows with the version that looks them up, and the matches of each."""
    import pyarrow as pa

    version = commit.before.version + 1
    names = [field.name for field in inputs_of(view)]
    found = rows.select([*names, "_diff"]).append_column(
        LOOKUP_VERSION, pa.array([version] * rows.num_rows, pa.int64())
    )
    for number, lookup in enumerate(view.query.asks):
        columns = [rows.column(KEY.format(number, index)).to_pylist() for index in range(len(lookup.by))]
        found = found.append_column(lookup.into, _lists(commit, lookup, list(zip(*columns, strict=True))))
    reach("after-lookup")
    return found


def _lists(commit: Commit, lookup: TableLookup, keys: list[Key]) -> pa.Array:
    """The list of the matches of each key, in the order of the keys; NULL for none."""
    import pyarrow as pa

    matched, lists = fetch_matches(commit, lookup, keys)
    indexes = {key: index for index, key in enumerate(matched)}
    return lists.take(pa.array([indexes.get(key) for key in keys], pa.int64()))
