"""Rows that are there from one moment to another, as SQL: what sets of rows and joins of them are at every moment.

A history is a query with two columns more: __from, the first moment at which a row is there, and __to, the first at
which it is there no more (NULL: still there). Moments are the places of rows in the order in which they came; what is
there before anything came, and what came before anybody asks, is there from the moment -1 on. Works on texts of
histories and the names of their columns; knows nothing of the query that they are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.sql.lexer import quote_name

FROM, TO = "__from", "__to"
#: Before anything came, and after everything.
BEFORE, NEVER = "CAST(-1 AS BIGINT)", "9223372036854775807"
OPEN = "CAST(NULL AS BIGINT)"
#: A condition that all rows of a history fulfil, and one for those that came or went after the moment -1. Where only
#: these matter, the others need not be looked at: of rows that are equal, it makes no difference which is which.
EVERY, MOVED = f"{FROM} >= -1", f"{FROM} >= 0 OR {TO} IS NOT NULL"
_LEFT, _RIGHT = "`__l`", "`__r`"
_PART = "named_struct('f', {}, 't', {})"
_NO_PARTS = "CAST(array() AS ARRAY<STRUCT<f: BIGINT, t: BIGINT>>)"


@dataclass(frozen=True)
class History:
    """The history of a query: its text, the columns of the query, and what is known of its rows."""

    text: str
    columns: tuple[str, ...]
    appends: bool  # nothing that is there ever goes
    tidy: bool  # nothing goes and comes again, unchanged, at the same moment
    different: bool = False  # no two rows are equal in all columns and moments


def names(columns: Sequence[str], of: str = "") -> str:
    """Columns as a list, qualified if need be."""
    return ", ".join(f"{of}{'.' if of else ''}{quote_name(column)}" for column in columns)


def until(to: str) -> str:
    """The end of a row that may still be there."""
    return f"coalesce({to}, {NEVER})"


def outside(parts: str) -> str:
    """The moments that none of some stretches of time covers, as stretches again; they are sorted, none touch."""
    free = f"concat(s.free, array({_PART.format('s.upto', 'x.f')}))"
    rest = f"concat(s.free, array({_PART.format('s.upto', NEVER)}))"
    return (
        f"aggregate(array_sort({parts}), named_struct('upto', {BEFORE}, 'free', {_NO_PARTS}),"
        f" (s, x) -> named_struct('upto', greatest(s.upto, x.t),"
        f" 'free', CASE WHEN x.f > s.upto THEN {free} ELSE s.free END),"
        f" s -> CASE WHEN s.upto < {NEVER} THEN {rest} ELSE s.free END)"
    )


def _part(of: str = "") -> str:
    before = f"{of}." if of else ""
    return _PART.format(f"{before}{FROM}", until(f"{before}{TO}"))


def _in_parts(source: str, columns: Sequence[str], parts: str, behind: str = "") -> str:
    """Each row of a relation once for each of its stretches of time."""
    return (
        f"SELECT {names(columns)}, __f AS {FROM}, nullif(__t, {NEVER}) AS {TO} FROM ({source}) AS `__g`"
        f" LATERAL VIEW inline({parts}) `__parts` AS __f, __t{behind}"
    )


# ---------------------------------------------------------------------------------------------- sets


def tidied(history: History, rows: str = "") -> History:
    """The history without rows that go and come again, unchanged, at the same moment.

    For each row it is counted how many of its kind come and go at each moment; what came first goes first. `rows` is a
    condition for rows to be looked at.
    """
    if history.tidy:
        return history
    columns = names(history.columns)
    moments = (
        f"SELECT {columns}, __at, CAST(sum(__more) AS INT) AS __more FROM ({history.text}) AS `__h`"
        f" LATERAL VIEW inline(array(named_struct('p', {FROM}, 'n', 1), named_struct('p', {TO}, 'n', -1))) `__both`"
        f" AS __at, __more WHERE __at IS NOT NULL{f' AND ({rows})' if rows else ''}"
        f" GROUP BY {columns}, __at HAVING sum(__more) <> 0"
    )
    lists = (
        f"SELECT {columns}, array_sort(flatten(collect_list(array_repeat(__at, greatest(__more, 0))))) AS __come,"
        f" array_sort(flatten(collect_list(array_repeat(__at, greatest(-__more, 0))))) AS __go"
        f" FROM ({moments}) AS `__m` GROUP BY {columns}"
    )
    text = (
        f"SELECT {columns}, __f AS {FROM}, get(__go, __i) AS {TO} FROM ({lists}) AS `__g`"
        f" LATERAL VIEW posexplode(__come) `__parts` AS __i, __f"
    )
    return replace(history, text=text, tidy=True)


def distinct(history: History) -> History:
    """Each row once, for as long as there is one of its kind."""
    columns = names(history.columns)
    source = f"FROM ({history.text}) AS `__h` GROUP BY {columns}"
    if history.appends:
        text = f"SELECT {columns}, min({FROM}) AS {FROM}, {OPEN} AS {TO} {source}"
        return History(text, history.columns, appends=True, tidy=True, different=True)
    there = f"SELECT {columns}, {outside(f'collect_list({_part()})')} AS __gaps {source}"
    text = _in_parts(there, history.columns, outside("__gaps"))
    return History(text, history.columns, appends=False, tidy=True, different=True)


def union_all(histories: Sequence[History]) -> History:
    """The rows of all, under the names of the first."""
    appends = all(each.appends for each in histories)
    text = " UNION ALL ".join(f"({each.text})" for each in histories)
    return History(text, histories[0].columns, appends, appends)


def compared(one: History, other: History, *, without: bool) -> History:
    """The different rows of one that are in the other too, or (`without`) that are not."""
    columns = names(one.columns)
    sides = union_all([_marked(one, "true"), _marked(other, "false")])
    if one.appends and other.appends:
        first = f"min(CASE WHEN __one THEN {FROM} END) AS __one, min(CASE WHEN NOT __one THEN {FROM} END) AS __other"
        met = f"FROM (SELECT {columns}, {first} FROM ({sides.text}) AS `__h` GROUP BY {columns}) AS `__g`"
        if without:
            text = f"SELECT {columns}, __one AS {FROM}, __other AS {TO} {met} WHERE __one < {until('__other')}"
            return History(text, one.columns, appends=False, tidy=True, different=True)
        there = "__one IS NOT NULL AND __other IS NOT NULL"
        text = f"SELECT {columns}, greatest(__one, __other) AS {FROM}, {OPEN} AS {TO} {met} WHERE {there}"
        return History(text, one.columns, appends=True, tidy=True, different=True)
    parts = [f"collect_list(CASE WHEN {side} THEN {_part()} END)" for side in ("__one", "NOT __one")]
    taken = parts[1] if without else outside(parts[1])
    met = f"SELECT {columns}, concat({outside(parts[0])}, {taken}) AS __gaps FROM ({sides.text}) AS `__h`"
    text = _in_parts(f"{met} GROUP BY {columns}", one.columns, outside("__gaps"))
    return History(text, one.columns, appends=False, tidy=True, different=True)


def _marked(history: History, mark: str) -> History:
    text = f"SELECT {names(history.columns)}, {mark} AS __one, {FROM}, {TO} FROM ({history.text}) AS `__h`"
    return replace(history, text=text, columns=(*history.columns, "__one"))


def compared_all(one: History, other: History, *, without: bool) -> History:
    """The rows of one as often as they are in both, or (`without`) as they are in it more often than in the other."""
    columns = names(one.columns)
    sides = union_all([_marked(one, "true"), _marked(other, "false")])
    cut = in_stretches(f"({sides.text}) AS `__h`", (*one.columns, "__one"), "`__h`", [*map(quote_name, one.columns)])
    counts = "count_if(__one) AS __ones, count_if(NOT __one) AS __others"
    counted = f"SELECT {columns}, __p, __q, {counts} FROM ({cut}) AS `__h` GROUP BY {columns}, __p, __q"
    times = "greatest(__ones - __others, 0)" if without else "least(__ones, __others)"
    text = (
        f"SELECT {columns}, __p AS {FROM}, __q AS {TO} FROM ({counted}) AS `__g`"
        f" LATERAL VIEW explode(array_repeat(1, CAST({times} AS INT))) `__times` AS __time"
    )
    return History(text, one.columns, appends=False, tidy=False)


# ---------------------------------------------------------------------------------------------- stretches


def in_stretches(rows: str, columns: Sequence[str], name: str, keys: Sequence[str], *, beyond: bool = False) -> str:
    """Each row of a relation once for each stretch of its own time, from __p to __q, in which no row of its keys comes
    or goes.

    With `beyond` it is there once more, behind its end: __here says whether it is in its own time.
    """
    shown = names(columns, name)
    own = f"{name}.{FROM}, {name}.{TO}"
    apart = f"PARTITION BY {', '.join(keys)}" if keys else ""
    ends = f"array_compact(flatten(collect_set(array({own})) OVER ({apart})))"
    known = f"SELECT {shown}, {own}, array_sort(array_distinct({ends})) AS __moments FROM {rows}"
    stretches = "transform(__moments, (p, i) -> named_struct('p', p, 'q', get(__moments, i + 1)))"
    upto = f"s.p {'<=' if beyond else '<'} {until(TO)}"
    return (
        f"SELECT {shown}, __p, __q, __p < {until(TO)} AS __here FROM ({known}) AS {name}"
        f" LATERAL VIEW inline(filter({stretches}, s -> {FROM} <= s.p AND {upto})) `__s` AS __p, __q"
    )


def first_rows(history: History, order: str, count: str, skip: str, columns: Sequence[str]) -> History:
    """The first rows in an order, so many behind those that are skipped, with some of their columns.

    Of rows that are always there, only the first can ever be among them.
    """
    name, own = "`__h`", f"{names(history.columns)}, {FROM}, {TO}"
    if count:
        always = f"({FROM} < 0 AND {TO} IS NULL)"
        number = f"row_number() OVER (PARTITION BY {always} ORDER BY {order}) AS __n"
        few = f"NOT {always} OR __n <= ({count}) + ({skip})"
        rows = f"(SELECT {own} FROM (SELECT {own}, {number} FROM ({history.text}) AS {name}) AS {name} WHERE {few})"
    else:
        rows = f"({history.text})"
    cut = in_stretches(f"{rows} AS {name}", history.columns, name, ())
    number = f"row_number() OVER (PARTITION BY __p, __q ORDER BY {order}) AS __n"
    taken = f"__n > ({skip})" + (f" AND __n <= ({count}) + ({skip})" if count else "")
    text = (
        f"SELECT {names(columns)}, __p AS {FROM}, __q AS {TO}"
        f" FROM (SELECT *, {number} FROM ({cut}) AS {name}) AS {name} WHERE {taken}"
    )
    return History(text, tuple(columns), appends=False, tidy=False)


# ---------------------------------------------------------------------------------------------- joins


def both(froms: Sequence[str], tos: Sequence[str]) -> tuple[str, str, str]:
    """From when to when rows are all there, and the condition that they ever are; of some it is known."""
    first = f"greatest({', '.join(froms)})" if len(froms) > 1 else (*froms, BEFORE)[0]
    last = f"least({', '.join(tos)})" if len(tos) > 1 else (*tos, OPEN)[0]
    return first, last, f"{first} < {until(last)}" if tos and len(froms) > 1 else ""


def pairs(one: History, other: History, condition: str) -> History:
    """The pairs of an inner join."""
    froms = [f"{side}.{FROM}" for side in (_LEFT, _RIGHT)]
    tos = [f"{side}.{TO}" for side, of in ((_LEFT, one), (_RIGHT, other)) if not of.appends]
    first, last, meet = both(froms, tos)
    shown = f"{names(one.columns, _LEFT)}, {names(other.columns, _RIGHT)}, {first} AS {FROM}, {last} AS {TO}"
    where = f" WHERE {meet}" if meet else ""
    text = f"SELECT {shown} FROM ({one.text}) AS {_LEFT} JOIN ({other.text}) AS {_RIGHT} ON {condition}{where}"
    return History(text, (*one.columns, *other.columns), not tos, not tos)


def alone(one: History, other: History, condition: str, *, shown: bool = False) -> History:
    """The rows of one, as long as they have no partner in the other; whose columns, if shown, are empty."""
    nothing = other.columns if shown else ()
    columns = (*one.columns, *nothing)
    if other.appends:
        last = f"least({TO}, __met)"
        source = _met(one, other, condition, f"min({_RIGHT}.{FROM})", nothing)
        text = f"SELECT {names(columns)}, {FROM}, {last} AS {TO} {source} WHERE {FROM} < {until(last)}"
    else:
        text = _with_partners(one, other, condition, "__met", nothing)
    return History(text, columns, appends=False, tidy=False)


def met(one: History, other: History, condition: str) -> History:
    """The rows of one, once each, as long as they have a partner in the other."""
    if other.appends:
        first = f"greatest({FROM}, __met)"
        source = _met(one, other, condition, f"min({_RIGHT}.{FROM})")
        where = f"WHERE __met IS NOT NULL AND {first} < {until(TO)}"
        text = f"SELECT {names(one.columns)}, {first} AS {FROM}, {TO} {source} {where}"
        return History(text, one.columns, one.appends, one.appends)
    text = _with_partners(one, other, condition, outside("__met"))
    return History(text, one.columns, appends=False, tidy=False)


def _with_partners(one: History, other: History, condition: str, away: str, nothing: Sequence[str] = ()) -> str:
    """The rows of one without the stretches of time that are made of those of their partners."""
    partner = f"collect_list(CASE WHEN {_RIGHT}.{FROM} IS NOT NULL THEN {_part(_RIGHT)} END)"
    own = f"array({_PART.format(BEFORE, FROM)}, {_PART.format(until(TO), NEVER)})"
    columns = (*one.columns, *nothing)
    source = f"SELECT {names(columns)}, {outside(f'concat({own}, {away})')} AS __left"
    return _in_parts(f"{source} {_met(one, other, condition, partner, nothing)}", columns, "__left")


def _met(one: History, other: History, condition: str, partners: str, nothing: Sequence[str] = ()) -> str:
    """The rows of one with what is made of their partners, as often as they are there, and with empty columns.

    Rows with equal columns and times have the same partners, and are looked at together.
    """
    own = f"{names(one.columns, _LEFT)}, {_LEFT}.{FROM}, {_LEFT}.{TO}"
    rows, times = one.text, ""
    if not one.different:
        columns = f"{names(one.columns)}, {FROM}, {TO}"
        rows = f"SELECT {columns}, count(*) AS __count FROM ({one.text}) AS `__h` GROUP BY {columns}"
        own += f", {_LEFT}.__count"
        times = " LATERAL VIEW explode(array_repeat(1, CAST(__count AS INT))) `__times` AS __time"
    # Of the types that the columns have.
    empty = [f"max(CASE WHEN false THEN {_RIGHT}.{quote_name(each)} END) AS {quote_name(each)}" for each in nothing]
    made = ", ".join([own, *empty, f"{partners} AS __met"])
    source = f"({rows}) AS {_LEFT} LEFT JOIN ({other.text}) AS {_RIGHT} ON {condition}"
    found = f"SELECT {made} FROM {source} GROUP BY {own}"
    return f"FROM ({found}) AS `__f`{times}"


def with_all(one: History, other: History, condition: str) -> History:
    """The rows of one with each of their partners in the other, and with nothing as long as they have none."""
    if one.appends and other.appends:
        return union_all([pairs(one, other, condition), alone(one, other, condition, shown=True)])
    return _brought_together(one, other, condition)


def _brought_together(one: History, other: History, condition: str) -> History:
    """The same where all that a row meets is brought together once: one outer join after the other reads neither of its
    sides twice, and so the first ones are not read over and over."""
    fields = [f"c{index}" for index in range(len(other.columns))]
    columns = [f"{_RIGHT}.{quote_name(column)}" for column in other.columns]
    partner = ", ".join(f"'{name}', {column}" for name, column in zip(fields, columns, strict=True))
    partner = f"named_struct({partner}, 'f', {_RIGHT}.{FROM}, 't', {until(f'{_RIGHT}.{TO}')})"
    partners = f"collect_list(CASE WHEN {_RIGHT}.{FROM} IS NOT NULL THEN {partner} END)"
    own = f"array({_PART.format(BEFORE, FROM)}, {_PART.format(until(TO), NEVER)})"
    kept = ", ".join(f"'{name}', x.{name}" for name in fields)
    nothing = ", ".join(f"'{name}', get(__met, -1).{name}" for name in fields)  # of the type of a partner's
    met = f"transform(filter(__met, x -> x.f < {until(TO)} AND {FROM} < x.t), x -> named_struct({kept}, "
    met += f"'f', greatest({FROM}, x.f), 't', least({until(TO)}, x.t)))"
    covered = f"transform(__met, x -> {_PART.format('x.f', 'x.t')})"
    gaps = f"transform({outside(f'concat({own}, {covered})')}, x -> named_struct({nothing}, 'f', x.f, 't', x.t))"
    source = f"SELECT {names(one.columns)}, concat({met}, {gaps}) AS __all {_met(one, other, condition, partners)}"
    all_columns = (*one.columns, *other.columns)
    text = (
        f"SELECT {names(all_columns)}, __f AS {FROM}, nullif(__t, {NEVER}) AS {TO} FROM ({source}) AS `__g`"
        f" LATERAL VIEW inline(__all) `__parts` AS {names(other.columns)}, __f, __t"
    )
    return History(text, all_columns, appends=False, tidy=False)


def in_order(history: History, columns: Sequence[str]) -> History:
    """The same rows with their columns in another order."""
    text = f"SELECT {names(columns)}, {FROM}, {TO} FROM ({history.text}) AS `__h`"
    return replace(history, text=text, columns=tuple(columns))
