"""The names of Spark's functions, from a list: no Spark needed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from anabranch.sql.lexer import Token, tokenize


@dataclass(frozen=True)
class Counts:
    """The number of arguments that a function takes; `most` is None if it is unlimited."""

    least: int
    most: int | None

    def holds(self, given: int) -> bool:
        return self.least <= given and (self.most is None or given <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {_arguments(self.least)}"
        if self.least == self.most:
            return _arguments(self.most) if self.most else "no argument"
        return f"{self.least} to {_arguments(self.most)}"


def _arguments(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


@lru_cache(maxsize=1)
def _listed() -> dict[str, Counts | None]:
    """A line for each function: its name, and its minimum and maximum of arguments, if Spark documents them."""
    found: dict[str, Counts | None] = {}
    for line in Path(__file__).with_name("functions.txt").read_text(encoding="utf-8").splitlines():
        name, *counts = line.split()
        found[name] = Counts(int(counts[0]), None if counts[1] == "-" else int(counts[1])) if counts else None
    return found


def builtin() -> Collection[str]:
    """The names that SHOW FUNCTIONS lists in Spark, including operators, in lower case."""
    return _listed().keys()


def counts_of(name: str) -> Counts | None:
    """The number of arguments of a function of Spark; None if unknown."""
    return _listed().get(name)


def calls(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Names before a bracket, with their indexes: calls, and keywords that look like one."""
    for index, (token, behind) in enumerate(itertools.pairwise(tokens)):
        before = tokens[index - 1].text if index else ""
        if behind.text == "(" and token.is_name and before != ".":
            yield index, token


def called(text: str, name: str) -> bool:
    """Whether a text calls a function of this name.

    >>> called("SELECT F (x) FROM t", "f"), called("SELECT 'f(x)', f FROM t", "f")
    (True, False)
    """
    return any(token.name.lower() == name.lower() for _, token in calls(tokenize(text)))
