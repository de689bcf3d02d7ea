"""What EXPLAIN, SHOW and DESCRIBE show of a home, as tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.engine import node_statistics, queries, system
from anabranch.engine.core import Core
from anabranch.engine.names import Names
from anabranch.engine.planning import context_of_explain
from anabranch.errors import UnknownName, did_you_mean
from anabranch.plan import explain as explaining
from anabranch.plan import render
from anabranch.plan.as_sql import create_statement
from anabranch.plan.bind import Binder
from anabranch.plan.definitions import Function, Sink, Stream, Table
from anabranch.plan.describe import closing_words
from anabranch.plan.view import View
from anabranch.sources import registry
from anabranch.sql.functions import builtin
from anabranch.sql.own_aggregates import OWN_AGGREGATES
from anabranch.sql.syntax import Describe, Explain, Show, ShowCreate

if TYPE_CHECKING:
    import pyarrow as pa

#: What DESCRIBE shows of each column.
COLUMNS = ("column", "type", "note")
_CLASSES: dict[str, Any] = {"stream": Stream, "table": Table, "view": View, "sink": Sink}


def explained(names: Names, statement: Explain) -> pa.Table:
    core = names.core
    snapshot = core.snapshot()
    catalog = core.catalog(snapshot)
    planning = context_of_explain(names)
    named = catalog.find(statement.view.last) if statement.view and len(statement.view.parts) == 1 else None
    if statement.format == "rules":
        return _lines("plan", explaining.explain_rules(statement.text, statement.query, catalog, planning))
    if isinstance(named, View):
        explanation = explaining.explain_view(named, catalog, planning)
    elif statement.analyze:
        assert statement.view is not None
        raise names.no_such(statement, statement.view, "view", named)
    else:
        bound = Binder(statement.text, catalog, statement.query).bind()
        fields = tuple(queries.analyze(core, bound, catalog, statement.text))
        explanation = explaining.explain_query(statement.text, statement.query, catalog, planning, fields)
        outside = queries.pushed_down_queries(core, bound, snapshot, statement.text)
        explanation = replace(explanation, outside=tuple(outside))
    counted = node_statistics.of_nodes(core, explanation.nodes, snapshot) if statement.analyze else None
    return _lines("plan", render.rendered(explanation, statement.format, counted))


def shown(core: Core, statement: Show) -> pa.Table:
    if statement.what == "sinks":
        return _sinks(core)
    if statement.what == "functions":
        return _functions(core, statement.like)
    if statement.what == "sources":
        return _sources()
    catalog = core.catalog()
    kind = _CLASSES.get(statement.what.removesuffix("s"), Stream | Table | View)
    rows = [
        (each.name, each.kind, ", ".join(f"{f.name} {f.type}" for f in each.fields))
        for each in sorted(catalog.objects.values(), key=lambda o: getattr(o, "name", ""))
        if isinstance(each, Stream | Table | View) and isinstance(each, kind) and not each.name.startswith("_")
    ]
    return _texts(("name", "kind", "columns"), rows)


def statement_of(names: Names, statement: ShowCreate) -> pa.Table:
    """The statement that makes an object as it is."""
    found = names.find(statement, statement.target, _CLASSES[statement.kind])
    return _lines("statement", [create_statement(found)])


def described(core: Core, statement: Describe) -> pa.Table:
    """The columns of a stream, view or table."""
    catalog = core.catalog()
    found = catalog.find(statement.target.last)
    if found is None:
        raise UnknownName(
            f"there is no stream, view or table {statement.target}",
            text=statement.text,
            at=statement.target.span,
            hint=did_you_mean(str(statement.target), catalog.names()),
        )
    notes = {found.time: "event time"} if isinstance(found, Stream) and found.time is not None else {}
    if isinstance(found, View) and found.emission.budget is not None:
        notes = dict.fromkeys(list(found.progress.times)[-1:], closing_words(found))
    rows = [(field.name, field.type, notes.get(field.name, "")) for field in found.fields]
    return _texts(COLUMNS, rows)


def _functions(core: Core, like: str | None) -> pa.Table:
    """The home's own, then Spark's. In a pattern, * and % stand for any letters and | for "or"."""
    own = sorted(core.catalog().of(Function), key=lambda each: each.name)
    rows = [(each.name, each.reference, each.returns or "") for each in own]
    rows += [(name, "", "") for name in sorted({*builtin(), *OWN_AGGREGATES})]
    if like is not None:
        words = [re.escape(word).replace(r"\*", ".*").replace("%", ".*") for word in like.split("|")]
        pattern = re.compile("|".join(words), re.IGNORECASE)
        rows = [row for row in rows if pattern.fullmatch(row[0])]
    return _texts(("name", "reference", "returns"), rows)


def _sinks(core: Core) -> pa.Table:
    import pyarrow as pa

    rows = system.sinks(core, core.snapshot())
    columns = {
        field.name: pa.array([row[at] for row in rows], pa.int64() if field.type == "bigint" else pa.string())
        for at, field in enumerate(system.FIELDS["sinks"])
    }
    return pa.table(columns)


def _sources() -> pa.Table:
    import pyarrow as pa

    rows = [
        {
            "name": kind.name,
            "streams": kind.stream is not None,
            "tables": kind.table is not None or kind.files,
            "options": ", ".join(option.name for option in kind.options),
            "needs": f"pip install 'anabranch[{kind.extra}]'" if kind.missing() and kind.extra else "",
            "about": kind.doc,
        }
        for kind in registry.kinds().values()
    ]
    return pa.Table.from_pylist(rows)


def _texts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})


def _lines(name: str, lines: Sequence[str]) -> pa.Table:
    return _texts([name], [[line] for line in lines])
