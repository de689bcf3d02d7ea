-- Aggregates over queries that only filter and project, and columns that a query leaves unsaid.

SELECT k, sum(n) FROM (SELECT k, n FROM s) GROUP BY k
=> SELECT k, sum(n) AS `sum(n)` FROM s GROUP BY k

SELECT x.k, sum(x.n) AS n FROM (SELECT s.k, n FROM s WHERE m > 0) AS x WHERE x.n < 9 OR k = 'a' GROUP BY x.k
=> SELECT k, sum(n) AS `n` FROM s WHERE m > 0 AND (n < 9 OR k = 'a') GROUP BY k

WITH t AS (SELECT lower(k) AS name, n FROM s WHERE n > 0) SELECT name, sum(n) AS n FROM t WHERE n < 9 GROUP BY name ORDER BY name LIMIT 3
=> SELECT lower(k) AS `name`, sum(n) AS `n` FROM s WHERE n > 0 AND n < 9 GROUP BY lower(k) ORDER BY name LIMIT 3

SELECT max(c) FROM (SELECT b + 1 AS c FROM (SELECT n * 2 AS b FROM s WHERE n > 1) WHERE b < 8)
=> SELECT max(((n * 2) + 1)) AS `max(c)` FROM s WHERE n > 1 AND (n * 2) < 8

SELECT window_start, count(*) FROM (SELECT * FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) WHERE n > 0) GROUP BY window_start
=> SELECT window_start, count(*) AS `count(*)` FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) AS `s` WHERE n > 0 GROUP BY window_start

SELECT label, count(*) AS c FROM (SELECT label, s.n FROM s JOIN t ON s.k = t.k) GROUP BY label HAVING max(n) > 1
=> SELECT t.label, count(*) AS `c` FROM s JOIN t ON `s`.k = t.k GROUP BY t.label HAVING max(`s`.n) > 1

SELECT max(c) FROM (SELECT k, count(*) AS c FROM (SELECT k FROM s WHERE n > 0) GROUP BY k)
=> SELECT max(c) AS `max(c)` FROM (SELECT k, count(*) AS `c` FROM s WHERE n > 0 GROUP BY k) AS __q0

SELECT sum(v) FROM (SELECT n AS v FROM s) HAVING sum(v) FILTER (WHERE v > 1) > 2
=> SELECT sum(n) AS `sum(v)` FROM s HAVING sum(n) FILTER (WHERE n > 1) > 2

SELECT k, count(*) FROM (SELECT k FROM s WHERE n > 0) GROUP BY k TRIGGER COUNTING 2
=> SELECT k, count(*) AS `count(*)` FROM s WHERE n > 0 GROUP BY k TRIGGER COUNTING 2

SELECT k, n FROM (SELECT k, n FROM s)

SELECT k, sum(n) FROM (SELECT DISTINCT k, n FROM s) GROUP BY k

SELECT k, sum(n) FROM (SELECT k, n FROM s ORDER BY n LIMIT 3) GROUP BY k

SELECT k, sum(n) FROM (SELECT k, rank() OVER (ORDER BY n) AS n FROM s) GROUP BY k

SELECT e, count(*) FROM (SELECT explode(array(n, m)) AS e FROM s) GROUP BY e

SELECT k, sum(n) FROM (SELECT k, n FROM v) GROUP BY k

SELECT x.k, count(*) FROM (SELECT s.k FROM s JOIN r ON s.k = r.k) AS x GROUP BY x.k

SELECT k, count(*) FROM (SELECT k FROM s WHERE n IN (SELECT n FROM r)) GROUP BY k

SELECT k, sum(v) AS n FROM (SELECT k, m AS v FROM s) GROUP BY k HAVING n > 1
=> SELECT k, sum(m) AS `n` FROM s GROUP BY k HAVING sum(m) > 1

SELECT k, sum(v) AS v FROM (SELECT k, m AS v FROM s) GROUP BY k ORDER BY v
=> SELECT k, sum(m) AS `v` FROM s GROUP BY k ORDER BY v

SELECT max(ts - INTERVAL 1 DAY) FROM (SELECT ts, n AS day FROM s)
=> SELECT max(ts - INTERVAL 1 DAY) AS `max(ts - INTERVAL 1 DAY)` FROM s

SELECT collect_list(struct(v)) AS c FROM (SELECT n AS v FROM s)

SELECT `sum(v)` FROM (SELECT sum(v) FROM (SELECT n AS v FROM s))
=> SELECT sum(n) AS `sum(v)` FROM s

SELECT k FROM s WHERE n = (SELECT max(v) FROM (SELECT n AS v, k FROM s) AS x WHERE x.k = s.k)
=> SELECT k FROM s WHERE n = (SELECT max(n) AS `max(v)` FROM s AS s_1 WHERE k = `s`.k)

SELECT c, count(*) FROM (SELECT k FROM s) AS x(c) GROUP BY c
=> SELECT k AS `c`, count(*) AS `count(*)` FROM s GROUP BY k

SELECT window_start, count(*) FROM TUMBLE((SELECT ts FROM s), ts, INTERVAL 1 MINUTE) GROUP BY window_start

SELECT k, count(*) FROM s GROUP BY ALL
=> SELECT k, count(*) AS `count(*)` FROM s GROUP BY k

SELECT upper(k) AS k, 1 AS one, ts, max(ts) FROM s GROUP BY ALL HAVING count(*) > 1
=> SELECT upper(k) AS `k`, 1 AS `one`, ts, max(ts) AS `max(ts)` FROM s GROUP BY upper(k), ts HAVING count(*) > 1

SELECT *, count(*) FROM s GROUP BY ALL
=> SELECT k, n, m, `day`, ts, count(*) AS `count(*)` FROM s GROUP BY k, n, m, `day`, ts

SELECT * EXCEPT (TS), count(*) AS n FROM s GROUP BY k, day
=> SELECT k, n, m, `day`, count(*) AS `n` FROM s GROUP BY k, `day`

SELECT window_start, count(*) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY all
=> SELECT window_start, count(*) AS `count(*)` FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) AS `s` GROUP BY window_start

SELECT k, count(*) FROM s GROUP BY k

SELECT * FROM s

SELECT count(*) FROM s GROUP BY ALL
=> SELECT count(*) AS `count(*)` FROM s

SELECT 'x', count(*) FROM s GROUP BY ALL
=> SELECT 'x' AS `'x'`, count(*) AS `count(*)` FROM s

SELECT *, count(*) FROM s JOIN s AS t ON s.k = t.k GROUP BY ALL
=> SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts, t.k, t.n, t.m, t.`day`, t.ts, count(*) AS `count(*)` FROM s JOIN s AS t ON `s`.k = t.k GROUP BY `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts, t.k, t.n, t.m, t.`day`, t.ts

SELECT k, count(*), rank() OVER (ORDER BY k) FROM s GROUP BY ALL
=> SELECT k, count(*) AS `count(*)`, rank() OVER (ORDER BY k) AS `rank() OVER (ORDER BY k)` FROM s GROUP BY k

SELECT *, count(*) FROM s LATERAL VIEW explode(array(1)) AS e GROUP BY ALL
=> SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts, g.e, count(*) AS `count(*)` FROM s LATERAL VIEW explode(array(1)) g AS e GROUP BY `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts, g.e
