"""Finding a Java, with scripts that play one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch import java
from anabranch.errors import EnvironmentProblem


def fake_java(home: Path, version: str, *, module: bool = True, hangs: bool = False, silent: bool = False) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    modules = "java.base@1\n" + ("jdk.incubator.vector@1\n" if module else "")
    body = "exec sleep 60" if hangs else f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"
    if silent:
        body = "exit 1"
    path.write_text(f"#!/bin/sh\nif [ \"$1\" = --list-modules ]; then printf '{modules}'; else {body}; fi\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("1.8.0_402", 8),
        ("11.0.2", 11),
        ("17", 17),
        ("17.0.15", 17),
        ("25-ea", 25),
        ("21.0.1+12-LTS", 21),
        ("x", None),
    ],
)
def test_major_version(text: str, major: int | None) -> None:
    assert java.major_version(text) == major


def test_version_is_read_whoever_made_it() -> None:
    noise = 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "1.8.0_402"\nJava(TM) SE Runtime'
    assert java.parse_version(noise) == "1.8.0_402"
    assert java.parse_version("command not found") is None


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first = fake_java(tmp_path / "a", "17.0.1")
    second = fake_java(tmp_path / "b", "21.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "b"), "PATH": str(first.parent)}
    found = java.find(environ, places=[])
    assert (found.path, found.home, found.version) == (second, (tmp_path / "b").resolve(), "21.0.1")
    assert found.major == 21


def test_an_unfit_one_is_passed_over_for_the_usual_places(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    fake_java(tmp_path / "jvm" / "java-17", "17.0.9")
    found = java.find({"PATH": str(old.parent)}, places=[str(tmp_path / "jvm" / "*")])
    assert found.version == "17.0.9"


def test_the_error_says_what_was_found_what_is_needed_and_how_to_get_it(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    cut_down = fake_java(tmp_path / "small", "21.0.2", module=False)
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(cut_down.parent)}
    with pytest.raises(EnvironmentProblem) as caught:
        java.find(environ, places=[])
    text = str(caught.value)
    assert f"{old} is version 11.0.2" in text
    assert f"{cut_down} is version 21.0.2 but lacks the module jdk.incubator.vector" in text
    assert "needs Java 17 or newer" in text
    assert java.how_to_install() in text


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no Java was found"):
        java.find({"PATH": str(tmp_path)}, places=[])


def test_one_that_hangs_or_fails_is_passed_over(tmp_path: Path) -> None:
    hanging = fake_java(tmp_path / "hanging", "17", hangs=True)
    broken = fake_java(tmp_path / "broken", "17", silent=True)
    with pytest.raises(EnvironmentProblem) as caught:
        java.find({"JAVA_HOME": str(tmp_path / "hanging"), "PATH": str(broken.parent)}, places=[], timeout=0.3)
    assert f"{hanging} does not start" in str(caught.value)
    assert f"{broken} does not report its version" in str(caught.value)


@pytest.mark.parametrize(
    ("system", "os_release", "expected"),
    [
        ("Darwin", "", "brew install"),
        ("Windows", "", "winget install"),
        ("Linux", "ID=debian\n", "apt-get install"),
        ("Linux", 'ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt-get install"),
        ("Linux", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
        ("Linux", "ID=alpine\n", "apk add"),
        ("Linux", "ID=arch\n", "pacman -S"),
        ("Linux", "ID=opensuse-leap\nID_LIKE='suse opensuse'\n", "zypper install"),
        ("Linux", "ID=other\n", "adoptium.net"),
    ],
)
def test_advice_fits_the_system(system: str, os_release: str, expected: str) -> None:
    assert expected in java.how_to_install(system, os_release)


def test_use_sets_java_home_only_where_spark_would_take_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = fake_java(tmp_path / "fit", "17")
    other = fake_java(tmp_path / "other", "11")
    found = java.JavaFound(fit, tmp_path / "fit", "17")

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fit.parent))
    java.use(found)
    assert "JAVA_HOME" not in os.environ

    monkeypatch.setenv("PATH", str(other.parent))
    java.use(found)
    assert os.environ["JAVA_HOME"] == str(tmp_path / "fit")

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "other"))
    java.use(found)
    assert os.environ["JAVA_HOME"] == str(tmp_path / "fit")
