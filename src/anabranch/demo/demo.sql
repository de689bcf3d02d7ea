-- Bids come as Parquet files, out of order by a few seconds; some arrive up to an hour late.
CREATE STREAM bids (auction BIGINT, bidder BIGINT, price DECIMAL(10, 2), ts TIMESTAMP,
                    WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM files(path => 'bids/*.parquet');

-- Bids and turnover per auction and minute.
CREATE VIEW auction_minutes AS
  SELECT window_start, window_end, auction, count(*) AS bids, sum(price) AS turnover
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 MINUTE)
  GROUP BY window_start, window_end, auction;

-- The ten auctions with the most bids in the last five minutes, every minute.
CREATE VIEW hot_items AS
  SELECT * FROM (
    SELECT window_start, window_end, auction, count(*) AS bids,
           rank() OVER (PARTITION BY window_start ORDER BY count(*) DESC) AS place
    FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 5 MINUTES)
    GROUP BY window_start, window_end, auction)
  WHERE place <= 10;

-- The highest price in every ten minutes.
CREATE VIEW highest_price AS
  SELECT window_start, window_end, max(price) AS price
  FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL 10 MINUTES)
  GROUP BY window_start, window_end;
