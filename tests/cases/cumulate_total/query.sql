SELECT window_start, window_end, sum(price) AS total_price
FROM CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTE, INTERVAL '10' MINUTE)
GROUP BY window_start, window_end
