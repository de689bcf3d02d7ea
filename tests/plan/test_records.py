"""Records of joins and unions that a trigger counts: what such queries are planned as, and which stay as they are."""

from __future__ import annotations

import pytest

from anabranch.plan.catalog import Catalog, Field, Stream, Table, Touch, View, from_json, to_json
from anabranch.plan.records import Counted, count_records
from anabranch.plan.views import Surroundings
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

S = (Field("id", "int"), Field("k", "string"), Field("v", "int"), Field("ts", "timestamp"))
T = (Field("id", "int"), Field("label", "string"))


def _stream(name: str) -> Stream:
    return Stream(name, name, "", S, "ts", None, None, None, None, {}, "all", False, 0)


def _view(name: str, query: str, **others: object) -> View:
    sql = f"CREATE VIEW {name} AS {query}"
    reads = {"@s:a": "a", "@s:b": "b"}
    return View(name, name, sql, "", S[1:3], (), None, reads, {}, {}, "read", **{"start": "beginning", **others})  # type: ignore[arg-type]


PAIRS = "SELECT a.k, b.v FROM a JOIN b ON a.id = b.id"
CATALOG = Catalog(
    {
        each.id: to_json(each)
        for each in (
            *map(_stream, "abc"),
            Table("t", "t", "", T, None, {}, None),
            _view("pairs", PAIRS),
            _view("newer", PAIRS, start="now"),
            _view("counts", "SELECT k, count(*) AS v FROM a GROUP BY k"),
        )
    }
)


def _analyze(text: str, _: object) -> list[Field]:
    """The columns of the queries here, and the one that is asked for of a stream and a table."""
    return list(S[:1] if "@stream" in text else S)


WORLD = Surroundings(_analyze, lambda _: 0, lambda _: False, lambda _: (0, 0), lambda id: id, lambda _: None)


def counted(text: str) -> Counted:
    (statement,) = parse(f"{text} TRIGGER COUNTING 3")
    assert isinstance(statement, SelectStatement)
    return count_records(statement.text, statement.query, CATALOG, WORLD, S)


def planned(text: str) -> tuple[str, tuple[str, ...]]:
    made = counted(text)
    return made.query.span.of(made.text).removesuffix(" TRIGGER COUNTING 3"), made.included


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            "SELECT a.k, id, sum(b.v) AS n FROM a JOIN b USING (id) WHERE a.v > 0 GROUP BY a.k, id HAVING n > id",
            "SELECT `__r0` AS `k`, `__r1` AS `id`, sum(`__r2`) AS n FROM (SELECT `a`.`k` AS `__r0`, `id` AS `__r1`,"
            " `b`.`v` AS `__r2`, `a`._row_num AS `__part0_a`, `b`._row_num AS `__part1_b` FROM a JOIN b USING (id)"
            " WHERE a.v > 0) AS `__records` GROUP BY `__r0`, `__r1` HAVING n > `__r1`",
        ),
        (
            "SELECT a.k, sum(b.v) AS v FROM a, b GROUP BY a.k ORDER BY v, a.k",
            "SELECT `__r0` AS `k`, sum(`__r1`) AS v FROM (SELECT `a`.`k` AS `__r0`, `b`.`v` AS `__r1`, `a`._row_num AS"
            " `__part0_a`, `b`._row_num AS `__part1_b` FROM a, b) AS `__records` GROUP BY `__r0` ORDER BY v, `__r0`",
        ),
        (
            "SELECT label, count(*) AS n FROM a JOIN t ON a.id = t.id GROUP BY label",
            "SELECT `__r0` AS `label`, count(*) AS n FROM (SELECT `t`.`label` AS `__r0`, `a`._row_num AS `__part0_a`"
            " FROM a JOIN t ON a.id = t.id) AS `__met` GROUP BY `__r0`",
        ),
        (
            "SELECT k, count(*) AS n FROM (SELECT * FROM a UNION ALL (SELECT x.* FROM b AS x)) AS u GROUP BY k",
            "SELECT k, count(*) AS n FROM (SELECT `a`.`id`, `a`.`k`, `a`.`v`, `a`.`ts`, `a`._row_num AS `__part0_a`,"
            " CAST(NULL AS BIGINT) AS `__part1_b` FROM a UNION ALL (SELECT `x`.`id`, `x`.`k`, `x`.`v`, `x`.`ts`,"
            " CAST(NULL AS BIGINT) AS `__part0_a`, `x`._row_num AS `__part1_b` FROM b AS x)) AS u GROUP BY k",
        ),
        (
            "WITH p AS (SELECT k FROM pairs), u AS (SELECT k FROM p UNION ALL SELECT k FROM c)"
            " SELECT u.k, count(*) AS n FROM u GROUP BY u.k",
            "SELECT u.k, count(*) AS n FROM (SELECT k, `__part0_a` AS"
            " `__part0_a`, `__part1_b` AS `__part1_b`, CAST(NULL AS BIGINT) AS `__part2_c` FROM (SELECT k, `__part0_a`"
            " AS `__part0_a`, `__part1_b` AS `__part1_b` FROM (SELECT a.k, b.v, `a`._row_num AS `__part0_a`,"
            " `b`._row_num AS `__part1_b` FROM a JOIN b ON a.id = b.id) AS `pairs`) AS `p` UNION ALL SELECT k,"
            " CAST(NULL AS BIGINT) AS `__part0_a`, CAST(NULL AS BIGINT) AS `__part1_b`, `c`._row_num AS `__part2_c`"
            " FROM c) AS `u` GROUP BY u.k",
        ),
        (
            "SELECT k, count(*) AS n FROM HOP(a, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) GROUP BY k",
            "SELECT `__r0` AS `k`, count(*) AS n FROM (SELECT `a`.`k` AS `__r0`, `a`._row_num AS `__part0_a` FROM"
            " HOP(a, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS)) AS `__records` GROUP BY `__r0`",
        ),
        (  # what is first tells the event time, and then all columns
            "SELECT first(t.label) AS l FROM a JOIN t ON a.id = t.id",
            "SELECT first(`__r5`) AS l FROM (SELECT `a`.`ts` AS `ts`, `a`.`id` AS `__r1`, `a`.`k` AS `__r2`,"
            " `a`.`v` AS `__r3`, `t`.`id` AS `__r4`, `t`.`label` AS `__r5`, `a`._row_num AS `__part0_a`"
            " FROM a JOIN t ON a.id = t.id) AS `__records`",
        ),
    ],
)  # fmt: skip
def test_records_are_rows_of_a_query_inside(written: str, read: str) -> None:
    assert planned(written)[0] == read


def test_views_whose_records_are_counted_are_part_of_the_query() -> None:
    query = "SELECT p.k, count(*) AS n FROM pairs AS p JOIN c ON p.k = c.k GROUP BY p.k"
    made, included = planned(query)
    assert f"({PAIRS.replace(' FROM', ', `a`._row_num AS `__part0_a`, `b`._row_num AS `__part1_b` FROM')}) AS p" in made
    assert included == ("pairs",)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, count(*) AS n FROM a GROUP BY k",  # its rows are counted as they are
        "SELECT window_end, count(*) AS n FROM HOP(a, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) GROUP BY window_end",
        "SELECT k, count(*) AS n FROM newer GROUP BY k",
        # Names that would come to mean something else.
        "SELECT a.k, sum(a.v) AS label FROM a JOIN t ON a.id = t.id GROUP BY a.k HAVING label > 1",
        "SELECT collect_list(struct(a.v, b.v)) AS l FROM a JOIN b ON a.id = b.id",
        "SELECT count(a) AS n FROM a JOIN b ON a.id = b.id",
    ],
)  # fmt: skip
def test_what_has_no_records_in_order_stays_as_it_is(text: str) -> None:
    assert planned(text) == (text, ())


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (
            "SELECT a.k, count(*) AS n FROM a LEFT JOIN b ON a.id = b.id GROUP BY a.k",
            "SELECT `__r0` AS `k`, count(*) AS n FROM (SELECT `a`.`k` AS `__r0` FROM a LEFT JOIN b ON a.id = b.id)"
            " AS `__records` GROUP BY `__r0`",
        ),
        (
            "SELECT a.k, count(*) AS n FROM a JOIN counts ON a.k = counts.k GROUP BY a.k",
            "SELECT `__r0` AS `k`, count(*) AS n FROM (SELECT `a`.`k` AS `__r0` FROM a JOIN counts ON a.k = counts.k)"
            " AS `__records` GROUP BY `__r0`",
        ),
        (
            "SELECT x, count(*) AS n FROM a LATERAL VIEW explode(array(v, id)) t AS x GROUP BY x",
            "SELECT `__r0` AS `x`, count(*) AS n FROM (SELECT `t`.`x` AS `__r0` FROM a"
            " LATERAL VIEW explode(array(v, id)) t AS x) AS `__records` GROUP BY `__r0`",
        ),
    ],
)
def test_rows_that_can_be_taken_back_are_changes_of_a_query_inside(text: str, inside: str) -> None:
    assert planned(text) == (inside, ())


def test_a_view_of_an_older_home_counts_run_by_run() -> None:
    """It told the history of its records, and took those up to a place in it: without one it takes all."""
    upto = "(SELECT max(__t.__upto) FROM `@takes` AS __t WHERE __t.__k0 <=> (k))"
    guard = f"coalesce(_place <= {upto}, true) AND (_left IS NULL OR coalesce(_left > {upto}, false))"
    touch = Touch("@v:v_1", "SELECT k AS `k0`, _place FROM `@v:v_1`")
    made = _view("v", "SELECT 1", keys=S[1:2], counted="@v:v_1", touches=(touch,))
    text = f"SELECT k, count(*) AS n FROM `@v:v_1` WHERE {guard} GROUP BY k"
    older = {"history": "SELECT 1", "told": {"@o:a": "a"}, "told_alike": True, "rounds": False}
    found = from_json({**to_json(made), "text": text, **older})
    assert isinstance(found, View) and found.counted is None
    assert not any(name in found.text for name in ("_place", "_left", "@takes"))
    assert found.touches[0].text == "SELECT k AS `k0` FROM `@v:v_1`"
    assert from_json(to_json(found)) == found
