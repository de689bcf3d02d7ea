"""The call of a function over a relation in FROM: a source, a time column and arguments, by position or by name.

`windows` and `watermarks` define the functions and the meaning of their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.errors import SyntaxProblem, did_you_mean
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import WORD, Token
from anabranch.sql.syntax import Name, Relation
from anabranch.sql.text import Span

TakeRelation = Callable[[Cursor, str], Relation]
Value = TypeVar("Value")

SOURCE, TIME, KEY = "source", "time", "key"


@dataclass(frozen=True)
class TableFunction:
    """The signature of a function: its parameters in positional order."""

    order: tuple[str, ...]
    names: Mapping[str, str]  # name or synonym of a parameter -> the parameter
    shown: tuple[str, ...]  # the names to list in errors
    example: str
    optional: tuple[str, ...] = ()
    partitioned: bool = False
    columns: tuple[str, ...] = ()  # the parameters that are columns of the source, except the time


@dataclass(frozen=True)
class Call(Generic[Value]):
    """The arguments of a call."""

    span: Span
    source: Relation
    time: Name | None
    partition: tuple[Name, ...]
    arguments: Mapping[str, Value]
    columns: tuple[Name, ...] = ()


def at_function(cursor: Cursor, functions: Mapping[str, TableFunction]) -> bool:
    """Whether one of these functions is called here; without a bracket the word is a name."""
    token = cursor.current
    return token.kind == WORD and cursor.ahead(1).text == "(" and token.upper in functions


def take_call(
    cursor: Cursor,
    functions: Mapping[str, TableFunction],
    take_relation: TakeRelation,
    take_argument: Callable[[Cursor, str], Value],
) -> Call[Value]:
    """F(TABLE t, DESCRIPTOR(ts), argument, ...), F(t, ts, argument, ...) or F(name => ..., ...) in any order."""
    token = cursor.advance()
    function = functions[token.upper]
    source: Relation | None = None
    time: Name | None = None
    partition: tuple[Name, ...] = ()
    arguments: dict[str, Value] = {}
    columns: dict[str, Name] = {}
    given: set[str] = set()
    cursor.expect("(")
    position = 0
    while True:
        if cursor.current.is_name and cursor.ahead(1).text == "=>":
            parameter = _named(cursor, token, function)
        elif cursor.at("DESCRIPTOR", "(") and TIME in given:
            parameter = KEY  # as in Calcite: SESSION(TABLE t, DESCRIPTOR(ts), DESCRIPTOR(k), INTERVAL ...)
            if not function.partitioned:
                raise refuse_keys(cursor.text, token.upper, cursor.current.span, "second DESCRIPTOR")
        elif position < len(function.order):
            parameter = function.order[position]
            position += 1
        else:
            raise cursor.problem(f"{token.upper} takes at most {len(function.order)} arguments")
        if parameter in given:
            raise SyntaxProblem(f"the {parameter} is given twice", text=cursor.text, at=cursor.current)
        given.add(parameter)
        if parameter == SOURCE:
            with cursor.deeper():
                source = take_source(cursor, take_relation)
            partition = _partition(cursor, token, function) or partition
        elif parameter == KEY:
            partition = _keys(cursor, partition)
        elif parameter == TIME:
            time = _descriptor(cursor)
        elif parameter in function.columns:
            columns[parameter] = _descriptor(cursor)
        else:
            arguments[parameter] = take_argument(cursor, parameter)
        if cursor.take(")"):
            break
        cursor.expect(",")
    span = Span(token.start, cursor.previous.end)
    missing = [each for each in function.order if each not in (SOURCE, TIME, *function.optional, *arguments, *columns)]
    column = "a time column" if set(function.order[2:]) - set(function.optional) else "a column"
    no_time = time is None and TIME in function.order and TIME not in function.optional
    if source is None or no_time or missing:
        what = "a source" if source is None else column if no_time else _with_article(missing[-1])
        raise SyntaxProblem(f"{token.upper} needs {what}", text=cursor.text, at=span, hint=f"as in {function.example}")
    return Call(span, source, time, partition, arguments, tuple(columns[each] for each in function.columns))


def _with_article(parameter: str) -> str:
    if parameter.endswith("s"):
        return parameter
    return f"{'an' if parameter[0] in 'aeiou' else 'a'} {parameter}"


def _named(cursor: Cursor, function: Token, known: TableFunction) -> str:
    token = cursor.advance()
    cursor.advance()
    parameter = known.names.get(token.name.lower())
    if parameter == KEY and not known.partitioned:
        raise refuse_keys(cursor.text, function.upper, token.span, "KEY")
    if parameter is None or parameter not in (*known.order, KEY):
        raise SyntaxProblem(
            f"{function.upper} has no parameter {token.name}",
            text=cursor.text,
            at=token,
            hint=did_you_mean(token.name, known.shown),
        )
    return parameter


def take_source(cursor: Cursor, take_relation: TakeRelation) -> Relation:
    """A relation, with TABLE before it or around it."""
    bracket = cursor.at("TABLE", "(") and cursor.ahead(2).upper not in ("SELECT", "WITH")
    cursor.take("TABLE")
    if bracket:
        cursor.expect("(")
    relation = take_relation(cursor, "")
    if bracket:
        cursor.expect(")")
    notation = relation.spelled or relation.bracket
    if notation is not None:
        raise SyntaxProblem(
            "a window in this notation follows a relation of FROM, and is not an argument of a function",
            text=cursor.text,
            at=notation.span,
            hint="read the relation in a subquery",
        )
    return relation


def _partition(cursor: Cursor, function: Token, known: TableFunction) -> tuple[Name, ...]:
    start = cursor.current.start
    if not cursor.take("PARTITION", "BY"):
        return ()
    columns = [cursor.expect_name("a column")]
    while _another_column(cursor):
        cursor.advance()
        columns.append(cursor.expect_name("a column"))
    if not known.partitioned:
        raise refuse_keys(cursor.text, function.upper, Span(start, cursor.previous.end), "PARTITION BY")
    return tuple(Name((column.name,), Span(column.start, column.end)) for column in columns)


def refuse_keys(text: str, function: str, span: Span, what: str) -> SyntaxProblem:
    message = f"{function} takes no {what}: it is the same for all rows"
    return SyntaxProblem(message, text=text, at=span, hint="put the columns into GROUP BY")


def _keys(cursor: Cursor, partition: tuple[Name, ...]) -> tuple[Name, ...]:
    """DESCRIPTOR(k, ...) instead of PARTITION BY k, ..."""
    start = cursor.current.start
    bracket = cursor.take("DESCRIPTOR", "(")
    columns = [cursor.expect_name("a column")]
    while bracket and cursor.take(","):
        columns.append(cursor.expect_name("a column"))
    if bracket:
        cursor.expect(")")
    if partition:
        raise SyntaxProblem(
            "the partition columns of the windows are given twice",
            text=cursor.text,
            start=start,
            end=cursor.previous.end,
            hint="give them once: PARTITION BY k, or a DESCRIPTOR(k)",
        )
    return tuple(Name((column.name,), Span(column.start, column.end)) for column in columns)


def _another_column(cursor: Cursor) -> bool:
    """Whether the columns of PARTITION BY continue after the comma, not the next argument."""
    following = [cursor.ahead(distance) for distance in range(5)]
    if following[0].text != "," or not following[1].is_name or following[2].text != ",":
        return False
    return following[3].upper == "DESCRIPTOR" or (following[3].is_name and following[4].text in (",", "=>"))


def _descriptor(cursor: Cursor) -> Name:
    bracket = cursor.take("DESCRIPTOR", "(")
    name = take_attribute(cursor)
    if bracket:
        cursor.expect(")")
    return name


def take_attribute(cursor: Cursor) -> Name:
    """The attribute of windows: a column, or row-num or arrival-ts, which need no quotes."""
    first, dash, last = cursor.current, cursor.ahead(1), cursor.ahead(2)
    if dash.text == "-" and f"{first.upper}-{last.upper}" in ("ROW-NUM", "ARRIVAL-TS"):
        for _ in range(3):
            cursor.advance()
        return Name((f"{first.text}_{last.text}".lower(),), Span(first.start, last.end))
    return cursor.dotted_name("a time column")
