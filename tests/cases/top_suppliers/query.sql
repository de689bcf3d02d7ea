SELECT *
FROM (
  SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rownum
  FROM (
    SELECT window_start, window_end, supplier_id, sum(price) AS price, count(*) AS cnt
    FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTE)
    GROUP BY window_start, window_end, supplier_id
  )
)
WHERE rownum <= 3
