"""The entries of a FROM clause that may have windows in other systems' spellings, and unions, in it.

Only what a rewrite has to know is read: where a relation starts and ends, its window, whether it has an alias.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anabranch.errors import SyntaxProblem
from anabranch.sql.cursor import Cursor
from anabranch.sql.lexer import OPENING, STRING, WORD, Span
from anabranch.sql.net import at_net, take_net
from anabranch.sql.query import at_query
from anabranch.sql.relations import take_alias, take_relation
from anabranch.sql.spellings import (
    Bracket,
    WindowCall,
    as_written,
    at_bracket,
    at_cut,
    at_visible,
    take_bracket,
    take_cut,
    take_cut_string,
    take_visible,
)
from anabranch.sql.splice import Edit
from anabranch.sql.terms import JOIN_WORDS


@dataclass
class Entry:
    """One entry of a FROM clause."""

    start: int  # its place in the text, without alias and window
    end: int
    name: str | None  # the name it has without an alias, as written
    alias: str | None = None
    window: WindowCall | None = None
    bracket: Bracket | None = None
    edits: list[Edit] = field(default_factory=list)
    union: bool = False
    join: str = ""  # the words of the join it stands behind
    on: Span | None = None  # the condition behind ON

    @property
    def exposed(self) -> str | None:
        """The name that qualifies its columns, as SQL writes it."""
        return self.alias or (None if self.union else self.name)


def take_entries(cursor: Cursor, *, unions: bool) -> list[Entry]:
    """All of a FROM clause; with `unions` its relations can have UNION, or U, between them."""
    return _Reader(cursor, unions).take()


def at_stream(cursor: Cursor) -> bool:
    """STREAM(...), or STREAM_name(...) with a second argument that says how to cut."""
    token = cursor.current
    if token.kind != WORD or cursor.ahead(1).text != "(" or not token.upper.startswith("STREAM"):
        return False
    if token.upper == "STREAM" or not token.upper.startswith("STREAM_"):
        return token.upper == "STREAM"
    look = Cursor(cursor.text, cursor.tokens, cursor.index + 2)
    while not look.at_end and not look.at(",") and not look.at(")"):
        if look.advance().text in OPENING:
            look.close_bracket()
    second = look.ahead(1)
    return look.at(",") and second.kind == STRING and second.value.upper().split()[:1] == ["CUT"]


class _Reader:
    """Reads a FROM clause as far as it has to be known: what its entries are, and which of them have windows."""

    def __init__(self, cursor: Cursor, unions: bool) -> None:
        self.cursor = cursor
        self.unions = unions

    def take(self) -> list[Entry]:
        found = [self._entry()]
        while not self.cursor.at_end:
            found[-1] = self._condition(found[-1])
            words: list[str] = []
            if self.cursor.take(","):
                words.append(",")
                if self.cursor.at_end:  # the comma before WHERE of printed queries
                    break
            elif self.cursor.at_any(JOIN_WORDS):
                while self.cursor.at_any(JOIN_WORDS):
                    words.append(self.cursor.advance().upper)
            else:
                break
            self.cursor.take("LATERAL")
            found.append(replace(self._entry(), join=" ".join(words)))
        return found

    def _condition(self, entry: Entry) -> Entry:
        """An entry with the condition of its join, behind which another one begins."""
        word = self.cursor.current
        inside = self.cursor.ahead(1).start
        self._skip()
        return replace(entry, on=Span(inside, self.cursor.previous.end)) if word.upper == "ON" else entry

    def _skip(self) -> None:
        """Step over conditions of joins and the like."""
        while not self.cursor.at_end and not self.cursor.at(",") and not self._at_join():
            token = self.cursor.advance()
            if token.upper == "LATERAL":  # its columns have commas between them
                while not self.cursor.at_end and not self._at_join():
                    self.cursor.advance()
            elif token.text in OPENING and token.kind != STRING:
                self.cursor.close_bracket()

    def _at_join(self) -> bool:
        return self.cursor.at_any(JOIN_WORDS) and self.cursor.ahead(1).text != "("

    def _entry(self) -> Entry:
        """A relation, or relations with UNION between them, with window and alias."""
        source = self._relation()
        while self._at_union():
            cursor = self.cursor
            if source.window is not None or source.bracket is not None:
                raise cursor.problem("a window stands behind all of the union")
            word = cursor.advance()
            _ = cursor.take("ALL") or cursor.take("DISTINCT")
            between = Edit(Span(word.start, cursor.previous.end), "UNION ALL SELECT * FROM")
            other = self._relation()
            edits = [*source.edits, between, *other.edits]
            source = replace(other, start=source.start, edits=edits, union=True)
        return source

    def _at_union(self) -> bool:
        cursor = self.cursor
        if not self.unions:
            return False
        if cursor.at("UNION"):
            return True
        behind = cursor.ahead(1)
        return cursor.at("U") and (behind.is_name or behind.text == "(") and behind.upper not in JOIN_WORDS

    def _relation(self) -> Entry:
        cursor = self.cursor
        token = cursor.current
        if at_stream(cursor):
            return self._modifiers(self._stream())
        name: str | None = None
        if token.text == "(" and self.unions and not at_query(cursor) and self._union_inside():
            cursor.advance()
            with cursor.deeper():
                inner = self._entry()
            closing = cursor.expect(")")
            edits = [Edit(token.span, ""), *inner.edits, Edit(closing.span, "")]
            return self._modifiers(replace(inner, start=token.start, end=closing.end, edits=edits))
        if token.text == "(":
            cursor.advance()
            cursor.close_bracket()
        elif token.kind == STRING:
            cursor.advance()
        elif at_net(cursor):
            alias = take_net(cursor, "", take_relation).alias
            name = as_written(alias) if alias is not None else None
        else:
            dotted = cursor.dotted_name("a stream, view, table or path")
            last = cursor.previous
            name = last.text
            if cursor.at("(") and len(dotted.parts) == 1:
                cursor.advance()
                cursor.close_bracket()
                name = None
        if cursor.at("AS", "OF", "VERSION"):
            cursor.index += 4
        elif cursor.at("INCLUDING", "PROVISIONAL"):
            cursor.index += 2
        cursor.index = min(cursor.index, len(cursor.tokens) - 1)
        return self._modifiers(Entry(token.start, cursor.previous.end, name))

    def _union_inside(self) -> bool:
        """Whether UNION stands in the bracket that opens here."""
        look = Cursor(self.cursor.text, self.cursor.tokens, self.cursor.index)
        look.advance()
        look.close_bracket()
        inside = look.tokens[self.cursor.index + 1 : look.index]
        return any(token.upper in ("UNION", "U") for token in inside)

    def _stream(self) -> Entry:
        """STREAM(s, 'CUT ON ts BY 60 SECS' [, 'BLOCK' [, n]]): a window over its first argument."""
        cursor = self.cursor
        word = cursor.advance()
        bracket = cursor.expect("(")
        with cursor.deeper():
            inner = self._relation()
        comma = cursor.expect(",")
        window = take_cut_string(cursor)
        end = cursor.previous.end
        window = replace(window, span=Span(word.start, end))
        edits = [*inner.edits, Edit(Span(comma.start, end), "")]
        if inner.window is not None or inner.bracket is not None:
            raise SyntaxProblem("a stream is cut once", text=cursor.text, start=word.start, end=word.end)
        # STREAM( goes away, and what is put around a relation is put around the one inside
        edits.insert(0, Edit(Span(word.start, bracket.end), ""))
        return Entry(inner.start, inner.end, inner.name, inner.alias, window, None, edits, inner.union)

    def _modifiers(self, source: Entry) -> Entry:
        """Windows and an alias, in either order."""
        cursor = self.cursor
        while True:
            before = cursor.previous.end
            window: WindowCall | None = None
            if at_visible(cursor.tokens, cursor.index):
                window = take_visible(cursor)
            elif cursor.current.upper == "CUT" and at_cut(cursor):
                window = take_cut(cursor)
            elif at_bracket(cursor.tokens, cursor.index):
                bracket = take_bracket(cursor)
                if source.bracket is not None or source.window is not None:
                    raise self._again(bracket.span)
                cut = Edit(Span(before, bracket.span.end), "")
                source = replace(source, bracket=bracket, edits=[*source.edits, cut])
                continue
            elif source.alias is None and not self._at_union() and (alias := take_alias(cursor)) is not None:
                source = replace(source, alias=as_written(alias[0]))
                continue
            else:
                return source
            if source.window is not None or source.bracket is not None:
                raise self._again(window.span)
            cut = Edit(Span(before, window.span.end), "")
            source = replace(source, window=window, edits=[*source.edits, cut])

    def _again(self, span: Span) -> SyntaxProblem:
        return SyntaxProblem(
            "this relation has a window already", text=self.cursor.text, start=span.start, end=span.end
        )
