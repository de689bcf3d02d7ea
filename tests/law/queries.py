"""The questions that the laws are checked with: a stream of everything, a small table beside it, and many queries."""

from __future__ import annotations

STREAM = """
CREATE STREAM s (k STRING, g INT, n INT, d DECIMAL(12,2), x DOUBLE, b BOOLEAN, ts TIMESTAMP,
                 WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)
"""
TABLE = """
CREATE TABLE names (k STRING, label STRING, w INT);
INSERT INTO names VALUES ('a', 'alpha', 1), ('b', 'beta', 2), ('b', 'again', 3), (NULL, 'nobody', 4),
                         ('', 'empty', NULL)
"""

TUMBLE = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
HOP = "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)"
WINDOW = "window_start, window_end"

#: Windowed aggregates that EMIT ON WINDOW CLOSE takes too.
WINDOWED = {
    "tumble": f"SELECT {WINDOW}, count(*) AS c, sum(n) AS n, sum(d) AS d FROM {TUMBLE} GROUP BY {WINDOW}",
    "tumble by key": f"SELECT k, {WINDOW}, count(n) AS c, min(d) AS l, max(d) AS h FROM {TUMBLE} GROUP BY k, {WINDOW}",
    "tumble, other spelling": "SELECT window_end, g, sum(n) AS n FROM TUMBLE(s, ts, INTERVAL 30 SECONDS)"
    " GROUP BY window_start, window_end, g",
    "tumble with an offset": "SELECT window_start, count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts),"
    " INTERVAL '10' SECOND, INTERVAL '3' SECOND) GROUP BY window_start, window_end",
    "hop": f"SELECT {WINDOW}, count(*) AS c, sum(n) AS n FROM {HOP} GROUP BY {WINDOW}",
    "hop by key": f"SELECT {WINDOW}, k, avg(n) AS a, count(d) AS c FROM {HOP} GROUP BY {WINDOW}, k",
    "hop, size no multiple of the slide": f"SELECT {WINDOW}, g, sum(d) AS d FROM HOP(s, ts, INTERVAL 4 SECONDS,"
    f" INTERVAL 10 SECONDS) GROUP BY {WINDOW}, g",
    "hop, slide larger than the size": f"SELECT {WINDOW}, count(*) AS c FROM HOP(s, ts, INTERVAL 10 SECONDS,"
    f" INTERVAL 3 SECONDS) GROUP BY {WINDOW}",
    "hop with an offset": f"SELECT {WINDOW}, max(n) AS n FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND,"
    f" INTERVAL '10' SECOND, INTERVAL '2' SECOND) GROUP BY {WINDOW}",
    "window of a filter": f"SELECT {WINDOW}, k, count(*) AS c FROM {TUMBLE} WHERE n > 0 GROUP BY {WINDOW}, k",
    "window with filters on aggregates": f"SELECT {WINDOW}, k, count(*) FILTER (WHERE b) AS t,"
    f" sum(n) FILTER (WHERE g = 1) AS o FROM {TUMBLE} GROUP BY {WINDOW}, k",
    "window with an expression": f"SELECT {WINDOW}, sum(n) + count(*) AS e, upper(k) AS u FROM {TUMBLE}"
    f" GROUP BY {WINDOW}, k",
    "window having": f"SELECT {WINDOW}, g, count(*) AS c FROM {TUMBLE} GROUP BY {WINDOW}, g HAVING count(*) > 1",
    "window without its key": f"SELECT window_start, count(*) AS c FROM {TUMBLE} GROUP BY {WINDOW}, g",
    "window time": f"SELECT window_time, min(k) AS l, max(ts) AS h FROM {HOP} GROUP BY {WINDOW}, window_time",
    "window of exact spreads": f"SELECT {WINDOW}, count(DISTINCT n) AS c, bool_and(b) AS f, bool_or(b) AS e"
    f" FROM {TUMBLE} GROUP BY {WINDOW}",
    "window of medians": f"SELECT {WINDOW}, median(n) AS m, max_by(k, struct(d, k)) AS k FROM {HOP} GROUP BY {WINDOW}",
    "window of doubles": f"SELECT {WINDOW}, g, sum(x) AS s, avg(x) AS a, max(x) AS h FROM {TUMBLE}"
    f" GROUP BY {WINDOW}, g",
    "window joined with a table": f"SELECT {WINDOW}, label, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) t"
    f" JOIN names ON names.k = t.k GROUP BY {WINDOW}, label",
}

#: Everything else that a view can be.
OTHERS = {
    "no window": "SELECT k, count(*) AS c, sum(n) AS n, sum(d) AS d, avg(d) AS a FROM s GROUP BY k",
    "no aggregate": "SELECT k, g FROM s GROUP BY k, g",
    "group by all": "SELECT k, g + 1 AS h, count(*) AS c, sum(n) AS n FROM s GROUP BY ALL",
    "all columns beside an aggregate": "SELECT * EXCEPT (d, x, ts), count(*) AS c FROM s GROUP BY k, g, n, b",
    "a generator beside an aggregate": "SELECT g, explode(array(count(*), 0)) AS e FROM s GROUP BY g",
    "lateral view": "SELECT k, e FROM s LATERAL VIEW explode(array(g, 7)) t AS e WHERE n > 0",
    "lateral view, grouped": "SELECT e, count(*) AS c FROM s LATERAL VIEW explode(array(g, 7)) t AS e GROUP BY e",
    "global": "SELECT count(*) AS c, sum(n) AS n, min(ts) AS l, max(ts) AS h, avg(n) AS a FROM s",
    "global of nothing": "SELECT count(*) AS c, sum(d) AS d, max(k) AS k FROM s WHERE n > 1000000",
    "global with filters": "SELECT count(*) FILTER (WHERE b) AS t, sum(n) FILTER (WHERE k = 'a') AS a FROM s",
    "of doubles": "SELECT g, sum(x) AS s, avg(x) AS a, min(x) AS l, max(x) AS h FROM s GROUP BY g",
    "variances": "SELECT g, var_pop(n) AS a, var_samp(n) AS b, stddev(n) AS c, stddev_pop(x) AS d FROM s GROUP BY g",
    "distinct aggregates": "SELECT g, count(DISTINCT k) AS c, sum(DISTINCT n) AS n FROM s GROUP BY g",
    "distinct global": "SELECT count(DISTINCT d) AS c, sum(DISTINCT d) AS d FROM s",
    "booleans": "SELECT k, bool_and(b) AS a, bool_or(b) AS o, every(n > 0) AS e, count_if(b) AS c FROM s GROUP BY k",
    "where": "SELECT k, sum(n) AS n FROM s WHERE g = 1 AND k IS NOT NULL GROUP BY k",
    "having": "SELECT k, sum(n) AS n FROM s GROUP BY k HAVING count(*) > 1 AND sum(n) IS NOT NULL",
    "top": "SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY c DESC, k NULLS LAST LIMIT 2",
    "top with an offset": "SELECT g, sum(n) AS n FROM s GROUP BY g ORDER BY n DESC NULLS LAST, g LIMIT 2 OFFSET 1",
    "expressions over aggregates": "SELECT k, sum(n) * 2 - count(*) AS e, coalesce(max(d), 0) AS m,"
    " CASE WHEN count(*) > 2 THEN 'many' ELSE concat('few', k) END AS w FROM s GROUP BY k",
    "group by an expression": "SELECT n % 3 AS r, length(k) AS l, count(*) AS c FROM s GROUP BY n % 3, length(k)",
    "group by an alias": "SELECT coalesce(k, '-') AS name, count(*) AS c FROM s GROUP BY name",
    "group by an ordinal": "SELECT g + 1 AS h, max(n) AS n FROM s GROUP BY 1",
    "cte": "WITH t AS (SELECT k, g, sum(n) AS n FROM s GROUP BY k, g)"
    " SELECT g, max(n) AS n, count(*) AS c FROM t GROUP BY g",
    "subquery": "SELECT c, count(*) AS m FROM (SELECT k, count(*) AS c FROM s GROUP BY k) GROUP BY c",
    "max of the windows": f"SELECT max(c) AS c FROM (SELECT {WINDOW}, count(*) AS c FROM {HOP} GROUP BY {WINDOW})",
    "best of each window": f"WITH t AS (SELECT {WINDOW}, k, sum(n) AS n FROM {TUMBLE} GROUP BY {WINDOW}, k)"
    f" SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {WINDOW} ORDER BY n DESC NULLS LAST, k) AS r FROM t)"
    " WHERE r <= 2",
    "two aggregates joined": "SELECT a.k, a.c, b.c AS d FROM (SELECT k, count(*) AS c FROM s GROUP BY k) a"
    " JOIN (SELECT k, count(*) AS c FROM s WHERE b GROUP BY k) b ON a.k <=> b.k",
    "inner join with a table": "SELECT label, count(*) AS c, sum(CAST(n AS BIGINT) * w) AS e"
    " FROM s JOIN names ON s.k = names.k GROUP BY label",
    "left join with a table": "SELECT label, count(*) AS c, sum(n) AS n"
    " FROM s LEFT JOIN names m ON s.k = m.k GROUP BY label",
    "join above the aggregate": "SELECT t.k, t.c, label FROM (SELECT k, count(*) AS c FROM s GROUP BY k) t"
    " LEFT JOIN names ON names.k <=> t.k",
    "stateless": "SELECT k, n + 1 AS m, d * 2 AS e, ts FROM s WHERE g IS NULL OR g < 2",
    "windows joined": "SELECT a.k, a.n AS x, b.n AS y, a.window_end AS w FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) a JOIN"
    " TUMBLE(s, ts, INTERVAL 10 SECONDS) b ON a.window_start = b.window_start AND a.window_end = b.window_end"
    " AND a.k = b.k AND a.g < b.g",
    "windows in brackets joined": "SELECT a.k, a.n AS x, b.n AS y FROM s AS a, s AS b [RANGE TUMBLING 9 SECONDS, WA ts]"
    " WHERE a.g = b.g AND b.b",
    "band in brackets": "SELECT a.k, a.n AS x, b.n AS y FROM s AS a [RANGE 3 SECONDS OPEN, WA ts]"
    " LEFT JOIN s AS b [RANGE 2 SECONDS, WA ts] ON a.k = b.k AND b.b",
    "window over a band": "SELECT a.g, sum(b.n) [RANGE 10 SECONDS, SLIDE 5 SECONDS, WA a.ts] AS n"
    " FROM s AS a [RANGE 3 SECONDS, WA ts], s AS b [RANGE 2 SECONDS, WA ts] WHERE a.k = b.k GROUP BY a.g",
    "stateless join": "SELECT s.k, label, n FROM s LEFT JOIN names ON s.k = names.k WHERE b",
    "stateless windows": f"SELECT k, n, window_start, window_time FROM {HOP}",
    "distinct": "SELECT DISTINCT k, g FROM s",
    "window function": "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY ts, n, g, d, x, b) AS r FROM s",
    "union": "SELECT k, count(*) AS c FROM s GROUP BY k UNION ALL SELECT 'all', count(*) FROM s",
    "median": "SELECT g, percentile(n, 0.5) AS m FROM s GROUP BY g",
    "percentiles": "SELECT k, median(d) AS m, percentile(x, array(0.1, 0.9)) AS p,"
    " percentile_disc(0.3) WITHIN GROUP (ORDER BY n DESC) AS q FROM s GROUP BY k",
    "counted values": "SELECT g, mode() WITHIN GROUP (ORDER BY k) AS a, mode(d, true) FILTER (WHERE b) AS m,"
    " sort_array(collect_set(n)) AS c, sort_array(collect_list(k)) AS l FROM s GROUP BY g",
    "picked rows": "SELECT g, max_by(k, struct(n, k)) AS a, min_by(d, struct(ts, k, d)) FILTER (WHERE b) AS e FROM s"
    " GROUP BY g",
    "pairs of numbers": "SELECT k, covar_pop(n, d) AS c, regr_count(n, g) AS r, regr_sxy(g, n) AS s FROM s GROUP BY k",
    "grouping sets": "SELECT k, g, count(*) AS c FROM s GROUP BY GROUPING SETS ((k), (g), ())",
    "scalar subquery": "SELECT k, count(*) AS c FROM s GROUP BY k HAVING count(*) >= (SELECT avg(g) FROM s)",
}

QUERIES = {**WINDOWED, **OTHERS}

#: All on the keys (k), so that one table of partials serves them.
SHARING = {
    "ten": f"SELECT k, {WINDOW}, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY k, {WINDOW}",
    "thirty": f"SELECT k, {WINDOW}, sum(n) AS n FROM TUMBLE(s, ts, INTERVAL 30 SECONDS) WHERE b GROUP BY k, {WINDOW}",
    "hopping": f"SELECT k, {WINDOW}, max(d) AS d FROM HOP(s, ts, INTERVAL 10 SECONDS, INTERVAL 20 SECONDS)"
    f" GROUP BY k, {WINDOW}",
    "filtered": f"SELECT k, {WINDOW}, count(*) FILTER (WHERE n > 0) AS c FROM TUMBLE(s, ts, INTERVAL 10 SECONDS)"
    f" WHERE g > 0 GROUP BY k, {WINDOW}",
}
