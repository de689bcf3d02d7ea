"""The state of a join: which rows of its inputs it needs, those that can still have partners or all, and why.

Plain values from the definition of a node, and sentences about them.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.view import JoinInput, View
from anabranch.sql.durations import duration_text


def words(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def held(view: View) -> dict[str, int]:
    """Of each bounded input of a join: the least time, from the others' progress, of rows that can have partners."""
    return view.needed(dict.fromkeys(view.join_sources, 0))


def bounded(view: View) -> bool:
    """Whether a join reads only recent rows of each input, since older ones cannot have new partners."""
    bounded_state = view.operator == "join" or view.join.steps > 0
    return bounded_state and view.in_time and len(held(view)) == len(view.join_sources)


def in_memory(view: View, catalog: Catalog) -> list[str]:
    """Sentences on the rows of its inputs that a join needs."""
    called = {each.input: each.name for each in view.join.inputs if _base(each) in view.join.views}
    names = {input: called.get(input) or _name(catalog, id) for input, id in view.join_sources.items()}
    lines = []
    for input, since in held(view).items() if (view.operator == "join" or view.join.steps) and view.in_time else ():
        # Whether a row has no partner also depends on rows of its own stream.
        others = words([name for each, name in names.items() if view.join.steps or each != input])
        behind = f"{duration_text(-since)} behind" if since < 0 else "not behind"
        if since > 0:
            behind = f"{duration_text(since)} ahead of"
        lines.append(
            f"rows of {names[input]} are in memory if they are {behind} the progress of "
            f"{others} at the most; a row that is later than that " + _late(view)
        )
    return lines


def _late(view: View) -> str:
    """What happens to a row that arrives after its partners were dropped."""
    if view.drops_late_of:
        return "is left out (LATE DROP)"
    return "finds none (LATE DROP)" if view.emission.late == "drop" else "finds its partners in the ledger"


def unbounded(view: View) -> list[str]:
    """Warnings on a join that reads all rows of its inputs, however old, and what would bound it."""
    if not view.operator or len(view.join.inputs) < 2 or bounded(view) or _window_by_window(view):
        return []
    known = {**view.query.streams, **view.join.streams, **view.join.views}
    own = [each.name for each in view.join.inputs if _base(each) not in known]
    if own:
        return [
            f"UNBOUNDED: all rows of {words(own)} are looked at, however old: what has an answer of its own is bounded"
            " by a condition on its event times, and here it shows none"
        ]
    pair = _unbounded_pair(view)
    return [f"UNBOUNDED: {_what_bounds(*pair)}"] if pair is not None else _grouped(view)


def _what_bounds(one: JoinInput, other: JoinInput) -> str:
    """The warning on two inputs without a band between them, and the remedy."""
    text = (
        f"a row of {one.name} can be joined with any row of {other.name}, however old, so each run reads all of them; "
    )
    timeless = [each.name for each in (one, other) if not each.time]
    if timeless:
        have = "has" if len(timeless) == 1 else "have"
        return (
            f"{text}{words(timeless)} {have} no event time that could bound that: declare one first, WATERMARK FOR a"
            " column of times, and then say how far apart these times may be"
        )
    if one.versions or other.versions:
        return (
            f"{text}TOLERANCE INTERVAL 1 HOUR bounds that, where the times that it compares are the event times of both"
        )
    first, second = (f"{each.name}.{each.time}" for each in (one, other))
    return (
        f"{text}a condition on their times bounds that: {second} BETWEEN {first} - INTERVAL 1 HOUR AND {first} + "
        "INTERVAL 1 HOUR"
    )


def _grouped(view: View) -> list[str]:
    """The warning on inputs that are bounded but read whole, because the node groups where it joins."""
    if view.operator != "keyed" or view.join.steps:
        return []
    names = words([each.name for each in view.join.inputs])
    return [
        f"UNBOUNDED: the keys that new rows touch are computed anew from all rows of {names}, however old, though these"
        " only meet within bounds; a view of the join alone is bounded, and so is this one over that"
    ]


def _window_by_window(view: View) -> bool:
    """Whether the keys of a node are windows, whose bounds determine their rows."""
    return bool(view.keying.narrows) and {each.input for each in view.keying.narrows if any(each.times)} == set(
        view.inputs
    )


def _unbounded_pair(view: View) -> tuple[JoinInput, JoinInput] | None:
    """Two inputs without a band: nothing bounds how old the rows of the second are that a row of the first joins."""
    for index, one in enumerate(view.join.inputs):
        for other in view.join.inputs[index + 1 :]:
            if other.input not in _bound_to(view, one.input):
                return one, other
    kept = held(view)
    for each in view.join.inputs:
        if each.input not in kept:  # bounded on one side only: future rows can join all earlier ones
            return next((other, each) for other in view.join.inputs if other is not each)
    return None


def _bound_to(view: View, input: str) -> set[str]:
    """The inputs whose times a band bounds from either side to those of an input, directly or through others."""
    found = {input}
    for _ in view.join.bands:
        for each in view.join.bands:
            if found & {each.one, each.other}:
                found |= {each.one, each.other}
    return found


def _name(catalog: Catalog, id: str) -> str:
    found = catalog.objects[id]
    assert isinstance(found, Stream | View)
    return found.name


def _base(side: JoinInput) -> str:
    return side.input.partition("#")[0]
