"""The demo itself, small and fast, and what its command line takes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from anabranch import demo
from anabranch.cli.console import Console
from anabranch.sql import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.demo.flow import Flow


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo puts its files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_script_holds_without_spark() -> None:
    assert check(demo.script_in(Path("/somewhere/it's here"))) == []


def test_the_example_is_what_the_demo_runs() -> None:
    root = Path(__file__).parents[2]
    example = (root / "examples" / "demo.sql").read_text(encoding="utf-8")
    assert demo.script_in(Path("")) == example


def test_wrong_options_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.UsageError):
        demo.main(["--rows", "none"])
    assert demo.main(["--help"]) == 0
    assert "--seconds" in capsys.readouterr().out


@pytest.mark.spark
def test_views_equal_batch_queries_and_late_rows_are_in_them(spark: SparkSession, temporary: Path) -> None:
    out = io.StringIO()
    assert demo.play(Console(out), demo.Options(rows=4_000, seconds=1.0, keep=True), spark) == 0
    text = out.getvalue()
    assert "✗" not in text
    assert text.count("✓") == 7
    late = [int(n) for n in re.findall(r"^(?:auction_minutes|hot_items|highest_price) .*\| +(\d+)$", text, re.M)]
    assert len(late) == 3
    assert min(late) > 0
    (kept,) = temporary.glob("anabranch-demo-*")
    assert str(kept) in text
    assert sorted(path.name for path in kept.iterdir()) == ["bids", "demo.sql", "home"]


@pytest.mark.spark
def test_ctrl_c_leaves_nothing_behind(spark: SparkSession, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.demo.screen import Lines

    def interrupt_in_the_middle(self: Lines, flow: Flow) -> None:
        if flow.reports:
            raise KeyboardInterrupt

    monkeypatch.setattr(Lines, "paint", interrupt_in_the_middle)
    out = io.StringIO()
    assert demo.play(Console(out), demo.Options(rows=1_000, seconds=60.0), spark) == 130
    assert out.getvalue().splitlines()[-1].startswith("stopped")
    assert list(temporary.glob("anabranch-demo-*")) == []
