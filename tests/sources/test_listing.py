"""Files that were read are looked at seldom, and yet nothing that changes is missed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.sources import listing
from anabranch.sources.listing import Listing


def names(found: list[listing.File]) -> list[str]:
    return [Path(file.name).name for file in found]


@pytest.mark.parametrize("pattern", ["in", "in/*.csv", "*/*.csv", "**/*.csv"])
def test_a_quick_look_asks_only_for_files_that_are_not_settled(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, folder = [0.0], tmp_path / "in"
    folder.mkdir()
    for number in range(50):
        (folder / f"{number:02}.csv").write_text("a\n")
        os.utime(folder / f"{number:02}.csv", (number, number))
    for hidden in (".x.csv", "_x.csv", "x.csv.tmp"):
        (folder / hidden).write_text("a\n")
    (folder / "folder.csv").mkdir()
    found = Listing(str(tmp_path / pattern), lambda: now[0])
    first = found.look(complete=False)
    assert names(first) == [f"{number:02}.csv" for number in range(50)]
    for file in first:
        found.settle(file)
    asked = list[str]()
    stat = os.stat
    monkeypatch.setattr(listing, "_status", lambda path: asked.append(path) or stat(path))
    assert found.look(complete=False) == []
    assert {Path(each).name for each in asked} <= {"folder.csv"}
    with (folder / "07.csv").open("a") as file:
        file.write("b\n")
    (folder / "new.csv").write_text("c\n")
    assert names(found.look(complete=False)) == ["new.csv"]
    assert sorted(names(found.look(complete=True))) == ["07.csv", "new.csv"]
    assert sorted(names(found.look(complete=False))) == ["07.csv", "new.csv"]  # until it is settled again
    (folder / "08.csv").unlink()
    (folder / "09.csv").rename(folder / "10.csv")
    assert sorted(names(found.look(complete=True))) == ["07.csv", "10.csv", "new.csv"]


def test_a_folder_is_asked_for_its_names_until_its_time_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that comes in the same tick of the file system's clock leaves the time of the folder as it was."""
    now = [0.0]
    found = Listing(str(tmp_path), lambda: now[0])
    assert found.look(complete=False) == []
    same = os.stat(tmp_path).st_mtime_ns
    (tmp_path / "a.csv").write_text("a\n")
    os.utime(tmp_path, ns=(same, same))
    assert names(found.look(complete=False)) == ["a.csv"]
    for now[0] in (1.0, listing.COARSE):
        found.look(complete=False)
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("nothing changed"))
    assert names(found.look(complete=False)) == ["a.csv"]


def test_complete_looks_are_made_now_and_then_and_take_a_share_of_the_time(tmp_path: Path) -> None:
    times = iter([0.0, 1.0, 4.9, 5.0, 10.9, 11.0])
    found = Listing(str(tmp_path / "none" / "*.csv"), lambda: next(times))
    assert found.is_due() and found.may_look()
    found.look(complete=True)  # takes a second
    assert [found.may_look(), found.may_look()] == [False, True]
    assert [found.is_due(), found.is_due()] == [False, True]
