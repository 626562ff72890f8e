-- Collision avoidance. Each robot sends its state ten times a second, and drives the velocity that it is
-- sent. A state is answered when the clock has passed its time: the gateway sends it after the states of a
-- tick.
--
-- `cargo run --example robots -- run` this file, with a broker at the address. See docs/robots.md.

SET 'latency_target' = '20 ms';
-- The order of answers is not needed, so what a source reads may be divided among instances.
SET 'order' = 'none';

-- The gateway's clock is a row without a robot.
CREATE TABLE fleet (ms BIGINT, robot BIGINT, x DOUBLE, y DOUBLE, vx DOUBLE, vy DOUBLE, gx DOUBLE, gy DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)
WITH ('connector' = 'mqtt', 'address' = '127.0.0.1:1883', 'topic' = 'fleet/#', 'format' = 'json');

CREATE TABLE commands (topic STRING, robot BIGINT, ms BIGINT, vx DOUBLE, vy DOUBLE)
WITH ('connector' = 'mqtt', 'address' = '127.0.0.1:1883', 'topic_column' = 'topic', 'format' = 'json');

CREATE VIEW states AS SELECT * FROM fleet WHERE robot IS NOT NULL;

-- The states of all robots at a tick, in one row.
CREATE VIEW ticks AS SELECT * FROM gather(TABLE states ORDER BY ts);

-- Each instance plans for some of the robots, and so needs the velocities of all.
INSERT INTO commands
SELECT 'commands/' || CAST(robot AS STRING), robot, CAST(ts AS BIGINT), command_x, command_y
FROM avoid(TABLE (
  SELECT /*+ BROADCAST(t) */ s.robot, s.ts, s.x, s.y, s.vx, s.vy, s.gx, s.gy, t.robots
  FROM states AS s JOIN ticks AS t ON s.ts = t.ts));
