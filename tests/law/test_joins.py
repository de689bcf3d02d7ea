"""The law for joins: of any kind, by any condition, over streams and over views that take rows back, the changes of a
view add up to the batch answer over all rows, and a read shows it; whatever the order and the cut, and across a
compaction, a reopening and a kill.

    ANABRANCH_JOINS=200 pytest -m slow tests/law/test_joins.py      that many seeds, of which each names its failures
    ANABRANCH_SEED=7 ANABRANCH_JOINS=1 pytest -m slow tests/law/test_joins.py         one of them again
"""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from anabranch.engine.progress_bounds import input_bounds
from anabranch.plan.catalog import Catalog
from anabranch.plan.view import View
from anabranch.testing import Harness, crashing, sorted_rows
from crash.worker import attach
from engine.engines_help import compute_with
from law.joins import BELOW, KNOWN, NAMES, NEAR, STREAMS, Case, Row, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Where a run that takes rows in can die, whatever views are above it; every run comes by each of them.
PLACES = (
    "before-job", "during-files", "between-files", "after-files", "after-changes", "before-table-commits",
    "after-first-table-commit", "after-next-table-commit", "before-record", "during-record", "after-record",
    "after-run",
)  # fmt: skip


def kill_of(case: Case) -> str:
    """Where a process dies in the second half of the runs, by the seed; the last of them is left to do in any case."""
    chance = random.Random(f"kill {case.seed}")
    most = len(case.runs) - len(case.runs) // 2 - 1
    return f"{chance.choice(PLACES)}:{chance.randint(1, min(3, most))}"


def create(home: Harness, case: Case, names: list[str]) -> None:
    for name in names:
        home.sql(f"CREATE VIEW {name} AS {case.views[name]} EMIT CHANGES")


def wrong(home: Harness, case: Case, runs: list[Run], names: list[str]) -> list[str]:
    """What views show or have emitted, and DuckDB does not answer."""
    found = []
    answers = case.answers(runs, names)
    for name in names:
        held: Counter[Row] = Counter()
        for change in home.changes(name):
            held[change.row] += change.diff
            if change.diff < 0 and held[change.row] < 0:
                found.append(f"{name} takes back what it had not shown: {change}: {case.views[name]}")
        wanted = Counter(answers[name])
        for what, seen in (("emitted", held), ("shown", Counter(home.table(name)))):
            missing, extra = Counter(wanted), Counter(seen)
            missing.subtract(seen)
            extra.subtract(wanted)
            if any(missing.values()):
                found.append(
                    f"{name} {what}: {case.views[name]}\n    missing {sorted_rows((+missing).elements())[:5]}"
                    f"\n    extra   {sorted_rows((+extra).elements())[:5]}"
                )
    return found


class Fed:
    """Feeds runs, and looks at what joins hold in memory: no more than the rows inside their bounds and one run.

    Of a view that is joined, its changes are the rows.
    """

    def __init__(self, home: Harness, names: list[str], before: list[Run]) -> None:
        self.home = home
        self.names = names
        self.times: dict[str, list[int]] = {name: [_micros(row[4]) for of, rows in before if of == name for row in rows]
                                            for name in NAMES}  # fmt: skip
        self.version = -1
        self.looked_at = 0  # how many joins of views were

    def run(self, stream: str, rows: list[Row]) -> None:
        core = self.home.session._core
        snapshot, catalog = core.ledger.snapshot(), core.catalog()
        roots = [view for name in self.names if isinstance(view := catalog.find(name), View)]
        views = [node for view in roots for node in (view, *catalog.nodes_of(view))]
        bounded = [
            each for each in views if each.join.bands and each.in_time and (each.operator == "join" or each.join.steps)
        ]
        needed = {each.id: each.needed(input_bounds(core, catalog, each, snapshot, {})) for each in bounded}
        self.home.insert(stream, rows)
        self.times[stream] += [_micros(row[4]) for row in rows]
        self._note_changes(catalog)
        for view in (each for each in bounded if stream in catalog.sources_of(each)):
            known = [(needed[view.id].get(name, 0), self.times.get(id, ())) for name, id in view.join_sources.items()]
            inside = sum(time >= since for since, times in known for time in times)
            held = core.table_cache.rows_of(view.id)
            assert held <= inside + len(rows), f"{view.sql} holds {held} rows, and {inside} are inside its bounds"
            self.looked_at += bool(view.join.views)

    def _note_changes(self, catalog: Catalog) -> None:
        """Note the times of all changes of views, as they came out: merges of files add them up."""
        ledger = self.home.session._core.ledger
        timed = {view.changes_table: view for view in catalog.of(View) if view.kept and view.time}
        for record in ledger.records(self.version + 1):
            for table, change in record.tables.items():
                if table in timed and record.kind != "reduce":
                    for file in change.add:
                        column = parquet.read_table(ledger.table_folder(table) / file.path).column(timed[table].time)
                        times = self.times.setdefault(timed[table].id, [])
                        times += [_micros(time) for time in column.to_pylist() if time is not None]
            self.version = record.version


def _micros(time: datetime) -> int:
    return int(time.replace(tzinfo=timezone.utc).timestamp() * 1_000_000)


def feed(home: str, runs: list[Run]) -> None:
    """What the process that dies does, in the JVM of the one that does not."""
    with Harness(home, attach()) as harness:
        for stream, rows in runs:
            harness.insert(stream, rows)


def still_to_come(home: Harness, before: list[Run], runs: list[Run]) -> list[Run]:
    """Which runs a process that was killed has not taken in; of none of them it took a part."""
    taken = {name: Counter(home.table(name)) for name in NAMES}
    for stream, rows in before:
        taken[stream] -= Counter(rows)
    left = list(runs)
    while left and any(taken.values()):
        stream, rows = left.pop(0)
        assert Counter(rows) <= taken[stream], "a run is there in part"
        taken[stream] -= Counter(rows)
    return left


def check_case(case: Case, folder: Path, spark: SparkSession, kill: str | None = None) -> int:
    """Half of the views are there before the rows, the others are made in the middle.

    How often a join of views was looked at that holds no more in memory than it should.
    """
    names = list(case.views)
    early, late = names[::2], names[1::2]
    middle = len(case.runs) // 2
    with Harness(folder, spark) as home:
        home.sql(STREAMS)
        for name, (text, clause) in BELOW.items():
            home.sql(f"CREATE VIEW {name} AS {text}{clause}")
        create(home, case, early)
        fed = Fed(home, early, [])
        for stream, rows in case.runs[:middle]:
            fed.run(stream, rows)
        home.compact()
        home.reopen()
        create(home, case, late)
        found = wrong(home, case, case.runs[:middle], case.chance.sample(names, 2))
        assert not found, f"in the middle of seed {case.seed}\n" + "\n".join(found)
    left = case.runs[middle:]
    if kill is not None:
        gateway = spark.sparkContext._gateway.java_parameters
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.auth_token}
        assert crashing(kill, feed, str(folder), left)
    with Harness(folder, spark) as home:
        if kill is not None:
            left = still_to_come(home, case.runs[:middle], left)
            assert left, "nothing was left to do after the kill"
        fed = Fed(home, names, case.runs[: len(case.runs) - len(left)])
        for stream, rows in left:
            fed.run(stream, rows)
        found = wrong(home, case, case.runs, names)
    assert not found, f"at the end of seed {case.seed}\n" + "\n".join(found)
    return fed.looked_at


@pytest.mark.crash
@pytest.mark.parametrize(("seed", "known"), [(1, KNOWN), pytest.param(4, NEAR, marks=pytest.mark.slow)])
def test_joins_by_duckdb_with_a_kill_on_the_way(
    tmp_path: Path, spark: SparkSession, seed: int, known: tuple[str, ...]
) -> None:
    case = Case.make(seed, views=9 - len(known), runs=8, size=16, known=known)
    looked_at = check_case(case, tmp_path / "home", spark, kill_of(case))
    assert looked_at or known is not NEAR


@pytest.mark.parametrize("engine", [pytest.param("buckets", marks=pytest.mark.slow), "spark"])
def test_joins_by_spark(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """The same changes, where runs are too large for one core."""
    compute_with(engine, monkeypatch)
    check_case(Case.make(3, views=3, runs=6, size=14, known=NEAR[:2]), tmp_path / "home", spark)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_joins(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Every fifth seed without DuckDB on the driver, every tenth without any, and the others with a kill."""
    failures = []
    for each in range(seed, seed + int(os.environ.get("ANABRANCH_JOINS", "25"))):
        by_spark = each % 5 == 0
        monkeypatch.undo()
        compute_with("duckdb" if not by_spark else "buckets" if each % 10 else "spark", monkeypatch)
        case = Case.make(each, views=8, runs=5 if by_spark else 12, size=14 if by_spark else 24)
        try:
            check_case(case, tmp_path / str(each), spark, None if by_spark else kill_of(case))
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)
