-- The first rows of each key, with all columns of the stream below the condition that leaves the others out.

SELECT k, n FROM (SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY m) AS r FROM s) WHERE r <= 2
=> SELECT k, n FROM (SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY m) AS `r`, m AS `_row_m`, `day` AS `_row_day`, ts AS `_row_ts` FROM s) AS __q0 WHERE r <= 2

SELECT k FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM s) WHERE r = 1

SELECT k FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM s) WHERE r = 2

SELECT k FROM (SELECT k, sum(n) OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM s) WHERE r <= 2

SELECT k FROM (SELECT t.k, row_number() OVER (PARTITION BY t.k ORDER BY ts) AS r FROM s JOIN t ON s.k = t.k) WHERE r <= 2

SELECT k, count(*) AS c FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY m) AS r FROM s) WHERE r <= 2 GROUP BY k

SELECT k, r AS _row_m FROM (SELECT k, n, day, ts, row_number() OVER (PARTITION BY k ORDER BY m) AS r FROM s) WHERE r <= 2
