"""Which row an aggregate picks: what tells rows apart, and the calls that pick one so that it is always the same.

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

#: Aggregates that take any row, and what takes the lowest or the highest.
_ANY = {"first": "min_by", "first_value": "min_by", "any_value": "min_by", "last": "max_by", "last_value": "max_by"}
_BY = ("min_by", "max_by")
LISTS = ("collect_list", "array_agg")
#: Those that list values in one text.
TEXTS = ("listagg", "string_agg")
_NO_ORDER = re.compile(r"\b(map|variant|void|geometry|geography|interval)\b(?! (?:day|hour|minute|second|year|month))")
_NESTED = re.compile(r"array<|struct<")


@dataclass(frozen=True)
class SortKey:
    """A column to sort by: the parts of its name, as far as it is one, and its text."""

    parts: tuple[str, ...]
    text: str


def sort_keys(keys: Sequence[tuple[SortKey, str]]) -> list[SortKey]:
    """Those that can be sorted by. Nested ones come last, in a form that only Spark reads: their order is its own."""
    usable = [(key, type) for key, type in keys if orderable(type)]
    plain = [key for key, type in usable if not _NESTED.search(type)]
    return plain + [SortKey(key.parts, f"struct({key.text})") for key, type in usable if _NESTED.search(type)]


def orderable(type: str) -> bool:
    """Whether values of a type of Spark's can be sorted.

    >>> [orderable(type) for type in ("int", "array<string>", "map<int,int>", "struct<a:variant>")]
    [True, True, False, False]
    """
    return _NO_ORDER.search(type) is None


def event_times(catalog: Catalog, ids: Iterable[str]) -> frozenset[str]:
    """The names that event times have in streams and views, and in what those read."""
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
