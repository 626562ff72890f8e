//! Joins with tables, with their versions, and within an interval with a side that is broadcast, against
//! naive ones: random rows, disorder, instances,
//! processes, links, balancers and ways to broadcast (I1).

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;

use crate::support::{rows, run_slowly};

/// Time in ms, key (`None` is NULL), value.
type Row = (i64, Option<u8>, i64);

#[derive(Debug, Clone)]
struct Case {
    stream: Vec<Vec<Row>>,
    table: Vec<Vec<Row>>,
    delay_ms: i64,
    left: bool,
    settings: Vec<(&'static str, String)>,
    /// Which operators are slow.
    slow: Option<u64>,
}

fn partitions() -> impl Strategy<Value = Vec<Vec<Row>>> {
    // Half of the times are round, so that some are equal, and some equal a watermark.
    let times = prop_oneof![0..20_000i64, (0..40i64).prop_map(|time| 500 * time)];
    let row = (times, prop::option::weighted(0.9, 0..8u8), -50..50i64);
    prop::collection::vec(prop::collection::vec(row, 0..60), 1..4)
}

fn settings() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let one_of = |values: &[&'static str]| prop::sample::select(values.to_vec());
    (
        (1..6usize, 1..200usize, 1..4usize),
        one_of(&["1", "1", "1", "2", "3"]),
        one_of(&["shm", "tcp"]),
        one_of(&["auto", "demand", "round_robin"]),
        one_of(&["auto", "serial", "flat_tree", "binary_tree", "ring"]),
    )
        .prop_map(|(numbers, processes, link, balancer, broadcast)| {
            let (parallelism, chunk_rows, workers) = numbers;
            let order = if balancer == "auto" { "keep" } else { "none" };
            let processes_min: usize = processes.parse().unwrap();
            vec![
                ("parallelism", parallelism.to_string()),
                ("chunk_rows", chunk_rows.to_string()),
                ("workers", workers.max(processes_min).to_string()),
                ("processes", processes.to_string()),
                ("link", link.to_string()),
                ("balancer", balancer.to_string()),
                ("broadcast", broadcast.to_string()),
                ("order", order.to_string()),
            ]
        })
}

fn case() -> impl Strategy<Value = Case> {
    let delays = prop_oneof![Just(0i64), Just(1_000i64), 1..3_000i64, Just(30_000i64)];
    let slow = prop::option::weighted(0.3, any::<u64>());
    let tables = (partitions(), partitions());
    (tables, delays, any::<bool>(), settings(), slow).prop_map(
        |((stream, table), delay_ms, left, settings, slow)| Case {
            stream,
            table,
            delay_ms,
            left,
            settings,
            slow,
        },
    )
}

fn shown(key: Option<u8>) -> String {
    key.map_or(String::new(), |key| format!("k{key}"))
}

fn write(name: &str, partitions: &[Vec<Row>], folder: &Path) {
    for (number, partition) in partitions.iter().enumerate() {
        let mut text = String::new();
        for &(time, key, value) in partition {
            writeln!(text, "{time},{},{value}", shown(key)).unwrap();
        }
        std::fs::write(folder.join(format!("{name}{number}.csv")), text).unwrap();
    }
}

/// The rows that are not late, with their partitions and positions; and how many are late.
fn timely(partitions: &[Vec<Row>], delay_ms: i64) -> (Vec<(Row, usize, usize)>, u64) {
    let (mut timely, mut late) = (Vec::new(), 0);
    for (number, partition) in partitions.iter().enumerate() {
        let mut largest: Option<i64> = None;
        for (position, &row) in partition.iter().enumerate() {
            if largest.is_none_or(|largest| row.0 >= largest - delay_ms) {
                timely.push((row, number, position));
            } else {
                late += 1;
            }
            largest = Some(largest.map_or(row.0, |largest| largest.max(row.0)));
        }
    }
    (timely, late)
}

/// Runs the case; `hint` is what stands after SELECT, `from` what stands after the word JOIN. Returns what
/// came out, and how many were late.
fn found(case: &Case, hint: &str, from: &str, watermarked: bool) -> (Vec<String>, u64) {
    let folder = tempfile::tempdir().unwrap();
    write("stream", &case.stream, folder.path());
    write("table", &case.table, folder.path());
    let out = folder.path().join("out.csv");
    let path = folder.path().display();
    let watermark = format!(
        ", WATERMARK FOR ts AS ts - INTERVAL '{} milliseconds'",
        case.delay_ms
    );
    let columns = "(ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3)";
    let of_table = if watermarked { watermark.as_str() } else { "" };
    let text = format!(
        "CREATE TABLE s {columns}{watermark}) WITH ('connector' = 'file', 'path' = '{path}/stream*.csv');
         CREATE TABLE t {columns}{of_table}) WITH ('connector' = 'file', 'path' = '{path}/table*.csv');
         CREATE TABLE result (ms BIGINT, k STRING, v BIGINT, w BIGINT)
         WITH ('connector' = 'file', 'path' = '{}', 'csv.header' = 'true');
         INSERT INTO result SELECT {hint} s.ms, s.k, s.v, t.v FROM s {} {from};",
        out.display(),
        if case.left { "LEFT JOIN" } else { "JOIN" },
    );
    let settings = case.settings.iter();
    let settings = settings.map(|(key, value)| (*key, value.as_str()));
    let report = run_slowly(&text, &settings.collect::<Vec<_>>(), case.slow).unwrap();
    (rows(&out), report.rows_late)
}

fn row((ms, key, value): Row, partner: Option<i64>) -> String {
    let partner = partner.map_or(String::new(), |partner| partner.to_string());
    format!("{ms},{},{value},{partner}", shown(key))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_table_join_equals_a_naive_one(case in case()) {
        let from = "t ON s.k = t.k AND s.v + t.v > -20";
        let (found, late) = found(&case, "", from, false);
        let mut expected = Vec::new();
        for &stream in case.stream.iter().flatten() {
            let partners = case.table.iter().flatten();
            let partners = partners.filter(|table| {
                stream.1.is_some() && table.1 == stream.1 && stream.2 + table.2 > -20
            });
            let before = expected.len();
            expected.extend(partners.map(|table| row(stream, Some(table.2))));
            if case.left && expected.len() == before {
                expected.push(row(stream, None));
            }
        }
        expected.sort();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(late, 0);
    }

    #[test]
    fn a_temporal_join_equals_a_naive_one(case in case()) {
        let from = "t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k AND s.v + t.v > -20";
        let (found, late) = found(&case, "", from, true);
        let (stream, late_rows) = timely(&case.stream, case.delay_ms);
        let (versions, late_versions) = timely(&case.table, case.delay_ms);
        let mut expected = Vec::new();
        for (of_stream, _, _) in stream {
            let versions = versions.iter();
            let versions = versions.filter(|(version, _, _)| {
                of_stream.1.is_some() && version.1 == of_stream.1 && version.0 <= of_stream.0
            });
            let version = versions.max_by_key(|(version, number, position)| (version.0, *number, *position));
            let partner = version.map(|(version, _, _)| version.2);
            let partner = partner.filter(|partner| of_stream.2 + partner > -20);
            if partner.is_some() || case.left {
                expected.push(row(of_stream, partner));
            }
        }
        expected.sort();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(late, late_rows + late_versions);
    }

    #[test]
    fn an_interval_join_with_a_side_in_every_instance_equals_a_naive_one(
        case in case(),
        side in prop::sample::select(vec!["s", "t"]),
        is_keyed in any::<bool>(),
    ) {
        // Only rows of the other side can be padded.
        let case = Case { left: case.left && side == "t", ..case };
        let interval = "t.ts BETWEEN s.ts - INTERVAL '2' SECOND AND s.ts + INTERVAL '1' SECOND";
        let from = format!(
            "t ON {interval} AND s.v + t.v > 20 {}",
            if is_keyed { "AND s.k = t.k" } else { "" }
        );
        let (found, late) = found(&case, &format!("/*+ BROADCAST({side}) */"), &from, true);
        // At its partition's watermark a row is late, too.
        let (stream, late_rows) = timely(&case.stream, case.delay_ms - 1);
        let (table, late_others) = timely(&case.table, case.delay_ms - 1);
        let mut expected = Vec::new();
        for (of_stream, _, _) in stream {
            let partners = table.iter().filter(|(of_table, _, _)| {
                (-2_000..=1_000).contains(&(of_table.0 - of_stream.0))
                    && of_stream.2 + of_table.2 > 20
                    && (!is_keyed || (of_stream.1.is_some() && of_table.1 == of_stream.1))
            });
            let before = expected.len();
            expected.extend(partners.map(|(of_table, _, _)| row(of_stream, Some(of_table.2))));
            if case.left && expected.len() == before {
                expected.push(row(of_stream, None));
            }
        }
        expected.sort();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(late, late_rows + late_others);
    }
}
