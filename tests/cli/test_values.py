"""Values as text and as JSON, for every type that Spark hands over."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from anabranch.cli.values import column_texts, date_text, json_formatter, plain_values, timestamp_text

UTC = dt.timezone.utc
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 120000, UTC)
NAN, INF = float("nan"), float("inf")

CASES: list[tuple[pa.DataType, Any, str, str]] = [
    (pa.bool_(), True, "true", "true"),
    (pa.int8(), -5, "-5", "-5"),
    (pa.int64(), 2**62, str(2**62), str(2**62)),
    (pa.float64(), 1.0, "1.0", "1.0"),
    (pa.float64(), 0.1, "0.1", "0.1"),
    (pa.float64(), NAN, "NaN", '"NaN"'),
    (pa.float64(), -INF, "-Infinity", '"-Infinity"'),
    (pa.float32(), 0.1, "0.1", "0.1"),
    (pa.float32(), 3.4028234663852886e38, "3.4028235e+38", "3.4028235e+38"),
    (pa.float32(), INF, "Infinity", '"Infinity"'),
    (pa.decimal128(38, 10), Decimal("0E-10"), "0.0000000000", "0.0000000000"),
    (
        pa.decimal128(38, 2),
        Decimal("123456789012345678901234567890.10"),
    )
    + ("123456789012345678901234567890.10",) * 2,
    (pa.string(), 'a "b"\nc', 'a "b"\nc', r'"a \"b\"\nc"'),
    (pa.large_string(), "žluť", "žluť", '"žluť"'),
    (pa.binary(), b"\x01\xff", "[01 FF]", '"Af8="'),
    (pa.date32(), dt.date(2026, 2, 28), "2026-02-28", '"2026-02-28"'),
    (pa.timestamp("us", "UTC"), NOON, "2026-01-01 12:00:00.12", '"2026-01-01T12:00:00.12Z"'),
    (pa.timestamp("us", "Europe/Prague"), NOON, "2026-01-01 12:00:00.12", '"2026-01-01T12:00:00.12Z"'),
    (pa.timestamp("us"), dt.datetime(2026, 1, 1), "2026-01-01 00:00:00", '"2026-01-01T00:00:00"'),
    (pa.timestamp("ns"), dt.datetime(2026, 1, 1), "2026-01-01 00:00:00", '"2026-01-01T00:00:00"'),
    (pa.timestamp("s"), dt.datetime(1969, 12, 31, 23), "1969-12-31 23:00:00", '"1969-12-31T23:00:00"'),
    (pa.time64("us"), dt.time(1, 2, 3, 500000), "01:02:03.5", '"01:02:03.5"'),
    (
        pa.duration("us"),
        dt.timedelta(days=1, hours=2, seconds=3),
        "INTERVAL '1 02:00:03' DAY TO SECOND",
        "\"INTERVAL '1 02:00:03' DAY TO SECOND\"",
    ),
    (pa.list_(pa.int32()), [1, None, 3], "[1, NULL, 3]", "[1, null, 3]"),
    (pa.list_(pa.timestamp("us", "UTC")), [NOON], "[2026-01-01 12:00:00.12]", '["2026-01-01T12:00:00.12Z"]'),
    (
        pa.struct([("a", pa.int32()), ("b", pa.date32())]),
        {"a": None, "b": dt.date(1970, 1, 2)},
        "{NULL, 1970-01-02}",
        '{"a": null, "b": "1970-01-02"}',
    ),
    (
        pa.map_(pa.string(), pa.float64()),
        [("x", NAN), ("y", None)],
        "{x -> NaN, y -> NULL}",
        '{"x": "NaN", "y": null}',
    ),
    (
        pa.map_(pa.int32(), pa.list_(pa.timestamp("us"))),
        [(1, [dt.datetime(2026, 1, 1)])],
        "{1 -> [2026-01-01 00:00:00]}",
        '{"1": ["2026-01-01T00:00:00"]}',
    ),
    (pa.dictionary(pa.int32(), pa.string()), "x", "x", '"x"'),
]


@pytest.mark.parametrize(("kind", "value", "text", "as_json"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)])
def test_every_type(kind: pa.DataType, value: Any, text: str, as_json: str) -> None:
    column = pa.chunked_array([pa.array([value, None], kind), pa.array([], kind)])
    assert list(column_texts(column)) == [text, None]
    plain = plain_values(column)
    written = json_formatter(kind)(plain[0])
    assert written == as_json
    json.loads(written)
    hash(plain[0])


def test_a_column_of_nulls() -> None:
    assert list(column_texts(pa.chunked_array([pa.nulls(2)]))) == [None, None]


def test_equal_values_are_equal_when_plain() -> None:
    kind = pa.list_(pa.float64())
    first, second = (plain_values(pa.array([[NAN, 1.0]], kind))[0] for _ in range(2))
    assert first == second
    assert len({first, second}) == 1


def test_dates_are_those_of_the_calendar() -> None:
    first, last = dt.date.min.toordinal(), dt.date.max.toordinal()
    for ordinal in [*range(first, last, 97), *range(719_163 - 3000, 719_163 + 30_000), last]:
        assert date_text(ordinal - 719_163) == dt.date.fromordinal(ordinal).isoformat()


def test_years_that_python_does_not_have() -> None:
    assert date_text(2_932_897) == "+10000-01-01"
    assert date_text(-719_528) == "0000-01-01"
    assert date_text(-719_529) == "-0001-12-31"
    latest = pa.chunked_array([pa.array([2**63 - 1], pa.timestamp("us", "UTC"))])
    assert list(column_texts(latest)) == ["+294247-01-10 04:00:54.775807"]
    assert timestamp_text(-1) == "1969-12-31 23:59:59.999999"
