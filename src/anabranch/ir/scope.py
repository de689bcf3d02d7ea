"""Name resolution inside one SELECT block: columns of its relations, its own aliases, columns of enclosing queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.errors import SqlError, UnknownName, did_you_mean
from anabranch.ir.expr import Column, Expr
from anabranch.sql.text import Span


@dataclass(frozen=True)
class Exposed:
    """A relation of FROM under its qualifier. Hidden columns are found by name, but not in `*`."""

    qualifier: str | None
    columns: tuple[Column, ...]
    hidden: tuple[Column, ...] = ()
    times: tuple[Column, ...] = ()  # those that are event times

    def named(self, name: str) -> list[Column]:
        return [column for column in (*self.columns, *self.hidden) if column.name.lower() == name.lower()]


@dataclass(frozen=True)
class Scope:
    relations: tuple[Exposed, ...] = ()
    #: The columns of `*`, in order: those of USING once, and first.
    star: tuple[Column, ...] = ()
    #: Unqualified names that a USING join has merged into one column.
    merged: Mapping[str, Column] = field(default_factory=dict)
    outer: Scope | None = None

    def find(self, text: str, parts: Sequence[str], span: Span) -> tuple[Column, int] | None:
        """The column that a dotted name starts with, and how many of its parts name it; None if there is none."""
        found = self._qualified(parts) or self._plain(parts)
        if found is not None and len(found[0]) > 1:
            owners = ", ".join(f"{each.qualifier or '?'}.{parts[0]}" for each in self.relations if each.named(parts[0]))
            raise SqlError(f"{'.'.join(parts)} is ambiguous", text=text, at=span, hint=f"qualify it: {owners}")
        if found is not None:
            return found[0][0], found[1]
        return self.outer.find(text, parts, span) if self.outer is not None else None

    def _qualified(self, parts: Sequence[str]) -> tuple[list[Column], int] | None:
        for at in (0, 1):  # sys.runs.version
            if len(parts) > at + 1:
                here = [each for each in self.relations if (each.qualifier or "").lower() == parts[at].lower()]
                columns = [column for each in here for column in each.named(parts[at + 1])]
                if columns:
                    return columns, at + 2
        return None

    def _plain(self, parts: Sequence[str]) -> tuple[list[Column], int] | None:
        merged = self.merged.get(parts[0].lower())
        columns = [merged] if merged is not None else [c for each in self.relations for c in each.named(parts[0])]
        return (columns, 1) if columns else None

    def starred(self, qualifier: str | None) -> list[Column] | None:
        """The columns of `*` or `t.*`; None if there is no such relation."""
        if qualifier is None:
            return list(self.star)
        here = [each for each in self.relations if (each.qualifier or "").lower() == qualifier.lower()]
        return [column for each in here for column in each.columns] if here else None

    def event_time(self, qualifier: str | None) -> Column | None:
        """The event time of a relation; None if it has none, or several."""
        here = [each for each in self.relations if qualifier is None or (each.qualifier or "").lower() == qualifier]
        times = [column for each in here for column in each.times]
        return times[0] if len(times) == 1 else None

    def names(self) -> Iterator[str]:
        for each in self.relations:
            yield from (column.name for column in each.columns)
        if self.outer is not None:
            yield from self.outer.names()

    def unknown(self, text: str, parts: Sequence[str], span: Span, more: Sequence[str] = ()) -> UnknownName:
        qualifiers = {(each.qualifier or "").lower() for each in self.relations}
        name = ".".join(parts)
        known = [*self.names(), *more]
        if len(parts) > 1 and parts[0].lower() in qualifiers:
            columns = self.starred(parts[0]) or []
            known = [f"{parts[0]}.{column.name}" for column in columns]
        elif len(parts) > 1:
            message = f"there is no column or relation {parts[0]} here"
            hint = did_you_mean(parts[0], [*known, *(each.qualifier or "" for each in self.relations)])
            return UnknownName(message, text=text, at=span, hint=hint)
        hint = did_you_mean(name, known)
        return UnknownName(f"there is no column {name}", text=text, at=span, hint=hint)


#: Aliases of a SELECT list, with their expressions.
Aliases = Mapping[str, Expr]
