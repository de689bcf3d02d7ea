"""The progress plane of views: the bounds of what a view reads and shows, from those of its streams.

The rules are those of `algebra.plane`; this module translates a view into them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anabranch.algebra import plane
from anabranch.algebra.plane import (
    Aggregate,
    Behind,
    Distances,
    Input,
    Meet,
    Node,
    Project,
    Union,
    Window,
    furthest,
    latest,
)
from anabranch.algebra.progress import END
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.states import WINDOW_COLUMNS, Panes
from anabranch.plan.view import JointProgress, View
from anabranch.sql.calls import only_name
from anabranch.sql.lexer import tokenize

#: The only column of an input: its progress.
PROGRESS = "progress"
#: Of a join: the last of the times by which a reader closes its groups.
TOGETHER = "*"


def inputs_plane(catalog: Catalog, view: View) -> Node:
    """The plan of what a view reads: the slowest of its streams and of the views below, which may hold rows back."""
    inputs: list[Node] = [Input(id, PROGRESS) for id in sorted(catalog.sources_of(view))]
    inputs += [Input(id, PROGRESS) for id in sorted(catalog.below(view))]
    closing = _closing(view)
    if closing is not None and view.progress.joint is not None:
        return Union((*inputs, Meet(_join_inputs(catalog, view, view.progress.joint), {PROGRESS: closing})))
    for id in dict.fromkeys(view.query.views.values()):
        below = catalog.view(id)
        if not catalog.sources_of(below):
            continue  # nothing to wait for
        inputs.append(inputs_plane(catalog, below))
        if below.progress.joint is not None:
            # A pair comes out with its second row: its times may be as far behind as the join allows.
            pairs = view_plane(catalog, below)
            inputs += [Project(pairs, {PROGRESS: (column, 0)}) for column in below.progress.joint.behind]
    return Union(tuple(inputs))


def _closing(view: View) -> Distances | None:
    """The distances from the time that closes a view's groups to the times of its input."""
    joint = view.progress.joint
    if joint is None:
        return None
    if joint.ends and not view.emission.closing:
        found = latest(joint.closes[name] for name in joint.ends)
        return tuple((*side, Behind(TOGETHER, 0)) for side in found)
    timed = view.emission.closing or next(
        (key.name for key in view.keying.columns if key.name in view.progress.times), ""
    )
    return joint.closes.get(timed)


def view_plane(catalog: Catalog, view: View) -> Node:
    """The plan of what a view shows: the bounds of its event time columns."""
    if view.progress.joint is not None and view.progress.joint.behind:
        return Meet(_join_inputs(catalog, view, view.progress.joint), view.progress.joint.behind)
    below = inputs_plane(catalog, view)
    windows = view.query.blocks[0].sliding if len(view.query.blocks) == 1 and not view.query.streams else None
    names = {output.name: (output.kind, 0) for output in view.query.direct if output.kind in WINDOW_COLUMNS}
    if windows is not None and names:
        return Project(Aggregate(Window(below, PROGRESS, windows), WINDOW_COLUMNS), names)
    # A row is final when progress passes the end of its window, which is `shift` after the column.
    times = {column: (PROGRESS, 1 - shift) for column, shift in view.final_times.items() if _keeps_to(view, column)}
    return Project(below, times)


def bounded(view: View) -> list[str]:
    """The columns of a view that have bounds of their own."""
    if view.progress.joint is not None and view.progress.joint.behind:
        return list(view.progress.joint.behind)
    if (
        len(view.query.blocks) == 1
        and not view.query.streams
        and view.query.blocks[0].sliding is not None
        and view.query.direct
    ):
        return [output.name for output in view.query.direct if output.kind in WINDOW_COLUMNS]
    return [column for column in view.progress.times if _keeps_to(view, column)]


def _join_inputs(catalog: Catalog, view: View, joint: JointProgress) -> tuple[Node, ...]:
    """The inputs of a join, with the bounds of its event times under their names in lower case."""
    sides: list[Node] = []
    for placeholder in joint.inputs:
        if placeholder in view.query.streams:
            stream = catalog.stream(view.query.streams[placeholder])
            time = (stream.time or "").lower()
            sides.append(Project(Input(stream.id, PROGRESS), {time: (PROGRESS, 0)}))
        else:
            below = catalog.view(view.query.views[placeholder])
            columns = {column.lower(): (column, 0) for column in bounded(below)}
            bounds = view_plane(catalog, below)
            together = _last_closing(view, joint, len(sides), below)
            if isinstance(bounds, Meet) and together is not None:
                bounds = replace(bounds, columns={**bounds.columns, TOGETHER: together})
                columns[TOGETHER] = (TOGETHER, 0)
            sides.append(Project(bounds, columns))
    return tuple(sides)


def _last_closing(view: View, joint: JointProgress, side: int, below: View) -> Distances | None:
    """The distance from the last of a view's closing times to the inputs of the join below it.

    Each time alone may be far behind, but never all times of a later pair.
    """
    if not joint.ends or below.progress.joint is None or not below.progress.joint.inner:
        return None
    times = [{each.column for each in joint.closes[name][side] if each.by == 0} for name in joint.ends]
    found = {name.lower(): distances for name, distances in below.progress.joint.behind.items()}
    known = [found[name] for name in set().union(*times) if name in found]
    return latest(known) if all(times) and known else None


def _keeps_to(view: View, column: str) -> bool:
    """Whether new rows never change a row with an earlier time.

    They do in a join, and in any node that does not treat each time on its own, such as the last row of each key.
    """
    single = len(view.query.blocks) + len(view.query.streams) + len(view.query.views) <= 1
    return single and (
        view.operator in ("", "stateless", "lookup") or column in {key.name for key in view.keying.columns}
    )


def progress_of(
    catalog: Catalog,
    view: View,
    bound: Callable[[str], int | None],
    waits: Mapping[str, int] | None = None,
    without: frozenset[str] = frozenset(),
) -> int | None:
    """The progress of what a view reads, from the bounds of streams, `without` some of them.

    `waits` are the ends of the first windows that views below have yet to show.
    """
    if not catalog.sources_of(view):
        return END  # nothing to wait for

    def given(id: str) -> int | None:
        return END if id in without else bound(id)

    held = {id: end for id, end in (waits or {}).items() if not catalog.sources_of(catalog.view(id)) <= without}
    return _evaluated(inputs_plane(catalog, view), catalog, view, given, held).get(PROGRESS)


def bounds_of(catalog: Catalog, view: View, bound: Callable[[str], int | None]) -> dict[str, int]:
    """The bounds of what a view shows, by column."""
    return _evaluated(view_plane(catalog, view), catalog, view, bound, {})


def _evaluated(
    node: Node, catalog: Catalog, view: View, bound: Callable[[str], int | None], waits: Mapping[str, int]
) -> dict[str, int]:
    streams = {id: bound(id) for id in catalog.sources_of(view)}
    ended = all(each == END for each in streams.values())
    held = {id: END if ended or id not in waits else waits[id] - 1 for id in catalog.below(view)}
    return plane.evaluate(node, {**streams, **held})


# ---- progress of pairs

#: For each time of a key, by each input of a join: how far it can be behind; None for no limit.
Joint = tuple[tuple[int | None, ...], ...]


def joint_bounds(catalog: Catalog, view: View, bound: Callable[[str], int | None]) -> Joint | None:
    """The bounds by which groups of pairs with several times close, in the order of `view.progress.joint.ends`.

    A later pair has a new row of one of the inputs, whose bounds hold for all times of the pair. So a group gets no
    more pairs when each input has passed one of its times: earlier than when all have passed the last of them. None
    for other views, and where a single bound has to describe what was shown.
    """
    joint = view.progress.joint
    if (
        joint is None
        or not joint.ends
        or view.emission.closing
        or view.emission.late == "archive"
        or view.emission.budget is not None
    ):
        return None
    if view.query.tables or view.query.blocks:
        return None
    if len(joint.inputs) == 1 and joint.inputs[0] in view.query.views:
        below = catalog.view(view.query.views[joint.inputs[0]])
        if below.progress.joint is None or not below.progress.joint.inner or below.emission.mode != "feed":
            return None
        sides = _stream_bounds(catalog, below, below.progress.joint, bound)
        known = {name.lower(): distances for name, distances in below.progress.joint.behind.items()}
    else:
        sides = _stream_bounds(catalog, view, joint, bound)
        known = {}
    if sides is None:
        return None

    def least(name: str, index: int) -> int | None:
        found: list[int | None] = []
        if not known:
            return furthest(joint.closes[name][index], sides[index])
        for outer in joint.closes[name][0]:
            inner = furthest(known[outer.column][index], sides[index]) if outer.column in known else None
            found.append(None if inner is None else outer.bound(inner))
        return max((each for each in found if each is not None), default=None)

    return tuple(tuple(least(name, index) for index in range(len(sides))) for name in joint.ends)


def _stream_bounds(
    catalog: Catalog, view: View, joint: JointProgress, bound: Callable[[str], int | None]
) -> list[dict[str, int]] | None:
    """The bounds of the event times of a join's streams; None if it reads anything else."""
    if not all(placeholder in view.query.streams for placeholder in joint.inputs):
        return None
    given = {id: bound(id) for id in view.query.streams.values()}
    return [plane.evaluate(side, given) for side in _join_inputs(catalog, view, joint)]


# ---- progress by key


def key_of_progress(catalog: Catalog, view: View) -> tuple[Stream, int] | None:
    """The stream whose progress by key closes the windows of a view key by key, and the index of that key in the view.

    None where the view does not group by that column: its windows close with the stream. So do those of a view that
    archives late rows, and of one with a budget, since a single bound has to describe what it has shown.
    """
    streams = catalog.sources_of(view)
    if len(streams) != 1 or view.query.views or view.emission.late == "archive" or view.emission.budget is not None:
        return None
    stream = catalog.stream(next(iter(streams)))
    if stream.key is None:
        return None
    if not view.operator:
        panes = catalog.panes(view.query.blocks[0].panes) if len(view.query.blocks) == 1 else None
        index = None if panes is None else _key_of_panes(panes, stream.key)
        return None if index is None else (stream, index)
    for narrow in view.keying.narrows:
        use = next((use for use in view.query.blocks if use.placeholder == narrow.input), None)
        for index, column in enumerate(narrow.columns):
            if column is None:
                continue
            if use is None:
                found = column.lower() == stream.key.lower()
            else:
                panes = catalog.panes(use.panes)
                at = _key_of_panes(panes, stream.key)
                found = at is not None and panes.keys[at].name == column
            if found:
                return stream, index
    return None


def _key_of_panes(panes: Panes, column: str) -> int | None:
    """The index of the key of a pane table that is a plain column of its stream."""
    if panes.statics:
        return None
    for index, key in enumerate(panes.keys):
        named = only_name(tokenize(key.expression)[:-1])
        if named is not None and named.parts[-1].lower() == column.lower():
            return index
    return None
