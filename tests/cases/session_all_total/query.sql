SELECT window_start, window_end, sum(price) AS total_price
FROM SESSION(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), GAP => INTERVAL '5' MINUTES)
GROUP BY window_start, window_end
