"""Rewrite a SELECT that has windows in the notations of Li, Truviso and ECQ.

    SELECT k, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts] FROM s GROUP BY k

becomes this, as nodes with spans in the original text:

    SELECT k, count(*), window_start, window_end, window_time
    FROM SLIDING(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 10 MINUTES) AS s
    GROUP BY k, window_start, window_end, window_time

A relation followed by windows becomes a query of its own, so that an aggregate is computed per window. `windows` parses
windows, `joins` and `chunks` join them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from anabranch.errors import NotSupported, problem
from anabranch.sql.calls import AGGREGATES, aggregate_calls
from anabranch.sql.cursor import Cursor
from anabranch.sql.dialects.chunks import Epochs, join_chunks
from anabranch.sql.dialects.joins import join_inputs, pairs
from anabranch.sql.dialects.windows import Bracket, SpelledWindow, aggregate_window, at_bracket, take_bracket
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, STRING, SYMBOL, WORD, Token
from anabranch.sql.syntax import Expression, Item, Query, Relation, Select
from anabranch.sql.text import Span

_WINDOW_COLUMNS = ("window_start", "window_end", "window_time")
_OF_WINDOWS = (*_WINDOW_COLUMNS, "window_id")
Change = Callable[[tuple[Token, ...]], tuple[Token, ...]]


def with_calls(tokens: list[Token]) -> list[Token]:
    """Replace window_id() and cq_close(*) by columns."""
    made: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        texts = [each.text for each in tokens[index + 1 : index + 4]]
        column, length = token.text, 1
        if token.upper == "WINDOW_ID" and texts[:2] == ["(", ")"]:
            column, length = "window_id", 3
        elif token.upper == "CQ_CLOSE" and texts == ["(", "*", ")"]:
            column, length = "window_end", 4
        end = tokens[index + length - 1].end
        made.append(token if length == 1 else Token(WORD, column, token.start, end))
        index += length
    return made


def name_of_call(text: str, tokens: Sequence[Token]) -> str | None:
    """The name of an item that is cq_close(*)."""
    alone = len(tokens) == 1 and tokens[0].text == "window_end"
    return "cq_close" if alone and tokens[0].span.of(text).upper().startswith("CQ_CLOSE") else None


def take_brackets(text: str, tokens: tuple[Token, ...]) -> tuple[tuple[Token, ...], tuple[Bracket, ...]]:
    """The tokens of an item without the windows after its aggregates, and these windows."""
    found: list[Bracket] = []
    index = 0
    while index < len(tokens):
        if at_bracket(tokens, index):
            _check_aggregate(text, tokens, index)
            end = Token(END, "", tokens[-1].end, tokens[-1].end)
            cursor = Cursor(text, [*tokens, end], index)
            found.append(take_bracket(cursor))
            tokens = (*tokens[:index], *tokens[cursor.index :])
        else:
            index += 1
    return tokens, tuple(found)


def _check_aggregate(text: str, tokens: Sequence[Token], index: int) -> None:
    """Refuse a window that does not follow the call of an aggregate, with its FILTER."""
    before = index - 1
    word = tokens[before]
    if word.text == ")":
        depth = 0
        while before > 0:
            depth += (tokens[before].text in CLOSING) - (tokens[before].text in OPENING)
            before -= 1
            if depth == 0:
                break
        word = tokens[before]
        if word.text.lower() in AGGREGATES or word.upper in ("FILTER", "GROUP"):
            return
    span = Span(tokens[index].start, tokens[index + 1].end)
    raise problem(text, span, f"a window follows an aggregate, and {word.text} is none")


def read_notations(text: str, query: Query) -> Query:
    """The query with the notations in it rewritten; itself if it has none."""
    select = query.body
    assert isinstance(select, Select)
    for tokens in (each.tokens for each in _expressions(select)):
        at = next((index for index in range(len(tokens)) if at_bracket(tokens, index)), None)
        if at is not None:
            span = Span(tokens[at].start, tokens[at + 1].end)
            what = "a window follows an aggregate of the SELECT list, or a relation of FROM"
            raise problem(text, span, what)
    brackets = [each for item in select.items for each in item.brackets]
    behind = [relation for relation in select.relations if relation.spelled or relation.bracket]
    if not brackets and not behind:
        named = any(item.alias == "cq_close" and name_of_call(text, item.tokens) for item in select.items)
        return replace(query, body=replace(select, planned=True)) if named else query
    if brackets and not select.relations:
        first = brackets[0].span
        raise problem(text, Span(first.start, first.start + len("[RANGE")), "a window needs a relation", "add FROM")
    return _Reader(text, query, select).read()


def _expressions(select: Select) -> Iterator[Expression]:
    yield from (each for each in (select.where, select.having) if each is not None)
    yield from (*select.group, *select.tail_expressions)


class _Reader:
    def __init__(self, text: str, query: Query, select: Select) -> None:
        self.text = text
        self.query = query
        self.select = replace(select, planned=True)

    def read(self) -> Query:
        relations = self.select.relations
        self._refuse_joins(relations)
        windows = [aggregate_window(self.text, each) for item in self.select.items for each in item.brackets]
        if any(each.bracket is not None for each in relations):
            self.select = join_inputs(self.text, self.select)
            if not windows:
                return self._made()
        if windows:
            self._aggregated(windows)
        else:
            self._behind()
        return self._made()

    def _made(self) -> Query:
        return replace(self.query, body=self.select)

    def _refuse_joins(self, relations: Sequence[Relation]) -> None:
        brackets = [each.bracket.span for each in relations if each.bracket is not None]
        if len(relations) == 1 and brackets:
            raise problem(
                self.text,
                brackets[0],
                "a window after a relation is only for the inputs of a join",
                "write the window of an aggregate after the aggregate: count(*) [RANGE ...]",
            )
        windows = [each.spelled for each in relations if each.spelled is not None]
        if len(windows) > 1 and not all(window.cut is not None for window in windows):
            raise self._not_yet(
                windows[1].span,
                "joins of windows are not supported yet",
                "join by the times of the rows: ON ... BETWEEN",
            )

    # ---- windows after aggregates

    def _aggregated(self, windows: Sequence[SpelledWindow]) -> None:
        window = windows[0]
        for each in windows:
            if not each.same_as(window):
                raise problem(
                    self.text,
                    each.span,
                    "all aggregates of a SELECT have the same window, and this one differs",
                    "write a query for each, and join them",
                )
        select = self.select
        if any(each.spelled is not None for each in select.relations):
            raise self._not_yet(
                window.span,
                "a window over another window is not supported yet",
                "create a view of the relation in FROM, and read that",
            )
        if len(select.relations) > 1:
            self.query, self.select = pairs(self.text, self.query, select, window)
        else:
            self.select = replace(select, relations=(window.over(self.text, select.relations[0]),))
        select = self.select
        named = {token.name.lower() for item in select.items for token in item.tokens if token.is_name}
        missing = (column for column in _WINDOW_COLUMNS if column not in named)
        more = tuple(Item(window.span, window.span, None, _name(column, window.span)) for column in missing)
        apart = [] if select.group or not window.partition else list(self._plain_columns())
        there = {each.tokens[-1].name.lower() for each in apart}
        keys = [_expression(name.last, name.span) for name in window.partition if name.last.lower() not in there]
        self.select = replace(select, items=(*select.items, *more))
        self._group([*apart, *keys], window.span)

    def _plain_columns(self) -> Iterator[Expression]:
        """The items of the SELECT list that are plain columns."""
        for item in self.select.items:
            names, dots = item.tokens[::2], item.tokens[1::2]
            column = all(token.is_name for token in names) and all(token.text == "." for token in dots)
            if column and len(names) > len(dots) and names[-1].name.lower() not in _WINDOW_COLUMNS:
                yield Expression(item.expression, item.tokens)

    # ---- windows after relations

    def _behind(self) -> None:
        """Rewrite windows of FROM: each becomes a query of its own, so that an aggregate is computed per window."""
        epochs = join_chunks(self.text, self.select.relations)
        relations = self.select.relations if epochs is None else epochs.relations
        span = next(each.spelled.span for each in relations if each.spelled is not None)
        made = tuple(each.spelled.over(self.text, each) if each.spelled is not None else each for each in relations)
        self.select = replace(self.select, relations=made)
        name = None
        if epochs is not None:
            name = epochs.name
            self._pair(epochs)
        select = self.select
        if select.group or select.having or any(True for item in select.items for _ in aggregate_calls(item.tokens)):
            self._group([], span, name)
        elif select.distinct and epochs is not None:
            self._distinct(span, name)
        elif select.distinct:
            word = Span(select.span.start + 7, select.items[0].span.start)
            raise self._not_yet(
                word, "DISTINCT in each window is not supported yet", "write GROUP BY instead of DISTINCT"
            )

    def _pair(self, epochs: Epochs) -> None:
        """Add the conditions that join the chunks of an epoch, and qualify the columns of its window."""
        self.select = replace(self.select, implied_conditions=epochs.conditions)
        if epochs.name is None:
            return
        owner = epochs.name

        def qualified(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            made: list[Token] = []
            for token in tokens:
                plain = token.kind == WORD and token.text.lower() in _OF_WINDOWS
                alone = plain and not (made and made[-1].text == ".")
                made += _name(token.text, token.span, owner) if alone else (token,)
            return tuple(made)

        self.select = mapped(self.select, qualified)

    def _distinct(self, span: Span, name: str | None) -> None:
        """DISTINCT in each window: group by the items and the window; * includes the columns of windows."""
        if any(item.star for item in self.select.items):
            return
        keys = []
        for item in self.select.items:
            # A number would be read as the position of an item; columns of the window are grouped by anyway.
            constant = len(item.tokens) == 1 and item.tokens[0].kind in (NUMBER, STRING)
            if not constant and item.tokens[-1].text.lower() not in _OF_WINDOWS:
                keys.append(Expression(item.expression, item.tokens))
        self.select = replace(self.select, distinct=False)
        self._group(keys, span, name)

    # ---- GROUP BY

    def _group(self, more: Sequence[Expression], span: Span, name: str | None = None) -> None:
        """Add these expressions, the window ids if used, and the bounds of windows to GROUP BY."""
        select = self.select
        if not select.group_plain:
            first = next(each for each in select.group if each.tokens[0].text)
            raise self._not_yet(
                first.span,
                "only plain columns and expressions are grouped by together with a window written like this",
                "write the window as a function in FROM",
            )
        written = [each.tokens for each in select.items] + [each.tokens for each in _expressions(select)]
        asked = any(token.upper == "WINDOW_ID" for tokens in written for token in tokens)
        there = {_last(each) for each in select.group}
        keys = [each for each in more if _last(each) not in there]
        there |= {_last(each) for each in keys}
        columns = [*(["window_id"] if asked else []), *_WINDOW_COLUMNS]
        bounds = [_expression(column, span, name) for column in columns if column not in there]
        self.select = replace(
            select, group=(*select.group, *keys, *bounds), group_span=select.group_span or span, group_plain=True
        )

    def _not_yet(self, span: Span, message: str, hint: str | None = None) -> NotSupported:
        return NotSupported(message, text=self.text, at=span, hint=hint)


def mapped(select: Select, change: Change) -> Select:
    """A SELECT with `change` applied to the tokens of its expressions."""

    def expressions(found: Iterable[Expression]) -> tuple[Expression, ...]:
        return tuple(Expression(each.span, change(each.tokens)) for each in found)

    where, having = (next(iter(expressions([each] if each else [])), None) for each in (select.where, select.having))
    return replace(
        select,
        items=tuple(replace(item, tokens=change(item.tokens)) for item in select.items),
        relations=tuple(
            replace(each, condition_tokens=change(each.condition_tokens)) if each.condition_tokens else each
            for each in select.relations
        ),
        where=where,
        group=expressions(select.group),
        having=having,
    )


def _name(column: str, span: Span, owner: str | None = None) -> tuple[Token, ...]:
    """The tokens of the name of a column from a notation."""
    if owner is None:
        return (Token(WORD, column, span.start, span.end),)
    start = span.start
    quoted = Token("quoted", "`" + owner.replace("`", "``") + "`", start, start + 1)
    return (quoted, Token(SYMBOL, ".", start + 1, start + 2), Token(WORD, column, start + 2, span.end))


def _expression(column: str, span: Span, owner: str | None = None) -> Expression:
    return Expression(span, _name(column, span, owner))


def _last(expression: Expression) -> str:
    """The unqualified name of the column that an expression is."""
    tokens = expression.tokens
    return tokens[-1].name.lower() if tokens[-1].is_name else ""
