CREATE TABLE items (item BIGINT, name STRING);
INSERT INTO items VALUES (1, 'boat'), (2, 'oar'), (3, 'net');
CREATE STREAM bids (item BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE STREAM offers (item BIGINT, seller STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 5 SECONDS);

CREATE VIEW totals AS SELECT item, count(*) AS bids, sum(price) AS total, avg(price) AS mean FROM bids GROUP BY item;
CREATE VIEW named AS SELECT i.name, count(*) AS bids, sum(b.price) AS total FROM bids b JOIN items i ON b.item = i.item GROUP BY i.name;
CREATE VIEW dear AS SELECT item, price, ts FROM bids WHERE price >= 20;
CREATE VIEW minutes AS SELECT window_start, window_end, item, max(price) AS best FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 MINUTE) GROUP BY window_start, window_end, item EMIT ON WINDOW CLOSE;
CREATE VIEW hours AS SELECT window_end, count(*) AS c FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 5 MINUTES) GROUP BY window_end EMIT ON WINDOW CLOSE;
CREATE VIEW visits AS SELECT window_start, window_end, item, count(*) AS c FROM SESSION(TABLE bids PARTITION BY item, DESCRIPTOR(ts), INTERVAL 30 SECONDS) GROUP BY window_start, window_end, item EMIT ON WINDOW CLOSE;
CREATE VIEW live AS SELECT item, count(*) AS bids, sum(price) AS total FROM bids GROUP BY item EMIT CHANGES;
CREATE VIEW joined AS SELECT b.item, i.name, b.price FROM bids b LEFT JOIN items i ON b.item = i.item EMIT CHANGES;
CREATE VIEW pairs AS SELECT b.item, b.price, o.seller FROM bids b JOIN offers o ON b.item = o.item AND b.ts BETWEEN o.at AND o.at + INTERVAL 1 MINUTE EMIT CHANGES;
CREATE VIEW alone AS SELECT o.item, o.seller, b.price FROM offers o LEFT JOIN bids b ON b.item = o.item AND b.ts BETWEEN o.at AND o.at + INTERVAL 1 MINUTE EMIT CHANGES;
CREATE VIEW best AS SELECT item, price, ts FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC) AS n FROM bids) WHERE n <= 2 EMIT CHANGES;
CREATE VIEW offered AS SELECT item, price FROM bids WHERE item IN (SELECT item FROM offers) EMIT CHANGES;
CREATE VIEW counts AS SELECT bids, count(*) AS items FROM (SELECT item, count(*) AS bids FROM bids GROUP BY item) GROUP BY bids EMIT CHANGES;
CREATE VIEW fired AS SELECT item, count(*) AS c FROM bids GROUP BY item TRIGGER COUNTING 2;
CREATE VIEW quiet AS SELECT window_end, item, count(*) AS c FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL 1 MINUTE) GROUP BY window_end, item TRIGGER COUNTING 3, ON WATERMARK;
CREATE VIEW above AS SELECT window_end, sum(best) AS best FROM minutes GROUP BY window_end;

INSERT INTO bids VALUES (1, 10, TIMESTAMP '2026-01-01 00:00:05'), (2, 20, TIMESTAMP '2026-01-01 00:00:30'), (1, 30, TIMESTAMP '2026-01-01 00:01:10');
INSERT INTO offers VALUES (1, 'ann', TIMESTAMP '2026-01-01 00:00:01'), (2, 'bob', TIMESTAMP '2026-01-01 00:00:20'), (3, 'cat', TIMESTAMP '2026-01-01 00:00:40');
INSERT INTO bids VALUES (3, 15, TIMESTAMP '2026-01-01 00:02:10'), (1, 25, TIMESTAMP '2026-01-01 00:00:40'), (NULL, 5, TIMESTAMP '2026-01-01 00:02:20');
UPDATE items SET name = 'ship' WHERE item = 1;
REFRESH TABLE items;
INSERT INTO bids VALUES (1, 40, TIMESTAMP '2026-01-01 00:03:10'), (2, 12, TIMESTAMP '2026-01-01 00:03:30');
INSERT INTO offers VALUES (1, 'dan', TIMESTAMP '2026-01-01 00:03:00');
