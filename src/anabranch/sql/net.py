"""NET(changes, n): the rows that remain after all changes are added up, each repeated by its count.

A stream of changes has inserted and retracted rows, in any order: a column, or an expression, is the number of copies
inserted (1 or more) or retracted (-1 or less). The columns that it reads are not part of the row.

    NET(orders, IF(op = 'delete', -1, 1))

is read as a relation over the query

    SELECT * EXCEPT (op), sum(IF(op = 'delete', -1, 1)) AS __net FROM orders GROUP BY ALL

whose rows are repeated by `__net`. A row that is retracted before it is inserted has a negative count until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anabranch.errors import SyntaxProblem
from anabranch.sql.calls import closing, split_commas
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import QUOTED, SYMBOL, WORD, Token
from anabranch.sql.syntax import Expression, Item, Net, Query, Relation, all_of
from anabranch.sql.table_functions import TakeRelation, take_source
from anabranch.sql.terms import take_expression
from anabranch.sql.text import Span, quote_name

EXAMPLE = "as in NET(orders, diff), with 1 for a row that comes and -1 for one that is taken back"
#: The column with the count of a row, and the generator that repeats the row.
TIMES = "__net"
COUNTED = f"sequence(1, {TIMES})"


def at_net(cursor: Cursor) -> bool:
    return cursor.at("NET", "(")


def take_net(cursor: Cursor, join: str, take_relation: TakeRelation) -> Relation:
    token = cursor.advance()
    last = closing(cursor.tokens, cursor.index)
    call = Span(token.start, cursor.tokens[last].end)
    parts = list(split_commas(cursor.tokens[cursor.index + 1 : last]))
    if len(parts) != 2 or not all(parts):
        raise _wrong(cursor.text, call, "NET takes a relation, and a count that is negative for retracted rows")
    cursor.expect("(")
    with cursor.deeper():
        source = take_source(cursor, take_relation)
    cursor.expect(",")
    count = take_expression(cursor, "a count that is negative for retracted rows")
    cursor.expect(")")
    columns: dict[str, Span] = {}
    for name, span in _columns(count.tokens, source.exposed):
        columns.setdefault(name, span)
    if not columns:
        raise _wrong(cursor.text, count.span, "no column here says which rows are retracted")
    query = _query(source, count, columns)
    return Relation("subquery", call, subquery=query, alias=source.exposed, net=Net(call, count), join=join)


def _query(source: Relation, count: Expression, columns: Mapping[str, Span]) -> Query:
    """SELECT * EXCEPT (columns), sum(count) AS __net FROM source GROUP BY ALL"""

    def unwritten(text: str, span: Span) -> Token:
        return Token(QUOTED if text[0] == "`" else WORD if text.isalpha() else SYMBOL, text, span.start, span.end)

    start, end = Span(count.span.start, count.span.start), Span(count.span.end, count.span.end)
    excluded = [unwritten(quote_name(name), span) for name, span in columns.items()]
    listed = [token for each in excluded for token in (unwritten(",", start), each)][1:]
    rows = *(unwritten(text, start) for text in ("*", "EXCEPT", "(")), *listed, unwritten(")", start)
    total = unwritten("sum", start), unwritten("(", start), *count.tokens, unwritten(")", end)
    items = Item(start, start, None, rows), Item(count.span, count.span, TIMES, total)
    return all_of(source, items, Expression(end, (unwritten("ALL", end),)))


def _columns(count: Sequence[Token], relation: str | None) -> Iterator[tuple[str, Span]]:
    """The columns that an expression reads, with their spans."""
    first = {token.start: token for token in count}
    for chain in names_in(count):
        parts = chain.parts
        qualified = len(parts) > 1 and relation is not None and parts[0].lower() == relation.lower()
        if len(parts) > 1 or not of_the_language(first[chain.span.start]):
            yield parts[1] if qualified else parts[0], chain.span


def _wrong(text: str, span: Span, message: str) -> SyntaxProblem:
    return SyntaxProblem(message, text=text, at=span, hint=EXAMPLE)
