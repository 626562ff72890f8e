CREATE TABLE orders (id INT, amount INT, gift BOOLEAN)
WITH ('connector' = 'file', 'path' = 'data/split.csv', 'csv.null' = '');
CREATE TABLE big (id INT, amount INT) WITH ('connector' = 'file', 'path' = 'out/big.csv');
CREATE TABLE gifts (id INT) WITH ('connector' = 'file', 'path' = 'out/gifts.csv');
CREATE TABLE rest (id INT) WITH ('connector' = 'file', 'path' = 'out/rest.csv');

--- a row goes to every output whose condition is true, and one without a condition gets the others
CREATE VIEW b AS SELECT * FROM SPLIT(TABLE orders, 'big', amount > 100, 'gift', gift, 'rest') OUTPUT big;
INSERT INTO big SELECT id, amount FROM b;
INSERT INTO gifts SELECT id FROM SPLIT(TABLE orders, 'big', amount > 100, 'gift', gift, 'rest') OUTPUT gift;
INSERT INTO rest SELECT r.id FROM SPLIT(TABLE orders, 'big', amount > 100, 'gift', gift, 'rest') OUTPUT rest AS r;

--- the table is read once
-- explain
EXPLAIN INSERT INTO big SELECT id, amount FROM SPLIT(TABLE orders, 'big', amount > 100, 'rest') OUTPUT big;
EXPLAIN INSERT INTO rest SELECT id FROM SPLIT(TABLE orders, 'big', amount > 100, 'rest') OUTPUT rest;

--- over a query, with an alias named output
SELECT output.id FROM SPLIT(TABLE (SELECT id, amount * 2 AS twice FROM orders), 'a', twice > 200, 'b', twice < 0)
OUTPUT a AS output WHERE output.id < 6;

--- the output is missing
SELECT * FROM SPLIT(TABLE orders, 'big', amount > 100, 'rest');

--- an unknown output
SELECT * FROM SPLIT(TABLE orders, 'big', amount > 100, 'rest') OUTPUT bigg;

--- a condition that is no condition
SELECT * FROM SPLIT(TABLE orders, 'big', amount, 'rest') OUTPUT rest;

--- a condition with an unknown column
SELECT * FROM SPLIT(TABLE orders, 'big', amont > 100) OUTPUT big;

--- an output without a name
SELECT * FROM SPLIT(TABLE orders, amount > 100) OUTPUT big;

--- two outputs of one name
SELECT * FROM SPLIT(TABLE orders, 'a', amount > 100, 'a', amount < 10) OUTPUT a;

--- two tables
SELECT * FROM SPLIT(TABLE orders, TABLE orders, 'a', amount > 100) OUTPUT a;

--- a key
SELECT * FROM SPLIT(TABLE orders PARTITION BY id, 'a', amount > 100) OUTPUT a;

--- no table
SELECT * FROM SPLIT('a', 1 > 2) OUTPUT a;

--- PARTITION BY without a column
SELECT * FROM SPLIT(TABLE orders PARTITION BY, 'a', amount > 100) OUTPUT a;

--- a table function that does not exist
SELECT * FROM SPLITT(TABLE orders, 'a', amount > 100);
