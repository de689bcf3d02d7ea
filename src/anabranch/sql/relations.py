"""The grammar of FROM: names, quoted paths, functions, subqueries and joins, with the extensions of Anabranch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.calls import closing
from anabranch.sql.cursor import Cursor
from anabranch.sql.dialects.windows import (
    Bracket,
    SpelledWindow,
    at_bracket,
    at_cut,
    at_stream,
    at_visible,
    has_brackets,
    take_bracket,
    take_cut,
    take_cut_string,
    take_visible,
)
from anabranch.sql.emission import emission_ahead
from anabranch.sql.lexer import NUMBER, OPENING, STRING, WORD, string_value
from anabranch.sql.net import at_net, take_net
from anabranch.sql.syntax import Expression, LateralView, Opaque, Query, Relation, Sample, Select, SetOperation, all_of
from anabranch.sql.table_functions import TakeRelation
from anabranch.sql.terms import (
    CLAUSES,
    JOIN_WORDS,
    at_group,
    join_ahead,
    misspelt,
    refuse_misspelt,
    take_arguments,
    take_expression,
)
from anabranch.sql.text import Span
from anabranch.sql.versions import at_match, take_versions
from anabranch.sql.watermarks import at_watermark_function, take_watermark_function
from anabranch.sql.windows import WINDOW_FUNCTIONS, at_table_of_windows, at_window_function, take_window_function

TakeQuery = Callable[[Cursor], Query]

#: Methods that take a percentage, in Postgres and DuckDB.
_METHODS = ("BERNOULLI", "SYSTEM", "RESERVOIR")
#: The name of relations joined by UNION without an alias.
UNION_NAME = "__union"
_NUMBER = re.compile(r"\s*[\d.]+\s*")
_CLOCKS = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "LOCALTIMESTAMP", "TIMESTAMP", "DATE")


def take_from(cursor: Cursor, take_query: TakeQuery) -> tuple[list[Relation], bool, list[LateralView]]:
    """The relations of FROM, whether one is LATERAL, and the lateral views.

    A relation can be a query: `take_query` is the rule for one in brackets.
    """
    relations = [take_relation(cursor, "", take_query)]
    views: list[LateralView] = []
    lateral = False
    while True:
        if cursor.take(","):
            if cursor.at("WHERE") and has_brackets(cursor):  # as in printed queries
                return relations, lateral, views
            is_lateral = cursor.take("LATERAL")
            relations.append(replace(take_relation(cursor, ",", take_query), lateral=is_lateral))
            lateral = lateral or is_lateral
        elif cursor.at("LATERAL", "VIEW"):
            lateral = True
            views.append(_lateral_view(cursor, len(relations)))
        elif cursor.at_any(JOIN_WORDS) or join_ahead(cursor):
            relation, is_lateral = _join(cursor, take_query)
            relations.append(relation)
            lateral = lateral or is_lateral
        else:
            return relations, lateral, views


def _lateral_view(cursor: Cursor, after: int) -> LateralView:
    """LATERAL VIEW [OUTER] generator(...) [alias] [AS a, b]"""
    start = cursor.current.start
    cursor.expect("LATERAL", "VIEW")
    outer = cursor.take("OUTER")
    first = cursor.index
    while not cursor.at_end and not _ends_lateral(cursor):
        if cursor.advance().text in OPENING:
            cursor.close_bracket()
    tokens = cursor.tokens[first : cursor.index]
    end = next((i for i, token in enumerate(tokens) if token.text == "("), len(tokens) - 1)
    end = closing(tokens, end) if tokens else 0
    call, behind = tuple(tokens[: end + 1]), list(tokens[end + 1 :])
    alias = behind.pop(0).name if behind and behind[0].is_name and behind[0].upper != "AS" else None
    columns = tuple(token.name for token in behind if token.is_name and token.upper != "AS")
    span = Span(call[0].start, call[-1].end) if call else Span(start, cursor.previous.end)
    return LateralView(Span(start, cursor.previous.end), outer, Expression(span, call), alias, columns, after)


def _ends_lateral(cursor: Cursor) -> bool:
    # A comma does not end it: LATERAL VIEW explode(m) t AS k, v
    return (
        cursor.at_any((CLAUSES | JOIN_WORDS) - {"LATERAL", "OUTER"})
        or cursor.current.text == ")"
        or emission_ahead(cursor)
        or cursor.at("START", "AT")
    )


def _join(cursor: Cursor, take_query: TakeQuery) -> tuple[Relation, bool]:
    words: list[str] = []
    start = cursor.current.start
    while cursor.at_any(JOIN_WORDS | {"ASOF"}):
        words.append(cursor.advance().upper)
        if words[-1] == "JOIN":
            break
    if words[-1] != "JOIN":
        raise cursor.problem("expected JOIN", also=("JOIN",))
    span = Span(start, cursor.previous.end)
    lateral = cursor.take("LATERAL")
    relation = replace(take_relation(cursor, " ".join(words), take_query), lateral=lateral)
    if "ASOF" in words or relation.moment is not None:
        return take_versions(cursor, span, words, relation), lateral
    if cursor.at("ON") or cursor.at("USING"):
        on = cursor.advance()
        condition = take_expression(cursor, "a join condition")
        return (
            replace(relation, condition=Span(on.start, condition.span.end), condition_tokens=(on, *condition.tokens)),
            lateral,
        )
    return relation, lateral


def take_relation(cursor: Cursor, join: str, take_query: TakeQuery) -> Relation:
    """One relation with its AS OF and its alias."""
    relation = _union(cursor, _plain(cursor, join, take_query), take_query)
    relation = _notation(cursor, relation)
    before = cursor.current.start
    alias = take_alias(cursor)
    if alias is not None:
        name, columns = alias
        span = Span(before, cursor.previous.end)
        relation = replace(relation, alias=name, alias_span=span, alias_columns=columns)
        relation = _refreshable(cursor, _as_of(cursor, relation))
        if relation.sample is None and at_sample(cursor):  # after the alias, as in other systems
            relation = _sampled(cursor, relation)
        relation = _notation(cursor, relation)
    return relation


def _plain(cursor: Cursor, join: str, take_query: TakeQuery) -> Relation:
    """A relation with its AS OF, without an alias."""

    def inner(cursor: Cursor, join: str) -> Relation:
        return take_relation(cursor, join, take_query)

    token = cursor.current
    if at_stream(cursor):
        relation = _stream(cursor, join, inner)
    elif token.kind == STRING:
        cursor.advance()
        relation = Relation("path", token.span, path=string_value(token.text), join=join)
    elif token.text == "(":
        relation = _bracketed(cursor, join, take_query)
    elif token.upper == "VALUES":
        return Relation("opaque", take_values(cursor).span, join=join)
    elif at_window_function(cursor):
        relation = take_window_function(cursor, join, inner)
    elif at_table_of_windows(cursor):
        cursor.advance()
        cursor.expect("(")
        relation = take_window_function(cursor, join, inner)
        cursor.expect(")")
        relation = replace(relation, span=Span(token.start, cursor.previous.end))
    elif at_net(cursor):
        relation = take_net(cursor, join, inner)
    elif at_watermark_function(cursor):
        relation = take_watermark_function(cursor, join, inner)
    elif token.is_name and not cursor.at_any(CLAUSES):
        _refuse_misspelt_windows(cursor)
        relation = _named(cursor, join)
    else:
        raise cursor.problem("expected a stream, view, table or path")
    relation = _as_of(cursor, relation)
    while cursor.at("PIVOT") or cursor.at("UNPIVOT") or at_sample(cursor):
        if at_sample(cursor):
            relation = _sampled(cursor, relation)
            continue
        cursor.advance()
        while cursor.current.text != "(" and not cursor.at_end:
            cursor.advance()
        cursor.expect("(")
        cursor.close_bracket()
        relation = replace(relation, reshaped=True)
    return _refreshable(cursor, relation)


# ---- notations of other systems


def _stream(cursor: Cursor, join: str, take_inner: TakeRelation) -> Relation:
    """STREAM(s, 'CUT ON ts BY 60 SECS' [, 'BLOCK' [, n]]): a window over its first argument."""
    word = cursor.advance()
    cursor.expect("(")
    with cursor.deeper():
        inner = take_inner(cursor, join)
    cursor.expect(",")
    window = take_cut_string(cursor)
    if inner.spelled is not None or inner.bracket is not None:
        raise SyntaxProblem("a stream is cut once", text=cursor.text, at=word)
    return replace(inner, spelled=replace(window, span=Span(word.start, cursor.previous.end)))


def _notation(cursor: Cursor, relation: Relation) -> Relation:
    """Windows after a relation."""
    while True:
        found: SpelledWindow | Bracket
        if at_bracket(cursor.tokens, cursor.index):
            found = take_bracket(cursor)
            made = replace(relation, bracket=found)
        elif at_visible(cursor.tokens, cursor.index) or at_cut(cursor):
            found = take_visible(cursor) if cursor.at("<") else take_cut(cursor)
            made = replace(relation, spelled=found)
        else:
            return relation
        if relation.spelled is not None or relation.bracket is not None:
            span = found.span
            what = "this relation has a window already"
            raise SyntaxProblem(what, text=cursor.text, at=span)
        relation = made


def _union(cursor: Cursor, first: Relation, take_query: TakeQuery) -> Relation:
    """Relations joined by UNION or U, in a query with windows in brackets."""
    relations = [first]
    while _at_union(cursor):
        cursor.advance()
        _ = cursor.take("ALL") or cursor.take("DISTINCT")
        relations.append(_plain(cursor, "", take_query))
    if len(relations) == 1:
        return first
    operands: list[Select | Query | Opaque] = []
    for each in relations:
        body = each.subquery.body if each.subquery is not None and each.alias == UNION_NAME else None
        operands += body.operands if isinstance(body, SetOperation) else [all_of(each)]
    span = Span(first.span.start, cursor.previous.end)
    union = SetOperation(span, tuple(operands), (("UNION", True),) * (len(operands) - 1))
    return Relation("subquery", span, alias=UNION_NAME, subquery=Query(span, union), join=first.join)


def _at_union(cursor: Cursor) -> bool:
    if not (cursor.at("UNION") or cursor.at("U")) or not has_brackets(cursor):
        return False
    behind = cursor.ahead(1)
    if cursor.at("U"):
        return (behind.is_name or behind.text == "(") and behind.upper not in JOIN_WORDS
    look = Cursor(cursor.text, cursor.tokens, cursor.index + 1)
    _ = look.take("ALL") or look.take("DISTINCT")
    return not at_query(look) and not look.at("TABLE")


def at_sample(cursor: Cursor) -> bool:
    bracket = cursor.ahead(1).text == "(" or (cursor.ahead(1).upper in _METHODS and cursor.ahead(2).text == "(")
    return cursor.at("TABLESAMPLE") and bracket


def _sampled(cursor: Cursor, relation: Relation) -> Relation:
    """TABLESAMPLE [method] (...) [REPEATABLE (n)]: in Spark it follows a query and has no method."""
    start = cursor.advance().start
    method = cursor.current.upper in _METHODS and bool(cursor.advance())
    opening = cursor.expect("(")
    cursor.close_bracket()
    size = Span(opening.end, cursor.previous.start)
    percent = " PERCENT" if method and _NUMBER.fullmatch(size.of(cursor.text)) else ""
    behind = cursor.previous.start
    if cursor.take("REPEATABLE", "("):
        cursor.close_bracket()
    text = f"TABLESAMPLE ({size.of(cursor.text)}{percent}{Span(behind, cursor.previous.end).of(cursor.text)}"
    query, sample = all_of(relation), Sample(Span(start, cursor.previous.end), text)
    return Relation("subquery", query.span, relation.exposed, subquery=query, join=relation.join, sample=sample)


def _refuse_misspelt_windows(cursor: Cursor) -> None:
    """Refuse a misspelt window function (one letter added, missing or wrong), unless its name is short."""
    place = 2 if cursor.at("TABLE", "(") else 0
    token, long = cursor.ahead(place), [name for name in WINDOW_FUNCTIONS if len(name) > 4]
    guess = misspelt(token, long) if cursor.ahead(place + 1).text == "(" else None
    if guess is not None:
        what, hint = f"there is no function {token.text} in FROM", f"did you mean {guess}?"
        raise SyntaxProblem(what, text=cursor.text, at=token, hint=hint)


def _refreshable(cursor: Cursor, relation: Relation) -> Relation:
    if relation.refreshable is None and at_refreshable(cursor):
        return replace(relation, refreshable=cursor.advance().span)
    return relation


def at_refreshable(cursor: Cursor) -> bool:
    """Whether this is the keyword REFRESHABLE, not an alias: that has columns, or qualifies a name."""
    if not cursor.at("REFRESHABLE") or cursor.ahead(1).text == "(":
        return False
    pairs = zip(cursor.tokens, cursor.tokens[1:], strict=False)
    return not any(token.upper == "REFRESHABLE" and dot.text == "." for token, dot in pairs)


def _named(cursor: Cursor, join: str) -> Relation:
    name = cursor.dotted_name("a stream, view, table or path")
    if cursor.current.text == "(" and len(name.parts) == 1:
        arguments = take_arguments(cursor)
        span = Span(name.span.start, cursor.previous.end)
        return Relation("function", span, function=name.last.lower(), arguments=arguments, join=join)
    return Relation("name", name.span, name=name, join=join)


def at_query(cursor: Cursor) -> bool:
    """Whether a query starts here, in brackets or not."""
    distance = 0
    while cursor.ahead(distance).text == "(":
        distance += 1
    word = cursor.ahead(distance)
    return word.kind == WORD and word.upper in ("SELECT", "WITH", "VALUES", "FROM")


def take_values(cursor: Cursor) -> Opaque:
    """VALUES (1, 'a'), (2, 'b') [alias]"""
    start = cursor.advance().start
    rows = [_row(cursor)]
    while cursor.take(","):
        rows.append(_row(cursor))
    take_alias(cursor)
    return Opaque(Span(start, cursor.previous.end), tuple(rows))


def _row(cursor: Cursor) -> Expression:
    if not cursor.at("("):
        return take_expression(cursor, "a row of values", stop_at_as=True)
    first = cursor.index
    cursor.advance()
    cursor.close_bracket()
    tokens = tuple(cursor.tokens[first : cursor.index])
    return Expression(Span(tokens[0].start, tokens[-1].end), tokens)


def _bracketed(cursor: Cursor, join: str, take_query: TakeQuery) -> Relation:
    start = cursor.current.start
    if at_query(cursor):
        cursor.advance()
        query = take_query(cursor)
        cursor.expect(")")
        return Relation("subquery", Span(start, cursor.previous.end), subquery=query, join=join)
    cursor.advance()
    with cursor.deeper():
        inner, _, _ = take_from(cursor, take_query)
    cursor.expect(")")
    if len(inner) == 1:
        return replace(inner[0], join=join)
    raise NotSupported(
        "joins in brackets are not supported",
        text=cursor.text,
        start=start,
        end=cursor.previous.end,
        hint="write the joins one after the other, or as a subquery",
    )


def _as_of(cursor: Cursor, relation: Relation) -> Relation:
    if cursor.at("INCLUDING", "PROVISIONAL"):
        start = cursor.advance().start
        cursor.advance()
        span = Span(start, cursor.previous.end)
        if relation.kind != "name" or relation.version is not None:
            raise SyntaxProblem("only a view has answers that are not final", text=cursor.text, at=span)
        return replace(relation, provisional=True, version_span=span)
    if not (cursor.at("AS", "OF") or cursor.at("FOR", "SYSTEM_TIME")):
        return relation
    start = cursor.current.start
    if cursor.take("AS", "OF", "VERSION"):
        version = cursor.expect_whole_number("the number of a version")
        span = Span(start, cursor.previous.end)
        if relation.kind != "name":
            raise SyntaxProblem("only streams, views and tables have versions", text=cursor.text, at=span)
        return replace(relation, version=version, version_span=span)
    if cursor.take("FOR", "SYSTEM_TIME", "AS", "OF", "PROCTIME", "(", ")"):
        return replace(relation, current=True, version_span=Span(start, cursor.previous.end))
    message, hint = "only AS OF VERSION n is supported", None
    if at_moment(cursor) and "JOIN" in relation.join:
        cursor.index += 4
        first = cursor.index
        cursor.dotted_name("the time of another relation")
        tokens = tuple(cursor.tokens[first : cursor.index])
        return replace(relation, moment=Expression(Span(start, cursor.previous.end), tokens))
    if at_moment(cursor):
        message, hint = "a time of another relation has versions in a join only", "JOIN ... FOR SYSTEM_TIME AS OF ..."
    raise NotSupported(message, text=cursor.text, start=start, end=cursor.ahead(2).end, hint=hint)


def at_moment(cursor: Cursor) -> bool:
    """FOR SYSTEM_TIME AS OF o.ts: the time is that of another relation."""
    if not cursor.at("FOR", "SYSTEM_TIME", "AS", "OF"):
        return False
    first, second = cursor.ahead(4), cursor.ahead(5)
    return first.is_name and second.text != "(" and second.kind not in (STRING, NUMBER) and first.upper not in _CLOCKS


def take_alias(cursor: Cursor) -> tuple[str, tuple[str, ...]] | None:
    """An alias, with AS or without, and the names it gives to columns."""
    token = cursor.current
    if cursor.take("AS"):
        alias = cursor.expect_name("an alias").name
    elif (
        token.is_name
        and not cursor.at_any(CLAUSES | JOIN_WORDS)
        and not emission_ahead(cursor)
        and not cursor.at("START", "AT")
        and not cursor.at("KEEP")
        and not cursor.at("PARTITION", "BY")
        and not at_refreshable(cursor)
        and not join_ahead(cursor)
        and not at_match(cursor)
        and not at_group(cursor)
    ):
        refuse_misspelt(cursor)
        alias = cursor.advance().name
    else:
        return None
    columns: list[str] = []
    if cursor.take("("):
        while True:
            if not cursor.current.is_name or cursor.ahead(1).text not in (",", ")"):
                keyword = misspelt(token)
                hint = f"did you mean {keyword}?" if keyword is not None else None
                where = token if keyword is not None else cursor.current
                raise SyntaxProblem(
                    f"expected the names of columns after {alias}", text=cursor.text, at=where, hint=hint
                )
            columns.append(cursor.advance().name)
            if cursor.take(")"):
                break
            cursor.expect(",")
    return alias, tuple(columns)
