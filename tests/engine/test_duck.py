"""What DuckDB has to be told, so that it says what Spark says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from anabranch.duck import DATABASE, Database, connect, counting_all
from anabranch.engine.memory_budget import Budget


@pytest.mark.parametrize("join", ["LEFT", "FULL"])
def test_what_is_added_up_over_an_outer_join_with_nothing_on_one_side(join: str) -> None:
    duck = connect()
    duck.execute("CREATE TEMP TABLE a AS SELECT unnest([1, 2, 3, 4]) AS k; CREATE TEMP TABLE b AS SELECT 1 AS k")
    pairs = f"a {join} JOIN (SELECT * FROM b WHERE k > 5) AS b ON b.k < a.k"
    text = (
        f"SELECT k, sum(n) FROM (SELECT a.k, 1 AS n FROM {pairs} UNION ALL SELECT a.k, -1 FROM {pairs} WHERE a.k < 3)"
        " GROUP BY k HAVING sum(n) <> 0 ORDER BY k"
    )
    with counting_all(text):
        assert duck.execute(text).fetchall() == [(3, 1), (4, 1)]


def test_what_does_not_fit_into_memory_is_not_put_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, aside = tmp_path / "here", tmp_path / "aside"
    here.mkdir()
    aside.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    database = Database(60 << 20)
    duck = database.connect()
    assert duck.sql("SELECT count(*) FROM (SELECT DISTINCT i, hash(i) FROM range(4000000) AS t(i))").fetchall() == [
        (4_000_000,)
    ]
    assert not list(here.iterdir()) and [each.name.startswith("anabranch-spill-") for each in aside.iterdir()] == [True]
    duck.close()
    database.close()
    assert not list(aside.iterdir())


def test_a_setting_stays_as_long_as_anybody_needs_it() -> None:
    """Connections share the settings: one that is done must not switch off what another one still needs."""
    duck = connect()

    def disabled() -> str:
        return str(duck.sql("SELECT current_setting('disabled_optimizers')").fetchall()[0][0])

    one, other = (counting_all("a LEFT JOIN b") for _ in range(2))
    with one:
        other.__enter__()
    assert disabled() == "statistics_propagation"
    other.__exit__(None, None, None)
    assert disabled() == ""
    with DATABASE.needing("perfect_ht_threshold", 20), DATABASE.needing("perfect_ht_threshold", 14):
        assert duck.sql("SELECT current_setting('perfect_ht_threshold')").fetchall() == [(20,)]


def test_tables_of_a_connection_are_its_own() -> None:
    one, other = connect(), connect()
    for number, duck in enumerate((one, other)):
        duck.execute(f"CREATE TEMP TABLE same AS SELECT {number} AS n")
    assert [duck.sql("SELECT n FROM same").fetchall() for duck in (one, other)] == [[(0,)], [(1,)]]
    assert other.sql("SELECT current_setting('TimeZone'), unix_micros(make_timestamptz(7))").fetchall() == [("UTC", 7)]


def test_all_together_hold_no_more_than_the_budget() -> None:
    budget = Budget()
    assert budget.take("a", 50, 100) and budget.take("b", 40, 100)
    assert not budget.take("c", 20, 100), "a and b leave 10"
    assert budget.take("c", 10, 100) and budget.total == 100
    assert not budget.take("a", 51, 100), "nobody holds more than half"
    assert budget.total == 50, "what does not fit is not held"
    budget.release("b")
    assert budget.take("a", 50, 100) and budget.total == 60
