//! The queries, as users would write them.

use std::path::Path;

/// Events per second of event time: five million records span 50 s, that is, two or three windows.
const EVENTS_PER_SECOND: u64 = 100_000;

/// Event rate of the streams whose memory is compared: even the shorter one spans several windows, so
/// that both have the same number of windows open at once.
const EVENTS_PER_SECOND_MEMORY: u64 = 10_000;

/// Columns of a generated record; as CSV it has about 200 bytes, like HiBench's.
const COLUMNS: &str = "ts_ms BIGINT, page_id BIGINT, ip STRING, url STRING, visit_date STRING, \
     ad_revenue DOUBLE, user_agent STRING, country STRING, language STRING, \
     search_word STRING, duration INT";

/// Event time of a record, in the DDL.
const EVENT_TIME: &str =
    "ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND";

const FIX_WINDOW: &str = "FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '30' SECOND) \
     GROUP BY window_start, window_end, ip";

/// One of HiBench's streaming workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Copies records as they are.
    Identity,
    /// Copies rows: every column of a record is read.
    IdentityRows,
    /// Sends records to other instances in turn and copies them there.
    Repartition,
    /// A running count per address, one update per record.
    WordCount,
    /// Per window of 30 s and address: the first time and the number of records, and when that was emitted.
    FixWindow,
    /// The same for every hundred records of an address.
    CountWindow,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 6] = [
        Workload::Identity,
        Workload::IdentityRows,
        Workload::Repartition,
        Workload::WordCount,
        Workload::FixWindow,
        Workload::CountWindow,
    ];

    /// HiBench's name; of what it does not have, one like it.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Identity => "identity",
            Workload::IdentityRows => "identity-rows",
            Workload::Repartition => "repartition",
            Workload::WordCount => "wordcount",
            Workload::FixWindow => "fixwindow",
            Workload::CountWindow => "countwindow",
        }
    }

    /// The query over the records in `file`.
    pub fn sql(self, file: &Path) -> String {
        let lines = format!(
            "CREATE TABLE visits (line STRING) WITH ('connector' = 'file', 'path' = {}, \
             'format' = 'raw');\n\
             CREATE TABLE out (line STRING) WITH ('connector' = 'blackhole');\n\
             INSERT INTO out SELECT line FROM visits;\n",
            quoted(file)
        );
        match self {
            Workload::Identity => lines,
            Workload::IdentityRows => format!(
                "CREATE TABLE visits ({COLUMNS}) WITH ('connector' = 'file', 'path' = {}, \
                 'format' = 'csv');\n\
                 CREATE TABLE out ({COLUMNS}) WITH ('connector' = 'blackhole');\n\
                 INSERT INTO out SELECT * FROM visits;\n",
                quoted(file)
            ),
            Workload::Repartition => {
                format!("SET 'balancer' = 'round_robin';\nSET 'order' = 'none';\n{lines}")
            }
            Workload::WordCount => format!(
                "SET 'emit' = 'every_row';\n{}\
                 CREATE TABLE out (ip STRING, visits BIGINT) WITH ('connector' = 'blackhole');\n\
                 INSERT INTO out SELECT ip, COUNT(*) FROM visits GROUP BY ip;\n",
                visits(file)
            ),
            Workload::FixWindow => format!("{}{}", visits(file), fix_window_into_blackhole()),
            Workload::CountWindow => format!(
                "{}\
                 CREATE TABLE out (window_number BIGINT, ip STRING, first_ts TIMESTAMP(3), \
                 visits BIGINT, emitted TIMESTAMP(3)) WITH ('connector' = 'blackhole');\n\
                 INSERT INTO out SELECT window_number, ip, MIN(ts), COUNT(*), PROCTIME() \
                 FROM COUNT_WINDOW(TABLE visits PARTITION BY ip, DESCRIPTOR(ts), 100) \
                 GROUP BY window_start, window_end, window_number, ip;\n",
                visits(file)
            ),
        }
    }
}

/// Writes `rows` generated records to `file`.
pub fn generate(file: &Path, rows: u64) -> String {
    format!(
        "CREATE TABLE visits ({COLUMNS}) WITH ('connector' = 'datagen', \
         'generator' = 'uservisits', 'rows' = '{rows}', \
         'events_per_second' = '{EVENTS_PER_SECOND}');\n\
         CREATE TABLE out ({COLUMNS}) WITH ('connector' = 'file', 'path' = {}, \
         'format' = 'csv');\n\
         INSERT INTO out SELECT * FROM visits;\n",
        quoted(file)
    )
}

/// Fixwindow into a file of `window start in ms,address,count,first time in ms`.
pub fn fix_window_results(file: &Path, results: &Path) -> String {
    format!(
        "{}\
         CREATE TABLE out (start_ms BIGINT, ip STRING, visits BIGINT, first_ms BIGINT) \
         WITH ('connector' = 'file', 'path' = {}, 'format' = 'csv', 'overwrite' = 'true');\n\
         INSERT INTO out SELECT CAST(window_start AS BIGINT), ip, COUNT(*), \
         CAST(MIN(ts) AS BIGINT) {FIX_WINDOW};\n",
        visits(file),
        quoted(results)
    )
}

/// Fixwindow over records that are generated as they are read.
pub fn fix_window_generated(rows: u64) -> String {
    format!(
        "CREATE TABLE visits (ts_ms BIGINT, ip STRING, {EVENT_TIME}) WITH (\
         'connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '{rows}', \
         'events_per_second' = '{EVENTS_PER_SECOND_MEMORY}');\n{}",
        fix_window_into_blackhole()
    )
}

fn fix_window_into_blackhole() -> String {
    format!(
        "CREATE TABLE out (window_start TIMESTAMP(3), ip STRING, first_ts TIMESTAMP(3), \
         visits BIGINT, emitted TIMESTAMP(3)) WITH ('connector' = 'blackhole');\n\
         INSERT INTO out SELECT window_start, ip, MIN(ts), COUNT(*), PROCTIME() {FIX_WINDOW};\n"
    )
}

/// The table of records in `file`.
fn visits(file: &Path) -> String {
    format!(
        "CREATE TABLE visits ({COLUMNS}, {EVENT_TIME}) \
         WITH ('connector' = 'file', 'path' = {}, 'format' = 'csv');\n",
        quoted(file)
    )
}

/// A path as an SQL string.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slackwater::catalog::BuiltIn;

    #[test]
    fn every_query_compiles() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it's here.csv");
        std::fs::write(&file, "").unwrap();
        let results = folder.path().join("results.csv");
        let mut queries = Workload::ALL.map(|workload| workload.sql(&file)).to_vec();
        queries.push(generate(&folder.path().join("new.csv"), 10));
        queries.push(fix_window_results(&file, &results));
        queries.push(fix_window_generated(10));
        for text in queries {
            let compiled = slackwater_sql::program::compile(&text, &[], &BuiltIn);
            if let Err(error) = compiled {
                panic!("{}", error.render("query", &text));
            }
        }
    }
}
