"""What DuckDB has to be told, so that it says what Spark says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from anabranch.duck import Database, connect, counting_all


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
