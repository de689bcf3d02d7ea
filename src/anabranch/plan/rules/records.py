"""The records that `COUNTING n` counts, for a query that reads more than the rows of one stream:

    SELECT a.k, sum(b.v) AS v FROM a JOIN b ON a.id = b.id GROUP BY a.k TRIGGER COUNTING 3

is

    SELECT k, sum(v) AS v
    FROM (SELECT a.k, b.v, a._row_num AS __part0_a, b._row_num AS __part1_b FROM a JOIN b ON a.id = b.id) AS __records
    GROUP BY k TRIGGER COUNTING 3

so that each record is a row of the inner query, with the numbers of its source rows: it arrives with the last of them.
This works for inner joins and UNION ALL, also through views that show all records of their streams.

Queries that can retract a row, or merge several into one, have no such numbers. There the inner query is a node whose
changes are counted run by run.

Where rows are joined with static tables once, in the run that takes them in, the inner query is labelled `__met`: its
rows are kept as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from anabranch.algebra import aggregates
from anabranch.ir.build import NUMBERS, event_times
from anabranch.ir.expr import Call, Column, Expr, of_column
from anabranch.ir.rel import (
    Aggregate,
    Computed,
    Emit,
    Filter,
    Generate,
    Join,
    Project,
    Rel,
    Scan,
    SetOp,
    TopN,
    Windowed,
    is_live,
)
from anabranch.plan.record_parts import MET, PART, RECORDS
from anabranch.plan.rules import RuleContext
from anabranch.plan.rules.merge_projections import joined_kinds, merge_projections, names_fields
from anabranch.sql.calls import clock_calls
from anabranch.sql.lexer import tokenize

_ROW_NUM = NUMBERS[0]
#: Aggregates that pick a row or list values, by event time and then by all columns.
_PICKS = ("first", "first_value", "any_value", "last", "last_value", "min_by", "max_by")
_LISTS = ("collect_list", "array_agg", "listagg", "string_agg")


class _NotNumbered(Exception):
    """The input of a query has no row numbers: it can retract rows, or merges several into one."""


def number_records(rel: Rel, context: RuleContext) -> Rel | None:
    """Give the records of a query with TRIGGER COUNTING the numbers of their source rows."""
    found = _counted(rel)
    if found is None or found.source.label in (RECORDS, MET) or _reads_one_stream(found.node, found.source):
        return None
    if _has_subqueries(found.node, *found.above) or _reads_clock(rel):
        return None
    numbering = _Numbering(context)
    try:
        expanded = numbering.expanded(found.source)
        if expanded is not found.source:
            node = found.over(expanded)
            node = merge_projections(node, context) or node
            if _reads_one_stream(node, _source(node)):
                return found.put(node)
            found = replace(found, node=node)
        source, parts = numbering.numbered(found.source)
    except _NotNumbered:
        return None
    return _with_records(found, source, parts, context)


def separate_counted(rel: Rel, context: RuleContext) -> Rel | None:
    """Give the input of the aggregate of a query with TRIGGER COUNTING a node of its own, whose changes are counted."""
    found = _counted(rel)
    if found is None or found.source.label in (RECORDS, MET):
        return None
    from_clause = found.source
    while isinstance(from_clause, Filter) and not _has_subqueries(from_clause):
        from_clause = from_clause.input
    several = isinstance(from_clause, Filter | Join | Generate) and from_clause.label is None
    return _with_records(found, found.source, (), context) if several else None


@dataclass(frozen=True)
class _Counted:
    """The node of a query that reads records, and the nodes above it, from the trigger down."""

    above: tuple[Rel, ...]
    node: Rel

    @property
    def source(self) -> Rel:
        return _source(self.node)

    def over(self, source: Rel) -> Rel:
        """The same node over other records."""
        return self.node.rebuilt(lambda below: source if below is self.source else below)

    def put(self, node: Rel) -> Rel:
        """The whole query with the node replaced by one with the same columns."""
        made = node
        for each in reversed(self.above):
            below = made
            made = each.rebuilt(lambda _, below=below: below)  # type: ignore[misc]
        return made


def _source(node: Rel) -> Rel:
    return node.inputs[0]


def _counted(rel: Rel) -> _Counted | None:
    """The aggregate of a query whose trigger counts; without one, the input of LIMIT."""
    if not isinstance(rel, Emit) or (rel.emission.counting or 1) < 2:
        return None
    above: list[Rel] = [rel]
    node, limited = rel.input, False
    while isinstance(node, Project | Filter | TopN) and node.label not in (RECORDS, MET):
        limited = limited or (isinstance(node, TopN) and node.limit is not None)
        if isinstance(node, Project) and limited and not isinstance(node.input, Project | Filter | TopN | Aggregate):
            return _Counted(tuple(above), node)
        above.append(node)
        node = node.input
    return _Counted(tuple(above), node) if isinstance(node, Aggregate) and not node.sets else None


def _reads_one_stream(node: Rel, source: Rel) -> bool:
    """Whether the node reads the rows of one stream, in order and each once."""
    while isinstance(source, Filter) and not any(is_live(inner.rel) for inner in source.condition.subqueries()):
        source = source.input
    windowed = source if isinstance(source, Windowed) else None
    scan = windowed.input if windowed is not None else source
    if not isinstance(scan, Scan) or scan.source.kind == "view":
        return False
    # With overlapping windows a row is in several groups.
    keys = [expr.column for _, expr in node.keys] if isinstance(node, Aggregate) else []
    return windowed is None or windowed.window.kind == "tumble" or bool(set(keys) & set(windowed.bounds))


def _has_subqueries(*nodes: Rel) -> bool:
    return any(True for node in nodes for expr in node.exprs() for _ in expr.subqueries())


def _reads_clock(rel: Rel) -> bool:
    texts = (" ".join(part for part in expr.parts if isinstance(part, str)) for expr in _exprs(rel))
    return any(any(clock_calls(tokenize(text))) for text in texts)


def _exprs(rel: Rel) -> Iterator[Expr]:
    for node in rel.walk():
        for expr in node.exprs():
            yield expr
            yield from (inner for call in expr.calls() for inner in call.exprs())


# ---- records


def _with_records(found: _Counted, source: Rel, parts: Sequence[Computed], context: RuleContext) -> Rel | None:
    """The query over its records: the columns that it reads, and the numbers of their source rows."""
    node = found.node
    read = list(
        dict.fromkeys(column for expr in node.exprs() for column in _in_order(expr) if column in source.columns)
    )
    calls = [call for _, call in node.calls] if isinstance(node, Aggregate) else []
    if any(call.name in (*_PICKS, *_LISTS) for call in calls):
        # Picking and listing order rows by more than the columns that the query names.
        times = set(_times(source))
        read = sorted(source.columns, key=lambda column: column not in times)
    names = [column.name.lower() for column in read]
    twice = {column: of_column(column) for column in read if names.count(column.name.lower()) > 1}
    if any(names_fields(expr, twice) for expr in node.exprs()):
        return None
    label = MET if _enriches_at_ingest(node, found.source, context) else RECORDS
    items = (*((column, of_column(column)) for column in read if column.name not in NUMBERS), *parts)
    return found.put(found.over(Project(source, items, label=label)))


def _times(rel: Rel) -> Iterator[Column]:
    """The event times of all relations of a FROM clause."""
    if isinstance(rel, Join | Filter):
        for each in rel.inputs:
            yield from _times(each)
    else:
        yield from event_times(rel.input if isinstance(rel, Windowed) else rel)


def _in_order(expr: Expr) -> Iterator[Column]:
    for part in expr.parts:
        if isinstance(part, Column):
            yield part
        elif isinstance(part, Call):
            for inner in part.exprs():
                yield from _in_order(inner)


def _enriches_at_ingest(node: Rel, source: Rel, context: RuleContext) -> bool:
    """Whether an aggregate would live on partials of one stream joined once with static tables."""
    while isinstance(source, Filter):
        source = source.input
    kinds = list(joined_kinds(source, outer=False))
    if not isinstance(node, Aggregate) or kinds.count("stream") != 1 or set(kinds) != {"stream", "table"}:
        return False
    args = [expr for _, call in node.calls for expr in call.args]
    types = dict(zip(args, context.types(args, source) if args else [], strict=True))
    return all(
        call.name in _PICKS
        or aggregates.find(call.name, distinct=call.distinct, argument_types=[types[arg] for arg in call.args])
        for _, call in node.calls
    )


# ---- numbers


@dataclass
class _Numbering:
    """Adds row numbers to the relations that records come from."""

    context: RuleContext
    names: list[str] = field(default_factory=list)

    def expanded(self, rel: Rel) -> Rel:
        """A relation with views replaced by their queries; the same object if it reads none."""
        if isinstance(rel, Scan):
            if rel.source.kind != "view":
                return rel
            made = self.context.expand(rel)
            if made is None:
                raise _NotNumbered
            return self.expanded(made)
        return rel.rebuilt(self.expanded)

    def numbered(self, rel: Rel) -> tuple[Rel, tuple[Computed, ...]]:
        """A relation with the numbers of the source rows of each of its rows, and the columns of these numbers."""
        if _has_subqueries(rel):
            raise _NotNumbered
        if isinstance(rel, Scan):
            return self._scan(rel)
        if isinstance(rel, Filter):
            source, parts = self.numbered(rel.input)
            return replace(rel, input=source), parts
        if isinstance(rel, Windowed) and rel.window.by_row and rel.window.pairs == "none" and not rel.window.block:
            source, parts = self.numbered(rel.input)
            more = tuple(column for column in source.columns if column not in rel.input.columns)
            return replace(rel, input=source, kept=(*rel.kept, *more)), parts
        if isinstance(rel, Project) and not any(True for expr in rel.exprs() for _ in expr.calls()):
            source, parts = self.numbered(rel.input)
            return replace(rel, input=source, items=(*rel.items, *parts)), _passed(parts)
        if isinstance(rel, Join):
            return self._join(rel)
        if isinstance(rel, SetOp) and rel.kind == "union" and rel.all:
            return self._union(rel)
        raise _NotNumbered

    def _scan(self, rel: Scan) -> tuple[Rel, tuple[Computed, ...]]:
        if rel.source.kind == "table" and not rel.source.looked_up:
            return rel, ()
        if rel.source.kind != "stream" or rel.source.version is not None:
            raise _NotNumbered
        number = next((column for column in rel.columns if column.name == _ROW_NUM), None)
        made = rel
        if number is None:
            number = self.context.new(_ROW_NUM, "bigint")
            made = replace(rel, given=(*rel.given, number))
        self.names.append(PART.format(len(self.names), rel.source.target))
        return made, ((self.context.new(self.names[-1], "bigint"), of_column(number)),)

    def _join(self, rel: Join) -> tuple[Rel, tuple[Computed, ...]]:
        left, own = self.numbered(rel.left)
        right, others = self.numbered(rel.right)
        # A row of a static table may be missing where the rows on its left are there.
        beside = own and not others and rel.kind in ("left", "semi", "anti")
        static = not others and not isinstance(rel.right, Scan)
        meets = rel.kind in ("inner", "cross") or beside
        if not meets or static or rel.lateral or rel.left.refreshable or rel.right.refreshable:
            raise _NotNumbered
        return replace(rel, left=left, right=right), (*own, *others)

    def _union(self, rel: SetOp) -> tuple[Rel, tuple[Computed, ...]]:
        left, own = self.numbered(rel.left)
        right, others = self.numbered(rel.right)
        if not own or not others:
            raise _NotNumbered
        null = Expr(("CAST", "(", "NULL", "AS", "BIGINT", ")"), "bigint")
        names = [column.name for column, _ in (*own, *others)]

        def side(source: Rel, columns: Sequence[Column], values: Sequence[Expr]) -> Rel:
            made = dict(source.items) if isinstance(source, Project) else {}
            items = [(column, made.get(column, of_column(column))) for column in columns]
            for name, value in zip(names, values, strict=True):
                own = made.get(value.column, value) if value.column is not None else value
                items.append((self.context.new(name, "bigint"), own))
            return Project(source.input if isinstance(source, Project) else source, tuple(items))

        given = tuple(self.context.new(name, "bigint") for name in names)
        one = side(left, rel.left.columns, [*(expr for _, expr in own), *(null for _ in others)])
        two = side(right, rel.right.columns, [*(null for _ in own), *(expr for _, expr in others)])
        return replace(rel, left=one, right=two, given=(*rel.given, *given)), tuple(
            (column, of_column(column)) for column in given
        )


def _passed(parts: Sequence[Computed]) -> tuple[Computed, ...]:
    """The columns of numbers above the projection that names them."""
    return tuple((column, of_column(column)) for column, _ in parts)
