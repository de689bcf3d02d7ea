"""Whether two spellings of a query are one plan, whatever the relations in them are called."""

from __future__ import annotations

import re

from anabranch.ir.build import Found, build
from anabranch.ir.rel import Source
from anabranch.ir.show import show
from anabranch.sql.calls import chains
from anabranch.sql.columns import of_the_language
from anabranch.sql.lexer import tokenize
from anabranch.sql.parser import parse
from anabranch.sql.syntax import Query, Relation
from anabranch.types import Field
from ir.plan_help import Untyped

_ALWAYS = ("ts", "seq", "t")


class _AnyRelation(Untyped):
    """A context in which each relation has the columns that are asked of it: those with a name before them in all
    relations, others in the first."""

    def __init__(self, text: str) -> None:
        super().__init__()
        tokens = tokenize(text)[:-1]
        kinds = {token.start: token for token in tokens}
        named = list(chains(tokens))
        self.shared = {each.parts[1].lower() for each in named if len(each.parts) > 1}
        self.shared |= {name.lower() for name in re.findall(r"DESCRIPTOR\((\w+)\)", text)}
        plain = {
            each.parts[0].lower()
            for each in named
            if len(each.parts) == 1 and not of_the_language(kinds[each.span.start])
        }
        self.plain = plain - self.shared
        if "UNION" in text:
            self.shared |= self.plain
        self.first = ""

    def find(self, relation: Relation) -> Found:
        name = str(relation.name or relation.path).lower()
        self.first = self.first or name
        names = {*_ALWAYS, *self.shared, *(self.plain if name == self.first else ())}
        fields = tuple(Field(each, "?") for each in sorted(names) if not each.startswith(("window_", "__")))
        numbers = (Field("_row_num", "bigint"), Field("_arrival_ts", "timestamp"))
        return Found(Source("stream", name, name), fields, ("ts",), (*fields, *numbers))


def query_of(text: str) -> Query:
    (statement,) = parse(text)
    query = getattr(statement, "query", None)
    assert isinstance(query, Query), text
    return query


def plans(written: str, meant: str) -> tuple[str, str]:
    """The plans of two spellings, over the columns that the second one names."""
    found = [show(build(text, query_of(text), _AnyRelation(meant))) for text in (written, meant)]
    return found[0], found[1]
