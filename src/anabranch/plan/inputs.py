"""The relations of a FROM clause for those who still look at its tokens: joins with tables that are asked by key, and
pairs of a join that are added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.sql.syntax import Query, Relation

INNER = ("", ",", "JOIN", "INNER JOIN", "CROSS JOIN")

Place = tuple[int, str]  # an input, and a column of it


@dataclass(frozen=True)
class Input:
    """A relation with its columns."""

    relation: Relation
    columns: dict[str, str]  # name in lower case -> type; those of its window included
    static: bool

    @property
    def exposed(self) -> str:
        return (self.relation.exposed or "").lower()


def place_of(name: Sequence[str], inputs: Sequence[Input]) -> Place | None:
    """The input that a column is of."""
    if len(name) == 1:
        owners = [index for index, each in enumerate(inputs) if name[0] in each.columns]
    else:
        owners = [index for index, each in enumerate(inputs) if each.exposed == name[0] and name[-1] in each.columns]
    return (owners[0], name[-1]) if len(owners) == 1 and len(name) <= 2 else None


def limited(owner: Query) -> bool:
    return any(token.upper in ("LIMIT", "OFFSET") for token in owner.order_tokens)
