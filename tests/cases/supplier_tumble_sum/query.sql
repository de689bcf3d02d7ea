SELECT window_start, window_end, sum(price) AS total_price
FROM tumble(source => TABLE(Bid), time_field => DESCRIPTOR(bidtime), window_length => INTERVAL 10 MINUTES)
GROUP BY window_start, window_end
