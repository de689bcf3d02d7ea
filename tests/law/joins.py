"""Random joins of small streams, and what DuckDB answers to them over all rows at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

Row = tuple[Any, ...]
Run = tuple[str, list[Row]]

NAMES = "abcd"
COLUMNS = "id INT, k INT, s STRING, v BIGINT, ts TIMESTAMP"
CHANGES = f"{COLUMNS}, n INT"
#: The first two can be late and are forgotten once they are; of the third all rows are needed for good. The fourth has
#: changes: rows that come and rows that are taken back, in any order.
STREAMS = "; ".join(
    [
        *(f"CREATE STREAM {name} ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)" for name in "ab"),
        f"CREATE STREAM c ({COLUMNS})",
        f"CREATE STREAM d ({CHANGES}, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)",
    ]
)
NET = "NET(d, n)"
_NET_IN_DUCKDB = (
    "(SELECT id, k, s, v, ts FROM (SELECT id, k, s, v, ts, sum(n) AS n FROM d GROUP BY ALL) AS t, range(99) AS r(i)"
    " WHERE r.i < t.n)"
)
_TOP = (
    "SELECT id, k, s, v, ts FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM {0})"
    " WHERE r <= 2"
)
_SUMS = "SELECT max(id) AS id, k, max(s) AS s, sum(v) AS v, max(ts) AS ts FROM {0} GROUP BY k"
#: Views below the joins: three that take rows back, one whose changes nobody keeps.
BELOW = {
    "top_a": (_TOP.format("a"), " EMIT CHANGES"),
    "sums_b": (_SUMS.format("b"), " EMIT CHANGES"),
    "some_c": ("SELECT id, k, s, v, ts FROM c WHERE v > 0", ""),
    "net_d": (f"SELECT * FROM {NET}", " EMIT CHANGES"),
}
_INSIDE = (_TOP, _SUMS, "SELECT DISTINCT 0 AS id, k, s, v, ts FROM {0}", "SELECT * FROM {0} WHERE v > 0")

EQUAL = (
    "x.k = y.k",
    "x.k = y.k",
    "x.k = y.k AND x.s = y.s",
    "x.k = y.v",
    "x.k <=> y.k",
    "x.k = y.k + 1",
    "x.k = y.k AND x.v = y.k",
)
BANDS = (
    "y.ts BETWEEN x.ts - INTERVAL 5 SECONDS AND x.ts + INTERVAL 10 SECONDS",
    "y.ts >= x.ts AND y.ts < x.ts + INTERVAL 8 SECONDS",
    "x.ts > y.ts - INTERVAL 4 SECONDS AND x.ts <= y.ts + INTERVAL 4 SECONDS",
    "x.ts <= y.ts AND x.v < y.v",
    "y.v BETWEEN x.v - 1 AND x.v",
)
REST = ("x.v <> y.v", "x.v > 1", "y.s = 'p'", "(x.v = 1 OR y.v = 2)")
OUTER = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
HALF = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")

#: Each has been wrong once.
KNOWN = (
    "SELECT x.id AS i, y.id AS j FROM a AS x FULL JOIN b AS y ON x.k = y.k LEFT ANTI JOIN c AS z ON y.k = z.k",
    "SELECT x.id AS i, y.id AS j FROM a AS x FULL JOIN b AS y ON x.k = y.k AND x.v = y.k",
    "SELECT x.id AS i, z.id AS j FROM a AS x LEFT JOIN b AS y ON x.k = y.k AND x.v = y.k LEFT JOIN c AS z ON x.v = z.k",
    "SELECT x.id AS i, z.id AS j FROM a AS x LEFT JOIN b AS y ON x.k = y.k LEFT JOIN c AS z ON y.k <=> z.k",
    "SELECT x.id AS i, x.k, x.v FROM a AS x JOIN (SELECT k, max(v) AS v FROM a GROUP BY k) AS y"
    " ON x.k = y.k AND x.v = y.v",
)

_BAND = "x.k = y.k AND y.ts BETWEEN x.ts - INTERVAL 5 SECONDS AND x.ts + INTERVAL 10 SECONDS"
#: Views that take rows back, bound in time: as they are, filtered, beside a stream, and with rows that have no partner.
NEAR = (
    f"SELECT x.id AS i, y.id AS j FROM top_a AS x JOIN net_d AS y ON {_BAND}",
    f"SELECT x.id AS i, x.ts, y.k AS j FROM net_d AS x FULL JOIN (SELECT DISTINCT k, ts FROM b) AS y ON {_BAND}",
    f"SELECT x.id AS i, x.v FROM (SELECT * FROM {NET} WHERE v > 0) AS x LEFT ANTI JOIN b AS y ON {_BAND}",
    f"SELECT x.id AS i, y.n FROM b AS x JOIN (SELECT k, ts, count(*) AS n FROM a GROUP BY k, ts) AS y ON {_BAND}",
)

PAIRS = "x.id AS i, x.k AS k, x.v AS v, y.id AS j, y.s AS t"
ROWS = "x.id AS i, x.k AS k, x.s AS t, x.v AS v"


def _input(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.5:
        return chance.choice(("a", "b", "c", NET))
    if kind < 0.75:
        return chance.choice(sorted(BELOW))
    return f"({chance.choice(_INSIDE).format(chance.choice(('a', 'b', 'c', NET)))})"


def _condition(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.35:
        return chance.choice(EQUAL)
    if kind < 0.6:
        return f"{chance.choice(EQUAL)} AND {chance.choice(BANDS)}"
    if kind < 0.8:
        return chance.choice(BANDS)
    return f"{chance.choice(EQUAL)} AND {chance.choice(REST)}"


def _of(condition: str, x: str, y: str) -> str:
    return condition.replace("x.", "\0").replace("y.", f"{y}.").replace("\0", f"{x}.")


def query(chance: random.Random) -> str:
    """A join of two or three inputs, of any kind, by any condition; now and then grouped."""
    x, y = _input(chance), _input(chance)
    if chance.random() < 0.2:
        y = x
    on = _condition(chance)
    shape = chance.random()
    if shape < 0.1:
        return f"SELECT {PAIRS} FROM {x} AS x, {y} AS y WHERE {on}"
    if shape < 0.2:
        return f"SELECT {ROWS} FROM {x} AS x {chance.choice(HALF)} {y} AS y ON {on}"
    if shape < 0.28:
        sign = chance.choice(("", "NOT "))
        return f"SELECT {ROWS} FROM {x} AS x WHERE {sign}EXISTS (SELECT 1 FROM {y} AS y WHERE {on})"
    if shape < 0.32:
        return f"SELECT {ROWS} FROM {x} AS x WHERE x.k NOT IN (SELECT y.k FROM {y} AS y)"
    if shape < 0.37:
        return f"SELECT k, x.id AS i, y.id AS j, y.s AS t FROM {x} AS x {chance.choice(OUTER)} {y} AS y USING (k)"
    joined = f"{x} AS x {chance.choice(OUTER)} {y} AS y ON {on}"
    if shape < 0.55:
        third = _of(_condition(chance), chance.choice("xy"), "z")
        joined += f" {chance.choice((*OUTER, *HALF))} {_input(chance)} AS z ON {third}"
    if shape < 0.75:
        return f"SELECT {PAIRS} FROM {joined}"
    if shape < 0.85:
        return f"SELECT x.k AS k, count(*) AS n, sum(y.v) AS w, max(x.s) AS s FROM {joined} GROUP BY x.k"
    if shape < 0.92:
        return f"SELECT t, count(*) AS n, sum(v) AS v FROM (SELECT {PAIRS} FROM {joined}) GROUP BY t"
    return f"SELECT DISTINCT x.k AS k, y.s AS t FROM {joined}"


def rows(chance: random.Random, count: int) -> list[Row]:
    """Rows with one key that many of them have, some without a key, some twice, some an hour early."""
    made: list[Row] = []
    for number in range(count):
        if made and chance.random() < 0.12:
            made.append(chance.choice(made))
            continue
        second = chance.randrange(40) + (3600 if chance.random() < 0.06 else 0)
        key = 1 if chance.random() < 0.4 else chance.choice((None, 0, 2, 3, 4))
        text = chance.choice(("p", "q", None))
        made.append((number, key, text, chance.randrange(4), datetime(2026, 1, 1) + timedelta(seconds=second)))
    return made


def changes(chance: random.Random, count: int) -> list[Row]:
    """The same as changes: some rows are taken back, of which some come again, and all of it in any order."""
    made: list[Row] = []
    for row in rows(chance, count):
        made += [(*row, sign) for sign in chance.choice(((1,), (1,), (2,), (1, -1), (1, -1, 1), (2, -1)))]
    chance.shuffle(made)
    return made


@dataclass
class Case:
    """Views, rows and runs of one seed."""

    seed: int
    views: dict[str, str]
    runs: list[Run]
    chance: random.Random = field(repr=False)

    @staticmethod
    def make(seed: int, views: int, runs: int, size: int, known: tuple[str, ...] = ()) -> Case:
        chance = random.Random(seed)
        queries = {f"v{number}": text for number, text in enumerate((*known, *(query(chance) for _ in range(views))))}
        cut: list[Run] = []
        for name in NAMES:
            left = (changes if name == "d" else rows)(chance, chance.randint(size // 2, size))
            pieces = chance.randint(1, max(1, 2 * runs // 3 - 1))
            places = sorted(chance.sample(range(1, len(left)), min(pieces, len(left)) - 1))
            bounds = zip([0, *places], [*places, len(left)], strict=True)
            cut += [(name, left[start:end]) for start, end in bounds]
        chance.shuffle(cut)
        return Case(seed, queries, cut, chance)

    def answers(self, runs: list[Run], names: list[str]) -> dict[str, list[Row]]:
        """What DuckDB answers over all rows of some runs."""
        import duckdb

        given: dict[str, list[Row]] = {name: [] for name in NAMES}
        for name, piece in runs:
            given[name] += piece
        with duckdb.connect() as duck:
            for name, each in given.items():
                duck.sql(f"CREATE TABLE {name} ({CHANGES if name == 'd' else COLUMNS})")
                if each:
                    duck.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(each[0]))})", each)
            for name, (text, _) in BELOW.items():
                duck.sql(f"CREATE VIEW {name} AS {_for_duckdb(text)}")
            return {name: duck.sql(_for_duckdb(self.views[name])).fetchall() for name in names}


def _for_duckdb(text: str) -> str:
    spellings = (("LEFT SEMI", "SEMI"), ("LEFT ANTI", "ANTI"), ("<=>", "IS NOT DISTINCT FROM"), (NET, _NET_IN_DUCKDB))
    for ours, duckdb in spellings:
        text = text.replace(ours, duckdb)
    return text
