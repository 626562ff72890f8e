-- CREATE FUNCTION, and calls of what it declares, that are not valid.

CREATE TABLE bids (ms BIGINT, auction INT, bidder STRING, price DOUBLE) WITH ('connector' = 'file', 'path' = 'data/bids.csv');
CREATE FUNCTION double_of(x INT) RETURNS INT LANGUAGE python AS 'def double_of(x): return 2 * x';

--- a string instead of a number
SELECT double_of(bidder) FROM bids;

--- too many arguments
SELECT double_of(auction, 1) FROM bids;

--- a name that is nearly right
SELECT duble_of(auction) FROM bids;

--- declared twice
CREATE FUNCTION Double_Of(x INT) RETURNS INT LANGUAGE python AS 'def double_of(x): return 2 * x';

--- a name of SQL
CREATE FUNCTION upper(x STRING) RETURNS STRING LANGUAGE python AS 'def upper(x): return x';

--- a name of an aggregate
CREATE FUNCTION Sum(x INT) RETURNS INT LANGUAGE python AS 'def Sum(x): return x';

--- no types
CREATE FUNCTION f AS 'module.f' LANGUAGE PYTHON;

--- no language
CREATE FUNCTION f(x INT) RETURNS INT AS 'def f(x): return x';

--- another language
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE java AS 'com.example.F';

--- no result
CREATE FUNCTION f(x INT) LANGUAGE python AS 'def f(x): return x';

--- no text
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python;

--- a text and a file
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS 'def f(x): return x' USING 'f.py';

--- a table of no table
CREATE FUNCTION f(x INT) RETURNS TABLE (y INT) LANGUAGE python AS 'def f(x): return x';

--- SETOF
CREATE FUNCTION f(x INT) RETURNS SETOF INT LANGUAGE python AS 'def f(x): return x';

--- a table without RETURNS TABLE
CREATE FUNCTION f(t TABLE (x INT)) RETURNS INT LANGUAGE python AS 'def f(x): return x';

--- a table after another parameter
CREATE FUNCTION f(t TABLE (x INT), n INT, u TABLE) RETURNS TABLE LANGUAGE python AS 'def f(x): return x';

--- two parameters of one name
CREATE FUNCTION f(t TABLE (x INT), n INT, n INT) RETURNS TABLE LANGUAGE python AS 'def f(x): return x';

--- two columns of one name
CREATE FUNCTION f(t TABLE (x INT, x INT)) RETURNS TABLE LANGUAGE python AS 'def f(x): return x';

--- no columns in parentheses
CREATE FUNCTION f(t TABLE ()) RETURNS TABLE LANGUAGE python AS 'def f(x): return x';

--- a parameter of another type
CREATE FUNCTION f(t TABLE (x INT), d DATE) RETURNS TABLE LANGUAGE python AS 'def f(x): return x';

--- a parameter that is no name in Python
CREATE FUNCTION f(t TABLE (x INT), `a b` INT) RETURNS TABLE LANGUAGE python AS 'def f(x): return x';

--- a value of the state that is no name in Python
CREATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE STATE (`a b` INT) LANGUAGE python AS 'class f: pass';

--- two tables without STATE
CREATE FUNCTION f(t TABLE (x INT), u TABLE) RETURNS TABLE LANGUAGE python AS 'def f(x): return x';

--- STATE without a table
CREATE FUNCTION f(x INT) RETURNS INT STATE (n INT) LANGUAGE python AS 'class f: pass';

--- an aggregate that returns a table
CREATE AGGREGATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE LANGUAGE python AS 'class f: pass';

--- a table in WebAssembly
CREATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE LANGUAGE wasm AS '(module)';

--- columns with STATE
CREATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE STATE (n INT) LANGUAGE python AS 'class f: pass' WITH ('mode' = 'columns');

--- an option of functions with STATE
CREATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE LANGUAGE python AS 'def f(x): return x' WITH ('outputs' = 'a, b');

--- another option of functions with STATE
CREATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE LANGUAGE python AS 'def f(x): return x' WITH ('emits_updates' = 'true');

--- an option of functions that return a table
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS 'def f(x): return x' WITH ('version' = '2');

--- one output
CREATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE STATE (n INT) LANGUAGE python AS 'class f: pass' WITH ('outputs' = 'a');

--- nulls, which functions that return a table always get
CREATE FUNCTION f(t TABLE (x INT)) RETURNS TABLE LANGUAGE python AS 'def f(x): return x' WITH ('nulls' = 'true');

--- a table, and a name of SQL
CREATE FUNCTION upper(t TABLE (x INT)) RETURNS TABLE LANGUAGE python AS 'def upper(x): return x';

--- an unknown type of an argument
CREATE FUNCTION f(x INTT) RETURNS INT LANGUAGE python AS 'def f(x): return x';

--- an unknown type of an argument without a name
CREATE FUNCTION f(INTT) RETURNS INT LANGUAGE python AS 'def f(x): return x';

--- an unknown type of the result
CREATE FUNCTION f(x INT) RETURNS NUMBER LANGUAGE python AS 'def f(x): return x';

--- an unknown clause
CREATE FUNCTION f(x INT) RETURNS INT IMMUTABLE LANGUAGE python AS 'def f(x): return x';

--- text without quotes
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS def f(x): return x;

--- a file that is not there
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python USING 'data/nothing.py';

--- an unknown option
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS 'def f(x): return x' WITH ('modes' = 'rows');

--- a value that is not valid
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS 'def f(x): return x' WITH ('mode' = 'batch');

--- too little memory
CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS 'def f(x): return x' WITH ('memory' = '1 MB');

--- a list that does not end
CREATE FUNCTION f(x INT RETURNS INT LANGUAGE python AS 'def f(x): return x';

--- DROP of what there is
DROP FUNCTION double_of;

--- DROP of what there is not
DROP FUNCTION nothing;

--- an aggregate without types
CREATE AGGREGATE FUNCTION f AS 'class f: pass' LANGUAGE python;

--- an aggregate without a text
CREATE AGGREGATE FUNCTION f(x INT) RETURNS INT LANGUAGE python;

--- an aggregate that is declared twice
CREATE AGGREGATE FUNCTION double_of(x INT) RETURNS INT LANGUAGE python AS 'class double_of: pass';

--- a string instead of a number, to an aggregate
CREATE AGGREGATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS 'class f: pass';
SELECT f(bidder) FROM bids;

--- CREATE AGGREGATE without FUNCTION
CREATE AGGREGATE f(x INT) RETURNS INT LANGUAGE python AS 'class f: pass';

--- an aggregate that is dropped
CREATE AGGREGATE FUNCTION f(x INT) RETURNS INT LANGUAGE python AS 'class f: pass';
DROP FUNCTION f;

--- an operator with the name of a window function
CREATE FUNCTION tumble(t TABLE (a INT)) RETURNS TABLE LANGUAGE python AS 'def tumble(a): return True';
