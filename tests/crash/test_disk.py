"""A disk that is full, a ledger that cannot be read: a clear error, nothing half committed, and on it goes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crash_help import Processes, check_changes, check_clean

import anabranch
from anabranch.errors import LedgerError
from anabranch.ledger import Draft, Ledger

pytestmark = pytest.mark.crash

MADE = [
    "CREATE STREAM s (ts TIMESTAMP, n BIGINT) WATERMARK FOR ts AS ts",
    "CREATE VIEW closed AS SELECT window_start, sum(n) AS n"
    " FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start EMIT ON WINDOW CLOSE",
    "CREATE VIEW total AS SELECT n % 10 AS k, count(*) AS c, sum(n) AS n FROM s GROUP BY n % 10",
    "INSERT INTO s VALUES (TIMESTAMP '2024-01-01 00:00:00', 0)",
]
MORE = "INSERT INTO s SELECT timestamp_seconds(1704067200 + id), id FROM range(1, 101)"


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_disk_that_is_full(tmp_path: Path, processes: Processes) -> None:
    """No file may grow past a limit, which rises until the statement goes through: it fails at one step after the
    other: at the note of the statement, at data files, at the changes of a view, at a table's log."""
    home = tmp_path / "home"
    limits = [0, 200, 600, 900, 1200, 1600, 2000, 2600, 3400, 1 << 20]
    outcome = processes.run(
        {"home": home, "fan_in": 100, "statements": MADE, "limited": MORE, "limits": limits,
         "after": ["SELECT sum(c), sum(n) FROM total", "SELECT sum(n) FROM closed"]}
    )  # fmt: skip
    assert outcome.clean, outcome.explain()
    tries = [line for line in outcome.lines if "limit" in line]
    done = [line for line in tries if line["error"] is None]
    failed = [line for line in tries if line["error"] is not None]
    assert failed and done and [line["committed"] for line in done] == [1] * len(done)
    for line in failed:
        assert line["ours"], f"not an error of ours: {line}"
        assert "nothing of it was committed" in line["text"] or "too large" in line["text"].lower(), line
        assert line["committed"] == 0 and line["waiting"] == [], line
    # Each of the successful ones counts once, none of the failed ones at all.
    times = len(done)
    answers = [line["rows"] for line in outcome.lines if "after" in line]
    assert answers[0] == [[1 + 100 * times, 5050 * times]]
    assert answers[1] == [[(5050 - 100) * times]]
    check_changes(home)
    again = processes.run({"home": home, "after": ["SELECT sum(c), sum(n) FROM total"]})
    assert again.clean and again.first("rolled_back") == []
    assert again.first("rows") == [[1 + 100 * times, 5050 * times]]
    check_clean(home)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of five versions, which needs no Spark to be made."""
    with Ledger.open(tmp_path / "home", write=True) as ledger:
        for number in range(5):
            ledger.commit(Draft("note", note=str(number)))
    return tmp_path / "home"


@pytest.mark.parametrize("version", [1, 3, 5])
@pytest.mark.parametrize(
    "damage",
    [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data.replace(b'"kind"', b'"kund"', 1)],
    ids=["truncated", "empty", "without a field"],
)
def test_a_record_that_cannot_be_read(home: Path, version: int, damage: object) -> None:
    path = home / "runs" / f"{version:020}.json"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    before = {each: each.read_bytes() for each in home.rglob("*") if each.is_file() and each.name != "writer.lock"}
    for read_only in (False, True):
        with pytest.raises(LedgerError) as caught:
            anabranch.connect(home, read_only=read_only)
        assert str(path) in str(caught.value) and "restore" in str(caught.value)
    assert {each: data for each, data in before.items() if each.read_bytes() == data} == before


def test_a_record_that_is_missing(home: Path) -> None:
    shutil.move(home / "runs" / f"{2:020}.json", home.parent / "kept.json")
    with pytest.raises(LedgerError, match="version 2 is missing"):
        anabranch.connect(home)
    shutil.move(home.parent / "kept.json", home / "runs" / f"{2:020}.json")
    with anabranch.connect(home) as session:
        assert session.version == 5
