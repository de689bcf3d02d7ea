"""Where the clauses of each SELECT of a statement stand, found without parsing what is in them.

Needed for a text that is not in its canonical form yet, of which the grammar proper would not understand every part.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.sql.cursor import Cursor
from anabranch.sql.emission import emission_ahead
from anabranch.sql.lexer import CLOSING, END, OPENING, SYMBOL, WORD, Token
from anabranch.sql.query import at_query
from anabranch.sql.terms import CLAUSES, SET_OPERATORS, TAIL, inside_expression


@dataclass
class Block:
    """A SELECT: the indexes of tokens at which its parts start and end."""

    select: int
    items: int  # the first token of the list
    items_end: int = 0
    source: int | None = None  # the first token behind FROM
    source_end: int = 0
    rows_end: int = 0  # behind FROM and WHERE: where GROUP BY stands, or would
    group: int | None = None  # the word GROUP
    group_items: int = 0  # the first token behind GROUP BY
    group_end: int = 0
    end: int = 0
    having: bool = False

    def holds(self, index: int) -> bool:
        return self.select < index < self.end


def find_blocks(text: str, tokens: list[Token], spellings: bool) -> list[Block]:
    """All SELECTs, outer ones first; with `spellings` GROUPBY is GROUP BY, and UNION can stand in FROM."""
    pairs = _pairs(tokens)
    return [
        _scan(Cursor(text, tokens, index), pairs, spellings)
        for index, token in enumerate(tokens)
        if token.upper == "SELECT" and (index == 0 or tokens[index - 1].text != ".")
    ]


def _pairs(tokens: list[Token]) -> dict[int, int]:
    """The index of the bracket that closes each one; brackets are known to pair up."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind == SYMBOL and token.text in OPENING:
            opened.append(index)
        elif token.kind == SYMBOL and token.text in CLOSING:
            pairs[opened.pop()] = index
    return pairs


def _scan(cursor: Cursor, pairs: dict[int, int], spellings: bool) -> Block:
    tokens, start = cursor.tokens, cursor.index
    cursor.advance()
    _ = cursor.take("DISTINCT") or cursor.take("ALL")
    block = Block(start, cursor.index)
    part = "items"
    while not _ends(cursor, part, spellings):
        token = cursor.current
        if cursor.index in pairs:
            cursor.index = pairs[cursor.index] + 1
            continue
        if part == "items" and token.upper == "FROM" and not inside_expression(cursor, "FROM", False):
            block.items_end, block.source, part = cursor.index, cursor.index + 1, "source"
        elif part == "source" and token.upper == "WHERE" and token.kind == WORD:
            block.source_end, part = cursor.index, "where"
        elif part in ("source", "where") and _at_group(cursor, spellings):
            block.source_end = block.source_end or cursor.index
            block.rows_end = block.group = cursor.index
            cursor.index += 0 if token.upper == "GROUPBY" else 2 if cursor.ahead(1).text == "-" else 1
            block.group_items, part = cursor.index + 1, "group"
        elif part != "items" and (token.upper == "HAVING" or _at_tail(cursor)):
            _close(block, cursor.index)
            block.having, part = block.having or token.upper == "HAVING", "rest"
        cursor.advance()
    block.end = min(cursor.index, len(tokens) - 1)
    block.items_end = block.items_end or block.end
    _close(block, block.end)
    return block


def _close(block: Block, index: int) -> None:
    block.source_end = block.source_end or index
    block.rows_end = block.rows_end or index
    block.group_end = block.group_end or index


def _at_group(cursor: Cursor, spellings: bool) -> bool:
    if spellings and ((cursor.at("GROUPBY") and cursor.ahead(1).is_name) or cursor.at("GROUP", "-", "BY")):
        return True
    return cursor.at("GROUP", "BY")


def _at_tail(cursor: Cursor) -> bool:
    return cursor.at_any(TAIL) and not inside_expression(cursor, cursor.current.upper, False)


def _ends(cursor: Cursor, part: str, spellings: bool) -> bool:
    """Whether the SELECT is over."""
    token = cursor.current
    if token.kind == END or (token.kind == SYMBOL and (token.text in CLOSING or token.text == ";")):
        return True
    if token.kind != WORD or cursor.previous.text == ".":
        return False
    if token.upper in SET_OPERATORS and part == "source" and spellings:
        behind = Cursor(cursor.text, cursor.tokens, cursor.index + 1)
        _ = behind.take("ALL") or behind.take("DISTINCT")
        return at_query(behind) or behind.at("TABLE")
    ends = token.upper in SET_OPERATORS or token.upper in ("ORDER", "LIMIT", "OFFSET")
    if ends and token.upper in CLAUSES and not inside_expression(cursor, token.upper, False):
        return True
    return emission_ahead(cursor) or cursor.at("START", "AT")
