"""Measure (kafka): a tumbling count from a topic of JSON, beside Structured Streaming with Spark's own connector.

Both read the same topic of three partitions, with as many messages a run, and write the windows that close as Parquet.
What is timed is each run, from the messages to its files. `tools/kafka_bench.py` starts a broker and takes the measure.
"""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timedelta
from typing import Any

from anabranch.bench import peers
from anabranch.bench.figures import Figure, Outcome, Setting, at_least, median
from anabranch.bench.subject import Subject

#: Where the broker is.
BROKERS = "ANABRANCH_BENCH_BROKERS"
NATIVE = "Structured Streaming"
NOTE = "Spark's Kafka connector, RocksDB, windows appended to Parquet files as they close"
START = datetime(2024, 5, 1)
PARTITIONS, KEYS = 3, 100
#: Messages a run; runs that are not timed come first.
SIZES: tuple[int, ...] = (10_000, 100_000, 500_000)
WARMING, RUNS = 2, 5
VIEW = (
    "SELECT k, window_start, count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 10 SECONDS)"
    " GROUP BY k, window_start EMIT ON WINDOW CLOSE"
)


def tumbling_count(setting: Setting) -> Outcome:
    """(kafka) Messages a second of a tumbling count, for small and large runs."""
    brokers = os.environ.get(BROKERS)
    if brokers is None:
        setting.say(f"(kafka) is left out: {BROKERS} does not say where a broker is; see tools/kafka_bench.py")
        return Outcome(())
    figures = []
    phases: dict[str, dict[str, float]] = {}
    for size in [each // 100 for each in SIZES] if setting.brief else SIZES:
        setting.say(f"(kafka) runs of {size:,} messages")
        topic = f"bench-{os.getpid()}-{size}"
        count = size * (WARMING + RUNS)
        produce(brokers, topic, count)
        what = f"tumbling count, runs of {size:,} messages"
        ours, phases[f"(kafka) {what}"] = _ours(setting, brokers, topic, size)
        theirs = _native(setting, brokers, topic, size)
        speeds = [size / median(each[WARMING : WARMING + RUNS]) for each in (ours, theirs)]
        figures.append(Figure("kafka", what, NATIVE, speeds[0], speeds[1], "messages/s", at_least(2.0), NOTE))
    return Outcome(tuple(figures), phases=phases)


def produce(brokers: str, topic: str, count: int) -> None:
    """A second of event time for every thousandth part of the messages, by turns to each partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    client = {"bootstrap.servers": brokers, "log_level": 0}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({**client, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    times = [(START + timedelta(seconds=second)).isoformat() + "Z" for second in range(1001)]
    for id in range(count):
        text = f'{{"id":{id},"ts":"{times[id * 1000 // count]}","k":"k{id * 7919 % KEYS}","n":{id % 9}}}'
        while True:
            try:
                producer.produce(topic, text, partition=id % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(600) == 0


def _ours(setting: Setting, brokers: str, topic: str, size: int) -> tuple[list[float], dict[str, float]]:
    stream = (
        "CREATE STREAM s (id BIGINT, ts TIMESTAMP, k STRING, n BIGINT, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
        f" FROM kafka(brokers => '{brokers}', topic => '{topic}', format => 'json')"
    )
    with Subject(setting.work / "home", setting.spark, setting.work, {"v": VIEW}, {"s": stream}) as home:
        taken = home.drain(max_rows=size)
        phases = {name: round(value / len(taken), 1) for name, value in home.phases().items()}
        home.session.sql("ADVANCE STREAM s TO END")
        _check("Anabranch", home.session.sql("SELECT k, c FROM v").toArrow().to_pylist(), size * (WARMING + RUNS), True)
    return taken, phases


def _native(setting: Setting, brokers: str, topic: str, size: int) -> tuple[float, ...]:
    from pyspark.sql import functions as F

    read = setting.streaming.readStream.format("kafka")
    options = {
        "kafka.bootstrap.servers": brokers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(size),
    }
    values = read.options(**options).load().selectExpr("CAST(value AS STRING) AS text")
    parsed = values.select(F.from_json("text", "id BIGINT, ts TIMESTAMP, k STRING, n BIGINT").alias("row"))
    rows = parsed.select("row.*").withWatermark("ts", "5 seconds")
    counted = rows.groupBy("k", F.window("ts", "10 seconds").alias("w")).agg(F.expr("count(*) AS c"))
    work = setting.work / "kafka-native"
    shutil.rmtree(work, ignore_errors=True)
    runs = peers.appended(counted.selectExpr("k", "w.start AS window_start", "c"), work, "windows").runs
    found = setting.streaming.read.parquet(str(work / "windows")).select("k", "c").toArrow().to_pylist()
    _check(NATIVE, found, size * (WARMING + RUNS), False)
    return runs


def _check(who: str, rows: list[dict[str, Any]], count: int, whole: bool) -> None:
    """All messages are counted; by the native query those of windows that its watermark has closed."""
    found = sum(row["c"] for row in rows)
    if found > count or (whole and found < count) or found < count * 0.9:
        raise AssertionError(f"{who} counted {found:,} of {count:,} messages")
