"""ALTER VIEW: the new answer is that of the new query over all rows, and what means the same is not made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.errors import NotSupported, SqlError, UnknownName
from anabranch.plan.catalog import Catalog
from anabranch.plan.states import Panes
from anabranch.plan.view import View
from anabranch.testing import Harness, assert_same_rows, crashing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, n INT)"
TIMED = "CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)"
SUMS = "SELECT k, sum(n) AS n FROM s GROUP BY k"
ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", -4), (None, 5)]
MORE = [("a", 10), ("d", 1), ("c", 4)]


def alter(home: Harness, text: str) -> list[str]:
    message = home.session.sql(f"ALTER VIEW {text}").message
    assert message is not None
    return message.splitlines()


def catalog(home: Harness) -> Catalog:
    return home.session._core.catalog()


def check(home: Harness, view: str, query: str) -> None:
    """The answer is that of the batch query, before and after more rows."""
    assert_same_rows(home.table(view), home.batch(query, s=ROWS))
    home.insert("s", MORE)
    assert_same_rows(home.table(view), home.batch(query, s=[*ROWS, *MORE]))


def test_an_aggregate_more_keeps_the_others_and_fills_the_new_one_only(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert_runs("s", [ROWS[:3], ROWS[3:]])
    query = "SELECT k, sum(n) AS n, max(n) AS most FROM s GROUP BY k"
    (panes,) = catalog(home).of(Panes)
    before = home.session._core.snapshot().files[panes.id]
    assert alter(home, f"v AS {query}") == [
        "view v altered",
        "kept: partials s_by_k (rows, sum_n_sum)",
        "rebuilt: partials s_by_k (max_n_value), from the rows of s",
        "refused: nothing",
    ]
    (panes,) = catalog(home).of(Panes)
    after = home.session._core.snapshot().files[panes.id]
    assert set(before) < set(after)
    import pyarrow.parquet as parquet

    folder = home.session._core.ledger.table_folder(panes.id)
    for path in set(after) - set(before):
        assert parquet.read_schema(folder / path).names == ["k", "max_n_value"]
    check(home, "v", query)


def test_another_filter_rebuilds_and_takes_out_what_nobody_needs(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert("s", ROWS)
    query = "SELECT k, sum(n) AS n FROM s WHERE n > 0 GROUP BY k"
    lines = alter(home, f"v AS {query}")
    assert "kept: nothing" in lines
    assert any(line.startswith("rebuilt: partials s_by_k") for line in lines)
    (panes,) = catalog(home).of(Panes)
    assert all("FILTER" in column.partial for column in panes.columns)
    check(home, "v", query)


def test_a_query_of_single_rows_and_one_of_groups_become_each_other(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS SELECT k, n FROM s WHERE n > 1")
    home.insert("s", ROWS)
    alter(home, f"v AS {SUMS}")
    assert_same_rows(home.table("v"), home.batch(SUMS, s=ROWS))
    query = "SELECT k, n * 2 AS twice FROM s"
    alter(home, f"v AS {query}")
    assert not list(catalog(home).of(Panes))
    check(home, "v", query)


def test_an_inner_node_that_is_equal_is_kept(home: Harness) -> None:
    inner = "SELECT k, sum(n) AS n FROM s GROUP BY k"
    home.sql(
        f"{STREAM}; CREATE VIEW v AS SELECT n % 2 AS odd, count(*) AS c FROM ({inner}) GROUP BY n % 2 EMIT CHANGES"
    )
    home.insert("s", ROWS)
    (node,) = catalog(home).nodes_of(_view(home, "v"))
    files = home.session._core.snapshot().files[node.changes_table]
    query = f"SELECT n % 3 AS odd, count(*) AS c FROM ( {inner.lower()} ) GROUP BY n % 3"
    lines = alter(home, f"v AS {query} EMIT CHANGES")
    assert any(line.startswith("kept: node v/1 (SELECT k, sum(n)") for line in lines)
    assert catalog(home).nodes_of(_view(home, "v")) == [node]
    assert home.session._core.snapshot().files[node.changes_table] == files
    check(home, "v", query)
    assert_same_rows(home.emitted("v"), home.batch(query, s=[*ROWS, *MORE]))
    other = "SELECT n % 3 AS odd, count(*) AS c FROM (SELECT k, max(n) AS n FROM s GROUP BY k) GROUP BY n % 3"
    lines = alter(home, f"v AS {other} EMIT CHANGES")
    assert any(line.startswith("rebuilt: node v/2") for line in lines)
    assert node.changes_table not in home.session._core.snapshot().files
    assert_same_rows(home.table("v"), home.batch(other, s=[*ROWS, *MORE]))


def test_rows_that_are_gone_refuse_and_nothing_is_done(home: Harness) -> None:
    home.sql(f"{STREAM} KEEP NOTHING; CREATE VIEW v AS SELECT k, sum(n) AS n, max(n) AS m FROM s GROUP BY k")
    home.insert("s", ROWS)
    version = home.session.version
    for query in (
        "SELECT k, sum(n) AS n, min(n) AS m FROM s GROUP BY k",
        "SELECT k, sum(n) AS n, max(n) AS m FROM s WHERE n > 0 GROUP BY k",
        "SELECT k, n FROM s",
        "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n) AS m FROM s",
    ):
        with pytest.raises(NotSupported, match="stream s keeps no rows of the past"):
            alter(home, f"v AS {query}")
        assert any(line.startswith("refused: ") and "past" in line for line in alter(home, f"v AS {query} DRY RUN"))
    assert home.session.version == version
    lines = alter(home, f"v AS {SUMS}")  # fewer columns need no rows
    assert lines[1:] == ["kept: partials s_by_k (rows, sum_n_sum)", "rebuilt: nothing", "refused: nothing"]
    check(home, "v", SUMS)


def test_a_dry_run_and_an_equal_query_do_nothing(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert("s", ROWS)
    version = home.session.version
    assert alter(home, f"v AS {SUMS}") == ["nothing changes"]
    assert alter(home, "v AS select k, sum(n)  AS n from s -- the same\n group by k") == ["nothing changes"]
    lines = alter(home, "v AS SELECT k, max(n) AS n FROM s GROUP BY k DRY RUN")
    assert lines[0] == "kept: partials s_by_k (rows)"
    assert lines[-1] == "dry run: nothing is done"
    (result,) = home.session.execute("ALTER VIEW v AS SELECT k, max(n) AS n FROM s GROUP BY k", dry_run=True)
    assert result.message is not None and result.message.splitlines() == lines
    assert home.session.version == version
    assert_same_rows(home.table("v"), home.batch(SUMS, s=ROWS))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, sum(n) AS n FROM s WHERE n > 1 GROUP BY k",
        "SELECT upper(k) AS k, sum(n) AS n FROM s GROUP BY k, n % 2",
        "SELECT k, CAST(count(*) AS BIGINT) AS n FROM (SELECT DISTINCT k, n FROM s) GROUP BY k",
    ],
)
def test_changes_go_on_with_a_correction(home: Harness, query: str) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS} EMIT CHANGES; CREATE VIEW w AS SELECT max(n) AS n FROM v EMIT CHANGES")
    home.insert("s", ROWS)
    subscription = home.session.subscribe("v", home.session.version)
    alter(home, f"v AS {query} EMIT CHANGES")
    version = home.session.version
    old, new = home.batch(SUMS, s=ROWS), home.batch(query, s=ROWS)
    held = _added(old, subscription)
    assert_same_rows(held, new)
    assert_same_rows(home.emitted("v"), new)
    top = f"SELECT max(n) AS n FROM ({query})"
    assert_same_rows(home.table("w"), home.batch(top, s=ROWS))
    home.insert("s", MORE)
    home.reopen()
    home.insert("s", [("b", 7)])
    rows = [*ROWS, *MORE, ("b", 7)]
    for name, text in (("v", query), ("w", top)):
        assert_same_rows(home.table(name), home.batch(text, s=rows))
        assert_same_rows(home.emitted(name), home.batch(text, s=rows))
    assert [change for change in home.changes("v") if change.version == version]


def test_windows_that_have_closed_are_corrected(home: Harness) -> None:
    def sums(call: str) -> str:
        return (
            f"SELECT window_start, k, {call} AS n FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
            " GROUP BY window_start, window_end, k"
        )

    home.sql(f"{TIMED}; CREATE VIEW v AS {sums('sum(n)')} EMIT ON WINDOW CLOSE")
    rows = [("a", 1, "2026-01-01 00:00:05"), ("a", 2, "2026-01-01 00:00:30"), ("b", 3, "2026-01-01 00:01:10")]
    home.insert("s", rows)
    closed = [row for row in home.batch(sums("sum(n)"), s=rows) if row[1] == "a"]
    assert_same_rows(home.table("v"), closed)
    alter(home, f"v AS {sums('sum(n * 2)')} EMIT ON WINDOW CLOSE")
    assert_same_rows(home.emitted("v"), [(start, k, 2 * n) for start, k, n in closed])
    late = ("a", 5, "2026-01-01 00:00:40")
    home.insert("s", [late])
    home.advance("s")
    assert_same_rows(home.table("v"), home.batch(sums("sum(n * 2)"), s=[*rows, late]))
    lines = alter(home, f"v AS {sums('sum(n * 2) + 1')} EMIT ON WINDOW CLOSE")
    assert any(line.startswith("kept: partials") for line in lines)
    assert_same_rows(home.table("v"), home.batch(sums("sum(n * 2) + 1"), s=[*rows, late]))
    assert_same_rows(home.emitted("v"), home.batch(sums("sum(n * 2) + 1"), s=[*rows, late]))


def test_views_above_take_back_rows_that_so_far_only_came(home: Harness) -> None:
    """A view that never takes a row back does so when its query is another one; those above follow."""
    above = {
        "w": "SELECT concat('k', k) AS kk, n FROM v",
        "j": "SELECT concat('k', v.k) AS kk, v.n, s.n AS m FROM v JOIN s ON v.k = s.k",
        "x": "SELECT concat(kk, '!') AS kk, m FROM j",
    }
    home.sql(f"{STREAM}; CREATE VIEW v AS SELECT k, n FROM s WHERE n < 3 EMIT CHANGES")
    for name, query in above.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
    home.insert("s", ROWS)
    seen = list(ROWS)
    for more, filter in ((MORE, "n > 2"), ([("b", 9)], "n < 2")):
        alter(home, f"v AS SELECT k, n FROM s WHERE {filter} EMIT CHANGES")
        for new in ([], more):
            home.insert("s", new)
            seen += new
            v = home.batch(f"SELECT k, n FROM s WHERE {filter}", s=seen)
            j = [(f"k{k}", n, m) for k, n in v for other, m in seen if k is not None and k == other]
            assert_same_rows(home.emitted("w"), [(None if k is None else f"k{k}", n) for k, n in v], filter)
            assert_same_rows(home.emitted("j"), j, filter)
            assert_same_rows(home.emitted("x"), [(f"{kk}!", m) for kk, _, m in j], filter)


@pytest.mark.parametrize("late", ["DROP", "ARCHIVE", "FAIL"])
def test_views_above_follow_windows_that_leave_late_rows_alone(home: Harness, late: str) -> None:
    def counts(filter: str) -> str:
        return (
            "SELECT window_start, k, count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
            f" WHERE {filter} GROUP BY window_start, window_end, k"
        )

    home.sql(f"{TIMED}; CREATE VIEW v AS {counts('n < 3')} EMIT ON WINDOW CLOSE LATE {late}")
    home.sql("CREATE VIEW w AS SELECT concat('k', k) AS kk, c FROM v EMIT CHANGES")
    home.sql("CREATE VIEW g AS SELECT k, sum(c) AS c FROM v GROUP BY k EMIT CHANGES")
    rows = [("a", 1, "2026-01-01 00:00:05"), ("b", 5, "2026-01-01 00:00:30"), ("b", 1, "2026-01-01 00:01:10")]
    home.insert("s", rows)
    assert home.emitted("w") == [("ka", 1)]
    alter(home, f"v AS {counts('n > 2')} EMIT ON WINDOW CLOSE LATE {late}")
    assert home.emitted("w") == [("kb", 1)]
    assert home.emitted("g") == [("b", 1)]
    home.insert("s", [("c", 9, "2026-01-01 00:01:20"), ("c", 0, "2026-01-01 00:02:00")])
    assert sorted(home.emitted("w")) == [("kb", 1), ("kc", 1)]
    assert sorted(home.emitted("g")) == [("b", 1), ("c", 1)]


def test_who_listens_is_told_before_anything_is_done(home: Harness) -> None:
    told: list[tuple[int, str]] = []
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert("s", ROWS)
    before = home.session.version
    home.session.on_notice(lambda text: told.append((home.session.version, text)))
    assert alter(home, "v AS SELECT k, sum(n) AS n, max(n) AS most FROM s GROUP BY k") == ["view v altered"]
    ((version, text),) = told
    assert version == before
    assert text.splitlines()[2:] == [
        "rebuilt: partials s_by_k (max_n_value), from the rows of s",
        "refused: nothing",
    ]


def test_other_columns_need_that_nobody_reads_the_view(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS} EMIT CHANGES; CREATE VIEW w AS SELECT max(n) AS n FROM v")
    home.insert("s", ROWS)
    query = "SELECT k, sum(n) AS n, count(*) AS c FROM s GROUP BY k"
    with pytest.raises(NotSupported, match="it is read by w"):
        alter(home, f"v AS {query} EMIT CHANGES")
    home.sql("DROP VIEW w")
    lines = alter(home, f"v AS {query} EMIT CHANGES")
    assert "rebuilt: changes of v, begun anew" in lines
    check(home, "v", query)
    assert_same_rows(home.emitted("v"), home.batch(query, s=[*ROWS, *MORE]))


def test_what_cannot_be_is_said_at_its_place(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}; CREATE VIEW w AS SELECT max(n) AS n FROM v")
    with pytest.raises(SqlError, match="view v would read itself"):
        alter(home, "v AS SELECT 'x' AS k, n FROM w")
    with pytest.raises(UnknownName, match="there is no view x"):
        alter(home, f"x AS {SUMS}")
    with pytest.raises(SqlError, match="there is no column m"):
        alter(home, "v AS SELECT m FROM s")
    changed = "SELECT k, sum(n * 2) AS n FROM s GROUP BY k"
    with pytest.raises(SqlError, match="ALTER VIEW v AS SELECT k, sum"):
        home.session.run(f"CREATE VIEW v AS {changed}", until_idle=True)
    alter(home, f"v AS {changed}")
    home.session.run(f"CREATE VIEW v AS {changed}", until_idle=True)  # the home says what the script says


def test_a_source_is_read_again(tmp_path: Path, home: Harness) -> None:
    (tmp_path / "0.csv").write_text("a,1\nb,2\n")
    home.sql(f"CREATE STREAM s (k STRING, n INT) FROM files(path => '{tmp_path}/*.csv'); CREATE VIEW v AS {SUMS}")
    assert home.table("v") == [("a", 1), ("b", 2)]
    alter(home, "v AS SELECT k, n, row_number() OVER (ORDER BY k DESC) AS r FROM s")
    (tmp_path / "1.csv").write_text("c,3\n")
    assert home.table("v") == [("a", 1, 3), ("b", 2, 2), ("c", 3, 1)]


def test_a_view_that_starts_now_goes_on_with_what_it_has_seen(home: Harness) -> None:
    home.sql(STREAM)
    home.insert("s", [("a", 100)])
    home.sql("CREATE VIEW v AS SELECT k, sum(n) AS n, count(*) AS c FROM s GROUP BY k START AT NOW")
    home.insert("s", [("a", 1)])
    alter(home, f"v AS {SUMS}")
    assert home.table("v") == [("a", 1)]
    alter(home, "v AS SELECT k, max(n) AS n FROM s GROUP BY k")
    assert home.table("v") == [("a", 1)]
    alter(home, "v AS SELECT k, n FROM s")
    home.insert("s", [("b", 2)])
    assert home.table("v") == [("a", 1), ("b", 2)]
    alter(home, f"v AS {SUMS} EMIT CHANGES")
    assert home.table("v") == [("a", 1), ("b", 2)]


def _view(home: Harness, name: str) -> View:
    found = catalog(home).find(name)
    assert isinstance(found, View)
    return found


def _added(rows: list[tuple[object, ...]], batches: object) -> list[tuple[object, ...]]:
    """What a subscriber holds that had these rows."""
    held = list(rows)
    for batch in batches:  # type: ignore[attr-defined]
        for change in batch.changes.to_pylist():
            *row, diff = change.values()
            for _ in range(abs(diff)):
                (held.append if diff > 0 else held.remove)(tuple(row))
    return held


# ---- triggers, changes as a stream, sinks, crashes


@pytest.mark.parametrize("call", ["sum(n * 2)", "max(n)"])
def test_triggers_go_on_after_another_query(home: Harness, call: str) -> None:
    """What has fired is corrected by the alter, what waits fires later; at the end the answer is that of the query."""
    query = f"SELECT k, CAST({call} AS BIGINT) AS n FROM s GROUP BY k"
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS} TRIGGER COUNTING 2, ON END OF STREAM")
    home.insert("s", ROWS)
    assert home.table("v") == [("a", 4)]
    alter(home, f"v AS {query} TRIGGER COUNTING 2, ON END OF STREAM")
    (row,) = [row for row in home.batch(query, s=ROWS) if row[0] == "a"]
    assert_same_rows(home.table("v"), [row])
    home.insert("s", MORE)
    home.reopen()
    home.insert("s", [("d", 3)])
    home.advance("s")
    rows = [*ROWS, *MORE, ("d", 3)]
    assert_same_rows(home.table("v"), home.batch(query, s=rows))
    assert_same_rows(home.emitted("v"), home.batch(query, s=rows))


def test_another_trigger(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS} TRIGGER COUNTING 3")
    home.insert("s", ROWS)
    assert home.table("v") == []
    alter(home, f"v AS {SUMS} TRIGGER COUNTING 2")
    assert home.table("v") == [("a", 4)]
    alter(home, f"v AS {SUMS} EMIT CHANGES")
    assert_same_rows(home.table("v"), home.batch(SUMS, s=ROWS))
    home.insert("s", MORE)
    assert_same_rows(home.emitted("v"), home.batch(SUMS, s=[*ROWS, *MORE]))


def test_changes_that_are_shown_as_a_stream_stay_and_go_on(home: Harness) -> None:
    """A view with EMIT STREAM shows what it ever gave out; another query adds its correction to that."""
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS} EMIT STREAM")
    home.insert("s", ROWS[:2])
    first = [("a", 1, ""), ("b", 2, "")]
    assert sorted(home.query("SELECT k, n, undo FROM v")) == first
    alter(home, "v AS SELECT k, sum(n * 2) AS n FROM s GROUP BY k EMIT STREAM")
    second = [("a", 1, "undo"), ("a", 2, ""), ("b", 2, "undo"), ("b", 4, "")]
    assert sorted(home.query("SELECT k, n, undo FROM v")) == sorted(first + second)
    home.insert("s", [("a", 5)])
    third = [("a", 2, "undo"), ("a", 12, "")]
    assert sorted(home.query("SELECT k, n, undo FROM v")) == sorted(first + second + third)


@pytest.mark.parametrize("into", ["files(path => '{0}', format => 'json')", "delta(path => '{0}', mode => 'table')"])
def test_a_sink_gets_the_correction_once(home: Harness, tmp_path: Path, into: str) -> None:
    path = tmp_path / "out"
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}; CREATE SINK k FROM v INTO {into.format(path)}")
    home.insert("s", ROWS)
    with pytest.raises(NotSupported, match="it is read by k"):
        alter(home, "v AS SELECT k, sum(n) AS n, count(*) AS c FROM s GROUP BY k")
    query = "SELECT k, sum(n) AS n FROM s WHERE n > 0 GROUP BY k"
    alter(home, f"v AS {query}")
    assert_same_rows(_written(home, path, "mode" in into), home.batch(query, s=ROWS), "at once, not after the next run")
    home.insert("s", MORE)
    home.reopen()
    home.insert("s", [("b", 7)])
    rows = [*ROWS, *MORE, ("b", 7)]
    assert_same_rows(_written(home, path, "mode" in into), home.batch(query, s=rows))
    assert home.query("SELECT error, version FROM sys.sinks") == [(None, home.session.version)]


def _written(home: Harness, path: Path, table: bool) -> list[tuple[object, ...]]:
    """What a sink wrote, added up."""
    if table:
        from deltalake import DeltaTable

        return [(row["k"], row["n"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist()]
    net = f"SELECT k, n, sum(_diff) AS d FROM json('{path}') GROUP BY k, n HAVING sum(_diff) <> 0"
    rows = home.query(net)
    assert all(row[2] == 1 for row in rows)
    return [row[:2] for row in rows]


def _one_alter(home: str, text: str) -> None:
    with Harness(home) as harness:
        harness.sql(f"ALTER VIEW {text}")


@pytest.mark.crash
@pytest.mark.parametrize("point", [pytest.param("after-first-table-commit", marks=pytest.mark.slow), "after-record"])
def test_an_alter_that_is_killed_is_done_or_not(tmp_path: Path, spark: SparkSession, point: str) -> None:
    path = tmp_path / "home"
    query = "SELECT k, sum(n) AS n FROM s WHERE n > 0 GROUP BY k"
    with Harness(path, spark) as home:
        home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS} EMIT CHANGES")
        home.sql(f"CREATE SINK k FROM v INTO files(path => '{tmp_path}/out')")
        home.insert("s", ROWS)
    assert crashing(point, _one_alter, str(path), f"v AS {query} EMIT CHANGES")
    with Harness(path, spark) as home:
        now = query if point == "after-record" else SUMS
        assert_same_rows(home.table("v"), home.batch(now, s=ROWS))
        assert_same_rows(home.emitted("v"), home.batch(now, s=ROWS))
        alter(home, f"v AS {query} EMIT CHANGES")
        home.insert("s", MORE)
        wanted = home.batch(query, s=[*ROWS, *MORE])
        assert_same_rows(home.emitted("v"), wanted)
        net = f"SELECT k, n FROM parquet('{tmp_path}/out') GROUP BY k, n HAVING sum(_diff) <> 0"
        assert_same_rows(home.query(net), wanted)
