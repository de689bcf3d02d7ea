"""Files of Avro: a header with the schema, then records. fastavro reads them in Spark's tasks, a file as a whole."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import avro_values
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: The column that says which file a row is from.
FILE = "_file"
_BATCH_ROWS = 10_000


def check_installed() -> None:
    if importlib.util.find_spec("fastavro") is None:
        raise SourceError("Avro files need the Python package fastavro", hint="pip install 'anabranch[avro]'")


def schema_of(file: IO[bytes]) -> Any:
    """The schema in the header of a file; raises ValueError if there is none."""
    import fastavro

    try:
        schema: Any = fastavro.reader(file).writer_schema
    except Exception as error:  # whatever hostile bytes do to it
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its rows are not records of named fields")
    return schema


def count_rows(file: IO[bytes]) -> int:
    """How many rows a file has, without decoding any."""
    import fastavro

    try:
        return sum(int(block.num_records) for block in fastavro.block_reader(file))
    except Exception:  # whoever reads the file tells what is wrong
        return 0


def frame(spark: SparkSession, names: Sequence[str], fields: Sequence[Field]) -> DataFrame:
    """The rows of files that have these columns, and FILE."""
    from anabranch.engine.frames import arrow_schema

    parts = min(len(names), 8 * spark.sparkContext.defaultParallelism)
    work = partial(_decoded, [list(names[part::parts]) for part in range(parts)], arrow_schema(fields))
    types = ", ".join(f"{quote_name(field.name)} {field.type}" for field in (*fields, Field(FILE, "string")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the version of pandas, which has nothing to do here
        return spark.range(0, parts, 1, parts).mapInArrow(work, types)


def _decoded(
    groups: Sequence[Sequence[str]], columns: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for group in batch.column(0).to_pylist():
            for name in groups[group]:
                yield from _rows(name, columns)


def _rows(name: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    import fastavro
    import pyarrow as pa

    with open(name, "rb") as file:
        try:
            records: Iterator[Any] = iter(fastavro.reader(file))
            while some := list(islice(records, _BATCH_ROWS)):
                rows = [{key.lower(): value for key, value in record.items()} for record in some]
                arrays = [*avro_values.arrays_of(rows, columns), pa.array([name] * len(rows), pa.string())]
                yield pa.RecordBatch.from_arrays(arrays, names=[*columns.names, FILE])
        except Exception as error:  # whatever hostile bytes do to it; a traceback of this file adds nothing
            raise RuntimeError(f"{name} is not a whole Avro file: {type(error).__name__}: {error}") from None
