"""A syntax check of expressions that takes milliseconds and needs no Spark.

An expression is turned into a skeleton of the same shape and the same offsets: strings, numbers, names, types and calls
become generic, subqueries (which are checked on their own) become SELECT 1. sqlglot parses the skeleton. So it checks
only the order of words: it never sees a function, a type or a literal that it might know less about than Spark.
In doubt an expression passes; Spark decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from anabranch.errors import SyntaxProblem, did_you_mean
from anabranch.sql.calls import closing
from anabranch.sql.durations import is_unit
from anabranch.sql.lexer import NUMBER, QUOTED, STRING, SYMBOL, WORD, Token
from anabranch.sql.syntax import (
    Advance,
    AlterView,
    CreateStream,
    CreateTable,
    CreateView,
    Delete,
    Explain,
    Expression,
    Insert,
    Opaque,
    Query,
    Select,
    SelectStatement,
    SetOperation,
    Statement,
    Update,
)
from anabranch.sql.terms import ends_value, meant, misspelt
from anabranch.sql.text import words

#: Words that give an expression its shape; every other word is a name.
_SHAPE = words(
    """AND OR NOT IS NULL TRUE FALSE IN LIKE ILIKE RLIKE REGEXP BETWEEN DISTINCT CASE WHEN THEN ELSE END ESCAPE ALL
    ANY SOME OVER AS FROM FOR PLACING BOTH LEADING TRAILING FILTER WHERE WITHIN GROUP ORDER PARTITION BY
    DISTRIBUTE SORT ASC DESC NULLS FIRST LAST IGNORE RESPECT ROWS RANGE PRECEDING FOLLOWING UNBOUNDED CURRENT ROW
    GROUPING SETS ROLLUP CUBE WITH EXCEPT INTERVAL DIV COLLATE UNKNOWN"""
)
_LONG_WORDS = tuple(sorted(word for word in _SHAPE if len(word) > 3))
#: Functions with keywords between their arguments.
_WITH_WORDS = words("EXTRACT TRIM POSITION OVERLAY SUBSTRING SUBSTR STRUCT IN")
#: Functions named like an operator or a clause: like(a, b).
_ALSO_FUNCTIONS = words("LIKE ILIKE RLIKE REGEXP COLLATE FILTER FIRST LAST RANGE GROUPING DIV")
_LITERAL_TYPES = words("DATE TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ TIME X")
#: A statement with more tokens is data rather than a query, and parsing it twice would be slow.
_MANY_TOKENS = 20_000


def check_expressions(statement: Statement) -> None:
    """Raise a SyntaxProblem at the first expression of a statement that is not well formed."""
    budget = _MANY_TOKENS
    for prefix, tokens in expressions_of(statement):
        if _plain(tokens):
            continue
        budget -= len(tokens)
        if budget < 0:
            return
        _check(statement.text, prefix, tokens)


# ------------------------------------------------------------------------------ the expressions of a statement

_Part = tuple[str, Sequence[Token]]


def expressions_of(statement: Statement) -> Iterator[_Part]:
    """Every expression, with the words before it that make it a statement."""
    if isinstance(statement, SelectStatement | CreateView | AlterView | CreateTable | Explain | Insert):
        if statement.query is not None:
            yield from _of_query(statement.query)
    elif isinstance(statement, Update):
        for _, value in statement.assignments:
            yield "SELECT ", value.tokens
        yield from _condition(statement.where)
    elif isinstance(statement, Delete):
        yield from _condition(statement.where)
    elif isinstance(statement, CreateStream) and statement.watermark is not None:
        if statement.watermark.expression is not None:
            yield "SELECT ", statement.watermark.expression.tokens
    elif isinstance(statement, Advance) and statement.to is not None:
        yield "SELECT ", statement.to.tokens


def _condition(expression: Expression | None) -> Iterator[_Part]:
    if expression is not None:
        yield "SELECT 1 WHERE ", expression.tokens


def _of_query(query: Query) -> Iterator[_Part]:
    for _, inner in query.ctes:
        yield from _of_query(inner)
    yield from _of_body(query.body)
    for expression in query.order_expressions:
        yield "SELECT 1 ORDER BY ", expression.tokens


def _of_body(body: Select | SetOperation | Query | Opaque) -> Iterator[_Part]:
    if isinstance(body, Query):
        yield from _of_query(body)
    elif isinstance(body, SetOperation):
        for operand in body.operands:
            yield from _of_body(operand)
    elif isinstance(body, Opaque):
        for row in body.rows:
            yield "SELECT ", row.tokens
    else:
        yield from _of_select(body)


def _of_select(select: Select) -> Iterator[_Part]:
    for item in select.items if not select.implied else ():
        # The check includes an alias without AS: a word that cannot be one is the most common mistake.
        yield "SELECT ", item.tokens if item.bare_alias is None else (*item.tokens, item.bare_alias)
    for relation in select.relations:
        if relation.subquery is not None:
            yield from _of_query(relation.subquery)
        if relation.net is not None:
            yield "SELECT ", relation.net.count.tokens
        if relation.condition_tokens and relation.condition_tokens[0].upper == "ON":
            yield "SELECT 1 WHERE ", relation.condition_tokens[1:]
        for each in relation.versions.expressions if relation.versions is not None else ():
            yield "SELECT ", each.tokens
    yield from _condition(select.where)
    for part in select.group if select.group_plain else ():
        yield "SELECT 1 GROUP BY ", part.tokens
    yield from _condition(select.having)
    for inner in select.subqueries:
        yield from _of_query(inner)


def _plain(tokens: Sequence[Token]) -> bool:
    """A name, a literal, or a row of literals: most expressions, and never wrong."""
    if len(tokens) == 1:
        return tokens[0].kind != SYMBOL or tokens[0].text == "*"
    if tokens[0].text == "(" and tokens[-1].text == ")":
        expect_value = True
        for token in tokens[1:-1]:
            value = token.kind in (STRING, NUMBER) or token.upper in ("NULL", "TRUE", "FALSE")
            if value != expect_value or (not value and token.text != ","):
                return False
            expect_value = not expect_value
        return not expect_value
    names = all(token.is_name and token.upper not in _SHAPE for token in tokens[::2])
    return len(tokens) % 2 == 1 and names and all(token.text == "." for token in tokens[1::2])


# --------------------------------------------------------------------------------------------- the skeleton


class _Skeleton:
    """Text with the length and the shape of the expression, without its names and values."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.start = tokens[0].start
        self.no_type: Token | None = None  # the token of a CAST in the position of its type
        self.characters = [" "] * (tokens[-1].end - self.start)
        index = 0
        while index < len(tokens):
            index = self._write(index)

    @property
    def text(self) -> str:
        return "".join(self.characters)

    def _put(self, token: Token, text: str) -> None:
        """Write over a token; excess text is cut."""
        at = token.start - self.start
        for offset, character in enumerate(text[: token.end - token.start]):
            self.characters[at + offset] = character

    def _upper(self, index: int) -> str:
        return self.tokens[index].upper if 0 <= index < len(self.tokens) else ""

    def _write(self, index: int) -> int:
        """Write the token at `index` and the tokens that belong to it; returns the next index."""
        token = self.tokens[index]
        if token.kind == STRING:
            self._put(token, "'" + "x" * (token.end - token.start - 2) + "'")
        elif token.kind == NUMBER:
            self._put(token, "1")
        elif token.kind == QUOTED:
            self._put(token, "x" * (token.end - token.start))
        elif token.kind == SYMBOL:
            return self._symbol(index)
        else:
            return self._word(index)
        return index + 1

    def _symbol(self, index: int) -> int:
        token, following = self.tokens[index], self._upper(index + 1)
        text = token.text
        if text == "(" and following in ("SELECT", "WITH", "FROM", "VALUES"):
            end = closing(self.tokens, index)
            self._put(token, "(")
            self._put(self.tokens[index + 1], "NULL")  # a subquery is a value, or a list of values
            self._put(self.tokens[end], ")")
            return end + 1
        if text == "::":
            self._put(token, "+")  # a cast after a value is an operator
            return self._type(index + 1)
        if text == ":" and index:  # v:a.b, v:['a']
            self._put(token, " " if following == "[" else ".")
        elif text == "!" and following in ("<", ">"):
            pass
        else:
            self._put(token, _OPERATORS.get(text, text))
        return index + 1

    def _word(self, index: int) -> int:
        token, following = self.tokens[index], self._upper(index + 1)
        upper = token.upper
        after_dot = index > 0 and self.tokens[index - 1].text in (".", ":")
        neutral = "x" * (token.end - token.start)
        starts_value = index == 0 or not ends_value(self.tokens[index - 1])
        if after_dot or (upper in _ALSO_FUNCTIONS and following == "(" and starts_value):
            self._put(token, neutral)
        elif following == "(" and upper in ("CAST", "TRY_CAST"):
            self._put(token, neutral)
            return self._cast(index + 1)
        elif upper == "INTERVAL" and index + 1 < len(self.tokens):
            return self._interval(index)
        elif upper in _LITERAL_TYPES:
            literal = index + 1 < len(self.tokens) and self.tokens[index + 1].kind == STRING
            self._put(token, "" if literal else neutral)
        elif upper == "COLLATE":
            self._put(token, "+")
        elif upper in ("ANY", "SOME", "ALL") and following == "(":  # LIKE ANY (...), or the function any
            self._put(token, token.text if self._upper(index - 1) in ("LIKE", "ILIKE") else neutral)
        elif upper in _SHAPE or (upper in _WITH_WORDS and following == "(" and self._has_words(index + 1)):
            self._put(token, _WORD_OPERATORS.get(upper, token.text))
        else:
            self._put(token, neutral)
        return index + 1

    def _has_words(self, opening: int) -> bool:
        """Whether a call has words between its arguments: trim(BOTH 'x' FROM y), but not trim(y)."""
        inside = self.tokens[opening : closing(self.tokens, opening)]
        return any(token.upper in ("FROM", "FOR", "IN", "PLACING", "AS") for token in inside)

    def _cast(self, opening: int) -> int:
        """CAST(value AS type) is written as a call with the value as its argument."""
        end = closing(self.tokens, opening)
        self._put(self.tokens[opening], "(")
        index, depth = opening + 1, 0
        while index < end:
            token = self.tokens[index]
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if token.upper == "AS" and depth == 0:
                if self._upper(index + 1) not in _TYPE_STARTS:
                    self.no_type = self.tokens[index + 1]
                break
            before, index = index, self._write(index)
            depth -= sum(t.text in (")", "]") for t in self.tokens[before + 1 : index])
            depth += sum(t.text in ("(", "[") for t in self.tokens[before + 1 : index])
        self._put(self.tokens[end], ")")
        return end + 1

    def _type(self, index: int) -> int:
        """The type after ::, with the brackets after it."""
        if index >= len(self.tokens) or self.tokens[index].kind != WORD:
            return index
        self._put(self.tokens[index], "x")
        upper = self._upper(index)
        index += 1
        if upper == "INTERVAL":
            while index < len(self.tokens) and (is_unit(self.tokens[index].text) or self._upper(index) == "TO"):
                index += 1
        elif self._upper(index) == "(":
            index = closing(self.tokens, index) + 1
        elif self._upper(index) == "<":
            depth = 0
            while index < len(self.tokens):
                depth += {"<": 1, ">": -1, ">>": -2, ">>>": -3}.get(self.tokens[index].text, 0)
                index += 1
                if depth <= 0:
                    break
        return index

    def _interval(self, index: int) -> int:
        """INTERVAL with literals and units is written as a number."""
        start, position = index, index + 1
        while position < len(self.tokens):
            after_sign = position + (self.tokens[position].text in ("-", "+"))
            if after_sign >= len(self.tokens) or self.tokens[after_sign].kind not in (STRING, NUMBER):
                break
            position = after_sign + 1
            if position < len(self.tokens) and is_unit(self.tokens[position].text):
                position += 1
                if self._upper(position) == "TO":
                    position += 2
        if position == start + 1:
            following = self.tokens[position]
            by_name = following.kind in (WORD, QUOTED) and is_unit(self._upper(position + 1) or "-")
            self._put(self.tokens[start], "" if by_name else "xxxxxxxx")
            if not by_name:
                return position
            self._put(following, "x" * (following.end - following.start))
            return position + 2
        self._put(self.tokens[start], "1")
        return min(position, len(self.tokens))


_OPERATORS = {"<=>": "=", "==": "=", ">>>": "+", ">>": "+", "<<": "+", "^": "+", "&": "+", "|": "+", "!": "-"}
_WORD_OPERATORS = {"DIV": "*"}
_TYPE_STARTS = words(
    """BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DECIMAL DEC NUMERIC DATE TIME
    TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ STRING CHAR CHARACTER VARCHAR BINARY INTERVAL ARRAY MAP STRUCT VARIANT VOID
    GEOMETRY GEOGRAPHY SIGNED"""
)


# ------------------------------------------------------------------------------------------------ the check


@lru_cache(maxsize=1)
def _reader() -> tuple[Callable[[str], Any], type[Exception]]:
    """sqlglot's reader for Spark, loaded when the first expression needs it."""
    import logging

    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import ParseError

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    spark = Spark()

    def read(text: str) -> Any:
        return spark.parse(text, error_message_context=1_000_000)

    return read, ParseError


def _check(text: str, prefix: str, tokens: Sequence[Token]) -> None:
    for comma, following in pairwise(tokens):
        if comma.text == "," and following.text in (",", ")", "]"):
            message = f"something is missing between , and {following.text}"
            raise SyntaxProblem(message, text=text, start=comma.start, end=following.end)
    skeleton = _Skeleton(tokens)
    wrong = skeleton.no_type
    if wrong is not None:
        message = f"expected a type before {wrong.text}" if wrong.kind == SYMBOL else f"there is no type {wrong.text}"
        hint = None if wrong.kind == SYMBOL else did_you_mean(wrong.text, _TYPE_STARTS)
        raise SyntaxProblem(message, text=text, at=wrong, hint=hint)
    read, refusal = _reader()
    try:
        read(prefix + skeleton.text)
    except refusal as error:
        first: dict[str, Any] = error.errors[0]  # type: ignore[attr-defined]
        offset = len(first["start_context"] or "") - len(prefix) + tokens[0].start
        raise _problem(text, tokens, offset, str(first["description"])) from None
    except Exception:
        # An internal error of the parser (such as its recursion limit) does not concern the expression.
        return


def _problem(text: str, tokens: Sequence[Token], offset: int, description: str) -> SyntaxProblem:
    index = next((i for i, token in enumerate(tokens) if token.end > offset), len(tokens) - 1)
    token = tokens[index]
    for candidate in _around(tokens, index):
        keyword = misspelt(candidate) or misspelt(candidate, _LONG_WORDS)
        if keyword is not None:
            return meant(text, candidate, keyword)
    if "missing" in description:
        message = f"something is missing beside {token.text}"
    elif description.startswith("Expecting"):
        message = f"expected {description.removeprefix('Expecting').strip()} before {token.text}"
    else:
        message = f"{token.text} does not fit here"
    return SyntaxProblem(message, text=text, at=token)


def _around(tokens: Sequence[Token], index: int) -> Iterable[Token]:
    """The token itself, and the word before it if that follows a value."""
    if index > 1:
        yield tokens[index - 1]
    if index > 0:
        yield tokens[index]
