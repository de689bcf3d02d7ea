"""What a sink writes to: a folder of its own, and a position that is kept with the rows in it.

A target takes the answer of a view at a version, then the changes of later versions, one after the other. Its position
is the last version that is wholly there, and it is read from what was written, never from a note beside it that could
say something else. So a version that a crash cut off is written again, and one that was written is not.

It knows neither the ledger's records nor Spark: rows come as Arrow tables with a signed count, `_diff`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from anabranch.errors import AnabranchError, SinkError
from anabranch.ledger import files
from anabranch.types import Field

#: Says whose folder it is. Spark, Delta and Arrow pass over names that start with an underscore.
MARKER = "_anabranch.json"
#: What a change has besides the columns of the view.
CHANGE_COLUMNS = ("_diff", "_version")


class Target(Protocol):
    """The place that one sink writes to."""

    #: Whether it is written as a whole each time, from the answer at a version, and needs no changes.
    whole: bool

    def check(self, fields: Sequence[Field]) -> None:
        """Raise SinkError if a new sink of these columns cannot be here; makes the folder."""
        ...

    def position(self) -> int | None:
        """The last version that is here; None before the first. Changes nothing."""
        ...

    def tidy(self) -> None:
        """Take away what a process that died left unfinished."""
        ...

    def start(self, version: int, rows: Any) -> None:
        """Write the answer at a version."""
        ...

    def apply(self, version: int, changes: Any) -> None:
        """Write the changes of a version."""
        ...


@dataclass(frozen=True)
class Owner:
    """The sink of a home that a folder belongs to."""

    home: str
    sink: str
    folder: Path = Path()  # in the home, for what a sink has to note where nobody can be asked

    @property
    def application(self) -> str:
        """Its name in the transactions of a Delta table."""
        return f"anabranch-{self.home}-{self.sink}"

    def to_json(self) -> dict[str, Any]:
        return {"home": self.home, "sink": self.sink}


class Folder:
    """A folder that belongs to one sink."""

    def __init__(self, path: Path, owner: Owner) -> None:
        self.path = path
        self.owner = owner

    def claim(self) -> None:
        """Make the folder, for a new sink; one that holds something is not taken."""
        if self.path.exists() and not self.path.is_dir():
            raise SinkError(f"{self.path} is a file, and a sink writes into a folder", hint="give the path of a folder")
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            found = self._names()
        if found:
            raise SinkError(
                f"the folder {self.path} holds something already: {found[0]}",
                hint="give an empty folder, or one that does not exist yet",
            )

    def marked(self) -> bool:
        """Whether this sink has written here; False for an empty folder. Anything else is an error."""
        try:
            text = (self.path / MARKER).read_bytes()
        except FileNotFoundError:
            if not self.path.is_dir():
                raise SinkError(
                    f"the folder {self.path} is gone",
                    hint="restore it; or create an empty one, and the whole answer is written there first",
                ) from None
            found = self._names()
            if not found:
                return False
            raise SinkError(
                f"the folder {self.path} holds something that this sink did not write: {found[0]}",
                hint="move it away, or drop the sink",
            ) from None
        except OSError as error:
            raise _unreadable(self.path, error) from error
        try:
            marker = json.loads(text)
        except ValueError:
            marker = None
        if marker != self.owner.to_json():
            raise SinkError(
                f"the folder {self.path} belongs to another sink, according to {MARKER} in it",
                hint="give each sink a folder of its own",
            )
        return True

    def mark(self) -> None:
        if not self.marked():
            files.replace(self.path / MARKER, json.dumps(self.owner.to_json()).encode() + b"\n")

    def must_be_marked(self) -> None:
        """Changes go where the answer went before them."""
        if not self.marked():
            raise SinkError(
                f"the folder {self.path} is empty, and was not before", hint="the whole answer is written there next"
            )

    def tidy(self) -> None:
        """Delete unfinished files; they have names that nothing else has."""
        if self.marked():
            for path in self.path.glob(f"{files.TEMPORARY}*"):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.path) if not name.startswith(files.TEMPORARY))


def with_version(changes: Any, version: int) -> Any:
    """Changes with the version that they are of."""
    import pyarrow as pa

    return changes.append_column("_version", pa.array([version] * changes.num_rows, pa.int64()))


def repeated(rows: Any) -> Any:
    """Each row as often as its count says, without the count."""
    import pyarrow as pa

    counts = rows.column("_diff").to_pylist()
    plain = rows.drop_columns(["_diff"])
    if all(count == 1 for count in counts):
        return plain
    return plain.take(pa.array([at for at, count in enumerate(counts) for _ in range(count)], pa.int64()))


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Say what the disk refused, and what to do."""
    try:
        yield
    except AnabranchError:
        raise
    except BaseException as error:
        # delta-rs has panics that are no Exception; Ctrl-C is not one of them.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _unreadable(folder, error) from error


def _unreadable(folder: Path, error: BaseException) -> SinkError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if files.is_disk_full(error):
        return SinkError(f"the disk of {folder} is full", hint="make space; what is missing is written then")
    if isinstance(error, PermissionError):
        return SinkError(f"no permission to write to {folder} ({reason})", hint="give this user write access to it")
    return SinkError(f"{folder} could not be written: {reason}", hint="check the folder and its disk")
