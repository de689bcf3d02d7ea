"""Joins with versions: what users see of them, on streams, views, tables and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.errors import AnabranchError, SqlError
from anabranch.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RATES = """
CREATE STREAM orders (id INT, price DECIMAL(9, 2), currency STRING, order_time TIMESTAMP,
                      WATERMARK FOR order_time AS order_time);
CREATE STREAM currency_rates (currency STRING, rate DECIMAL(9, 2), update_time TIMESTAMP,
                              WATERMARK FOR update_time AS update_time - INTERVAL 15 SECONDS);
CREATE VIEW euros AS
  SELECT orders.id, orders.price * r.rate AS euros FROM orders
  LEFT JOIN currency_rates FOR SYSTEM_TIME AS OF orders.order_time AS r ON orders.currency = r.currency EMIT CHANGES;
CREATE VIEW known_rates AS SELECT upper(currency) AS currency, rate, update_time AS since FROM currency_rates;
CREATE VIEW through_view AS
  SELECT o.id, r.rate FROM orders o JOIN known_rates FOR SYSTEM_TIME AS OF o.order_time AS r
  ON upper(o.currency) = r.currency;
"""


def changes(home: Harness) -> list[tuple[int, int, str | None]]:
    last = max(change.version for change in home.changes("euros"))
    found = [change for change in home.changes("euros") if change.version == last]
    return [(change.diff, change.row[0], None if change.row[1] is None else f"{change.row[1]:.2f}") for change in found]


def test_a_late_version_corrects_the_answers_it_was_in_force_for(spark: SparkSession, tmp_path: Path) -> None:
    with Harness(tmp_path / "home", spark) as home:
        home.sql(RATES)
        home.insert("currency_rates", [("USD", "1.00", "2026-01-01 09:00:00"), ("YEN", "0.01", "2026-01-01 09:00:00")])
        home.insert("orders", [(1, "5.00", "USD", "2026-01-01 10:10:00"), (2, "3.00", "GBP", "2026-01-01 10:20:00")])
        assert changes(home) == [(1, 1, "5.00"), (1, 2, None)]
        home.insert("currency_rates", [("USD", "1.10", "2026-01-01 10:15:00")])
        assert len(home.changes("euros")) == 2  # the order is older
        home.insert("currency_rates", [("USD", "1.20", "2026-01-01 10:00:00"), ("GBP", "2.00", "2026-01-01 08:00:00")])
        assert changes(home) == [(-1, 1, "5.00"), (-1, 2, None), (1, 1, "6.00"), (1, 2, "6.00")]
        home.insert("orders", [(3, "4.00", "USD", "2026-01-01 09:30:00")])  # a late order
        assert changes(home) == [(1, 3, "4.00")]
        assert [(id, str(rate)) for id, rate in home.table("through_view")] == [(1, "1.20"), (2, "2.00"), (3, "1.00")]


def test_tables_and_files_are_joined_in_the_same_way(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "quotes.csv").write_text("item,bid,at\na,1,5\na,7,10\na,2,10\nb,3,20\n")
    quotes = f"'{tmp_path}/quotes.csv'"
    with Harness(tmp_path / "home", spark) as home:
        home.sql("""
        CREATE TABLE trades (item STRING, at INT);
        CREATE TABLE names (item STRING, name STRING);
        INSERT INTO names VALUES ('a', 'Ant');
        CREATE STREAM sales (item STRING);
        CREATE VIEW named AS
          SELECT s.item, n.name FROM sales s JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON s.item = n.item;
        INSERT INTO trades VALUES ('a', 4), ('a', 12), ('b', 99), ('c', 1), (NULL, 7);
        INSERT INTO sales VALUES ('a'), ('b')""")
        found = home.query(
            f"SELECT * FROM trades t ASOF JOIN {quotes} q MATCH_CONDITION (t.at >= q.at) TOLERANCE 50"
            " ON t.item = q.item ORDER BY t.at"
        )
        nothing = (None, None, None)
        assert found == [
            ("c", 1, *nothing), ("a", 4, *nothing), (None, 7, *nothing), ("a", 12, "a", 7, 10), ("b", 99, *nothing)
        ]  # fmt: skip
        assert home.query(
            f"WITH q AS (SELECT item, at AS since, bid FROM {quotes}), far AS (SELECT 'b' AS item, 1 AS first)"
            " SELECT *, q.item FROM trades ASOF INNER JOIN q MATCH_CONDITION (at >= since) USING (item)"
            " ASOF JOIN far MATCH_CONDITION (trades.at >= far.first) USING (item) ORDER BY 1, 2"
        ) == [("a", 12, 10, 7, None, "a"), ("b", 99, 20, 3, 1, "b")]
        assert home.table("named") == [("a", "Ant")]
        text = f"SELECT q.bud FROM trades t ASOF JOIN {quotes} q ON t.item = q.item AND t.at >= q.at"
        with pytest.raises(SqlError) as caught:
            home.query(text)
        assert text[caught.value.start : caught.value.end] == "q.bud" and "__" not in str(caught.value)
        text = f"SELECT 1 FROM trades t ASOF JOIN {quotes} q MATCH_CONDITION (t.at >= q.at) USING (itm)"
        with pytest.raises(SqlError) as caught:
            home.query(text)
        assert text[caught.value.start : caught.value.end] == "itm"
        with pytest.raises(AnabranchError, match="only static tables have one"):
            home.query("SELECT 1 FROM names n JOIN named FOR SYSTEM_TIME AS OF PROCTIME() AS m ON n.item = m.item")
