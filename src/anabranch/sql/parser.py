"""The grammar of statements: a script to a list of statements. Starts nothing, knows no catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.cursor import CLOSING, OPENING, Cursor
from anabranch.sql.durations import take_duration
from anabranch.sql.lexer import NUMBER, STRING, SYMBOL, Span, Token, split_statements, tokenize
from anabranch.sql.query import at_query, literal, parse_query, take_arguments, take_expression
from anabranch.sql.syntax import (
    Advance,
    ColumnDefinition,
    Copy,
    CreateStream,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Expression,
    Insert,
    Name,
    Query,
    Refresh,
    SelectStatement,
    SetOption,
    Show,
    SourceSpec,
    Statement,
    Update,
    Watermark,
)

#: Words a statement can start with; an unknown first word is compared with these.
STATEMENTS = (
    "SELECT", "WITH", "VALUES", "CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "COPY", "ADVANCE", "REFRESH",
    "SHOW", "DESCRIBE", "EXPLAIN", "SET",
)  # fmt: skip
SHOWABLE = ("STREAMS", "VIEWS", "TABLES", "ALL")
_TYPES = frozenset(
    "BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DECIMAL DEC NUMERIC DATE TIMESTAMP"
    " TIMESTAMP_LTZ TIMESTAMP_NTZ STRING CHAR CHARACTER VARCHAR BINARY INTERVAL ARRAY MAP STRUCT VARIANT TIME".split()
)
_LATER = {"SUBSCRIBE", "SUSPEND", "RESUME", "SNAPSHOT", "BEGIN", "COMMIT", "ROLLBACK", "ALTER"}


def parse(text: str) -> list[Statement]:
    """All statements of a script.

    >>> [type(s).__name__ for s in parse("CREATE STREAM s (a INT); SELECT count(*) FROM s")]
    ['CreateStream', 'SelectStatement']
    """
    return [_statement(Cursor(text, piece)) for piece in split_statements(tokenize(text))]


def _statement(cursor: Cursor) -> Statement:
    word = cursor.current.upper
    rule = _RULES.get(word)
    if rule is None and not at_query(cursor):
        if word in _LATER:
            raise NotSupported(
                f"{word} is not supported yet", text=cursor.text, start=cursor.current.start, end=cursor.current.end
            )
        raise cursor.problem("expected a statement", known=STATEMENTS)
    statement = (rule or _select_statement)(cursor)
    cursor.expect_end()
    return statement


def _span(cursor: Cursor) -> Span:
    return Span(cursor.tokens[0].start, cursor.previous.end)


def _select_statement(cursor: Cursor) -> Statement:
    query = parse_query(cursor)
    return SelectStatement(cursor.text, _span(cursor), query)


# ------------------------------------------------------------------------------------------------ CREATE


def _create(cursor: Cursor) -> Statement:
    cursor.advance()
    or_replace = cursor.take("OR", "REPLACE")
    cursor.take("MATERIALIZED")
    foreign = cursor.take("FOREIGN")
    kind = cursor.current.upper
    if kind not in ("STREAM", "SOURCE", "TABLE", "VIEW"):
        if kind in ("SAMPLE", "SINK"):
            raise NotSupported(
                f"CREATE {kind} is not supported yet",
                text=cursor.text,
                start=cursor.current.start,
                end=cursor.current.end,
            )
        raise cursor.problem("expected STREAM, TABLE or VIEW", known=("STREAM", "TABLE", "VIEW", "SOURCE"))
    cursor.advance()
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.dotted_name(f"the name of the {kind.lower()}")
    if kind == "VIEW" or (kind == "STREAM" and cursor.at("AS")):
        return _create_view(cursor, name, if_not_exists, or_replace)
    columns, watermark = _columns(cursor) if cursor.at("(") and not at_query(cursor) else ((), None)
    if kind == "TABLE" and not foreign:
        return _create_table(cursor, name, columns, watermark, if_not_exists, or_replace)
    return _create_stream(cursor, name, columns, watermark, if_not_exists, or_replace)


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
            if cursor.current.kind != NUMBER:
                raise cursor.problem("expected the number of a version")
            start = int(cursor.advance().text)
        else:
            raise cursor.problem("expected BEGINNING, NOW or VERSION n", known=("BEGINNING", "NOW", "VERSION"))
    return CreateView(cursor.text, _span(cursor), name, query, start, if_not_exists, or_replace)


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
    if watermark is not None:
        raise SyntaxProblem(
            "a table has no watermark",
            text=cursor.text,
            start=watermark.span.start,
            end=watermark.span.end,
            hint="CREATE STREAM makes a stream",
        )
    if cursor.take("FROM"):
        source = _source(cursor)
    elif cursor.take("AS"):
        query = parse_query(cursor)
    elif not columns:
        raise cursor.problem("expected columns, FROM source(...) or AS SELECT")
    return CreateTable(cursor.text, _span(cursor), name, columns, source, query, if_not_exists, or_replace)


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
    fail_on_bad = False
    while not cursor.at_end:
        if cursor.take("FROM"):
            source = _source(cursor)
        elif cursor.take("KEEP"):
            keep = _keep(cursor)
        elif cursor.take("ON", "ERROR"):
            if cursor.take("FAIL"):
                fail_on_bad = True
            elif not cursor.take("SKIP"):
                raise cursor.problem("expected FAIL or SKIP", known=("FAIL", "SKIP"))
        elif cursor.take("SERVER", "STREAM"):
            pass
        elif cursor.at("WATERMARK") and watermark is None:
            watermark = _watermark(cursor)
        else:
            raise cursor.problem("expected FROM, WATERMARK, KEEP or ON ERROR", known=("FROM", "WATERMARK", "KEEP"))
    if source is None and not columns:
        raise cursor.problem("a stream needs columns or FROM source(...)")
    return CreateStream(
        cursor.text, _span(cursor), name, columns, watermark, source, keep, fail_on_bad, if_not_exists, or_replace
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
            watermark = _watermark(cursor)
        else:
            columns.append(_column(cursor, columns))
        if cursor.take(")"):
            return tuple(columns), watermark
        cursor.expect(",")


def _column(cursor: Cursor, before: list[ColumnDefinition]) -> ColumnDefinition:
    token = cursor.expect_name("a column name")
    if any(column.name.lower() == token.name.lower() for column in before):
        raise SyntaxProblem(
            f"there are two columns {token.name}", text=cursor.text, start=token.start, end=token.end
        )
    if token.name.startswith("_"):
        raise SyntaxProblem(
            f"the name {token.name} is taken: a leading underscore marks Anabranch's own columns",
            text=cursor.text,
            start=token.start,
            end=token.end,
        )
    type_token = cursor.current
    if type_token.upper not in _TYPES:
        raise cursor.problem(f"expected the type of {token.name}", known=tuple(sorted(_TYPES)))
    cursor.advance()
    depth = 0
    while not cursor.at_end:
        text = cursor.current.text
        if depth == 0 and (text in (",", ")") or cursor.at("NOT") or cursor.at("COMMENT")):
            break
        depth += {"<": 1, "(": 1, ">": -1, ")": -1, ">>": -2, ">>>": -3}.get(text, 0)
        cursor.advance()
    span = Span(type_token.start, cursor.previous.end)
    cursor.take("NOT", "NULL")
    if cursor.take("COMMENT"):
        cursor.expect_string("a comment")
    return ColumnDefinition(token.name, span.of(cursor.text), Span(token.start, span.end))


def _watermark(cursor: Cursor) -> Watermark:
    start = cursor.current.start
    cursor.expect("WATERMARK", "FOR")
    column = cursor.expect_name("the event-time column")
    if not cursor.take("AS"):
        raise NotSupported(
            "only WATERMARK FOR column AS column - INTERVAL ... is supported",
            text=cursor.text,
            start=cursor.current.start,
            end=cursor.current.end,
        )
    again = cursor.expect_name("the event-time column")
    if again.name.lower() != column.name.lower():
        raise SyntaxProblem(
            f"the watermark for {column.name} must be computed from {column.name}",
            text=cursor.text,
            start=again.start,
            end=again.end,
            hint=f"as in {column.name} - INTERVAL 5 SECONDS",
        )
    delay = take_duration(cursor, "how late rows may be") if cursor.take("-") else 0
    idle = take_duration(cursor, "a time-out") if cursor.take("IDLE", "AFTER") else None
    ahead = take_duration(cursor, "a bound") if cursor.take("AHEAD", "AT", "MOST") else None
    if cursor.at("PER", "KEY"):
        raise NotSupported(
            "progress per key is not supported yet",
            text=cursor.text,
            start=cursor.current.start,
            end=cursor.ahead(1).end,
        )
    return Watermark(column.name, Span(start, cursor.previous.end), delay, idle, ahead)


def _source(cursor: Cursor) -> SourceSpec:
    if cursor.current.kind == STRING:  # FROM 'path' is FROM files(path => 'path')
        token = cursor.advance()
        return SourceSpec("files", {"path": token.value}, token.span, {"path": token.span})
    kind = cursor.expect_name("a source, as in files(path => 'in/*.csv')")
    arguments = take_arguments(cursor)
    options: dict[str, str | int | float | bool] = {}
    spans: dict[str, Span] = {}
    for argument in arguments:
        name = argument.name or "path"
        if argument.value is None:
            raise SyntaxProblem(
                f"the option {name} must be a literal",
                text=cursor.text,
                start=argument.span.start,
                end=argument.span.end,
            )
        options[name] = argument.value
        spans[name] = argument.span
    return SourceSpec(kind.name.lower(), options, Span(kind.start, cursor.previous.end), spans)


# ------------------------------------------------------------------------------------- everything else


def _drop(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.take("MATERIALIZED")
    kind = cursor.current.upper
    kinds: dict[str, Literal["stream", "table", "view"]] = {
        "STREAM": "stream",
        "SOURCE": "stream",
        "TABLE": "table",
        "VIEW": "view",
    }
    if kind not in kinds:
        raise cursor.problem("expected STREAM, TABLE or VIEW", known=tuple(kinds))
    cursor.advance()
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.dotted_name(f"the name of the {kinds[kind]}")
    cascade = cursor.take("CASCADE")
    return Drop(cursor.text, _span(cursor), kinds[kind], name, if_exists, cascade)


def _insert(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("INTO")
    cursor.take("TABLE")
    target = cursor.dotted_name("a stream or table")
    columns: list[str] = []
    if cursor.at("(") and not at_query(cursor):
        cursor.advance()
        while True:
            columns.append(cursor.expect_name("a column").name)
            if cursor.take(")"):
                break
            cursor.expect(",")
    query = parse_query(cursor)
    return Insert(cursor.text, _span(cursor), target, tuple(columns), query)


def _update(cursor: Cursor) -> Statement:
    cursor.advance()
    target = cursor.dotted_name("a table")
    alias = None if cursor.at("SET") else cursor.expect_name("SET").name
    cursor.expect("SET")
    assignments: list[tuple[Name, Expression]] = []
    while True:
        column = cursor.dotted_name("a column")
        cursor.expect("=")
        assignments.append((column, take_expression(cursor, "a value")))
        if not cursor.take(","):
            break
    where = take_expression(cursor, "a condition") if cursor.take("WHERE") else None
    return Update(cursor.text, _span(cursor), target, alias, tuple(assignments), where)


def _delete(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("FROM")
    target = cursor.dotted_name("a table")
    alias = cursor.advance().name if cursor.current.is_name and not cursor.at("WHERE") else None
    where = take_expression(cursor, "a condition") if cursor.take("WHERE") else None
    return Delete(cursor.text, _span(cursor), target, alias, where)


def _copy(cursor: Cursor) -> Statement:
    cursor.advance()
    target = cursor.dotted_name("a stream or table")
    cursor.expect("FROM")
    path = cursor.expect_string("the path of a file")
    options: dict[str, str | int | float | bool] = {}
    if cursor.take("WITH") and not cursor.at("("):
        raise cursor.problem("expected options in brackets")
    if cursor.at("("):
        for argument in take_arguments(cursor):
            if argument.name is None or argument.value is None:
                raise SyntaxProblem(
                    "expected options, as in (header => true)",
                    text=cursor.text,
                    start=argument.span.start,
                    end=argument.span.end,
                )
            options[argument.name] = argument.value
    return Copy(cursor.text, _span(cursor), target, path.value, path.span, options)


def _advance(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("STREAM")
    target = cursor.dotted_name("a stream")
    cursor.expect("TO")
    to = None if cursor.take("END") else take_expression(cursor, "a time, as in TIMESTAMP '2026-01-01 00:00:00'")
    return Advance(cursor.text, _span(cursor), target, to)


def _refresh(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("TABLE")
    return Refresh(cursor.text, _span(cursor), cursor.dotted_name("a table"))


def _show(cursor: Cursor) -> Statement:
    cursor.advance()
    word = cursor.current.upper
    if word not in SHOWABLE:
        raise cursor.problem("expected STREAMS, VIEWS or TABLES", known=SHOWABLE)
    cursor.advance()
    return Show(cursor.text, _span(cursor), word.lower())


def _describe(cursor: Cursor) -> Statement:
    cursor.advance()
    _ = cursor.take("STREAM") or cursor.take("VIEW") or cursor.take("TABLE")
    return Describe(cursor.text, _span(cursor), cursor.dotted_name("a stream, view or table"))


def _explain(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.at("ANALYZE") or cursor.at("GRAPH"):
        raise NotSupported(
            f"EXPLAIN {cursor.current.upper} is not supported yet",
            text=cursor.text,
            start=cursor.current.start,
            end=cursor.current.end,
        )
    if cursor.at("CREATE"):
        statement = _create(cursor)
        if not isinstance(statement, CreateView):
            raise SyntaxProblem(
                "only queries and views can be explained",
                text=cursor.text,
                start=statement.span.start,
                end=statement.span.end,
            )
        return Explain(cursor.text, _span(cursor), statement.query)
    if cursor.current.is_name and not at_query(cursor):
        # EXPLAIN v is EXPLAIN SELECT * FROM v
        name = cursor.dotted_name("a query or a view")
        text = cursor.text[: name.span.start] + "SELECT * FROM " + name.span.of(cursor.text)
        inner = Cursor(text, tokenize(text[: name.span.start] + "SELECT * FROM " + name.span.of(cursor.text)))
        while inner.current.start < name.span.start:
            inner.advance()
        return Explain(text, Span(cursor.tokens[0].start, len(text)), parse_query(inner))
    query = parse_query(cursor)
    return Explain(cursor.text, _span(cursor), query)


def _set(cursor: Cursor) -> Statement:
    cursor.advance()
    key = cursor.dotted_name("a setting")
    cursor.expect("=")
    start = cursor.index
    while not cursor.at_end:
        if cursor.current.kind == SYMBOL and cursor.current.text in (*OPENING, *CLOSING):
            raise cursor.problem("expected a value")
        cursor.advance()
    tokens: tuple[Token, ...] = tuple(cursor.tokens[start : cursor.index])
    if not tokens:
        raise cursor.problem("expected a value")
    value = literal(tokens)
    text = Span(tokens[0].start, tokens[-1].end).of(cursor.text) if not isinstance(value, str) else value
    return SetOption(cursor.text, _span(cursor), str(key), text)


_RULES: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": _create,
    "DROP": _drop,
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "COPY": _copy,
    "ADVANCE": _advance,
    "REFRESH": _refresh,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
    "SET": _set,
}
