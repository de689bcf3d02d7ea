SELECT *
FROM (SELECT * FROM TUMBLE(TABLE LeftTable, DESCRIPTOR(row_time), INTERVAL '5' MINUTE)) l
WHERE l.num IN (
  SELECT r.num FROM (SELECT * FROM TUMBLE(TABLE RightTable, DESCRIPTOR(row_time), INTERVAL '5' MINUTE)) r
  WHERE l.window_start = r.window_start AND l.window_end = r.window_end
)
