"""Expand calls of aggregates that Spark does not have into their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.errors import SqlError
from anabranch.sql.calls import SPARK_AGGREGATES, closing, split_commas
from anabranch.sql.lexer import WORD, Token, tokenize
from anabranch.sql.own_aggregates import OWN_AGGREGATES, OwnAggregate
from anabranch.sql.text import Span


def own_calls(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """The outermost calls of these aggregates: start, end and expansion.

    >>> text = "1 + geomean(a * b) OVER w"
    >>> list(own_calls(text, tokenize(text)[:-1]))
    [(2, 10, 'exp(avg(ln((a * b))) OVER w)')]
    """
    index = 0
    while index < len(tokens):
        if is_own_call(tokens, index):
            end = _end(tokens, closing(tokens, index + 1))
            yield index, end + 1, _expanded(text, tokens, index, end)
            index = end
        index += 1


def is_own_call(tokens: Sequence[Token], index: int) -> bool:
    token = tokens[index]
    if token.kind != WORD or token.text.lower() not in OWN_AGGREGATES:
        return False
    return [each.text for each in tokens[index + 1 : index + 2]] == ["("] and not (
        index and tokens[index - 1].text == "."
    )


def _end(tokens: Sequence[Token], end: int) -> int:
    """The last token of a call, including FILTER and OVER after its bracket."""
    if [each.upper for each in tokens[end + 1 : end + 3]] == ["FILTER", "("]:
        end = closing(tokens, end + 2)
    if [each.upper for each in tokens[end + 1 : end + 2]] == ["OVER"]:
        end = closing(tokens, end + 2) if tokens[end + 2].text == "(" else end + 2
    return end


def pieces(own: OwnAggregate) -> Iterator[str | int | None]:
    """The pieces of a definition: text, indexes of parameters, and None where FILTER and OVER go.

    >>> list(pieces(OwnAggregate(("x",), "exp(avg(ln(x)))")))
    ['exp', '(', 'avg', '(', 'ln', '(', '', 0, ')', ')', None, ')']
    """
    tokens = tokenize(own.text)[:-1]
    closings = {
        closing(tokens, index + 1)
        for index, token in enumerate(tokens)
        if token.text in SPARK_AGGREGATES and [each.text for each in tokens[index + 1 : index + 2]] == ["("]
    }
    at = 0
    for index, token in enumerate(tokens):
        parameter = token.text in own.parameters
        yield own.text[at : token.start] + ("" if parameter else token.text)
        if parameter:
            yield own.parameters.index(token.text)
        if index in closings:
            yield None
        at = token.end


def _expanded(text: str, tokens: Sequence[Token], index: int, end: int) -> str:
    own, last = OWN_AGGREGATES[tokens[index].text.lower()], closing(tokens, index + 1)
    arguments = [
        _written(text, each) if len(each) == 1 else f"({_written(text, each)})"
        for each in own_arguments(text, tokens, index)
    ]
    behind = f" {text[tokens[last + 1].start : tokens[end].end]}" if end > last else ""
    return "".join(
        behind if each is None else arguments[each] if isinstance(each, int) else each for each in pieces(own)
    )


def own_arguments(text: str, tokens: Sequence[Token], index: int) -> list[list[Token]]:
    """The arguments of the call that starts here; raises unless there is one for each parameter."""
    name, last = tokens[index].text.lower(), closing(tokens, index + 1)
    own, span = OWN_AGGREGATES[name], Span(tokens[index].start, tokens[last].end)
    inside = tokens[index + 2 : last]
    if inside and inside[0].upper == "DISTINCT":
        what, hint = f"{name} takes no DISTINCT", "group by the values first, in a subquery"
        raise SqlError(what, text=text, at=inside[0], hint=hint)
    given = [list(each) for each in split_commas(inside)] if inside else []
    if len(given) != len(own.parameters):
        takes = "1 argument" if len(own.parameters) == 1 else f"{len(own.parameters)} arguments"
        raise SqlError(f"{name} takes {takes}, not {len(given)}", text=text, at=span)
    return given


def _written(text: str, tokens: Sequence[Token]) -> str:
    """The text of tokens with calls of these aggregates expanded."""
    made, at = "", tokens[0].start
    for first, behind, call in own_calls(text, tokens):
        made += text[at : tokens[first].start] + call
        at = tokens[behind - 1].end
    return made + text[at : tokens[-1].end]
