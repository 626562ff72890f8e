-- Operators of this example's own over rows that change: the two largest numbers of visits of an address, and
-- how many visits all addresses have, for each country.

CREATE TABLE visits (ts_ms BIGINT, ip STRING, country STRING)
WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '20000', 'addresses' = '500');

CREATE VIEW by_address AS SELECT country, ip, COUNT(*) AS visits FROM visits GROUP BY country, ip;

SELECT * FROM largest(TABLE by_address PARTITION BY country, DESCRIPTOR(visits), 2);

-- What follows sees rows that change, as after GROUP BY.
SELECT n AS addresses, COUNT(*) AS countries, SUM(total) AS visits
FROM totals(TABLE by_address PARTITION BY country, DESCRIPTOR(visits))
GROUP BY n;
