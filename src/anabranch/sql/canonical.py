"""The spellings of several systems to one: windows become window functions in FROM, before anything is parsed.

    SELECT k, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts] FROM s GROUP BY k

is rewritten to

    SELECT k, count(*), window_start, window_end, window_time
    FROM SLIDING(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 10 MINUTES) AS s
    GROUP BY k, window_start, window_end, window_time

as text, by edits that know where each piece came from: what is wrong with it is shown in the text as it was written.
How a window is written is for `spellings` to know; how windows are joined, for `window_joins`; what a window function
means, for `windows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anabranch.errors import NotSupported, Rewritten, SyntaxProblem
from anabranch.sql.calls import AGGREGATES, aggregate_calls, split_commas
from anabranch.sql.chunk_joins import Epochs, join_chunks
from anabranch.sql.clauses import Block, find_blocks
from anabranch.sql.cursor import Cursor
from anabranch.sql.entries import Entry, at_stream, take_entries
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, STRING, WORD, Span, Token, tokenize
from anabranch.sql.spellings import (
    WindowCall,
    aggregate_window,
    at_bracket,
    at_cut,
    at_visible,
    take_bracket,
)
from anabranch.sql.splice import Edit, Spliced, splice
from anabranch.sql.terms import JOIN_WORDS, ends_value
from anabranch.sql.window_joins import joined_edits, pairs_edits, relation_edits, wrapped

_WINDOW_COLUMNS = ("window_start", "window_end", "window_time")


def canonical(text: str, tokens: list[Token]) -> tuple[str, list[Token]]:
    """The statement of these tokens in its canonical form, and its tokens; both as they are if they have it."""
    edits = _windows(text, _without_dry_run(tokens))
    if edits:
        text, tokens = _rewritten(splice(text, Span(tokens[0].start, tokens[-1].start), edits), text)
    return text, tokens


def _rewritten(made: Spliced, text: str) -> tuple[str, list[Token]]:
    def place(start: int, end: int) -> tuple[int, int]:
        there = made.original(start, end)
        return there.start, there.end

    return Rewritten(made.text, text, place), tokenize(made.text)


def _windows(text: str, tokens: list[Token]) -> list[Edit]:
    if not any(_starts_spelling(tokens, index) for index in range(len(tokens))):
        return []
    return list(_Rewriter(text, tokens).edits())


def _without_dry_run(tokens: list[Token]) -> list[Token]:
    """DRY RUN stands behind the query of an ALTER VIEW, and is no part of it."""
    dry = [token.upper for token in tokens[-3:-1]] == ["DRY", "RUN"] and tokens[0].upper == "ALTER"
    return [*tokens[:-3], replace(tokens[-1], start=tokens[-3].start)] if dry else tokens


def _starts_spelling(tokens: list[Token], index: int) -> bool:
    token = tokens[index]
    if token.text == "[":
        return at_bracket(tokens, index)
    if token.text == "<":
        return at_visible(tokens, index)
    if token.kind != WORD:
        return False
    following = tokens[min(index + 1, len(tokens) - 1)]
    if following.text == "(":
        return token.upper in ("WINDOW_ID", "CQ_CLOSE", "STREAM") or token.upper.startswith("STREAM_")
    return token.upper == "CUT" and following.upper in ("ON", "BY")


class _Rewriter:
    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.brackets = [index for index in range(len(self.tokens)) if at_bracket(self.tokens, index)]
        self.blocks = find_blocks(text, self.tokens, bool(self.brackets))

    def edits(self) -> Iterator[Edit]:
        yield from self._functions()
        behind: dict[int, list[int]] = {}  # brackets of the SELECT list, by the index of the block
        for index in self.brackets:
            owner = self._owner(index)
            if owner is None or not (self._in_items(owner, index) or self._in_source(owner, index)):
                raise self._wrong(
                    self._bracket_span(index),
                    "a window stands behind an aggregate of the SELECT list, or behind a relation of FROM",
                )
            if self._in_items(owner, index):
                behind.setdefault(owner.select, []).append(index)
        for block in self.blocks:
            if block.source is not None and (block.select in behind or self._windowed(block)):
                yield from self._block(block, behind.get(block.select, []))
            elif block.select in behind:
                first = behind[block.select][0]
                raise self._wrong(self._bracket_span(first), "a window needs a relation", "add FROM")

    # ---- functions

    def _functions(self) -> Iterator[Edit]:
        """window_id() and cq_close(*) are columns."""
        for index, token in enumerate(self.tokens[:-2]):
            if token.kind != WORD or token.upper not in ("WINDOW_ID", "CQ_CLOSE"):
                continue
            last = index + (2 if token.upper == "WINDOW_ID" else 3)
            call = "".join(each.text for each in self.tokens[index + 1 : last + 1])
            if call == "()" and token.upper == "WINDOW_ID":
                yield Edit(Span(token.start, self.tokens[last].end), "window_id")
            elif call == "(*)" and token.upper == "CQ_CLOSE":
                name = " AS cq_close" if self._is_item(index, last) else ""
                yield Edit(Span(token.start, self.tokens[last].end), f"window_end{name}")

    def _is_item(self, first: int, last: int) -> bool:
        """Whether these tokens are an item of a SELECT list, with no name given to it."""
        owner = self._owner(first)
        if owner is None or not self._in_items(owner, first):
            return False
        before = first == owner.items or self.tokens[first - 1].text == ","
        return before and (last + 1 == owner.items_end or self.tokens[last + 1].text == ",")

    # ---- places

    def _owner(self, index: int) -> Block | None:
        """The innermost SELECT around a token."""
        return next((block for block in reversed(self.blocks) if block.holds(index)), None)

    def _in_items(self, block: Block, index: int) -> bool:
        return block.items <= index < block.items_end

    def _in_source(self, block: Block, index: int) -> bool:
        return block.source is not None and block.source <= index < block.source_end

    def _bracket_span(self, index: int) -> Span:
        return Span(self.tokens[index].start, self.tokens[index + 1].end)

    def _cursor(self, first: int, end: int) -> Cursor:
        """A cursor over some of the tokens, that ends with them."""
        stop = self.tokens[end - 1].end if end > first else self.tokens[first].start
        return Cursor(self.text, [*self.tokens[first:end], Token(END, "", stop, stop)])

    def _own(self, first: int, end: int) -> list[Token]:
        """The tokens of a stretch that are not in a query inside it."""
        inner = [block for block in self.blocks if first <= block.select < end]
        return [self.tokens[index] for index in range(first, end) if not any(block.holds(index) for block in inner)]

    def _windowed(self, block: Block) -> int | None:
        """Where a window in one of these spellings stands in FROM."""
        assert block.source is not None
        for index in range(block.source, block.source_end):
            cursor = Cursor(self.text, self.tokens, index)
            found = at_bracket(self.tokens, index) or at_visible(self.tokens, index) or at_stream(cursor)
            found = found or at_cut(cursor)
            if found and self._owner(index) is block:
                return index
        return None

    def _wrong(self, span: Span, message: str, hint: str | None = None) -> SyntaxProblem:
        return SyntaxProblem(message, text=self.text, start=span.start, end=span.end, hint=hint)

    def _not_yet(self, span: Span, message: str, hint: str | None = None) -> NotSupported:
        return NotSupported(message, text=self.text, start=span.start, end=span.end, hint=hint)

    # ---- a SELECT with windows

    def _block(self, block: Block, behind: list[int]) -> Iterator[Edit]:
        assert block.source is not None
        sources = take_entries(self._cursor(block.source, block.source_end), unions=bool(self.brackets))
        self._refuse_joins(sources)
        joined = any(each.bracket is not None for each in sources)
        inside = list(joined_edits(self.text, self.tokens, block, sources)) if joined else []
        if not behind:
            if joined:
                yield from inside
                return
            epochs = join_chunks(self.text, sources)
            yield from self._implicit(block, sources if epochs is None else list(epochs.entries), epochs)
            return
        found = [self._aggregate_window(index) for index in behind]
        window = found[0]
        for index, each in zip(behind, found, strict=True):
            if each.key != window.key:
                raise self._wrong(
                    each.span,
                    "the aggregates of a SELECT have one window, and this is another one",
                    "make a query of each, and join them",
                )
            yield Edit(Span(self.tokens[index - 1].end, each.span.end), "")
        other = next((each.window for each in sources if each.window is not None), None)
        if other is not None:
            raise self._not_yet(
                window.span,
                "a window over another window is not supported yet",
                "make a view of what stands in FROM, and read that",
            )
        if len(sources) > 1:
            inside = inside or list(relation_edits(sources))
            yield from pairs_edits(self.text, self.tokens, block, sources, inside, window)
        else:
            yield from wrapped(replace(sources[0], window=window))
        items = self._own(block.items, block.items_end)
        spans = [each.span for each in found]
        outside = [token for token in items if not any(span.start <= token.start < span.end for span in spans)]
        named = {token.name.lower() for token in outside if token.is_name}
        if "cq_close" in named:
            named.add("window_end")
        missing = [column for column in _WINDOW_COLUMNS if column not in named]
        if missing:
            place = self.tokens[block.items_end - 1].end
            yield Edit(Span(place, place), "".join(f", {column}" for column in missing), window.span)
        columns = [] if block.group is not None or not window.partition else self._plain_columns(block)
        apart = [each for each in window.partition if each.text.lower() not in {_last(one) for one, _ in columns}]
        yield from self._group(block, [*columns, *((each.text, each.origin) for each in apart)], window.span)

    def _refuse_joins(self, sources: list[Entry]) -> None:
        windowed = [each.bracket.span for each in sources if each.bracket is not None]
        if len(sources) == 1 and windowed:
            raise self._wrong(
                windowed[0],
                "a window behind a relation is for the inputs of a join",
                "write the window of an aggregate behind the aggregate: count(*) [RANGE ...]",
            )
        windows = [each.window for each in sources if each.window is not None]
        windowed = [] if all(window.cut is not None for window in windows) else [window.span for window in windows][1:]
        if windowed:
            raise self._not_yet(
                windowed[0], "joins of windows are not supported yet", "join by the times of the rows: ON ... BETWEEN"
            )

    def _aggregate_window(self, index: int) -> WindowCall:
        """What the bracket at `index` stands for, behind an aggregate."""
        bracket = take_bracket(Cursor(self.text, self.tokens, index))
        self._check_aggregate(index)
        return aggregate_window(self.text, bracket)

    def _check_aggregate(self, index: int) -> None:
        """A window stands behind the call of an aggregate, its FILTER included."""
        before = index - 1
        word = self.tokens[before]
        if word.text == ")":
            depth = 0
            while before > 0:
                depth += (self.tokens[before].text in CLOSING) - (self.tokens[before].text in OPENING)
                before -= 1
                if depth == 0:
                    break
            word = self.tokens[before]
            if word.text.lower() in AGGREGATES or word.upper in ("FILTER", "GROUP"):
                return
        raise self._wrong(self._bracket_span(index), f"a window stands behind an aggregate, and {word.text} is none")

    def _implicit(self, block: Block, sources: list[Entry], epochs: Epochs | None) -> Iterator[Edit]:
        """Windows of FROM: each is a query of its own, so that an aggregate is one of each window."""
        windowed = [each for each in sources if each.window is not None]
        if not windowed or windowed[0].window is None:
            place = self._windowed(block) or block.select
            raise self._wrong(
                self._bracket_span(place), "a window cannot stand here", "it stands behind a relation of FROM"
            )
        span = windowed[0].window.span
        for each in windowed:
            yield from wrapped(each)
        items = self._own(block.items, block.items_end)
        name = epochs.name if epochs is not None else None
        if epochs is not None:
            yield from self._pair(block, epochs)
        if block.group is not None or block.having or any(aggregate_calls(items)):
            yield from self._group(block, [], span, name)
        elif self.tokens[block.items - 1].upper == "DISTINCT" and epochs is not None:
            yield from self._distinct(block, span, name)
        elif self.tokens[block.items - 1].upper == "DISTINCT":
            raise self._not_yet(
                self.tokens[block.items - 1].span,
                "DISTINCT in each window is not supported yet",
                "write GROUP BY instead of DISTINCT",
            )

    def _pair(self, block: Block, epochs: Epochs) -> Iterator[Edit]:
        """What holds the chunks of an epoch together, and the columns of its window under the name of one of them."""
        assert block.source is not None
        for place, condition, origin in epochs.inside:
            yield from self._also(place, condition, origin, self._condition(block, place))
        if epochs.condition and self.tokens[block.source_end].upper == "WHERE":
            where = self.tokens[block.source_end + 1 : block.rows_end]
            yield from self._also(where[0].start if where else block.end, epochs.condition, epochs.origin, where)
        elif epochs.condition:
            place = self.tokens[block.source_end - 1].end
            yield Edit(Span(place, place), f" WHERE {epochs.condition}", epochs.origin)
        if epochs.name is None:
            return
        yield from self._qualified(block, epochs.name)

    def _qualified(self, block: Block, name: str) -> Iterator[Edit]:
        """A name before the columns of windows that have none."""
        aliases = {item[-1].start for item in split_commas(self.tokens[block.items : block.items_end]) if _named(item)}
        own = self._own(block.items, block.end)
        for before, token in zip([self.tokens[block.items - 1], *own], own, strict=False):
            column = token.kind == WORD and token.text.lower() in (*_WINDOW_COLUMNS, "window_id", "cq_close")
            if column and before.text != "." and before.upper != "AS" and token.start not in aliases:
                yield Edit(Span(token.start, token.start), f"{name}.", token.span)

    def _also(self, place: int, condition: str, origin: Span, behind: list[Token]) -> Iterator[Edit]:
        """A condition before another one that starts at `place`; both hold."""
        depth, apart = 0, False
        for token in behind:
            bracket = token.kind != STRING
            depth += (bracket and token.text in OPENING) - (bracket and token.text in CLOSING)
            apart = apart or (depth == 0 and token.upper == "OR")
        yield Edit(Span(place, place), f"{condition} AND {'(' if apart else ''}", origin)
        if apart:
            yield Edit(Span(behind[-1].end, behind[-1].end), ")", origin)

    def _condition(self, block: Block, place: int) -> list[Token]:
        """The tokens of the condition of a join that starts at a place."""
        found: list[Token] = []
        depth = 0
        for token in self.tokens[: block.source_end]:
            if token.start < place:
                continue
            opens = token.kind != STRING
            if depth == 0 and (token.text == "," or (token.upper in JOIN_WORDS and token.kind == WORD)):
                break
            depth += (opens and token.text in OPENING) - (opens and token.text in CLOSING)
            found.append(token)
        return found

    def _distinct(self, block: Block, span: Span, name: str | None) -> Iterator[Edit]:
        """DISTINCT in each window: what is listed, and the window, are grouped by; * has the columns of windows."""
        items = [item for item in split_commas(self.tokens[block.items : block.items_end]) if item]
        if any(item[-1].text == "*" for item in items):
            return
        word = self.tokens[block.items - 1]
        yield Edit(Span(word.start, self.tokens[block.items].start), "")
        edits = [*self._functions(), *(self._qualified(block, name) if name is not None else ())]
        found: list[tuple[str, Span]] = []
        for each in (_expression(item) for item in items):
            window = each[0].text.lower() in (*_WINDOW_COLUMNS, "window_id", "cq_close")
            # A number would be taken for the place of an item; what is of the window is grouped by anyway.
            if (each[0].kind in (NUMBER, STRING) and len(each) == 1) or window:
                continue
            place = Span(each[0].start, each[-1].end)
            inside = [edit for edit in edits if place.start <= edit.span.start and edit.span.end <= place.end]
            found.append((splice(self.text, place, inside).text, place))
        yield from self._group(block, found, span, name)

    def _group(self, block: Block, more: list[tuple[str, Span]], span: Span, name: str | None = None) -> Iterator[Edit]:
        """GROUP BY with these, the ids of windows if they are asked for, and the bounds of windows."""
        tokens = self.tokens[block.group_items : block.group_end] if block.group is not None else []
        groups = [each for each in split_commas(tokens) if each]
        self._refuse_sets(groups)
        asked = any(token.upper == "WINDOW_ID" for token in self._own(block.items, block.end))
        there = {_last(Span(each[0].start, each[-1].end).of(self.text)) for each in groups}
        if any(each[0].upper == "CQ_CLOSE" for each in groups):
            there.add("window_end")
        columns = [*(["window_id"] if asked else []), *_WINDOW_COLUMNS]
        bounds = [(column if name is None else f"{name}.{column}", span) for column in columns]
        more = [each for each in more if _last(each[0]) not in there]
        there |= {_last(text) for text, _ in more}
        wanted = [*more, *(each for each in bounds if _last(each[0]) not in there)]
        if block.group is not None:
            word, last = self.tokens[block.group], self.tokens[block.group_items - 1]
            if block.group_items - block.group != 2:  # GROUPBY, GROUP-BY
                yield Edit(Span(word.start, last.end), "GROUP BY")
            place = self.tokens[block.group_end - 1].end
            between = ", "
        else:
            place, between = self.tokens[block.rows_end - 1].end, " GROUP BY "
        for text, origin in wanted:
            yield Edit(Span(place, place), between, span)
            yield Edit(Span(place, place), text, origin)
            between = ", "

    def _refuse_sets(self, groups: list[list[Token]]) -> None:
        for each in groups:
            words = [token.upper for token in each]
            if words[0] in ("ALL", "ROLLUP", "CUBE", "GROUPING") or words[-2:-1] == ["WITH"] or "SETS" in words:
                raise self._not_yet(
                    Span(each[0].start, each[-1].end),
                    "only plain columns and expressions are grouped by together with a window written like this",
                    "write the window as a function in FROM",
                )

    def _plain_columns(self, block: Block) -> list[tuple[str, Span]]:
        """The items of a SELECT list that are columns as they are."""
        found: list[tuple[str, Span]] = []
        for item in split_commas(self.tokens[block.items : block.items_end]):
            length = 1
            while length + 1 < len(item) and item[length].text == "." and item[length + 1].is_name:
                length += 2
            rest = [token.upper if token.kind == WORD else "" for token in item[length:]]
            named = not rest or (rest[0] == "AS" and len(rest) == 2) or (len(rest) == 1 and item[-1].is_name)
            if item and item[0].is_name and named:
                span = Span(item[0].start, item[length - 1].end)
                if _last(span.of(self.text)) not in _WINDOW_COLUMNS:
                    found.append((span.of(self.text), span))
        return found


def _named(item: list[Token]) -> bool:
    """Whether an item of a SELECT list ends with a name given to it without AS."""
    return len(item) > 1 and item[-1].is_name and item[-2].text != "." and ends_value(item[-2])


def _expression(item: list[Token]) -> list[Token]:
    """An item of a SELECT list without the name given to it."""
    if len(item) > 2 and item[-2].upper == "AS":
        return item[:-2]
    return item[:-1] if _named(item) else item


def _last(name: str) -> str:
    """The column that a qualified name means."""
    return name.rsplit(".", 1)[-1].strip("` ").lower()
