"""How the JVMs of the tests run; and the archive of Spark's classes, which they map in instead of reading them again.

    python tests/spark_classes.py .venv/spark.jsa

Many processes of the tests start Spark, and half of what a start costs is reading and checking its classes.
A JVM that the archive does not fit (another Java, other jars) goes on without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

#: One that lives for seconds takes 40 % less CPU when it compiles quickly instead of well. That leaves 48 MB for code
#: that is compiled: a worker used 43 of them after seven minutes, and had compiled 61,000 methods, of which 23,000 were
#: still there.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
ARCHIVE = Path(sys.prefix) / "spark.jsa"


def options() -> str:
    """The options of every JVM that tests start."""
    return f"{JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else JAVA


SCRIPT = """
CREATE STREAM a (k STRING, n INT, p DECIMAL(9, 2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE STREAM b (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE TABLE t (k STRING, name STRING);
CREATE VIEW closed AS SELECT k, window_start, count(*) AS c, sum(n) AS s, max(p) AS m
  FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL 10 SECONDS) GROUP BY k, window_start EMIT ON WINDOW CLOSE;
CREATE VIEW pairs AS SELECT a.k, a.n, b.n AS bn, name FROM a LEFT JOIN b ON a.k = b.k
  AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 5 SECONDS LEFT JOIN t ON t.k = a.k EMIT CHANGES;
CREATE VIEW firsts AS SELECT * FROM (SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY ts) AS r FROM a)
  WHERE r < 3 EMIT CHANGES;
CREATE VIEW totals AS SELECT k, avg(n) AS n, count(DISTINCT p) AS d FROM a WHERE k IN (SELECT k FROM b) GROUP BY k
"""


def main(archive: Path) -> None:
    made = archive.resolve().with_suffix(".made")  # whole, or not there
    made.unlink(missing_ok=True)
    java = f"{JAVA} -Xlog:disable -XX:ArchiveClassesAtExit={made}"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f'--driver-java-options "{java}" pyspark-shell'
    from anabranch.engine import spark as sessions
    from anabranch.testing import Harness

    spark = sessions.start("local[2]", {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"})
    with tempfile.TemporaryDirectory() as folder:
        # Compiled, as people have it, and not, as most tests do.
        for compiled in ("true", "false"):
            spark.conf.set("spark.sql.codegen.wholeStage", compiled)
            spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled == "true" else "NO_CODEGEN")
            with Harness(Path(folder) / compiled, spark, backend="spark" if compiled == "true" else "auto") as home:
                home.sql(SCRIPT)
                for second in (5, 15, 25):
                    ts = f"2026-01-01 00:00:{second:02}"
                    home.insert("a", [("x", second, "1.5", ts), (None, 1, None, ts)])
                    home.insert("b", [("x", second, ts)])
                for view in ("closed", "pairs", "firsts", "totals"):
                    home.table(view)
                rows = [("x", 1, "1.5", ts)] * 400
                home.insert("a", rows)
                home.batch("SELECT k, sum(n) FROM a GROUP BY k", a=rows)
                home.compact()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)  # it writes the archive at its end
    made.replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
