"""A position in a list of tokens, with the basic steps of grammar rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.errors import SyntaxProblem, nearest
from anabranch.sql.lexer import CLOSING, END, NUMBER, OPENING, STRING, SYMBOL, WORD, Token
from anabranch.sql.syntax import Name
from anabranch.sql.text import Span

#: The maximum nesting of queries, since the rules are recursive.
MAX_QUERIES = 40


class Cursor:
    def __init__(self, text: str, tokens: list[Token], index: int = 0, depth: int = 0) -> None:
        self.text = text
        self.tokens = tokens
        self.index = index
        self.depth = depth

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Guards a recursive rule."""
        if self.depth >= MAX_QUERIES:
            raise self.problem(f"queries nest deeper than {MAX_QUERIES} levels")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    @property
    def current(self) -> Token:
        return self.tokens[self.index]

    @property
    def previous(self) -> Token:
        return self.tokens[max(0, self.index - 1)]

    @property
    def whole(self) -> Span:
        """From the first token to the last one taken."""
        return Span(self.tokens[0].start, self.previous.end)

    def ahead(self, distance: int) -> Token:
        return self.tokens[min(self.index + distance, len(self.tokens) - 1)]

    @property
    def at_end(self) -> bool:
        return self.current.kind == END

    def advance(self) -> Token:
        token = self.current
        if token.kind != END:
            self.index += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether the next tokens are these words or symbols."""
        if self.tokens[self.index].upper != words[0]:  # the common case
            return False
        return all(self.ahead(i).upper == word for i, word in enumerate(words))

    def at_any(self, words: set[str] | frozenset[str]) -> bool:
        return self.current.upper in words

    def take(self, *words: str) -> bool:
        """Take these words if they come next."""
        if not self.at(*words):
            return False
        for _ in words:
            self.advance()
        return True

    def expect(self, *words: str) -> Token:
        """Take these words, or raise with what was expected."""
        token = self.current
        for word in words:
            if self.current.upper != word:
                raise self.problem(f"expected {' '.join(words)}", also=words)
            token = self.advance()
        return token

    def expect_end(self, known: tuple[str, ...] = ()) -> None:
        if not self.at_end:
            raise self.problem("the statement should end here", known=known)

    def expect_string(self, what: str) -> Token:
        if self.current.kind != STRING:
            raise self.problem(f"expected {what} in quotes")
        return self.advance()

    def expect_whole_number(self, what: str) -> int:
        text = self.current.text
        if self.current.kind != NUMBER or not text.isdecimal() or len(text) > 18:
            raise self.problem(f"expected {what}")
        self.advance()
        return int(text)

    def expect_name(self, what: str = "a name") -> Token:
        if not self.current.is_name:
            raise self.problem(f"expected {what}")
        return self.advance()

    def dotted_name(self, what: str = "a name") -> Name:
        self.refuse_dashed_name()
        first = self.expect_name(what)
        parts, last = [first.name], first
        while self.current.text == "." and self.ahead(1).is_name:
            self.advance()
            last = self.advance()
            parts.append(last.name)
        return Name(tuple(parts), Span(first.start, last.end))

    def refuse_dashed_name(self) -> None:
        """from-ip is not a name unless it is quoted."""
        first, dash, last = self.current, self.ahead(1), self.ahead(2)
        joined = dash.text == "-" and last.kind == WORD and first.end == dash.start and dash.end == last.start
        if first.kind == WORD and joined:
            whole = Span(first.start, last.end)
            raise SyntaxProblem(
                f"{whole.of(self.text)} is not a plain name",
                text=self.text,
                at=whole,
                hint=f"write it in backquotes: `{whole.of(self.text)}`",
            )

    def close_bracket(self) -> None:
        """Take everything up to the bracket that closes the one just taken, inclusive."""
        opened = self.previous
        stack = [OPENING[opened.text]]
        while stack:
            token = self.advance()
            if token.kind == END:
                raise SyntaxProblem(
                    "this bracket is not closed", text=self.text, at=opened, hint=f"add {OPENING[opened.text]}"
                )
            if token.kind == SYMBOL and token.text in OPENING:
                stack.append(OPENING[token.text])
            elif token.kind == SYMBOL and token.text in CLOSING and token.text != stack.pop():
                raise SyntaxProblem(f"{token.text} closes nothing", text=self.text, at=token)

    def problem(self, message: str, *, also: tuple[str, ...] = (), known: tuple[str, ...] = ()) -> SyntaxProblem:
        token = self.current
        found = "the text ends" if token.kind == END else f"found {token.text}"
        hint = None
        candidates = [*known, *(word for word in also if len(word) > 2)]
        if token.kind == WORD and candidates:
            guess = nearest(token.text, candidates)
            hint = f"did you mean {guess}?" if guess else None
        start = token.start
        if token.kind == END:  # point at the last token, not past the text
            start = self.previous.end
        return SyntaxProblem(
            f"{message}, {found}", text=self.text, start=start, end=max(token.end, start + 1), hint=hint
        )
