"""An explanation as text, as JSON, or as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from anabranch.plan import graph
from anabranch.plan.describe import WHEN_READ, NodeStatistics, PlanNode
from anabranch.plan.explain import Explanation

AllStatistics = Mapping[str, NodeStatistics]
SUBSCRIBED = "if somebody subscribes, its changes are kept:"


def rendered(explanation: Explanation, format: str, statistics: AllStatistics | None = None) -> list[str]:
    """An explanation as lines of text, a JSON document, or a picture in dot, Mermaid or SVG."""
    statistics = statistics or {}
    if format == "json":
        return [json.dumps(document(explanation, statistics), ensure_ascii=False)]
    if format == "text":
        return lines(explanation, statistics)
    draw = {"dot": graph.dot, "mermaid": graph.mermaid, "svg": graph.svg}[format]
    return draw(boxes(explanation.nodes, statistics)).rstrip("\n").split("\n")


# ---- words


def lines(explanation: Explanation, statistics: AllStatistics) -> list[str]:
    """The output of EXPLAIN."""
    found = [f"read as: {' '.join(explanation.canonical.split())}"] if explanation.canonical else []
    found += [explanation.heading] if explanation.heading else []
    found += explanation.outside
    names = {node.id: node.name for node in (*explanation.nodes, *explanation.kept)}
    for node in explanation.nodes:
        found += _node_lines(node, names, statistics.get(node.id))
    if explanation.kept:
        found.append(SUBSCRIBED)
        for node in explanation.kept:
            if node not in explanation.nodes:
                found += [f"  {line}" for line in _node_lines(node, names, None)]
    elif explanation.refused:
        found.append(f"no subscription is possible: {explanation.refused}")
    return [*found, "output: " + ", ".join(f"{field.name} {field.type}" for field in explanation.fields)]


def _node_lines(node: PlanNode, names: Mapping[str, str], statistics: NodeStatistics | None) -> list[str]:
    if node.kind in ("stream", "table"):
        found = [f"{node.kind} {node.name}" + (": append-only" if node.kind == "stream" else "")]
    else:
        found = [f"{node.kind}: {node.name}{_keyed(node)}; {_appends(node)}"]
        found.append(f"  reads {', '.join(names[id] for id in node.inputs)}")
    found += [f"  {line}" for line in node.how]
    at_reads = node.kind == "recomputed" and node.emits == WHEN_READ
    if at_reads and node.state:
        found.append("  computed over rows at each read" + (f", because {node.reason}" if node.reason else ""))
    elif node.reason:
        found.append(f"  {node.reason}, so that no key tells what a run changes")
    if node.event_time:
        found.append(f"  event time: {', '.join(node.event_time)}")
    if node.progress:
        found.append(f"  progress: {node.progress}")
    if node.emits and not at_reads:
        found.append(f"  {node.emits}")
    found += [f"  state: {each.what}" for each in node.state]
    if not node.state and node.kind not in ("stream", "table"):
        found.append("  state: none of its own")
    return found + ([f"  {line}" for line in _statistics_lines(statistics)] if statistics is not None else [])


def _keyed(node: PlanNode) -> str:
    if node.keys:
        return f", keyed by {', '.join(node.keys)}"
    return ", without a key" if node.kind in ("partial", "recomputed") else ""


def _appends(node: PlanNode) -> str:
    return "append-only" if node.append_only else "its rows can change"


def _statistics_lines(statistics: NodeStatistics) -> list[str]:
    found = []
    if statistics.bound is not None:
        found.append(f"has come to {_moment(statistics.bound)}{_least(statistics)}")
    if statistics.version is not None:
        took = f", {statistics.milliseconds:,.1f} ms" if statistics.milliseconds is not None else ""
        where = f", {statistics.where}" if statistics.where else ""
        found.append(f"last changed by version {statistics.version}: {_rows(statistics.rows)}{took}{where}")
    found.append(f"kept now: {_rows(statistics.state_rows)}, {statistics.state_bytes:,} bytes")
    if statistics.groups is not None:
        large, small, limits = statistics.groups.large, statistics.groups.small, statistics.groups.thresholds
        found.append(
            f"groups with open windows: {large:,} by window, {small:,} by span;"
            f" large above {limits.up:g} rows, small below {limits.down:g}"
        )
    return found


def _least(statistics: NodeStatistics) -> str:
    """The bounds of columns, where they differ from the node's."""
    others = {name: bound for name, bound in statistics.bounds.items() if bound != statistics.bound}
    least = ", ".join(f"{name} from {_moment(bound)} on" for name, bound in others.items())
    return f"; later rows have {least}" if least else ""


def _moment(micros: int) -> str:
    """A time in UTC; one outside the calendar as a number."""
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat(" ")
    except OverflowError:
        return f"{micros} microseconds"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


# ---- JSON


def document(explanation: Explanation, statistics: AllStatistics) -> dict[str, Any]:
    """An explanation as JSON values. Nodes name their inputs by id, and come after them."""
    found: dict[str, Any] = {}
    if explanation.canonical:
        found["read_as"] = explanation.canonical
    if explanation.heading:
        found["note"] = explanation.heading
    if explanation.outside:
        found["outside"] = list(explanation.outside)
    found["nodes"] = [_node_document(node, statistics.get(node.id)) for node in explanation.nodes]
    if explanation.kept:
        found["if_subscribed"] = [_node_document(node, None) for node in explanation.kept]
    if explanation.refused:
        found["cannot_subscribe"] = explanation.refused
    found["output"] = [{"name": field.name, "type": field.type} for field in explanation.fields]
    return found


def _node_document(node: PlanNode, statistics: NodeStatistics | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": node.id,
        "name": node.name,
        "kind": node.kind,
        "inputs": list(node.inputs),
        "keys": list(node.keys),
        "append_only": node.append_only,
        "event_time": list(node.event_time),
        "progress": node.progress or None,
        "emits": node.emits or None,
        "reason": node.reason or None,
        "state": [{"table": each.table, "what": each.what, "bounded": each.bounded} for each in node.state],
        "bounded": node.bounded,
        "how": list(node.how),
    }
    if statistics is not None:
        found["figures"] = {
            "version": statistics.version,
            "rows": statistics.rows,
            "milliseconds": statistics.milliseconds,
            "state_rows": statistics.state_rows,
            "state_bytes": statistics.state_bytes,
            "bound": None if statistics.bound is None else _moment(statistics.bound),
            "bounds": {name: _moment(bound) for name, bound in statistics.bounds.items()},
        }
        if statistics.where:
            found["figures"]["where"] = statistics.where
        if statistics.groups is not None:
            groups = statistics.groups
            limits = {"large_above": groups.thresholds.up, "small_below": groups.thresholds.down}
            found["figures"]["groups"] = {"by_window": groups.large, "by_span": groups.small, **limits}
    return found


# ---- pictures


def boxes(nodes: Sequence[PlanNode], statistics: AllStatistics) -> list[graph.GraphNode]:
    """Nodes as boxes with the few lines that fit."""
    return [graph.GraphNode(n.id, n.kind, n.name, tuple(_box_lines(n, statistics.get(n.id))), n.inputs) for n in nodes]


def _box_lines(node: PlanNode, statistics: NodeStatistics | None) -> list[str]:
    found: list[str] = []
    if node.kind == "table":
        return found
    if node.sql:
        found.append(node.sql)
    if node.keys:
        found.append(f"keyed by {', '.join(node.keys)}")
    if node.kind == "stream":
        found += [f"event time {', '.join(node.event_time)}"] if node.event_time else []
        found.append(f"progress: {node.progress.split(';')[0]}")
    else:
        found.append(_appends(node))
        found += [node.reason] if node.reason else []
        found.append(node.emits.split(";")[0])
    for each in node.state:
        what = each.what.removeprefix("what is shown: ").split(";")[0].split(", reduced")[0]
        found.append(f"state: {what}")
    return found + (_statistics_lines(statistics) if statistics is not None else [])
