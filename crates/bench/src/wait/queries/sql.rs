//! The queries as SQL.

use std::net::SocketAddr;

/// The query over records from a socket.
pub fn fed(processes: usize, address: SocketAddr) -> String {
    let records = format!(
        "CREATE TABLE records (ms BIGINT, sensor INT, reading INT, note STRING,\n\
         ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)\n\
         WITH ('connector' = 'tcp', 'address' = '{address}', 'on_error' = 'fail');\n"
    );
    records + &query(processes, "sensor", "reading")
}

/// The same over so many generated rows, as fast as possible.
pub fn generated(processes: usize, rows: u64) -> String {
    let records = format!(
        "CREATE TABLE records (ts_ms BIGINT, ip STRING, duration INT,\n\
         ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)\n\
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '{rows}',\n\
         'addresses' = '100', 'events_per_second' = '100000');\n"
    );
    records + &query(processes, "ip", "duration")
}

/// Filter and window; in three processes with a running count between them.
fn query(processes: usize, key: &str, value: &str) -> String {
    let columns = "start_ms BIGINT, number BIGINT, most BIGINT";
    let sink = format!("CREATE TABLE out ({columns}) WITH ('connector' = 'blackhole');\n");
    let rest = match processes {
        2 => format!(
            "CREATE VIEW kept AS SELECT {key}, ts, {value} AS figure FROM records WHERE {value} > 0;\n"
        ),
        _ => format!(
            "CREATE VIEW kept AS SELECT {key}, ts,\n\
             COUNT(*) OVER (PARTITION BY {key} ORDER BY ts) AS figure\n\
             FROM records WHERE {value} > 0;\n"
        ),
    };
    sink + &rest
        + &format!(
            "INSERT INTO out SELECT CAST(window_start AS BIGINT), COUNT(*), MAX(figure)\n\
             FROM TUMBLE(TABLE kept, DESCRIPTOR(ts), INTERVAL '0.1' SECOND)\n\
             GROUP BY window_start, window_end, {key};\n"
        )
}
