"""Newlines within quotes, as RFC 4180 has them, and quotes that are never closed.

Most CSV files have no newline within quotes. Spark reads these line by line, in several pieces at once. One that has
any is read as a whole (`multiLine`), by one core, and a quote that is left open is closed by Spark. So the lines of a
file with quotes in it are looked at first: where each has an even number of them, no line goes on in the next.
"""

from __future__ import annotations

import csv
import mmap
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from anabranch.sources.parts import open_bytes

_CHUNK = 1 << 20
#: Compressed files that cannot be looked into here.
_CLOSED = (".zst", ".lz4", ".snappy", ".deflate", ".xz")


@dataclass(frozen=True)
class Dialect:
    """What a CSV file is written with. Without a quote, nothing is quoted."""

    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    comment: str | None = None

    @classmethod
    def of(cls, format: str, options: Mapping[str, Any]) -> Dialect:
        given = {name.lower(): str(value) for name, value in options.items()}
        separator = given.get("sep", given.get("delimiter", "\t" if format == "tsv" else ","))
        quote = given.get("quote", '"')
        return cls(separator, quote, given.get("escape", quote), given.get("comment"))

    def rows(self, lines: Iterator[str], *, strict: bool = False) -> Iterator[list[str]]:
        """The fields of records; `strict` raises csv.Error for a quote that is closed nowhere, or in the middle."""
        doubled = self.escape in (self.quote, "")
        return csv.reader(
            lines,
            delimiter=self.separator if len(self.separator) == 1 else ",",
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            doublequote=doubled,
            escapechar=None if doubled else self.escape,
            strict=strict,
        )

    def is_even(self, line: bytes) -> bool:
        """Whether as many quotes are opened as closed."""
        quote = self.quote.encode()
        escaped = 0 if self.escape == self.quote else line.count(self.escape.encode() + quote)
        return (line.count(quote) - escaped) % 2 == 0


@dataclass(frozen=True)
class Line:
    """A line of a part of a file: its number, where it starts in the part, and its bytes."""

    number: int
    start: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", errors="replace").rstrip("\r\n")


@dataclass(frozen=True)
class Layout:
    """Whether records go over lines, and the lines with a quote that is never closed."""

    multiline: bool = False
    unclosed: tuple[Line, ...] = ()


def layout_of(name: str, start: int, end: int, dialect: Dialect) -> Layout:
    """How the records between two places of a file lie."""
    if not dialect.quote:
        return Layout()
    if name.endswith(_CLOSED):
        return Layout(multiline=True)
    quote = dialect.quote.encode()
    plain = not name.endswith((".gz", ".bz2"))
    if plain and end > start:
        with open(name, "rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(quote, start, end) < 0:
                return Layout()
    size = end - start if plain else None
    with open_bytes(name) as file:
        file.seek(start)
        if _all_even(file, size, dialect):
            return Layout()
        file.seek(start)
        return _scan(_lines(file, size), dialect)


def _all_even(file: IO[bytes], size: int | None, dialect: Dialect) -> bool:
    quote, left = dialect.quote.encode(), size
    while chunk := file.read(_CHUNK if left is None else min(_CHUNK, left)):
        chunk += file.readline()
        left = None if left is None else max(0, left - len(chunk))
        if dialect.escape == dialect.quote:  # the quickest way to look at every line
            if any(line.count(quote) & 1 for line in chunk.split(b"\n")):
                return False
        elif not all(map(dialect.is_even, chunk.split(b"\n"))):
            return False
    return True


def _scan(lines: Iterator[Line], dialect: Dialect) -> Layout:
    """Go over records one by one. A quote that is left open makes its line bad, and no other."""
    again: deque[Line] = deque()
    record: list[Line] = []
    unclosed: list[Line] = []
    multiline = False

    def feed() -> Iterator[str]:
        while (line := again.popleft() if again else next(lines, None)) is not None:
            if not record and dialect.comment and line.content.startswith(dialect.comment.encode()):
                continue
            record.append(line)
            yield line.content.decode("latin-1")

    rows = dialect.rows(feed(), strict=True)
    while True:
        record.clear()
        try:
            next(rows)
            multiline = multiline or len(record) > 1
        except StopIteration:
            return Layout(multiline, tuple(unclosed))
        except csv.Error:
            # A quote in the middle of a field is taken as it is, if it ends with its line.
            if len(record) > 1 or not dialect.is_even(record[0].content):
                unclosed.append(record[0])
                again.extendleft(reversed(record[1:]))
            rows = dialect.rows(feed(), strict=True)


def _lines(file: IO[bytes], size: int | None) -> Iterator[Line]:
    place = 0
    for number, content in enumerate(file, start=1):
        if size is not None and place >= size:
            return
        yield Line(number, place, content)
        place += len(content)


#: Digits are all alike when long numbers are looked for.
ALIKE = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else byte for byte in range(256))


def has_long_number(name: str, digits: int) -> bool:
    """Whether so many digits stand side by side anywhere in a file."""
    wanted, before = b"0" * digits, b""
    if name.endswith(_CLOSED):
        return True
    with open_bytes(name) as file:
        while chunk := file.read(_CHUNK):
            if wanted in before + chunk.translate(ALIKE):
                return True
            before = chunk[-digits:].translate(ALIKE)
    return False
