"""ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from anabranch.ir.expr import Expr
from anabranch.ir.read import Reader
from anabranch.sql.lexer import Token
from anabranch.sql.syntax import Query


class Order:
    """The clauses after the body of a query, as tokens."""

    def __init__(self, query: Query | None) -> None:
        self.keys: list[Token] = []
        self.limit: list[Token] = []
        self.offset: list[Token] = []
        depth, current = 0, self.keys
        for token in query.order_tokens if query is not None else ():
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if depth == 0 and token.upper in ("ORDER", "LIMIT", "OFFSET"):
                current = {"ORDER": self.keys, "LIMIT": self.limit, "OFFSET": self.offset}[token.upper]
            elif not (current is self.keys and not current and token.upper == "BY"):
                current.append(token)

    def bounds(self, reader: Reader) -> tuple[Expr | None, Expr | None]:
        """LIMIT and OFFSET."""
        limit = [] if [token.upper for token in self.limit] == ["ALL"] else self.limit
        return reader.expr(limit) if limit else None, reader.expr(self.offset) if self.offset else None


def ordinal(expr: Expr, most: int) -> int | None:
    """ORDER BY 2: the 0-based position of the item."""
    if len(expr.parts) == 1 and isinstance(expr.parts[0], str) and expr.parts[0].isdecimal():
        at = int(expr.parts[0]) - 1
        return at if 0 <= at < most else None
    return None
