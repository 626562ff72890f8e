-- Localization and mapping (SLAM): where robots are, by matching the scans of their lasers with the maps that
-- they have made of earlier ones. The gateway sends its clock to both topics after each tick: a row without a
-- robot.
--
-- `cargo run --example robots -- run` this file, with a broker at the address. See docs/robots.md.

SET 'latency_target' = '20 ms';
-- The order of answers is not needed, so what a source reads may be divided among instances.
SET 'order' = 'none';

-- A pose that adds up all errors.
CREATE TABLE odometry (ms BIGINT, robot BIGINT, x DOUBLE, y DOUBLE, heading DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)
WITH ('connector' = 'mqtt', 'address' = '127.0.0.1:1883', 'topic' = 'odometry/#', 'format' = 'json');

-- The ranges around the robot, from straight ahead to the left.
CREATE TABLE scans (ms BIGINT, robot BIGINT, ranges ARRAY<DOUBLE>,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)
WITH ('connector' = 'mqtt', 'address' = '127.0.0.1:1883', 'topic' = 'scans/#', 'format' = 'json');

CREATE TABLE poses (robot BIGINT, ms BIGINT, hypothesis BIGINT, x DOUBLE, y DOUBLE, heading DOUBLE,
  weight DOUBLE)
WITH ('connector' = 'mqtt', 'address' = '127.0.0.1:1883', 'topic' = 'poses', 'format' = 'json');

-- Each robot is followed four times, with odometry that is disturbed differently.
CREATE VIEW motions AS
SELECT * FROM hypotheses(TABLE (SELECT * FROM odometry WHERE robot IS NOT NULL), 4);

-- A scan goes to all instances once, whatever hypotheses they follow.
CREATE VIEW matched AS
SELECT * FROM match_scan(TABLE (
  SELECT /*+ BROADCAST(s) */ m.robot, m.hypothesis, m.ts,
    m.x AS odometry_x, m.y AS odometry_y, m.heading AS odometry_heading, s.ranges
  FROM motions AS m JOIN scans AS s ON m.ts = s.ts AND m.robot = s.robot)
  PARTITION BY (robot, hypothesis) ORDER BY ts);

INSERT INTO poses
SELECT robot, CAST(ts AS BIGINT), hypothesis, x, y, heading, weight
FROM best(TABLE matched PARTITION BY robot ORDER BY ts);
