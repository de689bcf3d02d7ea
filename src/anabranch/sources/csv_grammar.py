"""The types of CSV columns without Spark, where they are certain to be those that Spark's inference finds.

The cells of a sample say what each column seems to hold. Then the whole file is matched with one regular expression
that is made of the columns: it says that every record is a line with as many fields, quoted as in RFC 4180, and that
every cell is written so that its type is beyond doubt. What does not match is declined, and is Spark's to read.
`tests/sources/test_csv_grammar.py` asks Spark for the types of the same cells.
"""

from __future__ import annotations

import csv
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from anabranch.sources.inference import EXACT_DIGITS
from anabranch.sources.quotes import Dialect

#: Bytes that are looked at to begin with, and that one thread matches at once.
SAMPLE, CHUNK = 64 << 10, 1 << 20
#: How often columns may turn out to hold something else than was seen of them so far.
ATTEMPTS = 4

INT, BIGINT, LONG, DOUBLE, EXPONENT = "int", "bigint", "long", "double", "exponent"
DATE, TIMESTAMP, BOOLEAN, TEXT, EMPTY, OTHER = "date", "timestamp", "boolean", "text", "empty", "other"

_INT = r"[+-]?(?:[0-9]{1,9}|1[0-9]{9})"
_BIGINT = r"[+-]?[0-9]{1,18}"
#: A DOUBLE by itself; and what is one beside it, but for whole numbers that a DOUBLE does not hold.
_FRACTION = r"[+-]?[0-9]{0,15}\.[0-9]{1,30}"
_EXPONENT = r"[+-]?(?:[0-9]{1,15}|[0-9]{0,15}\.[0-9]{1,17})[eE][+-]?[0-9]{1,2}"
_DOUBLE = rf"(?:[+-]?[0-9]{{1,15}}|{_FRACTION}|{_EXPONENT})"
_DATE = (
    r"[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))|[12][0-9](?:0[48]|[2468][048]|[13579][26])-02-29"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?Z?)?"
_TIMESTAMP = rf"(?:{_DATE})[ T]{_TIME}"
_BOOLEAN = r"[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]"
CELLS = {
    INT: _INT, BIGINT: _BIGINT, DOUBLE: _DOUBLE, DATE: _DATE, TIMESTAMP: _TIMESTAMP, BOOLEAN: _BOOLEAN, EMPTY: "",
}  # fmt: skip
#: Kinds that are one column together, and its kind.
_TOGETHER = {
    frozenset({INT}): INT, frozenset({DATE}): DATE, frozenset({TIMESTAMP}): TIMESTAMP, frozenset({BOOLEAN}): BOOLEAN,
    frozenset(): EMPTY,
}  # fmt: skip
_WORDS = ("true", "false", "nan", "inf", "infinity")


@lru_cache(maxsize=1 << 16)
def kind_of_cell(cell: str) -> str:
    """What a cell is beyond doubt; OTHER where only Spark knows.

    >>> [kind_of_cell(cell) for cell in ("007", "3000000000", ".5", "2024-02-29", "T5", "a", "")]
    ['int', 'bigint', 'double', 'date', 'other', 'text', 'empty']
    """
    if not cell:
        return EMPTY
    if re.fullmatch(_BIGINT, cell, re.ASCII):
        number = int(cell)
        return INT if -(1 << 31) <= number < 1 << 31 else BIGINT if abs(number) < 10**EXACT_DIGITS else LONG
    for pattern, kind in ((_FRACTION, DOUBLE), (_EXPONENT, EXPONENT), (_TIMESTAMP, TIMESTAMP), (_BOOLEAN, BOOLEAN)):
        if re.fullmatch(pattern, cell, re.ASCII):
            return kind
    if re.fullmatch(_DATE, cell, re.ASCII):
        return DATE if _is_date(cell) else OTHER
    return TEXT if _is_text(cell) else OTHER


def _is_date(cell: str) -> bool:
    try:
        date.fromisoformat(cell)
    except ValueError:
        return False
    return True


def _is_text(cell: str) -> bool:
    """Whether a cell cannot be anything else: it starts with a letter, or with what no number or time starts with."""
    if cell[0].isalpha():
        return cell.lower() not in _WORDS and not re.match("T[0-9]", cell, re.ASCII)
    return cell[0] in "#/@$*<[{(&%!?'~^|=;_" or re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9.]+", cell, re.ASCII) is not None


def column_kind(seen: set[str]) -> str | None:
    """What a column of such cells is; None if it is not certain. One text among them makes all of them texts."""
    if TEXT in seen:
        return TEXT
    found = seen - {EMPTY}
    if DOUBLE in found and found <= {INT, BIGINT, DOUBLE, EXPONENT}:
        return DOUBLE
    if found & {BIGINT, LONG} and found <= {INT, BIGINT, LONG}:
        return BIGINT
    return _TOGETHER.get(frozenset(found))


@dataclass
class Column:
    name: str
    seen: set[str] = field(default_factory=set)
    odd: str = ""  # a cell of which nothing is certain

    @property
    def kind(self) -> str | None:
        return column_kind(self.seen)

    @property
    def type(self) -> str:
        """The type in Spark, once the kind is certain."""
        kind = self.kind
        assert kind is not None
        return "string" if kind in (TEXT, EMPTY) else kind


class Uncertain(Exception):
    """Files that are left to Spark, and why."""


@dataclass(frozen=True)
class Certain:
    """What is known of CSV files: the types of their columns, and how their lines end."""

    columns: tuple[tuple[str, str], ...]
    line_end: str


def certain_types(paths: Sequence[str], names: Sequence[str], dialect: Dialect) -> Certain:
    """The columns of files that all have a header with these names; raises Uncertain."""
    separator = dialect.separator
    if (dialect.quote, dialect.escape, dialect.comment) != ('"', '"', None) or separator not in (",", "\t"):
        raise Uncertain("the files are not written with the usual quotes and separators")
    columns = [Column(name) for name in names]
    with _Files(paths) as files:
        line_end = files.line_end(separator, len(names))
        for content in files.samples():
            _look(content, columns, separator)
        for _ in range(ATTEMPTS):
            grammar = _grammar(columns, separator, line_end)
            failed = files.mismatch(grammar, line_end.encode())
            if failed is None:
                return Certain(tuple((column.name, column.type) for column in columns), line_end)
            before = [column.kind for column in columns]
            _look(failed, columns, separator)
            if [column.kind for column in columns] == before:
                break
    raise Uncertain("a line is not of the form that is certain to be read alike")


def _look(content: bytes, columns: Sequence[Column], separator: str) -> None:
    """Have a look at the cells of some lines."""
    try:
        lines = content.decode("utf-8").removesuffix("\n").split("\n") if content else []
    except UnicodeDecodeError as error:
        raise Uncertain("a file is not UTF-8") from error
    try:
        for row in csv.reader((line.removesuffix("\r") for line in lines), delimiter=separator, strict=True):
            if len(row) != len(columns):
                raise Uncertain("lines have different numbers of fields")
            for column, cell in zip(columns, row, strict=True):
                kind = kind_of_cell(cell)
                column.seen.add(kind)
                if kind == OTHER and not column.odd:
                    column.odd = cell
    except csv.Error as error:
        raise Uncertain("quotes stand in the middle of fields") from error
    for column in columns:
        if column.kind is None:
            what = f"{column.odd!r} in it" if column.odd else f"{', '.join(sorted(column.seen - {EMPTY}))} side by side"
            raise Uncertain(f"the type of column {column.name} is not certain, with {what}")


def _grammar(columns: Sequence[Column], separator: str, line_end: str) -> str:
    """The regular expression of lines of such columns."""
    kinds = [str(column.kind) for column in columns]
    return grammar([None if kind == TEXT else CELLS[kind] for kind in kinds], separator, line_end)


def grammar(cells: Sequence[str | None], separator: str, line_end: str) -> str:
    """The regular expression of lines of such cells; None: of any text."""
    apart = _ESCAPED.get(separator, separator)
    unquoted = rf'[^"{apart}\r\n\x00]*'
    written = []
    for at, cell in enumerate(cells):
        if at == 0 and (len(cells) == 1 or separator == "\t"):  # a line of blanks alone is no record in Spark
            filled = rf'[^"{apart}\r\n\x00-\x20]{unquoted}' if cell is None else cell or _NOTHING
            written.append(f"(?:{filled})")
        elif cell is None:
            written.append(rf'(?:{unquoted}|"(?:[^"\r\n\x00]|"")*")')
        else:
            written.append(f'(?:(?:{cell})|"(?:{cell})?")?')
    return f"^(?:{apart.join(written)}{_ESCAPED.get(line_end, line_end)})*$"


def matches(pattern: str, content: bytes | memoryview) -> bool:
    """Whether a regular expression finds something in bytes; none that are not UTF-8."""
    import pyarrow as pa
    import pyarrow.compute as compute

    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(struct.pack("<qq", 0, len(content))), pa.py_buffer(content))
    return bool(compute.match_substring_regex(text, pattern=pattern)[0].as_py())


#: What no text matches.
_NOTHING = r"[^\x00-\x{10FFFF}]"
_ESCAPED = {"\n": r"\n", "\r\n": r"\r\n", "\t": r"\t", "|": r"\|"}


class _Files:
    """Files in memory, as far as they are looked at."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._maps: list[mmap.mmap] = []
        self._starts: list[int] = []  # behind the header

    def __enter__(self) -> _Files:
        try:
            for path in self._paths:
                if not os.path.getsize(path):
                    raise Uncertain("a file is empty")
                with open(path, "rb") as file:
                    self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._maps:
            each.close()

    def line_end(self, separator: str, fields: int) -> str:
        """How all lines end, by the first of each file, which is a header of so many fields."""
        found = set()
        for content in self._maps:
            end = content.find(b"\n")
            first = content[: end if end >= 0 else len(content)]
            found.add("\r\n" if first.endswith(b"\r") else "\n")
            header = first.removesuffix(b"\r")
            if header.startswith(b"\xef\xbb\xbf") or not header.strip() or b"\r" in header:
                raise Uncertain("a header is not plain text")
            try:
                names = next(csv.reader([header.decode("utf-8")], delimiter=separator, strict=True))
            except (csv.Error, UnicodeDecodeError) as error:
                raise Uncertain("a header is not plain text") from error
            if len(names) != fields:
                raise Uncertain("a header goes over several lines")
            self._starts.append(end + 1 if end >= 0 else len(content))
        if len(found) > 1:
            raise Uncertain("files end their lines differently")
        return found.pop()

    def samples(self) -> Iterator[bytes]:
        """The first lines of each file."""
        for content, start in zip(self._maps, self._starts, strict=True):
            yield content[start : _line_start(content, start, start + SAMPLE)]

    def mismatch(self, grammar: str, line_end: bytes) -> bytes | None:
        """A piece of a file that is not of a grammar; None if all are."""

        def matching(piece: tuple[mmap.mmap, int, int]) -> bool:
            content, start, end = piece
            # The last line may end with the file; then, but for that, it is as the others.
            whole = content[end - 1 : end] == b"\n"
            view = memoryview(content)[start:end] if whole else content[start:end] + line_end
            try:
                return matches(grammar, view)
            finally:
                del view

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for batch in _batches(self._pieces(), 16):
                for piece, good in zip(batch, pool.map(matching, batch), strict=True):
                    if not good:
                        return piece[0][piece[1] : piece[2]]
        return None

    def _pieces(self) -> Iterator[tuple[mmap.mmap, int, int]]:
        for content, start in zip(self._maps, self._starts, strict=True):
            while start < len(content):
                end = _line_start(content, start, start + CHUNK)
                yield content, start, end
                start = end


def _line_start(content: mmap.mmap, start: int, wanted: int) -> int:
    """Where a line starts, as far as wanted or a little further."""
    if wanted >= len(content):
        return len(content)
    found = content.rfind(b"\n", start, wanted)
    if found < 0:
        found = content.find(b"\n", wanted)
    return found + 1 if found >= 0 else len(content)


def _batches(pieces: Iterable[tuple[mmap.mmap, int, int]], size: int) -> Iterator[list[tuple[mmap.mmap, int, int]]]:
    batch: list[tuple[mmap.mmap, int, int]] = []
    for piece in pieces:
        batch.append(piece)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
