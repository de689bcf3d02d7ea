SELECT *
FROM (
  SELECT bidtime, price, item, window_start, window_end,
         row_number() OVER (PARTITION BY window_start, window_end ORDER BY bidtime DESC) AS rownum
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTE)
)
WHERE rownum <= 1
