SELECT window_start, window_end, sum(price) AS total_price
FROM HOP(Bid, bidtime, INTERVAL 5 MINUTES, INTERVAL 10 MINUTES)
GROUP BY window_start, window_end
