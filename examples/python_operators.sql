-- Operators in Python, over generated visits: which are long, the words of their addresses, and by address
-- how often the duration has changed by more than five minutes before it was not seen for a second.
-- docs/python-operators.md explains them.

CREATE TABLE visits (
  ts_ms BIGINT, ip STRING, url STRING, duration INT,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '20000');

SET 'emit' = 'final';

-- Without a state: a filter.
CREATE FUNCTION long_visits(t TABLE (duration INT), least INT) RETURNS TABLE LANGUAGE python AS $$
def long_visits(duration, least=5):
    return duration is not None and duration >= least
$$;

-- Without a state: rows of a row.
CREATE FUNCTION parts(t TABLE (url STRING)) RETURNS TABLE (part STRING) LANGUAGE python AS $$
def parts(url):
    return [part for part in url.split(".") if part]
$$;

-- With a state for each address, and a timer.
CREATE FUNCTION jumps(t TABLE (duration INT), least INT, silence INTERVAL)
RETURNS TABLE (jumps BIGINT, last INT) STATE (jumps BIGINT, last INT) LANGUAGE python
WITH ('order' = 'required', 'forgets' = 'true') AS $$
class jumps:
    def __init__(self, least, silence):
        self.least, self.silence = least, silence

    def on_new_key(self, state):
        state.jumps = 0

    def on_row(self, state, row, out):
        if state.last is not None and abs(row.duration - state.last) > self.least:
            state.jumps += 1
        state.last = row.duration
        out.clear_timers()
        out.timer(out.time + self.silence)

    def on_time(self, state, at, out):
        out.emit(state.jumps, state.last)
        out.forget()
$$;

CREATE VIEW silent AS
SELECT * FROM jumps(TABLE visits PARTITION BY ip ORDER BY ts, least => 5, silence => INTERVAL '1' SECOND);

-- Event time goes on: windows come after the operator.
SELECT 'jumps before silences' AS what, window_start, SUM(jumps) AS n
FROM TUMBLE(TABLE silent, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end;

SELECT 'long visits' AS what, part, COUNT(*) AS n
FROM parts(TABLE (SELECT * FROM long_visits(TABLE visits, least => 9)))
GROUP BY part HAVING COUNT(*) > 200;
