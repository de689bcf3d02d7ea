"""The definitions of one version of a home, by id and by name, and what depends on what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, TypeVar

from anabranch.plan.definitions import Function, Sink, Stream, Table
from anabranch.plan.states import Panes, Rows
from anabranch.plan.stored import Object, from_json
from anabranch.plan.view import View

T = TypeVar("T")


class Catalog:
    """The definitions of one version, by id and by name."""

    def __init__(self, definitions: Mapping[str, Mapping[str, Any]]) -> None:
        self._hold({id: from_json(values) for id, values in definitions.items()})

    @classmethod
    def holding(cls, objects: Mapping[str, Object]) -> Catalog:
        """A catalog of decoded definitions."""
        made = cls({})
        made._hold(objects)
        return made

    def _hold(self, objects: Mapping[str, Object]) -> None:
        self.objects = dict(objects)
        self._named = {
            each.name.lower(): each
            for each in self.objects.values()
            if isinstance(each, Stream | Table) or (isinstance(each, View) and each.owner is None)
        }
        self._sinks = {each.name.lower(): each for each in self.objects.values() if isinstance(each, Sink)}
        self.temporary: frozenset[str] = frozenset()  # names of readable temporary views of Spark's

    def with_objects(self, objects: Iterable[Object]) -> Catalog:
        """The same catalog with definitions added or replaced."""
        return Catalog.holding({**self.objects, **{each.id: each for each in objects}})

    def after(self, changes: Mapping[str, Mapping[str, Any] | None]) -> Catalog:
        """The catalog after a commit has added, replaced or dropped definitions."""
        kept = {id: each for id, each in self.objects.items() if id not in changes}
        return Catalog.holding(kept | {id: from_json(each) for id, each in changes.items() if each is not None})

    def with_temporary(self, names: Iterable[str]) -> Catalog:
        """The same catalog with the temporary views of Spark's."""
        made = copy(self)
        made.temporary = frozenset(names)
        return made

    def __getitem__(self, id: str) -> Object:
        return self.objects[id]

    def find(self, name: str) -> Stream | Table | View | None:
        """The readable object of this name."""
        return self._named.get(name.lower())

    def find_any(self, name: str) -> Stream | Table | View | Sink | None:
        """The object of this name; sinks share a namespace with readable objects."""
        return self.find(name) or self._sinks.get(name.lower())

    def function(self, name: str) -> Function | None:
        """A function of the home; functions have a namespace of their own."""
        return next((each for each in self.of(Function) if each.name.lower() == name.lower()), None)

    def names(self) -> list[str]:
        return sorted(each.name for each in self._named.values())

    def of(self, kind: type[T]) -> Iterator[T]:
        for each in self.objects.values():
            if isinstance(each, kind):
                yield each

    def stream(self, id: str) -> Stream:
        return self._as(id, Stream)

    def view(self, id: str) -> View:
        return self._as(id, View)

    def panes(self, id: str) -> Panes:
        return self._as(id, Panes)

    def rows_of(self, id: str) -> tuple[str, str | None]:
        """The table with the rows of a stream or the changes of a view, and its event time column."""
        found = self.objects[id]
        if isinstance(found, Stream):
            return found.rows_table, found.time
        view = self.view(id)
        return view.changes_table, view.time or None

    def _as(self, id: str, kind: type[T]) -> T:
        found = self.objects[id]
        assert isinstance(found, kind), f"{id} is not a {kind.__name__}"
        return found

    def sources_of(self, view: View) -> set[str]:
        """The ids of all streams that a view reads, directly or through views."""
        found = set(view.query.streams.values())
        found |= {self.panes(block.panes).stream for block in view.query.blocks}
        if view.query.rows is not None:
            found.add(self._as(view.query.rows, Rows).stream)
        for id in view.query.views.values():
            found |= self.sources_of(self.view(id))
        return found

    def event_times(self, ids: Iterable[str]) -> frozenset[str]:
        """The names of event times in streams and views, and in what those read."""
        found: set[str] = set()
        for id in ids:
            known = self.objects.get(id)
            if isinstance(known, Stream):
                found |= {known.time.lower()} if known.time is not None else set()
            elif isinstance(known, Panes | Rows):
                found |= self.event_times([known.stream])
            elif isinstance(known, View):
                query = known.query
                panes = (use.panes for use in query.blocks)
                rows = filter(None, [query.rows])
                found |= {name.lower() for name in known.progress.times}
                found |= self.event_times([*query.streams.values(), *query.views.values(), *panes, *rows])
        return frozenset(found)

    def below(self, view: View) -> set[str]:
        """The ids of all views that a view reads, directly or through views."""
        found = set(view.query.views.values())
        for id in view.query.views.values():
            found |= self.below(self.view(id))
        return found

    def readers_of(self, id: str) -> list[View | Sink]:
        """The views that read a stream, table or view, and the sinks of a view."""
        found: list[View | Sink] = [sink for sink in self.of(Sink) if sink.view == id]
        for view in self.of(View):
            used = {
                *view.query.streams.values(),
                *view.query.tables.values(),
                *view.query.views.values(),
                *view.query.included,
            }
            for block in view.query.blocks:
                panes = self.panes(block.panes)
                used |= {panes.stream, *panes.statics.values()}
            if view.query.rows is not None:
                rows = self._as(view.query.rows, Rows)
                used |= {rows.stream, *rows.statics.values()}
            if id in used:
                found.append(self.view(view.owner) if view.owner is not None else view)
        distinct = {each.id: each for each in found if each.id != id}
        return sorted(distinct.values(), key=lambda each: each.name)

    def root(self, view: View) -> View:
        """The user's view that owns a node."""
        return view if view.owner is None else self.view(view.owner)

    def users_of(self, state: Panes | Rows) -> list[View]:
        """The users' views that read a state table, directly or through partials derived from it."""
        found = {
            self.root(view).id: self.root(view)
            for view in self.of(View)
            if view.query.rows == state.id
            or any(state.id in (use.panes, self.kept_panes(use.panes)) for use in view.query.blocks)
        }
        return list(found.values())

    def all_below(self, view: View) -> list[View]:
        """The users' views among a view and all that it reads; itself first."""
        found: dict[str, View] = {}
        left = [self.root(view)]
        while left:
            root = left.pop(0)
            if root.id not in found:
                found[root.id] = root
                nodes = (root, *self.nodes_of(root))
                left += [self.root(self.view(id)) for node in nodes for id in node.query.views.values()]
        return list(found.values())

    def nodes_of(self, view: View) -> list[View]:
        """The hidden views that a view owns."""
        return [each for each in self.of(View) if each.owner == view.id]

    def tables_read(self, view: View) -> list[str]:
        """The ledger tables whose changes change what a view shows: panes, rows of streams, changes of views below."""
        tables = [self.kept_panes(use.panes) for use in view.query.blocks]
        tables += [self.stream(id).rows_table for id in dict.fromkeys(view.query.streams.values())]
        for id in dict.fromkeys(view.query.views.values()):
            below = self.view(id)
            tables += [below.changes_table] if below.kept else self.tables_read(below)
        return tables

    def in_order(self) -> list[View]:
        """All views in topological order: each after its inputs."""
        done: dict[str, View] = {}

        def add(view: View) -> None:
            if view.id not in done:
                for id in view.query.views.values():
                    add(self.view(id))
                done[view.id] = view

        for view in self.of(View):
            add(view)
        return list(done.values())

    def kept_panes(self, id: str) -> str:
        """The pane table whose files hold the partials of a pane table: itself, or the one that they derive from."""
        above = self.panes(id).above
        return above.panes if above is not None else id

    def states_of(self, stream_id: str) -> list[Panes | Rows]:
        """The state tables that a run of a stream feeds."""
        states = [each for each in self.objects.values() if isinstance(each, Panes | Rows)]
        return [each for each in states if each.stream == stream_id and getattr(each, "above", None) is None]
