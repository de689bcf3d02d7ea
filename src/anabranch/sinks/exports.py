"""One answer as a file: Arrow, Parquet, CSV or JSON lines, for the command line and for COPY ... TO.

A file is written beside its name and gets it when it is complete, so that a failure leaves nothing half written.
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

from anabranch.errors import AnabranchError, QueryFailed, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.types import Field

#: The formats, and what people call them.
FORMATS = {"arrow": "Arrow", "parquet": "Parquet", "csv": "CSV", "json": "JSON"}


@dataclass(frozen=True)
class Export:
    """A format, and where the answer goes."""

    format: str
    path: Path | None  # None is stdout
    overwrite: bool = False
    header: bool = True  # of CSV
    separator: str = ","

    @property
    def called(self) -> str:
        return FORMATS[self.format]


def place(to: str, overwrite: bool, *, plain: str | None = None, replace: str = "--overwrite") -> Path:
    """Where a file of this name goes, if it can be written; what a link points to is written, not the link.

    `plain` is the hint for what is no plain file, `replace` the word that lets a file be replaced.
    """
    path = Path(os.path.realpath(to))
    if path.is_dir():
        raise UsageError(f"{to} is a folder", hint="name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{to} cannot be written: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise UsageError(f"{to} is no plain file", hint=plain)
    if path.exists() and not overwrite:
        raise _exists(to, replace)
    return path


def _exists(named: object, replace: str) -> UsageError:
    return UsageError(f"{named} already exists", hint=f"name another file, or replace it with {replace}")


def write_text(path: Path, text: str, *, overwrite: bool) -> None:
    """A file of text, whole or not at all."""
    try:
        with whole_file(path, overwrite) as file:
            file.write(text.encode())
    except OSError as error:
        raise AnabranchError(f"{path} cannot be written: {error.strerror or error}") from error


def write_file(export: Export, rows: pa.Table, fields: Sequence[Field] = ()) -> str:
    """Write an answer to its file; tells how many rows went where."""
    from anabranch.sinks.formats import refuse_types

    assert export.path is not None
    rows = in_utc(rows)
    check_names(export, rows.column_names)
    refuse_types(export.format, fields)
    with explained(export, str(export.path)), whole_file(export.path, export.overwrite) as file:
        write(export, rows, file)
    count = "1 row" if rows.num_rows == 1 else f"{rows.num_rows:,} rows"
    return f"{count} written to {export.path}"


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


def rebuild(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with each of the plain types in it replaced by what `leaf` gives for it."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(rebuild(field.type, leaf)) for field in kind])
    if types.is_map(kind):
        return pa.map_(rebuild(kind.key_type, leaf), kind.item_field.with_type(rebuild(kind.item_type, leaf)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(rebuild(kind.value_type, leaf)))
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(rebuild(kind.value_type, leaf)))
    return leaf(kind)


def check_names(export: Export, names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None and export.format in ("parquet", "json"):
        raise QueryFailed(
            f"the answer has two columns {twice}, which a {export.called} file cannot tell apart",
            hint="give one of them another name with AS",
        )


def write(export: Export, rows: pa.Table, file: IO[bytes]) -> None:
    if export.format == "arrow":
        import pyarrow as pa

        # A file has an index at its end, for readers that jump; what reads a pipe cannot.
        make: Callable[..., Any] = pa.ipc.new_stream if export.path is None else pa.ipc.new_file
        with make(file, rows.schema) as writer:
            writer.write_table(rows)
        return
    from anabranch.sinks.formats import encode

    file.write(encode(rows, export.format, header=export.header, separator=export.separator))


@contextlib.contextmanager
def explained(export: Export, where: str) -> Iterator[None]:
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
def whole_file(path: Path, overwrite: bool) -> Iterator[IO[bytes]]:
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
                raise _exists(
                    path, "--overwrite, or OVERWRITE in COPY"
                ) from None  # made by somebody else in the meantime
        else:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
