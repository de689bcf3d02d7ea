"""The conditions on rows of a source that make them data."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.algebra.rules import Punctuation
from anabranch.plan.definitions import Stream
from anabranch.sources.base import CORRUPT
from anabranch.sql.text import quote_name


def good_rows(stream: Stream, columns: Collection[str]) -> str:
    """The condition of data rows in a frame with these columns: they parse, have an event time, and are no markers."""
    marks = punctuation_sql(stream)
    return parsed_rows(stream, columns) + (f" AND NOT {marks}" if marks is not None else "")


def punctuation_sql(stream: Stream) -> str | None:
    """The condition of rows that mark progress and are no data; None if there are no such rows."""
    return f"coalesce(({stream.rule.predicate}), false)" if isinstance(stream.rule, Punctuation) else None


def parsed_rows(stream: Stream, columns: Collection[str]) -> str:
    """The condition of rows that parse and have an event time, in a frame with these columns."""
    checks = [f"{CORRUPT} IS NULL"] if CORRUPT in columns else []
    if stream.time is not None:
        checks.append(f"{quote_name(stream.time)} IS NOT NULL")
    return " AND ".join(checks) or "true"
