"""New views where the rows of the past are gone: filled from what is there, or refused. None shows a part as if it were
all."""

from __future__ import annotations

import pytest

from anabranch.errors import NotSupported
from anabranch.testing import Harness

STREAM = "(k STRING, c STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)"
OLD = [("a", "x", 1, "2024-01-01 00:00:10"), ("a", "y", 2, "2024-01-01 00:01:10"), ("b", "x", 3, "2024-01-01 00:06:10")]
NEW = [("a", "x", 4, "2024-01-01 00:07:10"), ("c", "y", 5, "2024-01-01 00:00:20")]


def minutes(n: int, keys: str, more: str = "") -> str:
    return (
        f"SELECT window_start, {keys}, count(*) AS m, sum(n) AS n{more} FROM TUMBLE(TABLE s, DESCRIPTOR(ts),"
        f" INTERVAL {n} MINUTES) GROUP BY window_start, window_end, {keys}"
    )


#: What can be had from partials of 1 minute by k and c, with count(*) and sum(n).
REDUCED = {
    "longer": minutes(5, "k, c"),
    "fewer": minutes(1, "k"),
    "both": minutes(5, "c"),
    "closing": minutes(5, "k") + " EMIT ON WINDOW CLOSE",
    "live": "SELECT k, count(*) AS m, sum(n) AS n FROM s GROUP BY k EMIT CHANGES",
    "alone": "SELECT count(*) AS m, sum(n) AS n FROM s",
}
REFUSED = {
    "other aggregate": minutes(5, "k", ", max(n) AS most"),
    "other filter": "SELECT k, count(*) AS c FROM s WHERE n > 1 GROUP BY k",
    "other key": "SELECT upper(k) AS k, count(*) AS c FROM s GROUP BY upper(k)",
    "shorter": "SELECT window_start, count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 90 SECONDS)"
    " GROUP BY window_start, window_end",
    "rows": "SELECT k, n FROM s WHERE n > 0",
    "kept rows": "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM s",
    "join": "SELECT s.k, o.v FROM s JOIN o ON s.k = o.k EMIT CHANGES",
}


def test_what_partials_hold_is_had_from_them_and_the_rest_is_refused(home: Harness) -> None:
    home.sql(f"CREATE STREAM s {STREAM} KEEP NOTHING; CREATE STREAM o (k STRING, v INT)")
    home.sql(f"CREATE VIEW base AS {minutes(1, 'k, c')}")
    home.insert("s", OLD)
    version = home.session.version
    for name, query in REFUSED.items():
        with pytest.raises(NotSupported, match="stream s keeps no rows of the past") as refusal:
            home.sql(f"CREATE VIEW v AS {query}")
        assert "START AT NOW" in str(refusal.value), name
    assert home.session.version == version
    for name, query in REDUCED.items():
        home.sql(f"CREATE VIEW {name} AS {query}")
    home.sql(f"CREATE VIEW since AS {REFUSED['other aggregate']} START AT NOW")
    home.insert("s", NEW)
    home.compact()
    home.reopen()
    home.advance("s")
    for name, query in REDUCED.items():
        plain = query.partition(" EMIT")[0]
        assert home.table(name) == home.batch(plain, s=[*OLD, *NEW]), name
    assert home.table("since") == home.batch(REFUSED["other aggregate"], s=NEW)
    told = {name: "\n".join(line for (line,) in home.query(f"EXPLAIN {name}")) for name in ("fewer", "since")}
    assert "filled from the partials of pane table s_by_k_c" in told["fewer"]
    assert "starts with run 1 of stream s" in told["since"]


def test_views_over_views_and_their_changes_need_no_rows(home: Harness) -> None:
    """A view is read as it is; what it has is enough to keep its changes from now on."""
    home.sql(f"CREATE STREAM s {STREAM} KEEP NOTHING")
    query = "SELECT k, count(*) AS m, sum(n) AS n FROM s GROUP BY k"
    home.sql(f"CREATE VIEW base AS {query}")
    home.insert("s", OLD)
    home.sql("CREATE VIEW above AS SELECT max(n) AS n FROM base; CREATE VIEW told AS SELECT k FROM base EMIT CHANGES")
    list(home.session.subscribe("base"))
    home.insert("s", NEW)
    rows = [*OLD, *NEW]
    assert home.table("above") == home.batch(f"SELECT max(n) AS n FROM ({query})", s=rows)
    assert home.emitted("told") == home.batch(f"SELECT k FROM ({query})", s=rows)
    assert home.emitted("base") == home.batch(query, s=rows)


def test_rows_that_are_kept_since_some_run_are_not_all(home: Harness) -> None:
    """A view that starts now has the stream keep its rows from there on; one that needs those before is refused."""
    home.sql(f"CREATE STREAM s {STREAM} KEEP NOTHING")
    best = "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM s"
    home.insert("s", [])
    home.sql(f"CREATE VIEW empty AS {best}")  # there were no rows yet
    home.insert("s", OLD)
    assert home.table("empty") == home.batch(best, s=OLD)
    home.sql(f"CREATE STREAM t {STREAM} KEEP NOTHING")
    home.insert("t", OLD)
    home.sql(f"CREATE VIEW now AS {best.replace('FROM s', 'FROM t')} START AT NOW")
    home.insert("t", NEW)
    assert home.table("now") == home.batch(best, s=NEW)
    with pytest.raises(NotSupported, match="stream t keeps its rows from run 1 on, and run 0 is needed"):
        home.sql(f"CREATE VIEW v AS {best.replace('FROM s', 'FROM t')}")
    with pytest.raises(NotSupported, match="START AT NOW"):
        home.session.sql("SELECT k, count(*) AS c FROM t GROUP BY k EMIT CHANGES")
