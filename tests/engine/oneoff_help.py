"""Files and queries over them, each of which is answered with and without Spark."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

BIDS = '''auction,bidder,price,day,ts,channel,paid
1,7,10.5,2026-01-01,2026-01-01 00:00:01,apple,true
1,8,10.50,2026-01-01,2026-01-01 00:00:02.5,Apple,FALSE
2,7,-0.25,2026-01-03,2026-01-01 00:00:03,,true
2,,3,2026-02-28,2026-01-01 00:00:04,"a, b",
3,9,.5,2024-02-29,2026-01-01 00:00:05,"say ""hi""",true
3,9,1e-05,,2026-01-01 00:00:06,日本 é,false
,10,123456789.125,2026-01-01,,ünal,true
3000000000,-11,0.1,1999-12-31,2026-12-31 23:59:59.999999,z,false
2,7,-0.0,2026-01-01,2026-01-01 00:01:00,Zed,true
'''
PEOPLE = "id,name,score\n7,ann,1.5\n8,bob,2.5\n9,cy,\n9,cyd,4.0\n12,,0.1\n"


def write_files(folder: Path) -> None:
    (folder / "bids.csv").write_text(BIDS)
    (folder / "people.csv").write_bytes(PEOPLE.replace("\n", "\r\n").encode())
    (folder / "people.tsv").write_text(PEOPLE.replace(",", "\t"))
    (folder / "part-1.csv").write_text("k,n\na,1\nb,2\n")
    (folder / "part-2.csv").write_text("k,n\na,3000000000\nc,\n")
    (folder / "header.csv").write_text("a,b\n")
    (folder / "quoted.csv").write_text('"a","b b",c\n"1","x","1.5"\n"","","2"\n"3","y\ty",""')
    nan, inf = float("nan"), float("inf")
    table = pa.table(
        {
            "k": pa.array(["a", "b", None, "a", "", "é"]),
            "n": pa.array([1, -5, 2**31 - 1, None, 0, 7], pa.int32()),
            "b": pa.array([2**62, -1, None, 3, 4, 5], pa.int64()),
            "s": pa.array([1, 2, 3, None, -4, 5], pa.int16()),
            "x": pa.array([1.5, nan, -0.0, inf, None, 0.0]),
            "d": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00"), Decimal("9.99"), Decimal("1.50")],
                          pa.decimal128(10, 2)),
            "day": pa.array([date(2026, 1, 1), None, date(1600, 2, 29), date(9999, 12, 31), date(1970, 1, 1),
                             date(2026, 1, 31)]),
            "ts": pa.array([datetime(2026, 1, 1, 1, 2, 3, 4, timezone.utc), None,
                            datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc),
                            datetime(2026, 3, 29, 1, 30, tzinfo=timezone.utc), datetime(1, 1, 1, tzinfo=timezone.utc),
                            datetime(2026, 1, 1, 1, 2, 3, tzinfo=timezone.utc)], pa.timestamp("us", "UTC")),
            "p": pa.array([True, False, None, True, True, False]),
            "xs": pa.array([[1], [], None, [2, 3], [4], [5]]),
        }
    )  # fmt: skip
    parquet.write_table(table, folder / "rows.parquet", row_group_size=3)


#: Queries that are answered without Spark.
ANSWERED = [
    "SELECT 1",
    "SELECT 'it\\'s', \"x\", 'back\\\\slash'",
    "SELECT 1 AS a, 'x', 2.5, true, -3",
    "SELECT * FROM 'bids.csv'",
    "SELECT * FROM csv('bids.csv') LIMIT 3",
    "SELECT * FROM 'quoted.csv'",
    "SELECT * FROM 'header.csv'",
    "SELECT count(*) FROM 'header.csv'",
    "SELECT * FROM 'people.tsv' ORDER BY id, name",
    "SELECT *, n + 1 FROM 'part-*.csv' ORDER BY k, n",
    "SELECT auction, max(price) FROM 'bids.csv' GROUP BY auction",
    "SELECT auction, count(*), sum(price) AS s, avg(bidder), min(ts), max(day) FROM 'bids.csv' GROUP BY auction",
    "SELECT count(1), count(bidder), count(DISTINCT channel), sum(auction), sum(bidder) FROM 'bids.csv'",
    "SELECT channel, price * 2, price + 1.5, bidder / 2, bidder % 4, -bidder FROM 'bids.csv' WHERE price > 0.3",
    "SELECT upper(b.channel) FROM 'bids.csv' b WHERE channel LIKE 'a%' OR channel LIKE 'A%'",
    "SELECT auction FROM 'bids.csv' WHERE ts >= '2026-01-01 00:00:03' AND day <> '2026-01-01'",
    "SELECT auction FROM 'bids.csv' WHERE day BETWEEN '2026-01-01' AND '2026-01-31' AND ts > '2026-01-01'",
    "SELECT auction FROM 'bids.csv' WHERE price IN (10.5, 0.1, 3) OR bidder IS NULL",
    "SELECT DISTINCT auction, paid FROM 'bids.csv' ORDER BY 1, 2",
    "SELECT ts, price FROM 'bids.csv' ORDER BY price DESC, ts LIMIT 4",
    "SELECT ts FROM 'bids.csv' ORDER BY channel DESC NULLS FIRST, ts LIMIT 6",
    "SELECT auction AS a, count(*) AS c FROM 'bids.csv' GROUP BY ALL HAVING count(*) > 1 ORDER BY c DESC, a",
    "SELECT b.auction, p.name FROM 'bids.csv' b JOIN 'people.csv' p ON b.bidder = p.id ORDER BY b.ts, p.name",
    "SELECT b.auction, p.name FROM 'bids.csv' b LEFT JOIN 'people.csv' p ON b.bidder = p.id AND b.price > p.score",
    "SELECT count(*) FROM 'bids.csv' b LEFT SEMI JOIN 'people.csv' p ON b.bidder = p.id",
    "SELECT bidder FROM 'bids.csv' b LEFT ANTI JOIN 'people.csv' p ON b.bidder = p.id",
    "SELECT id, name, auction FROM 'people.csv' JOIN (SELECT bidder AS id, auction FROM 'bids.csv') USING (id)",
    "SELECT * FROM 'people.csv' NATURAL LEFT JOIN (SELECT bidder AS id, count(*) AS c FROM 'bids.csv' GROUP BY bidder)",
    "SELECT a.id, b.id FROM 'people.csv' a RIGHT JOIN 'people.tsv' b ON a.id = b.id AND a.name = 'ann'",
    "SELECT a.name, b.name FROM 'people.csv' a FULL JOIN 'people.tsv' b ON a.score = b.score",
    "SELECT id FROM 'people.csv' UNION ALL SELECT bidder FROM 'bids.csv'",
    "SELECT name FROM 'people.csv' UNION SELECT channel FROM 'bids.csv'",
    "SELECT id FROM 'people.csv' EXCEPT SELECT bidder FROM 'bids.csv' ORDER BY id",
    "WITH t AS (SELECT auction, max(price) AS m FROM 'bids.csv' GROUP BY auction) SELECT a.auction, b.m FROM t a, t b"
    " WHERE a.auction = b.auction AND a.m > 1.0",
    "SELECT name FROM 'people.csv' WHERE id IN (SELECT bidder FROM 'bids.csv' WHERE price > 1)",
    "SELECT name FROM 'people.csv' WHERE id NOT IN (SELECT bidder FROM 'bids.csv' WHERE bidder IS NOT NULL)",
    "SELECT price > (SELECT avg(price) FROM 'bids.csv') AS above, ts FROM 'bids.csv'",
    "SELECT CASE WHEN price > 1 THEN 'much' ELSE 'little' END, count(*) FROM 'bids.csv' GROUP BY 1",
    "SELECT date_trunc('minute', ts) AS m, sum(price) FILTER (WHERE paid) FROM 'bids.csv' GROUP BY m",
    "SELECT year(day), CAST(bidder AS STRING), coalesce(channel, '-'), length(channel) FROM 'bids.csv'",
    "SELECT ts, row_number() OVER (PARTITION BY auction ORDER BY ts) AS r FROM 'bids.csv' ORDER BY auction, r",
    "SELECT * FROM (SELECT *, rank() OVER (PARTITION BY auction ORDER BY price DESC) AS r FROM 'bids.csv') WHERE r = 1",
    "SELECT sum(price), max(price), min(price), avg(price) FROM 'bids.csv'",
    "SELECT k, n, b, s, x, d, day, ts, p FROM 'rows.parquet'",
    "SELECT k, x FROM 'rows.parquet' WHERE x > 1",
    "SELECT x FROM 'rows.parquet' ORDER BY x, k",
    "SELECT x, k FROM 'rows.parquet' ORDER BY x DESC, k DESC",
    "SELECT k, sum(n), sum(d), max(x), min(x), max(ts), count(x) FROM 'rows.parquet' GROUP BY k",
    "SELECT n + s, d > 1, b % 3 FROM 'rows.parquet' WHERE n < 10",
    "SELECT d + d, d > 1.25, s + 1, concat(k, '!'), abs(s), greatest(n, s) FROM 'rows.parquet'",
    "SELECT hour(ts), minute(ts), dayofweek(day), last_day(day), unix_micros(ts) FROM 'rows.parquet'",
    "SELECT a.k, b.n FROM 'rows.parquet' a JOIN 'rows.parquet' b ON a.x = b.x",
]
#: Queries that are left to Spark, and what is told of the reason.
DECLINED = {
    "SELECT xs FROM 'rows.parquet'": "unknown",
    "SELECT count(xs) FROM 'rows.parquet'": "xs",
    "SELECT count(*) FROM (SELECT DISTINCT * FROM 'rows.parquet')": "unknown",
    "SELECT stddev(price) FROM 'bids.csv'": "stddev",
    "SELECT PRICE FROM 'bids.csv'": "PRICE",
    "SELECT price, count(*) FROM 'bids.csv' GROUP BY price": "groups of DOUBLE",
    "SELECT bidder, max(price) FROM 'bids.csv' GROUP BY auction": "",
    "SELECT auction FROM 'bids.csv' WHERE max(price) > 1": "aggregate",
    "SELECT auction FROM 'bids.csv' WHERE channel = 1": "comparison",
    "SELECT foo(price) FROM 'bids.csv'": "foo",
    "SELECT explode(sequence(1, 3))": "",
    "SELECT NULL": "null",
    "SELECT 'a\\tb'": "escape",
    "SELECT * FROM range(3)": "function",
    "SELECT * FROM csv('bids.csv', header => true)": "options",
    "SELECT auction FROM 'bids.csv' LIMIT 2 OFFSET 1": "OFFSET",
    "SELECT auction, count(*) FROM 'bids.csv' GROUP BY ROLLUP (auction)": "",
    "SELECT name FROM 'people.csv' p WHERE EXISTS (SELECT 1 FROM 'bids.csv' b WHERE b.bidder = p.id)": "subquery",
}
