"""An Iceberg table as a stream and in queries: each snapshot once, and what goes is told or refused."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError
from anabranch.sources import iceberg

pytest.importorskip("pyiceberg", reason="NO ICEBERG TESTS: pip install 'anabranch[iceberg]'")
pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    from pyiceberg.catalog.sql import SqlCatalog

    made = SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    made.create_namespace("shop")
    yield made
    made.close()


def some(first: int, last: int) -> pa.Table:
    numbers = list(range(first, last))
    return pa.table(
        {
            "k": pa.array([f"k{n % 3}" for n in numbers], pa.string()),
            "n": pa.array(numbers, pa.int64()),
            "at": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


def rows(session: anabranch.Session, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in session.sql(text).toArrow().to_pylist())


def there(table: Any, spark: SparkSession) -> Counter[tuple[Any, ...]]:
    """What the files of the newest snapshot have, as Spark reads them: the tests write no files of deletes."""
    paths = [task.file.file_path for task in table.refresh().scan().plan_files()]
    return Counter(map(tuple, spark.read.parquet(*paths).select("k", "n").collect()))


@pytest.mark.parametrize("near", [iceberg.NEAR_BYTES, 0])
def test_snapshots_are_rows_of_a_stream(
    spark: SparkSession, tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch, near: int
) -> None:
    monkeypatch.setattr(iceberg, "NEAR_BYTES", near)  # 0: whatever is in two files is read by tasks
    table = catalog.create_table("shop.orders", schema=some(0, 0).schema)
    folder = tmp_path / "warehouse" / "shop" / "orders"
    source = f"iceberg('{folder}', changes => true)"
    with anabranch.connect(tmp_path / "home", spark) as ab:
        ab.sql(f"CREATE STREAM c FROM {source}; CREATE VIEW now AS SELECT k, n FROM NET(c, diff)")
        ab.sql(f"CREATE STREAM p FROM iceberg('{folder}')")
        assert not rows(ab, "SELECT k, n FROM now")
        table.append(some(0, 9))
        table.append(some(9, 12))
        assert rows(ab, "SELECT k, n FROM now") == rows(ab, "SELECT k, n FROM p") == there(table, spark)
        assert rows(ab, f"SELECT k, n FROM iceberg('{folder}') WHERE at IS NOT NULL") == there(table, spark)
        table.append(some(20, 25))
        table.delete("n = 3")
    with anabranch.connect(tmp_path / "home", spark) as ab:
        table.overwrite(some(30, 33), "n >= 22")
        table.append(some(40, 44))
        assert rows(ab, "SELECT k, n FROM now") == there(table, spark)
        with pytest.raises(AnabranchError, match=r"snapshot \d+ of .* removes rows"):
            rows(ab, "SELECT k, n FROM p")
        total = sum(n for _, n in there(table, spark).elements())
        assert rows(ab, f"SELECT sum(n) FROM iceberg('{folder}')") == Counter([(total,)])
        ab.sql(f"CREATE TABLE t FROM iceberg('{folder}', lookup => 'always'); CREATE STREAM s (k STRING, n BIGINT)")
        ab.sql(
            "CREATE VIEW j AS SELECT s.n, t.k FROM s JOIN t ON s.n = t.n; INSERT INTO s VALUES ('k1', 31), ('k1', 3)"
        )
        assert rows(ab, "SELECT * FROM j") == Counter([(31, "k1")])
        (folder / "metadata" / "99999-lost.metadata.json").write_text("{}")
        with pytest.raises(AnabranchError, match="orders cannot be read"):
            rows(ab, "SELECT * FROM now")
        (folder / "metadata" / "99999-other.metadata.json").write_text("{}")
        with pytest.raises(AnabranchError, match="two metadata files of number 99999"):
            rows(ab, "SELECT * FROM now")


def add_deletes(table: Any, file: pa.Table, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot with a file of deletes, which pyiceberg does not write: its manifest says what it holds."""
    from pyiceberg import manifest
    from pyiceberg.typedef import Record

    path = Path(table.location().removeprefix("file://"), "data", f"{uuid.uuid4().hex}-deletes.parquet")
    parquet.write_table(file, path)
    made = manifest.DataFile.from_args(
        content=manifest.DataFileContent[content], file_path=f"file://{path}", file_format="PARQUET",
        partition=Record(), key_metadata=None, split_offsets=None,
        record_count=len(file), file_size_in_bytes=path.stat().st_size, column_sizes={}, value_counts={},
        null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={},
        equality_ids=[2] if content == "EQUALITY_DELETES" else None, sort_order_id=None,
    )  # fmt: skip
    made.spec_id = table.metadata.default_spec_id
    writer = manifest.ManifestWriterV2
    told = property(lambda self: {**manifest.ManifestWriter._meta.fget(self), "content": "deletes"})
    with monkeypatch.context() as patched:
        patched.setattr(writer, "content", lambda self: manifest.ManifestContent.DELETES)
        patched.setattr(writer, "_meta", told)
        with table.transaction() as change, change.update_snapshot().fast_append() as snapshot:
            snapshot.append_data_file(made)


def test_rows_that_files_of_deletes_take_away(
    spark: SparkSession, tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("shop.orders", schema=some(0, 0).schema)
    table.append(some(0, 9))
    table.append(some(9, 12))
    folder = tmp_path / "warehouse" / "shop" / "orders"
    (data,) = [task.file.file_path for task in table.scan().plan_files() if task.file.record_count == 9]
    ids = {"file_path": (pa.string(), 2147483546), "pos": (pa.int64(), 2147483545)}
    schema = pa.schema([pa.field(n, t, False, {"PARQUET:field_id": str(id)}) for n, (t, id) in ids.items()])
    with anabranch.connect(tmp_path / "home", spark) as ab:
        ab.sql(f"CREATE STREAM c FROM iceberg('{folder}', changes => true); CREATE STREAM p FROM iceberg('{folder}')")
        ab.sql("CREATE VIEW now AS SELECT k, n FROM NET(c, diff)")
        assert rows(ab, "SELECT k, n FROM now") == rows(ab, "SELECT k, n FROM p") == there(table, spark)
        add_deletes(table, pa.table({"file_path": [data] * 2, "pos": [1, 4]}, schema), "POSITION_DELETES", monkeypatch)
        left = Counter({row: count for row, count in there(table, spark).items() if row[1] not in (1, 4)})
        assert rows(ab, "SELECT k, n FROM now") == rows(ab, f"SELECT k, n FROM iceberg('{folder}')") == left
        with pytest.raises(AnabranchError, match=r"snapshot \d+ of .* removes rows"):
            rows(ab, "SELECT * FROM p")
        add_deletes(table, pa.table({"file_path": [data], "pos": [8]}, schema), "POSITION_DELETES", monkeypatch)
        table.append(some(1, 2))
        left = Counter({row: count for row, count in left.items() if row[1] != 8}) + Counter([("k1", 1)])
        assert rows(ab, "SELECT k, n FROM now") == rows(ab, f"SELECT k, n FROM iceberg('{folder}')") == left
        number = pa.schema([pa.field("n", pa.int64(), False, {"PARQUET:field_id": "2"})])
        add_deletes(table, pa.table({"n": [3]}, number), "EQUALITY_DELETES", monkeypatch)
        for text in ("SELECT * FROM now", f"SELECT * FROM iceberg('{folder}')"):
            with pytest.raises(AnabranchError, match="has equality deletes") as refused:
                rows(ab, text)
            assert "rewrite_data_files" in str(refused.value.hint)


def test_a_snapshot_that_is_gone_and_columns_that_are_none(spark: SparkSession, tmp_path: Path, catalog: Any) -> None:
    table = catalog.create_table("shop.orders", schema=some(0, 0).schema)
    table.append(some(0, 5))
    folder = tmp_path / "warehouse" / "shop" / "orders"
    with anabranch.connect(tmp_path / "home", spark) as ab:
        ab.sql(f"CREATE STREAM p FROM iceberg('{folder}')")
        assert sum(rows(ab, "SELECT * FROM p").values()) == 5
        before = table.current_snapshot().snapshot_id
        table.append(some(5, 6))
        table.append(some(6, 7))
        table.maintenance.expire_snapshots().by_ids([before, table.snapshots()[1].snapshot_id]).commit()
        with pytest.raises(AnabranchError, match=f"the snapshot {before} of .* is gone"):
            rows(ab, "SELECT * FROM p")
        nested = pa.table({"k": ["a"], "l": pa.array([[1]], pa.list_(pa.int32()))})
        catalog.create_table("shop.nested", schema=nested.schema).append(nested)
        path = tmp_path / "warehouse" / "shop" / "nested"
        with pytest.raises(AnabranchError, match=r"the column l of .* is a list<int>"):
            ab.sql(f"CREATE STREAM x FROM iceberg('{path}')")
        ab.sql(f"CREATE STREAM x (k STRING) FROM iceberg('{path}')")
        assert rows(ab, "SELECT * FROM x") == Counter([("a",)])
        for wrong, told in (("'/nowhere'", "is not the folder of an Iceberg table"), ("catalog => 'a'", "give a path")):
            with pytest.raises(AnabranchError, match=told):
                ab.sql(f"CREATE STREAM y FROM iceberg({wrong})")
        with pytest.raises(AnabranchError, match="iceberg"):
            ab.sql("CREATE VIEW v AS SELECT * FROM x; CREATE SINK z FROM v INTO iceberg('a')")
