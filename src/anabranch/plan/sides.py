"""The relations of a SELECT whose rows are made one relation, and what its names mean there.

`a.k` is `__0_k` among the columns of several relations: the column k of the first one. Where that could be something
else, there is no such relation (`Unfit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.plan.grouped import BY_ORDER
from anabranch.plan.intervals import History
from anabranch.plan.scope import Unfit
from anabranch.sql.calls import aggregate_calls
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.lexer import Span, Token, quote_name
from anabranch.sql.splice import Edit


@dataclass(frozen=True)
class Side:
    """A relation whose columns can be named, and its place among those of its SELECT."""

    name: str
    columns: tuple[str, ...]
    place: int

    def find(self, name: str) -> str | None:
        """What one of its columns is called among those of several relations."""
        found = (column for column in self.columns if column.lower() == name)
        return next((f"__{self.place}_{column}" for column in found), None)

    @property
    def joined(self) -> tuple[str, ...]:
        """What its columns are called there."""
        return tuple(f"__{self.place}_{column}" for column in self.columns)

    @property
    def items(self) -> list[tuple[str, str]]:
        """Its columns with what they are called there."""
        name = quote_name(self.name)
        return [(f"{name}.{quote_name(own)}", there) for own, there in zip(self.columns, self.joined, strict=True)]


@dataclass
class Rows:
    """The rows of the FROM and WHERE clauses of a SELECT as one relation, and what its names mean there."""

    history: History
    name: str
    sides: list[Side]
    joined: bool  # columns are called after the place of their relation
    using: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> set[str]:
        """The names of the columns that it has, as far as they stand alone."""
        return {column.lower() for side in self.sides for column in side.columns}

    def edits(self, tokens: Sequence[Token]) -> Iterator[Edit]:
        """What has the names in an expression mean the columns of several relations."""
        if not self.joined:
            return
        # Its fields are called like what is in them; nobody sees those of an order.
        orders = [call.arguments[1] for call in aggregate_calls(tokens) if call.name in BY_ORDER and call.arguments[1:]]
        if any(token.upper == "STRUCT" and not any(token in order for order in orders) for token in tokens):
            raise Unfit("STRUCT beside an aggregate or an outer join")
        places = {token.start: index for index, token in enumerate(tokens)}
        for chain in names_in(tokens):
            parts = [part.lower() for part in chain.parts]
            index = places[chain.span.start]
            named = [side for side in self.sides if side.name.lower() == parts[0]]
            if named:
                found = named[0].find(parts[1]) if len(parts) > 1 else None
                if found is None:
                    raise Unfit(f"the name {'.'.join(chain.parts)}, which is no column")
                yield Edit(Span(tokens[index].start, tokens[index + 2].end), quote_name(found))
                continue
            owners = [found for side in self.sides if (found := side.find(parts[0])) is not None]
            if not owners:
                if len(parts) > 1:
                    raise Unfit(f"the name {'.'.join(chain.parts)}, which is no column")
                continue  # a word of the language, or a name that the SELECT list gives
            if of_the_language(tokens[index]):
                raise Unfit(f"the name {tokens[index].text}, which may be a word of the language")
            if len(owners) > 1 and parts[0] not in self.using:
                raise Unfit(f"the name {tokens[index].text}, which several relations have")
            yield Edit(tokens[index].span, self.using.get(parts[0]) or quote_name(owners[0]))
