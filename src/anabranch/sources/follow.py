"""One file followed as `tail -F` does: lines are rows as soon as they are ended, and rotation is understood.

The position says which file was read, by its inode, how far, and by a mark what was there. A file that was renamed is
found in its folder and read to its end before the next one; files of rotations in between are read in their order.
What is lost, because a file is gone or was cut off, is reported. Files that rotate do not stay: rows are read once.
"""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import parts
from anabranch.sources.base import BadRow, Stretch
from anabranch.sources.files import FilesSource
from anabranch.sources.parts import Part
from anabranch.sources.paths import COLUMNAR, COMPRESSED
from anabranch.sources.registry import Kind, Opening, Option
from anabranch.sources.row_groups import InGroups
from anabranch.sources.row_lines import InLines
from anabranch.sources.schemas import SchemaChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a run takes at the most, in bytes.
MOST = 64 << 20


@dataclass(frozen=True)
class _File:
    name: str
    inode: int
    size: int
    time: int


class FollowSource(FilesSource):
    """The lines of one file, and of those that had its name before."""

    endless = True
    _read: tuple[Any, Part | None] | None = None  # the last stretch, and the copy of its lines

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening.options, opening.spark, opening.fields, now=opening.now, scratch=opening.scratch)
        self.path = os.path.abspath(self.path.removeprefix("file://"))
        if os.path.isdir(self.path) or (any(c in self.path for c in "*?[") and not os.path.exists(self.path)):
            raise SourceError(f"one file is followed, and {self.path} is not one", hint="remove follow for a folder")
        if self.format in COLUMNAR or not self._appendable(self.path):
            raise SourceError(f"{self.path} is not lines of text, which can be followed")
        self.cheap = False

    # ---- which file

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        self.waits = False
        files = self._files()
        current = next((file for file in files if file.name == self.path), None)
        gaps: list[str] = []
        if position is None:
            return None if current is None else self._take(current, 0, max_rows, gaps, over=False)
        file = next((each for each in files if each.inode == position["inode"]), None)
        at = int(position["at"])
        if file is None:
            if current is None:
                return None
            gaps.append(f"the file that was read up to byte {at} is gone: what was written to it after that is lost")
        elif file.size < at or parts.mark_of(file.name, at) != position["mark"]:
            if file != current:
                gaps.append(f"{file.name} was changed after it was read up to byte {at}: what followed is lost")
            else:
                gaps.append(f"the file was cut off below byte {at}, which was read: what was there since may be lost")
                return self._take(file, 0, max_rows, gaps, over=False)
        else:
            following = self._following(files, file.time, file)
            still = abs(self._now() - file.time // 1000) >= self.settle
            over = file != current and bool(following) and still  # nobody writes to it any more
            found = self._take(file, at, max_rows, gaps, over=over)
            if found is not None or not over:
                self.waits = self.waits or (file != current and bool(following))
                return found
        following = self._following(files, int(position["time"]), file)
        return self._take(following[0], 0, max_rows, gaps, over=False) if following else None

    def _files(self) -> list[_File]:
        """The file, and others of its folder, one of which may be what it was."""
        found: list[_File] = []
        try:
            with os.scandir(os.path.dirname(self.path)) as entries:
                for entry in entries:
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode) and not entry.name.endswith(COMPRESSED):
                        found.append(_File(entry.path, status.st_ino, status.st_size, status.st_mtime_ns))
        except FileNotFoundError:
            return found
        return found

    def _following(self, files: list[_File], time: int, last: _File | None) -> list[_File]:
        """The files after one that was written at a time: of rotations in between, by their age, and the newest one."""
        rotated = re.compile(re.escape(self.path) + r"[._-]?\d[\d._T-]*$")
        between = [file for file in files if rotated.match(file.name) and file.time > time and file != last]
        current = [file for file in files if file.name == self.path and file != last]
        return [*sorted(between, key=lambda file: (file.time, file.name)), *current]

    # ---- lines

    def _take(self, file: _File, at: int, max_rows: int | None, gaps: list[str], *, over: bool) -> Stretch | None:
        """The next lines of a file; of one that is `over`, the last need not be ended."""
        limit = min(file.size, at + MOST)
        end = parts.last_line_end(file.name, at, limit, self.reader.quote)
        if over and limit == file.size:
            end = limit
        elif end == at and limit < file.size:
            raise SourceError(f"{file.name}: the line at byte {at} is longer than {MOST:,} bytes")
        whole = end
        if max_rows is not None:
            end = parts.line_end(file.name, at, end, max_rows + (at == 0), self.reader.quote)
        self.waits = end < whole
        if end == at and not gaps:
            return None
        captured = [self.path, file.inode, at, end]
        bad = [BadRow(self.path, None, reason, None) for reason in gaps]
        self._read = captured, self._copied(file.name, at, end, bad) if end > at else None
        mark = parts.mark_of(file.name, end)
        position = {"inode": file.inode, "at": end, "time": file.time, "mark": mark}
        return Stretch(position, captured, end - at, tuple(bad), self.files_of(captured))

    def _copied(self, name: str, start: int, end: int, bad: list[BadRow]) -> Part:
        """A copy of lines that is a file by itself: with the header, if there is one, and without unclosed quotes."""
        self._forget()
        self._copies = f"follow{uuid.uuid4().hex[:12]}"
        header, taken = b"", Part(name, end, 0, start)
        lines = self.reader.layout(taken).unclosed
        bad += [replace(row, source=self.path) for row in self.reader.unclosed(taken)]
        cut = [(line.start, line.start + len(line.content)) for line in lines]
        path = parts.copy_of(taken, self._scratch(), self._copies, cut)
        self.reader.forget_layouts()
        target = Path(path.removesuffix(name)) / self.path.lstrip("/")  # by the name that is followed
        if start and self.format in ("csv", "tsv") and self.reader.header(name) is not None:
            with open(name, "rb") as file:
                header = file.read(parts.line_end(name, 0, start, 1, self.reader.quote))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(header + Path(path).read_bytes())
        status = os.stat(target)
        return Part(str(target), status.st_size, status.st_mtime_ns, 0, parts.mark_of(str(target), status.st_size))

    def _path(self, part: Part) -> str:
        return part.name

    def _copy(self, captured: Any) -> Part | None:
        if self._read is None or self._read[0] != captured:
            raise SourceError(f"the lines of {self.path} are read once, and the stream does not keep its rows")
        return self._read[1]

    def schema_changes(self, captured: Any) -> list[SchemaChange]:
        """None: a log that is rotated keeps its columns, and those that a line lacks are NULL."""
        return []

    def files_of(self, captured: Any) -> tuple[str, ...]:
        path, _, start, _ = captured
        return (path if start == 0 else f"{path}#byte={start}",)

    def in_groups(self, captured: Any, columns: Collection[str], time: str | None) -> InGroups | InLines | None:
        copy = self._copy(captured)
        return None if copy is None else super().in_groups([copy.to_json()], columns, time)

    def read(self, captured: list[Any], *, checked: bool = False) -> DataFrame:
        copies = [copy for each in captured if (copy := self._copy(each)) is not None]
        return super().read([[copy.to_json() for copy in copies]], checked=checked)

    def verify(self, captured: list[Any]) -> None:
        """What was read is in a file of ours."""

    def committed(self, stretch: Stretch) -> None:
        self._forget()

    def _forget(self) -> None:
        if self._copies is not None:
            parts.remove_copies(self._scratch(), self._copies)
        self._copies, self._read = None, None


KINDS = (
    Kind(
        name="follow",
        doc="one file as tail -F has it: lines are rows when they are ended; files(path, follow => true) is the same",
        example="follow(path => 'app.log', format => 'text')",
        options=(
            Option(name="path", doc="a file of lines; it need not be there yet", required=True),
            Option(name="format", doc="csv, tsv, json or text; else the name tells"),
            Option(
                name="settle",
                type="duration",
                doc="a file that was renamed is over when it has not changed for so long; 2 seconds",
            ),
        ),
        stream=FollowSource,
        open_options=True,
        reads_once=True,
        live=True,
        abilities=("cut by rows",),
    ),
)
