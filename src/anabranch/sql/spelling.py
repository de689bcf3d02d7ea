"""How a text of SQL is spelled: whether two differ in blanks and case only, and names with and without quotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.sql.lexer import END, QUOTED, WORD, Token, tokenize
from anabranch.sql.splice import Edit, splice
from anabranch.sql.text import Span, quote_name


def normal_form(written: str | Sequence[Token]) -> str:
    """A text that is equal for expressions that differ only in blanks, comments and the case of words.

    >>> normal_form("Sum( `A`+1 ) -- all")
    'sum ( `A` + 1 )'
    """
    tokens = tokenize(written) if isinstance(written, str) else written
    return " ".join(t.text.lower() if t.kind == WORD else t.text for t in tokens if t.kind != END)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A text with its placeholders renamed; strings and comments that look like placeholders are unchanged."""
    tokens = tokenize(text)
    edits = [Edit(t.span, quote_name(names[t.name])) for t in tokens if t.kind == QUOTED and t.name in names]
    return splice(text, Span(0, len(text)), edits).text if edits else text


def as_written(name: str) -> str:
    """A name in SQL, in backquotes if it needs them."""
    plain = [token.kind for token in tokenize(name)][:-1] == [WORD]
    return name if plain else quote_name(name)
