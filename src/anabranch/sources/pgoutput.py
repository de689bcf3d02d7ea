"""Messages of pgoutput, the plugin with which Postgres tells changes, as plain values. Knows no database.

The format is that of protocol version 1: values are texts, a transaction comes whole, between Begin and Commit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

#: A value that a change left as it was, and that is not sent.
UNCHANGED = object()
Tuple: TypeAlias = "tuple[bytes | object | None, ...]"


@dataclass(frozen=True)
class Begin:
    xid: int


@dataclass(frozen=True)
class Commit:
    end: int  # the place in the log behind it


@dataclass(frozen=True)
class Relation:
    id: int
    schema: str
    name: str
    columns: tuple[tuple[str, int], ...]  # names, and the numbers of types


@dataclass(frozen=True)
class Change:
    """A row that came, went, or was another one before."""

    relation: int
    old: Tuple | None
    new: Tuple | None


@dataclass(frozen=True)
class Truncate:
    relations: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Change | Truncate


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1  # behind the letter of the message

    def number(self, format: str) -> int:
        found: int = struct.unpack_from(f">{format}", self.data, self.at)[0]
        self.at += struct.calcsize(format)
        return found

    def letter(self) -> str:
        return chr(self.number("B"))

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end].decode()
        self.at = end + 1
        return found

    def values(self) -> Tuple:
        found: list[bytes | object | None] = []
        for _ in range(self.number("H")):
            kind = self.letter()
            if kind == "t":
                length = self.number("I")
                found.append(self.data[self.at : self.at + length])
                self.at += length
            else:
                found.append(None if kind == "n" else UNCHANGED)
        return tuple(found)


def decode(data: bytes) -> Message | None:
    """A message; None for one that says nothing about rows.

    >>> decode(b"B" + (0).to_bytes(16, "big") + (7).to_bytes(4, "big"))
    Begin(xid=7)
    """
    read, kind = _Bytes(data), chr(data[0])
    if kind == "B":
        read.at += 16
        return Begin(read.number("I"))
    if kind == "C":
        read.at += 9
        return Commit(read.number("Q"))
    if kind == "R":
        id, schema, name = read.number("I"), read.text(), read.text()
        read.at += 1
        columns = []
        for _ in range(read.number("H")):
            read.at += 1
            columns.append((read.text(), read.number("I")))
            read.at += 4
        return Relation(id, schema, name, tuple(columns))
    if kind == "T":
        count = read.number("I")
        read.at += 1
        return Truncate(tuple(read.number("I") for _ in range(count)))
    if kind not in "IUD":
        return None
    relation, part = read.number("I"), read.letter()
    old: Tuple | None = None
    if part in "KO":
        old = read.values()
        part = read.letter() if kind == "U" else ""
    new = read.values() if part == "N" else None
    if old is not None and new is not None:
        new = tuple(before if now is UNCHANGED else now for before, now in zip(old, new, strict=True))
    return Change(relation, old, new)


def lsn_text(lsn: int) -> str:
    """A place in the log as Postgres writes it.

    >>> lsn_text(0x1_0000_00FF), lsn_number("1/FF") == 0x1_0000_00FF
    ('1/FF', True)
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def visible(xid: int, snapshot: str) -> bool:
    """Whether a transaction, by the lower half of its number, was over when a snapshot was taken.

    >>> [visible(xid, "100:105:101,103") for xid in (99, 100, 101, 104, 105)]
    [True, True, False, True, False]
    """
    low, high, running = snapshot.split(":")
    newest = int(high)
    whole = (newest & ~0xFFFFFFFF) | xid
    if whole - newest > 1 << 31:
        whole -= 1 << 32
    elif newest - whole > 1 << 31:
        whole += 1 << 32
    if whole < int(low):
        return True
    return whole < newest and whole not in {int(each) for each in running.split(",") if each}
