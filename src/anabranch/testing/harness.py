"""Tests of views without waiting: rows with times in, tables and changes out, a clock that is set by hand.

    >>> with Harness() as home:
    ...     home.sql('''
    ...         CREATE STREAM bids (item STRING, price INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE);
    ...         CREATE VIEW sums AS
    ...           SELECT window_start, sum(price) AS total FROM TUMBLE(bids, ts, INTERVAL 10 MINUTES)
    ...           GROUP BY window_start, window_end EMIT ON WINDOW CLOSE''')
    ...     home.insert("bids", [("a", 1, "2026-01-01 08:05:00"), ("b", 2, "2026-01-01 08:12:00")])
    ...     home.insert("bids", [("c", 3, "2026-01-01 08:01:00")])  # ten minutes late
    ...     for change in home.changes("sums"):
    ...         print(change.diff, change.row[0].time(), change.row[1])
    1 08:00:00 1
    -1 08:00:00 1
    1 08:00:00 4

What a view shows is compared with `batch`: the same SQL, run by Spark once over all rows. The module uses the engine as
everybody does; only changes are read from the ledger's own tables.
"""

from __future__ import annotations

import math
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from anabranch.engine.frames import hashable
from anabranch.engine.place import Backend
from anabranch.errors import UsageError
from anabranch.ledger.crash import VARIABLE
from anabranch.session import Session, connect
from anabranch.sql.text import quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.types import Field

__all__ = [
    "Change",
    "FakeClock",
    "Harness",
    "assert_same_rows",
    "crashing",
    "cuts",
    "same_rows",
    "shuffled",
    "sorted_rows",
]

Row = tuple[Any, ...]
Given = Sequence[Any] | Mapping[str, Any]
T = TypeVar("T")


class Change(NamedTuple):
    """A row that a view emitted or took back: which commit, how often (signed), and the row."""

    version: int
    diff: int
    row: Row


class FakeClock:
    """A clock that stands still until it is told to move.

    >>> clock = FakeClock("2026-01-01 12:00:00")
    >>> clock.forward(90)
    >>> clock().isoformat()
    '2026-01-01T12:01:30+00:00'
    """

    def __init__(self, at: datetime | str = "2026-01-01 00:00:00") -> None:
        self._now = _aware(at)

    def __call__(self) -> datetime:
        return self._now

    def set(self, at: datetime | str) -> None:
        """Move the clock to a time; without a zone, it is UTC."""
        self._now = _aware(at)

    def forward(self, seconds: float = 0, **duration: float) -> None:
        """Move the clock on: `forward(30)`, `forward(minutes=5)`."""
        self._now += timedelta(seconds=seconds, **duration)


class Harness:
    """A home for a test. Without a folder it is a temporary one that is removed on closing.

    Rows are tuples in the order of the columns, or dicts. Times are datetimes or texts; without a zone they are UTC,
    and so they come back.

    >>> with Harness() as home:
    ...     home.sql("CREATE STREAM s (k STRING, n INT); CREATE VIEW v AS SELECT k, sum(n) AS n FROM s GROUP BY k")
    ...     home.insert("s", [("a", 1), ("b", 2)])
    ...     home.insert("s", [{"k": "a", "n": 5}])
    ...     home.table("v")
    ...     home.batch("SELECT k, sum(n) AS n FROM s GROUP BY k", s=[("b", 2), ("a", 5), ("a", 1)])
    [('a', 6), ('b', 2)]
    [('a', 6), ('b', 2)]
    """

    def __init__(
        self,
        home: str | Path | None = None,
        spark: SparkSession | None = None,
        *,
        clock: Callable[[], datetime] | None = None,
        run_rows: int | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="anabranch-test-") if home is None else None
        self.path = Path(home if self._temporary is None else self._temporary.name)  # type: ignore[arg-type]
        self._open: Callable[[], Session] = lambda: connect(
            self.path, spark, clock=clock, run_rows=run_rows, backend=backend
        )
        self.session = self._open()

    # ---- in

    def sql(self, text: str) -> None:
        """Carry out statements; what a SELECT gives is left unread."""
        self.session.sql(text)

    def insert(self, stream: str, rows: Iterable[Given]) -> None:
        """Take rows into a stream as one run (or into a table)."""
        from anabranch.engine.frames import arrow_schema

        fields = self._fields(stream)
        schema = arrow_schema(fields)
        given = (zip(schema, _in_order(row, fields), strict=True) for row in rows)
        self.session.insert(stream, [{of.name: _fitting(value, of.type) for of, value in row} for row in given])

    def insert_runs(self, stream: str, runs: Iterable[Iterable[Given]]) -> None:
        """Take rows in run by run."""
        for rows in runs:
            self.insert(stream, rows)

    def advance(self, stream: str, to: datetime | str | None = None) -> None:
        """Declare progress: up to a time, or, without one, the end of the stream."""
        bound = "END" if to is None else f"TIMESTAMP '{_naive(_aware(to))}'"
        self.session.sql(f"ADVANCE STREAM {quote_name(stream)} TO {bound}")

    def compact(self) -> None:
        """Have the reducer do everything it can."""
        self.session.compact()

    def reopen(self) -> None:
        """Close the home and open it again, as another process would."""
        self.session.close()
        self.session = self._open()

    # ---- out

    def query(self, text: str) -> list[Row]:
        """The rows of a SELECT, in the order in which they come."""
        return _rows(self.session.sql(text).toArrow())

    def table(self, view: str, version: int | None = None) -> list[Row]:
        """What a view, table or stream shows, sorted; at an earlier version if one is given."""
        at = "" if version is None else f" AS OF VERSION {version}"
        return sorted_rows(self.query(f"SELECT * FROM {quote_name(view)}{at}"))

    def changes(self, view: str) -> list[Change]:
        """All that a view whose changes are kept has emitted, in order; in one commit retractions come first."""
        from pyarrow import dataset

        from anabranch.engine.frames import arrow_schema
        from anabranch.engine.tables import DIFF, VERSION
        from anabranch.plan.view import View

        core = self.session._core
        snapshot = core.snapshot()
        catalog = core.catalog(snapshot)
        found = catalog.find(view)
        if not isinstance(found, View) or not found.kept:
            raise UsageError(f"{view} keeps no changes", hint="EMIT CHANGES or EMIT ON WINDOW CLOSE makes it do so")
        schema = arrow_schema((VERSION, DIFF, *found.fields))
        paths = snapshot.table_paths(core.ledger, found.changes_table)
        table = dataset.dataset(paths, schema, "parquet").to_table() if paths else schema.empty_table()
        changes = [Change(row[0], row[1], row[2:]) for row in _rows(table)]
        return sorted(changes, key=lambda change: (change.version, change.diff, _sort_key(change.row)))

    def emitted(self, view: str) -> list[Row]:
        """The changes of a view added up: what a reader of them holds."""
        counts: Counter[Row] = Counter()
        rows: dict[Row, Row] = {}
        for change in self.changes(view):
            key = tuple(hashable(value) for value in change.row)
            counts[key] += change.diff
            rows.setdefault(key, change.row)
        negative = [rows[key] for key, count in counts.items() if count < 0]
        assert not negative, f"{view} took back rows that it had not shown: {negative}"
        return sorted_rows(rows[key] for key, count in counts.items() for _ in range(count))

    def batch(self, text: str, /, **streams: Iterable[Given]) -> list[Row]:
        """The oracle: a SELECT run by Spark as one batch query over the given rows of each stream.

        Nothing of what the home holds is used for these streams but their columns.
        """
        from anabranch.engine import queries, read
        from anabranch.engine.frames import arrow_schema
        from anabranch.plan.bind import Binder
        from anabranch.sql.parser import parse
        from anabranch.sql.syntax import SelectStatement

        core = self.session._core
        snapshot = core.snapshot()
        catalog = core.catalog(snapshot)
        statement = parse(text)[0]
        if not isinstance(statement, SelectStatement):
            raise UsageError("the oracle answers one SELECT")
        relations = {}
        bound = Binder(statement.text, catalog, statement.query).bind()
        given = {name.lower(): rows for name, rows in streams.items()}
        for placeholder, reference in bound.references.items():
            if reference.kind != "stream":
                relations[placeholder] = read.relation(core, reference, snapshot)
                continue
            stream = catalog.stream(reference.target)
            if stream.name.lower() not in given:
                raise UsageError(f"the oracle was given no rows of {stream.name}")
            table = _arrow(given[stream.name.lower()], stream.fields, arrow_schema(stream.fields))
            relations[placeholder] = core.spark.createDataFrame(table)
        return sorted_rows(_rows(queries.over(core, bound, relations, statement.text).toArrow()))

    def runs(self, stream: str) -> list[dict[str, Any]]:
        """The stream's lines of sys.runs, as dicts."""
        table = self.session.sql("SELECT * FROM sys.runs ORDER BY version").toArrow()
        return [row for row in table.to_pylist() if row["stream"] == stream]

    # ---- opening and closing

    def close(self) -> None:
        self.session.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- rows into SQL

    def _fields(self, name: str) -> tuple[Field, ...]:
        found = self.session._core.catalog().find(name)
        if found is None:
            raise UsageError(f"there is no stream or table {name}")
        return found.fields


# ------------------------------------------------------------------------------------- disorder, cuts, crashes


def cuts(rows: Sequence[T], chance: random.Random, *, empty: bool = False) -> Iterator[list[T]]:
    """The rows in order, cut at random into runs; with `empty`, now and then a run without rows.

    >>> list(cuts([1, 2, 3, 4, 5], random.Random(5)))
    [[1, 2, 3], [4, 5]]
    """
    left = list(rows)
    largest = max(1, chance.choice((1, 3, len(left))))
    while left:
        if empty and chance.random() < 0.15:
            yield []
        size = chance.randint(1, largest)
        yield left[:size]
        del left[:size]


def shuffled(rows: Iterable[T], chance: random.Random) -> list[T]:
    """The rows in another order.

    >>> sorted(shuffled([3, 1, 2], random.Random(1)))
    [1, 2, 3]
    """
    mixed = list(rows)
    chance.shuffle(mixed)
    return mixed


def crashing(point: str, function: Callable[..., object], *arguments: Any, timeout: float = 180) -> bool:
    """Run a function in a process of its own that is killed, as by kill -9, when it reaches a crash point.

    True if it died there, False if it came to its end without; any other end is an error. The function stands at the
    top of a file, and its arguments can be pickled. `point` is a name, or `name:n` for the n-th time it is reached.
    """
    program = (
        "import importlib.util, pickle, sys\n"
        "path, name, arguments = pickle.load(sys.stdin.buffer)\n"
        "spec = importlib.util.spec_from_file_location('crashing_module', path)\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['crashing_module'] = module\n"
        "spec.loader.exec_module(module)\n"
        "getattr(module, name)(*arguments)\n"
    )
    path = function.__code__.co_filename
    environment = {**os.environ, VARIABLE: point, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((path, function.__name__, arguments)),
        env=environment,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(f"{function.__name__} failed:\n{done.stderr.decode(errors='replace')}")
    return done.returncode != 0


# ------------------------------------------------------------------------------------------------- comparing


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order of their own, whatever they hold; NULL comes first.

    >>> sorted_rows([("b", 1), (None, 2), ("a", 3)])
    [(None, 2), ('a', 3), ('b', 1)]
    """
    return sorted(rows, key=_sort_key)


def same_rows(one: Iterable[Row], other: Iterable[Row]) -> bool:
    """Whether two bags of rows are the same: doubles within rounding, everything else exactly.

    >>> same_rows([(1, 0.1 + 0.2), (2, None)], [(2, None), (1, 0.3)])
    True
    """
    left, right = sorted_rows(one), sorted_rows(other)
    return len(left) == len(right) and all(map(_same_row, left, right))


def assert_same_rows(found: Iterable[Row], wanted: Iterable[Row], what: str = "") -> None:
    """Fail with the difference unless two bags of rows are the same."""
    left, right = sorted_rows(found), sorted_rows(wanted)
    if len(left) == len(right) and all(map(_same_row, left, right)):
        return
    missing, extra = list(right), []
    for row in left:
        match = next((index for index, each in enumerate(missing) if _same_row(row, each)), None)
        if match is None:
            extra.append(row)
        else:
            del missing[match]
    if not missing and not extra:  # rows that are the same may be sorted apart
        return
    lines = [
        what or "the rows differ",
        *(f"  missing {row}" for row in missing),
        *(f"  extra   {row}" for row in extra),
    ]
    raise AssertionError("\n".join(lines))


def _same_row(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(map(_same_value, one, other))


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return _same_row(tuple(one), tuple(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)
    return type(one) is type(other) and bool(one == other)


def _sort_key(row: Row) -> tuple[Any, ...]:
    # Doubles last and rounded: two sums of the same rows may differ in their last bits, and must sort alike.
    exact = [(value is not None, str(type(value)), _text(value)) for value in row if not isinstance(value, float)]
    doubles = [f"{value:.9e}" for value in row if isinstance(value, float)]
    return (exact, doubles)


def _text(value: Any) -> Any:
    if isinstance(value, bool | str | bytes):
        return str(value)
    if isinstance(value, int | Decimal | date):
        return value
    return repr(value)


# ---------------------------------------------------------------------------------------------------- values


def _aware(at: datetime | str) -> datetime:
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


def _naive(at: datetime) -> datetime:
    return at.astimezone(timezone.utc).replace(tzinfo=None)


def _in_order(row: Given, fields: tuple[Field, ...]) -> Row:
    if isinstance(row, Mapping):
        unknown = set(row) - {field.name for field in fields}
        if unknown:
            raise UsageError(f"there is no column {', '.join(sorted(unknown))}")
        return tuple(row.get(field.name) for field in fields)
    if len(row) != len(fields):
        raise UsageError(f"a row has {len(row)} values, but there are {len(fields)} columns")
    return tuple(row)


def _arrow(rows: Iterable[Given], fields: tuple[Field, ...], schema: Any) -> Any:
    import pyarrow as pa

    given = [_in_order(row, fields) for row in rows]
    arrays = [
        pa.array([_fitting(row[index], field.type) for row in given], type=field.type)
        for index, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _fitting(value: Any, kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and isinstance(value, datetime | str):
        return _aware(value)
    if pa.types.is_decimal(kind) and value is not None:
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=38))
    return value


def _rows(table: Any) -> list[Row]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return _naive(value)
    return value
