"""The changes of a view, version by version: what subscribers, live outputs and sinks read.

A version's changes are the files that its record added to the view's changes, so a reader that remembers a version
continues from there, and gets each change once. From a version at which a view kept no changes it catches up in one
batch: the present answer minus the answer then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from anabranch.algebra.progress import END, combine
from anabranch.duck import connect, quoted
from anabranch.engine import read
from anabranch.engine.core import Core
from anabranch.engine.frames import arrow_schema
from anabranch.engine.tables import net_sql
from anabranch.errors import AnabranchError
from anabranch.ledger import DataFile, Record, Snapshot
from anabranch.plan.stored import from_json
from anabranch.plan.view import View
from anabranch.sql.text import quote_name
from anabranch.types import Field


@dataclass(frozen=True)
class Batch:
    """The changes of one version: the columns of the answer and a signed count, `_diff`."""

    version: int
    progress: int | None
    rows: int
    late: int
    changes: Any  # pyarrow.Table

    @classmethod
    def of(cls, table: Any) -> Batch:
        """A finite answer as one batch of insertions."""
        return cls(0, None, table.num_rows, 0, inserted(table))

    @classmethod
    def at(
        cls, core: Core, snapshot: Snapshot, streams: Collection[str], changes: Any, view: str | None = None
    ) -> Batch:
        """Changes with the statistics of their streams; for a view, its own bound."""
        bounds = [core.progress(snapshot, id).bound for id in streams]
        bound = combine(bounds) if bounds else None
        if view is not None:
            bound = snapshot.bounds.get(view, bound)
        states = [snapshot.streams[id] for id in streams if id in snapshot.streams]
        rows, late = sum(state.rows for state in states), sum(state.late for state in states)
        return cls(snapshot.version, None if bound is None or bound == END else bound, rows, late, changes)


def inserted(table: Any) -> Any:
    """Rows as insertions."""
    import pyarrow as pa

    return table.append_column("_diff", pa.array([1] * table.num_rows, pa.int64()))


def _net(table: Any) -> Any:
    """The net changes of rows that differ only in hidden columns."""
    duck = connect()
    try:
        duck.register("changes", table)
        names = ", ".join(quoted(name) for name in table.column_names[:-1])
        found = duck.sql(net_sql(names, "changes")).to_arrow_table()
        return found.rename_columns(table.column_names).cast(table.schema)
    finally:
        duck.close()


class Feed:
    """Reads the changes of one view from a version on."""

    def __init__(self, core: Core, view: View, position: int | None) -> None:
        self.core = core
        self.view = view
        self.position = position
        self.streams = core.catalog().sources_of(view)
        #: The version to catch up from first: changes since then were not kept.
        self.since: int | None = None
        newest = core.snapshot().version
        if position is None:
            return
        if position < 0 or position > newest:
            yet = "" if position < 0 else " yet"
            raise AnabranchError(f"there is no version {position}{yet}", hint=f"the newest is {newest}")
        if position < core.ledger.oldest - 1:
            raise AnabranchError(
                f"the changes since version {position} are no longer kept",
                hint=f"the oldest version is {core.ledger.oldest}; without FROM VERSION the whole answer comes first",
            )
        if not self._kept_at(max(position, core.ledger.oldest)):
            if position < core.ledger.oldest:
                raise AnabranchError(
                    f"view {view.name} keeps its changes since version {self._kept_since(newest)},"
                    f" and version {position} can no longer be read",
                    hint="without FROM VERSION the whole answer comes first",
                )
            self.since = position

    def _kept_at(self, version: int) -> bool:
        """Whether the view kept its changes at a version, or did not exist yet."""
        view = self.core.catalog(self.core.ledger.snapshot(version)).objects.get(self.view.id)
        return not isinstance(view, View) or view.kept

    def _kept_since(self, newest: int) -> int:
        return next(each for each in range(self.core.ledger.oldest, newest + 1) if self._kept_at(each))

    def batches(self) -> Iterator[Batch]:
        """The batches committed since the last call. A new reader first gets the present answer, as insertions."""
        snapshot = self.core.snapshot()
        if self.position is None:
            catalog = self.core.catalog(snapshot)
            now = catalog.view(self.view.id)
            if now.shown_fields != self.view.shown_fields:
                raise self._other_columns(snapshot.version)
            self.view = now
            table = read.shown_frame(self.core, catalog, self.view, snapshot).toArrow()
            self.position = snapshot.version
            yield Batch.at(self.core, snapshot, self.streams, inserted(table), self.view.id)
            return
        if self.since is not None:
            changes, self.since = self._since(self.since, snapshot), None
            self.position = snapshot.version
            yield Batch.at(self.core, snapshot, self.streams, changes, self.view.id)
            return
        moved = False
        for record in self.core.ledger.records(self.position + 1, snapshot.version):
            self._follow(record)
            self.position = record.version
            changes = self.changes_of(record)
            moved = True
            if changes is not None:
                moved = False
                at = self.core.ledger.snapshot(record.version)
                yield Batch.at(self.core, at, self.streams, changes, self.view.id)
        if moved:
            _ = self.core.frames
            nothing = inserted(arrow_schema(self.view.fields).empty_table())
            yield Batch.at(self.core, snapshot, self.streams, nothing, self.view.id)

    def _since(self, version: int, snapshot: Snapshot) -> Any:
        """The difference between the answer and that at a version, retractions first."""
        core, id = self.core, self.view.id
        with core.ledger.pin(version) as earlier:
            then, now = (core.catalog(at) for at in (earlier, snapshot))
            if now.view(id).shown_fields != then.view(id).shown_fields:
                raise self._other_columns(snapshot.version)
            self.view = now.view(id)
            shown = read.shown_frame(core, now, self.view, snapshot)
            had = read.view_frame(core, then, then.view(id), earlier)
            columns = ", ".join(quote_name(field.name) for field in self.view.fields)
            both = f"(SELECT {columns}, 1 AS _diff FROM `@now` UNION ALL SELECT {columns}, -1 AS _diff FROM `@then`)"
            table = core.frames.sql(net_sql(columns, both), {"@now": shown, "@then": had}).toArrow()
        schema = arrow_schema((*self.view.fields, Field("_diff", "bigint")))
        return table.cast(schema).sort_by([("_diff", "ascending")])

    def changes_of(self, record: Record) -> Any:
        """The changes of a commit, retractions first; None for none."""
        if record.kind == "reduce":
            return None
        for remade in range(self.view.state.generation, -1, -1):
            name = replace(self.view, state=replace(self.view.state, generation=remade)).changes_table
            change = record.tables.get(name)
            if change is not None and change.add:
                table = self._read(name, change.add, record.version)
                table = _net(table) if self.view.keying.kept else table
                return table.sort_by([("_diff", "ascending")]) if table.num_rows else None
        return None

    def _follow(self, record: Record) -> None:
        """Follow an ALTER VIEW: the feed continues, unless the columns have changed."""
        definition = record.catalog.get(self.view.id)
        if definition is not None:
            now = from_json(definition)
            assert isinstance(now, View)
            if now.shown_fields != self.view.shown_fields and record.kind == "alter":
                raise self._other_columns(record.version)
            self.view = replace(
                now, state=replace(now.state, generation=max(now.state.generation, self.view.state.generation))
            )

    def _other_columns(self, version: int) -> AnabranchError:
        return AnabranchError(
            f"view {self.view.name} has other columns since version {version}",
            hint="subscribe again; without FROM VERSION the whole answer comes first",
        )

    def _read(self, name: str, files: tuple[DataFile, ...], version: int) -> Any:
        import pyarrow as pa
        import pyarrow.compute as compute
        from pyarrow import parquet

        folder = self.core.ledger.table_folder(name)
        names = [field.name for field in self.view.fields]
        _ = self.core.frames
        schema = arrow_schema(self.view.fields).append(pa.field("_diff", pa.int64()))
        parts = []
        for file in files:
            there = parquet.ParquetFile(folder / file.path)
            if not set(names) <= set(there.schema_arrow.names):
                raise self._other_columns(version)
            part = there.read(columns=[*names, "_diff", "_version"])
            # A restarted table begins with what was shown before.
            part = part.filter(compute.equal(part.column("_version"), version))
            parts.append(part.select([*names, "_diff"]).cast(schema))
        return pa.concat_tables(parts)
