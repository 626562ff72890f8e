-- Aggregate functions in Python. Each case starts processes: of the functions declared here, those that it calls.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');

CREATE AGGREGATE FUNCTION product(x INT) RETURNS BIGINT LANGUAGE python AS $$
class product:
    def __init__(self):
        self.value = 1

    def accumulate(self, x):
        self.value *= x

    def merge(self, other):
        self.value *= other.value

    def finish(self):
        return self.value
$$;
CREATE AGGREGATE FUNCTION names(STRING, INT) RETURNS ARRAY<STRING> LANGUAGE python
WITH ('handler' = 'Names', 'nulls' = 'true') AS $$
class Names:
    def __init__(self):
        self.all = []

    def accumulate(self, name, auction):
        self.all.append(f"{name}:{auction}")

    def merge(self, other):
        self.all += other.all

    def finish(self):
        return sorted(self.all)
$$;
CREATE OR REPLACE TEMPORARY AGGREGATE FUNCTION IF NOT EXISTS strict(x INT) RETURNS INT LANGUAGE python AS $$
class strict:
    def __init__(self):
        self.rows, self.total = 0, 0

    def accumulate(self, x):
        self.rows += 1
        if x == 3:
            raise ValueError("three")
        self.total += x

    def retract(self, x):
        self.rows, self.total = self.rows - 1, self.total - x

    def merge(self, other):
        self.rows, self.total = self.rows + other.rows, self.total + other.total

    def finish(self):
        return 100 * self.rows + self.total
$$;

--- in a window, by key
SELECT window_end, bidder, product(auction + 1) AS p, COUNT(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, bidder;

--- in a window, with NULLs
SELECT window_end, ARRAY_TO_STRING(names(bidder, auction), ',') AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;

--- running, by key
-- last per 1
SELECT auction, product(auction + 1) AS p FROM bids GROUP BY auction;

--- over all, and over no rows
-- last per 0
SELECT product(auction) AS p, product(auction) FILTER (WHERE bidder = 'nobody') AS none FROM bids;

--- at the end
SET 'emit' = 'final';
SELECT bidder, product(auction + 1) AS p FROM bids GROUP BY bidder;

--- DISTINCT and FILTER
SET 'emit' = 'final';
SELECT bidder, product(DISTINCT auction) AS d, product(auction) FILTER (WHERE ms < 10000) AS f FROM bids GROUP BY bidder;

--- two phases
SET 'emit' = 'final';
SET 'two_phase' = 'on';
SELECT auction, product(auction + 1) AS p, strict(auction) AS s FROM bids GROUP BY auction;

--- in two processes
SET 'processes' = '2';
SET 'emit' = 'final';
SELECT auction, product(auction + 1) AS p FROM bids GROUP BY auction;

--- a row that raises is rejected, and the others count
SET 'emit' = 'final';
SELECT strict(auction) AS s, strict(auction + 1) FILTER (WHERE auction < 3) AS f, COUNT(*) AS n FROM bids;

--- DISTINCT: a value that raises is rejected
SET 'emit' = 'final';
SET 'parallelism' = '1';
SELECT strict(DISTINCT auction) AS s FROM bids;

--- sessions
SELECT window_start, window_end, product(auction + 1) AS p
FROM SESSION(TABLE bids, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY window_start, window_end;

--- OVER: the running value of each key
SELECT ms, product(auction) OVER (PARTITION BY bidder ORDER BY ts) AS p FROM bids;

--- OVER: of the last rows, and a row that raises
SELECT ms, strict(auction) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM bids;

--- OVER: the running value, and a row that raises
SELECT ms, strict(auction) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s FROM bids;

--- over rows that change, with retract and without
-- last per 0
CREATE VIEW per_bidder AS SELECT bidder, CAST(4 * COUNT(*) AS INT) AS n FROM bids GROUP BY bidder;
SELECT strict(n) AS s, product(n) AS p, product(DISTINCT n) AS d, strict(DISTINCT n) AS sd,
  strict(n) FILTER (WHERE bidder = 'bob') AS f FROM per_bidder;

--- over rows that change, a value that raises until it is taken back
CREATE VIEW per_bidder AS SELECT bidder, CAST(COUNT(*) AS INT) AS n FROM bids WHERE bidder IN ('alice', 'bob') GROUP BY bidder;
CREATE AGGREGATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS $$
class f:
    total = 0
    def accumulate(self, x):
        if x == 1:
            raise ValueError("one")
        self.total += x
    def merge(self, other):
        self.total += other.total
    def finish(self):
        return self.total
$$;
SET 'emit' = 'final';
SELECT f(n) AS s FROM per_bidder;

--- over rows that change, a value that raises and stays
CREATE VIEW per_bidder AS SELECT bidder, CAST(COUNT(*) AS INT) AS n FROM bids GROUP BY bidder;
CREATE AGGREGATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS $$
class f:
    total = 0
    def accumulate(self, x):
        if x == 1:
            raise ValueError("one")
        self.total += x
    def merge(self, other):
        self.total += other.total
    def finish(self):
        return self.total
$$;
SET 'emit' = 'final';
SELECT f(n) AS s FROM per_bidder;

--- over rows that change, a row that raises with retract
CREATE VIEW per_bidder AS SELECT bidder, CAST(3 * COUNT(*) AS INT) AS n FROM bids WHERE ms = 1000 GROUP BY bidder;
SET 'parallelism' = '1';
SELECT strict(n) AS s FROM per_bidder;

--- a value of another type, and one that raises, reject their groups
CREATE AGGREGATE FUNCTION odd(x INT) RETURNS INT LANGUAGE python AS $$
class odd(int):
    total = 0
    def accumulate(self, x):
        self.total += x
    def merge(self, other):
        self.total += other.total
    def finish(self):
        return self.total if self.total % 2 else 6 / (self.total - 2)
$$;
SET 'emit' = 'final';
SELECT auction, odd(auction) AS o FROM bids WHERE ms < 9000 GROUP BY auction;

--- a row that kills its worker is rejected, and no other one
CREATE AGGREGATE FUNCTION fatal(n INT) RETURNS INT LANGUAGE python AS $$
import os
class fatal:
    total = 0
    def accumulate(self, x):
        if x == 3:
            os._exit(7)
        self.total += x
    def merge(self, other):
        self.total += other.total
    def finish(self):
        return self.total
$$;
SET 'emit' = 'final';
SELECT fatal(auction) AS n FROM bids;

--- a state that can't be pickled
CREATE AGGREGATE FUNCTION kept(n INT) RETURNS INT LANGUAGE python AS $$
import threading

class kept:
    def __init__(self):
        self.total = 0
        self.lock = threading.Lock()
    def accumulate(self, x): pass
    def merge(self, other): pass
    def finish(self): return 1
$$;
SELECT kept(auction) AS n FROM bids;

--- a state that can't be pickled later
CREATE AGGREGATE FUNCTION kept(n INT) RETURNS INT LANGUAGE python AS $$
class kept:
    def accumulate(self, x): self.last = lambda: x
    def merge(self, other): pass
    def finish(self): return 1
$$;
SET 'parallelism' = '1';
SELECT kept(auction) AS n FROM bids;

--- a def
CREATE AGGREGATE FUNCTION f(n INT) RETURNS INT LANGUAGE python AS $$

def f(n):
    return n
$$;
SELECT f(auction) AS n FROM bids;

--- CREATE FUNCTION of a class
CREATE FUNCTION f(n INT) RETURNS INT LANGUAGE python AS $$

class f:
    pass
$$;
SELECT f(auction) AS n FROM bids;

--- a class without methods
CREATE AGGREGATE FUNCTION f(n INT) RETURNS INT LANGUAGE python AS 'class f: accumulate = print';
SELECT f(auction) AS n FROM bids;

--- another number of parameters
CREATE AGGREGATE FUNCTION f(n INT) RETURNS INT LANGUAGE python AS $$
class f:
    def accumulate(self, x, y): pass
    def merge(self, other): pass
    def finish(self): return 1
$$;
SELECT f(auction) AS n FROM bids;

--- another number of parameters of a function of rows
CREATE FUNCTION f(n INT) RETURNS INT LANGUAGE python AS $$
import math

def f(x, y):
    return x
$$;
SELECT f(auction) AS n FROM bids;

--- explained
-- explain
SET 'parallelism' = '1';
CREATE AGGREGATE FUNCTION broken(n INT) RETURNS INT LANGUAGE python AS 'class' WITH ('workers' = '2');
EXPLAIN SELECT bidder, broken(auction) AS b FROM bids GROUP BY bidder;

--- explained, over rows that change
-- explain
SET 'parallelism' = '1';
CREATE AGGREGATE FUNCTION broken(n BIGINT) RETURNS INT LANGUAGE python AS 'class';
CREATE VIEW per_bidder AS SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder;
EXPLAIN SELECT broken(n) AS b FROM per_bidder;

--- without arguments
-- last per 0
CREATE AGGREGATE FUNCTION counted() RETURNS INT LANGUAGE python AS $$
class counted:
    n = 0
    def accumulate(self):
        self.n += 1
    def merge(self, other):
        self.n += other.n
    def finish(self):
        return self.n
$$;
SELECT counted() AS n FROM bids;

--- without arguments, over rows that change
-- last per 0
CREATE AGGREGATE FUNCTION counted() RETURNS INT LANGUAGE python AS $$
class counted:
    n = 0
    def accumulate(self):
        self.n += 1
    def merge(self, other):
        self.n += other.n
    def finish(self):
        return self.n
$$;
CREATE VIEW per_bidder AS SELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder;
SELECT counted() AS n FROM per_bidder WHERE n > 1;

--- OVER: the value of all rows of the same time, of which one raises
CREATE TABLE rough (ms BIGINT, auction INT, bidder STRING, price DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(ms / 10000 * 10000, 3), WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)
WITH ('connector' = 'file', 'path' = 'data/bids.csv');
SELECT ms, strict(auction) OVER (ORDER BY ts) AS s FROM rough;

--- each row of a running aggregate
SET 'emit' = 'every_row';
SELECT auction, strict(auction + 1) AS s FROM bids GROUP BY auction;
