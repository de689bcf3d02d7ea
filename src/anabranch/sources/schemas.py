"""What ON SCHEMA CHANGE is about: the columns that a source has by itself, beside those of its stream.

The columns that a user declared are a choice: what a source has besides is no change. Where columns were found out, any
difference is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.errors import SourceError
from anabranch.sources import inference
from anabranch.types import Field

HINT = "ON SCHEMA CHANGE IGNORE in CREATE STREAM goes on with the columns that the stream has, missing ones as NULL"
ADD = "; ON SCHEMA CHANGE ADD takes new ones, too"


@dataclass(frozen=True)
class SchemaChange:
    """How the columns of some file, table or message differ from those of the stream."""

    where: str
    new: tuple[Field, ...] = ()
    missing: tuple[Field, ...] = ()
    other: tuple[tuple[Field, str], ...] = ()  # columns of the stream, and the types that they have there

    def message(self) -> str:
        new = [f"{each.name} {each.type.upper()}".rstrip() for each in self.new]
        missing = [f"{each.name} {each.type.upper()}" for each in self.missing]
        other = [f"{each.name} is {type.upper()}, not {each.type.upper()}" for each, type in self.other]
        parts = [
            f"{word} {', '.join(each)}"
            for word, each in (("new:", new), ("missing:", missing), ("of another type:", other))
            if each
        ]
        return f"{self.where} has other columns than the stream; {'; '.join(parts)}"

    def error(self, *, can_add: bool = False) -> SourceError:
        return SourceError(self.message(), hint=HINT + (ADD if can_add else ""))


def compare(where: str, have: Sequence[Field], stream: Sequence[Field], *, inferred: bool) -> SchemaChange | None:
    """How columns differ from those of the stream. A type that is not told is an empty text, and fits any.

    >>> compare("f", [Field("a", "int"), Field("b", "")], [Field("a", "bigint")], inferred=True).message()
    'f has other columns than the stream; new: b'
    >>> compare("f", [Field("a", "int"), Field("b", "")], [Field("A", "string")], inferred=False)
    """
    known, there = ({each.name.lower(): each for each in fields} for fields in (stream, have))
    missing = tuple(field for name, field in known.items() if name not in there)
    new: tuple[Field, ...] = ()
    other: tuple[tuple[Field, str], ...] = ()
    if inferred:
        new = tuple(field for name, field in there.items() if name not in known)
        pairs = [(known[name], field.type) for name, field in there.items() if name in known]
        other = tuple((field, type) for field, type in pairs if type and not fits(type, field.type))
    return SchemaChange(where, new, missing, other) if new or missing or other else None


def fits(type: str, wanted: str) -> bool:
    """Whether every value of a type is one of another.

    >>> fits("int", "bigint"), fits("bigint", "int"), fits("date", "timestamp"), fits("int", "string")
    (True, False, True, False)
    """
    if type == "timestamp_ntz":  # one type of time at the door
        type = "timestamp"
    return type == wanted or (wanted != "string" and inference.wider(type, wanted) == wanted)
