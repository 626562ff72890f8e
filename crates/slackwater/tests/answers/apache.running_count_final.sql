-- A running count per address: the last value of each is compared (HiBench's wordcount).
CREATE TABLE log (ip STRING)
WITH ('connector' = 'file', 'path' = '${DATA}/apache_logs.log', 'format' = 'combined_log');

CREATE TABLE answer (ip STRING, "count" BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'csv.delimiter' = '|', 'csv.header' = 'true');

INSERT INTO answer SELECT ip, COUNT(*) FROM log GROUP BY ip;
