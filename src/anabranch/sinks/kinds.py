"""The kinds of sinks: which options each takes, and how it is opened.

They are declared as `KINDS` of a module of this package, in the terms of the registry of sources.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from anabranch.sinks.base import Owner, Target
from anabranch.sources import secrets
from anabranch.sources.registry import Kind, Option, WrongOption

#: Modules of this package that declare kinds. They import no client of a server until one is opened.
MODULES = ("files", "delta", "databases", "kafka", "redis", "stdout", "webhook")


@dataclass(frozen=True, kw_only=True)
class SinkKind(Kind):
    """A kind of sink. `where` says for people where it writes."""

    open: Callable[[Mapping[str, Any], Owner], Target]
    where: Callable[[Mapping[str, Any]], str]
    in_full: bool = False  # the home has the values of options that were not given, too

    def written(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options as the home has them."""
        meant = {option.name: option.default for option in self.options if option.default is not None}
        return {**meant, **options} if self.in_full else dict(options)

    def open_sink(self, options: Mapping[str, Any], owner: Owner) -> Target:
        self._check_modules()
        return self.open(secrets.resolve(options), owner)


@cache
def _kinds() -> dict[str, SinkKind]:
    found = (importlib.import_module(f"anabranch.sinks.{module}").KINDS for module in MODULES)
    return {kind.name: kind for kinds in found for kind in kinds}


def find(name: str) -> SinkKind | None:
    return _kinds().get(name)


def names() -> list[str]:
    return list(_kinds())


def place_of(into: str, options: Mapping[str, Any]) -> str:
    """Where a sink writes, for people."""
    kind = find(into)
    assert kind is not None, f"there is no sink {into}"
    return kind.where(options)


def folder_kind(
    name: str, doc: str, example: str, *own: Option, open: Callable[[Path, Mapping[str, Any], Owner], Target]
) -> SinkKind:
    """A kind that writes into a folder of this machine."""

    def check(options: Mapping[str, Any]) -> None:
        path = str(options["path"])
        if not path.strip():
            raise WrongOption("path", f"{name} needs the path of a folder", hint="path => 'out/'")
        if "://" in path and not path.startswith("file://"):
            hint = "a mounted one will do"
            raise WrongOption("path", f"a sink writes to a local folder, not to {path}", hint=hint)

    return SinkKind(
        name=name,
        doc=doc,
        example=example,
        options=(
            Option(name="path", doc="a folder of its own, created if it does not exist", required=True),
            *own,
            Option(
                name="mode",
                doc="the changes of the view with _diff and _version, or the rows that it shows",
                default="changes",
                choices=("changes", "table"),
            ),
        ),
        check=check,
        open=lambda options, owner: open(Path(str(options["path"])), options, owner),
        where=lambda options: str(options["path"]),
        in_full=True,
    )
