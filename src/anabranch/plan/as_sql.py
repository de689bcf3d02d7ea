"""The CREATE statement of an existing object, with inferred columns written out and absolute paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.plan.definitions import Sink, Stream, Table
from anabranch.plan.view import View
from anabranch.sources.secrets import is_reference, text_of
from anabranch.sql.lexer import tokenize
from anabranch.sql.parser import parse
from anabranch.sql.spelling import as_written
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import CreateSink, CreateStream, CreateView
from anabranch.sql.text import Span, quote_string
from anabranch.types import Field


def create_statement(made: Stream | Table | View | Sink) -> str:
    """CREATE STREAM, TABLE, VIEW or SINK of an object."""
    if isinstance(made, Table):
        return _table(made)
    (statement,) = parse(made.sql)
    assert isinstance(statement, CreateStream | CreateView | CreateSink)
    text, name = statement.text, statement.name.span
    edits = [Edit(Span(statement.span.start, name.end), f"CREATE {made.kind.upper()} {as_written(made.name)}")]
    if isinstance(statement, CreateStream) and statement.source is not None:
        assert isinstance(made, Stream)
        if not statement.columns:
            edits += _inferred(text, name.end, made.fields)
        edits.append(Edit(statement.source.span, _call(made.source or "", made.options)))
    elif isinstance(statement, CreateSink):
        assert isinstance(made, Sink)
        edits.append(Edit(statement.into.span, _call(made.into, made.options)))
    return splice(text, statement.span, edits).text


def _table(table: Table) -> str:
    text = f"CREATE TABLE {as_written(table.name)} ({_columns(table.fields)})"
    if table.source is not None:
        text += f" FROM {_call(table.source, table.options)}"
    elif table.query is not None:
        text += f" AS {table.query}"
    return f"{text} REFRESH EVERY RUN" if table.every_run else text


def _columns(fields: tuple[Field, ...]) -> str:
    # Names of struct fields keep their case.
    types = [field.type if "<" in field.type else field.type.upper() for field in fields]
    return ", ".join(f"{as_written(field.name)} {type}" for field, type in zip(fields, types, strict=True))


def _inferred(text: str, place: int, fields: tuple[Field, ...]) -> Iterator[Edit]:
    """The edit that adds the columns after the name, inside the parentheses of a watermark if there are any."""
    columns = _columns(fields)
    following = next(token for token in tokenize(text) if token.start >= place)
    if following.text == "(":
        yield Edit(Span(following.end, following.end), f"{columns}, ", following.span)
    else:
        yield Edit(Span(place, place), f" ({columns})")


def _call(kind: str, options: Mapping[str, Any]) -> str:
    return f"{kind}({', '.join(f'{name} => {_literal(value)}' for name, value in options.items())})"


def _literal(value: Any) -> str:
    if is_reference(value):
        return text_of(value)
    if isinstance(value, bool):
        return str(value).lower()
    return quote_string(value) if isinstance(value, str) else str(value)
