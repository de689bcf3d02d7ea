"""What the crash tests share: starting and killing workers, files of rows, and the answers a plain count gives.

The truth is computed here from the input files alone, with Python's own arithmetic: nothing of the engine is used.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from deltalake import DeltaTable

import anabranch
from anabranch.ledger import Ledger, crash
from anabranch.ledger.records import Record

WORKER = Path(__file__).with_name("worker.py")
#: A worker that takes longer hangs.
PATIENCE = 300
START = datetime(2024, 5, 1, tzinfo=timezone.utc)
WINDOW = 10
DELAY = 5
#: The rows of each view as texts, and how often each is there.
Answers = dict[str, Counter[str]]

SCRIPT = """
CREATE STREAM bids (id BIGINT, ts TIMESTAMP, k STRING, n BIGINT)
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND FROM files('{bids}', format => 'json');
CREATE STREAM clicks (id BIGINT, ts TIMESTAMP, k STRING, n BIGINT)
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND FROM files('{clicks}', format => 'csv', header => true);
CREATE VIEW bids_closed AS SELECT k, window_start, count(*) AS c, sum(n) AS s
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start EMIT ON WINDOW CLOSE;
CREATE VIEW bids_total AS SELECT k, count(*) AS c, sum(n) AS s, max(n) AS m FROM bids GROUP BY k;
CREATE VIEW bids_odd AS SELECT id, n * 2 AS d FROM bids WHERE n % 2 = 1;
CREATE VIEW clicks_closed AS SELECT k, window_start, count(*) AS c, sum(n) AS s
  FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start
  HAVING sum(n) > 5 EMIT ON WINDOW CLOSE;
CREATE VIEW clicks_total AS SELECT count(*) AS c, sum(n) AS s FROM clicks;
"""

#: What each view answers, as one text a row; `@` stands for the version to read at.
COLUMNS = {
    "bids_closed": "k, unix_seconds(window_start), c, s",
    "bids_total": "k, c, s, m",
    "bids_odd": "id, d",
    "clicks_closed": "k, unix_seconds(window_start), c, s",
    "clicks_total": "c, s",
}


def answers(*, at_version: bool) -> str:
    """One query for the answers of all views, which is one Spark job instead of one a view."""
    parts = []
    for view, columns in COLUMNS.items():
        texts = ", ".join(f"coalesce(CAST({column} AS STRING), 'NULL')" for column in columns.split(", "))
        parts.append(f"SELECT '{view}' AS v, concat_ws(' ', {texts}) AS r FROM {view}{' @' if at_version else ''}")
    return " UNION ALL ".join(parts)


# ---- processes


@dataclass
class Outcome:
    """How a worker ended, and what it said."""

    code: int
    lines: list[dict[str, Any]]
    errors: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def clean(self) -> bool:
        return self.code == 0 and {"closed": True} in self.lines

    def first(self, name: str) -> Any:
        """The value of a name in the first line that has it."""
        return next(line[name] for line in self.lines if name in line)

    def all(self, name: str) -> list[Any]:
        return [line[name] for line in self.lines if name in line]

    def answers(self, when: str) -> Answers:
        """The answers that came before or after the work, by view."""
        found: Answers = {view: Counter() for view in COLUMNS}
        for view, row in next(line["rows"] for line in self.lines if when in line):
            found[view][row] += 1
        return found

    def explain(self) -> str:
        return f"exit {self.code}\n{self.errors[-3000:]}"


@dataclass
class Processes:
    """Starts workers, with an environment of their own."""

    environment: Mapping[str, str]

    def start(self, order: Mapping[str, Any], crash_at: str | None = None) -> subprocess.Popen[str]:
        source = str(Path(anabranch.__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": source, **self.environment}
        environment.pop(crash.VARIABLE, None)
        if crash_at is not None:
            environment[crash.VARIABLE] = crash_at
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", str(WORKER), json.dumps(order, default=str)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def run(self, order: Mapping[str, Any], crash_at: str | None = None) -> Outcome:
        return finish(self.start(order, crash_at))


def finish(process: subprocess.Popen[str], patience: float = PATIENCE) -> Outcome:
    """Wait for the end of a worker; one that hangs is killed and fails."""
    try:
        out, errors = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        raise AssertionError(f"the worker hangs; it said\n{out}\n{errors[-3000:]}") from None
    # The last line may be cut off by the kill.
    whole = [line for line in out.split("\n")[:-1] if line.startswith("{")]
    return Outcome(process.returncode, [json.loads(line) for line in whole], errors)


@contextlib.contextmanager
def spark_host() -> Iterator[dict[str, str]]:
    """The environment in which workers find a JVM that is already running."""
    owner = Processes({}).start({"host": True})
    assert owner.stdout is not None and owner.stdin is not None
    try:
        line = owner.stdout.readline()
        assert line, "Spark did not start:\n" + (owner.stderr.read() if owner.stderr else "")
        found = json.loads(line)
        yield {"PYSPARK_GATEWAY_PORT": str(found["port"]), "PYSPARK_GATEWAY_SECRET": found["secret"]}
    finally:
        owner.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            owner.wait(20)
        owner.kill()
        owner.wait()


def descendants(pid: int) -> list[int]:
    """The processes under one, as the system lists them now."""
    parents: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parents[int((entry / "stat").read_text().rpartition(")")[2].split()[1])].append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# ---- rows


@dataclass
class Feed:
    """Folders of input files that grow: rows out of order, some far too late."""

    folder: Path
    seed: int = 1
    files: int = 0
    ids: int = 0
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for name in ("bids", "clicks"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def script(self) -> str:
        return SCRIPT.format(bids=self.folder / "bids", clicks=self.folder / "clicks")

    def add(self, files: int = 2, rows: int = 8) -> None:
        """Add files to both streams; a file appears whole."""
        for _ in range(files):
            now = self.files * 6
            for name, ending in (("bids", "json"), ("clicks", "csv")):
                lines = []
                for _ in range(rows):
                    late = self.chance.random() < 0.1
                    second = max(0, now - self.chance.randrange(20, 90)) if late else now + self.chance.randrange(9)
                    at = (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
                    key = self.chance.choice(["a", "b", "c", None])
                    lines.append((self.ids, at, key, self.chance.randrange(10)))
                    self.ids += 1
                if ending == "json":
                    text = "".join(
                        json.dumps(dict(zip(("id", "ts", "k", "n"), line, strict=True))) + "\n" for line in lines
                    )
                else:
                    text = "id,ts,k,n\n" + "".join(f"{i},{at},{key or ''},{n}\n" for i, at, key, n in lines)
                path = self.folder / name / f"{self.files:05}.{ending}"
                hidden = path.with_name(f".{path.name}")
                hidden.write_text(text)
                hidden.rename(path)
            self.files += 1

    def all_files(self) -> dict[str, list[str]]:
        return {name: sorted(map(str, (self.folder / name).iterdir())) for name in ("bids", "clicks")}


Row = tuple[int, int, "str | None", int]


def read_rows(paths: list[str]) -> list[Row]:
    """(id, second, key, number) of every row in some files."""
    found: list[Row] = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            parts = map(json.loads, lines) if path.endswith(".json") else csv.DictReader(lines)
            for part in parts:
                second = int(datetime.fromisoformat(part["ts"].replace("Z", "+00:00")).timestamp())
                found.append((int(part["id"]), second, part["k"] or None, int(part["n"])))
    return found


def truth(paths: Mapping[str, list[str]]) -> Answers:
    """The answer of every view of the script over the rows of these files."""
    bids, clicks = read_rows(paths.get("bids", [])), read_rows(paths.get("clicks", []))
    totals: dict[str | None, list[int]] = defaultdict(list)
    for _, _, key, n in bids:
        totals[key].append(n)
    rows: dict[str, list[list[Any]]] = {
        "bids_closed": closed_windows(bids),
        "bids_total": [[key, len(ns), sum(ns), max(ns)] for key, ns in totals.items()],
        "bids_odd": [[id, n * 2] for id, _, _, n in bids if n % 2 == 1],
        "clicks_closed": [row for row in closed_windows(clicks) if row[3] > 5],
        "clicks_total": [[len(clicks), sum(n for *_, n in clicks) if clicks else None]],
    }
    return {
        view: Counter(" ".join("NULL" if value is None else str(value) for value in row) for row in found)
        for view, found in rows.items()
    }


def closed_windows(rows: list[Row]) -> list[list[Any]]:
    if not rows:
        return []
    progress = max(second for _, second, _, _ in rows) - DELAY
    windows: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    for _, second, key, n in rows:
        windows[key, second // WINDOW * WINDOW].append(n)
    return [[key, at, len(ns), sum(ns)] for (key, at), ns in windows.items() if at + WINDOW <= progress]


def same(found: Answers, expected: Answers) -> None:
    """Equal as bags of rows, view by view."""
    for view, rows in expected.items():
        assert found[view] == rows, f"{view}: too many {dict(found[view] - rows)}, missing {dict(rows - found[view])}"


# ---- what a home must look like


def captured(records: list[Record]) -> dict[str, list[str]]:
    """The files that the committed runs took, by stream, as often as they were taken."""
    names = {
        id: str(definition["name"])
        for record in records
        for id, definition in record.catalog.items()
        if definition is not None and definition.get("kind") == "stream"
    }
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        for stream, run in record.streams.items():
            found[names[stream]] += [name for name, *_ in run.captured or []]
    return dict(found)


def records_of(home: Path) -> list[Record]:
    with Ledger.open(home, write=False) as ledger:
        return list(ledger.records())


def look(home: Path) -> dict[str, list[str]]:
    """Look at a home as a reader does, whatever its writer went through: every run is there once, and whole.

    Returns the files that were taken.
    """
    with Ledger.open(home, write=False) as ledger:
        records = list(ledger.records())
        snapshot = ledger.snapshot()
        for table, live in snapshot.files.items():
            for name, file in live.items():
                metadata = parquet.read_metadata(ledger.table_folder(table) / name)
                assert metadata.num_rows == file.rows
    runs: dict[str, list[int]] = defaultdict(list)
    taken: dict[str, int] = defaultdict(int)
    for record in records:
        for stream, run in record.streams.items():
            runs[stream].append(run.run)
            taken[stream] += run.rows
    for stream, numbers in runs.items():
        assert numbers == list(range(len(numbers))), f"runs of {stream}: {numbers}"
    found = captured(records)
    for stream, names in found.items():
        assert len(set(names)) == len(names), f"a file of {stream} was taken twice"
    assert sum(taken.values()) == sum(len(read_rows(names)) for names in found.values())
    return found


def check_clean(home: Path) -> None:
    """After a clean end nothing is left over, and other tools see in Delta what the records say."""
    with Ledger.open(home, write=False) as ledger:
        snapshot = ledger.snapshot()
        for table in snapshot.files:
            delta = DeltaTable(str(ledger.table_folder(table)))
            assert {uri.rsplit("/", 1)[-1] for uri in delta.file_uris()} == set(snapshot.files[table])
        for folder in (home / "tables").iterdir():
            named = snapshot.named_since(ledger.oldest, folder.name)
            assert {path.name for path in folder.glob("*.parquet")} <= named, f"leftovers in {folder}"
    assert not list((home / "staging").iterdir())
    assert not list((home / "intents").iterdir())
    assert not list(home.rglob(".tmp-*"))


def check_changes(home: Path) -> None:
    """Whoever follows the changes of a view never sees a row taken back that was not shown, nor one shown twice."""
    with Ledger.open(home, write=False) as ledger:
        snapshot = ledger.snapshot()
        for table in snapshot.files:
            rows: list[dict[str, Any]] = []
            for path in snapshot.table_paths(ledger, table):
                rows += parquet.read_table(path).to_pylist()
            if not rows or "_diff" not in rows[0] or "_version" not in rows[0]:
                continue
            shown: Counter[Any] = Counter()
            for version in sorted({row["_version"] for row in rows}):
                for row in rows:
                    if row["_version"] == version:
                        key = tuple(value for name, value in row.items() if name not in ("_diff", "_version", "_at"))
                        shown[key] += row["_diff"]
                assert set(shown.values()) <= {0, 1}, f"{table} at version {version}"


def wait_until(condition: Any, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())
