"""What sources have in common whose rows can be read once: a log that moves on, versions that are cleaned up.

The rows of a stretch are in files of ours until its run has been committed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import row_groups
from anabranch.sources.base import CORRUPT, ORIGIN, PARTITION, Source, Stretch
from anabranch.sources.registry import Opening, Option
from anabranch.sql.text import quote_name, quote_string
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Rows that are read on the driver.
NEAR_ROWS = 200_000
COUNT_OPTION = Option(name="count", doc="the column that says whether a row comes (1) or goes (-1)", default="diff")


class ReadOnce(Source):
    """A source whose rows are in files of ours, from the reading of a stretch to its commit."""

    def __init__(self, opening: Opening) -> None:
        self.spark, self.scratch = opening.spark, opening.scratch
        self.count = str(opening.options.get("count", "diff"))
        self._read: tuple[Any, Sequence[str]] | None = None  # the last stretch, and the files with its rows

    @property
    @abstractmethod
    def log(self) -> str:
        """What the rows are read from, for people: `slot x`."""

    @abstractmethod
    def stored(self) -> tuple[Field, ...]:
        """The columns of the files."""

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        if captured["rows"] > NEAR_ROWS or not captured["rows"]:
            return None
        wanted = [field.name for field in self.stored() if columns is None or field.name in columns]
        return pa.concat_tables(parquet.read_table(path, columns=wanted) for path in self._files(captured))

    def in_groups(self, captured: Any, columns: Collection[str], time: str | None) -> row_groups.InGroups | None:
        """The files of ours by their groups of rows."""
        names = list(self._files(captured)) if captured["rows"] else []
        return row_groups.in_groups(names, self.stored(), columns, time)

    def read(self, captured: list[Any]) -> DataFrame:
        spark = self.spark()
        types = ", ".join(f"{quote_name(field.name)} {field.type}" for field in self.stored())
        paths = [path for each in captured if each["rows"] for path in self._files(each)]
        frame = spark.read.schema(types).parquet(*paths) if paths else spark.createDataFrame([], types)
        return frame.selectExpr(
            "*", f"CAST(NULL AS STRING) AS {CORRUPT}", f"{quote_string(self.log)} AS {ORIGIN}", f"'' AS {PARTITION}"
        )

    def committed(self, stretch: Stretch) -> None:
        self.forget()

    def forget(self) -> None:
        for path in self._read[1] if self._read is not None else ():
            Path(path).unlink(missing_ok=True)
        self._read = None

    def stretch(self, position: Any, captured: dict[str, Any], paths: Sequence[str], size: int) -> Stretch:
        """A stretch whose rows, `captured["rows"]` of them, are in these files."""
        self.forget()
        self._read = captured, paths
        return Stretch(position, captured, size)

    def _files(self, captured: Any) -> Sequence[str]:
        if self._read is None or self._read[0] != captured:
            hint = "create the stream with KEEP ALL, which is the default"
            raise SourceError(f"rows are read once, and the {self.log} has moved on", hint=hint)
        return self._read[1]

    def check_count(self, found: Sequence[Field], table: str) -> None:
        """Raise if the table has a column with the name of the count."""
        if any(field.name.lower() == self.count.lower() for field in found):
            hint = "count => 'another_name' calls it something else"
            raise SourceError(f"the table {table} has a column {self.count} itself", hint=hint)
