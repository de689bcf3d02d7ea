SELECT window_start, window_end, sum(price) AS total_price
FROM CUMULATE(Bid, bidtime, INTERVAL 2 MINUTES, INTERVAL 10 MINUTES)
GROUP BY window_start, window_end
