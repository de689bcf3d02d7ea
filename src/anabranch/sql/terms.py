"""The words that end a clause, and the parsing of an expression into a span.

This module finds only the end of an expression; `expressions` checks its syntax. A clause whose first word is misspelt
looks like part of the expression before it, so this module detects that too.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.errors import SyntaxProblem, nearest
from anabranch.sources import secrets
from anabranch.sql.cursor import Cursor
from anabranch.sql.dialects.windows import has_brackets
from anabranch.sql.emission import emission_ahead
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, QUOTED, STRING, SYMBOL, WORD, Token
from anabranch.sql.syntax import Argument, Expression, OptionValue
from anabranch.sql.text import Span, words

SET_OPERATORS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})
JOIN_WORDS = frozenset({"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI"})
TAIL = frozenset({"WINDOW", "QUALIFY", "SORT", "CLUSTER", "DISTRIBUTE"})
#: Words that end an expression or a FROM item, outside brackets.
CLAUSES = (
    frozenset({"FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "ON", "USING", "LATERAL"})
    | SET_OPERATORS
    | TAIL
)
#: Words after which a name still belongs to the expression.
OPERATOR_WORDS = words(
    "AND OR NOT IS IN LIKE ILIKE RLIKE REGEXP BETWEEN DISTINCT CASE WHEN THEN ELSE DIV INTERVAL ESCAPE ALL ANY SOME"
    " EXISTS OVER ROWS RANGE PRECEDING FOLLOWING TIMESTAMP DATE TIME TIMESTAMP_NTZ TIMESTAMP_LTZ TO COLLATE FROM"
)
#: The keywords that a misspelt word is compared with.
_OFTEN_MISSPELT = (
    "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "QUALIFY",
    "JOIN", "TRIGGER", "EMIT", "LATERAL", "USING", "MATCH_CONDITION",
)  # fmt: skip


def ends_value(token: Token) -> bool:
    """Whether a value can end with this token, so that a name after it is an alias."""
    if token.kind == WORD:
        return token.upper not in OPERATOR_WORDS
    return token.kind in (QUOTED, STRING, NUMBER) or token.text in (")", "]", "*")


def misspelt(word: Token, known: Collection[str] = _OFTEN_MISSPELT) -> str | None:
    """The keyword this word is probably meant to be, by default one that starts a clause.

    >>> from anabranch.sql.lexer import tokenize
    >>> misspelt(tokenize("WEHRE")[0])
    'WHERE'
    """
    upper = word.upper
    if word.kind != WORD or upper in CLAUSES | JOIN_WORDS | OPERATOR_WORDS or upper in known or len(upper) < 3:
        return None
    guess = nearest(upper, known)
    if guess is None or abs(len(guess) - len(upper)) > 1:
        return None
    return guess if sorted(guess) == sorted(upper) or _one_edit(upper, guess) else None


def _one_edit(one: str, other: str) -> bool:
    """Whether one letter was added, omitted or changed (swapped letters have the same letters sorted)."""
    if len(one) == len(other):
        return sum(a != b for a, b in zip(one, other, strict=True)) <= 1
    short, long = sorted((one, other), key=len)
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def meant(text: str, word: Token, keyword: str) -> SyntaxProblem:
    return SyntaxProblem(f"{word.text} does not fit here", text=text, at=word, hint=f"did you mean {keyword}?")


def refuse_misspelt(cursor: Cursor) -> None:
    """Raise if this word, after a value or a relation, can only be a misspelt clause."""
    following = cursor.ahead(1)
    goes_on = following.kind in (QUOTED, STRING, NUMBER) or (
        following.kind == WORD and following.upper not in CLAUSES | JOIN_WORDS | OPERATOR_WORDS | {"AS", "END"}
    )
    if not goes_on or cursor.current.kind != WORD:
        return
    if emission_ahead(cursor) or emission_ahead(cursor, 1) or cursor.ahead(1).upper in ("START", "KEEP"):
        return
    keyword = misspelt(cursor.current)
    if keyword is not None:
        raise meant(cursor.text, cursor.current, keyword)


def join_ahead(cursor: Cursor) -> bool:
    """Whether a join starts here; left(a, 1) is a function, and asof a name where no JOIN follows."""
    distance = 0
    while cursor.ahead(distance).upper in JOIN_WORDS - {"JOIN"} | {"ASOF"}:
        distance += 1
    return cursor.ahead(distance).upper == "JOIN" and cursor.previous.text != "."


def at_group(cursor: Cursor) -> bool:
    """GROUP BY; and GROUPBY or GROUP-BY in queries with windows in brackets."""
    if cursor.at("GROUP", "-", "BY") or (cursor.at("GROUPBY") and cursor.ahead(1).is_name):
        return has_brackets(cursor)
    return cursor.at("GROUP", "BY")


def take_expression(cursor: Cursor, what: str, *, stop_at_as: bool = False) -> Expression:
    """Take one expression: up to a comma, a closing bracket or a clause outside brackets."""
    start = cursor.index
    cases = 0
    while not cursor.at_end:
        token = cursor.current
        word = token.upper
        first = cursor.index == start
        if token.kind == SYMBOL:
            if token.text in OPENING:
                cursor.advance()
                cursor.close_bracket()
                continue
            if token.text == "," or token.text in CLOSING:
                break
        elif word == "CASE":
            cases += 1
        elif word == "END" and cases:
            cases -= 1
        elif word == "AS":
            if stop_at_as and not cases and cursor.previous.text != ".":
                break
        elif word in CLAUSES and not inside_expression(cursor, word, first):
            break
        elif not first:
            if emission_ahead(cursor) or cursor.at("START", "AT") or join_ahead(cursor) or at_group(cursor):
                break
            if not cases and ends_value(cursor.previous):
                refuse_misspelt(cursor)
        cursor.advance()
    if cursor.index == start:
        cursor.refuse_dashed_name()
        raise cursor.problem(f"expected {what}")
    tokens = tuple(cursor.tokens[start : cursor.index])
    return Expression(Span(tokens[0].start, tokens[-1].end), tokens)


def inside_expression(cursor: Cursor, word: str, first: bool) -> bool:
    """Clause words that are part of an expression: IS DISTINCT FROM, WITHIN GROUP, a column called offset."""
    following = cursor.ahead(1)
    if following.text == "." or (not first and cursor.previous.text == "."):
        return True
    if word == "WINDOW":
        return cursor.ahead(2).upper != "AS"
    if word in ("SORT", "CLUSTER", "DISTRIBUTE"):
        return following.upper != "BY"
    if word in ("LIMIT", "OFFSET") and (first or following.kind == END or following.text in (",", ")")):
        return following.kind != NUMBER
    if first:
        return False
    before = cursor.previous.upper
    if word == "FROM":
        return before == "DISTINCT" and cursor.index > 1 and cursor.tokens[cursor.index - 2].upper in ("IS", "NOT")
    if word == "EXCEPT":  # SELECT * EXCEPT (a, b)
        a_list = following.text == "(" and cursor.ahead(2).upper not in ("SELECT", "WITH", "VALUES", "FROM", "(")
        return before == "*" and a_list
    return word == "GROUP" and before == "WITHIN"


def take_expressions(cursor: Cursor, what: str) -> list[Expression]:
    """Expressions separated by commas."""
    found = [take_expression(cursor, what)]
    while cursor.take(","):
        found.append(take_expression(cursor, what))
    return found


def take_arguments(cursor: Cursor) -> tuple[Argument, ...]:
    """(value, name => value, ...)"""
    cursor.expect("(")
    arguments: list[Argument] = []
    if cursor.take(")"):
        return ()
    while True:
        start = cursor.current.start
        name: str | None = None
        if cursor.current.is_name and cursor.ahead(1).text in ("=>", "="):
            name = cursor.advance().name.lower()
            cursor.advance()
        tokens = take_expression(cursor, "a value").tokens
        arguments.append(Argument(name, Span(start, cursor.previous.end), literal(tokens), tokens))
        if cursor.take(")"):
            return tuple(arguments)
        cursor.expect(",")


def option_value(argument: Argument) -> OptionValue | None:
    """The value of an option: a literal, an interval as a text, or a reference to a secret; else None."""
    tokens = argument.tokens
    if argument.value is not None or not tokens:
        return argument.value
    if tokens[0].upper == "INTERVAL":
        return " ".join(str(token.value if token.kind == STRING else token.text) for token in tokens[1:])
    shape = [token.text for token in (*tokens[1:2], *tokens[3:])]
    if tokens[0].text.lower() in secrets.STORES and shape == ["(", ")"] and tokens[2].kind == STRING:
        return secrets.reference(tokens[0].text.lower(), tokens[2].value)
    return None


def literal(tokens: tuple[Token, ...]) -> str | int | float | bool | None:
    """The value of a single literal, in brackets or not, or None."""
    if len(tokens) > 2 and tokens[0].text == "(" and tokens[-1].text == ")":
        tokens = tokens[1:-1]
    sign = 1
    if len(tokens) == 2 and tokens[0].text == "-" and tokens[1].kind == NUMBER:
        sign, tokens = -1, tokens[1:]
    if len(tokens) != 1:
        return None
    token = tokens[0]
    if token.kind == STRING:
        return token.value
    if token.kind == NUMBER:
        for read in (int, float):
            try:
                return sign * read(token.text.upper().removesuffix("D"))
            except ValueError:
                continue
        return None
    return {"TRUE": True, "FALSE": False}.get(token.upper)
