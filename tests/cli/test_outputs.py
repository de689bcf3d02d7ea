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


def test_live_table_on_a_terminal_repaints_at_most_ten_times_a_second(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    now = 0.0

    def clock() -> float:
        return now

    painted: list[float] = []
    from anabranch.cli import live

    real = live.render

    def render(*arguments: Any) -> Any:
        painted.append(now)
        return real(*arguments)

    monkeypatch.setattr(live, "render", render)
    result = make.changes(*[{"a": [n], "_diff": [1]} for n in range(100)], progress=1_767_225_600_000_000)

    def tick(_: int) -> None:
        nonlocal now
        now += 0.02

    result.before_batch = tick
    out = Terminal()
    make_output("live-table", Console(out, io.StringIO()), clock).show(result)
    assert len(painted) <= 22
    text = out.getvalue()
    assert "more" in text
    assert "progress 2026-01-01 00:00:00" in text
    final = text[text.rindex("(100 rows)") :]
    assert final.splitlines()[1].startswith("1,000 rows   500 rows/s")
    assert "99 late" in final


def test_the_picture_fits_the_terminal(make: Any) -> None:
    from rich.console import Console as RichConsole

    from anabranch.cli.live import Status, render

    net = NetTable()
    net.apply(pa.table({"a": list(range(50)), "b": ["x" * 200] * 50, "_diff": [1] * 50}))
    terminal = RichConsole(file=io.StringIO(), width=60, height=12)
    lines = terminal.render_lines(render(net, ["a", "b"], Status(50, 1, None, 2.0), (60, 12)), pad=False)
    assert len(lines) <= 11
    texts = ["".join(segment.text for segment in line) for line in lines]
    assert all(len(text) <= 60 for text in texts)
    assert any("... 44 more" in text for text in texts)
    assert any(text.strip().startswith("49") for text in texts)


def test_net_table_keeps_counts() -> None:
    net = NetTable()
    nan = float("nan")
    net.apply(pa.table({"k": ["a", "b", None], "x": [nan, 1.0, 2.0], "_diff": [1, -1, 2]}))
    assert len(net) == 3
    assert [net.texts(row) for row in net.rows()] == [[None, "2.0"], [None, "2.0"], ["a", "NaN"]]
    net.apply(pa.table({"k": ["a", "b", "b"], "x": [float("nan"), 1.0, 1.0], "_diff": [-1, 1, 1]}))
    assert [net.texts(row) for row in net.rows()] == [[None, "2.0"], [None, "2.0"], ["b", "1.0"]]
    assert len(net) == 3
    assert net.last(2) == net.rows()[-2:]
    assert net.last(0) == []


def test_net_table_sorts_what_has_no_order() -> None:
    net = NetTable()
    net.apply(pa.table({"l": [[1, None], [None, 2], [1, 2]], "_diff": [1, 1, 1]}))
    assert len(net.rows()) == 3
    assert len(net.last(2)) == 2


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
