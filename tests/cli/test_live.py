"""live-table: what is painted and when, by a clock that the tests move."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console as RichConsole
from rich.console import RenderableType

from anabranch.cli.console import Console
from anabranch.cli.live import Meter, Pace, Screen, Status, render
from anabranch.cli.net import NetTable
from anabranch.cli.ordering import Order, SortColumn
from anabranch.cli.outputs import make_output
from anabranch.cli.tables import width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Wall:
    """A screen whose pictures are kept, with the time of each."""

    def __init__(self, order: Order | None = None, seconds_a_picture: float = 0.0) -> None:
        self.clock = Clock()
        self.pictures: list[tuple[float, str]] = []
        self.seconds_a_picture = seconds_a_picture
        net = NetTable(order) if order is not None else NetTable()
        self.screen = Screen(net, ["a"], lambda: (60, 10), self.paint, self.clock)
        self.rows = 0

    def paint(self, picture: RenderableType) -> None:
        self.pictures.append((self.clock.now, plain(picture, 60, 10)))
        self.clock.now += self.seconds_a_picture

    def batch(self, make: Any, *values: int, **status: Any) -> None:
        self.rows += len(values)
        batch = make.changes({"a": list(values), "_diff": [1] * len(values)}, **status).batches[0]
        batch.rows = self.rows
        self.screen.apply(batch)


def plain(picture: RenderableType, width: int, height: int) -> str:
    terminal = RichConsole(file=io.StringIO(), width=width, height=height, color_system=None)
    lines = terminal.render_lines(picture, pad=False)
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


def test_at_most_ten_pictures_a_second_however_many_runs(make: Any) -> None:
    wall = Wall()
    for number in range(1000):
        wall.clock.now = number / 100
        wall.batch(make, number)
        wall.screen.tick()
    times = [at for at, _ in wall.pictures]
    assert 90 <= len(times) <= 100
    assert all(after - before >= 0.0999 for before, after in pairwise(times))


def test_the_last_run_of_a_burst_is_painted_by_a_tick(make: Any) -> None:
    wall = Wall()
    wall.batch(make, 1)
    wall.clock.now = 0.01
    wall.batch(make, 2)
    assert len(wall.pictures) == 1
    wall.clock.now = 0.09
    wall.screen.tick()
    assert len(wall.pictures) == 1
    wall.clock.now = 0.11
    wall.screen.tick()
    assert "2 rows" in wall.pictures[-1][1]
    assert len(wall.pictures) == 2


def test_a_picture_that_would_be_the_same_is_not_painted(make: Any) -> None:
    wall = Wall()
    wall.batch(make, 1)
    wall.clock.now = 1.0
    wall.batch(make, 2)
    for second in range(2, 100):
        wall.clock.now = float(second)
        wall.screen.tick()
    # The third one shows that nothing comes any more.
    assert [at for at, _ in wall.pictures] == [0.0, 1.0, 11.0]
    assert " 1 rows/s" in wall.pictures[1][1]
    assert " 0 rows/s" in wall.pictures[2][1]


def test_painting_takes_a_fifth_of_the_time_at_most(make: Any) -> None:
    wall = Wall(seconds_a_picture=0.2)
    for _ in range(1000):
        wall.clock.now += 0.01
        wall.batch(make, 1)
    assert len(wall.pictures) * 0.2 <= wall.clock.now * 0.21


def test_pace() -> None:
    pace = Pace()
    assert pace.due(5.0)
    pace.painted(5.0, 5.01)
    assert not pace.due(5.09)
    assert pace.due(5.1)
    pace.painted(6.0, 6.1)  # a slow picture
    assert not pace.due(6.4)
    assert pace.due(6.5)


def test_a_terminal_that_is_gone_is_told_with_the_next_run(make: Any) -> None:
    wall = Wall()
    wall.batch(make, 1)

    def gone(_: RenderableType) -> None:
        raise BrokenPipeError

    wall.screen._paint = gone
    wall.clock.now = 1.0
    wall.screen._stale = True
    wall.screen.tick()
    wall.screen.tick()
    with pytest.raises(BrokenPipeError):
        wall.batch(make, 2)


def batch(make: Any, rows: int, progress: int | None = None, late: int = 0) -> Any:
    each = make.changes({"a": [1], "_diff": [1]}).batches[0]
    each.rows, each.progress, each.late = rows, progress, late
    return each


def test_rows_a_second_are_those_of_the_last_seconds(make: Any) -> None:
    meter = Meter()
    assert meter.status(0.0) == Status()
    meter.count(batch(make, 1_000_000), 0.0)  # a home that had rows before
    assert meter.status(0.5).rate == 0
    meter.count(batch(make, 1_000_500), 1.0)
    assert meter.status(1.0).rate == 500
    for second in range(2, 60):
        meter.count(batch(make, 1_000_500 + 100 * second), float(second))
    assert meter.status(59.0).rate == 100
    assert meter.status(64.0).rate == 100
    assert meter.status(69.0) == Status(1_006_400, 0, None, 0.0)


def test_the_footer_shows_progress_rate_and_late_rows(make: Any) -> None:
    meter = Meter()
    assert meter.status(0.0).text() == "0 rows   0 rows/s   progress none yet   0 late"
    meter.count(batch(make, 0), 0.0)
    meter.count(batch(make, 3000, 1_767_225_600_000_000, 12), 2.0)
    assert meter.status(2.0).text() == "3,000 rows   1,500 rows/s   progress 2026-01-01 00:00:00   12 late"


def test_progress_stays_when_a_stream_has_ended(make: Any) -> None:
    meter = Meter()
    meter.count(batch(make, 1, 1_767_225_600_000_000), 0.0)
    meter.count(batch(make, 1, None), 1.0)
    assert "progress 2026-01-01 00:00:00" in meter.status(1.0).text()


def test_the_order_of_the_query_is_kept_and_its_first_rows_are_shown(make: Any) -> None:
    wall = Wall(Order((SortColumn(0, descending=True, nulls_last=True),)))
    wall.batch(make, 3, 10, 7, 1, 9, 2, 8)
    lines = [line.strip() for line in wall.pictures[-1][1].splitlines()]
    assert lines[2:6] == ["10", "9", "8", "7"]
    assert lines[6] == "... 3 more"


def test_without_an_order_the_last_rows_are_shown(make: Any) -> None:
    wall = Wall()
    wall.batch(make, 3, 10, 7, 1, 9, 2, 8)
    assert [line.strip() for line in wall.pictures[-1][1].splitlines()][2:6] == ["7", "8", "9", "10"]


def test_the_final_table_is_in_the_order_of_the_query_too(run_cli: Any, session: Any, make: Any) -> None:
    session.results = [make.changes({"a": [1, 5, None], "b": ["x", "y", "z"], "_diff": [1, 1, 1]})]
    ended = run_cli("SELECT a, b FROM t ORDER BY a DESC NULLS FIRST LIMIT 5", "-o", "live-table")
    assert [line.split(" | ")[0].strip() for line in ended.out.splitlines()[2:5]] == ["NULL", "5", "1"]
    assert ended.err == ""


@pytest.mark.parametrize("output", ["batch-csv", "batch-table", "live-table"])
def test_changes_that_are_added_up_are_sorted(run_cli: Any, session: Any, make: Any, output: str) -> None:
    session.results = [make.changes({"a": [1, 5], "_diff": [1, 1]}, {"a": [3], "_diff": [1]}, endless=False)]
    out = run_cli("SELECT a FROM t ORDER BY a DESC", "-o", output).out
    assert [line.strip() for line in out.splitlines() if line.strip().isdigit()] == ["5", "3", "1"]


def test_an_order_that_cannot_be_kept_is_told(run_cli: Any, session: Any, make: Any) -> None:
    session.results = [make.changes({"a": [5, 1], "_diff": [1, 1]})]
    ended = run_cli("SELECT a FROM t ORDER BY abs(b)", "-o", "live-table")
    assert "live-table cannot sort by abs(b)" in ended.err
    assert [line.strip() for line in ended.out.splitlines()[2:4]] == ["1", "5"]


def test_live_table_on_a_terminal_repaints_at_most_ten_times_a_second(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
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


def test_the_picture_fits_the_terminal() -> None:
    net = NetTable()
    net.apply(pa.table({"a": list(range(50)), "b": ["x" * 200] * 50, "_diff": [1] * 50}))
    terminal = RichConsole(file=io.StringIO(), width=60, height=12)
    lines = terminal.render_lines(render(net, ["a", "b"], Status(50, 1, None, 25.0), (60, 12)), pad=False)
    assert len(lines) <= 11
    texts = ["".join(segment.text for segment in line) for line in lines]
    assert all(len(text) <= 60 for text in texts)
    assert any("... 44 more" in text for text in texts)
    assert any(text.strip().startswith("49") for text in texts)


def test_the_status_line_fits_the_terminal(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    status = Status(1_000_000, 12, 1_767_225_600_000_000, 500.0)
    assert status.text(40) == "1,000,000 rows   500 rows/s   progress …"
    assert plain(render(NetTable(), ["a"], status, (40, 10)), 40, 10).splitlines()[-1] == status.text(40)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    result = make.changes({"a": [1], "_diff": [1]}, progress=1_767_225_600_000_000)
    make_output("live-table", Console(out, io.StringIO()), lambda: 0.0).show(result)
    assert out.getvalue().splitlines()[-1].endswith("…")
    assert width(out.getvalue().splitlines()[-1]) <= 40


def test_the_status_of_runs_is_measured_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    err = Terminal()
    console = Console(io.StringIO(), err)
    console.status("流れ" * 10)
    console.status("short")
    first, second = err.getvalue().split("\r")[1:]
    assert first == "流れ" * 4 + "流…" and width(first) == 19
    assert second == "short" + " " * 14  # covers all of the line before it
    assert width("e\u0301👩\u200d") == 3
