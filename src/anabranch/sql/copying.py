"""The grammar of COPY:

    COPY s FROM 'f.csv' (header => true)          COPY s FROM 'f' WITH (FORMAT csv, HEADER, DELIMITER ';')
    COPY s FROM 'f' CSV HEADER DELIMITER ';'      COPY (SELECT ...) TO 'f.parquet' OVERWRITE

The options of several systems are read into one form.
"""

from __future__ import annotations

from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import SYMBOL
from anabranch.sql.query import parse_query
from anabranch.sql.relations import at_query
from anabranch.sql.syntax import Copy, CopyTo, Query, Relation, Statement, all_of
from anabranch.sql.terms import literal
from anabranch.sql.text import Span

Options = dict[str, str | int | float | bool]
_FORMATS = ("CSV", "TSV", "JSON", "PARQUET", "ARROW")
#: Options that are words followed by a value, outside brackets.
_VALUED = ("FORMAT", "DELIMITER", "SEP", "NULL", "QUOTE", "ESCAPE", "ENCODING")
_SWITCHES = ("HEADER", "OVERWRITE")
#: The names of options in other systems.
_NAMES = {"delimiter": "sep", "null": "nullvalue"}


def take_copy(cursor: Cursor) -> Statement:
    cursor.advance()
    if at_query(cursor):
        cursor.expect("(")
        query = parse_query(cursor, nested=True)
        cursor.expect(")")
        cursor.expect("TO")
        return _take_target(cursor, query)
    target = cursor.dotted_name("a stream or table")
    if cursor.take("TO"):
        return _take_target(cursor, all_of(Relation("name", target.span, name=target)))
    if cursor.at("("):
        raise NotSupported(
            "COPY fills all columns",
            text=cursor.text,
            at=cursor.current,
            hint="INSERT INTO s (a, b) SELECT a, b FROM 'file' fills some of them",
        )
    if not cursor.take("FROM"):
        raise cursor.problem("expected FROM 'file' or TO 'file'", also=("FROM",))
    path = cursor.expect_string("the path of a file")
    options, spans = _take_options(cursor)
    return Copy(cursor.text, cursor.whole, target, path.value, path.span, options, spans)


def _take_target(cursor: Cursor, query: Query) -> CopyTo:
    path = cursor.expect_string("the path of a file")
    options, spans = _take_options(cursor)
    return CopyTo(cursor.text, cursor.whole, query, path.value, path.span, options, spans)


def _take_options(cursor: Cursor) -> tuple[Options, dict[str, Span]]:
    """Options in brackets, or as a sequence of words."""
    options: Options = {}
    spans: dict[str, Span] = {}
    said = cursor.take("WITH")
    if not cursor.at("("):
        if said and cursor.at_end:
            raise cursor.problem("expected options")
        while not cursor.at_end:
            _take_option(cursor, options, spans, brackets=False)
        return options, spans
    cursor.advance()
    while not cursor.take(")"):
        _take_option(cursor, options, spans, brackets=True)
        if not cursor.at(")"):
            cursor.expect(",")
    while cursor.at("OVERWRITE"):
        _take_option(cursor, options, spans, brackets=False)
    return options, spans


def _take_option(cursor: Cursor, options: Options, spans: dict[str, Span], *, brackets: bool) -> None:
    """header => true, HEADER = true, HEADER true, HEADER, FORMAT csv, CSV."""
    word = cursor.current
    if not word.is_name or not (brackets or word.upper in (*_FORMATS, *_VALUED, *_SWITCHES)):
        expected = "options, as in (header => true)" if brackets else "options, as in CSV HEADER"
        raise cursor.problem(f"expected {expected}", known=(*_FORMATS, *_VALUED, *_SWITCHES))
    cursor.advance()
    name: str = _NAMES.get(word.name.lower(), word.name.lower())
    value: str | int | float | bool | None = True
    if word.upper in _FORMATS:
        name, value = "format", word.name.lower()
    elif not _at_next(cursor, brackets) and (brackets or word.upper in _VALUED):
        value = _take_value(cursor)
    if value is None or (word.upper in _VALUED and value is True):
        raise SyntaxProblem(
            f"the option {word.text} needs a value",
            text=cursor.text,
            start=word.start,
            end=cursor.previous.end,
            hint="as in (header => true, sep => ';')",
        )
    if name in options:
        raise SyntaxProblem(f"{word.text} is given twice", text=cursor.text, at=word)
    options[name] = value
    spans[name] = Span(word.start, cursor.previous.end)


def _at_next(cursor: Cursor, brackets: bool) -> bool:
    """Whether the option ends here, without a value."""
    return cursor.at_end or (brackets and cursor.current.kind == SYMBOL and cursor.current.text in (",", ")"))


def _take_value(cursor: Cursor) -> str | int | float | bool | None:
    _ = cursor.take("=>") or cursor.take("=") or cursor.take("AS")
    minus = cursor.take("-")
    token = cursor.advance()
    tokens = (cursor.tokens[cursor.index - 2], token) if minus else (token,)
    return token.name.lower() if token.is_name and literal(tokens) is None else literal(tokens)
