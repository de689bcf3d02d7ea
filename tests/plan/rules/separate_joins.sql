-- Joins that are grouped by several times, in nodes of their own.

SELECT s.ts, r.rts, count(*) AS n FROM s JOIN r ON r.rts BETWEEN s.ts AND s.ts + INTERVAL 1 MINUTE GROUP BY s.ts, r.rts EMIT ON WINDOW CLOSE
=> SELECT ts, rts, count(*) AS `n` FROM (SELECT `s`.ts, r.rts FROM s JOIN r ON r.rts BETWEEN `s`.ts AND `s`.ts + INTERVAL 1 MINUTE) AS __joined0 GROUP BY ts, rts EMIT ON WINDOW CLOSE

SELECT s.ts, r.rts, count(*) AS n FROM s JOIN r ON r.rts = s.ts GROUP BY s.ts, r.rts EMIT ON WINDOW CLOSE

SELECT s.ts, count(*) AS n FROM s JOIN r ON r.rts >= s.ts GROUP BY s.ts EMIT ON WINDOW CLOSE

SELECT s.ts, r.rts, count(*) AS n FROM s JOIN r ON r.rts >= s.ts GROUP BY s.ts, r.rts EMIT CHANGES

SELECT s.ts, r.rts, count(*) AS n FROM s LEFT JOIN r ON r.rts >= s.ts GROUP BY s.ts, r.rts EMIT ON WINDOW CLOSE
