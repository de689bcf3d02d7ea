SELECT window_start, window_end, sum(price) AS total_price
FROM HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)
GROUP BY window_start, window_end
