"""Aggregates whose answer depends on the order of rows, as calls that pick or list rows in a fixed order.

first(v)            min_by(v, struct(`ts`, `k`, `n`, `v`)): by event time, and then by all columns
min_by(v, n)        min_by(v, CASE WHEN (n) IS NOT NULL THEN struct(n, `ts`, `k`, `n`, `v`) END)
mode(v)             mode(v, true): of several values that are equally frequent, the lowest
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from anabranch.ir.expr import Call, Expr
from anabranch.ir.logic import word

#: Aggregates that pick any row, with those that pick the lowest or the highest.
_ANY = {"first": "min_by", "first_value": "min_by", "any_value": "min_by", "last": "max_by", "last_value": "max_by"}
_BY = ("min_by", "max_by")
LISTS = ("collect_list", "array_agg")
#: Aggregates that concatenate values in one text.
TEXTS = ("listagg", "string_agg")
#: Aggregates that pick one of several rows or values, or list them.
PICKING = frozenset({*_ANY, *_BY, *LISTS, *TEXTS, "collect_set", "mode"})
#: Aggregates that ignore NULLs unless the call says RESPECT NULLS; others respect them unless it says IGNORE NULLS.
_WITHOUT_NULLS = (*LISTS, "collect_set")
_NO_ORDER = re.compile(r"\b(map|variant|void|geometry|geography|interval)\b(?! (?:day|hour|minute|second|year|month))")
_NESTED = re.compile(r"array<|struct<")

Key = TypeVar("Key")


def sort_keys(keys: Sequence[tuple[Key, str]], spark_only: Callable[[Key], Key]) -> list[Key]:
    """Those of keys with types that can be sorted. Nested types have an order of Spark's own: they come last."""
    usable = [(key, _NESTED.search(type)) for key, type in keys if orderable(type)]
    return [key for key, nested in usable if not nested] + [spark_only(key) for key, nested in usable if nested]


def orderable(type: str) -> bool:
    """Whether values of a Spark type can be sorted.

    >>> [orderable(type) for type in ("int", "array<string>", "map<int,int>", "struct<a:variant>")]
    [True, True, False, False]
    """
    return _NO_ORDER.search(type) is None


@dataclass(frozen=True)
class Pick:
    """A call that picks the lowest or the highest row of an order among rows where an expression is not NULL."""

    function: str
    value: Expr
    order: Expr | None  # sorts before all columns
    present: Expr | None


def nulls(call: Call) -> str:
    """The NULLS clause of a call, where it is not the default."""
    by_itself = "IGNORE" if call.name in _WITHOUT_NULLS else "RESPECT"
    return "" if call.nulls == by_itself else call.nulls.lower()


def picked(call: Call) -> Pick | None:
    """How a call picks a row; None if it does not."""
    null_rule = nulls(call)
    if call.distinct or call.order or null_rule not in ("", "ignore"):
        return None
    if call.name in _BY and len(call.args) == 2 and not null_rule:
        return Pick(call.name, call.args[0], call.args[1], call.args[1])
    if call.name not in _ANY or len(call.args) not in (1, 2):
        return None
    second = [word(part) for part in call.args[1].parts] if len(call.args) == 2 else ["FALSE"]
    if second not in (["TRUE"], ["FALSE"]):
        return None
    skips = null_rule == "ignore" or second == ["TRUE"]
    return Pick(_ANY[call.name], call.args[0], None, call.args[0] if skips else None)


def depends_on_order(call: Call) -> bool:
    """Whether an aggregate picks one of several rows or values, or lists values."""
    listed = call.name in (*LISTS, *TEXTS, "collect_set", "mode")
    return picked(call) is not None or listed or bool(nulls(call))


def meant(
    call: Call, text: Callable[[Expr], str], keys: Callable[[], Sequence[str]], time: str | None
) -> tuple[str, list[str]]:
    """The name and the arguments of a call in the algebra of partials."""
    arguments = [text(argument) for argument in call.args]
    pick = picked(call)
    if pick is not None:
        known = keys()
        return (pick.function, [arguments[0], _stored_order(pick, known, text)]) if known else ("", arguments)
    name = call.name + (" within group" if call.order else "") + (f" {nulls(call)} nulls" if nulls(call) else "")
    if call.distinct:
        return name, arguments
    if call.order:
        return _within(call, name, arguments, text)
    if name in LISTS and len(arguments) == 1 and time is not None:
        return name, [arguments[0], time]
    if name == "mode":
        return name, arguments[:1]  # the second argument asks for the lowest, which partials give anyway
    if name.startswith("regr_") and len(arguments) == 2:
        pair = f"({arguments[0]}) IS NOT NULL AND ({arguments[1]}) IS NOT NULL"
        if name in ("regr_avgy", "regr_avgx"):
            return "avg", [f"CASE WHEN {pair} THEN {arguments[name == 'regr_avgx']} END"]
        if name == "regr_count":
            return "count", arguments
    return name, arguments


def _stored_order(pick: Pick, keys: Sequence[str], text: Callable[[Expr], str]) -> str:
    """The order that a row is picked by, as a struct with generated field names."""
    items = [*([text(pick.order)] if pick.order is not None else []), *keys]
    named = ", ".join(f"'k{index}', {item}" for index, item in enumerate(items))
    made = f"named_struct({named})"
    return made if pick.present is None else f"CASE WHEN ({text(pick.present)}) IS NOT NULL THEN {made} END"


def _within(call: Call, name: str, arguments: list[str], text: Callable[[Expr], str]) -> tuple[str, list[str]]:
    """percentile_cont(p) WITHIN GROUP (ORDER BY x DESC): its value, then its percentage; NULLs do not count."""
    known = {"percentile_cont": 1, "percentile_disc": 1, "mode": 0}
    if len(call.order) != 1 or name != f"{call.name} within group" or known.get(call.name) != len(arguments):
        return name, arguments
    turned = call.order[0].order.startswith("DESC")
    return f"{call.name} desc" if turned else call.name, [text(call.order[0].expr), *arguments]
