SELECT window_start, window_end, sum(price) AS total_price
FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTE)
GROUP BY window_start, window_end
