"""Records and snapshots: what is written is what is read, and the fold is the sum of the records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import LedgerError
from anabranch.ledger.records import (
    DataFile,
    Malformed,
    Record,
    StreamRun,
    TableChange,
    dump,
    record_from_bytes,
    record_to_bytes,
)
from anabranch.ledger.snapshot import Snapshot, StreamState, fold, snapshot_from_bytes, snapshot_to_bytes


def file(name: str, low: int | None = None, high: int | None = None) -> DataFile:
    return DataFile(name, 2, 100, low, high)


RECORDS = [
    Record(1, "create", "t1", catalog={"bids": {"kind": "stream"}, "v": {"kind": "view"}}, applied=("a",)),
    Record(
        2,
        "run",
        "t2",
        streams={"bids": StreamRun(0, 5, 1, 0, 10, 20, {"p": 1}, {"offset": 5}, ["f0"], 15)},
        tables={"t": TableChange(add=(file("a"), file("b")), delta_version=0, schema={"fields": []})},
        milliseconds={"commit": 1.5},
        note="first",
        bounds={"v": 7, "w": 8},
        ready={"v": (12, 15), "w": (9,)},
        passed={"v": 6, "w": 4, "x": 5},
    ),
    Record(
        3,
        "run",
        "t3",
        streams={"bids": StreamRun(1, 3, 2, 1, 5, 30, {"p": 2}, {"offset": 8}, ["f1"], 25)},
        tables={"t": TableChange(add=(file("c"),), delta_version=1), "u": TableChange(add=(file("x"),))},
        applied=("b",),
        ready={"w": ()},
        passed={"w": 9, "x": None},
    ),
    Record(4, "reduce", "t4", tables={"t": TableChange((file("d"),), ("a", "b"), 2)}),
    Record(5, "advance", "t5", streams={"bids": StreamRun(1, 0, bound=99)}),
    Record(6, "drop", "t6", tables={"u": TableChange(drop=True)}, catalog={"v": None}, intent="abc"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert record_from_bytes(record_to_bytes(record)) == record


def test_the_fold_adds_up_the_records() -> None:
    state = fold(Snapshot(), RECORDS)
    assert state.version == 6
    assert state.catalog == {"bids": {"kind": "stream"}}
    assert set(state.files) == {"t"} and set(state.files["t"]) == {"c", "d"}
    assert state.applied == {"a", "b"}
    assert state.schemas == {"t": {"fields": []}} and state.delta_versions == {"t": 2}
    assert state.removed == {"t": {"a": 4, "b": 4}, "u": {"x": 6}}
    bids = state.streams["bids"]
    assert (bids.runs, bids.rows, bids.late, bids.bad) == (2, 8, 3, 1)
    assert bids.last is not None and bids.last.bound == 99
    assert fold(Snapshot(), RECORDS[:5]).ready == {"v": (12, 15)}
    assert state.bounds == {"w": 8} and state.ready == {} and state.passed == {"w": 9}


@given(cuts=st.sets(st.integers(0, len(RECORDS))))
def test_the_fold_can_be_cut_anywhere_and_written_down_between(cuts: set[int]) -> None:
    state = Snapshot()
    earlier: list[tuple[Snapshot, bytes]] = []
    at = 0
    for cut in [*sorted(cuts), len(RECORDS)]:
        state = snapshot_from_bytes(snapshot_to_bytes(fold(state, RECORDS[at:cut])))
        earlier.append((state, snapshot_to_bytes(state)))
        at = cut
    assert state == fold(Snapshot(), RECORDS)
    assert all(snapshot_to_bytes(one) == text for one, text in earlier), "a fold changed what it started from"


def test_a_stream_dropped_and_made_anew_starts_at_run_0() -> None:
    drop = Record(7, "drop", "t7", catalog={"bids": None})
    anew = Record(8, "run", "t8", catalog={"bids": {}}, streams={"bids": StreamRun(0, 7)})
    state = fold(fold(Snapshot(), RECORDS), [drop, anew])
    assert state.streams["bids"] == StreamState(1, StreamRun(0, 7), 7)


def test_a_gap_and_a_file_that_is_not_there_are_malformed() -> None:
    with pytest.raises(Malformed, match="version 3 follows version 1"):
        fold(Snapshot(), [RECORDS[0], RECORDS[2]])
    with pytest.raises(Malformed, match="does not hold"):
        fold(Snapshot(), [Record(1, "reduce", "t", tables={"t": TableChange(remove=("a",))})])
    with pytest.raises(Malformed, match="already"):
        fold(fold(Snapshot(), RECORDS), [Record(7, "run", "t", tables={"t": TableChange(add=(file("d"),))})])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (None, None, ["a", "b", "n"]),
        (0, 10, ["n"]),
        (0, 11, ["a", "n"]),
        (20, 21, ["a", "n"]),
        (21, None, ["b", "n"]),
        (None, 30, ["a", "n"]),
    ],
)
def test_a_range_prunes_files(low: int | None, high: int | None, expected: list[str]) -> None:
    add = (file("a", 10, 20), file("b", 30, 40), file("n"))
    state = fold(Snapshot(), [Record(1, "run", "t", tables={"t": TableChange(add=add)})])
    assert state.table_paths("/home", "t", low, high) == [f"/home/tables/t/{name}" for name in expected]
    assert state.table_paths("/home", "nothing") == []


@pytest.mark.parametrize("name", ["../x.parquet", "a/b.parquet", "..", ".", "", "a\\b", "a\0b", "_delta_log", "%2e"])
def test_a_path_that_is_not_a_plain_name_is_malformed(name: str) -> None:
    record = Record(1, "run", "t", tables={"t": TableChange(add=(file(name),))})
    with pytest.raises(Malformed):
        record_from_bytes(record_to_bytes(record))
    with pytest.raises(Malformed):
        record_from_bytes(record_to_bytes(Record(1, "run", "t", tables={"t": TableChange(remove=(name,))})))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_malformed(data: bytes) -> None:
    for read in (record_from_bytes, snapshot_from_bytes):
        with pytest.raises(Malformed):
            read(data)


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(LedgerError, match="cannot be written"):
        dump({"a": float("nan")})
    with pytest.raises(LedgerError, match="plain JSON"):
        dump({"a": object()})
