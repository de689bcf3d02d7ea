"""Take the measure (kafka) of the bench: starts a broker, and Spark with its own connector, both from Maven.

.venv/bin/python tools/kafka_bench.py [--size MESSAGES] [options of anabranch bench]

With --size, only runs of so many messages are measured.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from anabranch.bench import kafka, main
from anabranch.bench.kafka import BROKERS
from sources.kafka_server import CACHE, broker

#: The newest connector that there is, with a token provider of a version that runs beside this Spark.
CONNECTOR = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": "4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": "4.0.0",
    "org.apache.kafka:kafka-clients": "3.9.1",
    "org.apache.commons:commons-pool2": "2.12.1",
}
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def jars() -> Path:
    """The folder with the connector, fetched if it is not there yet."""
    target = CACHE / f"spark-kafka-{CONNECTOR['org.apache.spark:spark-sql-kafka-0-10_2.13']}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        listed = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{ALONE}"
            "</dependency>"
            for (group, name), version in ((each.split(":"), version) for each, version in CONNECTOR.items())
        )
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            pom = '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            pom += "<groupId>anabranch</groupId><artifactId>connector</artifactId><version>1</version>"
            Path(folder, "pom.xml").write_text(f"{pom}<dependencies>{listed}</dependencies></project>")
            command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
            subprocess.run(command, cwd=folder, check=True, timeout=240)
            Path(folder, "jars").rename(target)
    return target


if __name__ == "__main__":
    with broker() as server:
        os.environ[BROKERS] = server.brokers
        listed = ",".join(map(str, sorted(jars().glob("*.jar"))))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {listed} pyspark-shell"
        parser = argparse.ArgumentParser()
        parser.add_argument("--size", type=int)
        given, others = parser.parse_known_args()
        kafka.SIZES = (given.size,) if given.size else kafka.SIZES
        sys.exit(main(["--only", "kafka", *others]))
