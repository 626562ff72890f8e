-- Functions in Python that return a table: operators. Each case starts processes for the calls that it makes.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
CREATE TABLE more (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE TABLE types (flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT, single FLOAT,
  real_number DOUBLE, amount DECIMAL(10, 2), day DATE, clock STRING, at TIMESTAMP(9), note STRING, last STRING)
WITH ('connector' = 'file', 'path' = 'data/types.csv');

CREATE FUNCTION dear(t TABLE (price DOUBLE), least DOUBLE) RETURNS TABLE LANGUAGE python AS $$
def dear(price, least=10.0):
    return price is not None and price >= least
$$;
CREATE FUNCTION letters(t TABLE (bidder STRING), most INT) RETURNS TABLE (letter STRING, place INT) LANGUAGE python AS $$
def letters(bidder, most=2):
    for place, letter in enumerate((bidder or "")[:most]):
        yield letter, place
$$;
CREATE FUNCTION jumps(t TABLE (price DOUBLE), least DOUBLE, silence INTERVAL)
RETURNS TABLE (old DOUBLE, new DOUBLE) STATE (last DOUBLE) LANGUAGE python WITH ('order' = 'required', 'forgets' = 'true') AS $$
class jumps:
    def __init__(self, least=0.0, silence=None):
        self.least, self.silence = least, silence

    def on_row(self, state, row, out):
        if self.silence is not None:
            out.clear_timers()
            out.timer(out.time + self.silence)
        if row.price is not None and (state.last is None or abs(row.price - state.last) > self.least):
            out.emit(state.last, row.price)
            state.last = row.price

    def on_time(self, state, at, out):
        out.emit(state.last, None)
        out.forget()
$$;
CREATE FUNCTION numbered(t TABLE (bidder STRING)) RETURNS TABLE (n BIGINT, all_of ARRAY<STRING>) STATE (n BIGINT, all_of ARRAY<STRING>) LANGUAGE python AS $$
class numbered:
    def on_new_key(self, state):
        state.n, state.all_of = 0, []

    def on_row(self, state, row, out):
        state.n += 1
        state.all_of.append(row.bidder)
        if row.bidder == "dave":
            raise ValueError("not dave")
        out.emit(state.n, state.all_of)
$$;
CREATE FUNCTION latest(quotes TABLE (price DOUBLE), asks TABLE (ms BIGINT, bidder STRING)) RETURNS TABLE (bidder STRING, price DOUBLE)
STATE (price DOUBLE) LANGUAGE python AS $$
class latest:
    def on_row(self, state, row, out):
        if out.input == 0:
            state.price = row.price
        else:
            out.emit(row.bidder, state.price)
$$;
CREATE FUNCTION sorted_out(t TABLE (price DOUBLE)) RETURNS TABLE (price DOUBLE, n INT) STATE (n INT) LANGUAGE python
WITH ('outputs' = 'cheap, dear') AS $$
class sorted_out:
    def on_row(self, state, row, out):
        state.n = (state.n or 0) + 1
        if row.price is not None:
            out.emit_to("dear" if row.price > 10 else "cheap", row.price, state.n)
$$;

--- a filter
SELECT ms, price FROM dear(TABLE bids);

--- a filter with an argument, over a query
SELECT ms, price FROM dear(TABLE (SELECT * FROM bids WHERE bidder <> 'bob'), least => 5) WHERE ms > 2000;

--- rows of a row, which keep the columns of the table
SELECT ms, bidder, letter, place FROM letters(TABLE bids, 3) WHERE ms < 10000;

--- event time stays
SELECT window_end, letter, COUNT(*) AS n
FROM TUMBLE(TABLE (SELECT ts, letter FROM letters(TABLE bids, most => 1)), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, letter;

--- by key, in the order of event time
SELECT auction, ts, old, new FROM jumps(TABLE bids PARTITION BY auction ORDER BY ts);

--- with arguments and timers
SELECT auction, ts, old, new FROM jumps(TABLE bids PARTITION BY auction ORDER BY ts, 4, silence => INTERVAL '9' SECOND);

--- timers that are never over
SELECT bidder, ts, old, new FROM jumps(TABLE bids PARTITION BY bidder ORDER BY ts, silence => INTERVAL '30' DAY);

--- a row that raises is rejected, and changes nothing
SELECT auction, n, ARRAY_TO_STRING(all_of, ',', '-') AS all_of FROM numbered(TABLE bids PARTITION BY auction ORDER BY ts);

--- in the order of arrival
SELECT auction, n FROM numbered(TABLE bids PARTITION BY auction);

--- without PARTITION BY
SELECT ts, n FROM numbered(TABLE bids ORDER BY ts);

--- by several columns
SELECT auction, bidder, n FROM numbered(TABLE bids PARTITION BY (auction, bidder) ORDER BY ts);

--- two tables
SELECT auction, ts, bidder, price FROM latest(TABLE bids PARTITION BY auction ORDER BY ts, TABLE more PARTITION BY auction ORDER BY ts);

--- several outputs
SELECT auction, price, n FROM sorted_out(TABLE bids PARTITION BY auction ORDER BY ts) OUTPUT cheap;

--- another output, and both in a view
CREATE VIEW d AS SELECT price, n FROM sorted_out(TABLE bids PARTITION BY auction ORDER BY ts) OUTPUT dear;
CREATE VIEW c AS SELECT price, n FROM sorted_out(TABLE bids PARTITION BY auction ORDER BY ts) OUTPUT cheap;
SELECT 'd' AS o, * FROM d UNION ALL SELECT 'c', * FROM c;

--- all columns of the table
CREATE FUNCTION shown(t TABLE) RETURNS TABLE (shown STRING) LANGUAGE python AS 'def shown(*values): return [" ".join(map(repr, values))]';
SELECT shown FROM shown(TABLE (SELECT ms, bidder, price, ts FROM bids));

--- every type in a state
CREATE FUNCTION kept(t TABLE (flag BOOLEAN, tiny TINYINT, amount DECIMAL(10, 2), day DATE, at TIMESTAMP(9), note STRING)) RETURNS TABLE (before STRING)
STATE (flag BOOLEAN, tiny TINYINT, amount DECIMAL(10, 2), day DATE, at TIMESTAMP(9), note STRING, all_of ROW<n INT, notes ARRAY<STRING>>) LANGUAGE python AS $$
class kept:
    def on_row(self, state, row, out):
        out.emit(repr((state.flag, state.tiny, state.amount, state.day, state.at, state.note, state.all_of)))
        state.flag, state.tiny, state.amount, state.day, state.at, state.note = row
        state.all_of = state.all_of or {"n": 0, "notes": []}
        state.all_of["n"] += 1
        state.all_of["notes"].append(row.note)
$$;
SET 'chunk_rows' = '1';
SELECT before FROM kept(TABLE (SELECT flag, tiny, amount, day, at, note FROM types));

--- over rows that are updated
CREATE FUNCTION even(t TABLE (n BIGINT)) RETURNS TABLE LANGUAGE python WITH ('updates' = 'true') AS 'def even(n): return n % 2 == 0';
-- last per 0
SELECT auction, n FROM even(TABLE (SELECT auction, COUNT(*) AS n FROM bids GROUP BY auction));

--- over rows that are updated, with a state
CREATE FUNCTION totals(t TABLE (n BIGINT)) RETURNS TABLE (c BIGINT, total BIGINT) STATE (c BIGINT, total BIGINT) LANGUAGE python
WITH ('updates' = 'true', 'emits_updates' = 'true', 'forgets' = 'true') AS $$
class totals:
    def on_new_key(self, state):
        state.c = state.total = 0

    def on_row(self, state, row, out):
        if state.c:
            out.retract(state.c, state.total)
        sign = -1 if out.change == "delete" else 1
        state.c, state.total = state.c + sign, state.total + sign * row.n
        if state.c:
            out.emit(state.c, state.total)
        else:
            out.forget()
$$;
SET 'emit' = 'final';
SELECT half, c, total FROM totals(TABLE (SELECT auction % 2 AS half, COUNT(*) AS n FROM bids GROUP BY auction) PARTITION BY half) ORDER BY half;

--- a row that is retracted and was not emitted
CREATE FUNCTION mistaken(t TABLE (price DOUBLE)) RETURNS TABLE (c BIGINT) STATE (c BIGINT) LANGUAGE python WITH ('emits_updates' = 'true') AS $$
class mistaken:
    def on_row(self, state, row, out):
        out.retract(7)
$$;
SELECT c FROM mistaken(TABLE bids);

--- in two processes, from a file
SET 'processes' = '2';
SET 'workers' = '2';
CREATE FUNCTION twice(t TABLE (price DOUBLE)) RETURNS TABLE (n INT) LANGUAGE python USING 'data/twice.py';
SELECT auction, ts, old, new, n FROM twice(TABLE (SELECT *, new AS price FROM jumps(TABLE bids PARTITION BY auction ORDER BY ts)));

--- no order
SELECT auction, ts FROM jumps(TABLE bids PARTITION BY auction);

--- two tables instead of one
SELECT ts FROM jumps(TABLE bids ORDER BY ts, TABLE more ORDER BY ts);

--- a missing column
SELECT ms FROM dear(TABLE (SELECT ms FROM bids));

--- a column of another type
SELECT ms FROM dear(TABLE (SELECT ms, bidder AS price FROM bids));

--- an argument of another type
SELECT ms FROM dear(TABLE bids, 'much');

--- an argument that there is not
SELECT ms FROM dear(TABLE bids, lest => 5);

--- a key for a function without STATE
SELECT ms FROM dear(TABLE bids PARTITION BY auction);

--- updates for a function with STATE
SELECT n FROM numbered(TABLE (SELECT bidder, COUNT(*) AS c FROM bids GROUP BY bidder));

--- updates without 'updates'
SELECT price FROM dear(TABLE (SELECT MAX(price) AS price FROM bids GROUP BY bidder));

--- a table function among values
SELECT dear(price) FROM bids;

--- a name that is nearly right
SELECT ms FROM deer(TABLE bids);

--- an output that there is not
SELECT price FROM sorted_out(TABLE bids) OUTPUT cheep;

--- a column of a type that holds its values
CREATE FUNCTION wider(t TABLE (tiny BIGINT, small FLOAT, number DOUBLE, single DOUBLE, amount DECIMAL(12, 4))) RETURNS TABLE (shown STRING)
LANGUAGE python AS 'def wider(*values): return [repr(values)]';
SELECT shown FROM wider(TABLE types);

--- a column of a type that does not hold its values
CREATE FUNCTION narrower(t TABLE (ms DOUBLE)) RETURNS TABLE LANGUAGE python AS 'def narrower(ms): return True';
SELECT ms FROM narrower(TABLE bids);

--- a shorter time
CREATE FUNCTION coarser(t TABLE (at TIMESTAMP(3))) RETURNS TABLE LANGUAGE python AS 'def coarser(at): return True';
SELECT at FROM coarser(TABLE types);

--- a filter that returns None does not keep the row
CREATE FUNCTION cheap(t TABLE (price DOUBLE)) RETURNS TABLE LANGUAGE python AS 'def cheap(price): return None if price is None else price < 6';
SELECT ms, price FROM cheap(TABLE bids);

--- a timer that is set again for its own time
CREATE FUNCTION endless(t TABLE (price DOUBLE)) RETURNS TABLE (n INT) STATE (n INT) LANGUAGE python AS $$
class endless:
    def on_row(self, state, row, out):
        out.timer(out.time)

    def on_time(self, state, at, out):
        out.timer(at)
$$;
SELECT n FROM endless(TABLE (SELECT * FROM bids WHERE ms = 1000) ORDER BY ts);

--- a column as an argument
SELECT ms FROM dear(TABLE bids, least => price);

--- two columns without parentheses
SELECT n FROM numbered(TABLE bids PARTITION BY auction, bidder ORDER BY ts);

--- too many arguments
SELECT ms FROM dear(TABLE bids, 1, 2);

--- one table instead of two
SELECT ts FROM latest(TABLE bids PARTITION BY auction ORDER BY ts);

--- an interval instead of a number
SELECT ms FROM dear(TABLE bids, INTERVAL '1' MONTH);

--- an argument without a default that a call leaves out
CREATE FUNCTION over(t TABLE (price DOUBLE), least DOUBLE) RETURNS TABLE LANGUAGE python AS 'def over(price, least): return price > least';
SELECT ms FROM over(TABLE bids);

--- a method that would never run
CREATE FUNCTION waits(t TABLE (price DOUBLE)) RETURNS TABLE (n INT) STATE (n INT) LANGUAGE python AS $$
class waits:
    async def on_row(self, state, row, out):
        out.emit(1)
$$;
SELECT n FROM waits(TABLE bids);

--- the numbers of places among the columns
CREATE FUNCTION all_of(t TABLE) RETURNS TABLE (seen STRING) STATE (n INT) LANGUAGE python AS $$
class all_of:
    def on_row(self, state, row, out):
        out.emit(f"{row.place} {row.auction}")
$$;
SELECT place, auction, seen FROM all_of(TABLE (SELECT DIRECT(auction) AS place, auction, ts FROM bids) PARTITION BY (place, auction) ORDER BY ts);

--- a place as a type that is too narrow
CREATE FUNCTION narrow(t TABLE (place SMALLINT)) RETURNS TABLE LANGUAGE python AS 'def narrow(place): return True';
SELECT place FROM narrow(TABLE (SELECT DIRECT(auction) AS place FROM bids));

--- a key twice
SELECT n FROM numbered(TABLE bids PARTITION BY (auction, auction));
