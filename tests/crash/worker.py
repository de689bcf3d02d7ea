"""A process to be killed: opens a home, does what the order says, and writes what it saw, a line of JSON each.

    python worker.py '{"home": "...", "run": "CREATE STREAM ...", "after": ["SELECT ..."]}'

With PYSPARK_GATEWAY_PORT in the environment it works in a JVM that is already running, which spares seconds a start.
`{"host": true}` makes it that JVM's owner.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import fields
from typing import Any


def say(**what: Any) -> None:
    print(json.dumps(what, default=str), flush=True)


def host() -> None:
    from anabranch.engine import spark as sessions

    master = os.environ.get("ANABRANCH_TEST_MASTER", "local[2]")
    spark = sessions.start(master, {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"})
    spark.range(1).toArrow()
    gateway = spark.sparkContext._gateway
    say(port=gateway.java_parameters.port, secret=gateway.java_parameters.auth_token)
    sys.stdin.read()
    spark.stop()


def attach() -> Any:
    """A session in the JVM that the environment names."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway = launch_gateway()
    jvm = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf))


def small_ledger(fan_in: int, snapshot_every: int, by_executors: bool) -> None:
    """Have the reducer, vacuum and snapshot files come up within a few runs, and if asked for, have the executors
    write what is small too."""
    from anabranch.engine import capture, place, reduce
    from anabranch.ledger import ledger, log

    if by_executors:
        names = ("run_bytes", "small_run_bytes", "small_rows", "changes_rows", "state_rows", "answer_rows")
        names += ("closing_rows", "pending_keys", "session_keys")
        place.Limits.__init__.__defaults__ = tuple(
            -1 if each.name in names else each.default for each in fields(place.Limits)
        )
    reduce.FAN_IN = fan_in
    capture.VACUUM_EVERY = 3
    log.SNAPSHOT_EVERY = snapshot_every
    ledger.SNAPSHOT_EVERY = snapshot_every


def rows(session: Any, query: str) -> list[list[Any]]:
    columns = [column.to_pylist() for column in session.sql(query).toArrow().columns]
    return [list(row) for row in zip(*columns, strict=True)]


def limited(session: Any, statement: str, limits: list[int]) -> None:
    """Try a statement while no file may grow past a limit, as on a disk that is full sooner or later."""
    for limit in limits:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = session.version
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            session.sql(statement)
            outcome = {"error": None}
        except Exception as error:
            outcome = {"error": type(error).__name__, "text": str(error)}
            from anabranch.errors import AnabranchError

            outcome["ours"] = isinstance(error, AnabranchError)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        say(limit=limit, committed=session.version - before, waiting=waiting(session), **outcome)


def waiting(session: Any) -> list[str]:
    """Files in the home that no record names."""
    ledger = session._core.ledger
    named = {name for v in range(1, ledger.version + 1) for t in ledger.snapshot(v).files.values() for name in t}
    found = [p for p in ledger.home.rglob("*.parquet") if "_delta_log" not in p.parts and p.name not in named]
    return sorted(str(p.relative_to(ledger.home)) for p in found)


def churn(session: Any, seconds: float, statements: list[str]) -> None:
    """Carry out statements again and again, with {n} as the number of the round, and reduce and vacuum in between."""
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number += 1
        for statement in statements:
            session.sql(statement.replace("{n}", str(number)))
        say(round=number, version=session.version)
        if number % 2 == 0:
            say(compacted=session.compact())


def work(order: dict[str, Any]) -> None:
    import anabranch

    small_ledger(order.get("fan_in", 3), order.get("snapshot_every", 5), order.get("by_executors", False))
    spark = attach() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    read_only = order.get("read_only", False)
    with anabranch.connect(
        order["home"], spark=spark, master="local[2]", conf={"spark.driver.memory": "1g"},
        run_rows=order.get("run_rows"), read_only=read_only,
    ) as session:  # fmt: skip
        say(opened=session.version, rolled_back=session.rolled_back)
        session._core.ledger.keep_versions = order.get("keep_versions", 100)
        for query in order.get("before", []):
            say(
                before=query,
                rows=rows(session, query.replace("@", f"AS OF VERSION {order.get('at', session.version)}")),
            )
        for _ in range(order.get("reads", 0)):
            say(version=session.version, read=[rows(session, query) for query in order["queries"]])
        while "while" in order and os.path.exists(order["while"]):
            say(read=[rows(session, query.replace("@", str(session.version))) for query in order["queries"]])
        if "run" in order:
            session.run(order["run"], until_idle=order.get("until_idle", True))
        for statement in order.get("statements", []):
            say(done=statement, message=session.sql(statement).message)
        if "churn" in order:
            churn(session, order["seconds"], order["churn"])
        if "live" in order:
            for result in session.execute(order["live"], live=True):
                for batch in result:
                    say(batch=batch.version)
        if "limited" in order:
            limited(session, order["limited"], order["limits"])
        if order.get("compact"):
            say(compacted=session.compact())
        for query in order.get("after", []):
            say(after=query, rows=rows(session, query))
        say(version=session.version)
        if order.get("hold"):
            sys.stdin.read()
    say(closed=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    host() if given.get("host") else work(given)
