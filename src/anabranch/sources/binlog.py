"""What is in the binary log of a MySQL or MariaDB server: values of columns, and statements. Knows no connection.

Rows of the log must be those that a SELECT gives, value for value: a row that goes has to equal the one that came. So
only types are taken for which this holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

#: Types whose values in the log are known to be those of a SELECT; and the character sets of texts.
_PLAIN = (
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "date", "datetime", "timestamp",
    "year", "bit", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob",
)  # fmt: skip
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum")
_CHARACTER_SETS = ("utf8mb4", "utf8mb3", "utf8", "ascii", "latin1")
_EPOCH = datetime(1970, 1, 1)


class Unreadable(ValueError):
    """Something in the log that cannot be taken for what a SELECT gives."""


@dataclass(frozen=True)
class LoggedColumn:
    """A column as the server describes it."""

    name: str
    type: str
    described: str  # the whole type, with its length and flags
    character_set: str | None
    octets: int | None  # how long a value can be
    extra: str

    def refusal(self) -> str | None:
        """Why its values cannot be taken from the log; None if they can.

        >>> LoggedColumn("a", "time", "time(3)", None, None, "").refusal()
        'a is a time(3)'
        >>> LoggedColumn("a", "text", "text", "ucs2", 99, "").refusal()
        'a is a text of character set ucs2'
        """
        if self.type not in (*_PLAIN, *_TEXTS) or "COMPRESSED" in self.described or "mariadb-5.3" in self.described:
            return f"{self.name} is a {self.described}"
        allowed = _CHARACTER_SETS[:4] if self.type == "enum" else _CHARACTER_SETS
        if self.type in _TEXTS and self.character_set not in allowed:
            return f"{self.name} is a {self.type} of character set {self.character_set}"
        return f"{self.name} is computed when it is read" if "VIRTUAL" in self.extra.upper() else None

    def value(self, values: Mapping[str, Any], absent: Mapping[str, str]) -> Any:
        """Its value in a row of the log; `absent` says why values are None."""
        value = values[self.name]
        if value is None:
            if absent.get(self.name, "null") != "null":
                raise Unreadable(f"a value of {self.name} is {absent[self.name]}")
            return None
        if self.type == "binary":  # the log has no zeros at the end
            return value.ljust(self.octets or 0, b"\0")
        if self.type == "bit":
            return int(value, 2).to_bytes((len(value) + 7) // 8, "big")
        if self.type == "year":
            return 0 if value == 1900 else value
        if self.type == "timestamp":
            if value == _EPOCH:
                raise Unreadable(f"a value of {self.name} is 0000-00-00 00:00:00")
            return value if value > _EPOCH else value + timedelta(seconds=1 << 32)  # of 32 bits, after 2038
        return value


_TOKEN = re.compile(
    r"/\*.*?\*/|--[ \t][^\n]*|\#[^\n]*|'(?:[^'\\]|\\.|'')*'|"
    r'`(?P<ticks>(?:[^`]|``)+)`|"(?P<quotes>(?:[^"]|"")+)"|(?P<word>[\w$]+)|(?P<dot>\.)',
    re.DOTALL,
)
_EXECUTED = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_REWRITING = {"MODIFY", "CHANGE", "CONVERT", "RENAME", "EXCHANGE", "TRUNCATE", "DISCARD", "IMPORT"}
_WRITING = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL")


def tokens(statement: str) -> list[str]:
    """Words, names and dots of a statement, without comments and texts.

    >>> tokens("DROP TABLE /* old */ IF EXISTS `a b`.c -- 'x'")
    ['DROP', 'TABLE', 'IF', 'EXISTS', 'a b', '.', 'c']
    """
    found = []
    for match in _TOKEN.finditer(_EXECUTED.sub(r" \1 ", statement)):
        ticks, quotes, word, dot = match.group("ticks", "quotes", "word", "dot")
        if ticks or quotes:
            found.append(ticks.replace("``", "`") if ticks else quotes.replace('""', '"'))
        elif word or dot:
            found.append(word or dot)
    return found


def rewritten(statement: str, default: str, schema: str, table: str) -> str | None:
    """What a statement in the log does to the rows of a table that are there, unseen; None if it does nothing.

    >>> rewritten("TRUNCATE orders", "shop", "shop", "orders"), rewritten("TRUNCATE orders", "old", "shop", "orders")
    ('was truncated', None)
    >>> rewritten("ALTER TABLE shop.orders ADD COLUMN c int", "", "shop", "orders")
    >>> rewritten("ALTER TABLE shop.orders MODIFY n decimal(5,1)", "", "shop", "orders")
    'was altered in a way that can change its rows'
    """
    found = tokens(statement)
    words = [each.upper() for each in found]
    if not words or words[0] not in ("TRUNCATE", "DROP", "RENAME", "CREATE", "ALTER", *_WRITING):
        return None
    if words[:2] in (["DROP", "DATABASE"], ["DROP", "SCHEMA"]):
        return "was dropped" if schema.upper() in words[2:] else None
    if "TEMPORARY" in words[:3] or not _names(found, default, schema, table):
        return None
    if words[0] in _WRITING:
        return "was changed by a statement that is in the log as text, not as rows"
    if words[0] == "ALTER":
        drops = ["DROP", "PARTITION"] in [words[at : at + 2] for at in range(len(words))]
        return "was altered in a way that can change its rows" if drops or _REWRITING & set(words) else None
    if words[0] == "CREATE":
        return "was replaced" if words[1:4] == ["OR", "REPLACE", "TABLE"] else None
    if words[0] == "DROP":
        return "was dropped" if words[1] == "TABLE" else None
    return "was truncated" if words[0] == "TRUNCATE" else "was renamed"


def _names(found: list[str], default: str, schema: str, table: str) -> bool:
    for at, each in enumerate(found):
        if each.lower() == table.lower() and found[at + 1 : at + 2] != ["."]:
            qualifier = found[at - 2] if at > 1 and found[at - 1] == "." else default
            if qualifier.lower() == schema.lower():
                return True
    return False
