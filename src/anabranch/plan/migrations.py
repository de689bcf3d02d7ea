"""Migrations of definitions in older homes to the format of this version, step by step.

A step takes the JSON of a definition in one format and returns that of the next. Tables are not touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Values = dict[str, Any]


def _group_views(values: Values) -> Values:
    """1 to 2: the fields of a view are grouped, and not some fifty in one object."""
    if values["kind"] == "stream":
        return _with_rule(values)
    if values["kind"] in ("panes", "rows"):
        values = {"table_versions" if name == "statics_at" else name: each for name, each in values.items()}
        return {**values, "signature": _with_as(values["signature"])} if values["kind"] == "panes" else values
    if values["kind"] != "view":
        return values
    values = {name: each for name, each in values.items() if name not in _GONE}
    if values.get("emit") == "changes":
        values["emit"] = "read"  # before changes could be kept
    made: Values = {"kind": "view", "owner": None, "operator": values.pop("node", "")}
    for name, value in values.items():
        group, _, new = _PATHS.get(name, name).partition(".")
        if not new:
            made[group] = value
        else:
            made.setdefault(group, {})[new] = value
    return made


#: Removed fields: bands, whose views close by their streams, and counts record by record above them.
_GONE = ("band", "history", "told", "told_alike", "rounds")
#: The new place of the fields of a view, by group.
_GROUPS = {
    "query": {
        **{name: name for name in ("text", "blocks", "rows", "streams", "tables", "views", "asks", "direct")},
        "ordered": "ordered",
        "spread": "spark_text",
        "included": "included",
    },
    "keying": {"keys": "columns", **{name: name for name in ("touches", "narrows", "retained", "reason")}},
    "join": {
        "near": "bands",
        "nearby": "steps",
        "sides": "inputs",
        "through": "streams",
        "timed": "views",
        "partial": "aggregated",
    },
    "progress": {
        "meets": "joint",
        **{name: name for name in ("times", "time", "ends", "clock", "cuts", "ahead", "next_rows", "final")},
    },
    "emission": {
        "emit": "mode",
        "stream": "as_changes",
        **{name: name for name in ("late", "triggers", "counted", "closing", "budget")},
    },
    "beginning": {"start": "start", "begins": "rows", "statics_at": "table_versions"},
    "state": {
        "remade": "generation",
        "stays": "enriched",
        **{name: name for name in ("refreshed", "corrected", "lacks", "stopped")},
    },
}
_PATHS = {old: f"{group}.{new}" for group, names in _GROUPS.items() for old, new in names.items()}


#: A relation in the signature of a pane table with an alias but no AS.
_NAMED = re.compile(
    r"(`@(?:stream|t:[^`]*)`) (?=[\w`])(?!(?:as|join|inner|left|right|full|cross|semi|anti|natural|on|using)\b)"
)


def _with_as(signature: str) -> str:
    """The signature of a pane table in the present form of FROM clauses.

    >>> _with_as("bids|`@stream` b join `@t:items` as i on b . item = i . item||name=i . name")
    'bids|`@stream` as b join `@t:items` as i on b . item = i . item||name=i . name'
    """
    return _NAMED.sub(r"\1 as ", signature)


def _with_rule(values: Values) -> Values:
    """A stream with the rule of its progress; the oldest have a delay or a percentile instead."""
    values = {"rule": None, **values}
    delay, percentile = values.pop("delay", None), values.pop("percentile", None)
    if percentile is not None:
        values["rule"] = {"rule": "percentile", **percentile}
    elif delay is not None:
        values["rule"] = {"rule": "delay", "micros": delay}
    return values


def _count_by_run(values: Values) -> Values:
    """1: a view that counted changes one by one now counts all changes of a run, and shows all of them."""
    if not values.get("history"):
        return values
    none = "CAST(NULL AS BIGINT)"
    columns = [*(f"NULL AS __k{index}" for index in range(len(values["keys"]))), f"{none} AS __upto"]
    text = re.sub(r"\b_(place|left)\b", none, values["text"])
    text = text.replace("`@takes`", f"(SELECT {', '.join(columns)} WHERE false)")
    touches = [
        {**each, "text": each["text"].replace(", _place FROM", " FROM", 1).replace("SELECT _place", "SELECT 1", 1)}
        for each in values["touches"]
    ]
    return {**values, "text": text, "touches": touches, "counted": None}


def _from_one(values: Values) -> Values:
    return _group_views(_count_by_run(values))


#: The step from format 1, from format 2, and so on.
MIGRATIONS: tuple[Callable[[Values], Values], ...] = (_from_one,)
FORMAT = len(MIGRATIONS) + 1


def migrated(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A definition in the format of this version."""
    for migrate in MIGRATIONS[values.get("format", 1) - 1 :]:
        values = migrate(dict(values))
    return values
