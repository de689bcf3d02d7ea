-- Two bids of 4.00: the earlier one is the higher.
SELECT *
FROM (
  SELECT bidtime, price, item, supplier_id, window_start, window_end,
         row_number() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, bidtime) AS rownum
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTE)
)
WHERE rownum <= 3
