"""The kinds of sinks that do not write into a folder: which options each takes, and how it is opened.

They are declared as `KINDS` of a module of this package, in the terms of the registry of sources.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from anabranch.sinks.base import OPTIONS, Owner, Target
from anabranch.sources import secrets
from anabranch.sources.registry import Kind

#: Modules of this package that declare kinds. They import no client of a server until one is opened.
MODULES = ("databases", "kafka", "redis", "stdout", "webhook")


@dataclass(frozen=True, kw_only=True)
class SinkKind(Kind):
    """A kind of sink. `where` says for people where it writes."""

    open: Callable[[Mapping[str, Any], Owner], Target]
    where: Callable[[Mapping[str, Any]], str]

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
    return [*OPTIONS, *_kinds()]


def place_of(into: str, options: Mapping[str, Any]) -> str:
    """Where a sink writes, for people."""
    kind = find(into)
    return str(options["path"]) if kind is None else kind.where(options)
