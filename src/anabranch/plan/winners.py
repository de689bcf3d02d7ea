"""Deterministic picks of rows: the order of rows, and the aggregate calls that always pick the same row.

    first(v)            min_by(v, struct(`ts`, `k`, `n`, `v`)): by event time, and then by all columns
    min_by(v, n)        min_by(v, CASE WHEN (n) IS NOT NULL THEN struct(n, `ts`, `k`, `n`, `v`) END)
    mode(v)             mode(v, true): of several values that are equally frequent, the lowest

Works on calls and on the names and types of columns; knows nothing of queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.states import Panes, Rows
from anabranch.plan.view import View

#: Aggregates that pick any row, with those that pick the lowest or the highest.
_ANY = {"first": "min_by", "first_value": "min_by", "any_value": "min_by", "last": "max_by", "last_value": "max_by"}
_BY = ("min_by", "max_by")
LISTS = ("collect_list", "array_agg")
#: Aggregates that concatenate values in one text.
TEXTS = ("listagg", "string_agg")
_NO_ORDER = re.compile(r"\b(map|variant|void|geometry|geography|interval)\b(?! (?:day|hour|minute|second|year|month))")
_NESTED = re.compile(r"array<|struct<")


@dataclass(frozen=True)
class SortKey:
    """A sort key: the parts of its name, if it is a column, and its text."""

    parts: tuple[str, ...]
    text: str


def sort_keys(keys: Sequence[tuple[SortKey, str]]) -> list[SortKey]:
    """The sortable keys. Nested types come last, in a form that only Spark reads: their order is Spark's own."""
    usable = [(key, type) for key, type in keys if orderable(type)]
    plain = [key for key, type in usable if not _NESTED.search(type)]
    return plain + [SortKey(key.parts, f"struct({key.text})") for key, type in usable if _NESTED.search(type)]


def orderable(type: str) -> bool:
    """Whether values of a Spark type can be sorted.

    >>> [orderable(type) for type in ("int", "array<string>", "map<int,int>", "struct<a:variant>")]
    [True, True, False, False]
    """
    return _NO_ORDER.search(type) is None


def event_times(catalog: Catalog, ids: Iterable[str]) -> frozenset[str]:
    """The names of event times in streams and views, and in what those read."""
    found: set[str] = set()
    for id in ids:
        known = catalog.objects.get(id)
        if isinstance(known, Stream):
            found |= {known.time.lower()} if known.time is not None else set()
        elif isinstance(known, Panes | Rows):
            found |= event_times(catalog, [known.stream])
        elif isinstance(known, View):
            below = [
                *known.query.streams.values(),
                *known.query.views.values(),
                *(use.panes for use in known.query.blocks),
            ]
            found |= {name.lower() for name in known.progress.times}
            found |= event_times(catalog, [*below, *([known.query.rows] if known.query.rows is not None else [])])
    return frozenset(found)
