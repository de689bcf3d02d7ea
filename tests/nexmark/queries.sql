-- q0
SELECT auction, bidder, price, date_time FROM bid;

-- q1
SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid;

-- q2
SELECT auction, price FROM bid
WHERE auction = 1007 OR auction = 1020 OR auction = 2001 OR auction = 2019 OR auction = 2087;

-- q3
SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'or' OR P.state = 'id' OR P.state = 'ca');

-- q4
SELECT Q.category, avg(Q.final) AS avg FROM (SELECT max(B.price) AS final, A.category
FROM auction AS A, bid AS B WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
GROUP BY A.id, A.category) AS Q GROUP BY Q.category;

-- q5
SELECT AuctionBids.auction, AuctionBids.num
FROM (SELECT bid.auction, count(*) AS num, window_start AS starttime
FROM HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
GROUP BY window_start, bid.auction) AS AuctionBids
JOIN (SELECT max(CountBids.num) AS maxn, CountBids.starttime_c
FROM (SELECT count(*) AS num, window_start AS starttime_c
FROM HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
GROUP BY bid.auction, window_start) AS CountBids GROUP BY CountBids.starttime_c) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime_c AND AuctionBids.num >= MaxBids.maxn;

-- q6
SELECT Q.seller, avg(Q.final) OVER (PARTITION BY Q.seller
ORDER BY Q.date_time NULLS LAST ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg
FROM (SELECT ROW_NUMBER() OVER (PARTITION BY A.id, A.seller
ORDER BY B.price NULLS LAST) AS rank, A.seller, B.price AS final, B.date_time FROM auction AS A, bid AS B
WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires) AS Q WHERE Q.rank <= 1;

-- q7
SELECT B.auction, B.price, B.bidder, B.date_time FROM bid AS B
JOIN (SELECT max(price) AS maxprice, window_end AS date_time
FROM TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND) GROUP BY window_end) AS B1
ON B.price = B1.maxprice WHERE B.date_time BETWEEN B1.date_time - INTERVAL '10' SECOND AND B1.date_time;

-- q8
SELECT P.id, P.name, P.starttime FROM (SELECT id, name, window_start AS starttime, window_end AS endtime
FROM TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
GROUP BY id, name, window_start, window_end) AS P
JOIN (SELECT seller, window_start AS starttime, window_end AS endtime
FROM TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
GROUP BY seller, window_start, window_end) AS A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;

-- q9
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, auction, bidder,
  price, bid_date_time
FROM (SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_date_time, ROW_NUMBER() OVER (PARTITION BY A.id
ORDER BY B.price DESC NULLS FIRST, B.date_time ASC NULLS LAST) AS rownum FROM auction AS A, bid AS B
WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires) AS tmp WHERE rownum <= 1;

-- q10
SELECT auction, bidder, price, date_time, date_format(date_time, 'yyyy-MM-dd') AS date, date_format(date_time,
  'hh:mm') AS time FROM bid;

-- q14
SELECT auction, bidder, 0.908 * price AS price, CASE WHEN EXTRACT(HOUR FROM date_time) >= 8 AND EXTRACT(HOUR
FROM date_time) <= 18 THEN 'dayTime' WHEN EXTRACT(HOUR FROM date_time) <= 6 OR EXTRACT(HOUR
FROM date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType, date_time,
  length(extra) - length(replace(extra, 'c', '')) AS c_counts FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15
SELECT date_format(date_time, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids, count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions FROM bid
GROUP BY date_format(date_time, 'yyyy-MM-dd');

-- q16
SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS `day`, max(date_format(date_time,
  'hh:MM')) AS `minute`, count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids, count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions FROM bid
GROUP BY channel, date_format(date_time, 'yyyy-MM-dd');

-- q17
SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids, min(price) AS min_price, max(price) AS max_price,
  avg(price) AS avg_price, sum(price) AS sum_price FROM bid
GROUP BY auction, date_format(date_time, 'yyyy-MM-dd');

-- q18
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction
ORDER BY date_time DESC NULLS FIRST, extra NULLS LAST) AS rank_number FROM bid) WHERE rank_number <= 1;

-- q19
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction
ORDER BY price DESC NULLS FIRST) AS rank_number FROM bid) WHERE rank_number <= 10;

-- q20
SELECT auction, bidder, price, channel, url, B.date_time AS bid_date_time, B.extra AS bid_extra, item_name,
  description, initial_bid, reserve, A.date_time AS auction_date_time, expires, seller, category,
  A.extra AS auction_extra FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10;

-- q21
SELECT auction, bidder, price, channel,
  CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3' ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
FROM bid
WHERE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') IS NOT NULL OR lower(channel) IN ('apple',
  'google', 'facebook', 'baidu');

-- q22
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
  split_part(url, '/', 6) AS dir3 FROM bid;

-- q101
SELECT a.id AS auction_id, a.item_name AS auction_item_name, b.max_price AS current_highest_bid
FROM auction AS a LEFT OUTER JOIN (SELECT b1.auction, max(b1.price) AS max_price FROM bid AS b1
GROUP BY b1.auction) AS b ON a.id = b.auction;

-- q102
SELECT a.id AS auction_id, a.item_name AS auction_item_name, count(b.auction) AS bid_count FROM auction AS a
JOIN bid AS b ON a.id = b.auction GROUP BY a.id, a.item_name
HAVING count(b.auction) >= (SELECT count(*) div count(DISTINCT auction) FROM bid);

-- q103
SELECT a.id AS auction_id, a.item_name AS auction_item_name FROM auction AS a WHERE a.id IN (SELECT b.auction
FROM bid AS b GROUP BY b.auction HAVING count(*) >= 20);

-- q104
SELECT a.id AS auction_id, a.item_name AS auction_item_name FROM auction AS a
WHERE NOT a.id IN (SELECT b.auction FROM bid AS b GROUP BY b.auction HAVING count(*) < 20);

-- q105
SELECT a.id AS auction_id, a.item_name AS auction_item_name, count(b.auction) AS bid_count FROM auction AS a
JOIN bid AS b ON a.id = b.auction GROUP BY a.id, a.item_name ORDER BY bid_count DESC NULLS FIRST LIMIT 1000;

-- q106
SELECT min(final) AS min_final FROM (SELECT auction.id, max(price) AS final FROM auction, bid
WHERE bid.auction = auction.id AND bid.date_time BETWEEN auction.date_time AND auction.expires
GROUP BY auction.id);
