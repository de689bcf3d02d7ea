"""Tables of databases in queries: what a query wants goes to the server, and much of it is read by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch.engine.core import Core
from anabranch.engine.frames import struct
from anabranch.ledger import Snapshot
from anabranch.plan import pushdown
from anabranch.plan.bind import Bound, Reference
from anabranch.plan.catalog import Field, Table
from anabranch.sources.database import DatabaseTable, read_pieces
from anabranch.sources.lookup import LARGE_ROWS, LookupSource, open_source
from anabranch.sources.wanted import EVERYTHING, Wanted
from anabranch.sql.lexer import quote_name
from anabranch.sql.terms import option_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Longer lists than this would be sets in a plan, which say nothing of what is in them.
_LISTS = "spark.sql.optimizer.inSetConversionThreshold"


def opened(reference: Reference) -> LookupSource:
    """A table outside that is named in a query."""
    assert reference.relation is not None
    if reference.relation.path is not None:  # a path in quotes that is of such a kind
        return open_source(reference.target, {"path": reference.relation.path})
    options = {argument.name or "path": option_value(argument) for argument in reference.relation.arguments}
    return open_source(reference.target, options)


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


def wanted(
    core: Core, given: Mapping[str, DatabaseTable], query: Callable[[Mapping[str, DataFrame]], DataFrame]
) -> dict[str, Wanted]:
    """What a query, as a frame over frames, wants of tables: its plan over stand-ins says it."""
    columns = {number: [field.name for field in source.fields()] for number, source in enumerate(given.values())}
    stand_ins = {
        placeholder: _stand_in(core, number, source.fields())
        for number, (placeholder, source) in enumerate(given.items())
    }
    with _long_lists(core):
        plan = query(stand_ins)._jdf.queryExecution().optimizedPlan().toJSON()
    found = pushdown.wanted(plan, columns, utc=core.spark.conf.get("spark.sql.session.timeZone") == "UTC")
    return {placeholder: found.get(number, EVERYTHING) for number, placeholder in enumerate(given)}


def frame(core: Core, source: LookupSource, wanted: Wanted = EVERYTHING) -> DataFrame:
    """The rows that are wanted, with all columns; those that are not wanted are NULL."""
    if not isinstance(source, DatabaseTable):
        return core.spark.createDataFrame(source.read())
    rows = source.count(wanted)
    read = (
        _by_tasks(core, source, wanted, rows) if rows > LARGE_ROWS else core.spark.createDataFrame(source.read(wanted))
    )
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


def _by_tasks(core: Core, source: DatabaseTable, wanted: Wanted, rows: int) -> DataFrame:
    """The rows as tasks have read them, into files: a plan may read a table twice, and has to find the same."""
    columns = source.wanted_columns(wanted)
    fields = [field for name in columns for field in source.fields() if field.name == name]
    paths = read_pieces(core.spark, source, source.pieces(wanted, rows), columns, core.scratch())
    return core.frames.parquet(paths, fields)


def _stand_in(core: Core, number: int, fields: Iterable[Field]) -> DataFrame:
    """A table that Spark knows nothing of but its columns."""
    given = list(fields)
    marked = [Field(pushdown.mark(number, place), field.type) for place, field in enumerate(given)]
    empty = core.spark.createDataFrame(core.spark.sparkContext.emptyRDD(), struct(marked))
    return empty.selectExpr(*(f"{m.name} AS {quote_name(f.name)}" for m, f in zip(marked, given, strict=True)))


@contextmanager
def _long_lists(core: Core) -> Iterator[None]:
    conf = core.spark.conf
    before = str(conf.get(_LISTS))
    conf.set(_LISTS, "100000")
    try:
        yield
    finally:
        conf.set(_LISTS, before)
