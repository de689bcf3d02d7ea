"""Plans as Spark SQL over placeholders, which the engine replaces by frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from anabranch.ir.expr import Expr
from anabranch.ir.rel import Rel, Sampled, Scan, Windowed
from anabranch.ir.select import SelectBlock
from anabranch.plan.windows import ID, filled_sql, windowed_sql
from anabranch.render.blocks import BlockWriter, Shape, Source
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Name, WindowSpec
from anabranch.sql.text import HINTS

#: How a scan is written in FROM.
Leaf = Callable[[Scan], str]


class PlaceholderWriter(BlockWriter):
    """With `closed`, windows of counted rows include only full ones. `filled` are the ids of relations whose windows
    include those without rows; `rows` is the source of the windows of a relation, if not its input. `text` is the
    user's, for its hints."""

    def __init__(
        self,
        scan: Leaf,
        shape: Shape = lambda block: block,
        *,
        closed: bool = False,
        filled: Collection[int] = (),
        rows: Mapping[int, str] | None = None,
        text: str = "",
    ) -> None:
        super().__init__(shape=shape)
        self.text = text
        self.scan = scan
        self.closed = closed
        self.filled = filled
        self.rows = rows or {}

    def hints(self, block: SelectBlock) -> str:
        found = HINTS.findall(self.text, block.head.start, block.head.end) if block.head is not None else []
        return "".join(f"{each} " for each in found)

    def leaf(self, rel: Rel) -> None:
        if isinstance(rel, Windowed):
            self.put(self.windowed(rel))
        elif isinstance(rel, Sampled):
            self.put("(")
            self.nested(rel.input, [column.name for column in rel.columns])
            self.put(f") {rel.text}")
        else:
            assert isinstance(rel, Scan)
            self.put(self.scan(rel))

    def windowed(self, rel: Windowed, source: str | None = None) -> str:
        """A relation in windows; `source` is the relation of their rows."""
        source = source or self.rows.get(id(rel))
        if source is None:
            inner = PlaceholderWriter(self.scan, self.shape, closed=self.closed, filled=self.filled, text=self.text)
            inner.scopes = list(self.scopes)
            if isinstance(rel.input, Scan):
                inner.leaf(rel.input)
            else:
                inner.put("(")
                inner.nested(rel.input, [column.name for column in rel.input.columns])
                inner.put(")")
            source = inner.written.text
        window = window_of(rel)
        bounds = {column.name for column in rel.bounds}
        covered = [column.name.lower() for column in rel.input.columns if column.name.lower() in bounds]
        closed = self.closed and window.counts_by_key
        with_id = ID in bounds
        made = windowed_sql(source, window, with_id=with_id, closed=closed, covered=list(dict.fromkeys(covered)))
        return filled_sql(made, window, with_id=with_id) if id(rel) in self.filled else made


def window_of(rel: Windowed) -> WindowSpec:
    """The windows of a relation, with their attribute and partition columns."""
    partition, besides = (
        tuple(Name((column.name,), rel.window.time_span) for column in each) for each in (rel.apart, rel.besides)
    )
    along = rel.along.name if rel.along is not None else rel.window.time_column
    return replace(rel.window, time_column=along, partition=partition, columns=besides)


def select_sql(block: SelectBlock, writer: PlaceholderWriter) -> Spliced:
    """A SELECT with aliases for its items."""
    writer.select(block, [item.name or "" for item in block.items])
    return writer.written


class FromText:
    """The pieces of one SELECT as text: its FROM clause, and expressions in its scope."""

    def __init__(self, block: SelectBlock, writer: Callable[[], PlaceholderWriter]) -> None:
        self.block = block
        self.writer = writer

    def expr(self, expr: Expr) -> str:
        writer, _ = self._opened()
        writer.expr(expr.substitute(self.block.merged) if self.block.merged else expr)
        return writer.written.text

    def exprs(self, exprs: Sequence[Expr]) -> list[str]:
        return [self.expr(each) for each in exprs]

    @property
    def from_clause(self) -> str:
        """Without the word FROM."""
        writer, sources = self._opened()
        writer.from_clause(sources)
        return writer.written.text.removeprefix(" FROM ")

    def _opened(self) -> tuple[PlaceholderWriter, list[Source]]:
        writer = self.writer()
        sources = writer.opened(self.block)
        return writer, sources
