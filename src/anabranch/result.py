"""The answer to one statement, as people hold it in their hands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.engine.feed import Batch
from anabranch.engine.frames import fields_of, translate
from anabranch.engine.live import Following, Live
from anabranch.errors import UsageError
from anabranch.plan.catalog import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Result:
    """The answer to one statement: a table, changes as they come, or just word that it is done."""

    def __init__(
        self,
        *,
        message: str | None = None,
        frame: DataFrame | None = None,
        table: Any = None,
        live: Following | None = None,
        endless: bool = False,
        follow: Callable[[], Live] | None = None,
        pin: contextlib.ExitStack | None = None,
        make_frame: Callable[[], DataFrame] | None = None,
        make_table: Callable[[], Any] | None = None,
        fields: Sequence[Field] = (),
    ) -> None:
        self.message = message
        self.endless = endless
        self._frame = frame
        self._table = table
        self._live = live
        self._follow = follow
        self._pin = pin
        self._make_frame = make_frame  # for a table that is had without Spark
        self._make_table = make_table  # None if Spark is to be asked after all
        self._fields = fields  # of the table to be made

    @property
    def kind(self) -> str:
        if self._live is not None:
            return "changes"
        return "done" if self._frame is None and self._table is None and self._make_table is None else "rows"

    @property
    def columns(self) -> list[str]:
        if self._live is not None:
            return [field.name for field in self._live.fields]
        if self._table is not None:
            return [str(name) for name in self._table.column_names]
        return [field.name for field in self._fields] if self._frame is None else list(self._frame.columns)

    @property
    def types(self) -> list[str]:
        if self._live is not None:
            return [field.type for field in self._live.fields]
        if self._fields:
            return [field.type for field in self._fields]
        framed = self._frame is not None or self._make_frame is not None
        return [field.type for field in fields_of(self.df)] if self.kind == "rows" and framed else []

    @property
    def times(self) -> Mapping[str, int]:
        """The columns of a live answer that are event times, and how long after each one progress has passed it."""
        return self._live.times if self._live is not None else {}

    @property
    def df(self) -> DataFrame:
        """The answer as a Spark DataFrame, at the version the statement saw."""
        if self._frame is None and self._make_frame is not None:
            self._frame = self._make_frame()
        if self._frame is None:
            raise UsageError("this statement gave no rows", hint="a SELECT does")
        return self._frame

    def toArrow(self) -> Any:  # Spark's own spelling
        """The answer as a pyarrow.Table."""
        if self._table is None:
            if self._live is not None:
                return self._live.final()
            try:
                self._table = self._make_table() if self._make_table is not None else None
                if self._table is None:
                    self._table = self.df.toArrow()
            except Exception as error:
                raise translate(error) from error
            finally:
                self.close()
        return self._table

    def toPandas(self) -> Any:
        """The answer as a pandas.DataFrame."""
        return self.toArrow().to_pandas()

    def __iter__(self) -> Iterator[Batch]:
        """Changes, run by run. A finite answer is one batch of insertions."""
        if self._live is None and self._follow is not None and self.endless:
            self._live = self._follow()
        if self._live is not None:
            yield from self._live
        elif self.kind == "rows":
            yield Batch.of(self.toArrow())

    def close(self) -> None:
        """Let go of the version this answer is read at."""
        if self._pin is not None:
            self._pin.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
