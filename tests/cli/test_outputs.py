"""Each output, byte by byte, on small results."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest

from anabranch.cli import tables
from anabranch.cli.console import Console
from anabranch.cli.net import NetTable
from anabranch.cli.outputs import csv_line, make_output


def show(name: str, result: Any) -> str:
    out = io.StringIO()
    make_output(name, Console(out, io.StringIO())).show(result)
    return out.getvalue()


def test_batch_table_aligns_numbers_to_the_right_and_shows_null(make: Any) -> None:
    result = make.rows(auction=[1, 200, None], name=["a", None, "long\nname"], price=[1.5, 22.25, 3.0])
    assert show("batch-table", result) == (
        "auction | name       | price\n"
        "--------+------------+------\n"
        "      1 | a          |   1.5\n"
        "    200 | NULL       | 22.25\n"
        "   NULL | long\\nname |   3.0\n"
        "(3 rows)\n"
    )


def test_batch_table_without_rows(make: Any) -> None:
    result = make.result("rows", table=pa.table({"a": pa.array([], pa.int64()), "bc": pa.array([], pa.string())}))
    assert show("batch-table", result) == "a | bc\n--+---\n(0 rows)\n"


def test_batch_table_prints_every_row(make: Any) -> None:
    assert len(show("batch-table", make.rows(n=list(range(5000)))).splitlines()) == 5003


def test_batch_table_of_changes_is_their_sum(make: Any) -> None:
    result = make.changes({"k": ["b", "a"], "_diff": [1, 2]}, {"k": ["b"], "_diff": [-1]})
    assert show("batch-table", result) == "k\n-\na\na\n(2 rows)\n"


def test_batch_csv_is_header_and_rows_and_nothing_else(make: Any) -> None:
    result = make.rows(a=['x,"y"', "", None, "two\nlines"], b=[1, 2, 3, None])
    text = show("batch-csv", result)
    assert text == 'a,b\n"x,""y""",1\n"",2\n,3\n"two\nlines",\n'
    assert list(csv.reader(io.StringIO(text)))[1] == ['x,"y"', "1"]


def test_json_is_a_line_a_row_without_columns_of_changes(make: Any) -> None:
    assert show("json", make.rows(a=['x"y', None], b=[1, 2])) == '{"a": "x\\"y", "b": 1}\n{"a": null, "b": 2}\n'
    changed = make.changes({"k": ["b", "a"], "_diff": [1, 2]}, {"k": ["b"], "_diff": [-1]})
    assert show("json", changed) == '{"k": "a"}\n{"k": "a"}\n'
    assert show("json", make.result("rows", table=pa.table({"a": pa.array([], pa.int64())}))) == ""


def test_csv_is_short_for_batch_csv(make: Any) -> None:
    assert show("csv", make.rows(a=["x,y", None])) == show("batch-csv", make.rows(a=["x,y", None])) == 'a\n"x,y"\n\n'


def test_csv_quotes_names_too() -> None:
    assert csv_line(["count(a, b)", "c"]) == '"count(a, b)",c'


def test_stream_json_has_a_line_a_change_and_diff_last(make: Any) -> None:
    result = make.changes({"k": ["a", None], "n": [1, 2], "_diff": [1, 1]}, {"k": ["a"], "n": [1], "_diff": [-1]})
    lines = show("stream-json", result).splitlines()
    assert lines == [
        '{"k": "a", "n": 1, "_diff": 1}',
        '{"k": null, "n": 2, "_diff": 1}',
        '{"k": "a", "n": 1, "_diff": -1}',
    ]
    assert list(json.loads(lines[0])) == ["k", "n", "_diff"]


def test_rows_are_insertions_for_stream_json_and_live_csv(make: Any) -> None:
    assert show("stream-json", make.rows(a=[7])) == '{"a": 7, "_diff": 1}\n'
    assert show("live-csv", make.rows(a=[7])) == "a,_diff\n7,1\n"


def test_live_csv_is_flushed_after_each_run(make: Any) -> None:
    class Watched(io.StringIO):
        flushed_at: list[int]

        def flush(self) -> None:
            self.flushed_at.append(len(self.getvalue().splitlines()))

    out = Watched()
    out.flushed_at = []
    result = make.changes({"a": [1], "_diff": [1]}, {"a": [1, 2], "_diff": [-1, 1]})
    make_output("live-csv", Console(out, io.StringIO())).show(result)
    assert out.getvalue() == "a,_diff\n1,1\n1,-1\n2,1\n"
    assert out.flushed_at == [1, 2, 4]


def test_live_table_without_a_terminal_prints_the_final_table_only(make: Any) -> None:
    result = make.changes({"a": [1, 5], "_diff": [1, 1]}, {"a": [1, 2], "_diff": [-1, 1]})
    assert show("live-table", result) == "a\n-\n2\n5\n(2 rows)\n"


def test_live_table_without_changes_prints_its_header(make: Any) -> None:
    empty = pa.table({"a": pa.array([], pa.int64()), "_diff": pa.array([], pa.int64())})
    result = make.result("changes", batches=[make.changes({"a": [1], "_diff": [1]}).batches[0]], endless=True)
    result.batches[0].changes = empty
    assert show("live-table", result) == "a\n-\n(0 rows)\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_net_table_keeps_counts() -> None:
    net = NetTable()
    nan = float("nan")
    net.apply(pa.table({"k": ["a", "b", None], "x": [nan, 1.0, 2.0], "_diff": [1, -1, 2]}))
    assert len(net) == 3
    assert [net.texts(row) for row in net.rows()] == [[None, "2.0"], [None, "2.0"], ["a", "NaN"]]
    net.apply(pa.table({"k": ["a", "b", "b"], "x": [float("nan"), 1.0, 1.0], "_diff": [-1, 1, 1]}))
    assert [net.texts(row) for row in net.rows()] == [[None, "2.0"], [None, "2.0"], ["b", "1.0"]]
    assert len(net) == 3
    assert net.part(2) == net.rows()[-2:]
    assert net.part(0) == []


def test_net_table_sorts_values_with_null_inside() -> None:
    net = NetTable()
    net.apply(pa.table({"l": [[1, None], [None, 2], [1, 2]], "_diff": [1, 1, 1]}))
    assert len(net.rows()) == 3
    assert net.rows()[0] == ((None, 2),)
    assert len(net.part(2)) == 2


def test_wide_tables_are_cut_on_terminals_only(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    result = make.rows(a=["x" * 100], b=[1])
    out = Terminal()
    make_output("batch-table", Console(out, io.StringIO())).show(result)
    assert all(tables.width(line) <= 48 for line in out.getvalue().splitlines())
    assert "…" in out.getvalue()
    assert "x" * 100 in show("batch-table", result)


def test_wide_characters_are_counted_as_two() -> None:
    lines = list(tables.lines(["c"], [["日本", "abc"]], [False]))
    assert lines == ["c", "----", "日本", "abc"]
    assert tables.cut("日本語", 4) == "日…"


def test_cells_cannot_steer_the_terminal() -> None:
    assert tables.clean("a\x1b[31mb\u2028") == "a\\x1b[31mb\\u2028"
