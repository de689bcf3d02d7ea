-- What a trigger counts the changes of, in a node of its own.

SELECT s.k, count(*) AS n FROM s LEFT JOIN r ON s.k = r.k GROUP BY s.k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `n` FROM (SELECT `s`.k FROM s LEFT JOIN r ON `s`.k = r.k) AS __records GROUP BY k TRIGGER COUNTING 3

SELECT s.k, count(*) AS n FROM s JOIN counts ON s.k = counts.k GROUP BY s.k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `n` FROM (SELECT `s`.k FROM s JOIN counts ON `s`.k = counts.k) AS __records GROUP BY k TRIGGER COUNTING 3

SELECT x, count(*) AS n FROM s LATERAL VIEW explode(array(n, m)) g AS x GROUP BY x TRIGGER COUNTING 3
=> SELECT x, count(*) AS `n` FROM (SELECT g.x FROM s LATERAL VIEW explode(array(`s`.n, `s`.m)) g AS x) AS __records GROUP BY x TRIGGER COUNTING 3

SELECT k, count(*) AS n FROM s WHERE k NOT IN (SELECT k FROM r) GROUP BY k TRIGGER COUNTING 3
=> SELECT k, count(*) AS `n` FROM (SELECT k FROM s WHERE k NOT IN(SELECT k FROM r)) AS __records GROUP BY k TRIGGER COUNTING 3

SELECT k, count(*) AS n FROM counts GROUP BY k TRIGGER COUNTING 3

SELECT s.k, count(*) AS n FROM s LEFT JOIN r ON s.k = r.k GROUP BY s.k TRIGGER COUNTING 1
