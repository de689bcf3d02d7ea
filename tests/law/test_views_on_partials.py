"""The law for views over views that aggregate: pushed down to partials or gathered, in whatever order rows come and
however they are cut, the answer is that of one batch query over all rows."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from anabranch.testing import Harness, assert_same_rows, cuts, shuffled
from law.queries import HOP, STREAM, TUMBLE, WINDOW
from law.rows import EPOCH, Row

pytestmark = pytest.mark.spark

VALUES = (
    "count(*) AS c, count(n) FILTER (WHERE b) AS f, sum(n) AS s, sum(d) AS e, min(d) AS l, max(k) AS h, avg(n) AS a,"
    " count(DISTINCT n) AS u"
)
INNER = {
    "by_key": f"SELECT k, g, {VALUES} FROM s WHERE n > -3 OR n IS NULL GROUP BY k, g",
    "minutes": f"SELECT {WINDOW}, k, g, {VALUES} FROM {TUMBLE} GROUP BY {WINDOW}, k, g",
    "hops": f"SELECT {WINDOW}, k, g, {VALUES} FROM {HOP} WHERE g = 1 GROUP BY {WINDOW}, k, g",
    "large": f"SELECT k, g, {VALUES} FROM s GROUP BY k, g HAVING count(*) > 1",
}
COLUMNS = "cfselhau"


def composed(chance: random.Random, view: str) -> tuple[str, bool]:
    """A query over a view, and whether it can be pushed down to the partials of that."""
    windowed = view in ("minutes", "hops")
    keys = ["k", "g", "coalesce(g, 0) + 1", *(["window_end", "date_trunc('MINUTE', window_start)"] if windowed else [])]
    by = chance.sample(keys, chance.randint(0, 2))
    calls = [(chance.choice(("sum", "min", "max")), chance.choice(COLUMNS)) for _ in range(2)]
    if chance.random() < 0.7:
        calls = [chance.choice((("sum", "c"), ("sum", "f"), ("sum", "s"), ("sum", "e"), ("min", "l"), ("max", "h")))]
    calls = [(name, "s" if name == "sum" and column == "h" else column) for name, column in calls]
    legal = all((name == "sum" and column in "cfse") or (name, column) in (("min", "l"), ("max", "h"))
                for name, column in calls)  # fmt: skip
    condition = chance.choice(["", "", " WHERE g = 1", " WHERE k > 'a' OR g IS NULL", " WHERE c > 1"])
    shown = [*(f"{key} AS k{at}" for at, key in enumerate(by))]
    shown += [f"{name}({column}) AS v{at}" for at, (name, column) in enumerate(calls)]
    having = chance.choice(["", f" HAVING {calls[0][0]}({calls[0][1]}) IS NOT NULL"]) if by else ""
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    query = f"SELECT {', '.join(shown)} FROM {view}{condition}{grouped}{having}"
    return query, legal and view != "large" and "c > 1" not in condition


def rows(chance: random.Random, count: int) -> list[Row]:
    return [
        (
            chance.choice([None, "a", "b", "b", ""]), chance.choice([None, 0, 1, 1]),
            chance.choice([None, -5, 0, 1, 7]), chance.choice([None, "1.10", "-3.33", "0.00"]),
            chance.choice([None, 0.5]), chance.choice([None, True, False]),
            EPOCH.replace(minute=chance.choice([0, 0, 1]), second=chance.randint(0, 59)),
        )
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("backend", ["auto", "spark"])
def test_compositions_give_the_batch_answer(home: Harness, backend: str) -> None:
    chance = random.Random(f"{backend} {os.environ.get('ANABRANCH_EXAMPLES', '')}")
    home.sql(f"SET anabranch.backend = '{backend}'")
    home.sql(STREAM)
    for name, query in INNER.items():
        home.sql(f"CREATE VIEW {name} AS {query}")
    views: dict[str, tuple[str, str, bool]] = {}
    given = shuffled(rows(chance, 40), chance)
    runs = list(cuts(given, chance))[:3]

    def make(count: int) -> None:
        for _ in range(count):
            inner = chance.choice(sorted(INNER))
            query, legal = composed(chance, inner)
            views[f"v{len(views)}"] = (inner, query, legal)
            home.sql(f"CREATE VIEW v{len(views) - 1} AS {query}")

    def compare(seen: Sequence[Row], names: Sequence[str]) -> None:
        for name in names:
            inner, query, legal = views[name]
            wanted = home.batch(f"WITH {inner} AS ({INNER[inner]}) {query}", s=seen)
            assert_same_rows(home.table(name), wanted, query)
            said = "\n".join(row[0] for row in home.query(f"EXPLAIN {name}"))
            assert (f"pushed down to the partials of {inner}" in said) == legal, f"{query}\n{said}"
            assert (f"gather {inner}, because" in said) != legal, f"{query}\n{said}"

    make(3)
    for number, run in enumerate(runs):
        home.insert("s", run)
        if number == 0:  # before the partials of several runs are one
            make(3)
    compare([row for run in runs for row in run], list(views))
    home.compact()
    home.reopen()
    home.insert("s", given[:3])
    compare([row for run in runs for row in run] + list(given[:3]), [name for name in views if views[name][2]][:2])


def test_a_view_that_starts_later_or_has_fired_is_gathered(home: Harness) -> None:
    home.sql(STREAM)
    home.insert("s", [("a", 1, 1, None, None, None, EPOCH)])
    inner = f"SELECT k, {WINDOW}, count(*) AS c FROM {TUMBLE} GROUP BY k, {WINDOW}"
    home.sql(f"CREATE VIEW closed AS {inner} EMIT ON WINDOW CLOSE; CREATE VIEW later AS {inner} START AT NOW")
    home.sql(f"CREATE VIEW kept AS {inner} EMIT CHANGES; CREATE VIEW plain AS {inner}")
    above = ("closed", "later", "kept", "plain")
    for name in above:
        home.sql(f"CREATE VIEW of_{name} AS SELECT k, sum(c) AS c FROM {name} GROUP BY k")
    home.insert("s", [("a", 1, 1, None, None, None, EPOCH), ("b", 1, 1, None, None, None, EPOCH)])
    for name in above:
        wanted = home.query(f"SELECT k, sum(c) AS c FROM (SELECT * FROM {name}) GROUP BY k")
        assert_same_rows(home.table(f"of_{name}"), [tuple(row) for row in wanted], name)
        said = "\n".join(row[0] for row in home.query(f"EXPLAIN of_{name}"))
        assert ("pushed down" in said) == (name == "plain"), said
    assert sorted(home.table("of_plain")) == [("a", 2), ("b", 1)]
    assert sorted(home.table("of_later")) == [("a", 1), ("b", 1)]
    with pytest.raises(Exception, match="of_plain"):
        home.sql("DROP VIEW plain")


def test_a_view_goes_on_with_the_partials_of_an_altered_one(home: Harness) -> None:
    given = rows(random.Random(3), 30)
    home.sql(STREAM)
    above = "SELECT k, sum(c) AS c FROM minutes GROUP BY k"
    home.sql(f"CREATE VIEW minutes AS {INNER['minutes']}; CREATE VIEW of_k AS {above}")
    home.insert("s", given[:20])
    asked = {
        "pushed down": INNER["minutes"].replace("GROUP BY", "WHERE n > 0 GROUP BY"),
        "gather minutes": INNER["minutes"] + " HAVING count(*) > 1",
    }
    for number, (how, query) in enumerate(asked.items()):
        home.sql(f"ALTER VIEW minutes AS {query}")
        home.insert("s", given[20 + 5 * number : 25 + 5 * number])
        wanted = home.batch(f"WITH minutes AS ({query}) {above}", s=given[: 25 + 5 * number])
        assert_same_rows(home.table("of_k"), wanted, query)
        said = "\n".join(row[0] for row in home.query("EXPLAIN of_k"))
        assert how in said, said
