"""JOIN ... REFRESHABLE as a rule: the query over partials gives what the query over rows does, whatever the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import NotSupported
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream, Table
from anabranch.plan.lookup_nodes import refuse_refreshable
from anabranch.plan.rules.raise_joins import raise_joins
from anabranch.plan.stored import to_json
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement
from anabranch.types import Field
from plan.rule_help import Normalized, normalized

S = (Field("k", "string"), Field("n", "int"), Field("d", "decimal(18,2)"), Field("ts", "timestamp"))
T = (Field("k", "string"), Field("label", "string"), Field("y", "int"), Field("p", "decimal(10,2)"))
U = (Field("name", "string"), Field("region", "string"), Field("wide", "decimal(30,2)"))
_TYPES = {"VARCHAR": "string", "INTEGER": "int", "HUGEINT": "bigint", "TIMESTAMP": "timestamp"}


def _stream(name: str) -> Stream:
    return Stream(name, name, "", S, "ts", None, None, None, None, {}, "all", False, 0)


CATALOG = Catalog(
    {
        each.id: to_json(each)
        for each in (
            _stream("s"),
            _stream("r"),
            Table("t", "t", "", T, None, {}, None),
            Table("u", "u", "", U, None, {}, None),
        )
    }
)


def _spelled(type: str) -> str:
    return {"string": "VARCHAR", "int": "INTEGER"}.get(type, type.upper())


DUCK = duckdb.connect()


def _table(name: str, fields: tuple[Field, ...], rows: list[tuple[Any, ...]]) -> None:
    columns = ", ".join(f'"{each.name}" {_spelled(each.type)}' for each in fields)
    DUCK.execute(f'CREATE OR REPLACE TABLE "{name}" ({columns})')
    values = ["(" + ", ".join("NULL" if value is None else repr(value) for value in row) + ")" for row in rows]
    if values:
        DUCK.execute(f'INSERT INTO "{name}" VALUES {", ".join(values)}')


@cache
def _analyzed(text: str, schemas: tuple[tuple[str, tuple[Field, ...]], ...]) -> list[Field]:
    for name, fields in schemas:
        _table(name, fields, [])
    made = DUCK.sql(text.replace("`", '"'))
    kinds = [str(kind) for kind in made.types]
    return [Field(n, _TYPES.get(kind, kind.lower())) for n, kind in zip(made.columns, kinds, strict=True)]


def analyze(text: str, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
    """The columns of a query, with types much like Spark's."""
    return _analyzed(text, tuple((name, tuple(fields)) for name, fields in schemas.items()))


def raised(sql: str, catalog: Catalog = CATALOG) -> Normalized:
    return normalized(sql, catalog, analyze, (raise_joins,))


def answers(sql: str, rows: Mapping[str, list[tuple[Any, ...]]]) -> tuple[list[Any], list[Any]]:
    """What a query gives as it stands, and as it is planned."""
    for name, fields in (("s", S), ("t", T), ("u", U)):
        _table(name, fields, rows[name])
    both = (each.replace("REFRESHABLE", "").replace("`", '"') for each in (sql, raised(sql).text))
    first, second = (sorted(DUCK.sql(each).fetchall(), key=str) for each in both)
    return first, second


KEYS = st.sampled_from(["a", "b", "c", None])
NUMBERS = st.sampled_from([0, 1, 2, 3, -1, None])
CENTS = st.sampled_from(["0.25", "1.10", "-3.00", None])
ROWS = st.fixed_dictionaries(
    {
        "s": st.lists(st.tuples(KEYS, NUMBERS, CENTS, st.just("2026-01-01 08:00:00")), max_size=12),
        "t": st.lists(st.tuples(KEYS, st.sampled_from(["x", "y", None]), NUMBERS, CENTS), max_size=6),
        "u": st.lists(st.tuples(st.sampled_from(["x", "y"]), st.sampled_from(["r1", None]), CENTS), max_size=3),
    }
)
AGGREGATES = (
    "count(*)", "count(1)", "sum(2)", "count(n)", "sum(n)", "min(n)", "max(n)", "avg(n)", "sum(d)", "bit_xor(n)",
    "count(y)", "sum(y)", "min(y)", "max(y)", "avg(y)", "sum(p)", "max(label)",
    "sum(n * y)", "sum(y * n * 2)", "sum(n + y)", "sum(d * y)", "sum(p * d)", "sum(n * (1 - y))", "max(n * y)",
    "avg(n - y)", "count(n + y)", "count(DISTINCT n)", "count(DISTINCT y)", "sum(DISTINCT n * y)",
    "bool_or(n > y)", "bool_and(y > 0)",
)  # fmt: skip
FILTERS = ("", "", "", " FILTER (WHERE n > 0)", " FILTER (WHERE y > 0)", " FILTER (WHERE n > 0 AND y < 3)",
           " FILTER (WHERE n = 1 OR y = 1)", " FILTER (WHERE (n = 1 OR y = 1) AND n < 3)")  # fmt: skip
JOINS = (
    "s JOIN t REFRESHABLE ON s.k = t.k",
    "s LEFT JOIN t REFRESHABLE ON s.k = t.k",
    "s LEFT JOIN t REFRESHABLE ON s.k = t.k AND n > 0",
    "s LEFT JOIN t REFRESHABLE ON s.n <= t.y",
    "s AS s JOIN t AS t REFRESHABLE ON upper(s.k) = upper(t.k) AND n + 1 > y",
    "t REFRESHABLE JOIN s ON s.k = t.k",
    "t REFRESHABLE, s",
    "s CROSS JOIN t REFRESHABLE",
    "s LEFT JOIN t REFRESHABLE ON s.k = t.k OR n = y",
    "s LEFT JOIN t REFRESHABLE ON s.k = t.k AND (n > 0 OR y > 0)",
    "s LEFT JOIN t REFRESHABLE ON s.k = t.k LEFT JOIN u ON t.label = u.name AND s.n > 0",
)
CONDITIONS = ("", " WHERE n > 0", " WHERE label = 'x' AND n > 0", " WHERE n = y OR n = 2", " WHERE n BETWEEN 0 AND y",
              " WHERE s.k <> 'a' AND n IS NOT NULL", " WHERE (n = 1 OR y = 1) AND n < 3")  # fmt: skip
GROUPS = ((), ("label",), ("s.k",), ("n % 2",), ("n % 2", "label"), ("upper(s.k)", "y"), ("n", "n + y"),
          ("coalesce(label, s.k)",))  # fmt: skip


@settings(settings.get_profile("engine"), max_examples=40)
@given(data=st.data(), rows=ROWS)
def test_partials_joined_give_what_rows_joined_give(
    data: st.DataObject, rows: dict[str, list[tuple[Any, ...]]]
) -> None:
    calls = data.draw(
        st.lists(st.tuples(st.sampled_from(AGGREGATES), st.sampled_from(FILTERS)), min_size=1, max_size=4)
    )
    group = data.draw(st.sampled_from(GROUPS))
    items = [f"{item} AS c{i}" for i, item in enumerate([*group, *(call + condition for call, condition in calls)])]
    sql = f"SELECT {', '.join(items)} FROM {data.draw(st.sampled_from(JOINS))}{data.draw(st.sampled_from(CONDITIONS))}"
    sql += f" GROUP BY {', '.join(group)}" if group else ""
    sql += data.draw(st.sampled_from(["", "", " HAVING count(*) > 1"])) if group else ""
    plain, planned = answers(sql, rows)
    assert planned == plain, raised(sql).text
    assert not raised(sql).reasons


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT n, label FROM s JOIN t REFRESHABLE USING (k)", "it has no aggregate"),
        (
            "SELECT label, median(n) FROM s JOIN t REFRESHABLE ON s.k = t.k GROUP BY label",
            "median(n) cannot be merged from partials",
        ),
        ("SELECT count(*) FROM s RIGHT JOIN t REFRESHABLE ON s.k = t.k", "without a partner"),
        (
            "SELECT sum(wide) FROM s JOIN u REFRESHABLE ON s.k = u.name",
            "sum(wide) cannot be computed from rows with weights",
        ),
        ("SELECT count(*) FROM s JOIN t REFRESHABLE ON s.k = t.k AND s.k IN (SELECT name FROM u)", "over rows"),
    ],
)
def test_rows_are_kept_where_partials_do_not_do(sql: str, reason: str) -> None:
    (found,) = raised(sql).reasons
    assert reason in found


@pytest.mark.parametrize(
    ("sql", "aliases"),
    [
        ("SELECT 1 FROM s JOIN t REFRESHABLE ON s.k = t.k", [None]),
        ("SELECT 1 FROM s JOIN t REFRESHABLE x ON s.k = x.k", ["x"]),
        ("SELECT 1 FROM s JOIN t AS x REFRESHABLE ON s.k = x.k", ["x"]),
        ("SELECT 1 FROM s, t REFRESHABLE WHERE s.k = t.k", [None]),
        ("SELECT 1 FROM s JOIN t refreshable ON s.k = refreshable.k", []),
        ("SELECT 1 FROM s JOIN t AS refreshable ON true", []),
        ("SELECT 1 FROM s JOIN t refreshable(a, b, c, d) ON s.k = a", []),
        ("SELECT 1 FROM s JOIN t `REFRESHABLE` ON true", []),
    ],
)
def test_refreshable_is_a_word_and_can_be_an_alias(sql: str, aliases: list[str | None]) -> None:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    found = [each for each in statement.query.relations() if each.refreshable is not None]
    assert [each.alias for each in found] == aliases
    assert ("REFRESHABLE" in Binder(sql, CATALOG, statement.query).bind().text.text.upper()) == (not aliases)


@pytest.mark.parametrize("sql", ["SELECT 1 FROM s JOIN r REFRESHABLE ON s.k = r.k", "SELECT 1 FROM s REFRESHABLE"])
def test_a_stream_needs_no_refresh(sql: str) -> None:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    with pytest.raises(NotSupported, match="is a stream, and its changes reach all answers anyway") as caught:
        refuse_refreshable(sql, CATALOG, statement.query)
    assert caught.value.start == sql.index("REFRESHABLE")


def test_errors_are_shown_in_the_text_as_it_was_written() -> None:
    sql = "SELECT label, sum(n + y) AS c FROM s JOIN t REFRESHABLE ON s.k = t.k WHERE random() > y GROUP BY label"
    found = raised(sql)
    for word in ("random", "+"):
        start = found.text.index(word)
        assert found.written.original(start, start + len(word)).start == sql.index(word)


def test_names_of_partials_leave_those_of_columns_alone() -> None:
    odd = Stream("s", "s", "", (Field("__rows", "int"), Field("__p1", "int")), None, None, None, None, None, {}, "all",
                 False, 0)  # fmt: skip
    sql = "SELECT count(*), sum(__p1) FROM s JOIN t REFRESHABLE ON __rows = y"
    text = raised(sql, CATALOG.with_objects([odd])).text
    assert re.search(r"SELECT __rows, count\(\*\) AS `(__c\d+)`, sum\(__p1\) AS `__p1` FROM s", text), text
