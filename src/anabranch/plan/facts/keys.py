"""The key of a query: the columns by which a change of its input touches rows of its answer.

A query is keyed by K if its answer over all rows is the union of its answers over the rows of each value of K. Then a
run that brings rows for some values can only change the answer for those:

    one stream      what it groups by, or what every window function is partitioned by
    several         columns that are equal in all of them (a.id = b.auction), and grouped or partitioned by as well
    DISTINCT        all of its columns
    windows that depend on other rows (sessions, counts of the rows of a key)
                    columns that partition these windows (PARTITION BY), and grouped or partitioned by as well

Without such columns the whole answer is recomputed and compared. Two kinds of queries need no key, since each of their
rows comes from one row of each input: those of one stream (`stateless`) and inner joins of several (`join`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anabranch.algebra.windows import Sessions
from anabranch.ir.expr import Column, Expr, Part, of_column
from anabranch.ir.logic import conjuncts, equation, membership, word
from anabranch.ir.rel import is_live
from anabranch.ir.select import FromItem, SelectBlock
from anabranch.types import INTEGERS

DEPENDS = "its windows depend on other rows than a row's own"
WITHOUT_PARTNER = "a row of a static table without a partner depends on all rows"


@dataclass(frozen=True)
class KeyPart:
    """One column of a key: an expression over the columns of FROM, and for each relation the column of its own."""

    expr: Expr
    shown: str | None  # the output column that shows it
    columns: tuple[Column | None, ...]  # one entry a relation
    position: int = 0  # among the grouping expressions


@dataclass(frozen=True)
class Keying:
    """How a SELECT is keyed: row by row, pair by pair, by its key parts, or as a whole, and why."""

    kind: Literal["stateless", "join", "keyed", "whole"]
    parts: tuple[KeyPart, ...] = ()
    reason: str = ""
    every_column: bool = False  # the key is the whole row
    pairs: bool = False  # rows of several inputs are only joined: nothing is grouped, ranked or made distinct
    single: bool = False  # each row of the answer comes from one window that depends on other rows


def find_keys(block: SelectBlock, *, by_key: bool = False) -> Keying:
    """The keying of a SELECT. With `by_key` answers come out key by key, so a join needs a key too."""
    obstacle = _obstacle(block)
    if obstacle is not None:
        return Keying("whole", reason=obstacle)
    search = _Search(block)
    live, kept = block.live, keeps_table_rows(block)
    one = len(live) == 1 and not kept
    partitions = [call.over.partition for call in block.over if call.over is not None]
    if not all(partitions):
        return Keying("whole", reason="a window function in it has no PARTITION BY")
    pairs = False
    if not block.aggregated and not partitions and not block.distinct and not search.partitions:
        if one:
            return Keying("stateless")
        pairs = not by_key and not search.epochs and len(live) > 1
        if pairs and all(block.sources[index].inner for index in live):
            return Keying("join")
    if block.generates:
        return Keying("whole", reason="it makes rows of others, and looks at several of them")
    if block.aggregated and not block.keys:
        return Keying("whole", reason="it aggregates everything into one row")
    if block.distinct and not block.keys and not partitions and len(live) == 1 and not search.partitions:
        return Keying("keyed", every_column=True)
    parts = search.of_one(partitions, live[0]) if one else search.of_several(partitions)
    if block.distinct:
        parts = [part for part in parts if part.shown is not None]
    single = search.single(partitions, live, len(parts))
    if not parts:
        together = any(not columns for columns in search.partitions.values())
        reason = "no column is equal in all of its streams and grouped by" if len(live) > 1 else "nothing keys it"
        reason = WITHOUT_PARTNER if kept else reason
        return Keying("whole", reason=DEPENDS if together else reason, pairs=pairs, single=single)
    return Keying("keyed", tuple(parts), pairs=pairs, single=single)


def keeps_table_rows(block: SelectBlock) -> bool:
    """Whether the answer has rows of a static table for want of a partner in a stream."""
    return any(first.static for first in block.sources[:1]) and not all(each.inner for each in block.sources)


def joined_by_equals(block: SelectBlock) -> bool:
    """Whether a column of one stream equals one of another."""
    live = set(block.live)
    return any(len({block.owner[column] for column in group} & live) > 1 for group in _classes(block))


def _obstacle(block: SelectBlock) -> str | None:
    """Why a SELECT cannot be keyed, if its form alone rules it out."""
    if block.limited:
        return "LIMIT looks at all rows"
    if block.has_subqueries and not _asks_tables(block):
        return _of_subquery(block)
    if block.sets:
        return "it groups by several sets of columns"
    if any(each.lateral and not each.static for each in block.sources):
        return "a LATERAL subquery looks at a stream for each row"
    if any(_depends(each) and not _partition_of(each) and not _plain_sessions(each) for each in block.sources):
        return DEPENDS
    if any(each.static for each in block.sources) and not all(each.inner for each in block.sources):
        lefts = all(each.kind not in ("right", "full") for each in block.sources)
        by_itself = len(block.sources) == 2 and len(block.live) == 1
        if (keeps_table_rows(block) and not by_itself) or not lefts:
            return WITHOUT_PARTNER
    return None


def _asks_tables(block: SelectBlock) -> bool:
    """Whether all subqueries read static tables for rows of views, so that a REFRESH also reaches old rows."""
    asked = [inner.rel for expr in block.exprs() for inner in expr.subqueries()]
    scans = [block.sources[index].scan for index in block.live]
    views = all(scan is not None and scan.source.kind == "view" for scan in scans)
    return views and not any(map(is_live, asked))


def _of_subquery(block: SelectBlock) -> str:
    """Why a subquery that was not decorrelated prevents a key."""
    for condition in conjuncts(block.where) if block.where is not None else ():
        found = membership(condition)
        if found is not None and found.negated and found.left is not None:
            return (
                "NOT IN looks at all rows of its subquery, for one NULL in it leaves nothing; where no NULL can be, "
                "x IS NOT NULL AND x NOT IN (SELECT y ... WHERE y IS NOT NULL) says so"
            )
    return "it has a subquery in an expression that no equation ties to its rows"


def _depends(each: FromItem) -> bool:
    """Whether the windows of a relation depend on other rows."""
    return each.window is not None and not each.window.window.by_row


def _plain_sessions(each: FromItem) -> bool:
    """Whether the windows of a relation are sessions of all rows, which differ by time alone."""
    return each.window is not None and isinstance(each.window.window.type, Sessions)


def _partition_of(each: FromItem) -> frozenset[Column]:
    """The columns that partition windows which depend on other rows: windows of different values are independent."""
    windowed = each.windowed
    if windowed is None or windowed.window.filled or windowed.window.pairs != "none":
        return frozenset()
    return frozenset(windowed.apart)


class _Search:
    def __init__(self, block: SelectBlock) -> None:
        self.block = block
        self.groups = block.keys or ()
        # Where any row can decide whether an epoch exists, no other column partitions the answers.
        windows = [each.window.window for each in block.sources if each.window is not None]
        self.epochs = any(window.pairs == "every" for window in windows)
        #: Of relations whose windows depend on other rows: the partition columns.
        self.partitions = {index: _partition_of(each) for index, each in enumerate(block.sources) if _depends(each)}

    def shown(self, forms: Iterable[tuple[Part, ...]]) -> str | None:
        """The output column that is one of these expressions."""
        wanted = set(forms)
        return next((item.name for item in self.block.items if item.name and item.expr.normal in wanted), None)

    # ---- one stream

    def of_one(self, partitions: Sequence[Sequence[Expr]], live: int) -> list[KeyPart]:
        if live in self.partitions:
            return self._of_partition(partitions, live)
        parts = []
        for position, expr in enumerate(self.groups or partitions[0]):
            if self.groups and any(word(part) == "SESSION_WINDOW" for part in expr.parts):
                continue  # rows of another session may change it
            if not all(expr.normal in {each.normal for each in by} for by in partitions):
                continue
            column = expr.column
            own = column if column is not None and self.block.owner.get(column) == live else None
            parts.append(KeyPart(expr, self.shown([expr.normal]), self._only(live, own), position))
        return parts

    def _only(self, live: int, column: Column | None) -> tuple[Column | None, ...]:
        return tuple(column if index == live else None for index in range(len(self.block.sources)))

    def _of_partition(self, partitions: Sequence[Sequence[Expr]], live: int) -> list[KeyPart]:
        """Columns that partition the windows of the only stream, and over which nothing above aggregates."""
        looked_at = [*([self.groups] if self.groups else []), *partitions]
        parts = []
        for column in sorted(self.partitions[live], key=lambda column: column.name.lower()):
            if all(any(expr.column == column for expr in by) for by in looked_at):
                expr = of_column(column)
                parts.append(KeyPart(expr, self.shown([expr.normal]), self._only(live, column)))
        return parts

    def single(self, partitions: Sequence[Sequence[Expr]], live: Sequence[int], keys: int) -> bool:
        """Whether each row of the answer comes from one window of the only stream, which depends on other rows."""
        if len(live) != 1 or partitions or keys != len(self.partitions.get(live[0], ())):
            return False
        windowed = self.block.sources[live[0]].windowed
        bounds = windowed.bounds if windowed is not None else ()
        return not self.groups or any(expr.column in bounds for expr in self.groups)

    # ---- several streams

    def of_several(self, partitions: Sequence[Sequence[Expr]]) -> list[KeyPart]:
        found = (self._of_class(members, partitions) for members in _classes(self.block))
        return [part for part in found if part is not None]

    def _of_class(self, members: set[Column], partitions: Sequence[Sequence[Expr]]) -> KeyPart | None:
        """The key part of a class of columns that are equal in all rows that count; None if they are no key."""
        block = self.block
        ordered = sorted(members, key=lambda column: (block.owner[column], column.name.lower()))
        if not set(block.live) <= {block.owner[column] for column in members}:
            return None
        if self.epochs and not any(_is_window_end(block, column) for column in members):
            return None
        looked_at = [*([self.groups] if self.groups else []), *partitions]
        if not all(any(expr.column in members for expr in by) for by in looked_at):
            return None
        own: list[Column | None] = [None] * len(block.sources)
        for column in ordered:
            index = block.owner[column]
            if column in self.partitions.get(index, (column,)):
                own[index] = own[index] or column
        if any(own[index] is None for index in self.partitions):
            return None
        types = {column.type for column in members}
        if len(types) > 1 and not types <= set(INTEGERS):
            return None
        outer = not all(each.inner for each in block.sources)
        if outer and len(block.sources) > 2 and len(members) > sum(column is not None for column in own):
            return None  # columns that a join makes equal differ in rows without a partner
        return self._part(ordered, own)

    def _part(self, members: Sequence[Column], own: Sequence[Column | None]) -> KeyPart | None:
        """The key part of a class of equal columns: the column that is present in every row of the answer."""
        block = self.block
        kinds = {each.kind for each in block.sources}
        usable = list(members)
        if kinds & {"right", "full"}:
            if self.groups:
                return None
            seen = [
                column
                for column, each in zip(own, block.sources, strict=True)
                if column is not None and each.kind not in ("semi", "anti")
            ]
            parts: list[Part] = ["coalesce", "("]
            for index, column in enumerate(seen):
                parts += [*([","] if index else []), column]
            return KeyPart(Expr((*parts, ")")), None, tuple(own))
        if kinds & {"left", "semi", "anti"}:
            usable = [column for column in members if block.owner[column] == 0]
        grouped = [expr for expr in self.groups if expr.column in usable]
        if not usable or (self.groups and not grouped):
            return None
        expr = grouped[0] if grouped else of_column(usable[0])
        return KeyPart(expr, self.shown(of_column(column).normal for column in usable), tuple(own))


def _is_window_end(block: SelectBlock, column: Column) -> bool:
    windowed = block.sources[block.owner[column]].windowed
    return windowed is not None and column == windowed.bounds[1]


@dataclass
class _Classes:
    groups: list[set[Column]] = field(default_factory=list)

    def join(self, columns: Iterable[Column]) -> None:
        wanted = set(columns)
        touching = [group for group in self.groups if group & wanted]
        self.groups = [group for group in self.groups if group not in touching]
        self.groups.append(wanted.union(*touching))


def _classes(block: SelectBlock) -> list[set[Column]]:
    """Classes of columns that are equal in every row that counts."""
    classes = _Classes()
    outer = not all(each.inner for each in block.sources)
    conditions = [each.on for each in block.sources if each.on is not None]
    conditions += [block.where] if block.where is not None and not outer else []
    for condition in conditions:
        for each in conjuncts(condition):
            found = equation(each)
            # After another join without a partner, NULL would match the NULL of any row.
            if found is None or (found[1] == "<=>" and outer and len(block.sources) > 2):
                continue
            one, other = _equal(block, found[0]), _equal(block, found[2])
            if one and other:
                classes.join((*one, *other))
    return classes.groups


def _equal(block: SelectBlock, expr: Expr) -> tuple[Column, ...]:
    """The column of an operand of an equation; of a column of FULL JOIN ... USING, the columns that it merges."""
    column = expr.column
    if column is None:
        return ()
    merged = block.merged.get(column)
    return tuple(merged.columns()) if merged is not None else (column,) if column in block.owner else ()
