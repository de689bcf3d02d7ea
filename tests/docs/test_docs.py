"""Every example in the README and in docs/ is run, in order, a page at a time.

A block tells by its first word what it is: `file NAME` is written beside the page, `sql` is run (a table behind it is
the answer of its last query), `console` is typed (`$ command`, then what is printed), `python` is executed.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.cli.main import main
from anabranch.cli.values import column_texts

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Example:
    kind: str
    argument: str
    body: str
    answer: list[list[str]] | None


def examples(page: Path) -> Iterator[Example]:
    text = page.read_text()
    for match in re.finditer(r"^```(\w+)[ ]?([^\n]*)\n(.*?)^```\n(\n(\|[^\n]*\n)+)?", text, re.MULTILINE | re.DOTALL):
        table = match.group(4)
        rows = None
        if table is not None:
            lines = [line for line in table.strip().splitlines() if not re.fullmatch(r"[|\s:-]+", line)]
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        yield Example(match.group(1), match.group(2), match.group(3), rows)


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_of_a_page_does_what_it_says(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    names: dict[str, object] = {}
    with anabranch.connect(spark=spark) as session:
        for example in examples(page):
            if example.kind == "file":
                (tmp_path / example.argument).write_text(example.body)
            elif example.kind == "sql":
                result = session.sql(example.body)
                if example.answer is not None:
                    table = result.toArrow()
                    texts = [[text or "NULL" for text in column_texts(column)] for column in table.columns]
                    shown = [table.column_names, *(list(row) for row in zip(*texts, strict=True))]
                    assert shown == example.answer
            elif example.kind == "console":
                type_in(example.body)
            elif example.kind == "python":
                exec(compile(example.body, str(page), "exec"), names)


def type_in(session: str) -> None:
    for block in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = block.partition("\n")
        words = shlex.split(command)
        assert words[0] == "anabranch", f"only anabranch is run in examples, not {command}"
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words[1:])
        if expected.startswith("error:"):
            assert code in (1, 2)
            assert err.getvalue().strip() == expected.strip()
        else:
            assert code == 0, err.getvalue()
            assert out.getvalue().strip() == expected.strip()
