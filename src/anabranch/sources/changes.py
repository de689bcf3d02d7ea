"""What streams of the changes of a table have in common: first the rows that are there, then what happens to them.

Every row has a count, as NET reads it: 1 for a row that comes, -1 for one that goes; an update is one of each.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from anabranch.sources.base import Stretch
from anabranch.sources.database import BATCH_ROWS, Cursor, Row
from anabranch.sources.database_server import ServerTable
from anabranch.sources.lookup import arrow_schema
from anabranch.sources.once import ReadOnce
from anabranch.sources.registry import Opening
from anabranch.types import Field

#: Changes of a run, about, where nobody says so.
MOST_CHANGES = 100_000


class TableChanges(ReadOnce):
    """The changes of one table of a database."""

    def __init__(self, opening: Opening, make: type[ServerTable], options: dict[str, Any]) -> None:
        super().__init__(opening)
        own = None if opening.fields is None else tuple(f for f in opening.fields if f.name != self.count)
        self.table = make(options, own)

    @abstractmethod
    def check(self) -> None:
        """Raise unless the server tells changes of the table."""

    @abstractmethod
    def first_rows(self) -> Stretch:
        """The rows that are there."""

    @abstractmethod
    def changes(self, position: Any, most: int) -> Stretch | None:
        """What happened after a position, about so many rows of it; None while there is nothing."""

    # ---- the protocol of sources

    def fields(self) -> tuple[Field, ...]:
        self.check_count(self.table.fields(), self.table.called)
        self.check()
        return self.stored()

    def stored(self) -> tuple[Field, ...]:
        return (*self.table.fields(), Field(self.count, "int"))

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        return self.first_rows() if position is None else self.changes(position, max_rows or MOST_CHANGES)

    # ---- rows

    def taken(self, position: Any, where: dict[str, Any], batches: Iterable[list[Row]]) -> Stretch:
        """A stretch with rows that end with their count; `where` in the log they are."""
        path, count = self._written(batches)
        return self.stretch(position, {"rows": count, **where}, [path], count * 100)

    def coming(self, cursor: Cursor) -> Iterator[list[Row]]:
        """The rows of a statement, some at a time, as rows that come."""
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield [(*row, 1) for row in rows]

    def _written(self, batches: Iterable[list[Row]]) -> tuple[str, int]:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        fields = self.table.fields()
        names = [field.name for field in fields]
        path, count = str(self.scratch() / f"changes-{uuid.uuid4().hex}.parquet"), 0
        schema = arrow_schema(self.stored())
        with parquet.ParquetWriter(path, schema) as writer:
            for rows in batches:
                counts = pa.array([row[-1] for row in rows], pa.int32())
                table = self.table.arrow(names, [row[:-1] for row in rows])
                writer.write_table(table.append_column(self.count, counts).cast(schema))
                count += len(rows)
        return path, count
