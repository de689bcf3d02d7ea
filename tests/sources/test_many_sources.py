"""One query over many places: a csv file, an Excel workbook, tables of Postgres and MariaDB, hashes of Redis."""

from __future__ import annotations

import os
from pathlib import Path

import xlsxwriter

from anabranch.testing import Harness
from sources import redis_server
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
