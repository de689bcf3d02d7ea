"""Many places and one SQL: files, an Excel workbook, tables of Postgres and MariaDB, hashes of Redis, a topic of Kafka.

The places and the conditions are those of OctoSQL's table of supported sources, and every cell has an answer.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import xlsxwriter
from pyarrow import csv, parquet

from anabranch.testing import Harness
from sources import redis_server
from sources.kafka_help import Topic
from sources.kafka_server import broker
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer


def test_one_query_joins_five_places(
    home: Harness, tmp_path: Path, postgres: PostgresServer, mysql: MysqlServer
) -> None:
    (tmp_path / "orders.csv").write_text("id,customer,item\n1,7,tea\n2,7,ice\n3,8,tea\n4,9,rum\n")
    with xlsxwriter.Workbook(tmp_path / "prices.xlsx") as book:
        sheet = book.add_worksheet()
        for at, row in enumerate([("item", "price"), ("tea", 2.5), ("ice", 3.0)]):
            sheet.write_row(at, 0, row)
    postgres.run(
        "DROP TABLE IF EXISTS customers", "CREATE TABLE customers (id int PRIMARY KEY, name text, country text)"
    )
    postgres.run("INSERT INTO customers VALUES (7, 'ann', 'is'), (8, 'bob', 'no'), (9, 'eve', 'no')")
    mysql.run("DROP TABLE IF EXISTS countries", "CREATE TABLE countries (code char(2) PRIMARY KEY, title varchar(20))")
    mysql.run("INSERT INTO countries VALUES ('is', 'Iceland'), ('no', 'Norway')")
    port = redis_server.free_port()
    os.environ["REDIS_OF_TESTS"] = redis_server.PASSWORD
    with redis_server.running(tmp_path, port) as client:
        client.hset("stock:tea", mapping={"left": 5})
        client.hset("stock:ice", mapping={"left": 0})
        stock = f"redis(host => '127.0.0.1', port => {port}, password => env('REDIS_OF_TESTS'), keys => 'stock:*')"
        found = home.query(
            f"SELECT c.name, n.title, o.item, p.price, CAST(s.left AS INT) AS left_over"
            f" FROM '{tmp_path}/orders.csv' o JOIN {postgres.source(table='customers')} c"
            f" ON c.id = o.customer JOIN {mysql.source(table='countries')} n ON n.code = c.country"
            f" JOIN '{tmp_path}/prices.xlsx' p ON p.item = o.item"
            f" LEFT JOIN {stock} s ON s.key = concat('stock:', o.item)"
        )
    assert found == [
        ("ann", "Iceland", "ice", 3.0, 0),
        ("ann", "Iceland", "tea", 2.5, 5),
        ("bob", "Norway", "tea", 2.5, 5),
    ]


ROWS = [("a", 1, 0.5), ("b", 2, 1.5), ("b", 3, None), ("c", 4, -2.0)]
CONDITIONS = {
    "k = 'b'": lambda k, n, v: k == "b",
    "n = 4": lambda k, n, v: n == 4,
    "k IN ('a', 'c', 'z')": lambda k, n, v: k in ("a", "c"),
    "n IN (2, 9)": lambda k, n, v: n == 2,
    "n > 2": lambda k, n, v: n > 2,
    "k <= 'b' AND v >= 1.5": lambda k, n, v: k <= "b" and v is not None and v >= 1.5,
    "v < 0 OR v IS NULL": lambda k, n, v: v is None or v < 0,
}


def test_every_place_answers_every_condition(
    home: Harness, tmp_path: Path, postgres: PostgresServer, mysql: MysqlServer
) -> None:
    columns = pa.table({name: [row[at] for row in ROWS] for at, name in enumerate(("k", "n", "v"))})
    csv.write_csv(columns, tmp_path / "t.csv")
    parquet.write_table(columns, tmp_path / "t.parquet")
    (tmp_path / "t.json").write_text("".join(f"{json.dumps(row)}\n" for row in columns.to_pylist()))
    with xlsxwriter.Workbook(tmp_path / "t.xlsx") as book:
        sheet = book.add_worksheet()
        for at, row in enumerate([("k", "n", "v"), *ROWS]):
            sheet.write_row(at, 0, row)
    for server, text in ((postgres, "text"), (mysql, "varchar(9)")):
        server.run("DROP TABLE IF EXISTS cells", f"CREATE TABLE cells (k {text}, n int, v double precision)")
        with server.connect() as database, database.cursor() as cursor:
            cursor.executemany("INSERT INTO cells VALUES (%s, %s, %s)", ROWS)
    port = redis_server.free_port()
    os.environ["REDIS_OF_TESTS"] = redis_server.PASSWORD
    with redis_server.running(tmp_path, port) as client, broker() as kafka:
        for k, n, v in ROWS:
            client.hset(f"cell:{n}", mapping={"k": k, "n": n, **({} if v is None else {"v": v})})
        topic = Topic(kafka, 2)
        topic.send([(number % 2, row) for number, row in enumerate(columns.to_pylist())])
        there = f"host => '127.0.0.1', port => {port}, password => env('REDIS_OF_TESTS'), keys => 'cell:*'"
        home.sql(f"CREATE TABLE hashes (key STRING, k STRING, n INT, v DOUBLE) FROM redis({there})")
        home.sql(
            f"CREATE STREAM topic (k STRING, n INT, v DOUBLE) FROM kafka(brokers => '{kafka.brokers}',"
            f" topic => '{topic.name}')"
        )
        places = {
            **{ending: f"'{tmp_path}/t.{ending}'" for ending in ("csv", "json", "parquet", "xlsx")},
            "postgres": postgres.source(table="cells"), "mysql": mysql.source(table="cells"),
            "redis": "hashes", "kafka": "topic",
        }  # fmt: skip
        parts = [
            f"SELECT '{name}' AS place, {number} AS cell, k, CAST(n AS INT) AS n, CAST(v AS DOUBLE) AS v FROM {place}"
            f" WHERE {condition}"
            for name, place in places.items()
            for number, condition in enumerate(CONDITIONS)
        ]
        found = Counter(home.query(" UNION ALL ".join(parts)))
    expected = Counter(
        (name, number, *row)
        for name in places
        for number, test in enumerate(CONDITIONS.values())
        for row in ROWS
        if test(*row)
    )
    assert found == expected
