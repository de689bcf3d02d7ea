"""Tokenize text by Spark's lexical rules, with the span of each token.

The spans matter more than the tokens: expressions reach Spark as the user's own text, so Anabranch cuts the parts of
the dialect that it rewrites out of the text by offset, and touches nothing else. Knows no grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from anabranch.errors import SyntaxProblem
from anabranch.sql.text import Span

WORD, QUOTED, STRING, NUMBER, SYMBOL, END = "word", "quoted", "string", "number", "symbol", "end"

_PATTERN = re.compile(
    r"""
      (?P<space>[\s\ufeff]+)
    | (?P<comment>--[^\n]*)
    | (?P<hint>/\*\+.*?\*/)
    | (?P<block>/\*(?!\+))
    | (?P<string>[rR]'[^']*' | [rR]"[^"]*" | [xX]'[^']*' | '(?:\\.|''|[^'\\])*' | "(?:\\.|""|[^"\\])*")
    | (?P<quoted>`(?:``|[^`])*`)
    | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LSYFDlsyfd])?(?![A-Za-z0-9_]))
    | (?P<word>[^\W\d]\w* | \d+[A-Za-z_]\w*)
    | (?P<symbol><=>|->|=>|<>|!=|<=|>=|==|\|\||::|<<|>>>|>>|[-+*/%=<>!&|^~.,:;?()\[\]{}@$\#\\])
    """,
    re.VERBOSE | re.DOTALL,
)


_BLANK = frozenset({"space", "comment", "hint"})


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @cached_property
    def upper(self) -> str:
        """The word in capitals; quoted names and strings are never keywords."""
        return self.text.upper() if self.kind in (WORD, SYMBOL) else ""

    @property
    def name(self) -> str:
        """The name of an identifier token, unquoted."""
        return self.text[1:-1].replace("``", "`") if self.kind == QUOTED else self.text

    @property
    def value(self) -> str:
        """The value of a string token."""
        return string_value(self.text)

    @property
    def is_name(self) -> bool:
        return self.kind in (WORD, QUOTED)


def tokenize(text: str) -> list[Token]:
    """All tokens of a text without comments and blanks, then an END token."""
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        kind, end = match.lastgroup or "", match.end()
        if kind == "block":  # comments nest, which a pattern cannot match
            end = _skip_comment(text, position)
        elif kind not in _BLANK:
            tokens.append(Token(kind, match.group(), position, end))
        position = end
    tokens.append(Token(END, "", len(text), len(text)))
    return tokens


_COMMENT_MARK = re.compile(r"/\*|\*/")


def _skip_comment(text: str, start: int) -> int:
    """The end of a comment; comments nest."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise SyntaxProblem("this comment is not closed", text=text, start=start, end=start + 2, hint="add */")


def _unreadable(text: str, position: int) -> SyntaxProblem:
    character = text[position]
    if character in "'\"`":
        return SyntaxProblem(
            "this quote is not closed",
            text=text,
            start=position,
            end=position + 1,
            hint=f"add a closing {character}",
        )
    return SyntaxProblem(
        f"the character {character!r} has no meaning here",
        text=text,
        start=position,
        end=position + 1,
        hint="use a straight quote" if character in "‘’“”´„" else None,
    )


OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = frozenset(OPENING.values())
#: Far beyond what users write; later parsers (such as Spark's) are recursive.
MAX_DEPTH = 400


def check_brackets(text: str, tokens: list[Token]) -> None:
    """Refuse brackets that do not match or nest too deeply, with the span of the wrong one."""
    open_ones: list[Token] = []
    for token in tokens:
        if token.kind != SYMBOL:
            continue
        if token.text in OPENING:
            open_ones.append(token)
            if len(open_ones) > MAX_DEPTH:
                raise SyntaxProblem(f"brackets nest deeper than {MAX_DEPTH} levels", text=text, at=token)
        elif token.text in CLOSING:
            if not open_ones or OPENING[open_ones[-1].text] != token.text:
                expected = f"expected {OPENING[open_ones[-1].text]} first" if open_ones else None
                raise SyntaxProblem(f"{token.text} closes nothing", text=text, at=token, hint=expected)
            open_ones.pop()
    if open_ones:
        last = open_ones[-1]
        raise SyntaxProblem("this bracket is not closed", text=text, at=last, hint=f"add {OPENING[last.text]}")


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def string_value(literal: str) -> str:
    """The value of a string literal, by Spark's escapes.

    >>> string_value(r"'It''s a\\ttab'")
    "It's a\\ttab"
    """
    if literal[0] in "rR":
        return literal[2:-1]
    quote, body = literal[0], literal[1:-1]

    def unescape(match: re.Match[str]) -> str:
        doubled, unicode, octal, plain = match.groups()
        if doubled is not None:
            return quote
        if unicode is not None:
            return chr(int(unicode, 16))
        if octal is not None:
            return chr(int(octal, 8))
        if plain in "%_":  # escapes of LIKE
            return "\\" + plain
        return _ESCAPES.get(plain, plain)

    pattern = rf"({quote}{quote})|\\(?:u([0-9a-fA-F]{{4}})|([01][0-7]{{2}})|(.))"
    return re.sub(pattern, unescape, body, flags=re.DOTALL)


def split_statements(tokens: list[Token]) -> list[list[Token]]:
    """Split at semicolons; each piece ends with an END token at its own end."""
    pieces: list[list[Token]] = []
    current: list[Token] = []
    for token in tokens:
        if token.kind == END or (token.kind == SYMBOL and token.text == ";"):
            if current:
                pieces.append([*current, Token(END, "", token.start, token.start)])
            current = []
        else:
            current.append(token)
    return pieces
