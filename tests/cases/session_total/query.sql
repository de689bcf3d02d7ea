SELECT window_start, window_end, item, sum(price) AS total_price
FROM SESSION(Bid PARTITION BY item, bidtime, INTERVAL 5 MINUTES)
GROUP BY window_start, window_end, item
