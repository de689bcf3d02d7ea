"""Which rows of a source are data: conditions over what was read of it."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.algebra.rules import Punctuation
from anabranch.plan.definitions import Stream
from anabranch.sources.base import CORRUPT
from anabranch.sql.lexer import quote_name


def good_rows(stream: Stream, columns: Collection[str]) -> str:
    """What holds for rows of data, in a frame with these columns: they parse, have an event time and mark nothing."""
    marks = punctuation_sql(stream)
    return parsed_rows(stream, columns) + (f" AND NOT {marks}" if marks is not None else "")


def punctuation_sql(stream: Stream) -> str | None:
    """What holds for rows that mark progress and are no data; None if there are no such rows."""
    return f"coalesce(({stream.rule.predicate}), false)" if isinstance(stream.rule, Punctuation) else None


def parsed_rows(stream: Stream, columns: Collection[str]) -> str:
    """What holds for rows that parse and have an event time, in a frame with these columns."""
    checks = [f"{CORRUPT} IS NULL"] if CORRUPT in columns else []
    if stream.time is not None:
        checks.append(f"{quote_name(stream.time)} IS NOT NULL")
    return " AND ".join(checks) or "true"
