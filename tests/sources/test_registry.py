"""Kinds of sources are declared in one place, by us and by others; secrets stay where they are."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import SourceError, SqlError
from anabranch.sources import registry, secrets
from anabranch.sources.registry import Kind, Option, WrongOption
from anabranch.sql.checking import check_script
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateTable

OWN = Kind(
    name="own",
    doc="for tests",
    example="own(host => 'h')",
    options=(
        Option(name="host", doc="where", required=True),
        Option(name="port", doc="which", type="whole", default=1, low=1, high=65535),
        Option(name="mode", doc="how", choices=("fast", "slow")),
        Option(name="ratio", doc="of what", type="number"),
        Option(name="tls", doc="whether", type="flag"),
        Option(name="password", doc="never written down", secret=True),
    ),
    table=lambda options, fields: dict(options),  # type: ignore[arg-type, return-value]
    modules=("no_such_module_of_anabranch",),
    extra="own",
)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.kinds()
    monkeypatch.setitem(registry._KINDS, "own", OWN)


def test_options_are_checked_by_name_type_and_value() -> None:
    OWN.check_options({"host": "h", "port": 5, "mode": "fast", "ratio": 1, "tls": True, "password": {"env": "X"}})
    for options, message in (
        ({"host": "h", "prot": 1}, "own has no option prot"),
        ({"host": 1}, "host must be a text, not 1"),
        ({"host": ""}, "must not be empty"),
        ({"host": "h", "port": 0}, "port must be a whole number from 1 to 65,535, not 0"),
        ({"host": "h", "port": True}, "port must be a whole number"),
        ({"host": "h", "mode": "x"}, "mode cannot be 'x'"),
        ({"host": "h", "tls": 1}, "tls must be true or false"),
        ({"host": "h", "password": "hunter2"}, "must not be written down"),
    ):
        with pytest.raises(WrongOption, match=message) as caught:
            OWN.check_options(options)
        assert caught.value.option in options and "hunter2" not in str(caught.value)
    with pytest.raises(SourceError, match="own needs the option host"):
        OWN.check_options({})


def test_a_script_is_checked_by_what_kinds_declare() -> None:
    (wrong,) = check_script("CREATE TABLE t (a INT) FROM own(host => 'h', prot => 1)")[0]
    assert isinstance(wrong, SqlError) and wrong.message == "own has no option prot" and "port" in str(wrong.hint)
    (unknown,) = check_script("CREATE STREAM s FROM kafak(topic => 'x')")[0]
    assert unknown.message == "there is no source kafak"
    assert not check_script("CREATE TABLE t (a INT) FROM own(host => 'h', password => env('P'))")[0]


def test_what_is_not_installed_is_named_with_how_to_get_it() -> None:
    with pytest.raises(SourceError, match="own needs the Python package") as caught:
        OWN.open_table({"host": "h"})
    assert caught.value.hint == "pip install 'anabranch[own]'"


def test_other_packages_bring_kinds_under_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "theirs"

        def load(self) -> Kind:
            return Kind(name="theirs", doc="", example="theirs()", options=())

    def points(*, group: str, name: str | None = None) -> list[Any]:
        return [Point()] if group == registry.ENTRY_POINTS and name in (None, "theirs") else []

    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    assert registry.find("theirs") is not None and "theirs" in registry.kinds()
    registry._KINDS.pop("theirs")


def test_secrets_are_references_until_something_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (made,) = parse("CREATE TABLE t FROM own(host => 'h', password => env('PW'), user => secret('user'))")
    assert isinstance(made, CreateTable) and made.source is not None
    assert made.source.options == {"host": "h", "password": {"env": "PW"}, "user": {"secret": "user"}}
    with pytest.raises(SourceError, match="the environment has no PW"):
        secrets.resolve(made.source.options)
    monkeypatch.setenv("PW", "hunter2")
    file = tmp_path / "secrets"
    monkeypatch.setenv("ANABRANCH_SECRETS", str(file))
    with pytest.raises(SourceError, match="there is no secrets file"):
        secrets.resolve(made.source.options)
    file.write_text("# who\nuser = alice = bob\n")
    file.chmod(0o644)
    with pytest.raises(SourceError, match="others may read"):
        secrets.resolve(made.source.options)
    file.chmod(0o600)
    assert secrets.resolve(made.source.options) == {"host": "h", "password": "hunter2", "user": "alice = bob"}
    assert secrets.hide("no entry for hunter2@h", made.source.options) == "no entry for ***@h"
    file.write_text("usr = x\n")
    with pytest.raises(SourceError, match="has no user") as caught:
        secrets.resolve(made.source.options)
    assert "usr" in str(caught.value.hint)


def test_the_page_has_the_options_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry._KINDS, "own")
    tools = Path(__file__).parents[2] / "tools"
    monkeypatch.syspath_prepend(str(tools))
    options = importlib.import_module("options")
    text = options.PAGE.read_text()
    assert options.page(text) == text, "python tools/options.py brings docs/connectors.md up to date"
    assert "| `slot` |" in text
