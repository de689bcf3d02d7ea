"""Which rows of the relations of one SELECT block can be joined, and how the columns of a join progress."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.algebra.reach import JoinBand, chained
from anabranch.algebra.windows import MILLISECOND
from anabranch.ir.select import FromItem
from anabranch.ir.versions import UNTIL
from anabranch.plan.block_inputs import BlockInputs
from anabranch.plan.definitions import Stream
from anabranch.plan.facts.bands import find_bands
from anabranch.plan.facts.following import find_following
from anabranch.plan.facts.keys import Keying
from anabranch.plan.facts.progress import Join, find_joint_progress, time_call
from anabranch.plan.view import JoinInput, NodeJoin, View


@dataclass(frozen=True)
class BlockJoins:
    """The join of a SELECT, if it has one."""

    inputs: BlockInputs

    def join(self) -> NodeJoin:
        bands, steps = self.bands()
        return NodeJoin(bands, steps, self.changing(), self.passing(Stream), self.passing(View))

    def distinct_names(self) -> list[str]:
        """A distinct placeholder for each input, even where two read the same stream; none for static tables."""
        names: list[str] = []
        for item in self.inputs.block.sources:
            name = "" if item.static or item.scan is None else self.inputs.input_of(item)
            count = sum(known.partition("#")[0] == name for known in names) if name else 0
            names.append(f"{name}#{count}" if count else name)
        return names

    def bands(self) -> tuple[tuple[JoinBand, ...], int]:
        """The bands of a join, and within how many steps of a new row all rows are that matter to it.

        A result of n inputs is at most n - 1 steps from each row that decides whether it exists.
        """
        block = self.inputs.block
        names = self.distinct_names()
        found: list[JoinBand] = []
        times = [self.inputs.columns_named(item, self.inputs.row_times(item)) for item in block.sources]
        for band in find_bands(block, times):
            one, other = (block.owner[column] for column in (band.one, band.other))
            known = [self.inputs.known(block.sources[index]) for index in (one, other)]
            if all(map(self.passes, known)):
                # A window that is no longer than the band has its time within the band of its rows.
                wider = MILLISECOND * sum(isinstance(each, View) and not each.kept for each in known)
                least = None if band.least is None else band.least - wider
                most = None if band.most is None else band.most + wider
                found.append(JoinBand(names[one], names[other], least, most))
        live = [name for name in names if name]
        return tuple(found), 2 * (len(live) - 1) if chained(found, live) else 0

    def changing(self) -> tuple[JoinInput, ...]:
        """The inputs of a join that change; empty where there is no join."""
        found = []
        for name, item in zip(self.distinct_names(), self.inputs.block.sources, strict=True):
            if not name:
                continue
            known = self.inputs.known(item)
            called = item.label or (known.name if isinstance(known, Stream | View) else "")
            own = self.inputs.own_times(item)
            time = known.time if isinstance(known, Stream) else next(iter(own), None)
            if isinstance(known, View) and known.kept and known.time.lower() in own:
                time = known.time
            versions = isinstance(known, View) and any(field.name.startswith(UNTIL) for field in known.fields)
            found.append(JoinInput(name, called, time or "", versions))
        return tuple(found) if len(found) > 1 else ()

    def passing(self, kind: type) -> dict[str, str]:
        """The inputs that only filter and project the rows of a stream, with that stream. If `kind` is View: the inputs
        that do so with the rows of a view whose changes are kept, or are such a view."""
        found: dict[str, str] = {}
        for name, item in zip(self.distinct_names(), self.inputs.block.sources, strict=True):
            known = self.inputs.known(item) if name else None
            below = self.passes(known)
            if below is not None and isinstance(below, kind) and isinstance(known, View):
                found[name] = below.id
        return found

    def passes(self, known: object) -> Stream | View | None:
        """The stream or view with an event time whose rows an input passes on one by one; None for anything else.

        The queries in between have to show that time, and no other time that could be taken for it.
        """
        if isinstance(known, Stream):
            return known if known.time is not None else None
        if isinstance(known, View) and known.kept:
            return known if known.time else None
        if not isinstance(known, View) or known.operator != "stateless" or len(known.inputs) != 1:
            return None
        for id in known.query.streams.values():
            return self.passes(self.inputs.nodes.object(id))
        (id,) = known.query.views.values()
        below = self.passes(self.inputs.nodes.object(id))
        return None if isinstance(below, View) and dict(below.progress.times) != {below.time: 1} else below

    def following(self, view: View) -> View:
        """A view that pairs each row with the next within bounds: new rows touch no other rows."""
        block = self.inputs.block
        found = find_following(block)
        if found is None or len(block.sources) != 1 or block.sources[0].static or block.limited:
            return view
        (item,) = block.sources
        if item.window is not None or not view.in_time or view.progress.clock != "event" or not view.operator:
            return view
        column, distance = found
        if self.passes(self.inputs.known(item)) is None or column not in self.inputs.columns_named(
            item, self.inputs.row_times(item)
        ):
            return view
        name = self.inputs.input_of(item)
        return replace(view, join=replace(view.join, bands=(JoinBand(name, name, -distance, distance),), steps=1))

    def with_progress(self, keying: Keying, view: View) -> View:
        """A view with the progress of its columns, where it is a join or reads one."""
        block = self.inputs.block
        # An input that reads no stream never brings a late row.
        static = [each.static or self.reads_no_stream(each) for each in block.sources]
        live = [each for each, never in zip(block.sources, static, strict=True) if not never]
        joints = [known.progress.joint for each in live if isinstance(known := self.inputs.known(each), View)]
        if block.limited or (len(live) < 2 and not any(joints)) or any(each.scan is None for each in live):
            return view
        calls = {
            name: 1
            for name, expr in self.inputs.shown(view.fields)
            if len(live) > 1
            and (call := time_call(expr)) is not None
            and all(each.column and self.inputs.shift(each.column) == 1 for each in call[1])
        }
        keys = {key.name: part.expr for key, part in zip(view.keying.columns, keying.parts, strict=False)}
        sources = tuple(replace(each, static=never) for each, never in zip(block.sources, static, strict=True))
        pairs = list(zip(block.sources, static, strict=True))
        times = [
            frozenset() if never else self.inputs.columns_named(each, self.inputs.bounded_times(each))
            for each, never in pairs
        ]
        placeholders = ["" if never else self.inputs.input_of(each) for each, never in pairs]
        inner = all(each is None or each.inner for each in joints)
        join = Join(replace(block, sources=sources), placeholders, times, inner)
        found = find_joint_progress(
            join, replace(view, progress=replace(view.progress, times={**view.progress.times, **calls})), keys
        )
        known = found.behind if found is not None else {}
        return replace(
            view,
            progress=replace(
                view.progress,
                joint=found,
                times={**view.progress.times, **{name: 1 for name in calls if name in known}},
            ),
        )

    def reads_no_stream(self, item: FromItem) -> bool:
        known = self.inputs.known(item)
        return isinstance(known, View) and self.inputs.nodes.reads_no_stream(known)
