"""A sheet of a workbook: `excel('costs.xlsx', sheet => 'May', range => 'A1:F200')`, or just `'costs.xlsx'`.

Formulas are what they came to when the workbook was saved. Rows without a value are no rows. A column has the type that
all its values have; where they differ, it is a STRING.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError, did_you_mean
from anabranch.sources.lookup import ASKING_OPTIONS, LookupSource, check_asking, chosen
from anabranch.sources.registry import Kind, Option, WrongOption
from anabranch.sources.values import table_of
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
#: The first and last row and column of a sheet; the last ones are open.
_RANGE = re.compile(r"([A-Z]{1,3})?([1-9][0-9]{0,6})?(?::([A-Z]{1,3})?([1-9][0-9]{0,6})?)?")
#: Beyond this, a fraction of Excel's does not tell one whole number from the next.
_EXACT = 2**53
_HERE = Path(__file__).parents[2]
HINT = "give the column another type: CREATE TABLE t ({} STRING, ...) FROM excel(...)"


class ExcelTable(LookupSource):
    """The rows of a sheet, kept while the file does not change."""

    def __init__(self, options: Mapping[str, Any], declared: tuple[Field, ...] | None = None) -> None:
        self.path = os.path.abspath(str(options["path"]).removeprefix("file://"))
        self.sheet = str(options.get("sheet", ""))
        self.range = corners(options["range"]) if "range" in options else (0, 0, None, None)
        self.header = bool(options.get("header", True))
        self._declared = declared
        self._lock = threading.Lock()
        self._read: tuple[tuple[int, int], tuple[Field, ...], list[list[Any]]] | None = None

    def fields(self) -> tuple[Field, ...]:
        return chosen(self._sheet()[0], self._declared)

    def size(self) -> int | None:
        return len(self._sheet()[1])

    def read(self) -> pa.Table:
        found, rows = self._sheet()
        places = {field.name: place for place, field in enumerate(found)}
        fields = chosen(found, self._declared)
        values = [[_value(row[places[field.name]], field.type) for field in fields] for row in rows]
        return table_of(fields, values, f"{self.path}: a value of ", HINT)

    def _sheet(self) -> tuple[tuple[Field, ...], list[list[Any]]]:
        """The columns and the rows of the sheet, as the file is now."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            message = f"{self.path} cannot be read: {error.strerror}"
            raise WrongOption("path", message, hint="a relative path starts here") from error
        stamp = status.st_size, status.st_mtime_ns
        with self._lock:
            if self._read is None or self._read[0] != stamp:
                self._read = stamp, *self._table(self._cells())
            return self._read[1:]

    def _cells(self) -> list[list[Any]]:
        command = [sys.executable, "-m", "anabranch.sources.excel_cells", self.path, self.sheet]
        done = subprocess.run(command, cwd=_HERE, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            output = done.stderr.decode(errors="replace").strip().splitlines() or ["the reader gave up"]
            reason = output[0] if done.returncode == 1 else "it claims more cells than there is memory for"
            raise SourceError(f"{self.path} is not a readable workbook: {reason}", hint="open it and save it again")
        lines = done.stdout.splitlines()
        sheets = json.loads(lines[0])
        if self.sheet not in sheets and (self.sheet or not sheets):
            hint = did_you_mean(self.sheet, sheets)
            raise WrongOption("sheet", f"{self.path} has no sheet {self.sheet}", hint=hint)
        return list(map(json.loads, lines[1:]))

    def _table(self, cells: list[list[Any]]) -> tuple[tuple[Field, ...], list[list[Any]]]:
        top, left, bottom, right = self.range
        cut = [row[left:right] for row in cells[top:bottom]]
        rows = [row for row in cut if any(value is not None for value in row)]
        titles = rows.pop(0) if self.header and rows else []
        width = max(map(len, cut), default=0)
        used = [place for place in range(width) if any(row[place] is not None for row in (titles, *rows) if row)]
        if not used:
            raise SourceError(f"{self.path} has no columns: there is no row in it")
        names = names_of([(titles[place] if titles else None) for place in used], [left + place for place in used])
        columns = [[row[place] for row in rows] for place in used]
        fields = (Field(name, type_of(column)) for name, column in zip(names, columns, strict=True))
        return tuple(fields), [[row[place] for place in used] for row in rows]


def corners(text: str) -> tuple[int, int, int | None, int | None]:
    """The first row and column of a range, and those behind its last.

    >>> corners("A1:F200"), corners("b3"), corners("C:D")
    ((0, 0, 200, 6), (2, 1, None, None), (0, 2, None, 4))
    """
    found = _RANGE.fullmatch(text.upper().replace("$", ""))
    if found is None or not text:
        raise WrongOption("range", f"{text!r} is not a range of cells", hint="as in range => 'A1:F200', 'B3' or 'A:F'")
    left, top, right, bottom = found.groups()
    corner = (int(top) - 1 if top else 0, _place(left) if left else 0)
    end = (int(bottom) if bottom else None, _place(right) + 1 if right else None)
    if any(last is not None and last <= first for first, last in zip(corner, end, strict=True)):
        raise WrongOption("range", f"the range {text!r} ends before it starts")
    return (*corner, *end)


def letters(place: int) -> str:
    """What Excel calls a column.

    >>> letters(0), letters(27)
    ('A', 'AB')
    """
    text = ""
    while place >= 0:
        place, last = divmod(place, 26)
        text, place = chr(65 + last) + text, place - 1
    return text


def _place(name: str) -> int:
    place = 0
    for letter in name:
        place = place * 26 + ord(letter) - 64
    return place - 1


def names_of(titles: Sequence[Any], places: Sequence[int]) -> list[str]:
    """The names of columns: their titles, and Excel's letters for those that have none, or the same as one before.

    >>> names_of(["id", None, "ID", 2026.0], [0, 1, 2, 3])
    ['id', 'B', 'ID_C', '2026']
    """
    names: list[str] = []
    for title, place in zip(titles, places, strict=True):
        name = " ".join(str(_value(title, "string")).split()) if title is not None else ""
        name = name or letters(place)
        while name.lower() in map(str.lower, names):
            name += f"_{letters(place)}"
        names.append(name)
    return names


def type_of(values: Sequence[Any]) -> str:
    """The type that all values of a column have.

    >>> type_of([1.0, None]), type_of([1.0, 2.5]), type_of([["date", "2026-01-02"], ["timestamp", "2026-01-02 03:04"]])
    ('bigint', 'double', 'timestamp')
    """
    kinds = {_kind(value) for value in values if value is not None}
    if len(kinds) == 1:
        return kinds.pop()
    for mixed, type in (({"bigint", "double"}, "double"), ({"date", "timestamp"}, "timestamp")):
        if kinds == mixed:
            return type
    return "string"


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "string" if value[0] == "time" else str(value[0])
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "bigint" if abs(value) <= _EXACT and float(value).is_integer() else "double"
    return "string"


def _value(value: Any, type: str) -> Any:
    """A cell's value, times as texts; a whole number has no point behind it."""
    value = value[1] if isinstance(value, list) else value
    whole = isinstance(value, float) and type in ("string", "binary") and _kind(value) == "bigint"
    return int(value) if whole else value


def _check(options: Mapping[str, Any]) -> None:
    check_asking(options)
    if isinstance(options.get("range"), str):
        corners(options["range"])


KINDS = (
    Kind(
        name="excel",
        doc="a sheet of a workbook (xlsx, xlsm, xlsb, xls, ods)",
        example="excel('costs.xlsx', sheet => 'May')",
        options=(
            Option(name="path", doc="the workbook", required=True),
            Option(name="sheet", doc="the name of a sheet; else the first"),
            Option(name="range", doc="the cells to read, as in 'A1:F200', 'B3' or 'A:F'; else all"),
            Option(name="header", doc="whether the first row has the names", type="flag", default=True),
            *ASKING_OPTIONS,
        ),
        table=ExcelTable,
        endings=ENDINGS,
        check=_check,
        modules=("python_calamine",),
        extra="excel",
        abilities=("read by key",),
    ),
)
