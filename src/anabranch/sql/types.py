"""Translate the types of other systems to Spark's, in columns and in casts:

    CREATE STREAM s (name TEXT, n INT8, ts TIMESTAMP(3))        x::TEXT, CAST(x AS DOUBLE PRECISION)

Refuses types that a column cannot have, with an alternative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anabranch.errors import SyntaxProblem
from anabranch.sql.calls import closing
from anabranch.sql.lexer import END, NUMBER, WORD, Token, tokenize
from anabranch.sql.splice import Edit, splice
from anabranch.sql.text import Span, words

SPARK_TYPES = words(
    "BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DECIMAL DEC NUMERIC DATE TIMESTAMP"
    " TIMESTAMP_LTZ TIMESTAMP_NTZ STRING CHAR CHARACTER VARCHAR BINARY INTERVAL ARRAY MAP STRUCT VARIANT TIME"
)
_NAMES = {
    "TEXT": "STRING", "CLOB": "STRING", "NVARCHAR": "VARCHAR", "BPCHAR": "CHAR", "NCHAR": "CHAR",
    "INT1": "TINYINT", "INT2": "SMALLINT", "INT4": "INT", "INT8": "BIGINT", "INT16": "SMALLINT", "INT32": "INT",
    "INT64": "BIGINT", "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "FLOAT32": "FLOAT", "FLOAT64": "DOUBLE",
    "BOOL": "BOOLEAN", "TIMESTAMPTZ": "TIMESTAMP", "DATETIME": "TIMESTAMP",
    "BYTEA": "BINARY", "BLOB": "BINARY", "VARBINARY": "BINARY", "BYTES": "BINARY",
}  # fmt: skip
_NUMBERS = (
    "a number: of seconds, which make_dt_interval(0, 0, 0, n) makes an interval, or of months: make_ym_interval(0, n)"
)
#: Types that a column cannot have, and what to use instead.
_INSTEAD = {
    "JSON": "STRING",
    "JSONB": "STRING",
    "VARIANT": "STRING, and parse_json(column) where it is read",
    "UUID": "STRING",
    "MONEY": "DECIMAL(19, 2)",
    "SERIAL": "BIGINT",
    "BIGSERIAL": "BIGINT",
    "HUGEINT": "DECIMAL(38, 0)",
    "TIME": "STRING, or a number of seconds",
    "INTERVAL": _NUMBERS,
}
TYPES = SPARK_TYPES | frozenset(_NAMES) | frozenset(_INSTEAD)
_TIMES = words("TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TIMESTAMPTZ DATETIME")
_TEXTS = words("CHAR CHARACTER VARCHAR NVARCHAR NCHAR BPCHAR")
_ZONES = {
    "WITH TIME ZONE": "TIMESTAMP",
    "WITH LOCAL TIME ZONE": "TIMESTAMP",
    "WITHOUT TIME ZONE": "TIMESTAMP_NTZ",
}
_DIGITS = 6  # of a second, in a time of Spark


def column_type(text: str, tokens: list[Token]) -> str:
    """Spark's name of the type of a column; raises for a type that cannot be stored."""
    edits = list(_renamed(text, tokens, column=True))
    return splice(text, Span(tokens[0].start, tokens[-1].end), edits).text


def with_types(text: str, tokens: list[Token]) -> list[Token]:
    """The tokens of a statement with the types of casts under Spark's names, at their spans."""
    found: list[Token] = []
    done = 0
    for edit in _cast_types(text, tokens):
        at = next((index for index in range(done, len(tokens)) if tokens[index].start == edit.span.start), None)
        if at is None:  # a CAST without a type around another one
            continue
        first, *rest = tokenize(edit.text)[:-1]
        found += [*tokens[done:at], replace(first, start=edit.span.start, end=edit.span.end)]
        found += (replace(each, start=edit.span.end, end=edit.span.end) for each in rest)
        done = next(index for index in range(at, len(tokens)) if tokens[index].start >= edit.span.end)
    return [*found, *tokens[done:]] if done else tokens


def _cast_types(text: str, tokens: list[Token]) -> list[Edit]:
    edits: list[Edit] = []
    for index, token in enumerate(tokens):
        if token.upper in ("CAST", "TRY_CAST") and tokens[min(index + 1, len(tokens) - 1)].text == "(":
            last = closing(tokens, index + 1)
            named = [at for at in range(index + 2, last) if tokens[at].upper == "AS"]
            edits += _renamed(text, tokens[named[-1] + 1 : last]) if named else ()
        elif token.text == "::":
            edits += _renamed(text, tokens[index + 1 : _type_end(tokens, index + 1)])
    return sorted(edits, key=lambda edit: edit.span.start)


def _renamed(text: str, tokens: list[Token], *, column: bool = False) -> Iterator[Edit]:
    """The edits of one type, with the types inside it."""
    inside: list[str] = []  # the enclosing types, outermost first
    names = False  # whether the next word is the name of a field
    end = tokens[-1].end if tokens else 0
    tokens = [*tokens, *(Token(END, "", end, end) for _ in range(8))]
    index = 0
    while tokens[index].kind != END:
        token = tokens[index]
        if token.text == "<":
            inside.append(tokens[index - 1].upper)
            names = inside[-1] == "STRUCT"
        elif token.text in (">", ">>", ">>>"):
            del inside[-len(token.text) :]
        elif token.text == ",":
            names = inside[-1:] == ["STRUCT"]
        elif token.text == "(":
            index = closing(tokens, index)
        elif names:
            names = False
        elif column and token.upper in _INSTEAD:
            raise SyntaxProblem(
                f"a column cannot have the type {token.upper}",
                text=text,
                at=token,
                hint=f"use {_INSTEAD[token.upper]}",
            )
        elif token.kind == WORD:
            length, name = _spark_name(text, tokens[index : index + 8])
            if name is not None:
                yield Edit(Span(token.start, tokens[index + length - 1].end), name)
            index += length - 1
        index += 1


def _spark_name(text: str, tokens: list[Token]) -> tuple[int, str | None]:
    """The number of tokens of the type, and Spark's name for it; None if that is the same."""
    first, second = tokens[0].upper, tokens[1].upper
    if (first, second) == ("DOUBLE", "PRECISION"):
        return 2, "DOUBLE"
    varying = second == "VARYING"
    if first in _TEXTS and tokens[1 + varying].text != "(":
        return 1 + varying, "STRING" if varying or "VAR" in first else "CHAR(1)"
    if varying:
        return 2, "VARCHAR"
    if first in _TIMES:
        return _time(text, tokens)
    return 1, _NAMES.get(first)


def _time(text: str, tokens: list[Token]) -> tuple[int, str | None]:
    """TIMESTAMP(3) WITH TIME ZONE: a time of Spark has microseconds, and one name for each kind."""
    length = 1
    if tokens[1].text == "(" and tokens[2].kind == NUMBER and tokens[3].text == ")":
        digits = tokens[2].text
        if not digits.isdecimal() or int(digits) > _DIGITS:
            raise SyntaxProblem(
                f"a time has at most {_DIGITS} digits after the second",
                text=text,
                start=tokens[0].start,
                end=tokens[3].end,
                hint=f"write {tokens[0].upper}",
            )
        length = 4
    zone = " ".join(token.upper for token in tokens[length : length + 4])
    name = _NAMES.get(tokens[0].upper, tokens[0].upper)
    for words_of_zone, type in _ZONES.items():
        if f"{zone} ".startswith(f"{words_of_zone} "):
            return length + len(words_of_zone.split()), type
    return length, name if length > 1 or name != tokens[0].upper else None


def _type_end(tokens: list[Token], index: int) -> int:
    """The index after the last token of the type that starts at `index`."""
    if tokens[index].kind != WORD:
        return index
    word, end = tokens[index].upper, index + 1
    if tokens[end].text == "<" and word in ("ARRAY", "MAP", "STRUCT"):
        depth = 0
        while tokens[end].kind != END:
            depth += {"<": 1, ">": -1, ">>": -2, ">>>": -3}.get(tokens[end].text, 0)
            end += 1
            if depth <= 0:
                return end
    if tokens[end].upper in ("PRECISION", "VARYING"):
        end += 1
    if tokens[end].text == "(":
        end = closing(tokens, end) + 1
    behind = " ".join(token.upper for token in tokens[end : end + 4])
    return end + next((len(zone.split()) for zone in _ZONES if f"{behind} ".startswith(f"{zone} ")), 0)
