"""Aggregates that Spark does not have give what they mean in plain Python, on partials and over rows, for any order of
the rows and any cut into runs."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable

import pytest

from anabranch.errors import SqlError
from anabranch.sql.own_aggregates import OWN_AGGREGATES
from anabranch.testing import Harness, assert_same_rows, cuts, shuffled

Row = tuple[str | None, float | None, float | None, str]
ROWS: list[Row] = [
    (k, v, w, f"1970-01-01 00:0{second // 60}:{second % 60:02}")
    for k, v, w, second in (
        ("a", 1.0, 2.0, 1), ("b", 8.0, 1.0, 2), ("a", 4.0, 5.0, 61), (None, 3.0, 1.0, 62), ("b", 2.0, 9.0, 5),
        ("a", 16.0, 3.0, 121), ("b", None, 4.0, 70),
    )
]  # fmt: skip


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


#: What each is in Python: of the values of its parameters, without rows where one of them is NULL.
MEANINGS: dict[str, Callable[..., float]] = {"geomean": geomean, "product": math.prod}


def meaning(name: str, rows: list[Row]) -> float | None:
    count = len(OWN_AGGREGATES[name].parameters)
    given = [row[1 : 1 + count] for row in rows if None not in row[1 : 1 + count]]
    return round(MEANINGS[name](*(list(column) for column in zip(*given, strict=True))), 9) if given else None


@pytest.fixture
def stream(home: Harness) -> Harness:
    columns = "k STRING, v DOUBLE, w DOUBLE, ts TIMESTAMP"
    home.sql(f"CREATE STREAM s ({columns}, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)")
    return home


def test_each_has_a_meaning_to_be_compared_with() -> None:
    assert MEANINGS.keys() == OWN_AGGREGATES.keys()


@pytest.mark.parametrize("name", MEANINGS)
def test_an_aggregate_of_our_own_is_kept_up_to_date_on_partials(stream: Harness, name: str) -> None:
    called = f"{name}({', '.join(('v', 'w')[: len(OWN_AGGREGATES[name].parameters)])})"
    stream.sql(f"CREATE VIEW keys AS SELECT k, round({called}, 9) AS g FROM s GROUP BY k EMIT CHANGES")
    stream.sql(f"CREATE VIEW whole AS SELECT round({called} FILTER (WHERE v > 1), 9) AS g FROM s")
    stream.sql(
        f"CREATE VIEW minutes AS SELECT window_start, round({called}, 9) AS g"
        f" FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY window_start HAVING {called} > 2"
    )
    assert any("partial aggregate of stream s" in line for (line,) in stream.query("EXPLAIN minutes"))
    chance = random.Random(name)
    stream.insert_runs("s", cuts(shuffled(ROWS, chance), chance))
    keys: dict[str | None, list[Row]] = defaultdict(list)
    minutes: dict[str, list[Row]] = defaultdict(list)
    for row in ROWS:
        keys[row[0]].append(row)
        minutes[row[3][:16]].append(row)
    assert_same_rows(stream.query("SELECT * FROM keys"), [(k, meaning(name, each)) for k, each in keys.items()])
    more = [row for row in ROWS if row[1] is not None and row[1] > 1]
    assert stream.query("SELECT * FROM whole") == [(meaning(name, more),)]
    expected = [found for each in minutes.values() if (found := meaning(name, each)) is not None and found > 2]
    assert_same_rows(stream.query("SELECT g FROM minutes"), [(each,) for each in expected])
    assert stream.query(f"SELECT round({called}, 9) FROM s") == [(meaning(name, ROWS),)]


def test_its_column_is_called_as_it_is_written(stream: Harness) -> None:
    stream.sql("CREATE VIEW named AS SELECT k, geomean(v) FROM s GROUP BY k")
    for query in ("SELECT * FROM named", "SELECT k, geomean(v) FROM s GROUP BY k"):
        assert stream.session.sql(query).toArrow().column_names == ["k", "geomean(v)"]


def test_what_it_does_not_take_is_underlined(stream: Harness) -> None:
    with pytest.raises(SqlError, match="geomean takes 1 argument, not 2") as found:
        stream.sql("CREATE VIEW wrong AS SELECT k, geomean(v, 2) AS g FROM s GROUP BY k")
    assert found.value.text is not None
    assert found.value.text[found.value.start : found.value.end] == "geomean(v, 2)"
