"""The grammar of statements: a script to a list of statements. Starts nothing, knows no catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Literal, cast

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.copying import take_copy
from anabranch.sql.creation import take_alter, take_create
from anabranch.sql.cursor import Cursor
from anabranch.sql.dialects.selects import with_calls
from anabranch.sql.emission import half_clause
from anabranch.sql.expressions import check_expressions
from anabranch.sql.lexer import CLOSING, END, OPENING, STRING, SYMBOL, Token, check_brackets, split_statements, tokenize
from anabranch.sql.query import parse_query
from anabranch.sql.relations import at_query
from anabranch.sql.syntax import (
    Advance,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Expression,
    Insert,
    Name,
    Refresh,
    Relation,
    SelectStatement,
    SetClock,
    SetOption,
    Show,
    ShowCreate,
    Statement,
    Subscribe,
    Update,
    all_of,
)
from anabranch.sql.terms import CLAUSES, literal, meant, misspelt, refuse_misspelt, take_expression
from anabranch.sql.text import FILE_NAME, Span
from anabranch.sql.types import with_types

#: Words a statement can start with; an unknown first word is compared with these.
STATEMENTS = (
    "SELECT", "WITH", "VALUES", "CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE", "COPY", "ADVANCE", "REFRESH",
    "SHOW", "DESCRIBE", "EXPLAIN", "SET", "SUBSCRIBE",
)  # fmt: skip
SHOWABLE = ("STREAMS", "VIEWS", "TABLES", "SINKS", "FUNCTIONS", "SOURCES", "ALL")
_LATER = {"SUSPEND", "RESUME", "SNAPSHOT", "BEGIN", "COMMIT", "ROLLBACK"}


def parse(text: str) -> list[Statement]:
    """All statements of a script.

    >>> [type(s).__name__ for s in parse("CREATE STREAM s (a INT); SELECT count(*) FROM s")]
    ['CreateStream', 'SelectStatement']
    """
    return [parse_statement(text, tokens) for tokens in split_statements(tokenize(text))]


def parse_statement(text: str, tokens: list[Token]) -> Statement:
    """One statement of a text."""
    try:
        return _one_statement(text, tokens)
    except SyntaxProblem as problem:
        raise _unquoted_file(text, tokens) or half_clause(problem, text, tokens) from None


def _unquoted_file(text: str, tokens: list[Token]) -> SyntaxProblem | None:
    """The problem of a file name without quotes, if a statement that does not parse has one."""
    for before, token in pairwise(tokens):
        found = FILE_NAME.match(text, token.start) if before.upper in ("FROM", "JOIN", "DESCRIBE") else None
        if found is not None and token.kind != STRING:
            return SyntaxProblem(
                "a file is named in quotes", text=text, start=found.start(), end=found.end(), hint=f"'{found.group()}'"
            )
    return None


def _one_statement(text: str, tokens: list[Token]) -> Statement:
    check_brackets(text, tokens)
    tokens = with_types(text, with_calls(tokens))
    cursor = Cursor(text, tokens)
    word = cursor.current.upper
    rule = _RULES.get(word)
    if rule is None and not at_query(cursor):
        if word in _LATER:
            raise NotSupported(f"{word} is not supported yet", text=text, at=cursor.current)
        raise cursor.problem("expected a statement", known=STATEMENTS)
    statement = replace((rule or _select_statement)(cursor), tokens=tuple(tokens))
    _expect_end(cursor)
    check_expressions(statement)
    return statement


def _expect_end(cursor: Cursor) -> None:
    """Refuse remaining tokens; the word before them may be a misspelt clause."""
    if cursor.at_end:
        return
    for token in (cursor.current, cursor.previous):
        keyword = misspelt(token)
        if keyword is not None:
            raise meant(cursor.text, token, keyword)
    if cursor.current.upper in CLAUSES:
        raise cursor.problem(f"{cursor.current.upper} is not possible here")
    raise cursor.problem("the statement should end here")


def _select_statement(cursor: Cursor) -> Statement:
    query = parse_query(cursor)
    return SelectStatement(cursor.text, cursor.whole, query)


_Kind = Literal["stream", "table", "view", "sink"]
_KINDS: dict[str, _Kind] = {"STREAM": "stream", "SOURCE": "stream", "TABLE": "table", "VIEW": "view", "SINK": "sink"}


def _take_kind(cursor: Cursor) -> _Kind:
    """STREAM, TABLE, VIEW or SINK."""
    cursor.take("MATERIALIZED")
    if cursor.current.upper not in _KINDS:
        raise cursor.problem("expected STREAM, TABLE, VIEW or SINK", known=tuple(_KINDS))
    return _KINDS[cursor.advance().upper]


def _drop(cursor: Cursor) -> Statement:
    cursor.advance()
    kind: _Kind | Literal["function"] = "function" if cursor.take("FUNCTION") else _take_kind(cursor)
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.dotted_name(f"the name of the {kind}")
    cascade = cursor.take("CASCADE")
    return Drop(cursor.text, cursor.whole, kind, name, if_exists, cascade)


def _insert(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("INTO")
    cursor.take("TABLE")
    target = cursor.dotted_name("a stream or table")
    columns: list[Token] = []
    if cursor.at("(") and not at_query(cursor):
        cursor.advance()
        while True:
            columns.append(cursor.expect_name("a column"))
            if cursor.take(")"):
                break
            cursor.expect(",")
    query = parse_query(cursor)
    names, spans = tuple(each.name for each in columns), tuple(each.span for each in columns)
    return Insert(cursor.text, cursor.whole, target, names, query, spans)


def _update(cursor: Cursor) -> Statement:
    cursor.advance()
    target = cursor.dotted_name("a table")
    alias = cursor.advance().name if cursor.current.is_name and cursor.ahead(1).upper == "SET" else None
    cursor.expect("SET")
    assignments: list[tuple[Name, Expression]] = []
    while True:
        column = cursor.dotted_name("a column")
        cursor.expect("=")
        assignments.append((column, take_expression(cursor, "a value")))
        if not cursor.take(","):
            break
    where = take_expression(cursor, "a condition") if cursor.take("WHERE") else None
    return Update(cursor.text, cursor.whole, target, alias, tuple(assignments), where)


def _delete(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("FROM")
    target = cursor.dotted_name("a table")
    alias: str | None = None
    if cursor.current.is_name and not cursor.at("WHERE"):
        refuse_misspelt(cursor)
        alias = cursor.advance().name
    where = take_expression(cursor, "a condition") if cursor.take("WHERE") else None
    return Delete(cursor.text, cursor.whole, target, alias, where)


def _advance(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("STREAM")
    target = cursor.dotted_name("a stream")
    cursor.expect("TO")
    to = None if cursor.take("END") else take_expression(cursor, "a time, as in TIMESTAMP '2026-01-01 00:00:00'")
    return Advance(cursor.text, cursor.whole, target, to)


def _refresh(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("TABLE")
    return Refresh(cursor.text, cursor.whole, cursor.dotted_name("a table"))


def _show(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.take("CREATE"):
        try:
            kind = _take_kind(cursor)
        except SyntaxProblem as error:
            error.hint = error.hint or (f"SHOW CREATE VIEW {cursor.current.text}" if cursor.current.is_name else None)
            raise
        return ShowCreate(cursor.text, cursor.whole, kind, cursor.dotted_name(f"the name of the {kind}"))
    if cursor.take("COLUMNS"):
        if not cursor.take("IN"):
            cursor.expect("FROM")
        return Describe(cursor.text, cursor.whole, cursor.dotted_name("a stream, view or table"))
    word = cursor.current.upper
    if word not in SHOWABLE:
        known = (*SHOWABLE, "CREATE", "COLUMNS")
        raise cursor.problem(f"expected {', '.join(SHOWABLE[:-1])}, COLUMNS FROM or CREATE", known=known)
    cursor.advance()
    like = None
    if word == "FUNCTIONS" and (cursor.take("LIKE") or cursor.current.kind == STRING):
        like = cursor.expect_string("a pattern, as in 'date*'").value
    return Show(cursor.text, cursor.whole, word.lower(), like)


def _describe(cursor: Cursor) -> Statement:
    cursor.advance()
    token = cursor.current
    if token.kind == STRING or (token.is_name and cursor.ahead(1).text == "("):  # 'file', csv('file')
        cursor.advance()
        if token.kind != STRING:
            cursor.advance()
            cursor.close_bracket()
        span = Span(token.start, cursor.previous.end)
        return Describe(cursor.text, cursor.whole, Name((span.of(cursor.text),), span), is_file=True)
    _ = cursor.take("STREAM") or cursor.take("VIEW") or cursor.take("TABLE")
    name = cursor.dotted_name("a stream, view or table")
    return Describe(cursor.text, cursor.whole, name, is_file=name.parts[0].lower() == "stdin")


def _explain(cursor: Cursor) -> Statement:
    cursor.advance()
    analyze, form = _explain_options(cursor)
    if cursor.at("CREATE") and not analyze:
        statement = take_create(cursor)
        if not isinstance(statement, CreateView):
            raise SyntaxProblem("only queries and views can be explained", text=cursor.text, at=statement.span)
        return Explain(cursor.text, cursor.whole, statement.query, format=form)
    if cursor.current.is_name and not at_query(cursor):
        return _explain_view(cursor, analyze, form)
    if analyze:
        raise NotSupported(
            "EXPLAIN ANALYZE reports the runs of a view, and a query has none",
            text=cursor.text,
            at=cursor.current,
            hint="name a view, or remove ANALYZE",
        )
    query = parse_query(cursor)
    return Explain(cursor.text, cursor.whole, query, format=form)


_Form = Literal["text", "json", "dot", "mermaid", "svg", "rules"]
_FORMS: dict[str, tuple[_Form, ...]] = {"FORMAT": ("text", "json"), "GRAPH": ("mermaid", "dot", "svg")}


def _explain_options(cursor: Cursor) -> tuple[bool, _Form]:
    """ANALYZE, GRAPH, or a list of options in brackets. A view may have these names: then it is the last token."""
    if cursor.ahead(1).kind != END and cursor.take("ANALYZE"):
        return True, "text"
    if cursor.ahead(1).kind != END and cursor.take("GRAPH"):
        return False, "mermaid"
    analyze = False
    form: _Form = "text"
    if not (cursor.current.text == "(" and cursor.ahead(1).upper in ("ANALYZE", "RULES", *_FORMS)):
        return analyze, form
    cursor.advance()
    while True:
        option = cursor.current.upper
        if cursor.take("ANALYZE"):
            analyze = True
        elif cursor.take("RULES"):
            form = "rules"
        elif option in _FORMS:
            cursor.advance()
            known = _FORMS[option]
            if option == "GRAPH" and cursor.current.text in (",", ")"):
                form = known[0]
            elif cursor.current.text.lower() in known:
                form = cast(_Form, cursor.advance().text.lower())
            else:
                words = tuple(each.upper() for each in known)
                raise cursor.problem(f"expected {', '.join(words[:-1])} or {words[-1]}", known=words)
        else:
            raise cursor.problem("expected ANALYZE, RULES, FORMAT or GRAPH", known=("ANALYZE", "RULES", *_FORMS))
        if not cursor.take(","):
            break
    cursor.expect(")")
    return analyze, form


def _explain_view(cursor: Cursor, analyze: bool, form: _Form) -> Statement:
    name = cursor.dotted_name("a query or a view")
    query = all_of(Relation("name", name.span, name=name))
    return Explain(cursor.text, cursor.whole, query, name, analyze, form)


def _subscribe(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect("TO")
    target = cursor.dotted_name("a view")
    version = cursor.expect_whole_number("the number of a version") if cursor.take("FROM", "VERSION") else None
    return Subscribe(cursor.text, cursor.whole, target, version)


def _set(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.at("CLOCK") and cursor.ahead(1).text != "=":
        cursor.advance()
        to = None if cursor.take("SYSTEM") else take_expression(cursor, "a time, as in TIMESTAMP '2026-01-01 00:00:00'")
        return SetClock(cursor.text, cursor.whole, to)
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
    return SetOption(cursor.text, cursor.whole, str(key), text)


_RULES: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": take_create,
    "ALTER": take_alter,
    "DROP": _drop,
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "COPY": take_copy,
    "ADVANCE": _advance,
    "REFRESH": _refresh,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
    "SET": _set,
    "SUBSCRIBE": _subscribe,
}
