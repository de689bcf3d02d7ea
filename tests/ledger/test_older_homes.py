"""Homes that earlier versions made: they open, show what they showed, and go on like a home made today.

`homes/before_typed_plans.tar.gz` was made by `homes/made.sql` with the last version whose definitions had format 1.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import NotSupported
from anabranch.plan import migrations
from anabranch.plan.migrations import FORMAT
from anabranch.plan.view import View

HOMES = Path(__file__).parent / "homes"
SCRIPT = (HOMES / "made.sql").read_text()
#: A row that is late, one that makes a pair with an offer of old, one for each window that closes, and new keys.
MORE = """
INSERT INTO bids VALUES (1, 35, TIMESTAMP '2026-01-01 00:00:50'), (2, 7, TIMESTAMP '2026-01-01 00:04:10');
INSERT INTO offers VALUES (3, 'eve', TIMESTAMP '2026-01-01 00:02:00'), (4, 'fay', TIMESTAMP '2026-01-01 00:05:00');
INSERT INTO bids VALUES (4, 50, TIMESTAMP '2026-01-01 00:05:30'), (NULL, 1, TIMESTAMP '2026-01-01 00:00:10');
UPDATE items SET name = 'trawl' WHERE item = 3;
REFRESH TABLE items;
INSERT INTO bids VALUES (3, 60, TIMESTAMP '2026-01-01 00:06:30'), (1, 2, TIMESTAMP '2026-01-01 00:06:40')
"""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    with tarfile.open(HOMES / "before_typed_plans.tar.gz") as made:
        made.extractall(tmp_path / "older", filter="data")
    return tmp_path / "older"


def views(home: anabranch.Session) -> list[str]:
    return sorted(each.name for each in home._core.catalog().of(View) if each.owner is None)


def answers(home: anabranch.Session) -> dict[str, Counter[Any]]:
    return {name: Counter(map(tuple, home.sql(f"SELECT * FROM {name}").df.collect())) for name in views(home)}


def test_an_older_home_goes_on_like_one_of_today(older: Path, tmp_path: Path, spark: SparkSession) -> None:
    with anabranch.connect(tmp_path / "today", spark=spark) as today, anabranch.connect(older, spark=spark) as home:
        today.sql(SCRIPT)
        assert len(views(home)) == 16
        assert answers(home) == answers(today)
        for each in (today, home):
            each.sql(MORE)
        assert answers(home) == answers(today)
        new = "CREATE VIEW more AS SELECT item, max(price) AS dearest FROM bids GROUP BY item EMIT CHANGES"
        for each in (today, home):
            each.sql(new)
        assert answers(home) == answers(today)


def test_what_an_older_home_writes_has_the_format_of_today(older: Path, spark: SparkSession) -> None:
    with anabranch.connect(older, spark=spark) as home:
        before = home._core.ledger.version
        home.sql("CREATE VIEW v AS SELECT item, price + 1 AS more FROM bids")
        record = home._core.ledger.home / "runs" / f"{before + 1:020}.json"
    written = json.loads(record.read_text())
    assert written["format"] == 2
    assert all(each["format"] == FORMAT for each in written["catalog"].values())


@pytest.mark.parametrize("view", ["named", "totals"])
def test_a_view_of_an_older_home_that_is_followed_keeps_what_its_rows_met(
    view: str, older: Path, spark: SparkSession
) -> None:
    """The rows of `named` met a table that has changed since: they do not meet it again."""
    with anabranch.connect(older, spark=spark) as home:
        shown = answers(home)[view]
        changes = [row for batch in home.subscribe(view) for row in batch.changes.to_pylist()]
        assert answers(home)[view] == shown
    summed: Counter[Any] = Counter()
    for row in changes:
        summed[tuple(value for name, value in row.items() if name != "_diff")] += row["_diff"]
    assert {row: count for row, count in summed.items() if count} == dict(shown)


def test_partials_that_are_not_found_again_are_not_filled_with_tables_of_today(
    older: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "_with_as", lambda signature: signature)
    with anabranch.connect(older, spark=spark) as home:
        shown = answers(home)["named"]
        with pytest.raises(NotSupported, match="its rows were joined with table items as it was before a REFRESH"):
            list(home.subscribe("named"))
        assert answers(home)["named"] == shown
