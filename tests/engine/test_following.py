"""Following a view from Python: what comes later comes too, and nothing but the follower ends it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch
from anabranch.errors import AnabranchError
from anabranch.sources.files import FilesSource
from anabranch.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def added(batches: list[Any]) -> Counter[tuple[Any, ...]]:
    """What a reader of these changes holds."""
    held: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        for row in batch.changes.to_pylist():
            held[tuple(row.values())[:-1]] += row["_diff"]
    return +held


def folder(tmp_path: Path, view: str) -> str:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("n,ts\n1,2026-01-01 00:00:01\n")
    return (
        "CREATE STREAM s (n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)"
        f" FROM files(path => '{tmp_path}/in/*.csv', header => true, settle => 0); CREATE VIEW v AS {view}"
    )


def once_all_is_read(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
    """Call `write` each time that a source has been looked at and had nothing more: who does not follow ends there."""
    look = FilesSource.next

    def looked(self: FilesSource, position: Any, max_rows: int | None) -> Any:
        found = look(self, position, max_rows)
        if found is None:
            write()
        return found

    monkeypatch.setattr(FilesSource, "next", looked)


SUMS = "SELECT count(*) AS c, sum(n) AS total FROM s EMIT CHANGES"
CLOSED = "SELECT window_start, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY window_start"


def test_files_are_followed_as_they_come(home: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql(folder(tmp_path, SUMS))
    session, seen, number = home.session, [], 0

    def write() -> None:
        if 0 < number < 4:
            (tmp_path / "in" / f"{number}.csv").write_text(f"n,ts\n{number},2026-01-01 00:00:0{number}\n")

    once_all_is_read(monkeypatch, write)
    for batch in session.subscribe("v", follow=True):
        seen.append(batch)
        if not batch.changes.num_rows:
            continue
        number += 1
        if number == 4:
            session.stop.set()
    assert number == 4
    assert added(seen) == Counter(home.query("SELECT c, total FROM v"))
    assert home.query("SELECT c FROM v") == [(len(list((tmp_path / "in").iterdir())),)]
    assert not [batch for batch in session.subscribe("v", seen[-1].version) if batch.changes.num_rows]


def test_a_temporary_home_stays_open_while_it_is_followed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end would close all windows, and every row after it would be late."""
    with anabranch.connect(spark=spark) as session:
        session.sql(folder(tmp_path, f"{CLOSED} EMIT ON WINDOW CLOSE"))
        later = tmp_path / "in" / "1.csv"
        once_all_is_read(monkeypatch, lambda: later.write_text("n,ts\n2,2026-01-01 00:00:30\n3,2026-01-01 00:01:30\n"))
        seen = []
        for batch in session.subscribe("v", follow=True):
            seen.append(batch)
            if batch.rows == 3:
                break
        assert [row["c"] for batch in seen for row in batch.changes.to_pylist()] == [2]
        assert seen[-1].late == 0


def test_changes_that_others_commit_are_followed(home: Harness, spark: SparkSession) -> None:
    """By the same session, and by one that reads while another writes, reduces and vacuums."""
    home.sql("CREATE STREAM s (n INT)")
    home.sql(f"CREATE VIEW v AS {SUMS}; CREATE VIEW other AS SELECT count(*) AS c FROM s")
    home.session._core.ledger.keep_versions = 1
    with anabranch.connect(home.path, spark, read_only=True) as reader:
        followers = [home.session.subscribe("v", follow=True), reader.subscribe("v", follow=True)]
        seen: list[list[Any]] = [[next(each)] for each in followers]
        for number in range(3):
            home.insert("s", [(number,)])
            home.compact()
        for each, batches in zip(followers, seen, strict=True):
            while added(batches) != Counter([(3, 3)]):
                batches.append(next(each))
            each.close()  # type: ignore[attr-defined]
            changed = [batch for batch in batches if batch.changes.num_rows]
            assert [batch.version for batch in changed] == sorted({batch.version for batch in changed})
            assert len(changed) >= 3
        for view, follow, hint in (("v", False, "open it without"), ("other", True, "create it with EMIT CHANGES")):
            with pytest.raises(AnabranchError, match=f"(?s)read-only.*{hint}"):
                reader.subscribe(view, follow=follow)


def test_what_cannot_be_followed_says_what_can(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT)")
    home.sql(f"CREATE VIEW sums AS {SUMS}")
    for view, version, words in (
        ("sum", None, "there is no view sum\n  did you mean sums?"),
        ("s", None, "s is a stream, not a view\n  make a view of it: CREATE VIEW v AS SELECT * FROM s"),
        ("sums", 99, "there is no version 99 yet"),
        ("sums", -1, "there is no version -1\n"),
    ):
        with pytest.raises(AnabranchError) as refused:
            next(home.session.subscribe(view, version))
        assert words in str(refused.value)


def test_following_in_an_event_loop(home: Harness) -> None:
    home.sql("CREATE STREAM s (n INT)")
    home.sql(f"CREATE VIEW v AS {SUMS}")

    async def follow() -> list[Any]:
        seen = []
        async for batch in home.session.asubscribe("v", follow=True):
            seen.append(batch)
            if added(seen) == Counter([(2, 3)]):
                break
        return seen

    async def main() -> None:
        first, second = asyncio.create_task(follow()), asyncio.create_task(follow())
        for number in (1, 2):
            await asyncio.to_thread(home.insert, "s", [(number,)])
        seen = await asyncio.wait_for(first, 120)
        assert added(seen) == Counter([(2, 3)])
        await asyncio.wait_for(second, 120)
        waiting = asyncio.create_task(anext(home.session.asubscribe("v", home.session.version, follow=True)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        ended = [batch async for batch in home.session.asubscribe("v")]
        assert added(ended) == Counter([(2, 3)])
        with pytest.raises(AnabranchError, match="there is no view nope"):
            await anext(home.session.asubscribe("nope"))

    asyncio.run(main())
    home.insert("s", [(3,)])  # nobody holds on to anything
    assert home.query("SELECT c FROM v") == [(3,)]
