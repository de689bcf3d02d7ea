"""NET(changes, n): the rows that are there once all changes are added up, each as often as it counts.

A stream of changes has rows that come and rows that are taken back, in any order: a column, or an expression, says how
often a row comes (1, or more) or goes (-1, or less). What it reads is no part of the row.

    NET(orders, IF(op = 'delete', -1, 1))

is rewritten to

    (SELECT * EXCEPT (__net, __copy)
     FROM (SELECT * EXCEPT (op), sum(IF(op = 'delete', -1, 1)) AS __net FROM orders GROUP BY ALL)
     LATERAL VIEW explode(sequence(1, __net)) __copies AS __copy WHERE __net > 0) AS orders

so that a row that is taken back before it comes counts less than nothing, and waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.errors import SyntaxProblem
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.clauses import find_blocks
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import CLOSING, OPENING, STRING, WORD, Span, Token, quote_name
from anabranch.sql.relations import take_alias
from anabranch.sql.splice import Edit
from anabranch.sql.windows import WINDOW_FUNCTIONS

EXAMPLE = "as in NET(orders, diff), with 1 for a row that comes and -1 for one that is taken back"
COUNTED = "sequence(1, __net)"
_COPIES = f") LATERAL VIEW explode({COUNTED}) __copies AS __copy WHERE __net > 0)"


def net_edits(text: str, tokens: list[Token]) -> list[Edit]:
    """The edits that make queries of calls of NET; one that is called by another follows when that is a query."""
    calls = [index for index in range(len(tokens) - 1) if _at_call(tokens, index)]
    if not calls:
        return []
    sources = [
        (block.source, block.source_end) for block in find_blocks(text, tokens, False) if block.source is not None
    ]
    calls = [index for index in calls if any(_is_relation(tokens, index, *source) for source in sources)]
    return [edit for index in calls for edit in _edits(text, tokens, index)]


def _at_call(tokens: list[Token], index: int) -> bool:
    token = tokens[index]
    return token.kind == WORD and token.upper == "NET" and tokens[index + 1].text == "("


def _is_relation(tokens: list[Token], index: int, start: int, end: int) -> bool:
    """Whether a call stands where FROM has a relation, or a function over relations in FROM."""
    if not start <= index < end:
        return False
    before = tokens[index - 1]
    if before.kind == WORD:
        return before.upper in ("FROM", "JOIN", "TABLE")
    if before.text == ",":
        return _depth(tokens[start:index]) == 0
    while before.text in ("(", "=>") and index > start:
        index -= 1
        before = tokens[index - 1]
    return before.upper == "TABLE" or before.upper in WINDOW_FUNCTIONS or tokens[index].text == "=>"


def _depth(tokens: list[Token]) -> int:
    brackets = [token.text for token in tokens if token.kind != STRING]
    return sum((text in OPENING) - (text in CLOSING) for text in brackets)


def _edits(text: str, tokens: list[Token], index: int) -> Iterator[Edit]:
    end = closing(tokens, index + 1)
    span = Span(tokens[index].start, tokens[end].end)
    parts = list(split_commas(tokens[index + 2 : end]))
    if len(parts) != 2 or not all(parts):
        raise _wrong(text, span, "NET takes a relation, and what says how often its rows come or go")
    relation, count = _bare(parts[0]), parts[1]
    plain = all(token.is_name or token.text == "." for token in relation)
    name = relation[-1].name if plain else None
    columns = dict.fromkeys(_columns(count, name))
    if not columns:
        raise _wrong(text, Span(count[0].start, count[-1].end), "no column says here which rows are taken back")
    start, stop = relation[0].start, relation[-1].end
    said = Span(count[0].start, count[-1].end)
    left_out = ", ".join(quote_name(column) for column in columns)
    yield Edit(Span(span.start, start), f"(SELECT * EXCEPT (__net, __copy) FROM (SELECT * EXCEPT ({left_out}), sum(")
    yield Edit(Span(start, start), said.of(text), said)
    yield Edit(Span(start, start), ") AS __net FROM ", said)
    named = name is not None and take_alias(Cursor(text, tokens, min(end + 1, len(tokens) - 1))) is None
    inside = tokens[index - 1].text in ("(", "=>") or tokens[index - 1].upper == "TABLE"
    alias = f" AS {quote_name(name)}" if name is not None and named and not inside else ""
    yield Edit(Span(stop, span.end), f" GROUP BY ALL{_COPIES}{alias}", said)


def _bare(relation: list[Token]) -> list[Token]:
    """A relation without TABLE before it, or TABLE(...) around it."""
    if relation[0].upper != "TABLE" or len(relation) == 1:
        return relation
    inside = relation[1].text == "(" and relation[2].upper not in ("SELECT", "WITH")
    return relation[2:-1] if inside else relation[1:]


def _columns(count: list[Token], relation: str | None) -> Iterator[str]:
    """The columns that an expression reads."""
    first = {token.start: token for token in count}
    for chain in names_in(count):
        parts = chain.parts
        qualified = len(parts) > 1 and relation is not None and parts[0].lower() == relation.lower()
        if len(parts) > 1 or not of_the_language(first[chain.span.start]):
            yield parts[1] if qualified else parts[0]


def _wrong(text: str, span: Span, message: str) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, start=span.start, end=span.end, hint=EXAMPLE)
