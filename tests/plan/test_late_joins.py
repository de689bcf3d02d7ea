"""JOIN ... REFRESHABLE as a rewrite: the query over partials gives what the query over rows does, whatever the rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import NotSupported, SqlError, underline
from anabranch.plan.bind import Binder
from anabranch.plan.blocks import Analyze
from anabranch.plan.catalog import Catalog, Field, Stream, Table, to_json
from anabranch.plan.late_joins import Raised, raise_joins
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

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
    columns = ", ".join(f"{each.name} {_spelled(each.type)}" for each in fields)
    DUCK.execute(f'CREATE OR REPLACE TABLE "{name}" ({columns})')
    values = ["(" + ", ".join("NULL" if value is None else repr(value) for value in row) + ")" for row in rows]
    if values:
        DUCK.execute(f'INSERT INTO "{name}" VALUES {", ".join(values)}')


for _name, _fields in (("@s:s", S), ("@s:r", S), ("@t:t", T), ("@t:u", U)):
    _table(_name, _fields, [])


@cache
def _analyzed(text: str) -> list[Field]:
    made = DUCK.sql(text.replace("`", '"'))
    kinds = [str(kind) for kind in made.types]
    return [Field(n, _TYPES.get(kind, kind.lower())) for n, kind in zip(made.columns, kinds, strict=True)]


def analyze(text: str, schemas: Mapping[str, tuple[Field, ...]]) -> list[Field]:
    """The columns of a query, with types much like Spark's."""
    return _analyzed(text)


def numbers(text: str, schemas: Mapping[str, tuple[Field, ...]]) -> list[Field]:
    """For queries that DuckDB does not know: each column a number."""
    return [Field("x", "bigint")] * text.count(" AS `x")


def raised(sql: str, catalog: Catalog = CATALOG, types: Analyze = analyze) -> Raised:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    return raise_joins(statement.text, statement.query, catalog, types)


def answers(sql: str, rows: Mapping[str, list[tuple[Any, ...]]]) -> tuple[list[Any], list[Any]]:
    """What a query gives as it stands, and as it is planned."""
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    plain = sql
    for relation in statement.query.relations():
        if relation.refreshable is not None:
            plain = plain.replace("REFRESHABLE", "", 1)
    for name, fields in (("s", S), ("t", T), ("u", U)):
        _table(name, fields, rows[name])
    both = (plain, raised(sql).text.replace("`", '"'))
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
GROUPS = ("", "label", "s.k", "n % 2", "n % 2, label", "upper(s.k), y", "n, n + y", "coalesce(label, s.k)")


@settings(settings.get_profile("engine"), max_examples=40)
@given(data=st.data(), rows=ROWS)
def test_partials_joined_give_what_rows_joined_give(
    data: st.DataObject, rows: dict[str, list[tuple[Any, ...]]]
) -> None:
    calls = data.draw(
        st.lists(st.tuples(st.sampled_from(AGGREGATES), st.sampled_from(FILTERS)), min_size=1, max_size=4)
    )
    group = data.draw(st.sampled_from(GROUPS))
    items = [*([group] if group else []), *(call + condition for call, condition in calls)]
    sql = f"SELECT {', '.join(items)} FROM {data.draw(st.sampled_from(JOINS))}{data.draw(st.sampled_from(CONDITIONS))}"
    sql += f" GROUP BY {group}" if group else ""
    sql += data.draw(st.sampled_from(["", "", " HAVING count(*) > 1"])) if group else ""
    plain, planned = answers(sql, rows)
    assert planned == plain, raised(sql).text
    assert not raised(sql).reasons


@pytest.mark.parametrize(
    ("sql", "below"),
    [
        (
            "SELECT label, count(*), sum(n) FROM s JOIN t REFRESHABLE ON s.k = t.k WHERE n > 1 GROUP BY label",
            "(SELECT `k`, count(*) AS `__rows`, sum(n) AS `__p1` FROM s WHERE (n > 1) GROUP BY `k`) AS `s` JOIN t",
        ),
        (  # x * y is factored: x is no key
            "SELECT sum(n * y) AS m FROM s JOIN t REFRESHABLE USING (k)",
            "(SELECT `k`, sum(n) AS `__p0` FROM s GROUP BY `k`) AS `s` JOIN t",
        ),
        (  # x + y is not
            "SELECT sum(n + y) AS m FROM s JOIN t REFRESHABLE USING (k)",
            "(SELECT `k`, `n`, count(*) AS `__rows` FROM s GROUP BY `k`, `n`) AS `s` JOIN t",
        ),
        (  # what is grouped by is computed below
            "SELECT date_trunc('hour', ts) AS h, count(*) FROM s LEFT JOIN t REFRESHABLE ON s.k = t.k GROUP BY h",
            "(SELECT `k`, date_trunc('hour', ts) AS `__k0`, count(*) AS `__rows` FROM s"
            " GROUP BY `k`, date_trunc('hour', ts)) AS `s` LEFT JOIN t",
        ),
        (
            "SELECT window_start, window_end, label, max(y) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) x"
            " JOIN t REFRESHABLE ON x.k = t.k GROUP BY window_start, window_end, label",
            "(SELECT `k`, `window_start`, `window_end` FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) x"
            " GROUP BY `k`, `window_start`, `window_end`) AS `x` JOIN t",
        ),
        (
            "WITH w AS (SELECT * FROM s) SELECT count(*) FROM w JOIN t AS z REFRESHABLE ON w.k = z.k",
            "(SELECT `k`, count(*) AS `__rows` FROM w GROUP BY `k`) AS `w` JOIN t AS z",
        ),
    ],
)
def test_what_is_asked_of_the_stream(sql: str, below: str) -> None:
    found = raised(sql, types=numbers if "TUMBLE" in sql else analyze)
    assert below in " ".join(found.text.split())
    assert not found.reasons


@pytest.mark.parametrize(
    ("sql", "reason", "below"),
    [
        ("SELECT n, label FROM s JOIN t REFRESHABLE USING (k)", "it has no aggregate", "(SELECT `k`, `n` FROM s)"),
        (
            "SELECT label, median(n) FROM s JOIN t REFRESHABLE ON s.k = t.k GROUP BY label",
            "median(n) cannot be merged from partials",
            "(SELECT `k`, `n` FROM s)",
        ),
        ("SELECT count(*) FROM s RIGHT JOIN t REFRESHABLE ON s.k = t.k", "without a partner", "(SELECT `k` FROM s)"),
        (
            "SELECT count(*) FROM s JOIN (SELECT k FROM t) x REFRESHABLE ON s.k = x.k",
            "other than",
            "(SELECT `k` FROM s)",
        ),
        (
            "SELECT sum(wide) FROM s JOIN u REFRESHABLE ON s.k = u.name",
            "sum(wide) cannot be computed from rows with weights",
            "(SELECT `k` FROM s)",
        ),
        ("SELECT count(*) FROM s, u REFRESHABLE TRIGGER COUNTING 2", "its trigger counts rows", "(SELECT `k` FROM s)"),
        ("SELECT * FROM s CROSS JOIN u REFRESHABLE", "no aggregate", "(SELECT `k`, `n`, `d`, `ts` FROM s)"),
    ],
)
def test_rows_are_kept_where_partials_do_not_do(sql: str, reason: str, below: str) -> None:
    found = raised(sql)
    assert reason in found.reasons[0]
    assert f"{below} AS `s`" in found.text


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


def test_a_query_of_several_streams_meets_its_tables_anew_as_it_is() -> None:
    found = raised("SELECT count(*) FROM s JOIN r ON s.k = r.k JOIN t REFRESHABLE ON s.k = t.k")
    assert " ".join(found.text.split()) == "SELECT count(*) FROM s JOIN r ON s.k = r.k JOIN t ON s.k = t.k"


@pytest.mark.parametrize("sql", ["SELECT 1 FROM s JOIN r REFRESHABLE ON s.k = r.k", "SELECT 1 FROM s REFRESHABLE"])
def test_a_stream_needs_no_refresh(sql: str) -> None:
    with pytest.raises(NotSupported, match="is a stream, and its changes reach every answer anyway") as caught:
        raised(sql)
    assert caught.value.start == sql.index("REFRESHABLE")


def test_errors_are_shown_in_the_text_as_it_was_written() -> None:
    sql = "SELECT label, count(*) AS c FROM s JOIN t REFRESHABLE ON s.k = t.k WHERE rand() > 1 GROUP BY label"
    found = raised(sql)
    start = found.text.index("rand")
    error = SqlError("no", text=found.text, start=start, end=start + 4)
    assert error.text == sql and "rand" in underline(sql, error.start or 0, error.end)


def test_names_of_partials_leave_those_of_columns_alone() -> None:
    odd = Stream("s", "s", "", (Field("__rows", "int"), Field("__k0", "int")), None, None, None, None, None, {}, "all",
                 False, 0)  # fmt: skip
    sql = "SELECT count(*), sum(__k0) FROM s JOIN t REFRESHABLE ON __rows = y"
    text = raised(sql, CATALOG.with_objects([odd]), numbers).text
    assert "(SELECT `__rows`, count(*) AS `___rows`, sum(__k0) AS `___p1` FROM s" in text
