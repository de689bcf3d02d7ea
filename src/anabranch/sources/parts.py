"""Parts of files: which bytes of a file a run takes, whether the file is whole, and whether they are still there.

A file can be appended to after it was read. So a run names the bytes it took, with a mark of what they were: a later
part is read by itself, and reading the first part again gives the same rows. Nothing here knows what is in the bytes,
except that text files have lines and that a newline within quotes ends none.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import re
import shutil
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast
from urllib.parse import unquote

from anabranch.sources import row_groups
from anabranch.sources.base import SourceChanged

#: So many bytes at the start of a file and before the end of a part make its mark.
SAMPLE = 64 << 10
_CHUNK = 1 << 20
_COPIES = "anabranch-parts"
_COPY = re.compile(rf"/{_COPIES}/\w+/(\d+)-\d+(/.*)$")
_LATER = re.compile(r"#(?:byte|offset)=(\d+)$")


@dataclass(frozen=True)
class Part:
    """The bytes of a file from `start` to `end`, and when the file was last changed."""

    name: str
    end: int
    time: int
    start: int = 0
    mark: str | None = None  # None: written by a version that kept none

    @classmethod
    def of(cls, written: Any) -> Part:
        return cls(*written)

    def to_json(self) -> list[Any]:
        return [self.name, self.end, self.time, self.start, self.mark]

    @property
    def origin(self) -> str:
        """What tells the part apart from all others."""
        return self.name if self.start == 0 else f"{self.name}#byte={self.start}"

    @property
    def size(self) -> int:
        return self.end - self.start

    def is_there(self) -> bool:
        """Whether the file still begins with what was read."""
        return self.mark is not None and self.mark == mark_of(self.name, self.end)

    def is_all_marked(self) -> bool:
        """Whether no byte can have changed without a change of the mark."""
        return self.end <= 2 * SAMPLE


def mark_of(name: str, end: int) -> str | None:
    """A mark of the bytes of a file before `end`, from the first and the last of them; None if it is shorter."""
    found = hashlib.blake2b(str(end).encode(), digest_size=12)
    with open(name, "rb") as file:
        head = file.read(min(SAMPLE, end))
        file.seek(max(len(head), end - SAMPLE))
        tail = file.read(end - file.tell())
        if file.tell() < end:
            return None
    found.update(head)
    found.update(tail)
    return found.hexdigest()


def path_of(origin: str) -> str:
    """The part of a file that Spark names by a URL: that of the file itself, or of a copy of the part.

    >>> path_of("file:///in/a%20b.csv"), path_of("file:/tmp/anabranch-parts/run/120-300/in/a.csv")
    ('/in/a b.csv', '/in/a.csv#byte=120')
    """
    path = unquote(re.sub(r"^file:/+", "/", origin))
    copy = _COPY.search(path)
    if copy is None:
        return path
    return copy.group(2) if copy.group(1) == "0" else f"{copy.group(2)}#byte={copy.group(1)}"


def file_and_start(origin: str) -> tuple[str, int]:
    """The file that a part is of, or the partition of a topic, and where the part or the row starts.

    >>> file_and_start("/in/a.csv#byte=120")
    ('/in/a.csv', 120)
    """
    path = path_of(origin)
    later = _LATER.search(path)
    return (path, 0) if later is None else (path[: later.start()], int(later.group(1)))


def copy_of(
    part: Part, folder: Path, purpose: str, without: Sequence[tuple[int, int]] = (), *, groups: bool = False
) -> str:
    """A copy of a part in a folder, without some stretches of it; the path says what it is a copy of.

    With `groups`, the part is one of groups of rows.
    """
    path = folder / _COPIES / purpose / f"{part.start}-{part.end}" / part.name.lstrip("/")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.tmp")
        if groups:
            row_groups.copy(part.name, part.start, part.end, str(unfinished))
            os.replace(unfinished, path)
            return str(path)
        whole = part.size if not part.name.endswith((".gz", ".bz2")) else sys.maxsize
        with open_bytes(part.name) as source, open_bytes(str(unfinished), "wb", like=part.name) as target:
            place = 0
            for start, end in (*without, (whole, whole)):
                source.seek(part.start + place)
                while place < start and (chunk := source.read(min(start - place, _CHUNK))):
                    target.write(chunk)
                    place += len(chunk)
                if place < start < sys.maxsize:
                    raise SourceChanged(f"the file {part.name} became shorter while it was read")
                place = end
        os.replace(unfinished, path)
    return str(path)


def open_bytes(name: str, mode: Literal["rb", "wb"] = "rb", *, like: str | None = None) -> IO[bytes]:
    """The bytes in a file, out of their compression if its name, or that of the one it is `like`, says so."""
    ending = like or name
    if ending.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(name, mode))
    if ending.endswith(".zst") and mode == "rb":
        return open_compressed(open(name, mode), ending)
    return cast("IO[bytes]", bz2.open(name, mode)) if ending.endswith(".bz2") else open(name, mode)


def open_compressed(content: IO[bytes], name: str) -> IO[bytes]:
    """Bytes out of their compression, if a name says so; to be read from the beginning to the end."""
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=content))
    if name.endswith(".bz2"):
        return cast("IO[bytes]", bz2.BZ2File(content))
    if name.endswith(".zst"):
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(content, "r"), "zstd"))
    return content


def remove_copies(folder: Path, purpose: str) -> None:
    shutil.rmtree(folder / _COPIES / purpose, ignore_errors=True)


def is_whole_parquet(name: str, size: int) -> bool:
    """Whether a file ends with the footer of a Parquet file."""
    if size < 12:
        return False
    with open(name, "rb") as file:
        file.seek(size - 8)
        length, magic = struct.unpack("<I4s", file.read(8))
    return magic in (b"PAR1", b"PARE") and length + 12 <= size


def is_whole_orc(name: str, size: int) -> bool:
    """Whether a file ends with the postscript of an ORC file, and the length of it."""
    if size < 8:
        return False
    with open(name, "rb") as file:
        file.seek(size - 4)
        return file.read(3) == b"ORC"


def ends_a_line(name: str, end: int) -> bool:
    if end == 0:
        return True
    with open(name, "rb") as file:
        file.seek(end - 1)
        return file.read(1) in (b"\n", b"\r")


def last_line_end(name: str, start: int, end: int, quote: bytes | None) -> int:
    """The end of the last whole line between two places, one of which begins a line; `start` if there is none.

    Between quotes a newline does not end a line; a doubled quote closes and opens again, which comes to the same.
    """
    with open(name, "rb") as file:
        if quote is None:
            return _last_newline(file, start, end)
        file.seek(start)
        place, found, inside = start, start, False
        while place < end and (chunk := file.read(min(_CHUNK, end - place))):
            for number, piece in enumerate(chunk.split(quote)):
                if number:
                    place, inside = place + 1, not inside
                if not inside and (newline := piece.rfind(b"\n")) >= 0:
                    found = place + newline + 1
                place += len(piece)
        return found


def line_end(name: str, start: int, end: int, count: int, quote: bytes | None) -> int:
    """The end of so many lines from `start` on, where a line begins; `end` if there are no more than that."""
    with open(name, "rb") as file:
        file.seek(start)
        place, inside = start, False
        while place < end and (chunk := file.read(min(_CHUNK, end - place))):
            for number, piece in enumerate([chunk] if quote is None else chunk.split(quote)):
                if number:
                    place, inside = place + 1, not inside
                lines = 0 if inside else piece.count(b"\n")
                if lines >= count:
                    newline = -1
                    for _ in range(count):
                        newline = piece.index(b"\n", newline + 1)
                    return place + newline + 1
                count -= lines
                place += len(piece)
        return end


def _last_newline(file: IO[bytes], start: int, end: int) -> int:
    while end > start:
        low = max(start, end - _CHUNK)
        file.seek(low)
        newline = file.read(end - low).rfind(b"\n")
        if newline >= 0:
            return low + newline + 1
        end = low
    return start


def count_lines(name: str, start: int, end: int) -> int:
    """The lines between two places of a file; the last need not be ended."""
    with open(name, "rb") as file:
        file.seek(start)
        left, lines, last = end - start, 0, b"\n"
        while left and (chunk := file.read(min(left, _CHUNK))):
            lines, left, last = lines + chunk.count(b"\n"), left - len(chunk), chunk[-1:]
    return lines + (last != b"\n")
