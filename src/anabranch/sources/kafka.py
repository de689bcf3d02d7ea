"""Topics of Kafka: each partition is a log with a position and progress of its own.

A stretch is a range of offsets of each partition that has something new. Which ones it is stands in the record of the
run, and nowhere else: no offset is committed to Kafka. Spark's tasks read the messages of the ranges and make rows of
them, so that a value that does not parse is a bad row with its topic, partition and offset.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources import avro_values, json_values, parts, why
from anabranch.sources.base import PARTITION, BadRow, Source, Stretch
from anabranch.sources.kafka_client import (
    COLUMNS,
    CONNECTION,
    TOPIC,
    Cluster,
    Partition,
    Range,
    batch_of,
    fetch,
    fetch_ranges,
    settings,
)
from anabranch.sources.kafka_offsets import joined, milliseconds_of, offsets_of, share, sliced
from anabranch.sources.quotes import Dialect
from anabranch.sources.registry import Kind, Opening, Option, WrongOption
from anabranch.sql.text import quote_name
from anabranch.types import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: What one run takes at the most when nothing else is said, in messages; and what one task of Spark reads.
MOST_MESSAGES, MOST_OF_A_TASK = 10_000_000, 500_000
#: No more messages, and bytes of them, are read by the driver, which spares the start of a job.
BY_DRIVER, BYTES_BY_DRIVER = 2_000, 256 << 20
#: Partitions that the driver reads at once.
READERS = 4
#: After so many runs in a row whose values are not plain, the driver does not try them any more.
DECLINED_IN_A_ROW = 3
#: What a message is taken to be long before it is read.
MESSAGE_BYTES = 100
#: The columns of a stream of texts or bytes that declares none.
PLAIN = ("key", "value", "offset")
HIDDEN = (
    Field("_key", "string"),
    Field("_topic", "string"),
    Field("_partition", "string"),
    Field("_offset", "bigint"),
    Field("_timestamp", "timestamp"),
    Field("_headers", COLUMNS["headers"]),
)
#: What each of them is made of, and how.
_MADE = {
    "key": ("key", "CAST(key AS STRING)"),
    "value": ("value", "CAST(value AS STRING)"),
    "offset": ("offset", "offset"),
    "_key": ("key", "CAST(key AS STRING)"),
    "_topic": ("topic", "topic"),
    "_offset": ("offset", "offset"),
    "_timestamp": ("milliseconds", "IF(milliseconds < 0, NULL, timestamp_millis(milliseconds))"),
    "_headers": ("headers", "headers"),
}

#: Whether a text holds one document of JSON: Spark reads the first, whatever stands behind it. In one pair of braces
#: there is room for one; else a mark that no text can hold, its own digest, has to come right behind the text.
_MARKED = """from_json(concat('[', text, ',"', md5(text), '"]'), 'array<string>')"""
_ONE_DOCUMENT = (
    rf"(text RLIKE '^\\s*[{{][^{{}}]*[}}]\\s*$' OR coalesce(size({_MARKED}) = 2 AND {_MARKED}[1] = md5(text), false))"
)


class KafkaSource(Source):
    """The messages of one topic, or of all whose names match a pattern."""

    endless = True

    def __init__(self, opening: Opening) -> None:
        options = opening.options
        self.options = options
        self.topic: str | None = options.get("topic")
        self.pattern: str | None = options.get("pattern")
        self.declared = opening.fields
        self.format = options.get("format") or self._format()
        self.typed = self.format == "raw"
        self.committed_only = options.get("isolation", "read_committed") == "read_committed"
        self.skips_gaps = opening.skips_gaps
        self.strict, self.inferred = opening.on_schema_change == "fail", opening.inferred
        self.spark = opening.spark
        self.cluster = Cluster(options)
        self.waits = False
        self._names: list[str] | None = None
        self._declined = 0
        self._fetched_messages: dict[Range, pa.Table] = {}
        if self.declared is not None:
            self._check_columns(self.declared)

    def _format(self) -> str:
        own = [field for field in self.declared or () if not field.name.startswith("_")]
        return "json" if any(field.name.lower() not in PLAIN for field in own) else "text"

    def fields(self) -> tuple[Field, ...]:
        if self.format == "avro":
            if self.topic is None and "registry" in self.options:
                hint = "CREATE STREAM s (a BIGINT, ...) FROM kafka(...)"
                raise SourceError("the columns of several topics have to be named", hint=hint)
            self.declared = self._avro.columns(self.topic)
            return self.declared
        if self.format not in ("text", "raw"):
            raise SourceError(
                f"the columns of {self.format} messages have to be named",
                hint="CREATE STREAM s (a BIGINT, ...) FROM kafka(...); without a format they are key, value and offset",
            )
        kind = "string" if self.format == "text" else "binary"
        self.declared = (Field("key", kind), Field("value", kind), Field("offset", "bigint"))
        return self.declared

    def _check_columns(self, fields: Sequence[Field]) -> None:
        hidden = {field.name: field.type for field in HIDDEN}
        plain = {"key": "string", "value": "string", "offset": "bigint"} if self.format in ("text", "raw") else {}
        for field in fields:
            name = field.name.lower()
            type = {**hidden, **plain}.get(name)
            if plain and type is None:
                raise SourceError(
                    f"a message has no column {field.name}, but key, value and offset",
                    hint="format => 'json' or 'csv' reads columns from the value",
                )
            if type is not None and field.type != type and not (type == "string" and field.type == "binary"):
                raise SourceError(f"{field.name} of a message is a {type.upper()}, not a {field.type.upper()}")
            if name == "_partition" and field.type != "string":
                raise SourceError("_partition of a message is a STRING", hint="CAST(_partition AS INT) in the query")

    # ---- positions

    def partitions(self) -> list[str]:
        if self._names is None:
            self._look()
        return self._names or [""]

    def _name(self, topic: str, number: int) -> str:
        return str(number) if self.topic is not None else f"{topic}/{number}"

    def _look(self) -> tuple[dict[str, str], list[Partition]]:
        """The topics with what tells them apart, and their partitions as they are now."""
        topics = [self.topic] if self.topic is not None else self.cluster.matching(str(self.pattern))
        described = self.cluster.describe(topics)
        counts = {topic: count for topic, (_, count) in described.items()}
        found = self.cluster.look(counts, committed=self.committed_only)
        self._names = [self._name(each.topic, each.number) for each in found]
        return {topic: id for topic, (id, _) in described.items()}, found

    def next(self, position: Any, max_rows: int | None) -> Stretch | None:
        self.cluster.known |= position is not None
        ids, there = self._look()
        known: Mapping[str, Any] = position or {}
        bad: list[BadRow] = []
        begins = {} if position is not None else self._begins(ids, there)
        ranges: list[Range] = []
        for each in there:
            before = known.get(each.topic, {})
            at = before.get("offsets", {}).get(str(each.number))
            if at is None:
                at = begins.get((each.topic, each.number), each.low)
            else:
                at = self._checked(each, at, before.get("id"), ids[each.topic], bad)
            ranges.append(Range(each.topic, each.number, at, max(at, each.high)))
        taken = share(ranges, min(max_rows or MOST_MESSAGES, MOST_MESSAGES))
        self.waits = any(one.end < all.end for one, all in zip(taken, ranges, strict=True))
        new = [each for each in taken if each.end > each.start]
        # Where a stream starts that does not start with the first message is said by its first run, if it is empty too.
        if not new and not bad and (position is not None or self._start == "earliest"):
            return None
        after = {topic: dict(partitions) for topic, partitions in known.items()}
        for topic, id in ids.items():
            offsets = {str(each.partition): each.end for each in taken if each.topic == topic}
            after[topic] = {"id": id, "offsets": offsets}
        size = sum(each.end - each.start for each in new) * MESSAGE_BYTES
        return Stretch(after, [list(each) for each in new], size, tuple(bad))

    @property
    def _start(self) -> str:
        return str(self.options.get("start", "earliest"))

    def _begins(self, ids: Mapping[str, str], there: Sequence[Partition]) -> dict[tuple[str, int], int]:
        """Where a new stream starts to read each partition that does not start with its first message."""
        start = self._start
        if start == "earliest":
            return {}
        ends = {(each.topic, each.number): each.high for each in there}
        if start == "latest":
            return ends
        given = offsets_of(start, self.topic)
        if given is not None:
            places = {(each.topic, each.number): each for each in there}
            for place, offset in given.items():
                if place not in places or not places[place].low <= offset <= places[place].high:
                    each = places.get(place)
                    has = f"it has {each.low} to {each.high}" if each is not None else "there is no such partition"
                    raise SourceError(f"topic {place[0]}, partition {place[1]}: cannot start at offset {offset}: {has}")
            return given
        counts = {topic: sum(each.topic == topic for each in there) for topic in ids}
        found = self.cluster.since(counts, milliseconds_of(start))
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}

    def _checked(self, each: Partition, at: int, id: str | None, now: str, bad: list[BadRow]) -> int:
        """Where to go on in a partition; what is gone is an error, or is reported and skipped."""
        if id != now:
            gone, continues_at = f"the topic was recreated: offset {at} belongs to the old topic", each.low
        elif at < each.low:
            last = f" to {each.low - 1:,}" if each.low - at > 1 else ""
            gone, continues_at = f"offset {at:,}{last} is gone before it was read", each.low
        elif at > each.high:
            gone, continues_at = f"offset {at:,} is gone: the partition ends at {each.high:,}", each.high
        else:
            return at
        if not self.skips_gaps:
            raise SourceError(
                f"topic {each.topic}, partition {each.number}: {gone}",
                hint="keep messages for longer (retention.ms); ON GAP SKIP continues without them, and reports it",
            )
        bad.append(BadRow(f"{each.topic}/{each.number}", at, gone, None))
        return continues_at

    def committed(self, stretch: Stretch) -> None:
        self._fetched_messages.clear()

    def arrow_rows(self, captured: Any, columns: Collection[str] | None) -> pa.Table | None:
        """Messages of flat JSON, read by the driver; once a few runs had others, Spark is asked at once."""
        if self.format != "json" or "timestamp_format" in self.options or self._declined >= DECLINED_IN_A_ROW:
            return None
        import pyarrow as pa

        ranges = joined([Range(*each) for each in captured])
        with ThreadPoolExecutor(READERS) as pool:  # one is decoded while others come
            values = list(pool.map(partial(self._decoded, most=BYTES_BY_DRIVER // max(1, len(ranges))), ranges))
        found = None
        if ranges and None not in values:
            messages = pa.concat_tables([self._fetched_messages[each] for each in ranges])
            if messages.num_rows:
                found = self._columns_of_messages(messages, pa.concat_tables(values), columns)
        self._declined = 0 if found is not None else self._declined + 1
        return found

    def _columns_of_messages(
        self, messages: pa.Table, values: pa.Table, columns: Collection[str] | None
    ) -> pa.Table | None:
        import pyarrow as pa

        from anabranch.engine.frames import arrow_schema

        assert self.declared is not None
        fields = [field for field in self.declared if columns is None or field.name in columns]
        made: dict[str, Any] = {}
        try:
            for field, each in zip(fields, arrow_schema(fields), strict=True):
                name = field.name.lower()
                if not name.startswith("_"):
                    made[field.name] = values.column(field.name)
                elif name != PARTITION:
                    made[field.name] = _arrow_column(messages.column(_MADE[name][0]), name, each.type)
        except pa.ArrowException:
            return None  # a key that is no text
        if columns is not None and PARTITION in columns:
            number = messages.column("partition").cast(pa.string())
            made[PARTITION] = number if self.topic is not None else _joined_names(messages.column("topic"), number)
        return pa.table(made)

    # ---- rows

    def read(self, captured: list[Any]) -> DataFrame:
        ranges = joined([Range(*each) for stretch in captured for each in stretch])
        return self._rows(self._messages(ranges))

    def _messages(self, ranges: Sequence[Range]) -> DataFrame:
        """The messages of ranges: read by the driver if there are few, else by Spark's tasks."""
        import pyarrow as pa

        spark, consumer_settings = self.spark(), self._consumer_settings
        columns = [name for name in COLUMNS if name in self._needed]
        if self.format == "avro":
            return self._avro_messages(ranges, columns)
        known = all(each in self._fetched_messages for each in ranges)
        if known or sum(each.end - each.start for each in ranges) <= BY_DRIVER:
            few = [self._fetched(each, BYTES_BY_DRIVER) for each in ranges]
            if few and None not in few:
                return spark.createDataFrame(pa.concat_tables(few).select(columns))
        slices = [part for each in ranges for part in sliced(each, MOST_OF_A_TASK)]
        work = partial(fetch_ranges, consumer_settings, slices, columns)
        schema = ", ".join(f"{name} {COLUMNS[name]}" for name in columns)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the version of pandas, which has nothing to do here
            return spark.range(0, len(slices), 1, max(1, len(slices))).mapInArrow(work, schema)

    @property
    def _avro(self) -> avro_values.Decoding:
        return avro_values.Decoding.of(self.options, self._values, strict=self.strict, inferred=self.inferred)

    def _avro_messages(self, ranges: Sequence[Range], columns: Sequence[str]) -> DataFrame:
        """Messages with the fields of their values, decoded by Spark's tasks."""
        from anabranch.engine.frames import arrow_schema

        slices = [part for each in ranges for part in sliced(each, MOST_OF_A_TASK)]
        work = partial(
            _decoded_ranges, self._consumer_settings, slices, columns, self._avro, arrow_schema(self._values)
        )
        types = [(name, COLUMNS[name]) for name in columns if name != "value"]
        types += [*((f"v{at}", field.type) for at, field in enumerate(self._values)), ("wrong", "string")]
        schema = ", ".join(f"{name} {type}" for name, type in types)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.spark().range(0, len(slices), 1, max(1, len(slices))).mapInArrow(work, schema)

    @property
    def _needed(self) -> set[str]:
        names = [field.name.lower() for field in self.declared or ()]
        made = {_MADE[name][0] for name in names if name in _MADE and (name.startswith("_") or not self._decodes)}
        return {"topic", "partition", "offset", "value", *made}

    @property
    def _decodes(self) -> bool:
        return self.format not in ("text", "raw")

    @property
    def _consumer_settings(self) -> dict[str, Any]:
        level = "read_committed" if self.committed_only else "read_uncommitted"
        return {**settings(self.options), "isolation.level": level}

    def _fetched(self, wanted: Range, most: int) -> pa.Table | None:
        """The messages of a range, read by the driver and kept until they are committed; None for more bytes."""
        import pyarrow as pa

        if wanted not in self._fetched_messages:
            batches, size = [], 0
            for batch in fetch(self._consumer_settings, wanted, self._needed):
                batches.append(batch)
                size += batch.nbytes
                if size > most:
                    return None
            # Not an empty batch among others: Spark would read no further.
            schema = batch_of([], wanted, self._needed).schema
            self._fetched_messages[wanted] = pa.Table.from_batches(batches, schema)
        return self._fetched_messages[wanted]

    def _decoded(self, wanted: Range, most: int) -> pa.Table | None:
        """The values of a range as columns; None if that is Spark's to do."""
        messages = self._fetched(wanted, most)
        return None if messages is None else json_values.columns_of(messages.column("value"), self._values)

    def _rows(self, messages: DataFrame) -> DataFrame:
        assert self.declared is not None
        corrupt, items = "CAST(NULL AS STRING)", []
        places = {field.name: f"v{at}" for at, field in enumerate(self._values)} if self.format == "avro" else {}
        if places:
            corrupt = "wrong"
        elif self._decodes:
            messages = messages.withColumn("text", _expression("CAST(value AS STRING)"))
            messages = messages.withColumn("row", _expression(self._parsed))
            unfit = "IF(text = '' OR (text IS NOT NULL AND row IS NULL), text, row._corrupt)"
            if self.format == "json":
                unfit = f"IF(NOT coalesce({_ONE_DOCUMENT}, true), text, {unfit})"
            corrupt = f"IF(NOT is_valid_utf8(text), make_valid_utf8(text), {unfit})"
        elif self.format == "text":
            texts = [f"CAST({name} AS STRING)" for name in ("key", "value") if name in messages.columns]
            wrong = " OR ".join(f"NOT is_valid_utf8({text})" for text in texts)
            corrupt = f"IF({wrong}, make_valid_utf8(CAST(value AS STRING)), NULL)"
        for field in self.declared:
            name = field.name.lower()
            if name == "_partition":
                continue
            if name.startswith("_") or not self._decodes:
                column, text = _MADE[name]
                items.append(f"{column if field.type == 'binary' else text} AS {quote_name(field.name)}")
            else:
                items.append(f"{places.get(field.name) or f'row.{quote_name(field.name)}'} AS {quote_name(field.name)}")
        number = "CAST(partition AS STRING)"
        name = number if self.topic is not None else f"concat(topic, '/', {number})"
        origin = f"concat(topic, '/', {number}, '#offset=', offset)"
        return messages.selectExpr(*items, f"{corrupt} AS _corrupt", f"{origin} AS _origin", f"{name} AS _partition")

    @property
    def _values(self) -> tuple[Field, ...]:
        """The columns that are read from the value."""
        return tuple(field for field in self.declared or () if not field.name.startswith("_"))

    @property
    def _parsed(self) -> str:
        schema = ", ".join(
            f"{quote_name(field.name)} {field.type}" for field in (*self._values, Field("_corrupt", "string"))
        )
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
        if self.format == "csv":
            options |= {"sep": self.options.get("sep", ","), "escape": '"'}
        if "timestamp_format" in self.options:
            options["timestampFormat"] = self.options["timestamp_format"]
        listed = ", ".join(_literal(text) for pair in options.items() for text in pair)
        # Spark parses once for each filter above, and once more for the rows behind it, unless the text may be another
        # one each time. It never is: no number is below zero.
        text = "IF(monotonically_increasing_id() < 0, NULL, text)"
        return f"from_{'csv' if self.format == 'csv' else 'json'}({text}, {_literal(schema)}, map({listed}))"

    def explain(self, rows: Sequence[tuple[str, str]]) -> list[why.Why]:
        """The offsets of messages that are no rows of the stream, and why they are none."""
        offsets = [parts.file_and_start(origin)[1] for origin, _ in rows]
        if not self._decodes:
            return [why.Why("it is no text in UTF-8", None, offset) for offset in offsets]
        if self.format == "avro":
            from anabranch.engine.frames import arrow_schema

            schema = arrow_schema(self._values)
            explained = [avro_values.why(bytes.fromhex(raw), self._avro, schema) for _, raw in rows]
            return [why.Why(*each, offset) for each, offset in zip(explained, offsets, strict=True)]
        format = "csv" if self.format == "csv" else "json"
        dialect = Dialect.of(format, {"sep": self.options["sep"]} if "sep" in self.options else {})
        names = {origin: tuple(field.name for field in self._values) for origin, _ in rows}
        reasons = why.reasons(self.spark(), rows, format, dialect, names, self._values)
        if format == "json":
            reasons = [
                why.Why("there is more in it than one JSON document", None, None) if _has_more_json(text) else reason
                for (_, text), reason in zip(rows, reasons, strict=True)
            ]
        return [reason._replace(line=offset) for reason, offset in zip(reasons, offsets, strict=True)]


def _decoded_ranges(
    consumer_settings: Mapping[str, Any],
    ranges: Sequence[Range],
    columns: Sequence[str],
    decoding: avro_values.Decoding,
    schema: pa.Schema,
    places: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What a task of Spark does for Avro."""
    return avro_values.decode_all(fetch_ranges(consumer_settings, ranges, columns, places), decoding, schema)


def _has_more_json(text: str) -> bool:
    """Whether something stands behind the first document of JSON in a text."""
    try:
        start = len(text) - len(text.lstrip())
        return bool(text[json.JSONDecoder().raw_decode(text, start)[1] :].strip())
    except (ValueError, RecursionError):
        return False


def _arrow_column(column: Any, name: str, type: Any) -> Any:
    """What a stream has of a message besides its value."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if name == "_timestamp":
        return compute.if_else(compute.less(column, 0), None, column).cast(pa.timestamp("ms", "UTC")).cast(type)
    return column.cast(type)


def _joined_names(topics: Any, numbers: Any) -> Any:
    import pyarrow.compute as compute

    return compute.binary_join_element_wise(topics, numbers, "/")


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _expression(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)


def _check(options: Mapping[str, Any]) -> None:
    topic, pattern, start = (options.get(name) for name in ("topic", "pattern", "start"))
    if (topic is None) == (pattern is None):
        raise SourceError("kafka needs a topic, or a pattern for the names of topics", hint=f"as in {EXAMPLE}")
    if topic is not None and not TOPIC.fullmatch(str(topic)):
        raise WrongOption("topic", f"{topic!r} cannot be the name of a topic")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise WrongOption("pattern", f"the pattern is not a regular expression: {error}") from None
    avro_values.check(options)
    if start not in (None, "earliest", "latest") and offsets_of(str(start), topic) is None:
        milliseconds_of(str(start))


EXAMPLE = "kafka(brokers => 'localhost:9092', topic => 'bids', format => 'json')"
KINDS = (
    Kind(
        name="kafka",
        doc="topics of Kafka, each partition with progress of its own",
        example=EXAMPLE,
        options=(
            *CONNECTION[:1],
            Option(name="topic", doc="the name of a topic"),
            Option(name="pattern", doc="a regular expression for names of topics, instead of one"),
            Option(
                name="format",
                doc="what values are; 'json' where columns are named, else 'text'",
                choices=("json", "csv", "avro", "text", "raw"),
            ),
            *avro_values.OPTIONS,
            Option(name="sep", doc="what stands between the values of csv", default=","),
            Option(name="timestamp_format", doc="how times are written in json and csv, as Spark says it"),
            Option(
                name="start",
                doc="'earliest', 'latest', a time, or offsets as JSON: where a new stream starts",
                default="earliest",
            ),
            Option(
                name="isolation",
                doc="whether messages of transactions count before they are committed",
                default="read_committed",
                choices=("read_committed", "read_uncommitted"),
            ),
            *CONNECTION[1:],
        ),
        stream=KafkaSource,
        live=True,
        gaps=True,
        on_schema_change=("ignore",),
        hidden=HIDDEN,
        check=_check,
        modules=("confluent_kafka", "pandas"),
        extra="kafka",
        abilities=("cut by rows", "seek by time"),
    ),
)
