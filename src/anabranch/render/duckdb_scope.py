"""What a text of Spark SQL names where: the relations of a SELECT with their columns. Whatever is not certain to mean
the same in DuckDB is declined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from anabranch.render.duckdb_kinds import Kind

if TYPE_CHECKING:
    from sqlglot import exp

#: The mark around the name of a placeholder in the output.
MARK = "\0"
#: The names, in our own Spark SQL, of the windows of a row and of its copies.
STARTS, COPIES = "__starts", "__copies"


class Declined(Exception):
    """An expression is left to Spark; the message is the reason."""


def decline(reason: str) -> NoReturn:
    raise Declined(reason)


@dataclass(frozen=True)
class Columns:
    """The columns of a relation, in order; `open`: it may have others too."""

    kinds: tuple[tuple[str, Kind], ...] = ()
    open: bool = False

    def find(self, name: str) -> list[Kind]:
        return [kind for each, kind in self.kinds if each == name]


@dataclass
class Scope:
    """The relations of a SELECT by name, the aliases of its items, and the scope of the enclosing SELECT."""

    sources: list[tuple[str, Columns]] = field(default_factory=list)
    aliases: dict[str, Kind] = field(default_factory=dict)
    outer: Scope | None = None
    ctes: dict[str, Columns] = field(default_factory=dict)
    start: str = ""  # the text of the start of a row's window, if windows are numbered

    def cte(self, name: str) -> Columns | None:
        if name in self.ctes:
            return self.ctes[name]
        return self.outer.cte(name) if self.outer is not None else None


@dataclass(frozen=True)
class Made:
    text: str
    columns: Columns


def nothing_but(node: exp.Expr, *known: str) -> None:
    """Decline a node with other arguments than these, which would be dropped."""
    for name, value in node.args.items():
        if value and name not in known:
            decline(f"{name.strip('_')} of {type(node).__name__}")


def called(node: exp.Expr) -> str:
    """The name of the function that a node calls."""
    from sqlglot import exp

    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
