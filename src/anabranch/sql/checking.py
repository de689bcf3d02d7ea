"""Check a script from top to bottom without Spark: do its names exist, and do its statements fit them?

The check tracks the objects that statements create. It skips what only Spark or the outside can know (inferred columns,
types of expressions, files): a run of the script would refuse everything that is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.errors import (
    AnabranchError,
    NotSupported,
    UnknownName,
    did_you_mean,
)
from anabranch.plan.bind import Binder, made_first
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.placer import refuse_volatile
from anabranch.plan.view import STREAM_FIELDS, NodeQuery, View
from anabranch.sources import registry
from anabranch.sql import syntax
from anabranch.sql.calling import function_problems, grouping_problems
from anabranch.sql.calls import split_commas
from anabranch.sql.columns import Columns, Resolver, Scope
from anabranch.sql.definitions import (
    check_export,
    check_options,
    check_policies,
    check_sink,
    check_source,
    check_watermark,
    no_column,
    wrong,
)
from anabranch.sql.expressions import expressions_of
from anabranch.sql.lexer import Token, split_statements, tokenize
from anabranch.sql.parser import parse_statement
from anabranch.sql.syntax import ColumnDefinition, Name, Query, Statement
from anabranch.sql.terms import option_value
from anabranch.sql.text import Span


@dataclass
class Known:
    """An object that a statement created."""

    kind: str  # "stream", "table", "view", "sink"
    name: str
    statement: Statement
    columns: Columns | None
    reads: set[str] = field(default_factory=set)
    fed: bool = False  # rows come from a source or a query, not by INSERT


def check_script(text: str) -> tuple[list[AnabranchError], list[str]]:
    """All errors, in text order, and the warnings."""
    script = _Script(text)
    for tokens in split_statements(tokenize(text)):
        script.take(tokens)
    return script.problems, script.warnings()


class _Script:
    def __init__(self, text: str) -> None:
        self.text = text
        self.known: dict[str, Known] = {}
        self._warnings: list[str] = []
        self._read: set[str] = set()
        self._functions: set[str] = set()  # those that the script creates
        self._advanced: set[str] = set()
        self._closing: list[tuple[str, str]] = []  # (what closes windows, its input stream)
        self._catalog: Catalog | None = None
        self.problems: list[AnabranchError] = []

    def take(self, tokens: list[Token]) -> None:
        """Check a statement; even if it is wrong, the next ones see the object that it should create."""
        found = len(self.problems)
        try:
            statement = parse_statement(self.text, tokens)
        except AnabranchError as problem:
            self.problems.append(problem)
            self._suppose(tokens, Statement(self.text, Span(tokens[0].start, tokens[-1].end)))
            return
        try:
            self.check(statement)
        except AnabranchError as problem:
            self.problems.append(problem)
            self._suppose(tokens, statement)
        for _, part in expressions_of(statement):
            self.problems += function_problems(statement.text, part, self._functions)
        self.problems[found:] = sorted(self.problems[found:], key=lambda each: getattr(each, "start", None) or 0)

    def _suppose(self, tokens: list[Token], statement: Statement) -> None:
        """Add an object with unknown columns for a wrong CREATE."""
        words = [token.upper for token in tokens[:8]]
        for word, kind in (("STREAM", "stream"), ("SOURCE", "stream"), ("TABLE", "table"), ("VIEW", "view")):
            if words[:1] == ["CREATE"] and word in words[1:4]:
                at = words.index(word) + (4 if words[words.index(word) + 1 :][:1] == ["IF"] else 1)
                if at < len(tokens) and tokens[at].is_name:
                    name = tokens[at].name
                    self.known.setdefault(name.lower(), Known(kind, name, statement, None, fed=False))
                    self._read.add(name.lower())
                    self._catalog = None
                return

    def check(self, statement: Statement) -> None:
        if isinstance(statement, syntax.CreateStream):
            self._create_stream(statement)
        elif isinstance(statement, syntax.CreateTable):
            self._create_table(statement)
        elif isinstance(statement, syntax.CreateView):
            self._create_view(statement)
        elif isinstance(statement, syntax.AlterView):
            self._alter_view(statement)
        elif isinstance(statement, syntax.CreateSink):
            self._create_sink(statement)
        elif isinstance(statement, syntax.CreateFunction):
            self._functions.add(statement.name.last.lower())
        elif isinstance(statement, syntax.Drop) and statement.kind == "function":
            self._functions.discard(statement.name.last.lower())
        elif isinstance(statement, syntax.Drop):
            self._drop(statement)
        elif isinstance(statement, syntax.Insert):
            self._insert(statement)
        elif isinstance(statement, syntax.Copy):
            self._find(statement, statement.target, "stream", "table", writes=True)
            files = registry.find("files")
            assert files is not None
            options = {**statement.options, "path": statement.path}
            check_options(statement, files, options, statement.spans, statement.path_span)
        elif isinstance(statement, syntax.Update | syntax.Delete):
            self._change(statement)
        elif isinstance(statement, syntax.Advance):
            self._advanced.add(self._find(statement, statement.target, "stream").name.lower())
        elif isinstance(statement, syntax.Refresh):
            self._find(statement, statement.target, "table")
        elif isinstance(statement, syntax.Describe) and statement.is_file:
            pass
        elif isinstance(statement, syntax.Describe | syntax.Subscribe):
            if statement.target.parts[0].lower() != "sys":
                self._find(statement, statement.target, "stream", "view", "table")
        elif isinstance(statement, syntax.ShowCreate):
            self._find(statement, statement.target, statement.kind)
        elif isinstance(statement, syntax.CopyTo):
            check_export(statement)
            self._query(statement, statement.query, "the query")
        elif isinstance(statement, syntax.SelectStatement | syntax.Explain):
            self._query(statement, statement.query, "the query")

    def warnings(self) -> list[str]:
        found = list(self._warnings)
        for what, name in self._closing:
            made = self.known.get(name)
            if made is None or not isinstance(made.statement, syntax.CreateStream):
                continue
            if made.statement.watermark is None and name not in self._advanced:
                found.append(
                    f"{what} waits for windows to close, but stream {made.name} has no WATERMARK:"
                    " they close at the end of the stream or by ADVANCE STREAM"
                )
        for key, made in self.known.items():
            if made.kind == "stream" and key not in self._read:
                found.append(f"nothing reads stream {made.name}")
        return found

    # ---- objects

    def _create_stream(self, statement: syntax.CreateStream) -> None:
        source = statement.source
        columns = _declared(statement.columns)
        if source is not None:
            check_source(statement, source, registry.of_streams())
            check_policies(statement)
            kind = registry.find(source.kind)
            if columns is None and kind is not None and kind.columns is not None:
                columns = {each.name: each.type for each in kind.columns}
        mark = statement.watermark
        if mark is not None and columns is not None:
            check_watermark(statement, mark, columns)
        self._add(
            statement, statement.name, Known("stream", statement.name.last, statement, columns, fed=source is not None)
        )

    def _create_table(self, statement: syntax.CreateTable) -> None:
        columns = _declared(statement.columns)
        if statement.source is not None:
            check_source(statement, statement.source, registry.of_tables())
        if statement.query is not None:
            given, _ = self._query(statement, statement.query, f"table {statement.name}")
            columns = columns or given
        fed = statement.source is not None or statement.query is not None
        # A table holds the result of its query at creation; nothing is read through it afterwards.
        self._add(statement, statement.name, Known("table", statement.name.last, statement, columns, set(), fed))

    def _create_view(self, statement: syntax.CreateView) -> None:
        columns, reads = self._view_query(statement)
        self._add(statement, statement.name, Known("view", statement.name.last, statement, columns, reads, True))

    def _alter_view(self, statement: syntax.AlterView) -> None:
        found = self._find(statement, statement.name, "view")
        columns, reads = self._view_query(statement)
        key = statement.name.last.lower()
        if key in self._all_reads(reads):
            raise wrong(statement, statement.name.span, f"view {found.name} would read itself", None)
        if not statement.dry_run:
            found.columns, found.reads = columns, reads
            self._catalog = None

    def _all_reads(self, reads: set[str]) -> set[str]:
        """All that is read, through views too."""
        found: set[str] = set()
        waiting = list(reads)
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting += self.known[key].reads if key in self.known else ()
        return found

    def _view_query(self, statement: syntax.CreateView | syntax.AlterView) -> tuple[Columns | None, set[str]]:
        """The columns of a view, and the names that it reads."""
        what = f"view {statement.name}"
        columns, reads = self._query(statement, statement.query, what)
        refuse_volatile(statement.text, statement.query)
        if columns is not None and statement.query.emission is not None and statement.query.emission.stream:
            columns = {**columns, **{field.name: field.type for field in STREAM_FIELDS}}
        for relation in statement.query.relations():
            system = relation.name is not None and relation.name.parts[0].lower() == "sys"
            outside = relation.kind == "path" or registry.find(relation.function) is not None or system
            if outside or relation.version_span is not None:
                raise NotSupported(
                    "a view reads streams, views and tables",
                    text=statement.text,
                    at=relation.span,
                    hint=made_first(relation),
                )
        return columns, reads

    def _create_sink(self, statement: syntax.CreateSink) -> None:
        check_sink(statement)
        reads = {self._find(statement, statement.view, "view").name.lower()}
        self._add(statement, statement.name, Known("sink", statement.name.last, statement, None, reads, True))

    def _add(
        self,
        statement: syntax.CreateStream | syntax.CreateTable | syntax.CreateView | syntax.CreateSink,
        name: Name,
        made: Known,
    ) -> None:
        if len(name.parts) > 1 or name.last.lower() == "sys" or name.last.startswith("_"):
            raise wrong(
                statement,
                name.span,
                f"{name} cannot be the name of a {made.kind}",
                "use one plain word without a leading underscore",
            )
        before = self.known.get(name.last.lower())
        same = before is not None and before.kind == made.kind
        if before is not None and not (statement.or_replace and same):
            if statement.if_not_exists and same:
                return
            if before.statement.normal != statement.normal:
                raise wrong(
                    statement,
                    name.span,
                    f"{before.kind} {before.name} already exists",
                    f"DROP {before.kind.upper()} {before.name} first"
                    + (", or use CREATE OR REPLACE" if same and made.kind != "sink" else ", or take another name"),
                )
            self._warnings.append(f"{made.kind} {made.name} is created twice in the same way")
        self.known[name.last.lower()] = made
        self._catalog = None

    def _drop(self, statement: syntax.Drop) -> None:
        key = statement.name.last.lower()
        found = self.known.get(key)
        if statement.if_exists and (found is None or found.kind != statement.kind):
            return
        self._find(statement, statement.name, statement.kind)
        readers = sorted(made.name for made in self.known.values() if key in made.reads)
        if readers and not statement.cascade:
            raise wrong(
                statement,
                statement.name.span,
                f"{statement.name} is read by {', '.join(readers)}",
                "drop them first, or add CASCADE to drop them too",
            )
        self._forget(key)

    def _forget(self, key: str) -> None:
        self.known.pop(key, None)
        self._catalog = None
        for other in [other for other, made in self.known.items() if key in made.reads]:
            self._forget(other)

    def _find(self, statement: Statement, name: Name, *kinds: str, writes: bool = False) -> Known:
        found = self.known.get(name.last.lower()) if len(name.parts) == 1 else None
        wanted = " or ".join(kinds) if len(kinds) < 3 else "stream, view or table"
        if found is None:
            names = [made.name for made in self.known.values() if made.kind in kinds]
            raise UnknownName(
                f"there is no {wanted} {name}", text=statement.text, at=name.span, hint=did_you_mean(str(name), names)
            )
        if found.kind not in kinds:
            changes = found.kind == "stream" and isinstance(statement, syntax.Update | syntax.Delete)
            hint = "a stream is append-only: it only takes new rows" if changes else None
            raise wrong(statement, name.span, f"{found.name} is a {found.kind}, not a {wanted}", hint)
        if writes and found.kind == "stream" and found.fed:
            raise NotSupported(
                f"the rows of {found.name} come from its source",
                text=statement.text,
                at=name.span,
                hint="a stream without FROM takes INSERT and COPY",
            )
        return found

    # ---- rows

    def _insert(self, statement: syntax.Insert) -> None:
        target = self._find(statement, statement.target, "stream", "table", writes=True)
        self._query(statement, statement.query, "the INSERT")
        if target.columns is not None:
            by_name = {column.lower() for column in target.columns}
            for name, span in zip(statement.columns, statement.column_spans, strict=True):
                if name.lower() not in by_name:
                    raise no_column(statement, span, target.name, name, target.columns or ())
        expected = len(statement.columns) or (len(target.columns) if target.columns is not None else None)
        if expected is None:
            return
        body = statement.query.body
        if isinstance(body, syntax.Opaque):
            for row in body.rows:
                inside = row.tokens[1:-1] if row.tokens[0].text == "(" else row.tokens
                _check_count(statement, row.span, len(list(split_commas(inside))), expected, target)
        elif isinstance(body, syntax.Select) and not any(item.star for item in body.items):
            simple = all(item.alias is not None or item.tokens[-1].text != ")" for item in body.items)
            if simple:  # a generator without names may give several columns
                span = Span(body.items[0].span.start, body.items[-1].span.end)
                _check_count(statement, span, len(body.items), expected, target)

    def _change(self, statement: syntax.Update | syntax.Delete) -> None:
        target = self._find(statement, statement.target, "table")
        resolver = Resolver(statement.text, self._columns())
        scope = Scope(((statement.alias or target.name, target.columns),))
        if isinstance(statement, syntax.Update):
            for name, value in statement.assignments:
                columns = target.columns
                plain = name.parts[-1].lower() if len(name.parts) == 1 else None
                if columns is not None and plain is not None and plain not in {c.lower() for c in columns}:
                    raise no_column(statement, name.span, target.name, str(name), target.columns or ())
                resolver.expression(value.tokens, scope)
        if statement.where is not None:
            resolver.expression(statement.where.tokens, scope)

    # ---- queries

    def _query(self, statement: Statement, query: Query, what: str) -> tuple[Columns | None, set[str]]:
        """Bind the relations, then the columns; returns the output columns and the names read."""
        binder = Binder(statement.text, self._objects(), query)
        reads: set[str] = set()
        for relation in query.relations():
            reference = binder.resolve(relation)
            if reference is not None and reference.kind in ("stream", "table", "view"):
                reads.add(reference.target)
            kind = registry.find(relation.function) if relation.kind == "function" else None
            if kind is not None:
                options = {each.name or "path": option_value(each) for each in relation.arguments}
                spans = {each.name or "path": each.span for each in relation.arguments}
                check_options(statement, kind, options, spans, relation.span)
        for select, _ in query.selects():
            if not any(self.known[name].kind == "view" for name in reads):
                binder.check_versions(select)
        self._read |= reads
        if query.emission is not None and query.emission.mode == "close":
            self._check_closing(statement, query, what, reads)

        def group(select: syntax.Select, scope: Scope) -> None:
            self.problems += grouping_problems(statement.text, select, scope)

        resolver = Resolver(statement.text, self._columns(), report=self.problems.append, also=group)
        return resolver.query(query), reads

    def _check_closing(self, statement: Statement, query: Query, what: str, reads: set[str]) -> None:
        assert query.emission is not None
        windowed = any(relation.window is not None for relation in query.relations())
        windowed = windowed or any(select.window is not None for select, _ in query.selects())
        windowed = windowed or any(self.known[name].kind == "view" for name in reads)
        grouped = any(select.group or select.distinct for select, _ in query.selects())
        if not windowed or not grouped:
            raise NotSupported(
                "no window closes in this query",
                text=statement.text,
                at=query.emission.span,
                hint="EMIT ON WINDOW CLOSE needs GROUP BY window_start, window_end over TUMBLE, HOP or other windows",
            )
        self._closing += [(what, name) for name in sorted(reads)]

    def _columns(self) -> dict[str, Columns | None]:
        return {key: made.columns for key, made in self.known.items()}

    def _objects(self) -> Catalog:
        """The objects as a catalog for the binder; their ids are their names in lower case."""
        if self._catalog is None:
            made: dict[str, Stream | Table | View] = {}
            for key, each in self.known.items():
                if each.kind == "sink":
                    continue
                if each.kind == "stream":
                    made[key] = _stream(key, each)
                elif each.kind == "table":
                    made[key] = Table(key, each.name, "", (), None, {}, None)
                else:
                    made[key] = View(key, each.name, "", None, (), "", NodeQuery(""))
            self._catalog = Catalog.holding(made)
        return self._catalog


# ---------------------------------------------------------------------------------------------- small checks


def _stream(id: str, made: Known) -> Stream:
    mark = made.statement.watermark if isinstance(made.statement, syntax.CreateStream) else None
    time, rule = (mark.column, mark.rule) if mark is not None else (None, None)
    return Stream(id, made.name, "", (), time, rule, None, None, None, {}, "all", False)


def _declared(columns: tuple[ColumnDefinition, ...]) -> Columns | None:
    return {column.name: column.type for column in columns} if columns else None


def _check_count(statement: Statement, span: Span, given: int, expected: int, target: Known) -> None:
    if given != expected:
        values = "1 value" if given == 1 else f"{given} values"
        columns = "1 column" if expected == 1 else f"{expected} columns"
        names = f"the columns of {target.name} are {', '.join(target.columns)}" if target.columns else None
        raise wrong(statement, span, f"{values} for {columns}", names)
