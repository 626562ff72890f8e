//! The queries, as SQL, and the addresses that they read from and write to.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The length of the windows.
pub const WINDOW_NS: u64 = 1_000_000_000;

/// Readings below it are kept: half of them.
pub const READING_MIN_DROPPED: u64 = 1_500;

/// A measured query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Query {
    /// Keeps half of the rows and three of the seven columns.
    Filter,
    /// The same of records with ten columns: the first, the seventh and the last.
    Wide,
    /// Rows per key and window of a second.
    Window,
}

/// Where records come from and where rows go: a program that listens at both addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Address of the records.
    pub records: SocketAddr,
    /// Address of the rows.
    pub rows: SocketAddr,
}

impl Query {
    /// All queries.
    pub const ALL: [Query; 3] = [Query::Filter, Query::Wide, Query::Window];

    /// The query's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Query::Filter => "filter",
            Query::Wide => "wide",
            Query::Window => "window",
        }
    }

    /// What the query does, for headings.
    pub fn title(self) -> &'static str {
        match self {
            Query::Filter => "filter and project",
            Query::Wide => "filter and project, three of ten columns",
            Query::Window => "keyed window of 1 s",
        }
    }

    /// Whether the hand-written program runs it.
    pub fn is_by_hand(self) -> bool {
        self != Query::Window
    }

    /// The columns of the records.
    fn columns(self) -> &'static str {
        match self {
            Query::Filter | Query::Window => {
                "due BIGINT, ms BIGINT, sensor INT, reading INT, place STRING, status STRING, note STRING"
            }
            Query::Wide => {
                "due BIGINT, ms BIGINT, place STRING, status STRING, latitude DOUBLE, longitude DOUBLE, \
                 sensor INT, battery INT, note STRING, reading INT"
            }
        }
    }

    /// The SQL statements. A record that the engine can't read fails the query: all records here are
    /// valid.
    pub fn sql(self, addresses: &Addresses) -> String {
        let Addresses { records, rows } = addresses;
        let read = self.columns();
        let (event_time, columns, select) = match self {
            Query::Filter | Query::Wide => (
                "",
                "due BIGINT, sensor INT, reading INT",
                format!(
                    "SELECT due, sensor, reading FROM records WHERE reading < {READING_MIN_DROPPED}"
                ),
            ),
            Query::Window => (
                ",\n  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts",
                "start_ms BIGINT, sensor INT, records BIGINT",
                "SELECT CAST(window_start AS BIGINT), sensor, COUNT(*)\n\
                 FROM TUMBLE(TABLE records, DESCRIPTOR(ts), INTERVAL '1' SECOND)\n\
                 GROUP BY window_start, window_end, sensor"
                    .to_string(),
            ),
        };
        format!(
            "CREATE TABLE records ({read}{event_time})\n\
             WITH ('connector' = 'tcp', 'address' = '{records}', 'on_error' = 'fail');\n\
             CREATE TABLE out ({columns}) WITH ('connector' = 'tcp', 'address' = '{rows}');\n\
             INSERT INTO out {select};\n"
        )
    }
}

impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Query {
    type Err = String;

    fn from_str(text: &str) -> Result<Query, String> {
        let named = Query::ALL.into_iter().find(|query| query.name() == text);
        named.ok_or_else(|| "expected filter, wide or window".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slackwater::catalog::BuiltIn;

    #[test]
    fn all_queries_compile() {
        let addresses = Addresses {
            records: SocketAddr::from(([127, 0, 0, 1], 4000)),
            rows: SocketAddr::from(([127, 0, 0, 1], 4001)),
        };
        for query in Query::ALL {
            let sql = query.sql(&addresses);
            let compiled = slackwater_sql::program::compile(&sql, &[], &BuiltIn);
            let compiled = compiled.map_err(|error| error.render(query.name(), &sql));
            let program = compiled.unwrap_or_else(|error| panic!("{error}")).run;
            assert!(!program.is_empty());
        }
    }
}
