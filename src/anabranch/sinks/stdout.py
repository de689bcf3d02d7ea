"""A sink that prints the changes of a view as lines of JSON: for trying things out, and for pipes.

Nobody knows what was read of it: each process prints the whole answer first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.errors import SinkError
from anabranch.sinks.base import Owner, with_version
from anabranch.sinks.formats import encode
from anabranch.sinks.kinds import SinkKind
from anabranch.types import Field


class Stdout:
    """What this process prints."""

    whole = False

    def __init__(self, options: Mapping[str, Any], owner: Owner) -> None:
        """There is nothing to say about it."""

    def check(self, fields: Sequence[Field]) -> None:
        """Anything can be printed."""

    def tidy(self) -> None:
        """Nothing is left unfinished."""

    def position(self) -> int | None:
        return None

    def start(self, version: int, rows: Any) -> None:
        self.apply(version, rows)

    def apply(self, version: int, changes: Any) -> None:
        try:
            sys.stdout.write(encode(with_version(changes, version), "json").decode())
            sys.stdout.flush()
        except OSError as error:
            raise SinkError(f"nothing can be printed: {error.strerror}") from error


KINDS = (
    SinkKind(
        name="stdout",
        doc="changes as lines of JSON on standard output",
        example="stdout()",
        options=(),
        open=Stdout,
        where=lambda options: "standard output",
    ),
)
