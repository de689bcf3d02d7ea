"""Queries over append-only rows whose next answer follows from the last one and the new rows:

    SELECT DISTINCT k, v FROM s
        shown rows remain: new rows alone decide what is added

    SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM s) WHERE n <= 3
        a row beyond the first three never gets back among them

So past rows need not be read again. All columns of a row break ties: hidden ones are kept beside those shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anabranch.ir.expr import Call, Column, Expr, Part
from anabranch.ir.logic import conjuncts, unwrapped, word
from anabranch.ir.rel import Scan
from anabranch.ir.select import SelectBlock
from anabranch.plan.picks import orderable

#: Window functions that number rows by their order.
RANKS = ("row_number", "rank", "dense_rank")
#: The name of a hidden column that a view keeps.
ROW = "_row_{}"
_MIRRORED = {">": "<", ">=": "<=", "=": "=", "==": "="}


def is_distinct(block: SelectBlock) -> bool:
    """Whether a SELECT is DISTINCT over the filtered rows of one stream."""
    plain = not (block.aggregated or block.over or block.limited or block.generates)
    return block.distinct and plain and _stream(block) is not None


def first_ranked(block: SelectBlock) -> dict[Column, str | None]:
    """The output names of the stream columns in a SELECT whose QUALIFY selects the first rows of each partition, None
    for hidden ones; empty for any other SELECT."""
    if block.qualify is None or not _ranks(block):
        return {}
    ranks = {call.normal for call in block.over}
    if not only_first(block.qualify, lambda part: isinstance(part, Call) and part.normal in ranks):
        return {}
    return _columns(block, {item.name: item.expr for item in block.items if item.name is not None})


def first_of(inner: SelectBlock, names: Sequence[str], outer: SelectBlock) -> dict[str, str]:
    """The same for a SELECT over one with ranks: the names of the stream columns in the inner one, whose columns have
    these names; empty unless it shows all of them."""
    simple = not (outer.aggregated or outer.over or outer.distinct or outer.limited or outer.generates)
    if not _ranks(inner) or inner.qualify is not None or outer.where is None or not simple or len(outer.sources) != 1:
        return {}
    made = dict(zip(names, (item.expr for item in inner.items), strict=False))
    ranks = {name for name, expr in made.items() if len(expr.parts) == 1 and isinstance(expr.parts[0], Call)}
    if not only_first(outer.where, lambda part: isinstance(part, Column) and part.name in ranks):
        return {}
    found = _columns(inner, made)
    shown = {column.name: name for column, name in found.items() if name is not None}
    return shown if len(shown) == len(found) else {}


def only_first(condition: Expr, is_rank: Callable[[Part], bool]) -> bool:
    """Whether a condition that holds for a row also holds for all rows before it."""
    return all(_is_first(each, is_rank) for each in conjuncts(condition))


def is_kept(column: Column) -> bool:
    """Whether a column can be kept beside those shown: rows are found again by value."""
    return orderable(column.type)


def _stream(block: SelectBlock) -> Scan | None:
    """The stream that a SELECT reads, if it is its only input."""
    rel = block.sources[0].rel if len(block.sources) == 1 else None
    plain = isinstance(rel, Scan) and rel.source.kind == "stream" and not block.has_subqueries
    return rel if plain and isinstance(rel, Scan) else None


def _ranks(block: SelectBlock) -> bool:
    """Whether a SELECT only ranks the rows of one stream, by one order."""
    simple = not (block.aggregated or block.distinct or block.limited or block.generates)
    windows = {call.over for call in block.over}
    ranked = all(call.name in RANKS for call in block.over)
    return simple and ranked and len(windows) == 1 and _stream(block) is not None


def _is_first(condition: Expr, is_rank: Callable[[Part], bool]) -> bool:
    """Whether a condition is `rank <= 3` or the like: if it holds for a row, it holds for all rows before it."""
    parts = unwrapped(condition).parts
    if len(parts) != 3:
        return False
    one, sign, other = parts
    text = word(sign)
    if _integer(one) is not None:
        one, other, text = other, one, _MIRRORED.get(text, "")
    number = _integer(other)
    return is_rank(one) and number is not None and (text in ("<", "<=") or (text in ("=", "==") and number == 1))


def _integer(part: Part) -> int | None:
    return int(part) if isinstance(part, str) and part.isdecimal() else None


def _columns(block: SelectBlock, named: Mapping[str, Expr]) -> dict[Column, str | None]:
    """The output names of the stream columns; empty if a hidden one cannot be kept."""
    stream = _stream(block)
    assert stream is not None
    shown = {expr.column: name for name, expr in named.items() if expr.column is not None}
    found = {column: shown.get(column) for column in stream.columns}
    return found if all(name is not None or is_kept(column) for column, name in found.items()) else {}
