"""What a view keeps when its query is changed: the old plan and the new one, compared by fingerprints of their state.

    kept       partials, rows and hidden nodes that mean the same in both plans: their tables are not touched
    rebuilt    state that is filled anew from the rows that are still available
    refused    state that cannot be filled: the rows of the past are gone

A fingerprint covers all that the state of a node depends on and nothing else: no generated ids, no positions of
placeholders, no blanks or comments. This module knows plans, and nothing of tables or Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.placer import Planned
from anabranch.plan.states import Panes, Rows
from anabranch.plan.stored import Object
from anabranch.plan.view import Narrow, Touch, View
from anabranch.sql.spelling import normal_form, renamed

MOST_LETTERS = 60


# ------------------------------------------------------------------------------------------------ fingerprints


def fingerprint(view: View, states: Mapping[str, Object], below: Mapping[str, str]) -> str:
    """The fingerprint of a node. `below` has those of the nodes that it reads; other views are identified by id."""
    names = {use.placeholder: f"@p:{index}" for index, use in enumerate(view.query.blocks)}
    names |= {placeholder: f"@v:{below.get(id, id)}" for placeholder, id in view.query.views.items()}

    def named(placeholder: str | None) -> str | None:
        return names.get(placeholder, placeholder) if placeholder is not None else None

    return _hash(
        {
            "text": _normal(view.query.text, names),
            "fields": view.fields,
            "keys": view.keying.columns,
            "emit": [
                view.emission.mode,
                view.emission.triggers,
                view.emission.late,
                view.emission.as_changes,
                view.query.ordered,
                view.operator,
                named(view.emission.counted),
            ],
            "budget": view.emission.budget,
            "times": view.progress.times,
            "direct": view.query.direct,
            "touches": sorted([named(each.input), _normal(each.text, names)] for each in view.keying.touches),
            "narrows": sorted([named(each.input), [str(c) for c in each.columns]] for each in view.keying.narrows),
            "blocks": [_block(view, index, states) for index in range(len(view.query.blocks))],
            "rows": _rows(states[view.query.rows]) if view.query.rows is not None else None,
            "streams": sorted(set(view.query.streams.values())),
            "statics": _contents(view.beginning.table_versions),
            **({"asks": view.query.asks} if view.query.asks else {}),
        }
    )


def _block(view: View, index: int, states: Mapping[str, Object]) -> Any:
    use = view.query.blocks[index]
    panes = states[use.panes]
    assert isinstance(panes, Panes)
    columns = [[each.name, each.partial, each.since] for each in map(panes.column, use.columns)]
    own = [panes.id, panes.signature, use.bins or use.windows, use.presence, columns, _contents(panes.table_versions)]
    return [*own, asdict(panes.above)] if panes.above is not None else own


def _rows(rows: Object) -> Any:
    assert isinstance(rows, Rows)
    return [rows.stream, _normal(rows.text, {}), rows.fields, _contents(rows.table_versions)]


def _contents(table_versions: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Static tables by their own versions: an unchanged table is the same in any version of the ledger."""
    return {table: own for table, (_, own) in table_versions.items()}


def _hash(parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _normal(text: str, names: Mapping[str, str]) -> str:
    return normal_form(renamed(text, names))


# ------------------------------------------------------------------------------------------------ two plans


@dataclass(frozen=True)
class Comparison:
    """A new plan that reuses what it can of the old one.

    `planned` refers to kept nodes by their old ids and holds only what has to be created; `gone` are the old nodes that
    are not reused.
    """

    old: View
    planned: Planned
    kept: tuple[View, ...]
    gone: tuple[View, ...]
    same: bool

    @property
    def view(self) -> View:
        return self.planned.view

    @property
    def made(self) -> tuple[View, ...]:
        """The hidden nodes that have to be created."""
        return tuple(each for each in self.planned.objects if isinstance(each, View))

    @property
    def same_columns(self) -> bool:
        return self.old.shown_fields == self.view.shown_fields


def compare(catalog: Catalog, old: View, planned: Planned) -> Comparison:
    """Match the nodes of a new plan of a view with its present nodes."""
    states: dict[str, Object] = {**catalog.objects, **{each.id: each for each in planned.objects}}
    nodes = _in_order(catalog.nodes_of(old))
    prints: dict[str, str] = {}
    for node in nodes:
        prints[node.id] = fingerprint(node, catalog.objects, prints)
    same_as: dict[str, str] = {}  # id in the new plan -> id of the reused node
    kept: list[View] = []
    objects: list[Any] = []
    names = _free_names(old, nodes)
    for each in planned.objects:
        if (
            isinstance(each, Rows)
            and old.query.rows is not None
            and _hash(_rows(each)) == _hash(_rows(catalog[old.query.rows]))
        ):
            same_as[each.id] = old.query.rows
        elif isinstance(each, View):
            renamed = _renamed(each, same_as)
            match = _match(renamed, nodes, states, prints, taken=kept)
            if match is None:
                objects.append(replace(renamed, name=next(names)))
            else:
                same_as[each.id] = match.id
                kept.append(match)
        else:
            objects.append(each)
    root = _renamed(planned.view, same_as)
    fill_rows = tuple(id for id in planned.fill_rows if id not in same_as)
    same = fingerprint(root, states, prints) == fingerprint(old, catalog.objects, prints)
    gone = tuple(node for node in nodes if node not in kept)
    trimmed = replace(planned, view=root, objects=tuple(objects), fill_rows=fill_rows)
    return Comparison(old, trimmed, tuple(kept), gone, same)


def _match(
    node: View, nodes: Sequence[View], states: Mapping[str, Object], prints: Mapping[str, str], taken: Sequence[View]
) -> View | None:
    """The old node with the same fingerprint over the same nodes."""
    wanted = fingerprint(node, states, prints)
    reads = sorted(node.query.views.values())
    for each in nodes:
        if prints[each.id] == wanted and each not in taken and sorted(each.query.views.values()) == reads:
            return each
    return None


def _renamed(view: View, ids: Mapping[str, str]) -> View:
    """A node with the ids of its inputs replaced by those of the reused nodes."""
    names = {
        placeholder: f"@v:{ids[id]}{_again(placeholder)}" for placeholder, id in view.query.views.items() if id in ids
    }
    rows = ids.get(view.query.rows, view.query.rows) if view.query.rows is not None else None

    def named(placeholder: str) -> str:
        first = placeholder.partition("#")[0]
        return names.get(placeholder) or names.get(first, first) + _again(placeholder)

    joint, ends = view.progress.joint, view.progress.ends
    return replace(
        view,
        query=replace(
            view.query,
            text=renamed(view.query.text, names),
            spark_text=renamed(view.query.spark_text, names),
            views={
                names.get(placeholder, placeholder): ids.get(id, id) for placeholder, id in view.query.views.items()
            },
            rows=rows,
        ),
        progress=replace(
            view.progress,
            final=renamed(view.progress.final, names),
            joint=replace(joint, inputs=tuple(map(named, joint.inputs))) if joint is not None else None,
            ends=replace(ends, input=named(ends.input)) if ends is not None else None,
        ),
        join=replace(
            view.join,
            bands=tuple(replace(each, one=named(each.one), other=named(each.other)) for each in view.join.bands),
            streams={named(placeholder): id for placeholder, id in view.join.streams.items()},
            views={named(placeholder): ids.get(id, id) for placeholder, id in view.join.views.items()},
            inputs=tuple(replace(each, input=named(each.input)) for each in view.join.inputs),
        ),
        emission=replace(view.emission, counted=names.get(view.emission.counted or "", view.emission.counted)),
        keying=replace(
            view.keying,
            touches=tuple(Touch(names.get(t.input, t.input), renamed(t.text, names)) for t in view.keying.touches),
            narrows=tuple(Narrow(names.get(n.input, n.input), n.columns, n.times) for n in view.keying.narrows),
        ),
    )


def _again(placeholder: str) -> str:
    """The suffix of the placeholder of a relation that is read more than once."""
    return "".join(placeholder.partition("#")[1:])


def _in_order(nodes: Sequence[View]) -> list[View]:
    """Nodes in topological order: each after its inputs."""
    known = {node.id: node for node in nodes}
    done: dict[str, View] = {}

    def add(node: View) -> None:
        for id in node.query.views.values():
            if id in known and id not in done:
                add(known[id])
        done.setdefault(node.id, node)

    for node in nodes:
        add(node)
    return list(done.values())


def _free_names(old: View, nodes: Sequence[View]) -> Iterator[str]:
    """Names for new nodes that no old node has."""
    taken = {node.name for node in nodes}
    number = 0
    while True:
        number += 1
        name = f"{old.name}/{number}"
        if name not in taken:
            yield name


# ------------------------------------------------------------------------------------------------ where rows begin


def beginnings(catalog: Catalog, view: View) -> dict[str, int]:
    """The first run of each stream that is in the state of a view, where it is known."""
    found: dict[str, int] = {}

    def note(stream: str, since: int) -> None:
        found[stream] = min(since, found.get(stream, since))

    for each in (view, *catalog.nodes_of(view)):
        for use in each.query.blocks:
            panes = catalog.panes(use.panes)
            for name in use.columns:
                note(panes.stream, panes.column(name).since)
        for id in each.query.streams.values():
            stream = catalog.stream(id)
            if not stream.rereadable and stream.kept_since is not None:
                note(id, stream.kept_since)
    return found


def all_begins(catalog: Catalog, view: View) -> dict[str, tuple[int, int]]:
    """The first run and row of each stream for a view and its nodes."""
    return {id: begin for each in (*catalog.nodes_of(view), view) for id, begin in each.beginning.rows.items()}


def missing(stream: Stream, runs: int, since: int) -> str | None:
    """Why the rows of a stream cannot be read again from a run on; None if they can.

    >>> stream = Stream("s", "s", "", (), None, None, None, None, None, {}, "nothing", False)
    >>> missing(stream, 3, 0)
    'stream s keeps no rows of the past'
    >>> missing(stream, 3, 3) is None
    True
    """
    if runs <= since or stream.rereadable or stream.kept_since == since:
        return None
    if stream.kept_since is None:
        return f"stream {stream.name} keeps no rows of the past"
    if stream.kept_since > since:
        return f"stream {stream.name} keeps its rows from run {stream.kept_since} on, and run {since} is needed"
    return f"the view starts with run {since} of stream {stream.name}, whose rows have no run numbers"


# ------------------------------------------------------------------------------------------------ three lists


@dataclass(frozen=True)
class Lists:
    """What becomes of the state of a view."""

    kept: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """
        >>> print("\\n".join(Lists(kept=("node v/1",)).lines()))
        kept: node v/1
        rebuilt: nothing
        refused: nothing
        """
        named = (("kept", self.kept), ("rebuilt", self.rebuilt), ("refused", self.refused))
        return [f"{name}: {item}" for name, items in named for item in items or ("nothing",)]


def lists(catalog: Catalog, compared: Comparison, lacks: Callable[[Stream], str | None]) -> Lists:
    """The three lists. `lacks` returns why the rows of a stream cannot be read again."""
    planned = compared.planned
    states: dict[str, Object] = {**catalog.objects, **{each.id: each for each in planned.objects}}
    views = (*compared.kept, *compared.made, compared.view)
    kept: list[str] = []
    rebuilt: list[str] = []
    refused: list[str] = []

    def rebuild(what: str, stream_id: str) -> None:
        stream = catalog.stream(stream_id)
        reason = lacks(stream)
        if reason is None:
            rebuilt.append(f"{what}, from the rows of {stream.name}")
        else:
            refused.append(f"{what}: {reason}")

    for id, columns in _columns(views, states).items():
        panes = states[id]
        assert isinstance(panes, Panes)
        new = [name for name in columns if name in planned.fill_columns.get(id, ())]
        there = [name for name in columns if name not in new]
        if there:
            kept.append(f"partials {id} ({', '.join(there)})")
        if new:
            rebuild(f"partials {id} ({', '.join(new)})", panes.stream)
    for each in planned.objects:
        if isinstance(each, Rows):
            rebuild(f"rows {each.id}", each.stream)
        elif isinstance(each, Stream):
            rebuild(f"rows kept of stream {each.name}", each.id)
    if compared.view.query.rows is not None and compared.view.query.rows == compared.old.query.rows:
        kept.append(f"rows {compared.view.query.rows}")
    begun = {each.id for each in planned.objects if isinstance(each, Stream)}
    for id in dict.fromkeys(id for view in views for id in view.query.streams.values() if id not in begun):
        stream = catalog.stream(id)
        reason = lacks(stream) if stream.kept_since is None or _reads_more(compared, id) else None
        (kept if reason is None else refused).append(
            f"rows kept of stream {stream.name}" + (f": {reason}" if reason is not None else "")
        )
    kept += [_described(node) for node in compared.kept]
    rebuilt += [_described(node) for node in compared.made]
    if compared.view.emission.mode != "read":
        if compared.old.emission.mode == "read" or not compared.same_columns:
            rebuilt.append(f"changes of {compared.old.name}, begun anew")
        else:
            rebuilt.append(f"changes of {compared.old.name}, with the difference between the old and the new answer")
    return Lists(tuple(dict.fromkeys(kept)), tuple(dict.fromkeys(rebuilt)), tuple(dict.fromkeys(refused)))


def _columns(views: Iterable[View], states: Mapping[str, Object]) -> dict[str, tuple[str, ...]]:
    """The columns that views use of each pane table. Derived partials count for the table that they derive from."""
    found: dict[str, dict[str, None]] = {}
    for view in views:
        for use in view.query.blocks:
            panes = states[use.panes]
            above = panes.above if isinstance(panes, Panes) else None
            names = use.columns if above is None else [above.columns[name] for name in use.columns]
            found.setdefault(use.panes if above is None else above.panes, {}).update(dict.fromkeys(names))
    return {id: tuple(names) for id, names in found.items()}


def _reads_more(compared: Comparison, stream: str) -> bool:
    """Whether the new plan reads rows of a stream that no old node read."""
    before = {id for node in (compared.old, *compared.kept, *compared.gone) for id in node.query.streams.values()}
    return stream not in before


def _described(node: View) -> str:
    text = " ".join(node.sql.split())
    return f"node {node.name} ({text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + '…'})"
