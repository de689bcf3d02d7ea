"""Streams and queries over files of object stores: files that Spark reads where they are, each as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.base import SourceChanged
from anabranch.sources.files import FilesSource
from anabranch.sources.hadoop import Objects, Store, url
from anabranch.sources.listing import File
from anabranch.sources.parts import Part

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: About so many bytes are a row, where nobody looks.
_ROW = 100


class ObjectsSource(FilesSource):
    """The files of an object store that match a URL."""

    def __init__(
        self,
        options: Mapping[str, Any],
        spark: Callable[[], SparkSession],
        *others: Any,
        **named: Any,
    ) -> None:
        self.store = Store(url(str(options["path"])), spark)
        super().__init__(options, spark, *others, files=self.store, **named)
        if self.format == "avro":
            hint = "spark(format => 'avro', path => '...') does, with Spark's package spark-avro in spark.jars.packages"
            raise SourceError("Avro files of a store are not read by name", hint=hint)
        self._listing = Objects(self.store)

    def listing(self) -> list[File]:
        return self.store.list()

    def mark(self, name: str, end: int) -> str | None:
        return None

    def has_footer(self, name: str, size: int) -> bool:
        return True

    def _part(self, name: str, size: int, time: int, known: Part | None) -> Part | str | None:
        if known is not None:
            return "the file was changed after it was read; its new contents are not read"
        return Part(name, size, time)

    def _appendable(self, name: str) -> bool:
        return False

    def _cut(self, part: Part, rows: int) -> Part:
        return part

    def _count_rows(self, part: Part) -> int:
        return max(1, part.size // _ROW)

    def _path(self, part: Part) -> str:
        status = self.store.status(part.name)
        if status is None:
            raise SourceError(
                f"the file {part.name} has disappeared",
                hint="put it back; a stream that must outlive its files needs KEEP ALL",
            )
        if status != (part.end, part.time):
            raise SourceError(
                f"the file {part.name} was changed after it was read: the rows that it had are lost",
                hint="put it back as it was; a stream that must outlive its files needs KEEP ALL",
            )
        return part.name

    def verify(self, captured: list[Any]) -> None:
        for part in (Part.of(each) for stretch in captured for each in stretch):
            if self.store.status(part.name) != (part.end, part.time):
                raise SourceChanged(f"the file {part.name} changed while it was read")

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        return None

    def in_groups(self, captured: Any, columns: Collection[str], time: str | None) -> None:
        return None

    def rows_in_files(self, captured: Any, columns: Collection[str], time: str | None) -> None:
        return None
