"""Names and ids of what a home defines: whether a name is free, what it means, and ids that were never used."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from anabranch.engine.core import Core
from anabranch.errors import SqlError, UnknownName, did_you_mean
from anabranch.ir.show import show
from anabranch.plan.definitions import Sink
from anabranch.plan.relation_builder import builder
from anabranch.plan.view import View
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateView, Drop, Name, Statement, Subscribe

RESERVED = ("sys", "stdin")


class Names:
    """The names and ids of one home."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.given: set[str] = set()

    def free(self, statement: Any, name: Name, kind: str, again_is_fine: bool) -> str | None:
        """The name, if it is free; None if an identical object has it."""
        if len(name.parts) > 1 or name.last.lower() in RESERVED or name.last.startswith("_"):
            raise SqlError(
                f"{name} cannot be the name of a {kind}",
                text=statement.text,
                at=name.span,
                hint="use one plain word without a leading underscore",
            )
        found = self.core.catalog().find_any(name.last)
        same = found is not None and found.kind == kind
        if found is None or (statement.or_replace and same and kind != "sink"):
            return name.last
        if statement.if_not_exists and same:
            return None
        if again_is_fine and self._is_same(found.sql, statement):
            return None
        hint = f"DROP {found.kind.upper()} {found.name} first, or use CREATE OR REPLACE"
        if not same or kind == "sink":  # replacing must not turn a view into a stream whose rows are gone
            hint = f"DROP {found.kind.upper()} {found.name} first, or take another name"
        elif again_is_fine:
            hint = f"its definition differs from the one in the home; CREATE OR REPLACE {kind.upper()} recreates it"
            start = found.beginning.start if isinstance(found, View) else None
            if isinstance(statement, CreateView) and str(statement.start) == start:
                query = statement.query.span.of(statement.text)
                hint = f"its query differs from the one in the home; to change it: ALTER VIEW {found.name} AS {query}"
        raise SqlError(f"{found.kind} {found.name} already exists", text=statement.text, at=name.span, hint=hint)

    def find(self, statement: Statement, name: Name, kind: type[Any]) -> Any:
        found = self.core.catalog().find_any(name.last) if len(name.parts) == 1 else None
        if not isinstance(found, kind):
            raise self.no_such(statement, name, kind.kind, found)
        return found

    def no_such(self, statement: Statement, name: Name, kind: str, found: Any) -> SqlError:
        catalog = self.core.catalog()
        known = [*catalog.names(), *(sink.name for sink in catalog.of(Sink))]
        names = [each for each in known if (o := catalog.find_any(each)) is not None and o.kind == kind]
        message = f"there is no {kind} {name}" if found is None else f"{name} is a {found.kind}, not a {kind}"
        hint = did_you_mean(str(name), names)
        if found is not None:
            hint = f"SELECT * FROM {found.name} EMIT CHANGES follows it" if isinstance(statement, Subscribe) else None
            hint = f"DROP {found.kind.upper()} {found.name}" if isinstance(statement, Drop) else hint
        return UnknownName(message, text=statement.text, at=name.span, hint=hint)

    def new_id(self, name: str, given: set[str] | None = None) -> str:
        """A readable id that was never used in this home, nor is in `given`."""
        given = self.given if given is None else given
        base = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:40] or "x"
        snapshot = self.core.snapshot()
        taken = {*snapshot.catalog, *snapshot.files, *snapshot.removed, *given}
        number = 1
        id = base
        while id in taken or f"{id}.rows" in taken or f"{id}.changes" in taken or f"{id}.pending" in taken:
            number += 1
            id = f"{base}_{number}"
        given.add(id)
        return id

    def _is_same(self, sql: str, statement: Statement) -> bool:
        """Whether a statement equals the one that created an object. Older homes stored NET, windows of windows and the
        syntax of other systems rewritten as queries: these are compared as relations."""
        (made,) = parse(sql)
        if made.normal == statement.normal:
            return True
        if not isinstance(made, CreateView) or not isinstance(statement, CreateView):
            return False
        respelt = any(each.implied or each.window for each, _ in statement.query.selects())
        if made.start != statement.start or not (respelt or statement.query.spelled):
            return False
        emissions = [[replace(each, span=made.span) for each in one.query.emissions()] for one in (made, statement)]
        if emissions[0] != emissions[1]:
            return False
        catalog = self.core.catalog()

        def shown(each: CreateView) -> str:
            analyze = self.core.frames.analyze
            return show(builder(each.text, each.query, catalog, analyze).query(each.query, None, {}))

        return shown(made) == shown(statement)


def same_text(one: str, other: str) -> bool:
    """Whether two statements differ only in blanks, comments and the case of words."""
    return parse(one)[0].normal == parse(other)[0].normal
