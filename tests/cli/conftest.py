"""A session made of prepared results, in place of the engine; nothing here starts Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import anabranch
from anabranch.cli.main import main
from anabranch.errors import HomeInUse


@dataclass
class FakeBatch:
    changes: pa.Table
    version: int = 1
    progress: int | None = None
    rows: int = 0
    late: int = 0


@dataclass
class FakeResult:
    kind: str = "done"
    message: str | None = None
    table: pa.Table | None = None
    batches: list[FakeBatch] = field(default_factory=list)
    endless: bool = False
    before_batch: Callable[[int], None] | None = None

    @property
    def columns(self) -> list[str]:
        if self.table is not None:
            return list(self.table.column_names)
        return list(self.batches[0].changes.column_names[:-1]) if self.batches else []

    @property
    def types(self) -> list[str]:
        return ["string"] * len(self.columns)

    def toArrow(self) -> pa.Table:
        return self.table

    def __iter__(self) -> Iterator[FakeBatch]:
        for number, batch in enumerate(self.batches):
            if self.before_batch:
                self.before_batch(number)
            yield batch


@dataclass
class FakeReport:
    stream: str = "bids"
    run: int = 0
    version: int = 1
    rows: int = 2000
    late: int = 12
    bad: int = 0
    milliseconds: float = 180.4
    progress: int | None = 1_767_225_600_000_000
    total_rows: int = 2000
    rows_per_second: float = 11_000.0


class FakeSession:
    def __init__(self) -> None:
        self.stop = threading.Event()
        self.results: list[Any] = []
        self.reports: list[FakeReport] = []
        self.opened_with: tuple[Any, dict[str, Any]] | None = None
        self.live: bool | None = None
        self.dry_run: bool | None = None
        self.script: bool | None = None
        self.text: str | None = None
        self.until_idle: bool | None = None
        self.in_use = False
        self.closed = False
        self.cancelled = False
        self.during_run: Callable[[int], None] | None = None

    def execute(self, text: str, *, live: bool, dry_run: bool = False, script: bool = False) -> Iterator[Any]:
        self.text, self.live, self.dry_run, self.script = text, live, dry_run, script
        for result in self.results:
            if isinstance(result, BaseException):
                raise result
            yield result

    def run(self, text: str, *, until_idle: bool, on_run: Callable[[Any], None], run_time: float | None = None) -> None:
        self.text, self.until_idle = text, until_idle
        for number, report in enumerate(self.reports):
            if self.stop.is_set():
                break
            if self.during_run:
                self.during_run(number)
            on_run(report)

    def cancel(self) -> None:
        self.cancelled = True

    def on_warning(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def on_notice(self, tell: Callable[[str], None]) -> None:
        self.notice = tell

    def on_start(self, around: Callable[[], Any]) -> None:
        self.around_start = around

    def compact(self) -> str:
        return "3 tables reduced"

    def names(self) -> list[str]:
        return ["bids"]

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    fake = FakeSession()

    def connect(home: str | None = None, spark: object = None, **options: Any) -> FakeSession:
        if fake.in_use and not options["read_only"]:
            raise HomeInUse("The home is open for writing by process 7.")
        fake.opened_with = (home, options)
        return fake

    # Not setattr: that would ask the package for the real one first.
    monkeypatch.setitem(anabranch.__dict__, "connect", connect)
    monkeypatch.delenv("ANABRANCH_HOME", raising=False)
    return fake


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def run_cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def run_cli(*arguments: str) -> Ended:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return run_cli


def rows(**columns: Any) -> FakeResult:
    return FakeResult("rows", table=pa.table(columns))


def changes(*runs: dict[str, list[Any]], endless: bool = True, **status: Any) -> FakeResult:
    """A result of changes; each run is a dict of columns that ends with `_diff`."""
    batches = [
        FakeBatch(pa.table(run), version=n + 1, rows=(n + 1) * 10, late=n, **status) for n, run in enumerate(runs)
    ]
    return FakeResult("changes", batches=batches, endless=endless)


@dataclass(frozen=True)
class Make:
    """The makers of fakes, for tests that cannot import this file."""

    rows: Callable[..., FakeResult]
    changes: Callable[..., FakeResult]
    result: type[FakeResult]
    report: type[FakeReport]


@pytest.fixture
def make() -> Make:
    return Make(rows, changes, FakeResult, FakeReport)
