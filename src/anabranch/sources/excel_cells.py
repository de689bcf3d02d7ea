"""The cells of a sheet, read in a process of its own: `python -m anabranch.sources.excel_cells FILE SHEET`.

A workbook may claim a billion cells in a few bytes, and the reader makes room for all of them. Here that ends this
process, and not the one that asked. Writes a line of JSON with the names of the sheets, then one for each row.
"""

from __future__ import annotations

import json
import sys
from datetime import date, datetime, time, timedelta
from typing import Any

#: What the cells of a sheet may take, in bytes of memory.
MOST_MEMORY = 4 << 30


def cell(value: Any) -> Any:
    """A value of a cell for JSON: nothing, a text, a number, true or false, or the kind and the text of a time.

    >>> cell(""), cell(2.5), cell(date(2026, 1, 2)), cell(timedelta(hours=30))
    (None, 2.5, ['date', '2026-01-02'], ['time', '30:00:00'])
    """
    if isinstance(value, datetime):
        return ["timestamp", value.isoformat(" ")]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if isinstance(value, time):
        return ["time", value.isoformat()]
    if isinstance(value, timedelta):
        seconds, rest = divmod(value // timedelta(microseconds=1), 1_000_000)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return ["time", f"{text}.{rest:06}" if rest else text]
    return None if value == "" else value


def main(path: str, sheet: str) -> None:
    from python_calamine import CalamineWorkbook

    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # not every system can; the process is one of its own all the same
    with CalamineWorkbook.from_path(path) as workbook:
        names = workbook.sheet_names
        print(json.dumps(names))
        if sheet not in names and (sheet or not names):
            return
        for row in workbook.get_sheet_by_name(sheet or names[0]).to_python(skip_empty_area=False):
            print(json.dumps([cell(value) for value in row]))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        sys.exit((str(error).splitlines() or [type(error).__name__])[0])
