-- A viewer of microscope slides: requests come over two connections, and updates leave over a third.
-- `slides serve` listens at these addresses, starts this query, and serves a page.

-- Blocks of a request may overtake each other, so they are dealt among copies of the filters by demand.
SET 'order' = 'none';
SET 'parallelism' = '3';
SET 'linger' = '0 ms';

-- A rectangle of the slide halved `level` times, in pixels of that level; `blocks`: at most so many.
CREATE TABLE complete (viewer STRING, request BIGINT, level INT, x INT, y INT, width INT, height INT,
  blocks INT)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:7491', 'format' = 'json');

-- The same for parts that should be there soon: a source of its own, so that they need not wait for the
-- blocks of a complete update.
CREATE TABLE partial (viewer STRING, request BIGINT, level INT, x INT, y INT, width INT, height INT,
  blocks INT)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:7492', 'format' = 'json');

CREATE TABLE updates (viewer STRING, request BIGINT, block INT, blocks INT, done INT, x INT, y INT, width INT,
  height INT, error STRING, pixels STRING)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:7493', 'format' = 'json');

CREATE VIEW blocks AS
SELECT * FROM clip(TABLE complete, 'slide.tif')
UNION ALL
SELECT * FROM clip(TABLE partial, 'slide.tif');

CREATE VIEW pixels AS SELECT * FROM tiles(TABLE blocks, 'slide.tif');
CREATE VIEW halved AS SELECT * FROM subsample(TABLE pixels);

INSERT INTO updates
SELECT viewer, request, block, blocks, done, x, y, width, height, error, ENCODE(pixels, 'base64') AS pixels
FROM view(TABLE halved PARTITION BY (viewer, request));
