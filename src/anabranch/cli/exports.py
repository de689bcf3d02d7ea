"""arrow and parquet: the whole answer of one statement with its types, for other programs.

An Arrow stream can go to stdout as well. `prepare` refuses wrong options before Spark starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.cli.console import Console
from anabranch.cli.interface import Result
from anabranch.cli.ordering import UNORDERED, Order
from anabranch.errors import QueryFailed, UsageError
from anabranch.sinks.exports import Export, check_names, explained, in_utc, place, write, write_file

if TYPE_CHECKING:
    from anabranch.sql.syntax import Statement

#: The outputs that are files.
OUTPUTS = ("arrow", "parquet")
STDOUT = "-"


def prepare(console: Console, output: str | None, to: str | None, overwrite: bool) -> Export | None:
    """The export of the options; None if the answer is printed."""
    if output not in OUTPUTS:
        if to is not None:
            raise UsageError(
                "--to needs -o arrow or -o parquet", hint="other outputs are printed; > FILE puts them into a file"
            )
        if overwrite:
            raise UsageError("--overwrite needs --to FILE")
        return None
    if to is None or to == STDOUT:
        if output == "parquet":
            raise UsageError("a Parquet file needs a name", hint="give one: -o parquet --to FILE")
        if overwrite:
            raise UsageError("--overwrite needs --to FILE")
        if console.out_is_terminal:
            raise UsageError(
                "an Arrow stream cannot be printed to a terminal",
                hint="pipe or redirect it (| PROGRAM, > FILE), or name a file: --to FILE",
            )
        return Export(output, None)
    return Export(output, place(to, overwrite, plain="-o arrow writes to standard output: --to -"), overwrite)


def check_single(export: Export, statements: Sequence[Statement]) -> None:
    """Refuse anything but one answer for a file."""
    from anabranch.sql.syntax import Describe, Explain, SelectStatement, Show

    answers = sum(isinstance(each, SelectStatement | Show | Describe | Explain) for each in statements)
    if answers == 0:
        raise UsageError(f"-o {export.format} writes the answer of a SELECT, and there is none")
    if answers > 1:
        raise UsageError(
            f"-o {export.format} writes one answer, and there would be {answers}",
            hint="combine them into one SELECT, or run a command for each",
        )


class ExportOutput:
    """Writes one answer."""

    def __init__(self, console: Console, export: Export, order: Order = UNORDERED) -> None:
        self._console = console
        self._export = export
        self._order = order

    def show(self, result: Result) -> None:
        export = self._export
        if result.endless:
            raise QueryFailed(
                f"this query never ends, and {export.called} holds one finished answer",
                hint="-o stream-json and -o live-csv follow it; FROM name AS OF VERSION n reads that version",
            )
        rows = result.toArrow()
        if result.kind == "changes":  # the net result, without an order
            rows = self._order.sort(rows)
        if export.path is not None:
            self._console.message(write_file(export, rows))
            return
        check_names(export, rows.column_names)
        self._console.flush()
        with explained(export, "standard output"):
            write(export, in_utc(rows), self._console.binary)
