"""Killed anywhere, opened again: what has a record is there, what has none left no trace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from ledger_help import child, data_files, delta_files, insert, keys_in, keys_in_delta, was_killed

from anabranch.errors import LedgerError
from anabranch.ledger import Ledger

START = """
ledger = Ledger.open(home, write=True)
insert(ledger, {"t": [1], "u": [1]}, streams={"bids": run(0)})
"""

# The second commit of the child: adds to t, replaces u, makes a table and adds a column, within a statement.
STATEMENT = """
import pyarrow as pa
wider = SCHEMA.append(pa.field("note", pa.string()))
with ledger.intent("INSERT INTO t VALUES (2)"):
    old = tuple(ledger.snapshot().files["u"])
    changes = {
        "t": TableChange((ledger.write_arrow("t", rows(2).append_column("note", pa.array(["x"]))),)),
        "u": TableChange((ledger.write_arrow("u", rows(1, 2)),), old),
    }
    schemas = {"t": wider}
    if NEW:
        changes["new"] = TableChange((ledger.write_arrow("new", rows(2)),))
        schemas["new"] = SCHEMA
    (ledger.stage() / "half.parquet").write_text("half")
    ledger.commit(Draft("insert", tables=changes, schemas=schemas, streams={"bids": run(1)}))
"""


def check(home: Path, ledger: Ledger, committed: bool, new: bool) -> None:
    keys = [1, 2] if committed else [1]
    assert ledger.version == (2 if committed else 1)
    for table in ("t", "u"):
        assert keys_in(ledger, table) == keys_in_delta(home, table) == keys
        assert delta_files(home, table) == set(ledger.snapshot().files[table])
    assert (home / "tables" / "new").exists() == (committed and new)
    named = {name for version in range(ledger.version + 1) for name in ledger.snapshot(version).files.get("u", ())}
    assert data_files(home, "u") == named
    columns = [field.name for field in DeltaTable(str(home / "tables" / "t")).schema().fields]
    assert ("note" in columns) == committed and columns == ledger.table_schema("t").names
    assert not list((home / "staging").iterdir()) and not list((home / "intents").iterdir())
    assert not list(home.rglob(".tmp-*"))


@pytest.mark.crash
@pytest.mark.parametrize("new", [False, True], ids=["in turn", "in parallel"])
@pytest.mark.parametrize(
    ("place", "committed"),
    [
        ("before-table-commits", False),
        ("after-first-table-commit", False),
        ("before-record", False),
        ("after-record", True),
    ],
)
def test_killed_in_a_commit(tmp_path: Path, place: str, committed: bool, new: bool) -> None:
    home = tmp_path / "home"
    code = START + STATEMENT.replace("NEW", str(new))
    assert was_killed(child(code, home, f"{place}:2"))
    with Ledger.open(home, write=True) as ledger:
        check(home, ledger, committed, new)
        assert ledger.rolled_back == ([] if committed else ["INSERT INTO t VALUES (2)"])
        # And life goes on, also in the table that had been touched.
        insert(ledger, {"t": [9], "u": [9]})
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == ([1, 2, 9] if committed else [1, 9])
    with Ledger.open(home, write=True) as ledger:
        assert ledger.rolled_back == []


@pytest.mark.crash
def test_killed_in_recovery_as_often_as_it_has_steps(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    assert was_killed(child(START + STATEMENT.replace("NEW", "True"), broken, "before-record:2"))
    opening = "ledger = Ledger.open(home, write=True)\nprint(ledger.rolled_back)"
    step = 1
    while True:
        home = tmp_path / f"home-{step}"
        shutil.copytree(broken, home)
        if not was_killed(child(opening, home, f"in-recovery:{step}")):
            break
        if step == 3:
            assert was_killed(child(opening, home, "in-recovery:2"))
        with Ledger.open(home, write=True) as ledger:
            check(home, ledger, committed=False, new=True)
            assert ledger.rolled_back == ["INSERT INTO t VALUES (2)"]
        step += 1
    assert step > 5


@pytest.mark.crash
@pytest.mark.parametrize("time", [1, 2, 3])
def test_killed_in_vacuum(tmp_path: Path, time: int) -> None:
    home = tmp_path / "home"
    code = (
        START
        + """
for key in (2, 3, 4):
    old = tuple(ledger.snapshot().files["t"])
    ledger.commit(Draft("reduce", tables={"t": TableChange((ledger.write_arrow("t", rows(key)),), old)}))
ledger.vacuum(1)
"""
    )
    assert was_killed(child(code, home, f"in-vacuum:{time}"))
    with Ledger.open(home, write=True) as ledger:
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == [4]
        assert len(data_files(home, "t")) == 1 and ledger.oldest == 4


def test_a_lost_or_damaged_delta_log_is_made_again_from_the_records(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Ledger.open(home, write=True) as ledger:
        for key in (1, 2, 3):
            insert(ledger, {"t": [key], "u": [key]})
    shutil.rmtree(home / "tables" / "t" / "_delta_log")
    for path in (home / "tables" / "u" / "_delta_log").iterdir():
        path.write_text("")
    with Ledger.open(home, write=True) as ledger:
        assert keys_in_delta(home, "t") == [1, 2, 3]
        insert(ledger, {"t": [4], "u": [4]})
        for table in ("t", "u"):
            assert keys_in(ledger, table) == keys_in_delta(home, table) == [1, 2, 3, 4]


def test_leftovers_of_every_kind_are_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        keep = data_files(home, "t")
    (home / "runs" / ".tmp-1").write_text("half a record")
    (home / "staging" / "x").mkdir()
    (home / "tables" / "t" / "part-half.parquet").write_text("half")
    (home / "tables" / "t" / "README.txt").write_text("somebody's note")
    (home / "tables" / "unknown").mkdir()
    (home / "tables" / "unknown" / "part-1.parquet").write_text("x")
    (home / "intents" / "broken.json").write_text("{")
    with Ledger.open(home, write=True) as ledger:
        assert data_files(home, "t") == keep and not (home / "tables" / "unknown").exists()
        assert (home / "tables" / "t" / "README.txt").exists()
        assert not (home / "runs" / ".tmp-1").exists() and not list((home / "staging").iterdir())
        assert ledger.rolled_back == ["(a statement whose text was lost: broken.json)"]


def test_an_intent_ends_with_its_statement(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Ledger.open(home, write=True) as ledger:
        with ledger.intent("INSERT 1") as name:
            assert len(list((home / "intents").iterdir())) == 1
            assert insert(ledger, {"t": [1]}).intent == name
        assert insert(ledger, {"t": [2]}).intent is None
        with pytest.raises(ZeroDivisionError), ledger.intent("INSERT 2"):
            _ = 1 / 0
        assert not list((home / "intents").iterdir())


def test_a_lost_or_damaged_data_file_is_named(tmp_path: Path) -> None:
    """Spark reads an empty file as one without rows: an answer without them would look like any other."""
    with Ledger.open(tmp_path / "home", write=True) as ledger:
        insert(ledger, {"t": [1, 2]})
    (file,) = (tmp_path / "home" / "tables" / "t").glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(b"")
    with pytest.raises(LedgerError, match=f"{file.name} is damaged: it has 0 bytes"):
        Ledger.open(tmp_path / "home", write=True)
    file.unlink()
    with pytest.raises(LedgerError, match="lacks the file"):
        Ledger.open(tmp_path / "home", write=True)
    file.write_bytes(whole)
    with Ledger.open(tmp_path / "home", write=True) as ledger:
        assert keys_in(ledger, "t") == [1, 2]
