"""Files of this machine: what is known of them without Spark."""

from __future__ import annotations

import io
import os
from typing import IO

from anabranch.sources import parts, quotes
from anabranch.sources.parts import Part
from anabranch.sources.quotes import Dialect, Layout


class LocalFiles:
    """Opens files of this machine, as `hadoop.Store` opens those of a store."""

    def status(self, name: str) -> tuple[int, int] | None:
        """Size and time of change of a file; None if it is gone."""
        try:
            status = os.stat(name)
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns

    def open(self, name: str) -> IO[bytes]:
        return open(name, "rb")

    def open_text(self, name: str) -> IO[str]:
        return io.TextIOWrapper(parts.open_bytes(name), encoding="utf-8-sig", errors="replace", newline="")

    def has_long_number(self, name: str, digits: int) -> bool:
        return quotes.has_long_number(name, digits)

    def layout(self, part: Part, dialect: Dialect) -> Layout:
        """How the records of a part of CSV lie."""
        return quotes.layout_of(part.name, part.start, part.end, dialect)
