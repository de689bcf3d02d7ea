"""Tables of databases in queries: what a query wants goes to the server, and much of it is read by Spark's tasks.

A query is planned over stand-ins first. Tables then give the rows that the plan wants of them; where a database can
compute a part of the plan itself, that part is replaced by its rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from anabranch.engine.core import Core
from anabranch.ledger import Snapshot
from anabranch.plan import pushdown
from anabranch.plan.bind import Bound, Reference
from anabranch.plan.database_aggregates import Replaced, replaced
from anabranch.plan.definitions import Table
from anabranch.sources.computing import Computing
from anabranch.sources.database import DatabaseTable
from anabranch.sources.lookup import LARGE_ROWS, LookupSource, ReadByTasks, open_source
from anabranch.sources.wanted import EVERYTHING, Computed, Wanted
from anabranch.sql.terms import option_value
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Longer lists than this would be sets in a plan, which say nothing of what is in them; and plans as texts leave out
#: columns beyond this number.
_LENGTHS = ("spark.sql.optimizer.inSetConversionThreshold", "spark.sql.debug.maxToStringFields")
#: Aggregates that give NULL where others fail; in a plan as JSON they look the same.
_TRYING = ("try_sum(", "try_avg(")


def opened(reference: Reference) -> LookupSource:
    """A table outside that is named in a query; a statement opens it once."""
    if not reference.opened:
        assert reference.relation is not None
        options = {argument.name or "path": option_value(argument) for argument in reference.relation.arguments}
        if reference.relation.path is not None:  # a path in quotes that is of such a kind
            options = {"path": reference.relation.path}
        reference.opened.append(open_source(reference.target, options))
    return reference.opened[0]


def sources(core: Core, bound: Bound, snapshot: Snapshot) -> dict[str, DatabaseTable]:
    """The tables of databases that a query reads where they are, by their placeholders."""
    found: dict[str, DatabaseTable] = {}
    for placeholder, reference in bound.references.items():
        source: LookupSource | None = None
        if reference.kind == "outside":
            source = opened(reference)
        elif reference.kind == "table":
            table = core.catalog(snapshot).objects.get(reference.target)
            if isinstance(table, Table) and table.asked:
                source = open_source(str(table.source), table.options, table.fields)
        if isinstance(source, DatabaseTable):
            found[placeholder] = source
    return found


@dataclass(frozen=True)
class RemoteQuery:
    """What a query asks of tables, by their placeholders, and what it has databases compute."""

    given: Mapping[str, DatabaseTable]
    query: Callable[[Mapping[str, DataFrame]], DataFrame]
    wanted: Mapping[str, Wanted]
    parts: Sequence[tuple[Replaced, Computing]]
    scans: Sequence[pushdown.Scan]  # stand-ins that are in no part
    names: Sequence[str]
    plan: Any  # Spark's
    plain: bool  # whether the session has the settings that the driver's engine goes by
    found: dict[str, pa.Table | None] = field(default_factory=dict)  # few rows that tables gave

    def few(self, placeholder: str) -> pa.Table | None:
        """What is wanted of a table, if these are few rows; it is asked once."""
        if placeholder not in self.found:
            self.found[placeholder] = self.given[placeholder].few(self.wanted[placeholder])
        return self.found[placeholder]

    def shown(self) -> list[str]:
        """For people."""
        queries = [(each.source.place, each.source.shown(each.query)) for _, each in self.parts]
        for each, wanted in self.wanted.items():
            source = self.given[each]
            queries.append((source.place, source.shown(source.question(wanted))))
        return [f"asks {place}: {text}" for place, text in queries]

    def frame(self, core: Core) -> DataFrame:
        """The query over what the tables gave."""
        read = {each: frame(core, self.given[each], wanted, self.few(each)) for each, wanted in self.wanted.items()}
        if not self.parts:
            return self.query(read)
        plan, placeholders = self.plan, list(self.given)
        for scan in self.scans:
            assert scan.path is not None
            node = _at(plan, scan.path)
            plan = _put(plan, scan.path, _renamed(core, read[placeholders[scan.reference]], _list(node.output())))
        for part, computing in self.parts:
            node = _at(plan, part.path)
            plan = _put(plan, part.path, _computed(core, part, _rows(core, computing), node))
        return _frame_of(core, plan).toDF(*self.names)


def remote_query(
    core: Core, given: Mapping[str, DatabaseTable], query: Callable[[Mapping[str, DataFrame]], DataFrame]
) -> RemoteQuery:
    """What a query, as a frame over frames, asks: its plan over stand-ins says it."""
    tables = dict(enumerate(given.values()))
    stand_ins = {each: _stand_in(core, number, source.fields()) for number, (each, source) in enumerate(given.items())}
    with _in_full(core):
        planned = query(stand_ins)
        plan = planned._jdf.queryExecution().optimizedPlan()
        plan_json, text = json.loads(plan.toJSON()), str(plan.toString())
    columns = {number: [field.name for field in source.fields()] for number, source in tables.items()}
    in_utc = core.spark.conf.get("spark.sql.session.timeZone") == "UTC"
    reader = pushdown.Reader(columns, in_utc)
    root = pushdown.tree(plan_json)
    known: dict[Computed, Computing | None] = {}

    def can(computed: Computed) -> bool:
        known[computed] = Computing.of(computed, tables)
        return known[computed] is not None

    ansi = core.spark.conf.get("spark.sql.ansi.enabled") == "true"
    strict = ansi and not any(each in text for each in _TRYING)
    parts = [(each, computing) for each in (replaced(reader, root, can) if strict else ())
             if (computing := known[each.asked]) is not None]  # fmt: skip
    scans = list(reader.scans(root, without={part.path for part, _ in parts}))
    if any(scan.path is None for scan in scans):  # a stand-in in a subquery has no place where rows could be put
        parts, scans = [], list(reader.scans(root))
    uses: dict[int, list[Wanted]] = {}
    for scan in scans:
        uses.setdefault(scan.reference, []).append(reader.wanted(scan))
    computed = {part.reference for each, _ in parts for part in each.asked.parts}
    wanted = {
        placeholder: pushdown.together(uses[number]) if number in uses else EVERYTHING
        for number, placeholder in enumerate(given)
        if number in uses or number not in computed
    }
    plain = ansi and in_utc and core.spark.conf.get("spark.sql.caseSensitive") == "false"
    return RemoteQuery(given, query, wanted, parts, scans, planned.columns, plan, plain)


def frame(core: Core, source: LookupSource, wanted: Wanted = EVERYTHING, found: pa.Table | None = None) -> DataFrame:
    """The rows that are wanted, with all columns; those that are not wanted are NULL. `found` are all of them."""
    if isinstance(source, ReadByTasks):
        paths = source.by_tasks(core.spark, core.scratch())
        if paths is not None:
            return core.frames.parquet(paths, list(source.fields()))
    if not isinstance(source, DatabaseTable):
        return core.spark.createDataFrame(source.read())
    rows = source.count(wanted) if found is None else found.num_rows
    if rows > LARGE_ROWS:
        read = _by_files(core, source, wanted, rows)
    else:
        read = core.spark.createDataFrame(source.read(wanted) if found is None else found)
    if wanted.columns is None:
        return read
    return read.selectExpr(
        *(
            quote_name(field.name)
            if field.name in wanted.columns
            else f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}"
            for field in source.fields()
        )
    )


def _by_files(core: Core, source: DatabaseTable, wanted: Wanted, rows: int) -> DataFrame:
    """The rows by way of files: a plan may read a table twice, and has to find the same."""
    columns = source.wanted_columns(wanted)
    fields = [field for name in columns for field in source.fields() if field.name == name]
    return core.frames.parquet(source.into_files(core.spark, wanted, rows, core.scratch()), fields)


def _rows(core: Core, computing: Computing) -> DataFrame:
    """What a database computed; more than a batch goes into a file as it comes."""
    import pyarrow.parquet as parquet

    batches = computing.batches()
    first, second = next(batches), next(batches, None)
    if second is None:
        return core.spark.createDataFrame(first)
    path = str(core.scratch() / f"outside-{uuid.uuid4().hex}.parquet")
    with parquet.ParquetWriter(path, first.schema) as writer:
        for batch in chain((first, second), batches):
            writer.write_table(batch)
    return core.frames.parquet([path], computing.fields)


def _stand_in(core: Core, number: int, fields: Iterable[Field]) -> DataFrame:
    """A table that Spark knows nothing of but its columns."""
    given = list(fields)
    marked = [Field(pushdown.mark(number, index), field.type) for index, field in enumerate(given)]
    names = (f"{m.name} AS {quote_name(f.name)}" for m, f in zip(marked, given, strict=True))
    return core.frames.unknown(marked).selectExpr(*names)


@contextmanager
def _in_full(core: Core) -> Iterator[None]:
    conf = core.spark.conf
    before = {name: str(conf.get(name)) for name in _LENGTHS}
    for name in _LENGTHS:
        conf.set(name, "100000")
    try:
        yield
    finally:
        for name, value in before.items():
            conf.set(name, value)


# ---- Spark's plans: nodes of the JVM, which are replaced by their path


def _at(node: Any, path: Sequence[int]) -> Any:
    for index in path:
        node = node.children().apply(index)
    return node


def _put(node: Any, path: Sequence[int], new: Any) -> Any:
    """A plan or an expression with another one at a path."""
    if not path:
        return new
    children = node.children()
    return node.withNewChildren(children.updated(path[0], _put(children.apply(path[0]), path[1:], new)))


def _list(given: Any) -> list[Any]:
    return [given.apply(index) for index in range(given.size())]


def _computed(core: Core, part: Replaced, rows: DataFrame, node: Any) -> Any:
    """The rows that a database computed in the place of a join or an aggregate."""
    if not part.asked.grouped:
        by_id = {f"#{each.exprId().id()}": each for each in _list(node.output())}
        return _renamed(core, rows, [by_id.get(each) for each in part.ids])
    keys = _list(node.groupingExpressions())
    inner = _renamed(core, rows, [*keys, *([None] * len(part.calls))])
    given = _list(inner.output())[len(keys) :]
    items = _list(node.aggregateExpressions())
    for (number, path), attribute in zip(part.calls, given, strict=True):
        items[number] = _put(items[number], path, attribute)
    return _catalyst(core).plans.logical.Project(_seq(core, items), inner)


def _renamed(core: Core, rows: DataFrame, attributes: Sequence[Any]) -> Any:
    """Rows whose columns are known by the ids of other ones; by their own where there is None."""
    plan = rows._jdf.queryExecution().analyzed()
    output = plan.output()
    none = getattr(core.spark._jvm, "scala.None$").__getattr__("MODULE$")
    items = [
        own if other is None else _catalyst(core).expressions.Alias(
            own, other.name(), other.exprId(), other.qualifier(), none, output.take(0)
        )
        for own, other in zip(_list(output), attributes, strict=True)
    ]  # fmt: skip
    return _catalyst(core).plans.logical.Project(_seq(core, items), plan)


def _catalyst(core: Core) -> Any:
    return core.spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]


def _seq(core: Core, items: Sequence[Any]) -> Any:
    from pyspark.sql.classic.column import _to_seq

    return _to_seq(core.spark.sparkContext, items)


def _frame_of(core: Core, plan: Any) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame

    jvm: Any = core.spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(core.spark._jsparkSession, plan), core.spark)
