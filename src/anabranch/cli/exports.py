"""arrow and parquet: the whole answer of one statement with its types, for other programs.

A file is written beside its name and gets it when it is complete, so that a failure leaves nothing half written. An
Arrow stream can go to stdout as well. What can be refused is refused by `prepare`, before anything is started.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from anabranch.cli.console import Console
from anabranch.cli.interface import Result
from anabranch.cli.ordering import UNORDERED, Order
from anabranch.cli.values import rebuild
from anabranch.errors import AnabranchError, QueryFailed, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.sql.syntax import Statement

#: The names of the outputs, and what people call them.
FORMATS = {"arrow": "Arrow", "parquet": "Parquet"}
STDOUT = "-"


@dataclass(frozen=True)
class Export:
    """A format, and where the answer goes."""

    format: str
    path: Path | None  # None is stdout
    overwrite: bool = False

    @property
    def called(self) -> str:
        return FORMATS[self.format]


def prepare(console: Console, output: str | None, to: str | None, overwrite: bool) -> Export | None:
    """What the options ask for; None if the answer is to be printed."""
    if output not in FORMATS:
        if to is not None:
            raise UsageError(
                "--to goes with -o arrow and -o parquet", hint="other outputs are printed; > FILE puts them into a file"
            )
        if overwrite:
            raise UsageError("--overwrite goes with --to FILE")
        return None
    if to is None or to == STDOUT:
        if output == "parquet":
            raise UsageError("a Parquet file needs a name", hint="give one: -o parquet --to FILE")
        if overwrite:
            raise UsageError("--overwrite goes with --to FILE")
        if console.out_is_terminal:
            raise UsageError(
                "an Arrow stream is nothing for a terminal",
                hint="send it on (| PROGRAM, > FILE), or name a file: --to FILE",
            )
        return Export(output, None)
    return Export(output, place(to, overwrite, hint="-o arrow writes to standard output: --to -"), overwrite)


def place(to: str, overwrite: bool, hint: str | None = None) -> Path:
    """Where a file of this name goes, if it can be written; what a link points to is written, not the link."""
    path = Path(os.path.realpath(to))
    if path.is_dir():
        raise UsageError(f"{to} is a folder", hint="name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{to} cannot be written: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise UsageError(f"{to} is no plain file", hint=hint)
    if path.exists() and not overwrite:
        raise _exists(to)
    return path


def write_text(path: Path, text: str, *, overwrite: bool) -> None:
    """A file of text, whole or not at all."""
    try:
        with _whole_file(path, overwrite) as file:
            file.write(text.encode())
    except OSError as error:
        raise AnabranchError(f"{path} cannot be written: {error.strerror or error}") from error


def _exists(named: object) -> UsageError:
    return UsageError(f"{named} exists already", hint="name another file, or replace it with --overwrite")


def check_single(export: Export, statements: Sequence[Statement]) -> None:
    """One file takes one answer."""
    from anabranch.sql.syntax import Describe, Explain, SelectStatement, Show

    answers = sum(isinstance(each, SelectStatement | Show | Describe | Explain) for each in statements)
    if answers == 0:
        raise UsageError(f"-o {export.format} writes the answer of a SELECT, and there is none")
    if answers > 1:
        raise UsageError(
            f"-o {export.format} writes one answer, and there would be {answers}",
            hint="let one SELECT give all rows, or write each in a call of its own",
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
                f"this answer goes on for ever; {export.called} is for one that ends",
                hint="-o stream-json and -o live-csv follow it; FROM name AS OF VERSION n reads what was there then",
            )
        rows = in_utc(result.toArrow())
        if result.kind == "changes":  # added up, and in no order
            rows = self._order.sort(rows)
        _check_names(export, rows.column_names)
        if export.path is None:
            self._console.flush()
            with _explained(export, "standard output"):
                _write(export, rows, self._console.binary)
            return
        with _explained(export, str(export.path)), _whole_file(export.path, export.overwrite) as file:
            _write(export, rows, file)
        count = "1 row" if rows.num_rows == 1 else f"{rows.num_rows:,} rows"
        self._console.message(f"{count} written to {export.path}")


def in_utc(rows: pa.Table) -> pa.Table:
    """The same moments, all with UTC as their zone, whatever the zone of the Spark session is."""
    import pyarrow as pa

    def leaf(kind: pa.DataType) -> pa.DataType:
        return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind

    fields = [field.with_type(rebuild(field.type, leaf)) for field in rows.schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def _check_names(export: Export, names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None and export.format == "parquet":
        raise QueryFailed(
            f"the answer has two columns {twice}, which a Parquet file cannot tell apart",
            hint="give one of them another name with AS",
        )


def _write(export: Export, rows: pa.Table, file: IO[bytes]) -> None:
    if export.format == "parquet":
        import pyarrow.parquet as pq

        from anabranch.ledger.tables import with_statistics

        pq.write_table(rows, file, write_statistics=with_statistics(rows.schema))
        return
    import pyarrow as pa

    # A file has an index at its end, for readers that jump; what reads a pipe cannot.
    make: Callable[..., Any] = pa.ipc.new_stream if export.path is None else pa.ipc.new_file
    with make(file, rows.schema) as writer:
        writer.write_table(rows)


@contextlib.contextmanager
def _explained(export: Export, where: str) -> Iterator[None]:
    """Say what went wrong in words; a reader that has gone is no error and stays what it is."""
    import pyarrow as pa

    try:
        yield
    except (BrokenPipeError, AnabranchError):
        raise
    except OSError as error:
        raise AnabranchError(f"{where} cannot be written: {error.strerror or error}") from error
    except pa.ArrowException as error:
        raise QueryFailed(f"the answer cannot be written as {export.called}: {error}") from error


@contextlib.contextmanager
def _whole_file(path: Path, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file to write, which is there under its name only when all went well."""
    from anabranch.ledger.files import TEMPORARY, give_name

    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not overwrite:
            try:
                give_name(temporary, path)
            except FileExistsError:
                raise _exists(path) from None  # made by somebody else in the meantime
        else:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
