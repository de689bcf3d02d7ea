SELECT window_start, window_end, supplier_id, sum(price) AS total_price
FROM SESSION(TABLE Bid PARTITION BY supplier_id, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)
GROUP BY window_start, window_end, supplier_id
