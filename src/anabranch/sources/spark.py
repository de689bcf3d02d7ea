"""Whatever Spark can stream: `spark(format => '...', option => ...)`, a Structured Streaming source or a Python one.

A query of Spark's (`foreachBatch`, Trigger.AvailableNow) writes each micro-batch into the home before it says in its
checkpoint that the batch is done; the next run takes it from there, and the number of the batch is the position. So
what the checkpoint has passed is in the home or in a run, and a batch that Spark gives again changes nothing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.ledger import files
from anabranch.ledger.crash import reach
from anabranch.sources import secrets
from anabranch.sources.base import Source, Stretch
from anabranch.sources.registry import Kind, Opening, Option
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How long to wait before Spark is asked again whether there is something new, in seconds.
POLL = 1.0


class SparkSource(Source):
    """The micro-batches of one query, staged one after the other."""

    endless = True
    cheap = True

    def __init__(self, opening: Opening) -> None:
        self.given = opening.options
        self.format = str(opening.options["format"])
        self.declared = opening.fields
        self.spark: Callable[[], SparkSession] = opening.spark
        self.waits = False
        self._folder = opening.folder
        self._looked_at = 0.0

    def fields(self) -> tuple[Field, ...]:
        from anabranch.engine.frames import fields_of

        found = fields_of(self._load())
        return tuple(Field(each.name, "timestamp" if each.type == "timestamp_ntz" else each.type) for each in found)

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        done = -1 if position is None else int(position["batch"])
        self._check_checkpoint(position)
        staged = self._staged(done)
        if not staged and time.monotonic() - self._looked_at >= POLL:
            self._stage(done)
            self._looked_at = time.monotonic()
            staged = self._staged(done)
        self.waits = len(staged) > 1
        if not staged:
            return None
        if staged[0] != done + 1:
            hint = "a home goes with its sources folder: restore both from the same copy, or recreate the stream"
            raise SourceError(f"batch {done + 1} of {self.format} was read before, and is not here any more", hint=hint)
        size = sum(path.stat().st_size for path in self._paths(staged[0]))
        return Stretch({"batch": staged[0], "query": self._query()}, staged[0], size)

    def read(self, captured: list[Any]) -> DataFrame:
        """The batch on its way; those of the past are kept by the stream."""
        from anabranch.engine.frames import struct

        assert self.declared is not None
        return self.spark().read.schema(struct(self.declared)).parquet(*(str(self._batch(id)) for id in captured))

    def committed(self, stretch: Stretch) -> None:
        reach("after-run")
        shutil.rmtree(self._batch(stretch.captured), ignore_errors=True)

    def _load(self) -> DataFrame:
        """The stream of Spark's; with the declared columns, where it cannot do without."""
        from anabranch.engine.frames import struct

        def load(columns: tuple[Field, ...] | None) -> DataFrame:
            reader = self.spark().readStream.format(self.format)
            for name, value in secrets.resolve(self.given).items():
                if name != "format":
                    reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
            return (reader if columns is None else reader.schema(struct(columns))).load()

        try:
            try:
                return load(None)
            except Exception:
                if self.declared is None:
                    raise
                return load(self.declared)
        except Exception as error:
            raise self._failed(error) from error

    def _stage(self, done: int) -> None:
        """Have Spark write what there is by now, batch by batch."""
        whole = self._load()
        assert self.declared is not None
        columns = [f"CAST({quote_name(each.name)} AS {each.type}) AS {quote_name(each.name)}" for each in self.declared]
        try:
            chosen = whole.selectExpr(*columns)
            writing = chosen.writeStream.foreachBatch(lambda batch, id: self._write(batch, int(id), done))
            query = writing.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            finally:
                query.stop()
        except Exception as error:
            raise self._failed(error) from error

    def _write(self, batch: DataFrame, id: int, done: int) -> None:
        """Write a batch, unless it is here, or in a run already: then Spark gives it again, because it was killed."""
        target = self._batch(id)
        if id <= done or target.exists():
            return
        unfinished = target.with_name(f"_{target.name}")
        batch.write.mode("overwrite").parquet(str(unfinished))
        for path in unfinished.glob("*.parquet"):
            files.sync_file(path)
        unfinished.rename(target)
        files.sync_folder(target.parent)
        reach("after-stage")

    def _check_checkpoint(self, position: Any) -> None:
        if position is not None and self._query() != position["query"]:
            raise SourceError(
                f"the checkpoint of {self.format} in {self._checkpoint} is gone, or that of another stream",
                hint="restore it; or recreate the stream, which then begins where its options say",
            )

    def _query(self) -> str | None:
        """What the checkpoint calls its query, once and for all."""
        try:
            return str(json.loads((self._checkpoint / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def _checkpoint(self) -> Path:
        return self._folder() / "checkpoint"

    def _batch(self, id: int) -> Path:
        return self._folder() / f"batch-{id:012d}"

    def _staged(self, done: int) -> list[int]:
        """The batches that are here and in no run, in their order."""
        found = sorted(int(path.name.removeprefix("batch-")) for path in self._folder().glob("batch-*"))
        return [id for id in found if id > done]

    def _paths(self, id: int) -> list[Path]:
        return list(self._batch(id).glob("*.parquet"))

    def _failed(self, error: Exception) -> SourceError:
        from anabranch.engine.frames import translate

        if isinstance(error, SourceError):
            return error
        java = getattr(error, "java_exception", None)
        text = str(java.getMessage()) if java is not None else str(translate(error))
        message = secrets.hide(text.splitlines()[0], self.given)
        hint = (
            "declare the columns: CREATE STREAM s (a INT, ...) FROM spark(...)" if "schema" in message.lower() else None
        )
        return SourceError(f"Spark cannot stream {self.format}: {message}", hint=hint)


def _check(options: Mapping[str, Any]) -> None:
    if "checkpointlocation" in (name.lower() for name in options):
        raise SourceError("the checkpoint of a stream is in its home", hint="remove checkpointLocation")


KINDS = (
    Kind(
        name="spark",
        doc="a source of Structured Streaming, or a Python data source that is registered; further options are its own",
        example="spark(format => 'rate', rowsPerSecond => 10)",
        options=(Option(name="format", doc="the name that Spark knows it by", required=True),),
        stream=SparkSource,
        open_options=True,
        reads_once=True,
        check=_check,
    ),
)
