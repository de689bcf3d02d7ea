"""The shell: what is typed, what is printed, and that nothing ends it but the end."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.cli.console import Console
from anabranch.cli.shell import Shell, is_complete
from anabranch.cli.stopping import Interrupts
from anabranch.errors import SqlError


class Typed:
    """Lines that were typed beforehand; an exception among them is raised in its place."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self.lines = list(lines)

    def read(self) -> str:
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, str):
            return line
        raise line


@pytest.fixture
def shell(session: Any) -> Callable[..., tuple[str, str]]:
    """Type some lines; what was printed, and what was told."""

    def run(*lines: Any) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        times = iter(range(100))
        Shell(Console(out, err), session, Typed(*lines), clock=lambda: next(times) / 2).run()
        return out.getvalue(), err.getvalue()

    return run


def test_a_statement_prints_its_answer(shell: Any, session: Any, make: Any) -> None:
    session.results = [make.rows(a=[1, 2])]
    out, _ = shell("SELECT a FROM t;")
    assert session.text == "SELECT a FROM t;"
    assert out.splitlines()[-1] == "(2 rows)"


def test_an_error_is_told_and_the_shell_goes_on(shell: Any, session: Any) -> None:
    session.results = [SqlError("there is no column b", text="SELECT b", start=7, end=8)]
    _, err = shell("SELECT b;", KeyboardInterrupt, "SELECT c;")
    assert err.count("there is no column b") == 2
    assert session.text == "SELECT c;"


def test_commands(shell: Any, session: Any) -> None:
    out, err = shell("\\?", "\\timing", "SELECT 1;", "\\d bids", "\\o batch-cvs", "\\nope", "\\q", "SELECT 2;")
    assert "\\timing" in out
    assert "timing is on\n0.50 s" in err
    assert session.text == "DESCRIBE bids"
    assert "batch-csv" in err
    assert "there is no command \\nope" in err


def test_what_is_listed_has_titles(shell: Any, session: Any, make: Any) -> None:
    session.results = [make.rows(name=["x"])]
    out, _ = shell("\\d")
    titles = [line for line in out.splitlines() if line in ("Streams", "Tables", "Views", "Sinks")]
    assert titles == ["Streams", "Tables", "Views", "Sinks"]
    assert out.splitlines()[:4] == ["Streams", "name", "----", "x"]


def test_a_definition_is_printed_as_it_is(shell: Any, session: Any, make: Any) -> None:
    text = f"CREATE VIEW v AS\n  SELECT {'x' * 200}"
    session.results = [make.rows(statement=[text])]
    assert shell("SHOW CREATE VIEW v;")[0] == f"{text}\n"
    assert shell("\\o json", "SHOW CREATE VIEW v;")[0].startswith('{"statement": "CREATE VIEW v AS\\n')


def test_the_output_can_be_chosen(shell: Any, session: Any, make: Any) -> None:
    session.results = [make.rows(a=[1])]
    out, _ = shell("\\o batch-csv", "SELECT a FROM t;")
    assert out == "a\n1\n"


def test_a_file_is_no_output_of_the_shell(shell: Any) -> None:
    _, err = shell("\\o parquet")
    assert "-o parquet --to FILE" in err


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';", False),
        ("SELECT /* ;", False),
        ("-- nothing", True),
        ("\\d", True),
        ("exit", True),
    ],
)
def test_when_a_statement_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_completion_offers_names_and_words() -> None:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from anabranch.cli.line_editor import Words

    def offered(text: str) -> list[str]:
        words = Words(lambda: ["bids", "bidder"])
        return [each.text for each in words.get_completions(Document(text), CompleteEvent())]

    assert offered("SELECT bid") == ["bids", "bidder"]
    assert offered("sel") == ["select"]
    assert offered("SELECT * FROM sys.pro") == ["sys.progress"]
    assert offered("") == []


def test_the_shell_needs_a_terminal(run_cli: Any, session: Any) -> None:
    ended = run_cli("shell")
    assert ended.code == 2
    assert "-f -" in ended.err


def test_what_fails_because_it_was_cancelled_is_an_interrupt(session: Any) -> None:
    console = Console(io.StringIO(), io.StringIO())
    with pytest.raises(KeyboardInterrupt), Interrupts(console, session.stop, session.cancel, graceful=False):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            raise RuntimeError("a job was cancelled") from None
    for _ in range(100):
        if session.cancelled:
            break
        time.sleep(0.05)
    assert session.cancelled
