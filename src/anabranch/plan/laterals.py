"""LATERAL VIEW, as far as its text tells: what it is called, and the columns that it has."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.plan.scope import Unfit
from anabranch.sql.calls import closing
from anabranch.sql.lexer import tokenize
from anabranch.sql.syntax import Relation, Select

#: The columns of functions that make rows, where nobody names them and they do not depend on types.
_COLUMNS = {"posexplode": ("pos", "col"), "posexplode_outer": ("pos", "col")}


@dataclass(frozen=True)
class LateralView:
    """LATERAL VIEW [OUTER] function(...) name AS columns."""

    name: str
    columns: tuple[str, ...]

    @property
    def certain(self) -> tuple[str, ...]:
        """Its columns, which must have names."""
        if not self.columns:
            raise Unfit("LATERAL VIEW without names for its columns")
        return self.columns


def _end_of(relation: Relation) -> int:
    """Where a relation ends in its FROM clause, with its name and what it is joined on."""
    spans = [relation.span, relation.alias_span, relation.version_span, relation.refreshable, relation.condition]
    return max(span.end for span in spans if span is not None)


def lateral_views(select: Select, text: str) -> list[LateralView]:
    """The lateral views behind the relations of a SELECT."""
    if not select.lateral or select.from_span is None or not select.relations:
        return []
    start = _end_of(select.relations[-1])
    tokens = tokenize(text[start : select.from_span.end])[:-1]
    found: list[LateralView] = []
    index = 0
    while index + 1 < len(tokens):
        if [tokens[index].upper, tokens[index + 1].upper] != ["LATERAL", "VIEW"]:
            raise Unfit("something behind FROM that is neither a relation nor a LATERAL VIEW")
        index += 2 + (tokens[index + 2].upper == "OUTER")
        opening = next(i for i in range(index, len(tokens)) if tokens[i].text == "(")
        end = closing(tokens, opening)
        following = next((i for i in range(end + 1, len(tokens)) if tokens[i].upper == "LATERAL"), len(tokens))
        named = [token.name for token in tokens[end + 1 : following] if token.is_name]
        if len(named) > 1 and tokens[end + 2].upper == "AS":
            named = [named[0], *named[2:]]
        if not named:
            raise Unfit("LATERAL VIEW without a name")
        columns = tuple(named[1:]) or _COLUMNS.get(tokens[opening - 1].text.lower(), ())
        found.append(LateralView(named[0], columns))
        index = following
    return found
