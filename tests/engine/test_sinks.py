"""Sinks: what a view shows goes out, each version once, whatever is killed in between."""

from __future__ import annotations

import csv
import json
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow import parquet

import anabranch
from anabranch.errors import AnabranchError
from anabranch.plan.definitions import Sink
from anabranch.testing import Harness, crashing

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, n INT)"
TOTALS = "CREATE VIEW totals AS SELECT k, sum(n) AS n FROM s GROUP BY k"
#: The same row may be shown several times.
PLAIN = "CREATE VIEW plain AS SELECT k, n FROM s WHERE n > 0"
#: Rows are taken back though the key is not shown.
HIDDEN = "CREATE VIEW hidden AS SELECT count(*) AS c FROM s GROUP BY k"

Rows = Counter[tuple[Any, ...]]


def make(home: Harness, folder: Path, into: str, view: str = "totals") -> None:
    home.sql(f"CREATE SINK out_{view} FROM {view} INTO {into.format(path=folder)}")


def shown(home: Harness, view: str) -> Rows:
    return Counter(home.table(view))


def change_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of changes, with texts for what has no types."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    if path.suffix == ".csv":
        with path.open() as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


def added_up(rows: list[dict[str, Any]]) -> Rows:
    sums: Rows = Counter()
    for row in rows:
        names = [name for name in row if name not in ("_diff", "_version")]
        sums[tuple(int(row[n]) if n in ("n", "c") else row[n] for n in names)] += int(row["_diff"])
    assert all(count >= 0 for count in sums.values())
    return Counter({row: count for row, count in sums.items() if count})


def written(folder: Path) -> list[Path]:
    return sorted(folder.glob("v*"))


def all_changes(folder: Path) -> Rows:
    return added_up([row for path in written(folder) for row in change_rows(path)])


def delta_rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return rows


def delta_versions(folder: Path) -> list[int]:
    return sorted(int(commit["anabranch.version"]) for commit in DeltaTable(str(folder)).history())


def test_a_file_a_version_with_its_changes(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    home.insert("s", [("a", 1), ("b", 2)])
    for format in ("parquet", "csv", "json"):
        home.sql(
            f"CREATE SINK {format}_out FROM totals INTO files(path => '{tmp_path / format}', format => '{format}')"
        )
    home.insert("s", [("a", 10)])
    home.reopen()
    home.insert("s", [("a", 5), ("c", 1)])
    for format in ("parquet", "csv", "json"):
        paths = written(tmp_path / format)
        assert len(paths) == 3
        assert all_changes(tmp_path / format) == shown(home, "totals")
        for path in paths:
            assert {int(row["_version"]) for row in change_rows(path)} == {int(path.stem[1:])}
    assert home.query("SELECT DISTINCT error FROM sys.sinks") == [(None,)]


def test_what_is_there_is_not_written_again(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    make(home, tmp_path / "out", "files(path => '{path}')")
    home.insert("s", [("a", 1)])
    home.insert("s", [("a", 2)])
    before = {path.name: path.stat().st_mtime_ns for path in written(tmp_path / "out")}
    assert len(before) == 2
    home.session._core.sinks.move()
    home.reopen()
    home.session._core.sinks.move()
    assert {path.name: path.stat().st_mtime_ns for path in written(tmp_path / "out")} == before


def test_a_version_cut_off_by_a_crash_is_written_by_the_next_process(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    make(home, tmp_path / "out", "files(path => '{path}')")
    home.insert("s", [("a", 1)])
    home.insert("s", [("a", 2)])
    (first, last) = written(tmp_path / "out")
    kept = first.stat().st_mtime_ns
    # As a kill before the rename leaves it: a committed run, and half a file under a name that nobody reads.
    last.rename(tmp_path / "out" / ".tmp-half")
    home.reopen()
    home.session._core.sinks.move()
    assert [path.name for path in written(tmp_path / "out")] == [first.name, last.name]
    assert not list((tmp_path / "out").glob(".tmp-*"))
    assert first.stat().st_mtime_ns == kept
    assert all_changes(tmp_path / "out") == shown(home, "totals")


@pytest.mark.parametrize(("view", "format"), [("totals", "parquet"), ("plain", "json"), ("plain", "csv")])
def test_the_table_as_one_file(home: Harness, tmp_path: Path, view: str, format: str) -> None:
    home.sql(f"{STREAM}; {TOTALS}; {PLAIN}")
    folder = tmp_path / "out"
    make(home, folder, f"files(path => '{{path}}', format => '{format}', mode => 'table')", view)
    home.insert("s", [("a", 1), ("a", 1), ("b", 2)])
    home.insert("s", [("a", 1), ("c", 3)])

    def found() -> Rows:
        return Counter((row["k"], int(row["n"])) for row in change_rows(folder / f"table.{format}"))

    assert found() == shown(home, view)
    version = json.loads((folder / "table.version").read_text())["version"]
    assert home.query("SELECT version FROM sys.sinks") == [(version,)]
    # Killed between the table and its version: the table is written again, and is the same.
    (folder / "table.version").unlink()
    home.reopen()
    home.session._core.sinks.move()
    assert found() == shown(home, view)
    home.insert("s", [("d", 4)])
    assert found() == shown(home, view)


def test_a_delta_table_of_changes(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    home.insert("s", [("a", 1)])
    folder = tmp_path / "out"
    make(home, folder, "delta(path => '{path}')")
    home.insert("s", [("a", 2), ("b", 1)])
    home.reopen()
    home.insert("s", [("b", 2)])
    home.session._core.sinks.move()
    assert added_up(delta_rows(folder)) == shown(home, "totals")
    versions = delta_versions(folder)
    assert len(versions) == len(set(versions)) == 3
    assert {row["_version"] for row in delta_rows(folder)} == set(versions)
    assert home.query("SELECT version FROM sys.sinks") == [(versions[-1],)]


@pytest.mark.parametrize("view", ["totals", "plain", "hidden"])
def test_a_delta_table_of_what_is_shown(home: Harness, tmp_path: Path, view: str) -> None:
    home.sql(f"{STREAM}; {TOTALS}; {PLAIN}; {HIDDEN}")
    folder = tmp_path / "out it's *"
    make(home, folder, "delta(path => \"{path}\", mode => 'table')", view)
    for rows in ([("a", 1), ("b", 2), (None, 3)], [("a", 1), ("a", 1), ("c", 2)], [("b", 7)], [(None, 1)]):
        home.insert("s", rows)
        found = Counter(tuple(row.values()) for row in delta_rows(folder))
        assert found == shown(home, view)
        home.reopen()
    versions = delta_versions(folder)
    assert len(versions) == len(set(versions)) == 5
    home.session._core.sinks.move()
    assert delta_versions(folder) == versions


def test_a_version_of_a_delta_table_is_not_written_twice(home: Harness, tmp_path: Path) -> None:
    from anabranch.engine.sinks import target_of

    home.sql(f"{STREAM}; {TOTALS}")
    make(home, tmp_path / "out", "delta(path => '{path}')")
    home.insert("s", [("a", 2)])
    core = home.session._core
    (sink,) = core.catalog().of(Sink)
    target = target_of(sink, core.ledger)
    position = target.position()
    assert position is not None
    before = delta_rows(tmp_path / "out")
    changes = parquet.read_table(DeltaTable(str(tmp_path / "out")).file_uris()[0]).drop_columns(["_version"])
    target.apply(position, changes)
    assert delta_rows(tmp_path / "out") == before


def one_insert(home: str, values: str) -> None:
    """In a process of its own, which may be killed before the insert has gone to all sinks."""
    with anabranch.connect(home) as session:
        session.sql(f"INSERT INTO s VALUES {values}")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "before-sink-file",
        "after-sink-file",
        "after-sink-file:2",
        "before-sink-commit",
        "after-sink-commit",
        "before-sink-commit:2",
        "after-sink-commit:2",
    ],
)
def test_a_process_killed_while_it_writes_sinks_loses_and_doubles_nothing(
    home: Harness, tmp_path: Path, point: str
) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    home.sql(f"CREATE SINK one FROM totals INTO files(path => '{tmp_path / 'one'}')")
    home.sql(f"CREATE SINK two FROM totals INTO delta(path => '{tmp_path / 'two'}')")
    home.sql(f"CREATE SINK three FROM totals INTO delta(path => '{tmp_path / 'three'}', mode => 'table')")
    home.sql(f"CREATE SINK zero FROM totals INTO files(path => '{tmp_path / 'zero'}', mode => 'table')")
    home.insert("s", [("a", 1), ("b", 1)])
    home.session.close()
    assert crashing(point, one_insert, str(home.session.home), "('a', 2)")
    home.reopen()
    home.insert("s", [("b", 5)])
    answer = shown(home, "totals")
    assert answer == Counter({("a", 3): 1, ("b", 6): 1})
    assert all_changes(tmp_path / "one") == added_up(delta_rows(tmp_path / "two")) == answer
    assert Counter(tuple(row.values()) for row in delta_rows(tmp_path / "three")) == answer
    assert Counter((row["k"], row["n"]) for row in change_rows(tmp_path / "zero" / "table.parquet")) == answer
    assert len(written(tmp_path / "one")) == 3
    for folder in (tmp_path / "two", tmp_path / "three"):
        assert len(delta_versions(folder)) == len(set(delta_versions(folder))) == 4


def test_a_sink_that_fails_holds_nobody_up(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    home.sql(f"CREATE SINK one FROM totals INTO files(path => '{tmp_path / 'one'}')")
    home.sql(f"CREATE SINK two FROM totals INTO files(path => '{tmp_path / 'two'}')")
    home.insert("s", [("a", 1)])
    shutil.move(tmp_path / "one", tmp_path / "away")
    told: list[str] = []
    home.session.on_warning(told.append)
    home.insert("s", [("a", 2)])
    home.insert("s", [("a", 3)])
    assert len(told) == 1
    assert "sink one could not be written" in told[0]
    assert "is gone" in told[0]
    assert all_changes(tmp_path / "two") == shown(home, "totals")
    errors = dict(home.query("SELECT name, error FROM sys.sinks"))
    assert errors["two"] is None
    assert "is gone" in str(errors["one"])
    home.compact()
    shutil.move(tmp_path / "away", tmp_path / "one")
    home.insert("s", [("a", 4)])
    assert all_changes(tmp_path / "one") == all_changes(tmp_path / "two") == shown(home, "totals")
    assert [path.name for path in written(tmp_path / "one")] == [path.name for path in written(tmp_path / "two")]
    assert dict(home.query("SELECT name, error FROM sys.sinks")) == {"one": None, "two": None}


def test_without_a_listener_a_failure_is_a_warning(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    make(home, tmp_path / "out", "files(path => '{path}')")
    shutil.rmtree(tmp_path / "out")
    with pytest.warns(RuntimeWarning, match="is gone"):
        home.insert("s", [("a", 1)])
    (tmp_path / "out").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        home.insert("s", [("b", 1)])
    assert all_changes(tmp_path / "out") == shown(home, "totals")


def test_a_slow_sink_keeps_the_changes_it_has_still_to_read(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    make(home, tmp_path / "out", "files(path => '{path}')")
    home.insert("s", [("a", 1)])
    shutil.move(tmp_path / "out", tmp_path / "away")
    home.session.on_warning(lambda _: None)
    home.session._core.ledger.keep_versions = 1
    for number in range(3):
        home.insert("s", [("a", number)])
    home.compact()
    shutil.move(tmp_path / "away", tmp_path / "out")
    home.insert("s", [("b", 1)])
    assert len(written(tmp_path / "out")) == 5 - 1  # adding 0 changes nothing
    assert all_changes(tmp_path / "out") == shown(home, "totals")


def test_windows_that_close_by_progress_go_out(home: Harness, tmp_path: Path) -> None:
    home.sql("CREATE STREAM t (ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    home.sql(
        "CREATE VIEW closed AS SELECT window_start, count(*) AS c FROM TUMBLE(t, ts, INTERVAL 1 MINUTE)"
        " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE"
    )
    make(home, tmp_path / "out", "files(path => '{path}')", "closed")
    home.sql("INSERT INTO t VALUES (TIMESTAMP '2026-01-01 00:00:05')")
    assert written(tmp_path / "out") == []
    home.sql("ADVANCE STREAM t TO TIMESTAMP '2026-01-01 00:01:00'")
    assert len(written(tmp_path / "out")) == 1


def test_a_refreshed_table_goes_out(home: Harness, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("k,name\na,ann\n")
    home.sql(f"{STREAM}; CREATE TABLE names FROM files(path => '{tmp_path / 'names.csv'}', header => true)")
    home.sql("CREATE VIEW named AS SELECT k, name FROM s JOIN names USING (k)")
    make(home, tmp_path / "out", "files(path => '{path}')", "named")
    home.insert("s", [("a", 1)])
    (tmp_path / "names.csv").write_text("k,name\na,ada\n")
    home.sql("REFRESH TABLE names")
    assert all_changes(tmp_path / "out") == shown(home, "named")


def test_dropping_and_showing(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    make(home, tmp_path / "out", "files(path => '{path}', mode => 'table')")
    again = f"CREATE SINK IF NOT EXISTS out_totals FROM totals INTO files(path => '{tmp_path / 'other'}')"
    home.sql(again)
    assert not (tmp_path / "other").exists()
    with pytest.raises(AnabranchError, match="totals is read by out_totals"):
        home.sql("DROP VIEW totals")
    with pytest.raises(AnabranchError, match="it is read by out_totals"):
        home.sql(f"CREATE OR REPLACE {TOTALS.removeprefix('CREATE ')}")
    with pytest.raises(AnabranchError, match="out_totals is a sink, not a view"):
        home.sql("DROP VIEW out_totals")
    assert [row[:5] for row in home.query("SHOW SINKS")] == [
        ("out_totals", "totals", "files", "table", str(tmp_path / "out"))
    ]
    home.sql("DROP SINK out_totals; DROP SINK IF EXISTS out_totals")
    assert home.query("SHOW SINKS") == []
    assert (tmp_path / "out" / "table.parquet").exists()
    home.sql(again)
    home.sql("DROP STREAM s CASCADE")
    assert home.query("SHOW SINKS") == []


def _file(folder: Path) -> None:
    folder.write_text("")


def _full(folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.txt").write_text("")


def _nothing(folder: Path) -> None:
    return None


@pytest.mark.parametrize(
    ("into", "before", "message"),
    [
        ("files(path => '{path}', color => 'red')", _nothing, "files has no option color"),
        ("delta(path => '{path}', format => 'csv')", _nothing, "delta has no option format"),
        ("files(format => 'csv')", _nothing, "files needs the option path"),
        ("files(path => ' ')", _nothing, "files needs the path of a folder"),
        ("files(path => '{path}', format => 'avro')", _nothing, "format cannot be 'avro'"),
        ("files(path => '{path}', mode => 'all')", _nothing, "mode cannot be 'all'"),
        ("fils(path => '{path}')", _nothing, "there is no sink fils"),
        ("files(path => 's3://bucket/out')", _nothing, "a sink writes to a local folder"),
        ("files(path => '{path}')", _file, "is a file"),
        ("files(path => '{path}')", _full, "holds something already: mine.txt"),
        ("delta(path => '{path}')", _full, "holds something already: mine.txt"),
        ("delta(path => '{path}[1]')", _nothing, r"there is a \[ in the path"),
        ("files(path => '{path}/../home/x')", _nothing, "is in the home"),
    ],
)
def test_what_cannot_be_is_told(
    home: Harness, tmp_path: Path, into: str, before: Callable[[Path], None], message: str
) -> None:
    home.sql(f"{STREAM}; {TOTALS}")
    before(tmp_path / "out")
    with pytest.raises(AnabranchError, match=message):
        make(home, tmp_path / "out", into)
    assert home.query("SHOW SINKS") == []


def test_two_sinks_do_not_share_a_folder(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; {TOTALS}; CREATE VIEW lists AS SELECT k, array(n) AS l FROM s")
    make(home, tmp_path / "out", "files(path => '{path}')")
    with pytest.raises(AnabranchError, match="is in the folder of sink out_totals"):
        home.sql(f"CREATE SINK other FROM totals INTO delta(path => '{tmp_path / 'out' / 'below'}')")
    with pytest.raises(AnabranchError, match="a csv file cannot hold the column l"):
        home.sql(f"CREATE SINK other FROM lists INTO files(path => '{tmp_path / 'csv'}', format => 'csv')")
    with pytest.raises(AnabranchError, match="there is no view total"):
        home.sql(f"CREATE SINK other FROM total INTO files(path => '{tmp_path / 'x'}')")
