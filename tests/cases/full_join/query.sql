SELECT l.num AS L_Num, l.id AS L_Id, r.num AS R_Num, r.id AS R_Id,
       coalesce(l.window_start, r.window_start) AS window_start,
       coalesce(l.window_end, r.window_end) AS window_end
FROM (SELECT * FROM TUMBLE(TABLE LeftTable, DESCRIPTOR(row_time), INTERVAL '5' MINUTE)) l
FULL JOIN (SELECT * FROM TUMBLE(TABLE RightTable, DESCRIPTOR(row_time), INTERVAL '5' MINUTE)) r
  ON l.num = r.num AND l.window_start = r.window_start AND l.window_end = r.window_end
