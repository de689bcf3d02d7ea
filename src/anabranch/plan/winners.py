"""Which row an aggregate picks: what tells rows apart, and the calls that pick one so that it is always the same.

    first(v)            min_by(v, struct(`ts`, `k`, `n`, `v`)): by event time, and then by all columns
    min_by(v, n)        min_by(v, CASE WHEN (n) IS NOT NULL THEN struct(n, `ts`, `k`, `n`, `v`) END)
    mode(v)             mode(v, true): of several values that are equally frequent, the lowest

Works on calls and on the names and types of columns; knows nothing of queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from anabranch.plan.catalog import Catalog, Panes, Rows, Stream, View
from anabranch.sql.calls import Call
from anabranch.sql.lexer import Token

#: Aggregates that take any row, and what takes the lowest or the highest.
_ANY = {"first": "min_by", "first_value": "min_by", "any_value": "min_by", "last": "max_by", "last_value": "max_by"}
_BY = ("min_by", "max_by")
LISTS = ("collect_list", "array_agg")
#: Those that list values in one text.
TEXTS = ("listagg", "string_agg")
_NO_ORDER = re.compile(r"\b(map|variant|void|geometry|geography|interval)\b(?! (?:day|hour|minute|second|year|month))")
_NESTED = re.compile(r"array<|struct<")

TextOf = Callable[[Sequence[Token]], str]


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


def by_time(keys: Sequence[SortKey], times: Iterable[str]) -> list[SortKey]:
    """Keys with those first that are event times."""
    known = frozenset(times)
    return sorted(keys, key=lambda key: not key.parts or key.parts[-1] not in known)


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
            below = [*known.streams.values(), *known.views.values(), *(use.panes for use in known.blocks)]
            found |= {name.lower() for name in known.times}
            found |= event_times(catalog, [*below, *([known.rows] if known.rows is not None else [])])
    return frozenset(found)


@dataclass(frozen=True)
class Pick:
    """A call that picks a row: of the lowest or the highest order among rows where something is not NULL."""

    function: str
    value: tuple[Token, ...]
    order: tuple[Token, ...] | None  # what comes before all columns
    present: tuple[Token, ...] | None

    def sql(self, keys: Sequence[str], text_of: TextOf, *, stored: bool = False) -> str:
        """The order, given what tells rows apart. One that is stored has names of its own for its fields."""
        items = [*([text_of(self.order)] if self.order is not None else []), *keys]
        named = ", ".join(f"'k{index}', {item}" for index, item in enumerate(items))
        made = f"named_struct({named})" if stored else f"struct({', '.join(items)})"
        return made if self.present is None else f"CASE WHEN ({text_of(self.present)}) IS NOT NULL THEN {made} END"


def picked(call: Call) -> Pick | None:
    """What a call picks a row by; None if it is no such call."""
    name, _, nulls = call.name.partition(" ")
    if call.distinct or call.order or nulls not in ("", "ignore nulls"):
        return None
    if name in _BY and len(call.arguments) == 2 and not nulls:
        return Pick(name, call.arguments[0], call.arguments[1], call.arguments[1])
    if name not in _ANY or len(call.arguments) not in (1, 2):
        return None
    said = [token.upper for token in call.arguments[1]] if len(call.arguments) == 2 else ["FALSE"]
    if said not in (["TRUE"], ["FALSE"]):
        return None
    skips = nulls == "ignore nulls" or said == ["TRUE"]
    return Pick(_ANY[name], call.arguments[0], None, call.arguments[0] if skips else None)


def depends_on_order(call: Call) -> bool:
    """Whether an aggregate picks one of several rows or values, or lists them."""
    listed = call.name in (*LISTS, "collect_set", "mode") or call.name.split()[0] in TEXTS
    return picked(call) is not None or listed or "nulls" in call.name


def meant(
    call: Call, text_of: TextOf, keys: Callable[[], Sequence[SortKey]], time: str | None
) -> tuple[str, list[str]]:
    """The name and the arguments under which the algebra of partials knows a call."""
    arguments = [text_of(argument) for argument in call.arguments]
    pick = picked(call)
    if pick is not None:
        known = [key.text for key in keys()]
        return (pick.function, [arguments[0], pick.sql(known, text_of, stored=True)]) if known else ("", arguments)
    if call.distinct:
        return call.name, arguments
    if call.order:
        return _within(call, arguments, text_of)
    if call.name in LISTS and len(arguments) == 1 and time is not None:
        return call.name, [arguments[0], time]
    if call.name == "mode":
        return call.name, arguments[:1]  # by its second argument it would be the lowest, and so it is without
    if call.name.startswith("regr_") and len(arguments) == 2:
        pair = f"({arguments[0]}) IS NOT NULL AND ({arguments[1]}) IS NOT NULL"
        if call.name in ("regr_avgy", "regr_avgx"):
            return "avg", [f"CASE WHEN {pair} THEN {arguments[call.name == 'regr_avgx']} END"]
        if call.name == "regr_count":
            return "count", arguments
    return call.name, arguments


def _within(call: Call, arguments: list[str], text_of: TextOf) -> tuple[str, list[str]]:
    """percentile_cont(p) WITHIN GROUP (ORDER BY x DESC): its value, then its percentage; NULLs do not count."""
    tokens = call.order[2:]  # ORDER BY
    while tokens and tokens[-1].upper in ("FIRST", "LAST") and tokens[-2].upper == "NULLS":
        tokens = tokens[:-2]
    turned = bool(tokens) and tokens[-1].upper == "DESC"
    if tokens and tokens[-1].upper in ("ASC", "DESC"):
        tokens = tokens[:-1]
    name = call.name.partition(" ")[0]
    depth = 0
    for token in tokens:
        depth += (token.text in "([") - (token.text in ")]") if token.kind == "symbol" else 0
        if token.text == "," and depth == 0:
            return call.name, arguments
    known = {"percentile_cont": 1, "percentile_disc": 1, "mode": 0}
    if not tokens or call.name != f"{name} within group" or known.get(name) != len(arguments):
        return call.name, arguments
    return f"{name} desc" if turned else name, [text_of(tokens), *arguments]
