"""Records that a trigger counts one by one, where they come from several streams: those of joins and of UNION ALL.

    SELECT a.k, sum(b.v) AS v FROM a JOIN b ON a.id = b.id GROUP BY a.k TRIGGER COUNTING 3

is planned as

    SELECT `__r0` AS `k`, sum(`__r1`) AS v FROM
      (SELECT `a`.`k` AS `__r0`, `b`.`v` AS `__r1`, `a`._row_num AS `__part0_a`, `b`._row_num AS `__part1_b`
       FROM a JOIN b ON a.id = b.id) AS `__records`
    GROUP BY `__r0` TRIGGER COUNTING 3

so that each record is a row of the query inside, and knows the numbers of the rows that it is made of: it comes when
the last of them does. Common table expressions, and views that show all records of their streams, are put in their
places. Whatever gives a row and takes it back, or makes one of several, has no such records, and the query stays as
it is, or, where its rows come and go, is counted by its history.

Where rows meet static tables once, in the run that takes them in, the query inside is called `__met0`: its rows are
kept as they are then, and the history is told by these. Other tables are read as they are, by the query and by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from anabranch.errors import AnabranchError
from anabranch.plan.bind import Binder, Reference
from anabranch.plan.blocks import aggregates_in, find_block
from anabranch.plan.catalog import ORDERED, WINDOW_COLUMNS, Catalog, Field, Panes, Rows, Stream, Table, View
from anabranch.plan.expanded import Expanded
from anabranch.plan.flat import read_names, without_unread
from anabranch.plan.histories import history
from anabranch.plan.in_place import places_in, query_in_place, without_ctes
from anabranch.plan.inside import Inside, check_plain, columns_of, relations_under
from anabranch.plan.keys import limited
from anabranch.plan.local_histories import means_the_same
from anabranch.plan.other_words import in_other_words
from anabranch.plan.parts import MET, parts_of, stays_met
from anabranch.plan.rewriting import rewritten
from anabranch.plan.scope import Unfit, shown_types
from anabranch.plan.spelled import distinct_as_groups, spelled_out
from anabranch.plan.subqueries import without_subqueries
from anabranch.plan.views import Surroundings
from anabranch.plan.with_numbers import Numbered
from anabranch.sql.calls import clock_calls
from anabranch.sql.cursor import MAX_QUERIES
from anabranch.sql.lexer import Span, quote_name, tokenize, words
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import CreateView, Query, Relation, Select, SelectStatement

#: Aggregates whose value depends on the order of rows in its last digits, or by how they are summed up.
_SKETCHED = words("approx_percentile percentile_approx")
_ADDED = _SKETCHED | words(
    """avg corr covar_pop covar_samp kurtosis mean regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy skewness std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance"""
)


@dataclass(frozen=True)
class Told:
    """The history of a query as Spark SQL, and what is behind its placeholders.

    Rows that stay as they have met static tables are like those of a stream, whose id is the column with their numbers.
    `alike`: the query itself, of which this is the history, reads streams alone and means the same in DuckDB. `rounds`:
    its values depend on the order in which rows are added up.
    """

    text: str
    streams: Mapping[str, str]
    tables: Mapping[str, str] = field(default_factory=dict)
    alike: bool = False
    rounds: bool = False


@dataclass(frozen=True)
class Counted:
    """A query with the records that its triggers count in queries of their own, and the ids of views in these.

    Where records come and go, `told` has the history that they are counted by, for each query that counts by its place
    among these. `reason` says why that cannot be, where it cannot; `waits`, that it is all about answers that wait to
    be shown. `tables_at` are the versions of static tables that rows of views in it have met.
    """

    text: str
    query: Query
    included: tuple[str, ...] = ()
    told: Mapping[int, Told] = field(default_factory=dict)
    reason: str = ""
    waits: bool = False
    tables_at: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def count_records(text: str, query: Query, catalog: Catalog, world: Surroundings, fields: Sequence[Field]) -> Counted:
    """The query with its records. `fields` are its columns: where it would have others, it stays as it is."""
    found = Counted(text, query, waits=True)
    for index in range(len(counting(query))):
        made = _one(found, index, catalog, world, fields)
        if made.reason and not made.waits:  # a condition that asks another query is a join in other words
            joined = without_subqueries(found.text, found.query, catalog, world.analyze)
            again = _one(replace(found, text=joined[0], query=joined[1]), index, catalog, world, fields, words=True)
            made = replace(made, reason=again.reason, waits=again.waits) if again.reason else again
        found = replace(
            made,
            included=(*found.included, *made.included),
            told={**found.told, **made.told},
            reason=found.reason or made.reason,
            tables_at={**found.tables_at, **made.tables_at},
            waits=found.waits and (made.waits or not made.reason),
        )
    return replace(found, included=tuple(dict.fromkeys(found.included)), waits=found.waits and bool(found.reason))


def _one(
    found: Counted, index: int, catalog: Catalog, world: Surroundings, fields: Sequence[Field], *, words: bool = False
) -> Counted:
    """One of the queries with such triggers, in other words; with `words`, whatever it takes (`in_other_words`)."""
    left = replace(found, included=(), told={}, reason="", waits=False)
    try:
        made = _Counting(found.text, found.query, index, catalog, world, words=words)
        # Spark must take it like this, and give it the columns that it had.
        if shown_types(made.binder, world.analyze) != [field.type for field in fields]:
            return replace(left, reason="it would have columns of other types")
    except _Ordered:
        return left
    except Unfit as error:
        reason = str(error) or "it cannot be written in other words"
        return replace(left, reason=reason, waits=isinstance(error, _Waits))
    except AnabranchError as error:  # what is wrong with the query itself is found where it is planned
        return replace(left, reason=error.message)
    told = {index: made.told} if made.told is not None else {}
    return Counted(made.text, made.query, tuple(made.included), told, tables_at=made.tables_at)


class _Waits(Unfit):
    """What is counted are answers that a view shows when they are ready, and how often depends on its runs."""


class _Ordered(Unfit):
    """What is counted are the rows of one stream, which are in their order as they are."""


def counting(query: Query) -> list[Query]:
    """The queries whose triggers count records."""
    found = [each for each in query.queries() if each.emission is not None and isinstance(each.body, Select)]
    return [each for each in found if each.emission is not None and (each.emission.counting or 1) > 1]


class _Counting:
    """One query with such a trigger, in other words."""

    def __init__(
        self, text: str, query: Query, index: int, catalog: Catalog, world: Surroundings, *, words: bool
    ) -> None:
        self.text = text
        self.query = query
        self.index = index
        self.catalog = catalog
        self.world = world
        self.analyze = world.analyze
        self.words = words
        self.met = count()  # queries whose rows stay as they have met static tables
        self.tables_at: dict[str, tuple[int, int]] = {}  # the versions of tables that views below have met
        self.included: list[str] = []
        self.told: Told | None = None
        self._refuse_one_stream()
        before = read_names(query)
        references = [self.binder.resolve(each) for each in query.relations()]
        self._put_in_place()
        inner = (each.subquery for each in relations_under(self.select) if each.subquery is not None)
        if any(emission.by_key for each in inner for emission in each.emissions()):
            raise _Waits("a query inside shows its answers when they are ready")
        for _ in range(MAX_QUERIES):
            edits = list(self._views(self.select))
            if not edits:
                break
            self._rewrite(edits)
        for id in {each.target for each in references if each is not None} & set(self.tables_at):
            if self.tables_at[id][1] != world.table_at(id)[1]:
                raise Unfit(f"table {self._name(id)} as it is, beside a view that has met it as it was")
        if words:
            self._spell_out()
        self._fit()
        self._meet_once()
        if not self.select.group_plain:
            self._rewrite(Expanded(self.select, self.owner, self.binder, self.analyze).edits())
        if not self._reads_one_query():
            self._rewrite(Inside(self.select, self.owner, self.binder).edits())
        (relation,) = self.select.relations
        try:
            self._rewrite(list(Numbered(self.binder).edits([relation])))
        except Unfit:  # rows that are given can be taken back, or one is made of several
            self._rewrite(list(Numbered(self.binder).edits(self._met())))
            self.told = self._told()
        self.text, self.query = without_unread(self.text, self.query, before)

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

    def _rewrite(self, edits: Iterator[Edit] | Sequence[Edit]) -> None:
        self.text, self.query = rewritten(self.text, self.query, list(edits))

    def _refuse_one_stream(self) -> None:
        """The rows of one stream are in their order anyway, where nothing makes others of them."""
        select = self.select
        if len(select.relations) != 1:
            return
        reference = self.binder.resolve(select.relations[0])
        asks = any(self.binder.is_live(each) for inner in select.subqueries for each in inner.relations())
        made = select.distinct or select.lateral or asks or not select.group_plain
        if reference is not None and reference.kind != "view" and not made and not _in_several_windows(select):
            raise _Ordered

    def _reads_one_query(self) -> bool:
        select = self.select
        if len(select.relations) > 1 or select.subqueries or select.lateral:
            return False
        check_plain(select.relations[0])
        return select.relations[0].subquery is not None

    def _spell_out(self) -> None:
        """The columns of the query one by one, and DISTINCT as groups."""

        def place(query: Query) -> Span:
            return counting(query)[self.index].body.span

        self.text, self.query = spelled_out(self.text, self.query, self.catalog, place, place)
        if self.select.distinct:
            self._rewrite(distinct_as_groups(self.text, self.select, self.owner))

    def _fit(self) -> None:
        select, owner = self.select, self.owner
        for there, what in (
            (select.distinct, "DISTINCT beside the trigger"),
            (
                not (select.group or aggregates_in(select, owner) or limited(owner)),
                "it has neither groups nor aggregates",
            ),
            (select.tail, "QUALIFY, WINDOW or SORT BY"),
            (select.lateral and not self.words, "LATERAL VIEW"),
            (select.subqueries and not self.words, "a subquery in an expression"),
            (not select.group_plain and not self.words, "several sets of groups"),
            (any(item.star for item in select.items), "* beside aggregates"),
            (any(clock_calls(tokenize(select.span.of(self.text)))), "a function of the clock"),
        ):
            if there:
                raise Unfit(what)

    def _told(self) -> Told:
        """The history of the query that records come from."""
        met = {quote_name(each.exposed or ""): each for each in self._met()}
        catalog = self.catalog.with_objects([self._as_stream(each) for each in met.values()])
        edits = [Edit(each.span, name) for name, each in met.items()]
        text, query = rewritten(self.text, self.query, edits)
        body = counting(query)[self.index].body
        assert isinstance(body, Select)
        (relation,) = body.relations
        if relation.subquery is None:
            raise Unfit
        inner, binder = relation.subquery, Binder(text, catalog, query)
        written = inner.span.of(text)
        if self.words:
            text, inner = in_other_words(written, catalog, self.analyze)
            binder = Binder(text, catalog, inner)
        found = history(text, inner, binder, self.analyze)
        (statement,) = parse(found.text)
        assert isinstance(statement, SelectStatement)
        bound = Binder(found.text, catalog, statement.query).bind()
        read = {each: catalog.objects[reference.target] for each, reference in bound.references.items()}
        streams = {
            each: known for each, known in read.items() if isinstance(known, Stream) and each.startswith(ORDERED)
        }
        tables = {each: known for each, known in read.items() if isinstance(known, Table)}
        if len(streams) + len(tables) < len(read):
            raise Unfit("something that is neither a stream nor a table")
        fields = {each: known.seen_as(each) for each, known in streams.items()}
        fields |= {each: known.fields for each, known in tables.items()}
        shown = self.analyze(bound.text.text, fields)
        same = inner.span.of(text) == written  # other words are for Spark
        alike = same and not tables and not met
        if alike:
            columns = [field for known in fields.values() for field in known]
            alike = means_the_same(binder.bind(inner.span).text.text, columns)
        ids = [{each: known.id for each, known in found.items()} for found in (streams, tables)]
        return Told(bound.text.text, ids[0], ids[1], alike, _rounds(written, shown))

    # ---- rows that meet static tables once

    def _meet_once(self) -> None:
        """Have the rows of aggregates that are kept as partials, of a stream and static tables, in queries inside.

        There a row meets a table in the run that takes it in, and stays as it was then, as in any view of this query.
        """
        for _ in range(MAX_QUERIES):
            found = next(self._aggregates_of_met(), None)
            if found is None:
                break
            self._rewrite(Inside(*found, self.binder, MET.format(next(self.met))).edits())

    def _aggregates_of_met(self) -> Iterator[tuple[Select, Query]]:
        binder, around = self.binder, self.select.span
        for select, owner in self.query.selects():
            inside = around.start <= select.span.start and select.span.end <= around.end
            if inside and not all(binder.is_live(each) for each in select.relations):
                block = find_block(select, owner, binder, self.analyze, self.world.loads)
                if not isinstance(block, str) and block.statics:
                    yield select, owner

    def _met(self) -> list[Relation]:
        """The queries whose rows stay as they have met static tables; without those inside others."""
        found = [each for each in relations_under(self.select) if stays_met(each)]
        spans = [each.span for each in found]
        return [
            each
            for each in found
            if not any(span.start < each.span.start and each.span.end <= span.end for span in spans)
        ]

    def _as_stream(self, relation: Relation) -> Stream:
        """Such a query as if it were a stream: rows come to it, each at its place, and none goes."""
        assert relation.subquery is not None
        names = columns_of(relation, self.binder)
        types = shown_types(Binder(self.text, self.catalog, relation.subquery), self.analyze)
        fields = tuple(Field(*each) for each in zip(names, types, strict=True))
        parts = parts_of(names)
        times = {self.catalog.stream(id).time for id in parts.values()}
        time = next((name for name in names if name in times), None)
        return Stream(min(parts), relation.exposed or "", "", fields, time, None, None, None, None, {}, "all", False)

    # ---- names of queries

    def _put_in_place(self) -> None:
        """The queries behind the names of common table expressions, in their places."""
        if not (self.query.cte_names() or self.query.dropped):
            return
        places, body = places_in(self.text, self.query), self.owner.body.span
        edits = [edit for start, each in places.items() if body.start <= start < body.end for edit in each]
        if self.owner is self.query and not any(inner.emits for _, inner in self.query.ctes):
            edits.append(without_ctes(self.text, self.query))
        self._rewrite(edits)

    def _views(self, select: Select) -> Iterator[Edit]:
        """The queries behind the names of views, in their places."""
        binder = self.binder
        for relation in relations_under(select):
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
        if view.emit not in ("read", "feed") or view.stream:
            raise _Waits(f"view {view.name} shows its answers when they are ready")
        if view.start != "beginning":
            raise Unfit(f"view {view.name} does not show all rows of its streams")
        stays = self._meets_once(view)
        if any(self.catalog.stream(id).kept_since != 0 for id in self.catalog.sources_of(view)):
            raise Unfit(f"the streams of view {view.name} do not keep all their rows")
        (statement,) = parse(view.sql)
        assert isinstance(statement, CreateView | SelectStatement)
        text, query = statement.text, statement.query
        if self.words:
            text, query = without_subqueries(text, query, self.catalog, self.analyze)
        taken = self.query.cte_names()
        names = {each.name.last.lower() for each in query.relations() if each.name is not None}
        if query.cte_names() or query.dropped:
            names -= query.cte_names()
            text = query_in_place(text, query)
            (statement,) = parse(text)
            assert isinstance(statement, SelectStatement)
            text, query = statement.text, statement.query
        if names & taken:
            raise Unfit(f"view {view.name} reads {min(names & taken)}, which is a common table expression here")
        self.included.append(view.id)
        ends = [each for each in (query.order, query.emission) if each is not None]
        spans = [each if isinstance(each, Span) else each.span for each in (ends[1:] if limited(query) else ends)]
        inner = text[query.span.start : min((span.start for span in spans), default=query.span.end)]
        if not stays:
            return inner
        shown = ", ".join(quote_name(each.name) for each in view.fields)
        return f"SELECT {shown} FROM ({inner}) AS {quote_name(MET.format(next(self.met)))}"

    def _meets_once(self, view: View) -> bool:
        """Whether a view is of rows that have met static tables once; of which versions is noted."""
        nodes = [view, *self.catalog.nodes_of(view)]
        rows = [self.catalog[each.rows] for each in nodes if each.rows is not None]
        panes = [self.catalog.panes(use.panes) for each in nodes for use in each.blocks]
        for each in (*nodes, *rows, *panes):
            assert isinstance(each, View | Rows | Panes)
            again = isinstance(each, View) and not each.meets_once  # as often as a table is refreshed
            for id, at in each.statics_at.items():
                if each.refreshed and not again:
                    raise Unfit(f"view {view.name} has rows that met table {self._name(id)} before it was refreshed")
                if self.tables_at.setdefault(id, at)[1] != at[1]:
                    raise Unfit(f"views that have met table {self._name(id)} at different times")
        return any(isinstance(each, Rows) and bool(each.statics) for each in rows) or (
            view.meets_once and bool(view.tables)
        )

    def _name(self, id: str) -> str:
        table = self.catalog.objects[id]
        assert isinstance(table, Table)
        return table.name


def _rounds(text: str, shown: Sequence[Field]) -> bool:
    """Whether two who compute the same of a query may differ in the last digits."""
    inexact = any("double" in each.type or "float" in each.type for each in shown)
    return any(
        token.text.lower() in (_ADDED if inexact else _SKETCHED) and bracket.text == "("
        for token, bracket in pairwise(tokenize(text))
    )


def _in_several_windows(select: Select) -> bool:
    """Whether a row of a stream can be in a group more than once: windows that overlap do not keep groups apart."""
    (relation,) = select.relations
    grouped = {token.name.lower() for group in select.group for token in group.tokens if token.is_name}
    return relation.window is not None and relation.window.kind != "tumble" and not grouped & set(WINDOW_COLUMNS)
