SELECT c.name, COUNT(*) AS n, SUM(o.price) AS total, MIN(o.price) AS low FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.name ORDER BY c.name NULLS FIRST
SELECT c.id, COUNT(o.id) AS n FROM customers c LEFT JOIN orders o ON o.customer = c.id AND o.price > 60 GROUP BY c.id ORDER BY c.id
SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id ORDER BY o.id LIMIT 40 OFFSET 7
SELECT COALESCE(o.customer, -1) AS who, COUNT(DISTINCT o.price) AS prices FROM orders o GROUP BY COALESCE(o.customer, -1) HAVING COUNT(*) > 3 ORDER BY who
SELECT price, COUNT(*) AS n FROM orders WHERE customer IS NULL OR customer > 4 GROUP BY price ORDER BY n DESC, price LIMIT 9
SELECT id, CASE WHEN price < 0 THEN 'back' WHEN price = 0 THEN 'free' ELSE 'paid' END AS what FROM orders WHERE id % 13 = 4 ORDER BY id DESC
SELECT id FROM orders WHERE customer NOT IN (SELECT id FROM customers WHERE score > 2.0) ORDER BY id
SELECT id, price FROM orders o WHERE price > (SELECT AVG(price) FROM orders) ORDER BY price DESC, id LIMIT 5
SELECT customer, id, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY price DESC, id) AS place FROM orders) t WHERE place <= 2 ORDER BY customer NULLS FIRST, place
SELECT COUNT(*) AS n, SUM(price) AS total, MIN(id) AS least FROM orders WHERE id < 0
SELECT UPPER(name) AS name, score FROM customers WHERE name LIKE 'c%' AND score BETWEEN 1.0 AND 3.0 ORDER BY score
SELECT a.id AS a, b.id AS b FROM orders a JOIN orders b ON a.price = b.price AND a.id < b.id WHERE a.id < 60 ORDER BY a.id, b.id LIMIT 50
SELECT id FROM orders WHERE id < 3 UNION ALL SELECT id FROM customers WHERE id > 6 ORDER BY id
