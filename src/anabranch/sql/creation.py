"""The grammar of CREATE and ALTER: streams, tables, views and sinks, in our spelling and those of other systems."""

from __future__ import annotations

from typing import Literal

from anabranch.errors import NotSupported, SyntaxProblem, did_you_mean
from anabranch.sources import registry
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import STRING
from anabranch.sql.query import parse_query
from anabranch.sql.relations import at_query
from anabranch.sql.syntax import (
    AlterView,
    ColumnDefinition,
    CreateFunction,
    CreateSink,
    CreateStream,
    CreateTable,
    CreateView,
    Name,
    OptionValue,
    Query,
    SourceSpec,
    Statement,
    Watermark,
)
from anabranch.sql.terms import option_value, take_arguments
from anabranch.sql.text import Span
from anabranch.sql.types import TYPES, column_type
from anabranch.sql.watermarks import take_watermark


def take_create(cursor: Cursor) -> Statement:
    cursor.advance()
    or_replace = cursor.take("OR", "REPLACE")
    cursor.take("MATERIALIZED")
    foreign = cursor.take("FOREIGN")
    kind = cursor.current.upper
    if kind not in ("STREAM", "SOURCE", "TABLE", "VIEW", "SINK", "FUNCTION"):
        if kind == "SAMPLE":
            raise NotSupported(f"CREATE {kind} is not supported yet", text=cursor.text, at=cursor.current)
        raise cursor.problem(
            "expected STREAM, TABLE, VIEW, SINK or FUNCTION",
            known=("STREAM", "TABLE", "VIEW", "SINK", "SOURCE", "FUNCTION"),
        )
    if kind == "SINK" and or_replace:
        raise NotSupported(
            "a sink cannot be replaced: what it wrote would stay",
            text=cursor.text,
            at=cursor.current,
            hint="DROP SINK first, and give the new one an empty folder",
        )
    cursor.advance()
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.dotted_name(f"the name of the {kind.lower()}")
    if kind == "VIEW" or (kind == "STREAM" and cursor.at("AS")):
        return _create_view(cursor, name, if_not_exists, or_replace)
    if kind == "SINK":
        return _create_sink(cursor, name, if_not_exists)
    if kind == "FUNCTION":
        return _create_function(cursor, name, if_not_exists, or_replace)
    columns, watermark = _columns(cursor) if cursor.at("(") and not at_query(cursor) else ((), None)
    if kind == "TABLE" and not foreign:
        return _create_table(cursor, name, columns, watermark, if_not_exists, or_replace)
    return _create_stream(cursor, name, columns, watermark, if_not_exists, or_replace)


def take_alter(cursor: Cursor) -> Statement:
    """ALTER VIEW v AS query [DRY RUN]"""
    # The last words are read first: after a FROM clause they would be read as an alias.
    dry_run = [token.upper for token in cursor.tokens[-3:-1]] == ["DRY", "RUN"]
    if dry_run:
        del cursor.tokens[-3:-1]
    cursor.advance()
    cursor.take("MATERIALIZED")
    if cursor.current.upper in ("STREAM", "SOURCE", "TABLE"):
        raise NotSupported(
            "only a view can be altered", text=cursor.text, at=cursor.current, hint="ALTER VIEW v AS SELECT ..."
        )
    cursor.expect("VIEW")
    name = cursor.dotted_name("the name of the view")
    cursor.expect("AS")
    query = parse_query(cursor)
    return AlterView(cursor.text, cursor.whole, name, query, dry_run)


def _create_view(cursor: Cursor, name: Name, if_not_exists: bool, or_replace: bool) -> Statement:
    cursor.expect("AS")
    query = parse_query(cursor)
    start: Literal["beginning", "now"] | int = "beginning"
    if cursor.take("START", "AT"):
        if cursor.take("BEGINNING"):
            start = "beginning"
        elif cursor.take("NOW"):
            start = "now"
        elif cursor.take("VERSION"):
            start = cursor.expect_whole_number("the number of a version")
        else:
            raise cursor.problem("expected BEGINNING, NOW or VERSION n", known=("BEGINNING", "NOW", "VERSION"))
    return CreateView(cursor.text, cursor.whole, name, query, start, if_not_exists, or_replace)


def _create_sink(cursor: Cursor, name: Name, if_not_exists: bool) -> Statement:
    cursor.expect("FROM")
    view = cursor.dotted_name("the view to write")
    cursor.expect("INTO")
    into = _call(cursor, "a sink, as in files(path => 'out/', format => 'parquet')")
    return CreateSink(cursor.text, cursor.whole, name, view, into, if_not_exists)


def _create_function(cursor: Cursor, name: Name, if_not_exists: bool, or_replace: bool) -> Statement:
    """CREATE FUNCTION f AS 'package.module.function' [RETURNS type]"""
    cursor.expect("AS")
    reference = cursor.expect_string("the name of a Python function, as in 'package.module.function'")
    returns = _type(cursor, "expected the type that the function returns") if cursor.take("RETURNS") else None
    return CreateFunction(
        cursor.text,
        cursor.whole,
        name,
        reference.value,
        reference.span,
        returns,
        if_not_exists,
        or_replace,
    )


def _create_table(
    cursor: Cursor,
    name: Name,
    columns: tuple[ColumnDefinition, ...],
    watermark: Watermark | None,
    if_not_exists: bool,
    or_replace: bool,
) -> Statement:
    source: SourceSpec | None = None
    query: Query | None = None
    whole = Span(cursor.tokens[0].start, cursor.tokens[-2].end)
    # Read before the query, like DRY RUN.
    every_run = [token.upper for token in cursor.tokens[-4:-1]] == ["REFRESH", "EVERY", "RUN"]
    if every_run:
        del cursor.tokens[-4:-1]
    if watermark is not None:
        raise SyntaxProblem("a table has no watermark", text=cursor.text, at=watermark.span, hint="use CREATE STREAM")
    if cursor.take("FROM"):
        source = _source(cursor)
    elif cursor.take("AS"):
        query = parse_query(cursor)
    elif not columns:
        raise cursor.problem("expected columns, FROM source(...) or AS SELECT")
    _check_names(cursor, columns, None)
    return CreateTable(cursor.text, whole, name, columns, source, query, if_not_exists, or_replace, every_run)


def _create_stream(
    cursor: Cursor,
    name: Name,
    columns: tuple[ColumnDefinition, ...],
    watermark: Watermark | None,
    if_not_exists: bool,
    or_replace: bool,
) -> Statement:
    source: SourceSpec | None = None
    keep: Literal["all", "nothing"] | None = None
    policies = {"ERROR": "skip", "GAP": "fail", "SCHEMA": "fail"}
    spans: dict[str, Span] = {}
    while not cursor.at_end:
        start = cursor.current.start
        if cursor.take("FROM"):
            source = _source(cursor)
        elif cursor.take("KEEP"):
            keep = _keep(cursor)
        elif cursor.take("ON"):
            what = cursor.current.upper
            policies[what] = _policy(cursor)
            spans[what] = Span(start, cursor.previous.end)
        elif cursor.take("SERVER", "STREAM"):
            pass
        elif cursor.at("WATERMARK") and watermark is None:
            watermark = take_watermark(cursor)
        else:
            clauses = ("FROM", "WATERMARK", "KEEP", "ON")[source is not None :]
            problem = cursor.problem(f"expected {', '.join(clauses[:-1])} or ON", known=clauses)
            if source is not None and not columns and cursor.current.text == "(":
                problem.hint = f"columns stand before FROM: CREATE STREAM {name} (...) FROM ..."
            raise problem
    if source is None and not columns:
        raise cursor.problem("a stream needs columns or FROM source(...)")
    _check_names(cursor, columns, source)
    return CreateStream(
        cursor.text,
        cursor.whole,
        name,
        columns,
        watermark,
        source,
        keep,
        policies["ERROR"] == "fail",
        if_not_exists,
        or_replace,
        "skip" if policies["GAP"] == "skip" else "fail",
        "ignore" if policies["SCHEMA"] == "ignore" else "add" if policies["SCHEMA"] == "add" else "fail",
        spans,
    )


def _policy(cursor: Cursor) -> str:
    """The policy of a stream for bad rows, gaps or changed columns: ERROR FAIL, GAP SKIP, SCHEMA CHANGE ADD, ..."""
    choices = {"ERROR": ("FAIL", "SKIP"), "GAP": ("FAIL", "SKIP"), "SCHEMA": ("FAIL", "IGNORE", "ADD")}
    what = cursor.current.upper
    if what not in choices:
        raise cursor.problem("expected ERROR, GAP or SCHEMA CHANGE", known=tuple(choices))
    cursor.advance()
    if what == "SCHEMA":
        cursor.expect("CHANGE")
    for choice in choices[what]:
        if cursor.take(choice):
            return choice.lower()
    listed = ", ".join(choices[what][:-1])
    raise cursor.problem(f"expected {listed} or {choices[what][-1]}", known=choices[what])


def _check_names(cursor: Cursor, columns: tuple[ColumnDefinition, ...], source: SourceSpec | None) -> None:
    """A name with a leading underscore must be metadata that the source has for each row."""
    kind = registry.find(source.kind) if source is not None else None
    hidden = [field.name for field in kind.hidden] if kind is not None else []
    for column in columns:
        if column.name.startswith("_") and column.name.lower() not in hidden:
            raise SyntaxProblem(
                f"the name {column.name} is taken: a leading underscore marks Anabranch's own columns",
                text=cursor.text,
                start=column.span.start,
                end=column.span.start + len(column.name),
                hint=did_you_mean(column.name, hidden) if hidden else None,
            )


def _keep(cursor: Cursor) -> Literal["all", "nothing"]:
    if cursor.take("ALL"):
        return "all"
    if cursor.take("NOTHING"):
        return "nothing"
    raise NotSupported(
        "only KEEP ALL and KEEP NOTHING are supported",
        text=cursor.text,
        start=cursor.current.start,
        end=cursor.ahead(1).end,
    )


def _columns(cursor: Cursor) -> tuple[tuple[ColumnDefinition, ...], Watermark | None]:
    cursor.expect("(")
    columns: list[ColumnDefinition] = []
    watermark: Watermark | None = None
    while True:
        if cursor.at("WATERMARK", "FOR"):
            if watermark is not None:
                raise cursor.problem("a stream has one watermark")
            watermark = take_watermark(cursor)
        else:
            columns.append(_column(cursor, columns))
        if cursor.take(")"):
            return tuple(columns), watermark
        cursor.expect(",")


def _column(cursor: Cursor, before: list[ColumnDefinition]) -> ColumnDefinition:
    token = cursor.expect_name("a column name")
    if any(column.name.lower() == token.name.lower() for column in before):
        raise SyntaxProblem(f"there are two columns {token.name}", text=cursor.text, at=token)
    type = _type(cursor, f"expected the type of {token.name}")
    span = Span(token.start, cursor.previous.end)
    cursor.take("NOT", "NULL")
    if cursor.take("COMMENT"):
        cursor.expect_string("a comment")
    return ColumnDefinition(token.name, type, span)


def _type(cursor: Cursor, expected: str) -> str:
    """A type under Spark's name."""
    if cursor.current.upper not in TYPES:
        raise cursor.problem(expected, known=tuple(sorted(TYPES)))
    first = cursor.index
    cursor.advance()
    depth = 0
    while not cursor.at_end:
        text = cursor.current.text
        if depth == 0 and (text in (",", ")") or cursor.at("NOT") or cursor.at("COMMENT")):
            break
        depth += {"<": 1, "(": 1, ">": -1, ")": -1, ">>": -2, ">>>": -3}.get(text, 0)
        cursor.advance()
    return column_type(cursor.text, cursor.tokens[first : cursor.index])


def _source(cursor: Cursor) -> SourceSpec:
    if cursor.current.kind == STRING:  # FROM 'path' is FROM files(path => 'path')
        token = cursor.advance()
        return SourceSpec(registry.of_path(token.value), {"path": token.value}, token.span, {"path": token.span})
    return _call(cursor, "a source, as in files(path => 'in/*.csv')")


def _call(cursor: Cursor, expected: str) -> SourceSpec:
    """kind(name => value, ...); an argument without a name is the path."""
    kind = cursor.expect_name(expected)
    arguments = take_arguments(cursor)
    options: dict[str, OptionValue] = {}
    spans: dict[str, Span] = {}
    for argument in arguments:
        name, value = argument.name or "path", option_value(argument)
        if value is None:
            raise SyntaxProblem(
                f"the option {name} must be a literal",
                text=cursor.text,
                at=argument.span,
                hint="or env('NAME') for a variable of the environment, secret('name') for a line of the secrets file",
            )
        options[name] = value
        spans[name] = argument.span
    return SourceSpec(kind.name.lower(), options, Span(kind.start, cursor.previous.end), spans)
