"""The history of a SELECT with window functions, given that of its rows: it is asked anew for each stretch of time.

    SELECT k, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM a

is, with the rows of `a` once for each stretch in which no row of their k comes or goes,

    SELECT k, rank() OVER (PARTITION BY __p, __q, k ORDER BY v) AS r, __p AS __from, __q AS __to FROM ...

QUALIFY, HAVING and GROUP BY stay as they are written, each stretch being a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.plan.blocks import grouped_tokens
from anabranch.plan.intervals import FROM, TO, History, in_stretches
from anabranch.plan.keys import partition_by
from anabranch.plan.scope import Unfit, span_of
from anabranch.plan.sides import Rows
from anabranch.plan.ties import names_window
from anabranch.sql.calls import aggregate_calls, closing
from anabranch.sql.columns import names_in
from anabranch.sql.lexer import Span, Token, normal_form, quote_name
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Select

_STRETCH = "__p, __q"


def has_windows(select: Select) -> bool:
    """Whether a SELECT has window functions, or clauses that are about them."""
    return select.tail or any(token.upper == "OVER" for item in select.items for token in item.tokens)


def stretched(text: str, select: Select, rows: Rows, shown: Sequence[tuple[str, str]], *, grouped: bool) -> History:
    """Such a SELECT over its rows. `shown` are the expressions of its list, whose names mean columns of these."""
    if grouped and not select.group:
        raise Unfit("a window function beside an aggregate of all")
    made = _Stretched(text, select, rows, grouped=grouped)
    name = quote_name(rows.name)
    cut = in_stretches(f"({rows.history.text}) AS {name}", rows.history.columns, name, made.keys())
    items = ", ".join(f"{item} AS {quote_name(column)}" for item, column in shown)
    groups = f" GROUP BY {', '.join(map(made.plain, made.groups))}, {_STRETCH}" if select.group else ""
    found = f"SELECT {items}, __p AS {FROM}, __q AS {TO} FROM ({cut}) AS {name}{groups}{made.behind()}"
    return History(found, tuple(column for _, column in shown), appends=False, tidy=False)


def over_stretches(tokens: Sequence[Token]) -> Iterator[Edit]:
    """What has the window functions of an expression look at the rows of one stretch."""
    for index, token in enumerate(tokens[:-1]):
        if token.upper == "OVER" and tokens[index + 1].text == "(":
            yield from _in_brackets(tokens, index + 1)


def _in_brackets(tokens: Sequence[Token], opening: int) -> Iterator[Edit]:
    inside = tokens[opening + 1 : closing(tokens, opening)]
    if len(inside) == 1 and inside[0].is_name:
        return  # a window of the WINDOW clause
    if len(inside) > 2 and inside[0].upper in ("PARTITION", "DISTRIBUTE"):
        yield Edit(Span(inside[2].start, inside[2].start), f"{_STRETCH}, ")
    else:
        yield Edit(Span(tokens[opening].end, tokens[opening].end), f"PARTITION BY {_STRETCH} ")


class _Stretched:
    def __init__(self, text: str, select: Select, rows: Rows, *, grouped: bool) -> None:
        self.text = text
        self.select = select
        self.rows = rows
        self.grouped = grouped
        self.groups = [grouped_tokens(group, select, rows.known) for group in select.group]

    def plain(self, tokens: Sequence[Token]) -> str:
        return splice(self.text, span_of(tokens), self.rows.edits(tokens)).text

    def behind(self) -> str:
        """HAVING, QUALIFY and WINDOW."""
        select = self.select
        tokens = list(select.having.tokens) if select.having is not None else []
        ends = [each.end for each in (select.from_span, select.group_span) if each is not None]
        ends += [select.where.span.end] if select.where is not None else []
        edits = list(self.rows.edits(tokens)) if tokens else []
        for expression in select.tail_expressions:
            edits += [*self.rows.edits(expression.tokens), *over_stretches(expression.tokens)]
            if names_window(expression.tokens):
                edits += _in_brackets(expression.tokens, 2)
        return f" {splice(self.text, Span(max(ends), select.span.end), edits).text}"

    def keys(self) -> list[str]:
        """What all window functions are partitioned by, as far as columns of the rows tell: more cuts than there need
        to be would be no error."""
        found: list[dict[str, str]] = []
        places = [item.tokens for item in self.select.items]
        places += [expression.tokens for expression in self.select.tail_expressions]
        for tokens in places:
            for index, token in enumerate(tokens):
                opens = token.upper == "OVER" or (index == 1 and names_window(tokens))
                if not opens:
                    continue
                if tokens[index + 1].text == "(":
                    inside = tokens[index + 2 : closing(tokens, index + 1)]
                    if not (len(inside) == 1 and inside[0].is_name):
                        found.append({normal_form(list(each)): self.plain(each) for each in self._told(inside)})
        if not found:
            return []
        return [text for form, text in found[0].items() if all(form in other for other in found[1:])]

    def _told(self, inside: Sequence[Token]) -> Iterator[Sequence[Token]]:
        """The expressions of PARTITION BY that say something of a row itself."""
        grouped = {normal_form(list(group)) for group in self.groups}
        for each in partition_by(inside):
            names = [chain.parts for chain in names_in(each)]
            known = all(parts[-1].lower() in self.rows.known for parts in names) and not any(aggregate_calls(each))
            if names and known and (not self.grouped or normal_form(list(each)) in grouped):
                yield each
