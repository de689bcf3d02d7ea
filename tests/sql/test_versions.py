"""Joins with versions as they are written: which words mean one, and where a mistake is shown."""

from __future__ import annotations

import pytest

from anabranch.errors import NotSupported, SqlError, SyntaxProblem, UnknownName
from anabranch.sql import check
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM a AS asof JOIN b ON asof.k = b.k",
        "SELECT asof.x FROM a asof, b WHERE asof.k = b.k",
        "SELECT asof FROM asof JOIN b ON asof.k = b.k",
        "SELECT a.asof FROM a LEFT JOIN b ON a.asof = b.asof",
        "SELECT match_condition, tolerance FROM a JOIN b tolerance ON a.k = tolerance.k",
        "SELECT * FROM a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS b ON a.k = b.k",
        "SELECT * FROM v AS OF VERSION 3 JOIN a ON a.k = v.k",
    ],
)
def test_other_uses_of_the_words_stay_as_they_are(sql: str) -> None:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    assert not any(relation.versions for relation in statement.query.relations())


@pytest.mark.parametrize(
    ("sql", "marked", "said"),
    [
        ("SELECT 1 FROM a ASOF JOIN b ON a.k = b.k", "ASOF JOIN", "no such comparison"),
        ("SELECT 1 FROM a asof JOIN b ON asof.k = b.k", "asof JOIN", "an alias asof needs AS"),
        ("SELECT 1 FROM a ASOF FULL JOIN b ON a.k = b.k AND a.t > b.t", "ASOF FULL JOIN", "inner or a LEFT"),
        ("SELECT 1 FROM a ASOF JOIN b MATCH_CONDITON (a.t > b.t)", "MATCH_CONDITON", "mean MATCH_CONDITION"),
        ("SELECT 1 FROM a ASOF JOIN b MATCH_CONDITION (a.t = b.t)", "a.t = b.t", "into ON"),
        ("SELECT 1 FROM a ASOF JOIN b MATCH_CONDITION (a.t > a.u)", "a.t > a.u", "one side has to be of b"),
        ("SELECT 1 FROM a ASOF JOIN b MATCH_CONDITION ()", "MATCH_CONDITION ()", "a comparison of times"),
        ("SELECT 1 FROM a ASOF JOIN b ON k = k AND a.t > b.t", "k = k", "which side has the versions"),
        ("SELECT 1 FROM a ASOF JOIN b ON a.k = b.k OR a.t > b.t", "a.k = b.k OR a.t > b.t", "with AND"),
        ("SELECT 1 FROM a ASOF JOIN b ON a.t > b.t AND (a.k = b.k OR b.j = 1)", "a.k = b.k OR b.j = 1", "with AND"),
        ("SELECT 1 FROM a ASOF JOIN b ON a.k = b.k AND", "AND", "missing beside AND"),
        ("SELECT 1 FROM a ASOF JOIN b ON a.t > b.t AND a.u > b.u", "a.u > b.u", "one time with another"),
        ("SELECT 1 FROM a ASOF JOIN b MATCH_CONDITION (a.t > b.t) ON a.u > b.u", "a.u > b.u", "TOLERANCE"),
        ("SELECT 1 FROM a ASOF JOIN b ON a.t > b.t AND a.k LIKE b.k", "a.k LIKE b.k", "WHERE"),
        ("SELECT 1 FROM a ASOF JOIN b ON a.t > b.t TOLERENCE INTERVAL 1 DAY", "TOLERENCE", "mean TOLERANCE"),
        ("SELECT 1 FROM a JOIN b FOR SYSTEM_TIME AS OF b.t ON a.k = b.k", "b.t", "of another relation"),
        ("SELECT 1 FROM a, b FOR SYSTEM_TIME AS OF a.t", "FOR SYSTEM_TIME AS", "in a join only"),
        ("SELECT 1 FROM b FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01'", "FOR SYSTEM_TIME AS", "VERSION n"),
    ],
)
def test_a_mistake_is_shown_where_it_was_made(sql: str, marked: str, said: str) -> None:
    with pytest.raises((SyntaxProblem, NotSupported)) as caught:
        parse(sql)
    assert said in str(caught.value)
    assert caught.value.text == sql and sql[caught.value.start : caught.value.end] == marked


STREAMS = """CREATE STREAM a (k INT, ts TIMESTAMP);
CREATE STREAM b (k INT, y INT, ts TIMESTAMP, WATERMARK FOR ts ORDERED);
CREATE TABLE t (k INT, ts TIMESTAMP);
"""


@pytest.mark.parametrize(
    ("sql", "marked", "said"),
    [
        ("SELECT b.z FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts", "b.z", "no column b.z"),
        ("SELECT b.y FROM a ASOF JOIN b ON a.key = b.k AND a.ts >= b.ts", "a.key", "no column a.key"),
        ("SELECT b.y FROM a ASOF JOIN b ON a.k = b.kk AND a.ts >= b.ts", "b.kk", "no column b.kk"),
        ("SELECT b.y FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.tz) ON a.k = b.k", "b.tz", "no column b.tz"),
        ("SELECT b.y FROM a ASOF JOIN bb b ON a.k = b.k AND a.ts >= b.ts", "bb", "table bb"),
        ("SELECT 1 FROM b JOIN t FOR SYSTEM_TIME AS OF b.ts ON b.k = t.k", "FOR SYSTEM_TIME AS OF b.ts", "MATCH_CONDI"),
        ("SELECT 1 FROM a JOIN b FOR SYSTEM_TIME AS OF a.tz ON b.k = a.k", "a.tz", "no column a.tz"),
        (
            "SELECT 1 FROM a JOIN b FOR SYSTEM_TIME AS OF PROCTIME() ON b.k = a.k",
            "FOR SYSTEM_TIME AS OF PROCTIME()",
            "",
        ),
    ],
)
def test_names_that_are_not_there_are_found_without_spark(sql: str, marked: str, said: str) -> None:
    with pytest.raises((UnknownName, NotSupported)) as caught:
        check(STREAMS + sql)
    error: SqlError = caught.value
    assert said in str(error)
    assert error.text is not None and error.text[error.start : error.end] == marked
    assert "__" not in str(error), error


def test_good_ones_pass_the_check() -> None:
    check(
        STREAMS
        + """SELECT k, y, b.k FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) USING (k);
        CREATE VIEW v AS SELECT a.k, y FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k EMIT CHANGES;
        SELECT a.k FROM a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = t.k"""
    )
