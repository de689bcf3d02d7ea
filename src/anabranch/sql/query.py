"""The grammar of queries, down to clauses; expressions are kept as spans.

`relations` and `windows` have the extensions of FROM, `emission` those for when results are emitted. `expressions` and
Spark check whether an expression is well formed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from anabranch.errors import NotSupported
from anabranch.sql.cursor import Cursor
from anabranch.sql.dialects.selects import name_of_call, read_notations, take_brackets
from anabranch.sql.durations import is_unit
from anabranch.sql.emission import take_emission
from anabranch.sql.group_windows import calls_window_time, with_window
from anabranch.sql.inline import inline_ctes
from anabranch.sql.lexer import CLOSING, NUMBER, STRING, WORD, Token
from anabranch.sql.relations import take_from, take_values
from anabranch.sql.syntax import Expression, Item, LateralView, Opaque, Query, Relation, Select, SetOperation
from anabranch.sql.terms import (
    OPERATOR_WORDS,
    SET_OPERATORS,
    TAIL,
    at_group,
    ends_value,
    take_expression,
    take_expressions,
)
from anabranch.sql.text import Span


def parse_query(cursor: Cursor, *, nested: bool = False, inline: bool = True) -> Query:
    """WITH ... body ORDER BY ... LIMIT ... and an emission clause.

    Without `inline`, a CTE that only passes a relation through remains a CTE.
    """
    first = cursor.index
    with cursor.deeper():
        query = _query(cursor, nested)
    query = replace(query, tokens=tuple(cursor.tokens[first : cursor.index]))
    return inline_ctes(query) if inline and not nested else query


def _query(cursor: Cursor, nested: bool) -> Query:
    start = cursor.current.start
    ctes, cte_columns, cte_spans = _ctes(cursor) if cursor.take("WITH") else ([], [], [])
    body = _set_operation(cursor)
    order_start = cursor.index
    expressions: list[Expression] = []
    while cursor.at("ORDER") or cursor.at("LIMIT") or cursor.at("OFFSET"):
        if cursor.advance().upper == "ORDER":
            cursor.expect("BY")
        expressions += take_expressions(cursor, "an expression")
    order_tokens = tuple(cursor.tokens[order_start : cursor.index])
    order = Span(order_tokens[0].start, order_tokens[-1].end) if order_tokens else None
    if isinstance(body, Select) and body.window is not None and calls_window_time(order_tokens):
        body = replace(body, planned=True)
    emission = take_emission(cursor)
    if emission is not None and nested and emission.stream:
        raise NotSupported(
            "EMIT STREAM shows the changes of a whole query",
            text=cursor.text,
            at=emission.span,
            hint="move the clause after the outermost SELECT",
        )
    query = Query(
        Span(start, cursor.previous.end),
        body,
        tuple(ctes),
        order,
        emission,
        order_tokens,
        tuple(expressions),
        tuple(cte_columns),
        tuple(cte_spans),
    )
    return read_notations(cursor.text, query) if isinstance(body, Select) else query


def _ctes(cursor: Cursor) -> tuple[list[tuple[str, Query]], list[tuple[str, ...]], list[Span]]:
    cursor.take("RECURSIVE")
    ctes: list[tuple[str, Query]] = []
    columns: list[tuple[str, ...]] = []
    spans: list[Span] = []
    while True:
        start = cursor.current.start
        name = cursor.expect_name("the name of a common table expression").name
        given: list[str] = []
        if cursor.take("("):
            given.append(cursor.expect_name("the name of a column").name)
            while cursor.take(","):
                given.append(cursor.expect_name("the name of a column").name)
            cursor.expect(")")
        cursor.take("AS")
        cursor.expect("(")
        ctes.append((name, parse_query(cursor, nested=True)))
        columns.append(tuple(given))
        cursor.expect(")")
        spans.append(Span(start, cursor.previous.end))
        if not cursor.take(","):
            return ctes, columns, spans


def _set_operation(cursor: Cursor) -> Select | SetOperation | Query | Opaque:
    start = cursor.current.start
    operands = [_query_term(cursor)]
    operators: list[tuple[str, bool]] = []
    while cursor.at_any(SET_OPERATORS):
        word = cursor.advance().upper
        operators.append(("EXCEPT" if word == "MINUS" else word, cursor.take("ALL")))
        cursor.take("DISTINCT")
        operands.append(_query_term(cursor))
    if len(operands) == 1:
        return operands[0]
    operands = [_alone(cursor.text, each) if isinstance(each, Select) else each for each in operands]
    return SetOperation(Span(start, cursor.previous.end), tuple(operands), tuple(operators))


def _alone(text: str, select: Select) -> Select:
    """A SELECT without an ORDER BY of its own."""
    body = read_notations(text, Query(select.span, select)).body
    assert isinstance(body, Select)
    return body


def _query_term(cursor: Cursor) -> Select | Query | Opaque:
    if cursor.take("("):
        query = parse_query(cursor, nested=True)
        cursor.expect(")")
        return query
    if cursor.at("VALUES"):
        return take_values(cursor)
    if cursor.at("TABLE"):
        start = cursor.advance().start
        cursor.dotted_name("a stream, view or table")
        raise NotSupported(
            "TABLE as a query of its own is not supported",
            text=cursor.text,
            start=start,
            end=cursor.previous.end,
            hint="write SELECT * FROM",
        )
    return _select(cursor)


def _select(cursor: Cursor) -> Select:
    if not cursor.at("SELECT"):
        raise cursor.problem("expected SELECT", also=("SELECT", "WITH", "VALUES"))
    start = cursor.advance().start
    first_token = cursor.index
    distinct = cursor.take("DISTINCT")
    cursor.take("ALL")
    items = [_item(cursor)]
    while cursor.take(","):
        items.append(_item(cursor))
    relations: list[Relation] = []
    views: list[LateralView] = []
    from_span: Span | None = None
    lateral = False
    if cursor.take("FROM"):
        from_start = cursor.current.start
        relations, lateral, views = take_from(cursor, partial(parse_query, nested=True))
        from_span = Span(from_start, cursor.previous.end)
    where = take_expression(cursor, "a condition") if cursor.take("WHERE") else None
    group_start = cursor.current.start
    group, group_plain = _group(cursor)
    group_span = Span(group_start, cursor.previous.end) if group else None
    having, having_span = None, None
    if cursor.at("HAVING"):
        having_start = cursor.advance().start
        having = take_expression(cursor, "a condition")
        having_span = Span(having_start, cursor.previous.end)
    tail: list[Expression] = []
    qualify: Expression | None = None
    windows: list[tuple[str, tuple[Token, ...]]] = []
    while cursor.at_any(TAIL):
        word = cursor.advance().upper
        if word in ("SORT", "CLUSTER", "DISTRIBUTE"):
            cursor.expect("BY")
        taken = take_expressions(cursor, "an expression")
        tail += taken
        if word == "QUALIFY":
            qualify = taken[0]
        elif word == "WINDOW":
            windows += [(each.tokens[0].name, each.tokens[3:-1]) for each in taken]
    select = Select(
        Span(start, cursor.previous.end),
        distinct,
        tuple(items),
        from_span,
        tuple(relations),
        lateral,
        where,
        tuple(group),
        group_plain,
        group_span,
        having,
        having_span,
        bool(tail),
        _subqueries(cursor, first_token, relations),
        tuple(tail),
        qualify,
        tuple(windows),
        tuple(views),
    )
    return with_window(cursor.text, select)


def _group(cursor: Cursor) -> tuple[list[Expression], bool]:
    """GROUP BY, and whether it is a plain list of expressions."""
    if not at_group(cursor):
        if cursor.at("GROUP"):
            cursor.expect("GROUP", "BY")
        return [], True
    while cursor.advance().upper not in ("BY", "GROUPBY"):
        pass
    group = take_expressions(cursor, "what to group by")
    plain = not any(part.tokens[0].upper in ("ROLLUP", "CUBE", "GROUPING", "ALL") for part in group)
    last = [token.upper for token in group[-1].tokens]
    if last[-2:] in (["WITH", "ROLLUP"], ["WITH", "CUBE"]) or "SETS" in last:
        plain = False
    return group, plain


def _subqueries(cursor: Cursor, first: int, relations: list[Relation]) -> tuple[Query, ...]:
    """Queries inside expressions: SELECT or WITH after a bracket, outside the relations of FROM."""
    found: list[Query] = []
    index, last = first, cursor.index
    taken = [relation.span for relation in relations]
    while index < last:
        token = cursor.tokens[index]
        opens = token.text == "(" and cursor.tokens[index + 1].upper in ("SELECT", "WITH")
        if opens and not any(span.start <= token.start < span.end for span in taken):
            inner = Cursor(cursor.text, cursor.tokens, index + 1, cursor.depth)
            found.append(parse_query(inner, nested=True))
            if inner.current.text not in CLOSING:
                raise inner.problem("expected )")
            index = inner.index
        index += 1
    return tuple(found)


# -------------------------------------------------------------------------------------------- SELECT list


def _item(cursor: Cursor) -> Item:
    start = cursor.current.start
    expression = take_expression(cursor, "an expression to select", stop_at_as=True)
    alias: str | None = None
    bare: Token | None = None
    tokens = expression.tokens
    if cursor.take("AS"):
        if cursor.take("("):  # AS (a, b): several names for a generator
            cursor.close_bracket()
        else:
            alias = cursor.expect_name("a name after AS").name
    elif len(tokens) > 1 and tokens[-1].is_name and ends_value(tokens[-2]) and not _continues(tokens):
        bare = tokens[-1]
        alias, tokens = bare.name, tokens[:-1]
        expression = Expression(Span(tokens[0].start, tokens[-1].end), tokens)
    tokens, brackets = take_brackets(cursor.text, tokens)
    alias = alias or name_of_call(cursor.text, tokens)
    return Item(Span(start, cursor.previous.end), expression.span, alias, tokens, bare, brackets)


def _continues(tokens: tuple[Token, ...]) -> bool:
    """Whether the last word belongs to the value before it: the unit of an interval, END of a CASE, OVER w."""
    last, before = tokens[-1], tokens[-2]
    if last.kind != WORD:
        return False
    if last.upper in ("END", "NULL", "TRUE", "FALSE", "UNKNOWN", "NULLS") or before.text == "*":
        return True
    if before.kind in (NUMBER, STRING):
        return _is_unit_of_interval(tokens)
    return before.upper == "TO" or last.upper in OPERATOR_WORDS


def _is_unit_of_interval(tokens: tuple[Token, ...]) -> bool:
    """INTERVAL 1 DAY and INTERVAL 1 DAY 2 HOURS: value and unit alternate from INTERVAL to the end."""
    index = len(tokens) - 1
    if not is_unit(tokens[index].text):
        return False
    while index > 0 and tokens[index].kind == WORD and tokens[index - 1].kind in (NUMBER, STRING):
        index -= 2
        if index >= 0 and tokens[index].text == "-":
            index -= 1
        if index >= 0 and tokens[index].upper == "INTERVAL":
            return True
    return False
