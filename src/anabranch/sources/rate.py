"""A generator: so many rows a second since the stream was made. Good for trying things out, and for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.sources.base import Source, Stretch
from anabranch.sources.registry import Kind, Option
from anabranch.types import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = (Field("timestamp", "timestamp"), Field("value", "bigint"))


class RateSource(Source):
    """Row n has value n and the time `start + n / rows_per_second`."""

    def __init__(self, options: Mapping[str, Any], spark: Callable[[], SparkSession], now: Callable[[], int]) -> None:
        self.speed = options.get("rows_per_second", 10)
        self.total = options.get("rows") or None
        self.width = options.get("partitions", 1)
        self.spark = spark
        self.now = now
        self.endless = self.total is None

    cheap = True
    idles = False

    def fields(self) -> tuple[Field, ...]:
        return FIELDS

    def partitions(self) -> list[str]:
        return [str(number) for number in range(self.width)]

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        start = self.now() if position is None else position["start"]
        first = 0 if position is None else position["rows"]
        # The first stretch of an endless generator is empty: it fixes the moment the clock starts.
        last = (self.now() - start) * self.speed // 1_000_000 if self.total is None else self.total
        last = min(last, first + (max_rows or 10_000_000))
        if last <= first and position is not None:
            return None
        return Stretch({"start": start, "rows": last}, [start, first, last], (last - first) * 16)

    def read(self, captured: list[Any]) -> DataFrame:
        spark = self.spark()
        frames = [self._stretch(spark, *stretch) for stretch in captured]
        whole = frames[0] if frames else self._stretch(spark, 0, 0, 0)
        for frame in frames[1:]:
            whole = whole.unionAll(frame)
        return whole

    def _stretch(self, spark: SparkSession, start: int, first: int, last: int) -> DataFrame:
        step = f"timestamp_micros({start} + id * 1000000 div {self.speed})"
        return spark.range(first, last).selectExpr(
            f"{step} AS timestamp",
            "id AS value",
            "CAST(NULL AS STRING) AS _corrupt",
            "'rate' AS _origin",
            f"CAST(id % {self.width} AS STRING) AS _partition",
        )


KINDS = (
    Kind(
        name="rate",
        doc="made up: so many rows a second, from the moment when the stream is made",
        example="rate(rows_per_second => 10)",
        options=(
            Option(name="rows_per_second", doc="how many", type="whole", default=10, low=1),
            Option(name="rows", doc="the stream ends after so many; 0 for none", type="whole", default=0, low=0),
            Option(name="partitions", doc="parts with progress of their own", type="whole", default=1, low=1),
        ),
        stream=lambda opening: RateSource(opening.options, opening.spark, opening.now),
        columns=FIELDS,
        live=True,
        abilities=("cut by rows",),
    ),
)
