-- Records that a trigger counts, with the numbers of the rows that they are made of.

SELECT s.k, id, sum(r.p) AS n FROM s JOIN r ON s.n = r.id WHERE s.m > 0 GROUP BY s.k, id HAVING n > id TRIGGER COUNTING 3
=> SELECT k, id, sum(p) AS `n` FROM (SELECT `s`.k, r.id, r.p, `s`._row_num AS `__part0_s`, r._row_num AS `__part1_r` FROM s JOIN r ON `s`.n = r.id WHERE `s`.m > 0) AS __records GROUP BY k, id HAVING sum(p) > id TRIGGER COUNTING 3

SELECT s.k, sum(r.p) AS v FROM s, r GROUP BY s.k ORDER BY v, s.k TRIGGER COUNTING 3
=> SELECT k, sum(p) AS `v` FROM (SELECT `s`.k, r.p, `s`._row_num AS `__part0_s`, r._row_num AS `__part1_r` FROM s CROSS JOIN r) AS __records GROUP BY k ORDER BY v, k TRIGGER COUNTING 3

SELECT k, count(*) AS c FROM s JOIN r USING (k) GROUP BY k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `c` FROM (SELECT `s`.k, `s`._row_num AS `__part0_s`, r._row_num AS `__part1_r` FROM s JOIN r ON `s`.k = r.k) AS __records GROUP BY k TRIGGER COUNTING 3

SELECT label, count(*) AS n FROM s JOIN t ON s.k = t.k GROUP BY label TRIGGER COUNTING 3
=> SELECT label, count(*) AS `n` FROM (SELECT t.label, `s`._row_num AS `__part0_s` FROM s JOIN t ON `s`.k = t.k) AS __met GROUP BY label TRIGGER COUNTING 3

SELECT label, median(n) AS n FROM s LEFT JOIN t ON s.k = t.k GROUP BY label TRIGGER COUNTING 3
=> SELECT label, median(n) AS `n` FROM (SELECT t.label, `s`.n, `s`._row_num AS `__part0_s` FROM s LEFT JOIN t ON `s`.k = t.k) AS __met GROUP BY label TRIGGER COUNTING 3

SELECT k, count(*) AS n FROM (SELECT k FROM s UNION ALL (SELECT x.k FROM r AS x)) AS u GROUP BY k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `n` FROM (SELECT k, _row_num AS `__part0_s`, CAST(NULL AS BIGINT) AS `__part1_r` FROM s UNION ALL SELECT k, CAST(NULL AS BIGINT) AS `__part0_s`, _row_num AS `__part1_r` FROM r AS x) AS __records GROUP BY k TRIGGER COUNTING 3

WITH p AS (SELECT k FROM pairs), u AS (SELECT k FROM p UNION ALL SELECT k FROM s) SELECT u.k, count(*) AS n FROM u GROUP BY u.k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `n` FROM (SELECT k, __part0_s, __part1_r, CAST(NULL AS BIGINT) AS `__part2_s` FROM (SELECT `s`.k, `s`._row_num AS `__part0_s`, r._row_num AS `__part1_r` FROM s JOIN r ON `s`.k = r.k) AS p UNION ALL SELECT k, CAST(NULL AS BIGINT) AS `__part0_s`, CAST(NULL AS BIGINT) AS `__part1_r`, _row_num AS `__part2_s` FROM s) AS __records GROUP BY k TRIGGER COUNTING 3

SELECT k, count(*) AS n FROM HOP(s, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) GROUP BY k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `n` FROM (SELECT k, _row_num AS `__part0_s` FROM HOP(s, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) AS `s`) AS __records GROUP BY k TRIGGER COUNTING 3

SELECT first(t.label) AS l FROM s JOIN t ON s.k = t.k TRIGGER COUNTING 3
=> SELECT first(label) AS `l` FROM (SELECT `s`.ts, `s`.k, `s`.n, `s`.m, `s`.`day`, t.k AS `__c6`, t.label, `s`._row_num AS `__part0_s` FROM s JOIN t ON `s`.k = t.k) AS __met TRIGGER COUNTING 3

SELECT p.k, count(*) AS n FROM pairs AS p JOIN r ON p.k = r.k GROUP BY p.k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `n` FROM (SELECT p.k, p.__part0_s, p.__part1_r, r._row_num AS `__part2_r` FROM (SELECT `s`.k, r.p, `s`._row_num AS `__part0_s`, r._row_num AS `__part1_r` FROM s JOIN r ON `s`.k = r.k) AS p JOIN r ON p.k = r.k) AS __records GROUP BY k TRIGGER COUNTING 3

SELECT k, sum(n) AS n FROM rows GROUP BY k TRIGGER COUNTING 3
=> SELECT k, sum(n) AS `n` FROM s WHERE n > 0 GROUP BY k TRIGGER COUNTING 3

SELECT s.k, r.p FROM s JOIN r ON s.k = r.k ORDER BY p LIMIT 3 TRIGGER COUNTING 3
=> SELECT k, p FROM (SELECT `s`.k, r.p, `s`._row_num AS `__part0_s`, r._row_num AS `__part1_r` FROM s JOIN r ON `s`.k = r.k) AS __records ORDER BY p LIMIT 3 TRIGGER COUNTING 3

SELECT k, count(*) AS n FROM s GROUP BY k TRIGGER COUNTING 3

SELECT window_end, count(*) AS n FROM HOP(s, ts, INTERVAL 5 SECONDS, INTERVAL 10 SECONDS) GROUP BY window_end TRIGGER COUNTING 3

SELECT k, count(*) AS n FROM newer GROUP BY k TRIGGER COUNTING 3

SELECT collect_list(struct(s.k, r.k)) AS l FROM s JOIN r ON s.n = r.id TRIGGER COUNTING 3

SELECT s.k, count(*) AS n FROM s LEFT JOIN r ON s.k = r.k GROUP BY s.k TRIGGER COUNTING 3

SELECT s.k, count(*) AS n FROM s JOIN counts ON s.k = counts.k GROUP BY s.k TRIGGER COUNTING 3

SELECT k, count(*) AS n FROM (SELECT k FROM s UNION SELECT k FROM r) GROUP BY k TRIGGER COUNTING 3

SELECT s.k, count(*) AS n FROM s JOIN r ON s.k = r.k WHERE s.ts > now() GROUP BY s.k TRIGGER COUNTING 3
