"""Changes as they come: a query kept up to date run by run, each batch the difference to what was given before.

A query on streams lives on a view of its own while it is followed, so that a run costs what the run brings. What is
compared is the whole answer: its difference is exact for any SQL.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.algebra.progress import END, combine
from anabranch.engine import queries, read
from anabranch.engine.capture import PAUSE, Capture
from anabranch.engine.core import Core
from anabranch.engine.define import Definer, stream_locks
from anabranch.engine.frames import arrow_schema, translate
from anabranch.ledger import Snapshot
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Field, View
from anabranch.sql.syntax import SelectStatement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX = "_live_"


@dataclass(frozen=True)
class Batch:
    """The changes of one run: the columns of the answer and a signed count, `_diff`."""

    version: int
    progress: int | None
    rows: int
    late: int
    changes: Any  # pyarrow.Table

    @classmethod
    def of(cls, table: Any) -> Batch:
        """A finite answer as one batch of insertions."""
        import pyarrow as pa

        counted = table.append_column("_diff", pa.array([1] * table.num_rows, pa.int64()))
        return cls(0, None, table.num_rows, 0, counted)


class Live:
    """A query that is being followed."""

    def __init__(
        self,
        core: Core,
        definer: Definer,
        capture: Capture,
        statement: SelectStatement,
        streams: set[str],
        *,
        end: bool,
    ) -> None:
        self.core = core
        self.definer = definer
        self.capture = capture
        self.statement = statement
        self.streams = streams
        self.end = end
        catalog = core.catalog()
        bound = Binder(statement.text, catalog, statement.query).bind()
        self.view: View | None = None
        if all(r.kind in ("stream", "view", "table") and r.version is None for r in bound.references.values()):
            name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
            self.view = definer.make_view(name, statement.text, statement.sql, statement.query, "beginning")
            self.fields: tuple[Field, ...] = self.view.fields
        else:
            self.fields = tuple(queries.analyze(core, bound, catalog, statement.text))
        self._given: Counter[Any] = Counter()
        self._rows: dict[Any, tuple[Any, ...]] = {}
        self._since = 0

    @staticmethod
    def clean_up(core: Core, definer: Definer) -> None:
        """Take out views of queries whose follower died."""
        for view in list(core.catalog().of(View)):
            if view.name.startswith(PREFIX):
                core.ledger.commit(definer.drop_draft(core.catalog(), view))

    def __iter__(self) -> Iterator[Batch]:
        try:
            yield from self._batches()
        except Exception as error:
            raise translate(error) from error
        finally:
            self._drop()

    def final(self) -> Any:
        """Follow to the end; the answer then."""
        import pyarrow as pa

        for _ in self:
            pass
        rows = [self._rows[key] for key, count in self._given.items() for _ in range(count)]
        schema = arrow_schema(self.fields)
        columns = [pa.array([row[i] for row in rows], type=each.type) for i, each in enumerate(schema)]
        return pa.Table.from_arrays(columns, schema=schema)

    def _batches(self) -> Iterator[Batch]:
        catalog = self.core.catalog()
        streams = [catalog.stream(id) for id in sorted(self.streams)]
        yield from self._difference()
        while not self.core.stop.is_set():
            moved = False
            for stream in streams:
                record = self.capture.step(stream) or self.capture.tick(stream)
                if record is not None:
                    moved = True
                    yield from self._difference()
            if moved:
                continue
            if not any((source := self.core.source(each)) is not None and source.endless for each in streams):
                break
            self.core.stop.wait(PAUSE)
        if self.end and not self.core.stop.is_set():
            for stream in streams:
                self.capture.end(stream)
            yield from self._difference()

    def _difference(self) -> Iterator[Batch]:
        """What the answer gained and lost since the last batch."""
        import pyarrow as pa

        snapshot = self.core.snapshot()
        table = self._answer(snapshot).toArrow()
        fresh: Counter[Any] = Counter()
        columns = [column.to_pylist() for column in table.columns]
        for row in zip(*columns, strict=True):
            key = tuple(_hashable(value) for value in row)
            fresh[key] += 1
            self._rows.setdefault(key, row)
        lost = self._given - fresh
        gained = fresh - self._given
        rows = [(*self._rows[key], -count) for key, count in lost.items()]
        rows += [(*self._rows[key], count) for key, count in gained.items()]
        self._given = fresh
        if not rows and self._since == snapshot.version:
            return
        self._since = snapshot.version
        schema = arrow_schema(self.fields).append(pa.field("_diff", pa.int64()))
        arrays = [pa.array([row[i] for row in rows], type=each.type) for i, each in enumerate(schema)]
        bounds = [self.core.progress(snapshot, id).bound for id in self.streams]
        bound = combine(bounds) if bounds else None
        states = [snapshot.streams[id] for id in self.streams if id in snapshot.streams]
        yield Batch(
            snapshot.version,
            None if bound is None or bound == END else bound,
            sum(state.rows for state in states),
            sum(state.late for state in states),
            pa.Table.from_arrays(arrays, schema=schema),
        )

    def _answer(self, snapshot: Snapshot) -> DataFrame:
        if self.view is not None:
            catalog = self.core.catalog(snapshot)
            return read.view_frame(self.core, catalog, catalog.view(self.view.id), snapshot)
        bound = Binder(self.statement.text, self.core.catalog(snapshot), self.statement.query).bind()
        return queries.frame(self.core, bound, snapshot, self.statement.text)

    def _drop(self) -> None:
        if self.view is None:
            return
        with stream_locks(self.core, self.streams), self.core.ledger.commit_lock:
            catalog = self.core.catalog()
            if self.view.id in catalog.objects:
                self.core.ledger.commit(self.definer.drop_draft(catalog, catalog.view(self.view.id)))
        self.view = None


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(each) for each in value)
    if isinstance(value, dict):
        return tuple((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, float) and value != value:
        return "NaN"
    return value
