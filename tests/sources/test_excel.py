"""Sheets of workbooks as tables: the values that people see in their cells, with the types that all of them have."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from anabranch.errors import SourceError
from anabranch.sources.excel import ExcelTable
from anabranch.sources.registry import WrongOption
from anabranch.types import Field


def workbook(path: Path, sheets: dict[str, list[list[Any]]]) -> str:
    with xlsxwriter.Workbook(path) as book:
        looks = {
            kind: book.add_format({"num_format": text})
            for kind, text in {
                datetime: "yyyy-mm-dd hh:mm:ss", date: "yyyy-mm-dd", time: "hh:mm:ss", timedelta: "[h]:mm:ss",
            }.items()
        }  # fmt: skip
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for at, row in enumerate(rows):
                for column, value in enumerate(row):
                    if type(value) in looks:
                        sheet.write_datetime(at, column, value, looks[type(value)])
                    elif isinstance(value, tuple):  # a formula, and what it came to
                        sheet.write_formula(at, column, value[0], None, value[1])
                    elif value is not None:
                        sheet.write(at, column, value)
    return str(path)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = [
        [None, "costs of May"],
        [],
        ["id", "name", "paid", "at", "took", "ok", "Price", None, "price", "mixed", 2026],
        [1, "ann", date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5), time(3, 4, 5), True, 1.5, 2, 3, 7, None],
        [],
        [2, "o'hara; DROP", None, date(2026, 1, 3), timedelta(hours=30), False, ("=A5*2", 4), None,
         ("=1/0", "#DIV/0!"), True],
        [3, "`", None, None, None, None, 1e300, None, None, "x"],
    ]  # fmt: skip
    sheets = {"May": rows, "plain": [["k", 1], ["l", 2]], "empty": [], "titles": [["a", "b"]]}
    return workbook(tmp_path_factory.mktemp("excel") / "costs.xlsx", sheets)


def test_columns_have_the_type_of_their_values_and_every_one_a_name(costs: str) -> None:
    table = ExcelTable({"path": costs, "range": "A3"})
    assert {field.name: field.type for field in table.fields()} == {
        "id": "bigint", "name": "string", "paid": "date", "at": "timestamp", "took": "string", "ok": "boolean",
        "Price": "double", "H": "bigint", "price_I": "bigint", "mixed": "string", "2026": "string",
    }  # fmt: skip
    rows = [tuple(row.values()) for row in table.read().to_pylist()]
    utc = timezone.utc
    assert rows == [
        (1, "ann", date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, tzinfo=utc), "03:04:05", True, 1.5, 2, 3, "7", None),
        (2, "o'hara; DROP", None, datetime(2026, 1, 3, tzinfo=utc), "30:00:00", False, 4.0, None, None, "true", None),
        (3, "`", None, None, None, None, 1e300, None, None, "x", None),
    ]
    assert table.size() == 3
    assert table.fetch(("name",), ("id", "ok"), [(2, False), (3, True), (9, True)]).to_pylist() == [
        {"name": "o'hara; DROP"}
    ]


def test_a_range_a_sheet_and_rows_without_names_are_asked_for(costs: str) -> None:
    def rows(**options: Any) -> list[dict[str, Any]]:
        return list(ExcelTable({"path": costs, **options}).read().to_pylist())

    assert rows(sheet="plain", header=False) == [{"A": "k", "B": 1}, {"A": "l", "B": 2}]
    assert rows(sheet="plain", header=False, range="$B$1:B1") == [{"B": 1}]
    assert rows(range="a3:b6") == [{"id": 1, "name": "ann"}, {"id": 2, "name": "o'hara; DROP"}]
    assert rows(sheet="titles") == []
    declared = (Field("ID", "string"), Field("price", "decimal(10,2)"))
    typed = ExcelTable({"path": costs, "range": "A3:G6"}, declared).read().to_pylist()
    assert [(row["id"], str(row["Price"])) for row in typed] == [("1", "1.50"), ("2", "4.00")]
    with pytest.raises(SourceError, match="a value of name is no INT") as caught:
        ExcelTable({"path": costs, "range": "A3"}, (Field("name", "int"),)).read()
    assert "STRING" in str(caught.value.hint)


def test_what_is_no_workbook_is_told(costs: str, tmp_path: Path) -> None:
    def refused(path: str | Path, message: str, **options: Any) -> SourceError:
        with pytest.raises(SourceError, match=message) as caught:
            ExcelTable({"path": str(path), **options}).fields()
        return caught.value

    assert "May" in str(refused(costs, "has no sheet Mai", sheet="Mai").hint)
    refused(costs, "there is no row in it", sheet="empty")
    refused(tmp_path / "none.xlsx", "cannot be read: No such file")
    broken = tmp_path / "broken.xlsx"
    broken.write_bytes(b"id,name\n1,ann\n")
    refused(broken, "is not a readable workbook")
    broken.write_bytes(Path(costs).read_bytes()[:3000])
    refused(broken, "is not a readable workbook")
    with xlsxwriter.Workbook(tmp_path / "huge.xlsx") as book:  # two cells at two ends: 17 billion between them
        sheet = book.add_worksheet()
        sheet.write(0, 0, 1)
        sheet.write(1048575, 16383, 1)
    refused(tmp_path / "huge.xlsx", "more cells than there is memory for")
    for text in ("A0", "1A", "A1:B2:C3", "F1:A1", "A9:A2", "x'"):
        with pytest.raises(WrongOption, match="range"):
            ExcelTable({"path": costs, "range": text})
