-- The same for what counts rows.

SELECT label, count(*) AS c FROM s JOIN t REFRESHABLE ON s.k = t.k WHERE n > 1 GROUP BY label
=> SELECT t.label, count(*) AS `c` FROM (SELECT k, n FROM s) AS `s` JOIN t REFRESHABLE ON `s`.k = t.k WHERE `s`.n > 1 GROUP BY t.label
