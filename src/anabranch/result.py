"""The answer to one statement, as people hold it in their hands: rows, changes as they come, or a message.

What is shown of it never computes anything: a query that has not run yet says so.
"""

from __future__ import annotations

import contextlib
import html
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.engine.feed import Batch
from anabranch.engine.frames import fields_of, translate
from anabranch.engine.live import Following, Live
from anabranch.errors import UsageError
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How many rows are shown of a result, and how wide a table of them gets.
_PREVIEW_ROWS = 10
_PREVIEW_WIDTH = 120
_CELL_WIDTH = 200


class Result:
    """The answer to one statement.

    `kind` says which of three things it is:

    - "rows": a finite answer. Iterating gives its rows as dicts; `fetchall`, `fetchone`, `len`, `toArrow`, `toPandas`
      and `df` read it too. Where a source never ends, iterating follows the query instead, batch by batch.
    - "changes": a query or view that is followed. Iterating gives a `Batch` of changes after each run.
    - "done": a statement without rows; `message` says what it did.
    """

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
        explain: Callable[[Exception], Exception] = translate,
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
        self._fields = fields  # of the table or frame
        self._explain = explain  # what went wrong, in the words of the statement
        self._fetched = 0  # rows that fetchone has given
        self._followed = False  # whether somebody has read changes, which come once

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
        if self._fields or self._frame is None:
            return [field.name for field in self._fields]
        return list(self._frame.columns)

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
        """The answer as a pyarrow.Table. Changes are followed to their end, and added up."""
        if self._table is None and self._live is not None:
            if self._followed:
                raise UsageError("the changes of this result have been read already", hint="run the statement again")
            self._followed = True
            self._table = self._live.final()
        if self._table is None:
            try:
                self._table = self._make_table() if self._make_table is not None else None
                if self._table is None:
                    self._table = self.df.toArrow()
            except Exception as error:
                raise self._explain(error) from error
            finally:
                self.close()
        return self._table

    def toPandas(self) -> Any:
        """The answer as a pandas.DataFrame."""
        return self.toArrow().to_pandas()

    def fetchall(self) -> list[dict[str, Any]]:
        """All rows of the answer, as dicts by column. A statement without rows has none."""
        return list(self._rows(0))

    def fetchone(self) -> dict[str, Any] | None:
        """The next row as a dict; None when all of them have been given."""
        row = next(self._rows(self._fetched), None)
        self._fetched += row is not None
        return row

    def batches(self) -> Iterator[Batch]:
        """Changes, run by run. A finite answer is one batch of insertions."""
        if self._live is None and self._follow is not None and self.endless:
            self._live = self._follow()
        if self._live is not None:
            self._followed = True
            yield from self._live
        elif self.kind == "rows":
            yield Batch.of(self.toArrow())

    def __iter__(self) -> Iterator[Any]:
        """The rows of a finite answer as dicts; the batches of changes of what is followed or never ends."""
        return self.batches() if self._live is not None or self.endless else self._rows(0)

    def __len__(self) -> int:
        """How many rows a finite answer has."""
        if self._live is not None or self.endless:
            # Not an error of ours: this is how list() is told that there is no length to ask for.
            raise TypeError("a result that is followed has no length; count the rows of fetchall() or of each batch")
        return 0 if self.kind == "done" else int(self.toArrow().num_rows)

    def __bool__(self) -> bool:
        """Always true: asking whether there is a result must not run a query."""
        return True

    def _rows(self, start: int) -> Iterator[dict[str, Any]]:
        if self.kind == "done":
            return
        if self._live is not None and self.endless:
            raise UsageError(
                "this result never ends, so it has no list of rows", hint="iterate over it: each batch has changes"
            )
        table = self.toArrow()
        twice = [name for name, count in Counter(table.column_names).items() if count > 1]
        if twice:
            raise UsageError(
                f"several columns are called {twice[0]}, and a dict holds one",
                hint="give them names of their own with AS, or read the columns of toArrow()",
            )
        for batch in table.slice(start).to_batches(max_chunksize=1_000):
            yield from batch.to_pylist(maps_as_pydicts="strict")

    # ---- how it is shown

    def __repr__(self) -> str:
        shown = self._preview()
        if shown is None:
            return f"<Result: {self._summary()}>"
        from anabranch.cli import tables
        from anabranch.cli.values import column_texts, is_number

        texts = [list(column_texts(column)) for column in shown.columns]
        right = [is_number(field.type) for field in shown.schema]
        lines = tables.lines(self.columns, texts, right, _PREVIEW_WIDTH)
        return "\n".join([f"<Result: {self._summary()}>", *lines, *self._more()])

    def _repr_html_(self) -> str:
        shown = self._preview()
        summary = html.escape(f"Result: {self._summary()}")
        if shown is None:
            return f"<p>{summary}</p>"
        from anabranch.cli import tables
        from anabranch.cli.values import NULL, column_texts

        def row(tag: str, cells: Sequence[str | None]) -> str:
            texts = (NULL if cell is None else tables.cut(tables.clean(cell), _CELL_WIDTH) for cell in cells)
            return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"

        cells = zip(*(column_texts(column) for column in shown.columns), strict=True)
        body = "".join(row("td", each) for each in cells)
        more = "".join(f"<p>{html.escape(line)}</p>" for line in self._more())
        return f"<table><thead>{row('th', self.columns)}</thead><tbody>{body}</tbody></table>{more}<p>{summary}</p>"

    def _preview(self) -> Any:
        """The first rows, if they are there and have columns."""
        there = self._table is not None and self._table.num_columns > 0
        return self._table.slice(0, _PREVIEW_ROWS) if there else None

    def _more(self) -> list[str]:
        more = self._table.num_rows - _PREVIEW_ROWS
        return [f"... and {more:,} more row{'' if more == 1 else 's'}"] if more > 0 else []

    def _summary(self) -> str:
        from anabranch.cli.tables import clean

        if self.kind == "done":
            return clean(self.message or "done")
        named = ", ".join(clean(name) for name in self.columns) or "no columns"
        if self._live is not None and self._table is None:
            return f"changes of ({named}){', without end' if self.endless else ''}; iterate over it for batches"
        if self._table is None:
            return f"({named}), rows not computed yet; fetchall() computes them"
        rows = self._table.num_rows
        return f"({named}), {rows:,} row{'' if rows == 1 else 's'}"

    def close(self) -> None:
        """Let go of the version this answer is read at."""
        if self._pin is not None:
            self._pin.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
