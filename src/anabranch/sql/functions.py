"""The names of Spark's own functions, without asking Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from anabranch.sql.lexer import Token, tokenize


@lru_cache(maxsize=1)
def builtin() -> frozenset[str]:
    """What SHOW FUNCTIONS of Spark lists, operators included, in small letters."""
    return frozenset(Path(__file__).with_name("functions.txt").read_text(encoding="utf-8").split())


def calls(tokens: list[Token]) -> Iterator[tuple[int, Token]]:
    """Names that a bracket follows, and where they stand: calls, and words of the grammar that look like one."""
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
