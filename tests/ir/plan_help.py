"""Plans of queries over two streams and a table, built without Spark: what Spark would say of types is `?`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import UnknownName
from anabranch.ir.build import Found, build
from anabranch.ir.fold import fold
from anabranch.ir.rel import Rel, Source
from anabranch.ir.select import SelectBlock
from anabranch.sql.calls import split_commas
from anabranch.sql.lexer import tokenize
from anabranch.sql.parser import parse
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Relation, SelectStatement
from anabranch.types import Field

COLUMNS = {
    "r": {"k": "string", "v": "int", "ts": "timestamp"},
    "s": {"k": "string", "n": "int", "d": "decimal(12,2)", "ts": "timestamp"},
    "b": {"k": "string", "m": "int", "p": "struct<x:int,y:int>", "xs": "array<int>", "ts": "timestamp"},
    "t": {"k": "string", "w": "bigint", "ts": "timestamp"},
    "names": {"k": "string", "label": "string"},
}
TIMES = {"s": ("ts",), "b": ("ts",), "r": ("ts",), "t": ("ts",)}


class Untyped:
    """A context whose Spark knows how many columns a query has, and nothing else."""

    def __init__(self) -> None:
        self.analyses: list[str] = []

    def find(self, relation: Relation) -> Found:
        name = str(relation.name).lower() if relation.name is not None else ""
        if name not in COLUMNS:
            raise UnknownName(f"there is no stream, view or table {name}")
        kind = "table" if name == "names" else "stream"
        fields = tuple(Field(*each) for each in COLUMNS[name].items())
        numbers = (Field("_row_num", "bigint"), Field("_arrival_ts", "timestamp"))
        return Found(Source(kind, name, name), fields, TIMES.get(name, ()), (*fields, *numbers))

    def analyze(self, text: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        self.analyses.append(text.text)
        tokens = tokenize(text.text)[:-1]
        if tokens[0].upper == "VALUES":
            row = tokens[2 : next(index for index, token in enumerate(tokens) if token.text == ")")]
            return [Field("?", "?") for _ in split_commas(row)]
        if text.text.startswith("SELECT * FROM"):
            return [Field("id", "?")]
        depth, end = 0, len(tokens)
        for index, token in enumerate(tokens):
            depth += (token.text == "(") - (token.text == ")")
            if (
                depth == 0
                and token.upper in ("FROM", "GROUP")
                and tokens[index - 1].upper not in ("DISTINCT", "WITHIN")
            ):
                end = index
                break
        return [Field(_name(text.text, piece), "?") for piece in split_commas(tokens[1:end])]


def _name(text: str, tokens: Sequence[object]) -> str:
    first, last = tokens[0], tokens[-1]
    shown = text[first.start : last.end]  # type: ignore[attr-defined]
    return shown.replace("`r0`.", "").replace("`r1`.", "").replace("`", "")


def plan(sql: str, context: Untyped | None = None) -> Rel:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    return build(statement.text, statement.query, context or Untyped())


def block(sql: str) -> SelectBlock:
    """The SELECT block that a query is."""
    found = fold(plan(sql))
    assert isinstance(found, SelectBlock)
    return found
