"""What the proof of the demo counts and compares, without Spark."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from anabranch.cli.console import Console
from anabranch.demo.proof import QUESTIONS, Arrived, arrivals, count_dropped, judge, same_rows
from anabranch.demo.screen import show_verdicts

HIGHEST = QUESTIONS[2]


def prices(*values: str) -> pa.Table:
    return pa.table({"window_start": list(range(len(values))), "price": [Decimal(value) for value in values]})


def test_rows_are_left_out_once_the_window_that_ends_first_has_closed() -> None:
    run = Arrived(60, [0, 9, 10, 49, 50, 59, 60, 99])
    assert count_dropped([run], slide=10) == 6
    assert count_dropped([run], slide=60) == 6
    assert count_dropped([run], slide=100) == 0
    assert count_dropped([Arrived(55, [49, 50, 54])], slide=10) == 1
    assert count_dropped([Arrived(None, [0])], slide=10) == 0


def test_a_row_belongs_to_the_run_that_took_its_file(tmp_path: Path) -> None:
    for number, times in enumerate(([1, 2], [3], [4, 5, 6])):
        table = pa.table({"ts": pa.array(times, pa.timestamp("us", tz="UTC"))})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    found = arrivals(sorted(tmp_path.iterdir()), [(3, 7), (3, 9)])
    assert found == [Arrived(None, [1, 2, 3]), Arrived(7, [4, 5, 6])]


def test_rows_are_the_same_in_whatever_order() -> None:
    one = prices("1.00", "2.00")
    assert same_rows(one, one.take([1, 0]))
    assert not same_rows(one, prices("1.00", "2.01"))
    assert not same_rows(one, prices("1.00"))


def test_a_difference_is_seen_even_where_totals_are_equal() -> None:
    verdict = judge(HIGHEST, prices("1.00", "2.00"), prices("2.00", "1.00"), late=0)
    assert all(total.equal for total in verdict.totals)
    assert not verdict.holds


def test_the_table_shows_what_is_equal_and_what_is_not() -> None:
    out = io.StringIO()
    good = judge(HIGHEST, prices("1000.00"), prices("1000.00"), late=7)
    bad = judge(HIGHEST, prices("1.00"), prices("1.50"), late=0)
    show_verdicts(Console(out), [good, bad])
    lines = [line.split() for line in out.getvalue().splitlines()[2:]]
    assert lines[0] == ["highest_price", "|", "rows", "|", "1", "|", "1", "|", "✓", "|", "7"]
    assert lines[1] == ["|", "price", "|", "1,000.00", "|", "1,000.00", "|", "✓", "|"]
    assert "✗" in out.getvalue()
