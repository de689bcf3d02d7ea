"""What `COUNTING n` counts, for a query that reads more than the rows of one stream.

    SELECT a.k, sum(b.v) AS v FROM a JOIN b ON a.id = b.id GROUP BY a.k TRIGGER COUNTING 3

is planned as

    SELECT `__r0` AS `k`, sum(`__r1`) AS v FROM
      (SELECT `a`.`k` AS `__r0`, `b`.`v` AS `__r1`, `a`._row_num AS `__part0_a`, `b`._row_num AS `__part1_b`
       FROM a JOIN b ON a.id = b.id) AS `__records`
    GROUP BY `__r0` TRIGGER COUNTING 3

so that each record is a row of the query inside, and knows the numbers of the rows that it is made of: it comes when
the last of them does. Common table expressions, and views that show all records of their streams, are put in their
places. That is for inner joins and UNION ALL.

Whatever can take a row back, or makes one of several, has no such numbers. There the query inside is a node whose
changes are counted run by run. A query that cannot be written like this stays as it is, and so are its inputs counted.

Where rows meet static tables once, in the run that takes them in, the query inside is called `__met`: its rows are
kept as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.plan.bind import Binder, Reference
from anabranch.plan.blocks import aggregates_in, find_block
from anabranch.plan.bridge import normalized
from anabranch.plan.catalog import WINDOW_COLUMNS, Catalog, Field, Rows, View
from anabranch.plan.in_place import places_in, query_in_place, without_ctes
from anabranch.plan.inputs import limited
from anabranch.plan.inside import RECORDS, Inside, check_plain, relations_under
from anabranch.plan.parts import MET
from anabranch.plan.rewriting import rewritten, rewritten_throughout
from anabranch.plan.rules import Rule
from anabranch.plan.rules.decorrelate import decorrelate
from anabranch.plan.rules.merge_projections import merge_projections
from anabranch.plan.scope import Unfit, shown_types
from anabranch.plan.views import Surroundings
from anabranch.plan.with_numbers import Numbered
from anabranch.sql.calls import clock_calls
from anabranch.sql.cursor import MAX_QUERIES
from anabranch.sql.lexer import Span, quote_name, tokenize
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import CreateView, Query, Select, SelectStatement


@dataclass(frozen=True)
class Counted:
    """A query with the records that its triggers count in queries of their own, and the ids of views in these."""

    text: str
    query: Query
    included: tuple[str, ...] = ()


def count_records(text: str, query: Query, catalog: Catalog, world: Surroundings, fields: Sequence[Field]) -> Counted:
    """The query with its records. `fields` are its columns: where it would have others, it stays as it is."""
    found = Counted(text, query)
    for index in range(len(counting(query))):
        for way in (_ByNumbers, _ByChanges):
            try:
                made = way(found, index, catalog, world)
                made.rewrite()
                # Spark must take it like this, and give it the columns that it had.
                changed = made.text != found.text
                if changed and shown_types(made.binder, world.analyze) != [field.type for field in fields]:
                    raise Unfit
            except (Unfit, AnabranchError):  # what is wrong with the query itself is found where it is planned
                continue
            included = dict.fromkeys((*found.included, *made.included))
            found = Counted(made.text, made.query, tuple(included))
            break
    return found


def counting(query: Query) -> list[Query]:
    """The queries whose triggers count records."""
    found = [each for each in query.queries() if each.emission is not None and isinstance(each.body, Select)]
    return [each for each in found if each.emission is not None and (each.emission.counting or 1) > 1]


class _Way:
    """One query with such a trigger, being written in other words."""

    def __init__(self, found: Counted, index: int, catalog: Catalog, world: Surroundings) -> None:
        self.text = found.text
        self.query = found.query
        self.index = index
        self.catalog = catalog
        self.world = world
        self.included: list[str] = []

    def rewrite(self) -> None:
        raise NotImplementedError

    @property
    def owner(self) -> Query:
        return counting(self.query)[self.index]

    @property
    def select(self) -> Select:
        body = self.owner.body
        assert isinstance(body, Select)
        return body

    @property
    def binder(self) -> Binder:
        return Binder(self.text, self.catalog, self.query)

    def _edit(self, edits: Iterator[Edit] | Sequence[Edit]) -> None:
        self.text, self.query = rewritten(self.text, self.query, list(edits))

    def _apply(self, rule: Rule) -> None:
        self.text, self.query = normalized(self.text, self.query, self.catalog, self.world.analyze, (rule,))

    def _reads_one_stream(self) -> bool:
        """Whether it reads the rows of one stream, which are in their order, and makes no others of them."""
        select = self.select
        if len(select.relations) != 1:
            return False
        reference = self.binder.resolve(select.relations[0])
        asks = any(self.binder.is_live(each) for inner in select.subqueries for each in inner.relations())
        made = select.distinct or select.lateral or asks or not select.group_plain
        return reference is not None and reference.kind != "view" and not made and not _in_several_windows(select)

    def _put_inside(self) -> None:
        """What it aggregates, as a query inside."""
        if self.select.tail or any(item.star for item in self.select.items):
            raise Unfit
        block = find_block(self.select, self.owner, self.binder, self.world.analyze, self.world.loads)
        name = MET if not isinstance(block, str) and block.statics else RECORDS
        self._edit(Inside(self.select, self.owner, self.binder, name).edits())


class _ByChanges(_Way):
    """What it aggregates, as a query inside whose changes are counted."""

    def rewrite(self) -> None:
        self._apply(decorrelate)
        select = self.select
        if len(select.relations) > 1 or select.subqueries or select.lateral:
            self._put_inside()


class _ByNumbers(_Way):
    """Records with the numbers of the rows that they are made of."""

    def rewrite(self) -> None:
        if self._reads_one_stream():
            return
        before = read_names(self.query)
        self._put_in_place()
        inner = (each.subquery for each in relations_under(self.select) if each.subquery is not None)
        if any(emission.by_key for each in inner for emission in each.emissions()):
            raise Unfit  # answers that wait to be shown come when they are ready
        for _ in range(MAX_QUERIES):
            edits = list(self._views())
            if not edits:
                break
            self._edit(edits)
        if self.included:
            self._apply(merge_projections)
        if self._reads_one_stream():
            return
        self._fit()
        if not self._reads_one_query():
            self._put_inside()
        self._edit(Numbered(self.binder).edits(self.select.relations))
        self.text, self.query = without_unread(self.text, self.query, before)

    def _reads_one_query(self) -> bool:
        select = self.select
        if len(select.relations) > 1:
            return False
        check_plain(select.relations[0])
        return select.relations[0].subquery is not None

    def _fit(self) -> None:
        """Refuse what makes other rows than a join does, or reads them in another way than a group."""
        select, owner = self.select, self.owner
        grouped = bool(select.group or aggregates_in(select, owner) or limited(owner))
        clock = any(clock_calls(tokenize(select.span.of(self.text))))
        if not grouped or clock or not select.group_plain:
            raise Unfit
        if select.distinct or select.tail or select.lateral or select.subqueries:
            raise Unfit

    # ---- names of queries

    def _put_in_place(self) -> None:
        """The queries behind the names of common table expressions, in their places."""
        if not (self.query.cte_names() or self.query.dropped):
            return
        places, body = places_in(self.text, self.query), self.owner.body.span
        edits = [edit for start, each in places.items() if body.start <= start < body.end for edit in each]
        if self.owner is self.query and not any(inner.emits for _, inner in self.query.ctes):
            edits.append(without_ctes(self.text, self.query))
        self._edit(edits)

    def _views(self) -> Iterator[Edit]:
        """The queries behind the names of views, in their places."""
        binder = self.binder
        for relation in relations_under(self.select):
            reference = binder.resolve(relation) if relation.kind == "name" else None
            if reference is None or reference.kind != "view" or relation.name is None:
                continue
            # A window function stands around the name, and its windows are called like what they are of.
            name = f" AS {quote_name(relation.exposed or '')}" if relation.alias is None else ""
            yield Edit(relation.name.span, f"({self._view(reference)})", relation.span)
            yield Edit(Span(relation.span.end, relation.span.end), name, relation.span)

    def _view(self, reference: Reference) -> str:
        """The query of a view that shows each record that its streams ever made."""
        view = self.catalog.objects[reference.target]
        assert isinstance(view, View)
        if view.emit not in ("read", "feed") or view.stream or view.start != "beginning" or self._meets_tables(view):
            raise Unfit
        if any(self.catalog.stream(id).kept_since != 0 for id in self.catalog.sources_of(view)):
            raise Unfit
        (statement,) = parse(view.sql)
        assert isinstance(statement, CreateView | SelectStatement)
        text, query = statement.text, statement.query
        names = {each.name.last.lower() for each in query.relations() if each.name is not None}
        if query.cte_names() or query.dropped:
            names -= query.cte_names()
            text = query_in_place(text, query)
            (statement,) = parse(text)
            assert isinstance(statement, SelectStatement)
            text, query = statement.text, statement.query
        if names & self.query.cte_names():  # which would mean something else here
            raise Unfit
        self.included.append(view.id)
        ends = [each for each in (query.order, query.emission) if each is not None]
        spans = [each if isinstance(each, Span) else each.span for each in (ends[1:] if limited(query) else ends)]
        return text[query.span.start : min((span.start for span in spans), default=query.span.end)]

    def _meets_tables(self, view: View) -> bool:
        """Whether rows of a view have met static tables, in the run that took them in: they stay as they were then."""
        nodes = [view, *self.catalog.nodes_of(view)]
        rows = [self.catalog[each.rows] for each in nodes if each.rows is not None]
        return any(each.tables for each in nodes) or any(isinstance(each, Rows) and each.statics for each in rows)


def read_names(query: Query) -> set[str]:
    """The names of all relations that are read."""
    return {each.name.last.lower() for each in query.relations() if each.name is not None}


def without_unread(text: str, query: Query, before: set[str]) -> tuple[str, Query]:
    """The query with common table expressions that read nothing, where nobody reads them any more."""
    nothing = "SELECT 1"

    def unread(text: str, query: Query) -> list[Edit]:
        names = before - read_names(query)
        ctes = [(name.lower(), inner.span) for each in query.queries() for name, inner in each.ctes]
        return [Edit(span, nothing) for name, span in ctes if name in names and span.of(text) != nothing]

    return rewritten_throughout(text, query, unread)


def _in_several_windows(select: Select) -> bool:
    """Whether a row of a stream can be in a group more than once: windows that overlap do not keep groups apart."""
    (relation,) = select.relations
    grouped = {token.name.lower() for group in select.group for token in group.tokens if token.is_name}
    return relation.window is not None and relation.window.kind != "tumble" and not grouped & set(WINDOW_COLUMNS)
