"""Queries whose answer, with the new rows, is enough to go on from."""

from __future__ import annotations

import pytest

from anabranch.plan.facts.append_only import first_of, first_ranked, is_distinct
from ir.plan_help import block

RANK = "row_number() OVER (PARTITION BY k ORDER BY v DESC)"
ALL = {"k": "k", "v": "v", "ts": "ts"}


@pytest.mark.parametrize(
    ("outer", "inner", "shown"),
    [
        ("SELECT k, n, d, ts FROM s WHERE n <= 3", f"SELECT *, {RANK} AS n FROM r", {}),  # v is not shown
        ("SELECT * FROM s WHERE n <= 3", f"SELECT k, {RANK} AS n, v AS d, ts FROM r", {**ALL, "v": "d"}),
        ("SELECT n, d AS x FROM s WHERE n < 3", f"SELECT k, {RANK} AS n, v AS d, ts FROM r", {**ALL, "v": "d"}),
        ("SELECT * FROM s WHERE 1 = n", f"SELECT k, {RANK} AS n, v AS d, ts FROM r WHERE v > 1", {**ALL, "v": "d"}),
        ("SELECT * FROM s WHERE n = 2", f"SELECT k, {RANK} AS n, v AS d, ts FROM r", {}),
        ("SELECT * FROM s WHERE n >= 2", f"SELECT k, {RANK} AS n, v AS d, ts FROM r", {}),
        ("SELECT * FROM s WHERE n <= 2 AND d > 1", f"SELECT k, {RANK} AS n, v AS d, ts FROM r", {}),
        ("SELECT * FROM s WHERE n <= 2 OR d > 1", f"SELECT k, {RANK} AS n, v AS d, ts FROM r", {}),
        ("SELECT DISTINCT * FROM s WHERE n <= 2", f"SELECT k, {RANK} AS n, v AS d, ts FROM r", {}),
        ("SELECT * FROM s WHERE n <= 2", f"SELECT label, {RANK} AS n, v AS d, ts FROM r JOIN names USING (k)", {}),
        ("SELECT * FROM s WHERE n <= 2", "SELECT k, ntile(3) OVER (PARTITION BY k ORDER BY v) AS n, v, ts FROM r", {}),
        (
            "SELECT * FROM s WHERE n <= 2",
            f"SELECT k, {RANK} AS n, v AS d, ts, rank() OVER (ORDER BY v) AS x FROM r",
            {},
        ),
    ],
)
def test_the_first_of_each_partition_go_on_from_what_is_shown(outer: str, inner: str, shown: dict[str, str]) -> None:
    # The query inside stands for the stream s of the tests, whose columns are k, n, d and ts.
    assert first_of(block(inner), ["k", "n", "d", "ts"], block(outer)) == shown


def test_qualify_goes_on_from_what_is_shown() -> None:
    assert ranked(f"SELECT *, {RANK} AS n FROM r QUALIFY n <= 2") == ALL
    assert ranked(f"SELECT * FROM r QUALIFY {RANK} = 1") == ALL
    assert ranked(f"SELECT k AS a, v FROM r QUALIFY {RANK} = 1") == {"k": "a", "v": "v", "ts": None}
    assert ranked(f"SELECT * FROM r QUALIFY {RANK} > 1") == {}


def ranked(query: str) -> dict[str, str | None]:
    return {column.name: name for column, name in first_ranked(block(query)).items()}


def test_distinct_rows_of_a_stream_stay() -> None:
    assert is_distinct(block("SELECT DISTINCT upper(k) AS k FROM s WHERE n > 1"))
    assert not is_distinct(block("SELECT DISTINCT k, count(*) AS n FROM s GROUP BY k"))
    assert not is_distinct(block("SELECT DISTINCT k FROM s JOIN r USING (k)"))
    assert not is_distinct(block("SELECT DISTINCT k FROM s ORDER BY k LIMIT 2"))
    assert not is_distinct(block("SELECT DISTINCT k FROM s WHERE k IN (SELECT k FROM r)"))
