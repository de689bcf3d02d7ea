"""A home, open: commits, versions, readers, vacuum, and files that are not what they should be."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable
from ledger_help import (
    SCHEMA,
    child,
    data_files,
    delta_files,
    insert,
    keys_in,
    keys_in_delta,
    rows,
    run,
)

from anabranch.errors import HomeInUse, LedgerError
from anabranch.ledger import Draft, Ledger, TableChange, delta_log, files, tables
from anabranch.ledger.log import RecordLog
from anabranch.ledger.records import FORMAT, Record


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# ---- versions


def test_a_commit_is_there_for_us_and_for_other_tools_and_after_reopening(home: Path) -> None:
    with Ledger.open(home, write=True, clock=lambda: datetime(2024, 1, 1, tzinfo=timezone.utc)) as ledger:
        record = insert(ledger, {"t": [1, 2], "u": [3]}, streams={"bids": run(0, 2)}, catalog={"v": {"a": 1}})
        assert (record.version, record.at) == (1, "2024-01-01T00:00:00+00:00")
        insert(ledger, {"t": [4]}, streams={"bids": run(1, 1)})
        first = ledger.snapshot()
        identity = ledger.id
    with Ledger.open(home, write=True) as ledger:
        assert ledger.snapshot() == first and ledger.id == identity
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == [1, 2, 4]
        assert keys_in(ledger, "t", 1) == [1, 2] and keys_in(ledger, "t", 0) == []
        assert [record.version for record in ledger.records()] == [1, 2]
        assert list(ledger.captured("bids")) == [["file-0"], ["file-1"]]
        assert list(ledger.captured("bids", 1)) == [["file-0"]]
        insert(ledger, {"t": [5]}, streams={"bids": run(2)})
        assert list(ledger.captured("bids")) == [["file-0"], ["file-1"], ["file-2"]]


def test_removed_files_leave_the_table_and_stay_for_old_versions(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        insert(ledger, {"t": [2]})
        old = tuple(ledger.snapshot().files["t"])
        new = ledger.write_arrow("t", rows(1, 2))
        ledger.commit(Draft("reduce", tables={"t": TableChange(add=(new,), remove=old)}))
        assert delta_files(home, "t") == {new.path}
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == [1, 2]
        assert keys_in(ledger, "t", 1) == [1]


def test_staged_files_are_adopted_and_the_staging_folder_goes(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        folder = ledger.stage()
        parquet.write_table(rows(7), folder / "part-0.parquet")
        file = ledger.adopt("t", folder / "part-0.parquet", 1, 7, 7)
        assert file.bytes == (home / "tables" / "t" / file.path).stat().st_size
        draft = Draft("run", tables={"t": TableChange(add=(file,))}, schemas={"t": SCHEMA}, staged=(folder,))
        ledger.commit(draft)
        assert not folder.exists() and keys_in_delta(home, "t") == [7]


def test_many_tables_in_one_version(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        names = [f"t{i}" for i in range(6)]
        for value in (1, 2):
            insert(ledger, {name: [value] for name in names})
        assert all(keys_in_delta(home, name) == [1, 2] for name in names)


def test_columns_added_later_are_null_in_old_files(home: Path) -> None:
    wider = SCHEMA.append(pa.field("note", pa.string()))
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        file = ledger.write_arrow("t", rows(2).append_column("note", pa.array(["new"])))
        record = ledger.commit(Draft("change", tables={"t": TableChange(add=(file,))}, schemas={"t": wider}))
        assert record.tables["t"].schema is not None
        assert insert(ledger, {"t": [3]}).tables["t"].schema is None
        table = DeltaTable(str(home / "tables" / "t")).to_pyarrow_table().sort_by("k")
        assert table["note"].to_pylist() == [None, "new", None]
        assert ledger.table_schema("t").names == ["k", "at", "note"]
        other = SCHEMA.set(0, pa.field("k", pa.string()))
        with pytest.raises(LedgerError, match="Column k of table t is long"):
            ledger.commit(Draft("change", schemas={"t": other}))
        assert ledger.version == 3


def test_a_table_can_be_made_empty_and_has_a_schema(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        ledger.commit(Draft("create", schemas={"t": SCHEMA}))
        assert ledger.snapshot().files == {"t": {}} and ledger.table_schema("t") == SCHEMA
        assert keys_in_delta(home, "t") == []


def test_timestamps_are_written_in_microseconds_and_utc(home: Path) -> None:
    kinds = {"zoned": pa.timestamp("ns", "Europe/Paris"), "local": pa.timestamp("ms")}
    table = pa.table({name: pa.array([0], kind) for name, kind in kinds.items()})
    with Ledger.open(home, write=True) as ledger:
        file = ledger.write_arrow("t", table)
        ledger.commit(Draft("insert", tables={"t": TableChange(add=(file,))}, schemas={"t": table.schema}))
        written = parquet.read_table(home / "tables" / "t" / file.path).schema
        assert written.field("zoned").type == pa.timestamp("us", "UTC")
        assert written.field("local").type == pa.timestamp("us")
        assert DeltaTable(str(home / "tables" / "t")).to_pyarrow_table().num_rows == 1
        with pytest.raises(LedgerError, match="Column d has type duration"):
            ledger.commit(Draft("create", schemas={"x": pa.schema([("d", pa.duration("us"))])}))


def test_a_dropped_table_is_gone_for_others_and_can_be_made_anew(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        ledger.commit(Draft("drop", tables={"t": TableChange(drop=True)}))
        assert not DeltaTable.is_deltatable(str(home / "tables" / "t"))
        assert keys_in(ledger, "t", 1) == [1]
        other = pa.table({"k": [9], "z": ["z"]})
        file = ledger.write_arrow("t", other)
        ledger.commit(Draft("create", tables={"t": TableChange(add=(file,))}, schemas={"t": other.schema}))
        assert keys_in_delta(home, "t") == keys_in(ledger, "t") == [9] and keys_in(ledger, "t", 1) == [1]
        ledger.commit(Draft("drop", tables={"t": TableChange(drop=True)}))
        assert ledger.vacuum(1) == 2
        assert not (home / "tables" / "t").exists()


def test_another_tool_that_writes_to_a_table_is_overruled(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        insert(ledger, {"t": [2]})
        DeltaTable(str(home / "tables" / "t")).delete("k = 1")
        insert(ledger, {"t": [3]})
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == [1, 2, 3]


def test_what_a_commit_must_not_say(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]}, streams={"bids": run(0)})
        (live,) = ledger.snapshot().files["t"].values()
        cases = {
            "does not hold it": Draft("reduce", tables={"t": TableChange(remove=("nothing.parquet",))}),
            "already": Draft("insert", tables={"t": TableChange(add=(live,))}),
            "no schema to create it": Draft("insert", tables={"new": TableChange()}),
            "the next run is 1": Draft("run", streams={"bids": run(0)}),
            "The table id": Draft("create", schemas={"../x": SCHEMA}),
            "cannot be written into the ledger": Draft("create", catalog={"v": {"a": {1, 2}}}),  # type: ignore[dict-item]
            "no such table": Draft("drop", tables={"new": TableChange(drop=True)}),
        }
        for message, draft in cases.items():
            with pytest.raises(LedgerError, match=message):
                ledger.commit(draft)
        assert ledger.version == 1
        # An advance: the same run number, no rows.
        ledger.commit(Draft("advance", streams={"bids": run(0, 0, bound=5)}))
        assert ledger.snapshot().streams["bids"].runs == 1
        assert keys_in_delta(home, "t") == [1]


def test_the_snapshot_shares_nothing_with_the_draft(home: Path) -> None:
    definition = {"columns": ["a"]}
    with Ledger.open(home, write=True) as ledger:
        ledger.commit(Draft("create", catalog={"v": definition}))
        definition["columns"].append("b")
        assert ledger.snapshot().catalog == {"v": {"columns": ["a"]}}


# ---- snapshot files


def test_snapshot_files_are_only_an_accelerator(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        for number in range(205):
            ledger.commit(Draft("create", catalog={f"v{number}": {"n": number}}))
        expected = {version: ledger.snapshot(version) for version in (99, 100, 150, 205)}
    runs = home / "runs"
    assert sorted(path.name for path in runs.glob("snapshot-*")) == [
        f"snapshot-{version:020}.json" for version in (100, 200)
    ]

    def check() -> None:
        with Ledger.open(home, write=False) as ledger:
            assert all(ledger.snapshot(version) == state for version, state in expected.items())

    check()
    damaged = runs / f"snapshot-{200:020}.json"
    damaged.write_bytes(damaged.read_bytes().replace(b'"n":7}', b'"n":8}'))
    check()
    damaged.write_text("{")
    check()
    for path in runs.glob("snapshot-*"):
        path.unlink()
    check()


# ---- publishing


def test_a_version_is_published_once(tmp_path: Path) -> None:
    log = RecordLog(tmp_path)
    log.publish(Record(1, "run", "now", note="mine"))
    with pytest.raises(LedgerError, match="Version 1 already exists"):
        log.publish(Record(1, "run", "now", note="theirs"))
    assert log.read(1).note == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [f"{1:020}.json"]


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    files.publish(tmp_path / "a", b"1")
    with pytest.raises(FileExistsError):
        files.publish(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"1" and len(list(tmp_path.iterdir())) == 1


def test_other_tools_see_every_version_of_a_table(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Deltalake reads of a table is what the records say, with checkpoints and without."""
    monkeypatch.setattr(tables, "CHECKPOINT_EVERY", 4)
    monkeypatch.setattr(tables, "_SETTINGS", {"delta.checkpointInterval": "4"})
    with Ledger.open(home, write=True) as ledger:
        for number in range(10):
            insert(ledger, {"t": [number]})
            if number % 3 == 2:
                first = next(iter(ledger.snapshot().files["t"]))
                ledger.commit(Draft("take out", tables={"t": TableChange(remove=(first,))}))
            assert delta_files(home, "t") == set(ledger.snapshot().files["t"])
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == list(range(3, 10))
        version = ledger.snapshot().delta_versions["t"]
        assert version == 12 == DeltaTable(str(home / "tables" / "t")).version()
    log = home / "tables" / "t" / delta_log.FOLDER
    assert sorted(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet")) == [3, 7, 11]
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [10]})
        foreign = DeltaTable(str(home / "tables" / "t"))
        foreign.delete()
        insert(ledger, {"t": [11]})
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == list(range(3, 12))
        assert not list(home.rglob(f"{files.TEMPORARY}*"))


def test_a_reader_never_sees_half_a_commit(home: Path) -> None:
    """At every version a reader folds, two tables committed together have the same number of rows, and all
    their files are there, while the writer adds, replaces and vacuums."""
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            with Ledger.open(home, write=False) as reader:
                while not done.is_set():
                    version = reader.refresh()
                    state = reader.snapshot()
                    assert state.version == version
                    counts = [sum(file.rows for file in state.files[table].values()) for table in ("t", "u")]
                    assert counts[0] == counts[1] == state.streams["bids"].rows == state.streams["bids"].runs
                    for table in ("t", "u"):
                        assert all(Path(path).exists() for path in state.table_paths(reader, table))
        except BaseException as error:
            failures.append(error)

    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [0], "u": [0]}, streams={"bids": run(0)})
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(1, 25):
            insert(ledger, {"t": [number], "u": [number]}, streams={"bids": run(number)})
            if number % 3 == 0:
                changes = {}
                for table in ("t", "u"):
                    keys = keys_in(ledger, table)
                    old = tuple(ledger.snapshot().files[table])
                    changes[table] = TableChange((ledger.write_arrow(table, rows(*keys)),), old)
                ledger.commit(Draft("reduce", tables=changes))
                ledger.vacuum(1)
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


# ---- who may do what


def test_a_second_writer_is_refused_and_told_who_has_it(home: Path) -> None:
    with Ledger.open(home, write=True):
        done = child("Ledger.open(home, write=True)", home)
        assert done.returncode != 0
        assert f"HomeInUse: The home {home} is open for writing by process {os.getpid()} on" in done.stderr
        assert "since" in done.stderr and "SELECT works meanwhile" in done.stderr
        with pytest.raises(HomeInUse):
            Ledger.open(home, write=True)
        Ledger.open(home, write=False).close()
    Ledger.open(home, write=True).close()


def test_a_reader_cannot_write_and_leaves_nothing(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
    before = sorted(home.rglob("*"))
    with Ledger.open(home, write=False) as reader:
        assert len(list((home / "readers").iterdir())) == 1
        for action in (reader.stage, reader.vacuum, lambda: reader.commit(Draft("create"))):
            with pytest.raises(LedgerError, match="open for reading"):
                action()
    assert sorted(home.rglob("*")) == before


def test_a_reader_of_a_folder_it_cannot_write_to_goes_without_a_pin(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
    opened = os.open

    def refuse(path: object, flags: int, *more: int) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "read-only")
        return opened(path, flags, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    with Ledger.open(home, write=False) as reader, reader.pin(1) as state:
        assert len(state.files["t"]) == 1


def test_opening_what_is_no_home(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="There is no home at"):
        Ledger.open(tmp_path / "nothing", write=False)
    with pytest.raises(LedgerError, match="There is no home at"):
        Ledger.open(tmp_path / "nothing", write=True, create=False)
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "tables" / "mine").mkdir(parents=True)
    with pytest.raises(LedgerError, match="not a home, and not empty: it holds tables"):
        Ledger.open(tmp_path, write=True)
    assert (tmp_path / "tables" / "mine").exists()


def test_importing_and_reading_need_neither_pyarrow_nor_deltalake(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
    code = (
        "import sys\nfrom anabranch.ledger import Ledger\n"
        f"for write in (False, True):\n    Ledger.open({str(home)!r}, write=write).close()\n"
        "assert not {'pyarrow', 'deltalake', 'pyspark'} & set(sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# ---- vacuum


def replace_all(ledger: Ledger, table: str, key: int) -> None:
    old = tuple(ledger.snapshot().files[table])
    ledger.commit(Draft("reduce", tables={table: TableChange((ledger.write_arrow(table, rows(key)),), old)}))


def test_vacuum_keeps_the_last_versions_and_names_the_oldest(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        for key in range(2, 7):
            replace_all(ledger, "t", key)
        pending = ledger.write_arrow("t", rows(7))
        assert ledger.vacuum(3) == 3 and ledger.oldest == 4
        assert [keys_in(ledger, "t", version) for version in (4, 5, 6)] == [[4], [5], [6]]
        with pytest.raises(LedgerError, match="Version 3 can no longer be read: the oldest is 4, the newest 6"):
            ledger.snapshot(3)
        with pytest.raises(LedgerError, match="no version 7: the newest is 6, the oldest 4"):
            ledger.snapshot(7)
        assert ledger.vacuum(3) == 0 and pending.path in data_files(home, "t")
        assert len(list(ledger.records())) == 6
    with Ledger.open(home, write=True) as ledger:
        assert ledger.oldest == 4 and keys_in(ledger, "t", 4) == [4]
        assert pending.path not in data_files(home, "t") and len(data_files(home, "t")) == 3
        # Keeping more afterwards does not bring anything back.
        assert ledger.vacuum(100) == 0 and ledger.oldest == 4


def test_vacuum_respects_pins_while_their_reader_lives(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        reader = Ledger.open(home, write=False)
        replace_all(ledger, "t", 2)
        with ledger.pin(2):
            replace_all(ledger, "t", 3)
            replace_all(ledger, "t", 4)
            assert ledger.vacuum(1) == 0 and keys_in(reader, "t") == [1]
            assert reader.refresh() == 4
            assert ledger.vacuum(1) == 1 and keys_in(ledger, "t", 2) == [2]
        assert ledger.vacuum(1) == 2
        with pytest.raises(LedgerError, match="oldest is 4"), reader.pin(2):
            pass
        reader.close()
        assert not list((home / "readers").iterdir())


def test_the_pin_of_a_dead_reader_is_removed(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
        done = child("import os\nledger = Ledger.open(home, write=False)\nos._exit(0)", home)
        assert done.returncode == 0 and len(list((home / "readers").iterdir())) == 1
        replace_all(ledger, "t", 2)
        assert ledger.vacuum(1) == 1 and not list((home / "readers").iterdir())


def test_vacuum_keeps_single_tables_at_single_versions(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1], "u": [1]})
        for key in (2, 3):
            replace_all(ledger, "t", key)
            replace_all(ledger, "u", key)
        assert ledger.vacuum(1, lambda oldest: {("t", 1)}) == 3
    with Ledger.open(home, write=True) as ledger:
        assert set(ledger.snapshot(1).files) == {"t"} and keys_in(ledger, "t", 1) == [1]
        with pytest.raises(LedgerError, match="cannot be kept"):
            ledger.vacuum(1, lambda oldest: {("u", 1)})
        assert ledger.vacuum(1) == 1
        with pytest.raises(LedgerError, match="oldest is 5"):
            ledger.snapshot(1)


# ---- files that are not what they should be


def record_path(home: Path, version: int) -> Path:
    return home / "runs" / f"{version:020}.json"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"format": 1, "version": 7, "kind": "run", "at": "now"}', "says it is version 7"),
        (f'{{"format": {FORMAT + 1}, "version": 2, "kind": "run", "at": "now"}}', f"format is {FORMAT + 1}"),
        (
            '{"format": 1, "version": 2, "kind": "run", "at": "now", '
            '"tables": {"t": {"add": [["../../x.parquet", 1, 1, null, null]]}}}',
            "not a plain file name",
        ),
        ('{"format": 1, "version": 2, "kind": "run", "at": "now", "tables": {"../t": {}}}', "table id"),
        (
            '{"format": 1, "version": 2, "kind": "run", "at": "now", "tables": {"t": {"remove": ["gone"]}}}',
            "does not hold",
        ),
        (
            '{"format": 1, "version": 2, "kind": "run", "at": "now", "streams": {"s": {"run": "x"}}}',
            "whole number",
        ),
    ],
)
def test_a_damaged_record_is_named(home: Path, text: str, why: str) -> None:
    with Ledger.open(home, write=True) as ledger:
        for key in (1, 2, 3):
            insert(ledger, {"t": [key]})
    record_path(home, 2).write_text(text)
    for write in (False, True):
        with pytest.raises(LedgerError, match=why) as caught:
            Ledger.open(home, write=write)
        assert str(record_path(home, 2)) in str(caught.value) and "restore that file" in str(caught.value)
    assert len(data_files(home, "t")) == 3


def test_a_missing_record_is_named(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        for key in (1, 2, 3):
            insert(ledger, {"t": [key]})
    record_path(home, 2).unlink()
    with pytest.raises(LedgerError, match="record of version 2 is missing"):
        Ledger.open(home, write=True)


def test_a_missing_data_file_is_named(home: Path) -> None:
    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1]})
    (name,) = data_files(home, "t")
    (home / "tables" / "t" / name).unlink()
    with pytest.raises(LedgerError, match=name):
        Ledger.open(home, write=True)
    Ledger.open(home, write=False).close()


def test_a_newer_format_and_damaged_small_files_are_refused(home: Path) -> None:
    Ledger.open(home, write=True).close()
    good = (home / "home.json").read_text()
    for text, why in (
        (json.dumps({"format": FORMAT + 1}), f"format {FORMAT + 1}"),
        ("{", "damaged"),
        ("{}", "damaged"),
    ):
        (home / "home.json").write_text(text)
        for write in (False, True):
            with pytest.raises(LedgerError, match=why):
                Ledger.open(home, write=write)
    (home / "home.json").write_text(good)
    (home / "oldest.json").write_text("?")
    with pytest.raises(LedgerError, match=r"oldest\.json is damaged"):
        Ledger.open(home, write=True)


# ---- a disk that is full


@pytest.mark.parametrize("place", ["file", "table", "record"])
def test_a_full_disk_commits_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Ledger.open(home, write=True) as ledger:
        insert(ledger, {"t": [1], "u": [1]})
        with monkeypatch.context() as patched:
            if place == "file":
                patched.setattr(os, "fsync", full)
            elif place == "table":
                patched.setattr(delta_log, "append", full)
            else:
                patched.setattr(files, "write_temporary", full)
            with pytest.raises(LedgerError, match="disk is full") as caught:
                insert(ledger, {"t": [2], "u": [2], "new": [2]})
            assert "make space" in str(caught.value)
        assert ledger.version == 1
        insert(ledger, {"t": [3], "u": [3]})
        for table in ("t", "u"):
            assert keys_in(ledger, table) == keys_in_delta(home, table) == [1, 3]
        assert not DeltaTable.is_deltatable(str(home / "tables" / "new"))
    with Ledger.open(home, write=True):
        assert not (home / "tables" / "new").exists() and len(data_files(home, "t")) == 2


def test_a_failed_commit_can_be_made_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(home, write=True) as ledger:
        file = ledger.write_arrow("t", rows(1))
        draft = Draft("insert", tables={"t": TableChange(add=(file,))}, schemas={"t": SCHEMA})
        with monkeypatch.context() as patched:
            patched.setattr(RecordLog, "publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                ledger.commit(draft)
        ledger.commit(draft)
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == [1]


def test_an_interrupt_right_after_the_record_leaves_it_committed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = RecordLog.publish

    def interrupted(log: RecordLog, record: Record) -> None:
        publish(log, record)
        raise KeyboardInterrupt

    with Ledger.open(home, write=True) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(RecordLog, "publish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                insert(ledger, {"t": [1]})
        assert ledger.version == 1
        insert(ledger, {"t": [2]})
        assert keys_in(ledger, "t") == keys_in_delta(home, "t") == [1, 2]
