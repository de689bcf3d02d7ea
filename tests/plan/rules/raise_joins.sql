-- What a REFRESH or the clock changes, above partials of a stream or above its rows; s, r are streams, t, u tables.

SELECT label, count(*) AS c, sum(n) AS n FROM s JOIN t REFRESHABLE ON s.k = t.k WHERE n > 1 GROUP BY label
=> SELECT t.label, (CAST(coalesce(CAST(sum(`s`.__rows) AS BIGINT), 0) AS int)) AS `c`, (CAST(CAST(sum(`s`.__p1) AS BIGINT) AS int)) AS `n` FROM (SELECT k, count(*) AS `__rows`, sum(n) AS `__p1` FROM s WHERE n > 1 GROUP BY k) AS `s` JOIN t REFRESHABLE ON `s`.k = t.k GROUP BY t.label

SELECT sum(n * y) AS m FROM s JOIN u REFRESHABLE USING (k)
=> SELECT (CAST(CAST(sum(`s`.__p0 * u.y) AS BIGINT) AS int)) AS `m` FROM (SELECT k, sum(n) AS `__p0` FROM s GROUP BY k) AS `s` JOIN u REFRESHABLE ON `s`.k = u.k

SELECT sum(n + y) AS m FROM s JOIN u REFRESHABLE USING (k)
=> SELECT (CAST(CAST(sum(CASE WHEN `s`.__rows > 0 THEN CAST((`s`.n + u.y) AS BIGINT) * `s`.__rows END) AS BIGINT) AS int)) AS `m` FROM (SELECT k, n, count(*) AS `__rows` FROM s GROUP BY k, n) AS `s` JOIN u REFRESHABLE ON `s`.k = u.k

SELECT date_trunc('hour', ts) AS h, count(*) AS c FROM s LEFT JOIN t REFRESHABLE ON s.k = t.k GROUP BY h
=> SELECT `s`.__k0 AS `h`, (CAST(coalesce(CAST(sum(`s`.__rows) AS BIGINT), 0) AS int)) AS `c` FROM (SELECT k, date_trunc('hour', ts) AS `__k0`, count(*) AS `__rows` FROM s GROUP BY k, date_trunc('hour', ts)) AS `s` LEFT JOIN t REFRESHABLE ON `s`.k = t.k GROUP BY `s`.__k0

SELECT window_start, window_end, label, max(y) AS y FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) x JOIN u REFRESHABLE ON x.k = u.k JOIN t ON t.k = u.k GROUP BY window_start, window_end, label
=> SELECT x.window_start, x.window_end, t.label, max(u.y) AS `y` FROM (SELECT k, window_start, window_end FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) AS x GROUP BY k, window_start, window_end) AS x JOIN u REFRESHABLE ON x.k = u.k JOIN t ON t.k = u.k GROUP BY x.window_start, x.window_end, t.label

SELECT label, sum(n) FILTER (WHERE m > 1 AND y > 1 AND n < y) + 1 AS c FROM s LEFT JOIN t REFRESHABLE ON s.k = t.k AND upper(s.k) = label AND n > 1 LEFT JOIN u ON true GROUP BY label HAVING count(*) > 2 ORDER BY max(m)
=> SELECT t.label, (CAST(CAST(sum(CASE WHEN (u.y > 1 AND `s`.n < u.y) THEN `s`.__p0 END) AS BIGINT) AS int)) + 1 AS `c` FROM (SELECT k, n, upper(k) AS `__k0`, n > 1 AS `__k1`, sum(n) FILTER (WHERE (m > 1)) AS `__p0`, max(m) AS `__p1`, count(*) AS `__rows` FROM s GROUP BY k, n, upper(k), n > 1) AS `s` LEFT JOIN t REFRESHABLE ON `s`.k = t.k AND `s`.__k0 = t.label AND `s`.__k1 LEFT JOIN u ON true GROUP BY t.label HAVING (CAST(coalesce(CAST(sum(`s`.__rows) AS BIGINT), 0) AS int)) > 2 ORDER BY (CAST(max(`s`.__p1) AS int))

SELECT label, count(DISTINCT n) AS d, max(n - y) AS m FROM s JOIN t USING (k) JOIN u REFRESHABLE USING (k) GROUP BY label
=> SELECT t.label, count(DISTINCT `s`.n) AS `d`, max(`s`.n - u.y) AS `m` FROM (SELECT k, n FROM s GROUP BY k, n) AS `s` JOIN t ON `s`.k = t.k JOIN u REFRESHABLE ON `s`.k = u.k GROUP BY t.label

SELECT count(*) AS c FROM s CROSS JOIN t REFRESHABLE
=> SELECT (CAST(coalesce(CAST(sum(`s`.__rows) AS BIGINT), 0) AS int)) AS `c` FROM (SELECT count(*) AS `__rows` FROM s HAVING count(*) > 0) AS `s` CROSS JOIN t REFRESHABLE

SELECT label, median(n) AS m FROM s JOIN t REFRESHABLE ON s.k = t.k GROUP BY label
=> SELECT t.label, median(`s`.n) AS `m` FROM (SELECT k, n FROM s) AS `s` JOIN t REFRESHABLE ON `s`.k = t.k GROUP BY t.label

SELECT count(*) AS c FROM s RIGHT JOIN t REFRESHABLE ON s.k = t.k
=> SELECT count(*) AS `c` FROM (SELECT k FROM s) AS `s` RIGHT JOIN t REFRESHABLE ON `s`.k = t.k

SELECT count(*) AS c FROM s JOIN (SELECT k FROM t) x REFRESHABLE ON s.k = x.k
=> SELECT (CAST(coalesce(CAST(sum(`s`.__rows) AS BIGINT), 0) AS int)) AS `c` FROM (SELECT k, count(*) AS `__rows` FROM s GROUP BY k) AS `s` JOIN (SELECT k FROM t) AS x REFRESHABLE ON `s`.k = x.k

SELECT n, label FROM s JOIN t REFRESHABLE USING (k)
=> SELECT `s`.n, t.label FROM (SELECT k, n FROM s) AS `s` JOIN t REFRESHABLE ON `s`.k = t.k

SELECT * FROM s CROSS JOIN t REFRESHABLE
=> SELECT `s`.k, `s`.n, `s`.m, `s`.`day`, `s`.ts, t.k, t.label FROM (SELECT k, n, m, `day`, ts FROM s) AS `s` CROSS JOIN t REFRESHABLE

SELECT k, count(*) AS c FROM s WHERE ts > now() - INTERVAL 1 HOUR AND n > 1 GROUP BY k
=> SELECT k, (CAST(coalesce(CAST(sum(__rows) AS BIGINT), 0) AS int)) AS `c` FROM (SELECT ts, k, count(*) AS `__rows` FROM s WHERE n > 1 GROUP BY ts, k) AS `s` WHERE ts > now() - INTERVAL 1 HOUR GROUP BY k

SELECT k, count(*) FILTER (WHERE day = weekofyear(current_date)) AS c FROM s GROUP BY k HAVING count(*) > 1
=> SELECT k, (CAST(coalesce(CAST(sum(CASE WHEN (`day` = weekofyear(current_date)) THEN __rows END) AS BIGINT), 0) AS int)) AS `c` FROM (SELECT k, `day`, count(*) AS `__rows` FROM s GROUP BY k, `day`) AS `s` GROUP BY k HAVING (CAST(coalesce(CAST(sum(__rows) AS BIGINT), 0) AS int)) > 1

SELECT k, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM s WHERE ts > now()
=> SELECT k, row_number() OVER (PARTITION BY k ORDER BY n) AS `r` FROM (SELECT k, n, ts FROM s) AS `s` WHERE ts > now()

SELECT k, max(ts) AS last FROM s GROUP BY k HAVING max(ts) > now()

SELECT count(*) AS c FROM s JOIN r ON s.k = r.k JOIN t REFRESHABLE ON s.k = t.k

SELECT label, session_window(ts, '5 minutes') AS w, count(*) AS c FROM s JOIN t REFRESHABLE ON s.k = t.k GROUP BY label, session_window(ts, '5 minutes')
=> SELECT t.label, session_window(`s`.ts, '5 minutes') AS `w`, count(*) AS `c` FROM (SELECT k, ts FROM s) AS `s` JOIN t REFRESHABLE ON `s`.k = t.k GROUP BY t.label, session_window(`s`.ts, '5 minutes')

SELECT s.k, x.z FROM s JOIN t REFRESHABLE ON s.k = t.k, LATERAL (SELECT n + 1 AS z) AS x WHERE ts < now()
=> SELECT `s`.k, x.z FROM (SELECT k, n, ts FROM s) AS `s` JOIN t REFRESHABLE ON `s`.k = t.k CROSS JOIN LATERAL (SELECT `s`.n + 1 AS `z`) AS x WHERE `s`.ts < now()
