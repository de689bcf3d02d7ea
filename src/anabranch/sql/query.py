"""The grammar of queries, down to clauses and relations; expressions are stepped over and kept as spans.

What Anabranch adds is recognised here: quoted paths and window functions in FROM, AS OF VERSION, and the clauses that
say when results come out. Whether an expression is well formed is for `expressions.check` and Spark to say.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.cursor import CLOSING, OPENING, Cursor
from anabranch.sql.durations import take_duration
from anabranch.sql.lexer import NUMBER, STRING, SYMBOL, WORD, Span, Token, string_value
from anabranch.sql.syntax import (
    Argument,
    Emission,
    Expression,
    Item,
    Opaque,
    Query,
    Relation,
    Select,
    SetOperation,
    WindowSpec,
)

SET_OPERATORS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})
JOIN_WORDS = frozenset(
    {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF"}
)
TAIL = frozenset({"WINDOW", "QUALIFY", "SORT", "CLUSTER", "DISTRIBUTE"})
#: Words that end an expression or a FROM item when they stand outside brackets.
CLAUSES = (
    frozenset({"FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "ON", "USING", "LATERAL"})
    | SET_OPERATORS
    | TAIL
)
WINDOW_FUNCTIONS = frozenset({"TUMBLE", "HOP"})
LATER_WINDOWS = frozenset({"CUMULATE", "SESSION"})


def parse_query(cursor: Cursor, *, nested: bool = False) -> Query:
    """WITH ... body ORDER BY ... LIMIT ... and, unless nested in another query, an emission clause."""
    start = cursor.current.start
    ctes: list[tuple[str, Query]] = []
    if cursor.take("WITH"):
        cursor.take("RECURSIVE")
        while True:
            name = cursor.expect_name("the name of a common table expression").name
            if cursor.take("("):
                cursor.close_bracket()
            cursor.expect("AS")
            cursor.expect("(")
            ctes.append((name, parse_query(cursor, nested=True)))
            cursor.expect(")")
            if not cursor.take(","):
                break
    body = _set_operation(cursor)
    order_start = cursor.index
    order: Span | None = None
    while cursor.at("ORDER", "BY") or cursor.at("LIMIT") or cursor.at("OFFSET"):
        cursor.advance()
        cursor.take("BY")
        while True:
            take_expression(cursor, "an expression")
            if not cursor.take(","):
                break
        order = Span(cursor.tokens[order_start].start, cursor.previous.end)
    order_tokens = tuple(cursor.tokens[order_start : cursor.index]) if order else ()
    emission = _emission(cursor)
    if emission is not None and nested:
        raise NotSupported(
            "when results come out is said once, at the end of the whole query",
            text=cursor.text,
            start=emission.span.start,
            end=emission.span.end,
            hint="move the clause behind the outermost SELECT",
        )
    return Query(Span(start, cursor.previous.end), body, tuple(ctes), order, emission, order_tokens)


def at_query(cursor: Cursor) -> bool:
    """Whether a query starts here (brackets around it stepped over in thought)."""
    distance = 0
    while cursor.ahead(distance).text == "(":
        distance += 1
    return cursor.ahead(distance).upper in ("SELECT", "WITH", "VALUES", "FROM")


def _set_operation(cursor: Cursor) -> Select | SetOperation | Query | Opaque:
    start = cursor.current.start
    operands = [_query_term(cursor)]
    while cursor.at_any(SET_OPERATORS):
        cursor.advance()
        _ = cursor.take("ALL") or cursor.take("DISTINCT")
        operands.append(_query_term(cursor))
    if len(operands) == 1:
        return operands[0]
    return SetOperation(Span(start, cursor.previous.end), tuple(operands))


def _query_term(cursor: Cursor) -> Select | Query | Opaque:
    if cursor.take("("):
        query = parse_query(cursor, nested=True)
        cursor.expect(")")
        return query
    if cursor.at("VALUES") or cursor.at("TABLE"):
        start = cursor.advance().start
        while True:
            take_expression(cursor, "a row of values")
            if not cursor.take(","):
                break
        if cursor.current.is_name and not cursor.at_any(CLAUSES):  # an alias for the values
            _alias(cursor)
        return Opaque(Span(start, cursor.previous.end))
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
    from_span: Span | None = None
    lateral = False
    if cursor.take("FROM"):
        from_start = cursor.current.start
        relations, lateral = _from_items(cursor)
        from_span = Span(from_start, cursor.previous.end)
    where = take_expression(cursor, "a condition") if cursor.take("WHERE") else None
    group: list[Expression] = []
    group_plain, group_span = True, None
    if cursor.at("GROUP", "BY"):
        group_start = cursor.advance().start
        cursor.advance()
        if cursor.at_any({"ROLLUP", "CUBE", "GROUPING", "ALL"}):
            group_plain = False
        while True:
            group.append(take_expression(cursor, "what to group by"))
            if not cursor.take(","):
                break
        if cursor.take("WITH") or cursor.at("GROUPING"):
            group_plain = False
            while not cursor.at_any(CLAUSES) and not cursor.at_end and cursor.current.text not in CLOSING:
                cursor.advance()
        group_plain = group_plain and not any(
            token.upper in ("ROLLUP", "CUBE", "GROUPING") for part in group for token in part.tokens[:1]
        )
        group_span = Span(group_start, cursor.previous.end)
    having, having_span = None, None
    if cursor.at("HAVING"):
        having_start = cursor.advance().start
        having = take_expression(cursor, "a condition")
        having_span = Span(having_start, cursor.previous.end)
    tail = False
    while cursor.at_any(TAIL):
        tail = True
        cursor.advance()
        cursor.take("BY")
        while True:
            take_expression(cursor, "an expression")
            if not cursor.take(","):
                break
    inner = _subqueries(cursor, first_token, cursor.index, relations)
    return Select(
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
        tail,
        inner,
    )


def _subqueries(cursor: Cursor, first: int, last: int, relations: list[Relation]) -> tuple[Query, ...]:
    """Queries inside expressions: a bracket followed by SELECT or WITH that is no relation of the FROM clause."""
    found: list[Query] = []
    index = first
    skip = [relation.span for relation in relations]
    while index < last:
        token = cursor.tokens[index]
        opens = token.text == "(" and cursor.tokens[index + 1].upper in ("SELECT", "WITH")
        if opens and not any(span.start <= token.start < span.end for span in skip):
            inner = Cursor(cursor.text, cursor.tokens)
            inner.index = index + 1
            found.append(parse_query(inner, nested=True))
            index = inner.index
        index += 1
    return tuple(found)


def _item(cursor: Cursor) -> Item:
    start = cursor.index
    if cursor.at_end or cursor.at_any(CLAUSES):
        raise cursor.problem("expected an expression to select")
    expression = take_expression(cursor, "an expression to select", stop_at_as=True)
    alias: str | None = None
    tokens = expression.tokens
    if cursor.take("AS"):
        if cursor.take("("):  # AS (a, b): several names for a generator
            cursor.close_bracket()
        else:
            alias = cursor.expect_name("a name after AS").name
    elif len(tokens) > 1 and tokens[-1].is_name and _ends_value(tokens[-2]) and not _continues(tokens):
        alias = tokens[-1].name
        tokens = tokens[:-1]
        expression = Expression(Span(tokens[0].start, tokens[-1].end), tokens)
    return Item(Span(cursor.tokens[start].start, cursor.previous.end), expression.span, alias, tokens)


#: Words after which a name still belongs to the expression.
_OPERATOR_WORDS = frozenset(
    "AND OR NOT IS IN LIKE ILIKE RLIKE REGEXP BETWEEN DISTINCT CASE WHEN THEN ELSE DIV INTERVAL ESCAPE ALL ANY SOME"
    " EXISTS OVER ROWS RANGE PRECEDING FOLLOWING TIMESTAMP DATE TIMESTAMP_NTZ TIMESTAMP_LTZ TO COLLATE".split()
)
_UNITS_OR_VALUES = frozenset({"END", "NULL", "TRUE", "FALSE"})


def _ends_value(token: Token) -> bool:
    """Whether a value can end with this token, so that a name after it is an alias."""
    if token.kind == WORD:
        return token.upper not in _OPERATOR_WORDS
    return token.kind in ("quoted", "string", "number") or token.text in (")", "]", "*")


def _continues(tokens: tuple[Token, ...]) -> bool:
    """Whether the last word belongs to the value before it: the unit of an interval, END of a CASE, OVER w."""
    last, before = tokens[-1], tokens[-2]
    if last.upper in _UNITS_OR_VALUES or before.text == "*":
        return True
    if before.kind in (NUMBER, STRING) and len(tokens) > 2 and tokens[-3].upper == "INTERVAL":
        return True
    return before.upper == "TO" or (last.upper in _OPERATOR_WORDS and last.kind == WORD)


def take_expression(cursor: Cursor, what: str, *, stop_at_as: bool = False) -> Expression:
    """Step over one expression: up to a comma, a closing bracket or a clause outside brackets."""
    start = cursor.index
    cases = 0
    while not cursor.at_end:
        token = cursor.current
        if token.kind == SYMBOL and token.text in OPENING:
            cursor.advance()
            cursor.close_bracket()
            continue
        if token.kind == SYMBOL and (token.text == "," or token.text in CLOSING):
            break
        word = token.upper
        if word == "CASE":
            cases += 1
        elif word == "END" and cases:
            cases -= 1
        elif stop_at_as and word == "AS" and not cases:
            break
        elif word in CLAUSES and cursor.index > start and not _inside_expression(cursor, word):
            break
        elif cursor.index > start and _emission_ahead(cursor):
            break
        elif cursor.index == start and word in CLAUSES and word not in ("LEFT", "RIGHT"):
            break
        cursor.advance()
    if cursor.index == start:
        raise cursor.problem(f"expected {what}")
    tokens = tuple(cursor.tokens[start : cursor.index])
    return Expression(Span(tokens[0].start, tokens[-1].end), tokens)


def _inside_expression(cursor: Cursor, word: str) -> bool:
    """Clause words that are part of an expression: IS DISTINCT FROM, WITHIN GROUP, a column called offset."""
    before = cursor.previous.upper
    if word == "FROM":
        return before == "DISTINCT" and cursor.index > 1 and cursor.tokens[cursor.index - 2].upper in ("IS", "NOT")
    if word == "GROUP":
        return before == "WITHIN"
    if cursor.previous.text == "." or cursor.ahead(1).text == ".":
        return True
    return word == "WINDOW" and cursor.ahead(1).text == "("


# ------------------------------------------------------------------------------------------------- FROM


def _from_items(cursor: Cursor) -> tuple[list[Relation], bool]:
    relations = [_relation(cursor, "")]
    lateral = False
    while True:
        if cursor.take(","):
            if cursor.take("LATERAL"):
                lateral = True
            relations.append(_relation(cursor, ","))
        elif cursor.at("LATERAL", "VIEW"):
            lateral = True
            while not cursor.at_end and not _ends_lateral(cursor):
                if cursor.advance().text in OPENING:
                    cursor.close_bracket()
        elif cursor.at_any(JOIN_WORDS):
            relations.append(_join(cursor))
        else:
            return relations, lateral


def _ends_lateral(cursor: Cursor) -> bool:
    return (
        cursor.current.upper in (CLAUSES | JOIN_WORDS) - {"LATERAL", "OUTER"}
        or cursor.current.text in (",", ")")
        or _emission_ahead(cursor)
    )


def _join(cursor: Cursor) -> Relation:
    start = cursor.current
    words: list[str] = []
    while cursor.at_any(JOIN_WORDS):
        words.append(cursor.advance().upper)
        if words[-1] == "JOIN":
            break
    if words[-1] != "JOIN":
        raise cursor.problem("expected JOIN", also=("JOIN",))
    if words[0] == "ASOF":
        raise NotSupported(
            "ASOF JOIN is not supported yet", text=cursor.text, start=start.start, end=cursor.previous.end
        )
    cursor.take("LATERAL")
    relation = _relation(cursor, " ".join(words))
    if cursor.at("ON") or cursor.at("USING"):
        on = cursor.advance()
        take_expression(cursor, "a join condition")
        return _with(relation, condition=Span(on.start, cursor.previous.end))
    return relation


def _with(relation: Relation, **changes: object) -> Relation:
    return replace(relation, **changes)  # type: ignore[arg-type]


def _relation(cursor: Cursor, join: str) -> Relation:
    token = cursor.current
    if token.kind == STRING:
        cursor.advance()
        relation = Relation("path", token.span, path=string_value(token.text), join=join)
    elif token.text == "(":
        relation = _bracketed_relation(cursor, join)
    elif token.upper == "VALUES":
        term = _query_term(cursor)
        return Relation("opaque", term.span, join=join)
    elif token.kind == WORD and token.upper in WINDOW_FUNCTIONS and cursor.ahead(1).text == "(":
        relation = _window_function(cursor, join)
    elif token.kind == WORD and token.upper in LATER_WINDOWS and cursor.ahead(1).text == "(":
        raise NotSupported(
            f"{token.upper} windows are not supported yet",
            text=cursor.text,
            start=token.start,
            end=token.end,
            hint="TUMBLE and HOP are",
        )
    elif token.is_name and not cursor.at_any(CLAUSES):
        name = cursor.dotted_name("a stream, view, table or path")
        if cursor.current.text == "(" and len(name.parts) == 1:
            arguments = take_arguments(cursor)
            relation = Relation(
                "function",
                Span(name.span.start, cursor.previous.end),
                function=name.last.lower(),
                arguments=arguments,
                join=join,
            )
        else:
            relation = Relation("name", name.span, name=name, join=join)
    else:
        raise cursor.problem("expected a stream, view, table or path")
    relation = _as_of(cursor, relation)
    if cursor.at("TABLESAMPLE") or cursor.at("PIVOT") or cursor.at("UNPIVOT"):
        cursor.advance()
        while cursor.current.text != "(" and not cursor.at_end:
            cursor.advance()
        cursor.advance()
        cursor.close_bracket()
    before = cursor.index
    alias = _alias(cursor)
    if alias is not None:
        span = Span(cursor.tokens[before].start, cursor.previous.end)
        relation = _with(relation, alias=alias, alias_span=span)
        relation = _as_of(cursor, relation)
    return relation


def _bracketed_relation(cursor: Cursor, join: str) -> Relation:
    start = cursor.current.start
    if at_query(cursor):
        cursor.advance()
        query = parse_query(cursor, nested=True)
        cursor.expect(")")
        return Relation("subquery", Span(start, cursor.previous.end), subquery=query, join=join)
    cursor.advance()  # a join in brackets: its relations are seen, its shape is Spark's business
    inner, _ = _from_items(cursor)
    cursor.expect(")")
    if len(inner) == 1:
        return _with(inner[0], join=join)
    raise NotSupported(
        "joins in brackets are not supported",
        text=cursor.text,
        start=start,
        end=cursor.previous.end,
        hint="write the joins one after the other, or as a subquery",
    )


def _as_of(cursor: Cursor, relation: Relation) -> Relation:
    if not (cursor.at("AS", "OF") or cursor.at("FOR", "SYSTEM_TIME")):
        return relation
    start = cursor.current.start
    if cursor.take("AS", "OF", "VERSION"):
        token = cursor.current
        if token.kind != NUMBER or not token.text.isdigit():
            raise cursor.problem("expected the number of a version")
        cursor.advance()
        return _with(relation, version=int(token.text), version_span=Span(start, token.end))
    raise NotSupported(
        "only AS OF VERSION n is supported", text=cursor.text, start=start, end=cursor.ahead(2).end
    )


def _alias(cursor: Cursor) -> str | None:
    if cursor.take("AS"):
        alias = cursor.expect_name("an alias").name
    elif (
        cursor.current.is_name
        and not cursor.at_any(CLAUSES | JOIN_WORDS)
        and not _emission_ahead(cursor)
        and not cursor.at("START", "AT")
        and not cursor.at("KEEP")
        and not cursor.at("AS")
    ):
        alias = cursor.advance().name
    else:
        return None
    if cursor.take("("):
        cursor.close_bracket()
    return alias


def take_arguments(cursor: Cursor) -> tuple[Argument, ...]:
    cursor.expect("(")
    arguments: list[Argument] = []
    if cursor.take(")"):
        return ()
    while True:
        start = cursor.index
        name: str | None = None
        if cursor.current.is_name and cursor.ahead(1).text in ("=>", "="):
            name = cursor.advance().name.lower()
            cursor.advance()
        value_start = cursor.index
        take_expression(cursor, "a value")
        tokens = tuple(cursor.tokens[value_start : cursor.index])
        span = Span(cursor.tokens[start].start, cursor.previous.end)
        arguments.append(Argument(name, span, literal(tokens), tokens))
        if cursor.take(")"):
            return tuple(arguments)
        cursor.expect(",")


def literal(tokens: tuple[Token, ...]) -> str | int | float | bool | None:
    """The value of a single literal, or None."""
    sign = 1
    if len(tokens) == 2 and tokens[0].text == "-":
        sign, tokens = -1, tokens[1:]
    if len(tokens) != 1:
        return None
    token = tokens[0]
    if token.kind == STRING:
        return token.value
    if token.kind == NUMBER:
        try:
            return sign * int(token.text)
        except ValueError:
            try:
                return sign * float(token.text)
            except ValueError:
                return None
    return {"TRUE": True, "FALSE": False}.get(token.upper)


# ---------------------------------------------------------------------------------------- window functions

_PARAMETERS = {
    "data": "source",
    "source": "source",
    "timecol": "time",
    "time_field": "time",
    "size": "size",
    "window_length": "size",
    "slide": "slide",
    "offset": "offset",
}


def _window_function(cursor: Cursor, join: str) -> Relation:
    """The three spellings: TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...), the same with named parameters (Flink's and
    OctoSQL's names), and TUMBLE(t, ts, INTERVAL ...)."""
    function = cursor.advance()
    kind = "hop" if function.upper == "HOP" else "tumble"
    cursor.expect("(")
    inner: Relation | None = None
    time: tuple[str, Span] | None = None
    lengths: dict[str, int] = {}
    # Positional order: Flink and RisingWave have HOP(source, time, slide, size), TUMBLE(source, time, size).
    order = ["source", "time", "slide", "size", "offset"] if kind == "hop" else ["source", "time", "size", "offset"]
    position = 0
    while True:
        if cursor.current.is_name and cursor.ahead(1).text == "=>":
            token = cursor.advance()
            cursor.advance()
            parameter = _PARAMETERS.get(token.name.lower())
            if parameter is None:
                raise SyntaxProblem(
                    f"{function.upper} has no parameter {token.name}",
                    text=cursor.text,
                    start=token.start,
                    end=token.end,
                    hint="it has DATA, TIMECOL, SIZE, SLIDE and `OFFSET`",
                )
        else:
            if position >= len(order):
                raise cursor.problem(f"{function.upper} takes at most {len(order)} arguments")
            parameter = order[position]
            position += 1
        if parameter == "source":
            inner = _window_source(cursor)
        elif parameter == "time":
            time = _time_column(cursor)
        else:
            start = cursor.current
            length = take_duration(cursor, f"the {parameter} of the window")
            if length <= 0 and parameter != "offset":
                raise SyntaxProblem(
                    f"the {parameter} of a window must be longer than nothing",
                    text=cursor.text,
                    start=start.start,
                    end=cursor.previous.end,
                )
            lengths[parameter] = length
        if cursor.take(")"):
            break
        cursor.expect(",")
    if inner is None or time is None or "size" not in lengths or (kind == "hop" and "slide" not in lengths):
        missing = "a source" if inner is None else "a time column" if time is None else "a size and a slide"
        form = "HOP(TABLE t, DESCRIPTOR(ts), slide, size)" if kind == "hop" else "TUMBLE(TABLE t, DESCRIPTOR(ts), size)"
        raise SyntaxProblem(
            f"{function.upper} needs {missing}",
            text=cursor.text,
            start=function.start,
            end=cursor.previous.end,
            hint=f"as in {form}",
        )
    window = WindowSpec(
        "hop" if kind == "hop" else "tumble",
        time[0],
        time[1],
        lengths["size"],
        lengths.get("slide", lengths["size"]),
        lengths.get("offset", 0),
    )
    return _with(inner, span=Span(function.start, cursor.previous.end), window=window, join=join)


def _window_source(cursor: Cursor) -> Relation:
    if cursor.at("TABLE", "("):
        cursor.advance()
        cursor.advance()
        relation = _relation(cursor, "")
        cursor.expect(")")
        return relation
    cursor.take("TABLE")
    return _relation(cursor, "")


def _time_column(cursor: Cursor) -> tuple[str, Span]:
    bracket = cursor.take("DESCRIPTOR", "(")
    name = cursor.dotted_name("a time column")
    if bracket:
        cursor.expect(")")
    return name.last, name.span


# ------------------------------------------------------------------------------------------------ emission

_EMIT_WORDS = {
    "EMIT": {"ON", "CHANGES", "STREAM", "AFTER"},
    "TRIGGER": {"ON", "COUNTING", "AFTER"},
    "LATE": {"CORRECT", "ARCHIVE", "DROP", "FAIL"},
}


def _emission_ahead(cursor: Cursor) -> bool:
    """TRIGGER, EMIT and LATE are ordinary names unless the word after them makes them a clause."""
    return cursor.ahead(1).upper in _EMIT_WORDS.get(cursor.current.upper, ())


def _emission(cursor: Cursor) -> Emission | None:
    if not _emission_ahead(cursor):
        return None
    start = cursor.current.start
    mode = None
    if cursor.take("EMIT", "ON", "WINDOW", "CLOSE") or cursor.take("TRIGGER", "ON", "WATERMARK"):
        mode = "close"
    elif cursor.take("EMIT", "CHANGES") or cursor.take("LATE", "CORRECT"):
        mode = "changes"
    elif cursor.at("EMIT", "ON"):
        raise cursor.problem("expected EMIT ON WINDOW CLOSE or TRIGGER ON WATERMARK")
    if mode is None or cursor.current.text == "," or cursor.at("AND"):
        raise NotSupported(
            "this emission clause is not supported yet",
            text=cursor.text,
            start=start,
            end=cursor.ahead(1).end,
            hint="there is EMIT ON WINDOW CLOSE, TRIGGER ON WATERMARK, EMIT CHANGES",
        )
    emission = Emission("close" if mode == "close" else "changes", Span(start, cursor.previous.end))
    if cursor.take("LATE", "CORRECT"):
        emission = Emission(emission.mode, Span(start, cursor.previous.end))
    if _emission_ahead(cursor):
        raise cursor.problem("one emission clause is enough")
    return emission
