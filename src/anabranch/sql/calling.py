"""Errors about functions and grouping that the text of a script alone reveals. In doubt it passes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from anabranch.errors import SqlError, UnknownFunction, nearest
from anabranch.sql.calls import aggregate_calls, closing, split_commas
from anabranch.sql.columns import Scope, names_in, of_the_language, type_spans
from anabranch.sql.durations import is_unit
from anabranch.sql.functions import builtin, calls, counts_of
from anabranch.sql.group_windows import PART_OF
from anabranch.sql.lexer import Token
from anabranch.sql.own_aggregates import OWN_AGGREGATES
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import Select
from anabranch.sql.text import Span, words

#: Words before a bracket that are not functions of Spark: words of its grammar, and our own functions.
_OTHERS = words("cast try_cast extract timestampadd timestampdiff interval tumble hop session cumulate net")
#: Words that separate arguments: trim(BOTH 'x' FROM y), position('x' IN y).
_BETWEEN = frozenset({"FROM", "IN", "FOR", "PLACING", "AS", "ORDER", "IGNORE", "RESPECT", "USING", "WITHIN"})


def function_problems(text: str, tokens: Sequence[Token], own: Collection[str]) -> Iterator[SqlError]:
    """Calls of unknown functions, and calls with too few or too many arguments."""
    skipped = list(type_spans(tokens))
    for index, token in calls(tokens):
        name = token.name.lower()
        known = name in own or name in _OTHERS or name in OWN_AGGREGATES or name.upper() in PART_OF
        if known or name.startswith("_") or of_the_language(token):
            continue
        if any(span.start <= token.start < span.end for span in skipped):
            continue
        if name not in builtin():
            meant = nearest(name, [*builtin(), *OWN_AGGREGATES, *own])
            hint = f"did you mean {meant}?" if meant else f"CREATE FUNCTION {token.name} AS '...' defines one in Python"
            message = f"there is no function {token.name}"
            yield UnknownFunction(message, text=text, at=token, hint=hint)
            continue
        inside = tokens[index + 2 : closing(tokens, index + 1)]
        given = _count(inside)
        allowed = counts_of(name)
        if given is not None and allowed is not None and not allowed.holds(given):
            arguments = "1 argument" if given == 1 else f"{given} arguments"
            end = tokens[closing(tokens, index + 1)].end
            yield SqlError(f"{name} takes {allowed}, not {arguments}", text=text, start=token.start, end=end)


def _count(inside: Sequence[Token]) -> int | None:
    """The number of arguments; None if words separate them, or one is more than a value."""
    if not inside:
        return 0
    arguments = [list(each) for each in split_commas(inside)]
    depth = 0
    for token in inside:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if not depth and token.upper in _BETWEEN:
            return None
    if any(not each or each[-1].text == "*" for each in arguments) or is_unit(arguments[0][0].text):
        return None
    return len(arguments)


def grouping_problems(text: str, select: Select, scope: Scope) -> Iterator[SqlError]:
    """Columns beside aggregates that are neither grouped by nor aggregated."""
    if not scope.complete or not select.group_plain or select.tail:
        return
    found = [list(aggregate_calls(item.tokens)) for item in select.items]
    if not select.group and not any(found):
        return
    if any(token.upper in ("OVER", "SELECT") or token.text in ("[", "->") for i in select.items for token in i.tokens):
        return  # an aggregate over a window, or a subquery, has columns of its own
    grouped = {normal_form(part.tokens).lower() for part in select.group}
    grouped |= {each.rpartition(".")[2].strip() for each in grouped}
    for number, item in enumerate(select.items, start=1):
        whole = normal_form(item.tokens).lower()
        if item.star or {whole, str(number), (item.alias or whole).lower()} & grouped:
            continue
        outside = _outside(item.tokens, [call.span for call in found[number - 1]])
        plain = len(list(names_in(item.tokens))) == 1 and all(t.is_name or t.text == "." for t in item.tokens)
        if select.group and not plain:
            continue  # it may be an expression over the keys
        for parts, span in outside:
            name = parts[-1].lower()
            if name in grouped or parts[0].lower() in scope.aliases or name.startswith(("window_", "_", "row_num")):
                continue
            if any(name == column.lower() for _, columns in scope.relations for column in columns or ()):
                shown = span.of(text)
                hint = f"add it to GROUP BY, aggregate it, or use any_value({shown}) if any of its values will do"
                message = f"{shown} is neither grouped by nor aggregated"
                yield SqlError(message, text=text, at=span, hint=hint)
                break


def _outside(tokens: Sequence[Token], aggregated: Sequence[Span]) -> Iterator[tuple[tuple[str, ...], Span]]:
    """The names of an expression outside its aggregates."""
    for chain in names_in(tokens):
        if not any(span.start <= chain.span.start < span.end for span in aggregated):
            yield chain.parts, chain.span
