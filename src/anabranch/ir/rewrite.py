"""Replace expressions that are already computed by their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.ir.expr import Call, Expr, Part
from anabranch.ir.rel import Computed


class Rewrite:
    """Replaces what an input has computed, calls and grouping keys, by its columns."""

    def __init__(self, calls: Mapping[Call, Part] | None = None, keys: Sequence[Computed] = ()) -> None:
        self.calls = dict(calls or {})
        self.keys = sorted(((expr.normal, column) for column, expr in keys), key=lambda key: -len(key[0]))

    def also(self, calls: Mapping[Call, Part]) -> Rewrite:
        made = Rewrite({**self.calls, **calls})
        made.keys = self.keys
        return made

    def __call__(self, expr: Expr) -> Expr:
        def change(part: Part) -> Part:
            if not isinstance(part, Call):
                return part
            found = self.calls.get(part.normal)
            return found if found is not None else part.map(self)

        return self._keys(expr).map(change)

    def _keys(self, expr: Expr) -> Expr:
        normal = list(expr.normal)
        parts, spans = list(expr.parts), list(expr.spans or (None,) * len(expr.parts))
        for key, column in self.keys:
            index = 0
            while index + len(key) <= len(normal):
                if tuple(normal[index : index + len(key)]) == key:
                    normal[index : index + len(key)] = parts[index : index + len(key)] = [column]
                    spans[index : index + len(key)] = [spans[index]]
                index += 1
        return Expr(tuple(parts), expr.type, tuple(spans))
