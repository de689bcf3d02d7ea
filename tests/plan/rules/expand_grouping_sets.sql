-- Sets of groups as unions.

SELECT k, m, sum(n) AS n FROM s WHERE n > 0 GROUP BY ROLLUP (k, m) ORDER BY k
=> SELECT k, m, sum(n) AS `n` FROM s WHERE n > 0 GROUP BY k, m UNION ALL SELECT k, CAST(NULL AS INT) AS `m`, sum(n) AS `n` FROM s WHERE n > 0 GROUP BY k UNION ALL SELECT CAST(NULL AS INT) AS `k`, CAST(NULL AS INT) AS `m`, sum(n) AS `n` FROM s WHERE n > 0 GROUP BY (1 = 1) ORDER BY k

SELECT s.k AS key, grouping(k) AS a, grouping_id() AS b, max(k) FROM s GROUP BY CUBE (k, m) HAVING coalesce(k, 'x') > 'a'
=> SELECT k AS `key`, CAST(0 AS TINYINT) AS `a`, CAST(0 AS BIGINT) AS `b`, max(k) AS `max(k)` FROM s GROUP BY k, m HAVING coalesce(k, 'x') > 'a' UNION ALL SELECT k AS `key`, CAST(0 AS TINYINT) AS `a`, CAST(1 AS BIGINT) AS `b`, max(k) AS `max(k)` FROM s GROUP BY k HAVING coalesce(k, 'x') > 'a' UNION ALL SELECT CAST(NULL AS INT) AS `key`, CAST(1 AS TINYINT) AS `a`, CAST(2 AS BIGINT) AS `b`, max(k) AS `max(k)` FROM s GROUP BY m HAVING coalesce((CAST(NULL AS INT)), 'x') > 'a' UNION ALL SELECT CAST(NULL AS INT) AS `key`, CAST(1 AS TINYINT) AS `a`, CAST(3 AS BIGINT) AS `b`, max(k) AS `max(k)` FROM s GROUP BY (1 = 1) HAVING coalesce((CAST(NULL AS INT)), 'x') > 'a'

SELECT n, lower(k) AS l, count(*) AS c FROM s GROUP BY n, GROUPING SETS ((lower(k)), ())
=> SELECT n, lower(k) AS `l`, count(*) AS `c` FROM s GROUP BY n, lower(k) UNION ALL SELECT n, CAST(NULL AS INT) AS `l`, count(*) AS `c` FROM s GROUP BY n

SELECT k, count(*) AS c FROM s GROUP BY k WITH ROLLUP
=> SELECT k, count(*) AS `c` FROM s GROUP BY k UNION ALL SELECT CAST(NULL AS INT) AS `k`, count(*) AS `c` FROM s GROUP BY (1 = 1)

SELECT k, m, count(*) AS c FROM s GROUP BY k, m GROUPING SETS ((k), (m))
=> SELECT k, CAST(NULL AS INT) AS `m`, count(*) AS `c` FROM s GROUP BY k UNION ALL SELECT CAST(NULL AS INT) AS `k`, m, count(*) AS `c` FROM s GROUP BY m

SELECT k, count(*) AS c FROM (SELECT k, max(n) AS n FROM s GROUP BY k) AS x GROUP BY ROLLUP (k)
=> WITH x AS (SELECT k, max(n) AS `n` FROM s GROUP BY k) SELECT k, count(*) AS `c` FROM x AS x GROUP BY k UNION ALL SELECT CAST(NULL AS INT) AS `k`, count(*) AS `c` FROM x AS x GROUP BY (1 = 1)

SELECT count(*) FROM s GROUP BY GROUPING SETS (())

SELECT k, rank() OVER (ORDER BY count(*)) AS r FROM s GROUP BY ROLLUP (k)

SELECT k, count(*) AS c FROM s GROUP BY ROLLUP (k) ORDER BY c LIMIT 3
=> SELECT k, count(*) AS `c` FROM s GROUP BY k UNION ALL SELECT CAST(NULL AS INT) AS `k`, count(*) AS `c` FROM s GROUP BY (1 = 1) ORDER BY c LIMIT 3

SELECT DISTINCT count(*) AS c FROM s GROUP BY ROLLUP (k)
=> SELECT DISTINCT c FROM (SELECT count(*) AS `c` FROM s GROUP BY k UNION ALL SELECT count(*) AS `c` FROM s GROUP BY (1 = 1)) AS __q0

SELECT upper(lower(k) || m) AS u, count(*) AS c FROM s GROUP BY ROLLUP (lower(k) || m, k)
=> SELECT upper((lower(k) || m)) AS `u`, count(*) AS `c` FROM s GROUP BY lower(k) || m, k UNION ALL SELECT upper((lower(k) || m)) AS `u`, count(*) AS `c` FROM s GROUP BY lower(k) || m UNION ALL SELECT upper((CAST(NULL AS INT))) AS `u`, count(*) AS `c` FROM s GROUP BY (1 = 1)

SELECT k FROM s GROUP BY ROLLUP (k) UNION SELECT m FROM s
=> (SELECT k FROM s GROUP BY k UNION ALL SELECT CAST(NULL AS INT) AS `k` FROM s GROUP BY (1 = 1)) UNION SELECT m AS `k` FROM s
