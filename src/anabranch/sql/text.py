"""Places in a text of SQL, and names and strings as SQL writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Hints after SELECT, of any kind.
HINTS = re.compile(r"/\*\+.*?\*/", re.DOTALL)
#: An unquoted file name.
FILE_NAME = re.compile(r"[^\s'\"`;,()]+\.(?:csv|tsv|tab|jsonl?|ndjson|parquet|pq|txt)(?:\.\w+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Span:
    """A half-open range of character positions in a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]

    def to(self, other: Span) -> Span:
        return Span(self.start, max(self.end, other.end))


def quote_name(name: str) -> str:
    """A name as a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def quote_string(value: str) -> str:
    """A text as a string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def words(text: str) -> frozenset[str]:
    """A set of words from a text, which keeps long lists of keywords readable."""
    return frozenset(text.split())
