"""One-off queries over local files, views and tables without Spark, where the answer is certain to be the same.

The plan uses the types of the driver's dialect; DuckDB reads files and the ledger. Spark runs what either declines: the
reason is kept, to report while Spark starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from anabranch import duck as ducks
from anabranch.algebra.parts import FLOATING
from anabranch.engine import answer, read
from anabranch.engine.core import Core
from anabranch.engine.frames import arrow_schema
from anabranch.engine.queries import at_reference
from anabranch.errors import NotSupported, SqlError, UnknownName
from anabranch.ir.build import Found, build
from anabranch.ir.rel import Source
from anabranch.ledger import Snapshot
from anabranch.plan.bind import Binder, Bound
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Table
from anabranch.plan.view import View
from anabranch.render import duckdb_plan
from anabranch.render.duckdb_scope import MARK, Declined, decline
from anabranch.sources import files_duckdb
from anabranch.sources.csv_grammar import Uncertain
from anabranch.sources.listing import File
from anabranch.sql.lexer import STRING, tokenize
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Query, Relation, SelectStatement
from anabranch.types import Field

#: Hidden columns of files in Spark.
_HIDDEN = ("_metadata",)
#: An escape in a text other than of a quote or a backslash.
_ESCAPE = re.compile(r"""(?<!\\)(?:\\\\)*\\[^'"\\]""")
#: Aggregates of doubles whose last digits depend on the order of computation.
_INEXACT = frozenset(("stddev", "stddev_samp", "std", "stddev_pop", "variance", "var_samp", "var_pop"))


@dataclass(frozen=True)
class Question:
    """A query for DuckDB, the columns of its answer, and its files with their sizes and times.

    In the text, markers enclose the keys of relations: the contents of views and tables are substituted when it runs.
    """

    marked: str
    fields: tuple[Field, ...]
    files: tuple[File, ...]
    relations: Mapping[str, files_duckdb.Relation]
    bounded: bool  # whether files have statistics of doubles
    targets: Mapping[str, str]  # the names of views and tables, by id

    def text(self, core: Core, snapshot: Snapshot) -> str:
        """The query at a version of the home; raises Declined."""
        pieces = self.marked.split(MARK)
        for index in range(1, len(pieces), 2):
            key = pieces[index]
            held = self.relations[key].text if key in self.relations else answer.relation(core, key, snapshot)
            pieces[index] = held or decline(f"what {self.targets[key]} holds is Spark's to read")
        return "".join(pieces)


def question(core: Core, statement: SelectStatement, bound: Bound, catalog: Catalog) -> Question | None:
    """A query for DuckDB; None if Spark has to run it, with the reason in `core.needs_spark`.

    Raises certain errors of the query: a missing file, or a missing column.
    """
    core.needs_spark = None
    if not core.place.driver or core.given is not None:
        return None
    try:
        return _question(core, statement, bound, catalog)
    except (Declined, Uncertain) as reason:
        core.needs_spark = str(reason)
    return None


def _question(core: Core, statement: SelectStatement, bound: Bound, catalog: Catalog) -> Question:
    if core.has_settings:
        decline("settings or functions of a Spark session")
    if statement.query.emits:
        decline("EMIT")
    for reference in bound.references.values():
        if reference.kind != "file" and not (reference.plain and reference.kind in ("view", "table")):
            named = reference.relation.name if reference.relation else reference.target
            decline(f"{named} is no file, view or table as it is now")
    context = _Context(core, statement.text, statement.query, catalog)
    try:
        plan = build(statement.text, statement.query, context)
    except NotSupported as error:
        raise Declined(error.message) from error
    except UnknownName as error:
        if context.unnamed or any(name in statement.text for name in _HIDDEN):
            raise Declined(error.message) from error
        raise
    except SqlError as error:
        if context.failed:
            raise
        raise Declined(error.message) from error
    _check_spelling(statement.sql, context)
    if any(column.name == duckdb_plan.UNNAMED for column in plan.columns):
        decline("only Spark can name its columns")
    marked = duckdb_plan.sql(plan, lambda scan: f"{MARK}{scan.source.key}{MARK}")
    files = tuple(file for found in context.listed for file in found)
    if not core.place.takes_files(sum(size for _, size, _ in files)):
        decline("the files are large")
    bounded = context.bounded or any(each.bounded for each in context.relations.values())
    made = Question(marked, plan.schema, files, context.relations, bounded, context.targets)
    made.text(core, core.ledger.snapshot())  # declines unreadable relations before anything is done
    return made


@dataclass
class _Context:
    """Resolves the names of files, views and tables, with the types of the driver's dialect."""

    core: Core
    text: str
    query: Query
    catalog: Catalog
    relations: dict[str, files_duckdb.Relation] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)  # columns of views and tables
    listed: list[list[File]] = field(default_factory=list)
    bounded: bool = False
    unnamed: bool = False
    failed: bool = False  # on an existing path that is no readable file

    def find(self, relation: Relation) -> Found:
        reference = Binder(self.text, self.catalog, self.query).resolve(relation)
        target = self.catalog.objects.get(reference.target) if reference is not None else None
        if isinstance(target, View | Table):
            self.targets[target.id] = target.name
            self.named |= {field.name for field in target.fields}
            self.bounded = self.bounded or any(field.type in FLOATING for field in target.fields)
            return Found(Source("view", target.id, target.name, key=target.id), target.fields)
        if reference is None or reference.kind != "file":
            decline(f"{relation.function or relation.name} in FROM")
        try:
            with at_reference(reference, self.text):
                files, _, found = read.named_files(self.core, reference)
        except SqlError:
            self.failed = True
            raise
        made = files_duckdb.relation(files, [name for name, _, _ in found])
        key = str(len(self.relations))
        self.relations[key] = made
        self.listed.append(found)
        return Found(Source("file", reference.target, reference.target, key=key), made.fields)

    def analyze(self, text: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        found = duckdb_plan.fields_of(text.text, schemas)
        self.unnamed = self.unnamed or any(each.name == duckdb_plan.UNNAMED for each in found)
        return found


def _check_spelling(text: str, context: _Context) -> None:
    """Decline spellings for which a plan has another text, name or number than Spark.

    Spark names a column as in the query, a plan as in the file.
    """
    known = context.named | {each.name for relation in context.relations.values() for each in relation.fields}
    lower = {name.lower() for name in known}
    for token in tokenize(text):
        if token.is_name and token.name.lower() in lower and token.name not in known:
            decline(f"{token.name} is written in another way than where it is from")
        if token.kind == STRING and _ESCAPE.search(token.text):
            decline("an escape in a text")
        if token.is_name and token.name.lower() in _INEXACT:
            decline(f"{token.name} of doubles")


def rows(core: Core, question: Question, snapshot: Snapshot) -> Any:
    """The answer at a version of the home, as a pyarrow.Table; None if DuckDB fails: Spark then reports the error."""
    import duckdb
    import pyarrow as pa

    try:
        text = question.text(core, snapshot)
    except Declined as reason:
        core.needs_spark = str(reason)
        return None
    duck = ducks.connect()
    try:
        for each in question.relations.values():
            if each.table is not None:
                duck.register(each.name, each.table)
        with _settings(question, text):
            found = duck.sql(text).to_arrow_table()
        made = found.rename_columns([each.name for each in question.fields]).cast(arrow_schema(question.fields))
    except _OF_ROWS(duckdb) as error:
        core.needs_spark = str(error).splitlines()[0]
        return None
    except pa.ArrowInvalid as error:  # a sum that overflows its type
        core.needs_spark = str(error).splitlines()[0]
        return None
    finally:
        duck.close()
    if [(name, size, time) for name, size, time in question.files if _status(name) != (size, time)]:
        core.needs_spark = "a file changed while it was read"
        return None
    return made


@contextmanager
def _settings(question: Question, text: str) -> Iterator[None]:
    """DuckDB's settings: rows of a query without ORDER BY are in the order of the file."""
    with ducks.DATABASE.needing("preserve_insertion_order", True), ducks.counting_all(text):
        if not question.bounded:
            yield
            return
        # NaN is outside the statistics of Parquet files.
        with ducks.DATABASE.needing("disabled_optimizers", "statistics_propagation,filter_pushdown"):
            yield


def _OF_ROWS(duckdb: Any) -> tuple[type[Exception], ...]:
    """DuckDB's errors that rows or their number cause; others are bugs."""
    return (
        duckdb.ConversionException,
        duckdb.OutOfRangeException,
        duckdb.InvalidInputException,
        duckdb.OutOfMemoryException,
        duckdb.IOException,
    )


def _status(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
