"""Temporary homes go with their process, however it ends; those of processes that live stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from anabranch import temporary
from anabranch.ledger import Ledger

HOLDS = """
import signal, anabranch
from anabranch.cli.stopping import ended_by_signals
with ended_by_signals():
    session = anabranch.connect()
    print(session.home, flush=True)
    {then}
"""


def holder(folder: Path, then: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that makes a temporary home in a folder and never closes it."""
    source = str(Path(temporary.__file__).parents[1])
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": source}
    code = HOLDS.format(then=then)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    home = Path(process.stdout.readline().strip())
    assert home.parent == folder
    return process, home


@pytest.mark.parametrize(
    ("then", "sent", "code", "stays"),
    [
        ("pass", None, 0, False),
        ("raise ValueError", None, 1, False),
        ("signal.pause()", signal.SIGTERM, 128 + signal.SIGTERM, False),
        ("signal.pause()", signal.SIGKILL, -signal.SIGKILL, True),
    ],
)
def test_a_home_goes_with_its_process(
    tmp_path: Path, then: str, sent: signal.Signals | None, code: int, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, home = holder(tmp_path, then)
    if sent is not None:
        temporary.remove_abandoned(tmp_path)
        assert (home / "home.json").exists()  # in use
        process.send_signal(sent)
    assert process.wait(60) == code
    assert home.exists() is stays
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = temporary.make()  # as the next process does
    assert list(tmp_path.iterdir()) == [made]
    temporary.remove(made)
    assert not made.exists()


def test_nothing_is_removed_that_is_not_known_to_be_abandoned(tmp_path: Path) -> None:
    fresh, old, linked, other = (tmp_path / f"{temporary.PREFIX}{name}" for name in ("fresh", "old", "linked", "file"))
    fresh.mkdir()
    old.mkdir()
    os.utime(old, (0, time.time() - 2 * temporary.ABANDONED_SECONDS))
    with Ledger.open(tmp_path / "ledger", write=True):
        pass
    linked.symlink_to(tmp_path / "ledger")
    other.write_text("")
    temporary.remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {fresh.name, linked.name, other.name, "ledger"}
    assert (tmp_path / "ledger" / "home.json").exists()
    temporary.remove_abandoned(tmp_path / "missing")
