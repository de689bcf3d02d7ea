"""Joins with versions, rewritten to joins that Spark knows: each version of a key gets the start of the next one.

    FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.item = q.item

is the plan of

    FROM trades t LEFT JOIN
      (SELECT q.*, LEAD(q.ts) OVER (PARTITION BY q.item ORDER BY q.ts) AS __until1 FROM quotes q) AS q
      ON t.item = q.item AND t.ts >= q.ts AND (q.__until1 IS NULL OR t.ts < q.__until1)

and so is `JOIN quotes FOR SYSTEM_TIME AS OF t.ts AS q ON ...`, where the event time of `quotes` replaces `q.ts`. Of
versions with the same time all but the last end at their start, so that one remains.

With TOLERANCE a version needs an end only if the next one begins within that time:

    CASE WHEN LEAD(q.ts) OVER (...) <= q.ts + INTERVAL 5 MINUTES THEN LEAD(q.ts) OVER (...) END AS __until1

so that a new version does not change those further away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.ir.expr import Call, Column, Expr, Over, SortKey, of_column
from anabranch.ir.logic import conjunction
from anabranch.ir.read import Reader, composed
from anabranch.ir.rel import Join, OverRows, Project, Rel
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import Versions

#: The prefix of the column with the start of the next version.
UNTIL = "__until"
#: The comparison with the next version for each comparison with a version.
_BEFORE_NEXT = {">=": "<", ">": "<=", "<=": ">", "<": ">="}


@dataclass(frozen=True)
class VersionsJoin:
    """A join with versions. `beside` reads the columns of the other relations, `own` those of the versions; `time` is
    the time of a version, `following` that of the next one, `until` its end, and `using` are the columns of USING."""

    versions: Versions
    beside: Reader
    own: Reader
    time: Expr
    following: Column
    until: Column
    using: Sequence[Column]

    @property
    def _backwards(self) -> bool:
        return self.versions.time.sign[0] == "<"

    def ended(self, rel: Rel) -> Rel:
        """The versions, each with the start of the next one."""
        keys = [self.own.expr(each.right) for each in self.versions.keys]
        partition = (*(key for key in keys if key.columns()), *map(of_column, self.using))
        over = Over(partition, (SortKey(self.time, "DESC" if self._backwards else ""),))
        lead = Call("lead", (self.time,), over=over, type=self.until.type, origin=self.versions.span)
        limit = self._limit()
        if limit is None:
            return OverRows(rel, ((self.until, lead),))
        text = f"CASE WHEN following {'>=' if self._backwards else '<='} last THEN following END"
        end = composed(text, {"following": of_column(self.following), "last": limit}).typed(self.until.type)
        items = (*((column, of_column(column)) for column in rel.columns), (self.until, end))
        return Project(OverRows(rel, ((self.following, lead),)), items)

    def _limit(self) -> Expr | None:
        """The latest time at which a version can be in force; a later start of the next one does not matter."""
        if self.versions.tolerance is not None:
            return self._far("-" if self._backwards else "+")
        left = normal_form(self.versions.time.left)
        same = [each for each in self.versions.bounds if normal_form(each.left) == left]
        return self.own.expr(same[0].right) if same else None

    def _far(self, sign: str) -> Expr:
        assert self.versions.tolerance is not None
        return composed(f"time {sign} far", {"time": self.time, "far": self.own.expr(self.versions.tolerance.tokens)})

    def on(self, join: Join) -> Join:
        """The join with the condition that the version is in force at the time of the row."""
        versions, match = self.versions, self.versions.match
        sign = versions.time.sign
        by = {"moment": self.beside.expr(versions.time.left), "time": self.time, "until": of_column(self.until)}
        found = [join.on] if join.on is not None else []
        if match is not None or not versions.time.right:
            found.append(composed(f"moment {sign} time", by))
        for each in versions.bounds:
            if match is not None and match.span.start <= each.span.start < match.span.end:
                sides = {"here": self.beside.expr(each.left), "there": self.own.expr(each.right)}
                found.append(composed(f"here {each.sign} there", sides))
        found.append(composed(f"(until IS NULL OR moment {_BEFORE_NEXT[sign]} until)", by))
        if versions.tolerance is not None:
            far, shift = ("<=", "+") if sign[0] == ">" else (">=", "-")
            found.append(composed(f"moment {far} last", {**by, "last": self._far(shift)}))
        return replace(join, on=conjunction(found), kind="inner" if join.kind == "cross" else join.kind)
