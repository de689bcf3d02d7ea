-- Subqueries as joins; s, r are streams, v is a view, t a static table.

SELECT * FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND rts BETWEEN ts - INTERVAL 1 HOUR AND ts)
=> SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts FROM s LEFT SEMI JOIN r ON r.k = `s`.k AND r.rts BETWEEN `s`.ts - INTERVAL 1 HOUR AND `s`.ts

SELECT * FROM s WHERE n > 1 AND NOT EXISTS (SELECT * FROM r WHERE k = s.k AND (p > 1 OR p < n))
=> SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts FROM s LEFT ANTI JOIN r ON r.k = `s`.k AND (r.p > 1 OR r.p < `s`.n) WHERE `s`.n > 1

SELECT n FROM s WHERE EXISTS (SELECT 1 FROM s AS x WHERE x.k = s.k AND m < s.m)
=> SELECT `s`.n FROM s LEFT SEMI JOIN s AS x ON x.k = `s`.k AND x.m < `s`.m

SELECT n FROM s AS o WHERE EXISTS (SELECT 1 FROM r AS o, s AS u WHERE o.k = u.k AND o.p = m)

SELECT n FROM s WHERE k IN (SELECT k FROM r WHERE p > 1)
=> SELECT `s`.n FROM s LEFT SEMI JOIN r ON `s`.k = r.k AND r.p > 1

SELECT n FROM s WHERE n IN (SELECT n + 1 FROM s)
=> SELECT `s`.n FROM s LEFT SEMI JOIN (SELECT n + 1 AS `__k0` FROM s) AS __q0 ON `s`.n = __q0.__k0

SELECT n FROM s WHERE (n, m) IN (SELECT p, max(id) FROM r GROUP BY p HAVING count(*) > 2)
=> SELECT `s`.n FROM s LEFT SEMI JOIN (SELECT p, max(id) AS `max(id)` FROM r GROUP BY p HAVING count(*) > 2) AS __q0 ON `s`.n = __q0.p AND `s`.m = __q0.`max(id)`

SELECT n FROM s WHERE n IS NOT NULL AND n NOT IN (SELECT p FROM r WHERE p IS NOT NULL)
=> SELECT `s`.n FROM s LEFT ANTI JOIN r ON `s`.n = r.p AND r.p IS NOT NULL WHERE `s`.n IS NOT NULL

SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r JOIN v ON r.p = v.n WHERE r.k = s.k AND id > 1 AND v.n < m)
=> SELECT `s`.n FROM s LEFT SEMI JOIN (SELECT r.k, v.n FROM r JOIN v ON r.p = v.n WHERE r.id > 1) AS __q0 ON __q0.k = `s`.k AND __q0.n < `s`.m

SELECT m, count(*) FROM s x WHERE n > 0 AND EXISTS (SELECT 1 FROM r WHERE r.k = x.k) GROUP BY m
=> SELECT m, count(*) AS `count(*)` FROM (SELECT x.k, x.n, x.m, x.`day`, x.ts FROM s AS x LEFT SEMI JOIN r ON r.k = x.k) AS x WHERE n > 0 GROUP BY m

SELECT s.n, p FROM s JOIN r ON s.k = r.k WHERE EXISTS (SELECT 1 FROM v WHERE v.n = p)
=> SELECT `s`.n, r.p FROM s JOIN (SELECT r.k, r.p, r.id, r.rts FROM r LEFT SEMI JOIN v ON v.n = r.p) AS r ON `s`.k = r.k

SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k) AND m NOT IN (1, 2) AND EXISTS (SELECT 1 FROM r WHERE r.p = m)
=> SELECT `s`.n FROM (SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts FROM s LEFT SEMI JOIN r ON r.p = `s`.m) AS `s` LEFT SEMI JOIN r ON r.k = `s`.k WHERE `s`.m NOT IN(1, 2)

SELECT * FROM s WHERE n > (SELECT max(p) FROM r WHERE r.k = s.k AND id > 0)
=> SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts FROM s LEFT JOIN (SELECT k, max(p) AS `max(p)` FROM r WHERE id > 0 GROUP BY k) AS __q0 ON __q0.k = `s`.k WHERE `s`.n > __q0.`max(p)`

SELECT n, (SELECT count(*) + coalesce(sum(p), 0) FROM r WHERE s.k = r.k) AS c FROM s
=> SELECT `s`.n, ((coalesce(__q0.`count(*)`, 0)) + coalesce(__q0.`sum(p)`, 0)) AS `c` FROM s LEFT JOIN (SELECT k, count(*) AS `count(*)`, sum(p) AS `sum(p)` FROM r GROUP BY k) AS __q0 ON __q0.k = `s`.k

SELECT m, sum(n) AS n FROM s WHERE n >= (SELECT avg(n) FROM s AS x WHERE x.k = s.k) GROUP BY m
=> SELECT m, sum(n) AS `n` FROM (SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts, __q0.`avg(n)` FROM s LEFT JOIN (SELECT k, avg(n) AS `avg(n)` FROM s AS x GROUP BY k) AS __q0 ON __q0.k = `s`.k) AS `s` WHERE n >= `avg(n)` GROUP BY m

SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND p IN (SELECT v.n FROM v))
=> SELECT `s`.n FROM s LEFT SEMI JOIN (SELECT r.k FROM r LEFT SEMI JOIN v ON r.p = v.n) AS __q0 ON __q0.k = `s`.k

SELECT n FROM s WHERE n NOT IN (SELECT p FROM r)

SELECT n FROM s WHERE n NOT IN (SELECT p FROM r WHERE p IS NOT NULL)

SELECT n FROM s WHERE n > 1 OR EXISTS (SELECT 1 FROM r WHERE r.k = s.k)

SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r)

SELECT n FROM s WHERE EXISTS (SELECT max(p) FROM r WHERE r.k = s.k)

SELECT n FROM s WHERE n > (SELECT max(p) FROM r)

SELECT n FROM s WHERE n > (SELECT max(p) FROM r WHERE r.p < s.n)

SELECT n FROM s WHERE n > (SELECT p FROM r WHERE r.k = s.k)

SELECT n FROM s WHERE size((SELECT collect_list(p) FROM r WHERE r.k = s.k)) = 0

SELECT n FROM s WHERE n IN (SELECT p FROM r WHERE r.k = s.k ORDER BY p LIMIT 1)

SELECT n FROM s WHERE k IN (SELECT k FROM t)

SELECT label FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k)
=> SELECT t.label FROM t JOIN (SELECT k FROM (SELECT k FROM s) AS __q0 GROUP BY k) AS __q0 ON __q0.k = t.k

SELECT label, count(*) FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND n > 1) GROUP BY label
=> SELECT t.label, count(*) AS `count(*)` FROM t LEFT ANTI JOIN (SELECT k FROM (SELECT k FROM s WHERE n > 1) AS __q0 GROUP BY k) AS __q0 ON __q0.k = t.k GROUP BY t.label

SELECT label FROM t WHERE k IN (SELECT k FROM s GROUP BY k HAVING sum(n) > 3)
=> SELECT t.label FROM t JOIN (SELECT k FROM s GROUP BY k HAVING sum(n) > 3) AS __q0 ON t.k = __q0.k

SELECT label FROM t JOIN u ON t.k = u.k WHERE y > (SELECT 0.5 * sum(p) FROM r WHERE r.k = t.k AND id > 1)
=> SELECT t.label FROM t JOIN u ON t.k = u.k JOIN (SELECT k, sum(p) AS `sum(p)` FROM r WHERE id > 1 GROUP BY k) AS __q0 ON __q0.k = t.k WHERE u.y > (0.5 * __q0.`sum(p)`)

SELECT label FROM t JOIN u ON t.k = u.k WHERE y > (SELECT coalesce(sum(p), 0) FROM r WHERE r.k = t.k)
=> SELECT t.label FROM t JOIN u ON t.k = u.k LEFT JOIN (SELECT k, sum(p) AS `sum(p)` FROM r GROUP BY k) AS __q0 ON __q0.k = t.k WHERE u.y > (coalesce(__q0.`sum(p)`, 0))

SELECT label, (SELECT max(p) FROM r WHERE r.k = t.k) AS m FROM t
=> SELECT t.label, __q0.`max(p)` AS `m` FROM t LEFT JOIN (SELECT k, max(p) AS `max(p)` FROM r GROUP BY k) AS __q0 ON __q0.k = t.k

SELECT y FROM u WHERE y IN (SELECT sum(p) FROM r WHERE r.k = u.k GROUP BY id HAVING count(*) > 1)
=> SELECT u.y FROM u JOIN (SELECT `sum(p)`, k FROM (SELECT sum(p) AS `sum(p)`, k FROM r GROUP BY id, k HAVING count(*) > 1) AS __q0 GROUP BY `sum(p)`, k) AS __q0 ON u.y = __q0.`sum(p)` AND __q0.k = u.k

SELECT y FROM u WHERE y IS NOT NULL AND y NOT IN (SELECT p FROM r WHERE r.k = u.k AND p IS NOT NULL)
=> SELECT u.y FROM u LEFT ANTI JOIN (SELECT p, k FROM (SELECT p, k FROM r WHERE p IS NOT NULL) AS __q0 GROUP BY p, k) AS __q0 ON u.y = __q0.p AND __q0.k = u.k WHERE u.y IS NOT NULL

SELECT y FROM u WHERE y NOT IN (SELECT p FROM r WHERE r.k = u.k)

SELECT y FROM u WHERE EXISTS (SELECT 1 FROM r WHERE r.p < u.y)

SELECT s.n FROM s JOIN t ON s.k = t.k WHERE t.k IN (SELECT k FROM r)
=> SELECT `s`.n FROM s JOIN t ON `s`.k = t.k JOIN (SELECT k FROM (SELECT k FROM r) AS __q0 GROUP BY k) AS __q0 ON t.k = __q0.k

SELECT k FROM s LEFT JOIN r USING (k) WHERE EXISTS (SELECT 1 FROM v WHERE v.n = p)
=> SELECT `s`.k FROM s LEFT JOIN r ON `s`.k = r.k LEFT SEMI JOIN v ON v.n = r.p

SELECT count(*) FROM s, r WHERE EXISTS (SELECT 1 FROM v WHERE v.n = p AND v.k = s.k)

SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE EXISTS (SELECT 1 FROM v WHERE v.n = m AND v.k = r.k))

SELECT k, count(*) FROM s GROUP BY k HAVING k IN (SELECT k FROM r)
=> SELECT __q0.k, __q0.`count(*)` FROM (SELECT k, count(*) AS `count(*)` FROM s GROUP BY k) AS __q0 LEFT SEMI JOIN r ON __q0.k = r.k
