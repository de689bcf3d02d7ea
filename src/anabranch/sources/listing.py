"""Which files match a path, and which of them may have something new: a folder of files that were read costs little.

A look is quick or complete. A quick one asks a folder for its names, if it changed, and looks at the files that are not
settled: a settled one was read as far as it goes. Only a complete look finds what was appended to a settled file, for
that changes no folder. Whoever is to say that there is nothing more needs a complete one.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

#: The time of a folder may stay the same for so many seconds although it changes: clocks of file systems are coarse.
COARSE = 2.5
#: A complete look is made at least this often, in seconds, and costs at most one part in so many of the time.
OFTEN, SHARE = 10.0, 5
_HIDDEN, _UNFINISHED = (".", "_"), (".tmp", ".crc", "._COPYING_")


class File(NamedTuple):
    """A file as it was at a look; the time of its last change in nanoseconds."""

    name: str
    size: int
    time: int


@dataclass
class _Folder:
    """What is known of a folder: the files in it that are settled, as they were, and the names of the others."""

    time: int = -1
    since: float = 0.0  # when that time was first seen
    listed: float = 0.0
    open: set[str] = field(default_factory=set)
    settled: dict[str, tuple[int, int]] = field(default_factory=dict)


class Listing:
    """The files that match a path. Hidden and unfinished ones are left out."""

    def __init__(self, path: str, elapsed: Callable[[], float]) -> None:
        self.path = path.removeprefix("file://")
        self._elapsed = elapsed
        self._folders: dict[str, _Folder] = {}
        self._complete: tuple[float, float] | None = None  # when the last complete look was over, and what it took

    def is_due(self) -> bool:
        """Whether it is time for a complete look, whatever a quick one finds."""
        return self._complete is None or self._elapsed() - self._complete[0] >= OFTEN

    def may_look(self) -> bool:
        """Whether a complete look would not be one too many."""
        return self._complete is None or self._elapsed() - self._complete[0] >= self._complete[1] * (SHARE - 1)

    def look(self, *, complete: bool) -> list[File]:
        """Files that may have something new, oldest first."""
        begin = self._elapsed()
        found: list[File] = []
        for place in self._places():
            folder = self._folders[place]
            for name in folder.open:
                _add(found, place, name, _status(os.path.join(place, name)))
            if complete:
                found += _changed(place, folder)
        if complete:
            over = self._elapsed()
            self._complete = over, over - begin
        return sorted(found, key=lambda file: (file.time, file.name))

    def settle(self, file: File) -> None:
        """A file was read as far as it goes: only a complete look looks at it again."""
        place, name = os.path.split(file.name)
        folder = self._folders[place]
        folder.open.discard(name)
        folder.settled[name] = file.size, file.time

    def _places(self) -> list[str]:
        """The folders with files that match, each with the names that are open in it."""
        if os.path.isdir(self.path):
            return self._listed([self.path], None)
        if os.path.exists(self.path):
            return self._named([self.path])
        head, tail = os.path.split(self.path)
        if "**" in self.path or not glob.has_magic(tail):
            return self._named(glob.glob(self.path, recursive=True))
        return self._listed(glob.glob(head) if glob.has_magic(head) else [head], re.compile(fnmatch.translate(tail)))

    def _named(self, paths: Iterable[str]) -> list[str]:
        places: dict[str, set[str]] = {}
        for place, name in map(os.path.split, map(os.path.abspath, paths)):
            if is_shown(name):
                places.setdefault(place, set()).add(name)
        for place, names in places.items():
            folder = self._folders.setdefault(place, _Folder())
            folder.open = names - folder.settled.keys()
        return list(places)

    def _listed(self, paths: Iterable[str], pattern: re.Pattern[str] | None) -> list[str]:
        places = list(map(os.path.abspath, paths))
        for place in places:
            folder = self._folders.setdefault(place, _Folder())
            try:
                time, now = os.stat(place).st_mtime_ns, self._elapsed()
                if time != folder.time:
                    folder.time, folder.since = time, now
                elif folder.listed - folder.since >= COARSE:
                    continue
                names = set(os.listdir(place)) - folder.settled.keys()
                folder.open = {name for name in names if is_shown(name) and (not pattern or pattern.match(name))}
                folder.listed = now
            except (FileNotFoundError, NotADirectoryError):
                folder.time, folder.open = -1, set()
        return places


def _changed(place: str, folder: _Folder) -> list[File]:
    """The settled files of a folder that are not as they were; they are settled no more."""
    found: list[File] = []
    try:
        handle = os.open(place, os.O_RDONLY)
    except FileNotFoundError:
        return found
    try:
        for name, known in list(folder.settled.items()):
            try:
                status = os.stat(name, dir_fd=handle)
            except FileNotFoundError:
                del folder.settled[name]
                continue
            if (status.st_size, status.st_mtime_ns) != known:
                del folder.settled[name]
                folder.open.add(name)
                _add(found, place, name, status)
    finally:
        os.close(handle)
    return found


def is_shown(name: str) -> bool:
    return not name.startswith(_HIDDEN) and not name.endswith(_UNFINISHED)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _add(found: list[File], place: str, name: str, status: os.stat_result | None) -> None:
    if status is not None and stat.S_ISREG(status.st_mode):
        found.append(File(os.path.join(place, name), status.st_size, status.st_mtime_ns))
