//! Random events, disorder, chunk sizes, parallelism and windows against a naive computation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use proptest::prelude::*;

use crate::support::{lines, rows, run_text};

/// One event: time in ms, key (`None` is NULL), value.
type Event = (i64, Option<u8>, i64);

#[derive(Debug, Clone)]
struct Case {
    partitions: Vec<Vec<Event>>,
    delay_ms: i64,
    size_ms: i64,
    slides_per_window: i64,
    parallelism: usize,
    chunk_rows: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let event = (
        0..20_000i64,
        proptest::option::weighted(0.9, 0..12u8),
        -50..50i64,
    );
    let partition = proptest::collection::vec(event, 0..120);
    let partitions = proptest::collection::vec(partition, 1..4);
    let delays = prop_oneof![Just(0i64), 1..3_000i64, Just(30_000i64)];
    (
        partitions,
        delays,
        1..6i64,
        1..5i64,
        1..5usize,
        1..200usize,
        any::<bool>(),
    )
        .prop_map(
            |(
                mut partitions,
                delay_ms,
                slide,
                slides_per_window,
                parallelism,
                chunk_rows,
                ordered,
            )| {
                if ordered {
                    partitions
                        .iter_mut()
                        .for_each(|partition| partition.sort_by_key(|event| event.0));
                }
                let size_ms = slide * 500 * slides_per_window;
                Case {
                    partitions,
                    delay_ms,
                    size_ms,
                    slides_per_window,
                    parallelism,
                    chunk_rows,
                }
            },
        )
}

/// Rows of each (window, key): what is left after late rows are dropped, and how many were late.
/// An event stands with its partition and position.
type Groups = BTreeMap<(i64, Option<u8>), Vec<(i64, usize, usize, i64)>>;

fn naive(case: &Case) -> (Groups, u64) {
    let slide_ms = case.size_ms / case.slides_per_window;
    let mut groups = Groups::new();
    let mut late = 0;
    for (number, partition) in case.partitions.iter().enumerate() {
        let mut largest: Option<i64> = None;
        for (position, &(time, key, value)) in partition.iter().enumerate() {
            let watermark = largest.map(|largest| largest - case.delay_ms);
            let mut open = 0;
            let mut start = time.div_euclid(slide_ms) * slide_ms;
            while start + case.size_ms > time {
                if watermark.is_none_or(|watermark| start + case.size_ms > watermark) {
                    open += 1;
                    groups
                        .entry((start, key))
                        .or_default()
                        .push((time, number, position, value));
                }
                start -= slide_ms;
            }
            late += u64::from(open == 0);
            largest = Some(largest.map_or(time, |largest| largest.max(time)));
        }
    }
    (groups, late)
}

fn shown(key: &Option<u8>) -> String {
    key.map_or(String::new(), |key| format!("k{key}"))
}

fn write(case: &Case, folder: &std::path::Path) {
    for (number, partition) in case.partitions.iter().enumerate() {
        let mut text = String::new();
        for (time, key, value) in partition {
            writeln!(text, "{time},{},{value}", shown(key)).unwrap();
        }
        std::fs::write(folder.join(format!("in{number}.csv")), text).unwrap();
    }
}

fn declare(case: &Case, folder: &std::path::Path) -> String {
    let path = folder.display();
    format!(
        "CREATE TABLE events (ms BIGINT, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
           WATERMARK FOR ts AS ts - INTERVAL '{} milliseconds')
         WITH ('connector' = 'file', 'path' = '{path}/in*.csv');\n",
        case.delay_ms
    )
}

fn settings(case: &Case) -> [(String, String); 2] {
    [
        ("parallelism".to_string(), case.parallelism.to_string()),
        ("chunk_rows".to_string(), case.chunk_rows.to_string()),
    ]
}

fn run_case(text: &str, case: &Case) -> slackwater::report::Report {
    let settings = settings(case);
    let settings = settings
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect::<Vec<_>>();
    run_text(text, &settings).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn windowed_aggregates_equal_a_naive_computation(case in case()) {
        let folder = tempfile::tempdir().unwrap();
        write(&case, folder.path());
        let out = folder.path().join("out.csv");
        let slide_ms = case.size_ms / case.slides_per_window;
        let text = declare(&case, folder.path()) + &format!(
            "CREATE TABLE out (start BIGINT, k STRING, n BIGINT, s BIGINT, lo BIGINT, hi BIGINT, d BIGINT,
               f BIGINT, l BIGINT, pos BIGINT)
             WITH ('connector' = 'file', 'path' = '{}', 'csv.header' = 'true');
             INSERT INTO out
             SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v), MIN(v), MAX(v), COUNT(DISTINCT v),
               FIRST_VALUE(v), LAST_VALUE(v), COUNT(*) FILTER (WHERE v > 0)
             FROM HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '{slide_ms} milliseconds', INTERVAL '{} \
             milliseconds')
             GROUP BY window_start, window_end, k;",
            out.display(),
            case.size_ms
        );
        let report = run_case(&text, &case);
        let (groups, late) = naive(&case);
        let mut expected = groups.iter().map(|((start, key), events)| {
            let values = events.iter().map(|event| event.3).collect::<Vec<_>>();
            let mut ordered = events.clone();
            ordered.sort();
            let distinct = values.iter().collect::<BTreeSet<_>>().len();
            format!(
                "{start},{},{},{},{},{},{distinct},{},{},{}",
                shown(key),
                values.len(),
                values.iter().sum::<i64>(),
                values.iter().min().unwrap(),
                values.iter().max().unwrap(),
                ordered[0].3,
                ordered[ordered.len() - 1].3,
                values.iter().filter(|value| **value > 0).count(),
            )
        }).collect::<Vec<_>>();
        expected.sort();
        prop_assert_eq!(rows(&out), expected);
        prop_assert_eq!(report.rows_late, late);
        let rows_in = case.partitions.iter().map(|partition| partition.len() as u64).sum::<u64>();
        prop_assert_eq!(report.rows_in, rows_in);
    }

    #[test]
    fn rows_of_a_partition_keep_their_order_at_an_unaggregated_sink(case in case()) {
        let folder = tempfile::tempdir().unwrap();
        write(&case, folder.path());
        let out = folder.path().join("out.csv");
        let text = declare(&case, folder.path()) + &format!(
            "CREATE TABLE out (ms BIGINT, k STRING, v BIGINT)
             WITH ('connector' = 'file', 'path' = '{}', 'csv.header' = 'true');
             INSERT INTO out SELECT ms, k, v FROM events WHERE v <> 0;",
            out.display()
        );
        run_case(&text, &case);
        let found = lines(&out);
        let mut all = Vec::new();
        for partition in &case.partitions {
            let expected = partition.iter().filter(|event| event.2 != 0);
            let expected = expected.map(|(ms, k, v)| format!("{ms},{},{v}", shown(k))).collect::<Vec<_>>();
            // A partition's rows are a subsequence of what came out.
            let mut rest = found.iter();
            prop_assert!(expected.iter().all(|row| rest.any(|found| found == row)));
            all.extend(expected);
        }
        let mut found = found;
        found.sort();
        all.sort();
        prop_assert_eq!(found, all);
    }

    #[test]
    fn a_window_join_equals_a_naive_one(case in case()) {
        let folder = tempfile::tempdir().unwrap();
        write(&case, folder.path());
        let out = folder.path().join("out.csv");
        let text = declare(&case, folder.path()) + &format!(
            "CREATE TABLE out (start BIGINT, k STRING, a BIGINT, b BIGINT)
             WITH ('connector' = 'file', 'path' = '{}', 'csv.header' = 'true');
             CREATE VIEW w AS SELECT * FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '{} milliseconds');
             INSERT INTO out
             SELECT CAST(l.window_start AS BIGINT), l.k, l.v, r.v
             FROM (SELECT * FROM w WHERE v > 10) l JOIN (SELECT * FROM w WHERE v < 0) r
             ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end
             AND l.v + r.v > 0;",
            out.display(),
            case.size_ms
        );
        run_case(&text, &case);
        let (groups, _) = naive(&Case { slides_per_window: 1, ..case.clone() });
        let mut expected = Vec::new();
        for ((start, key), events) in &groups {
            for left in events.iter().filter(|event| key.is_some() && event.3 > 10) {
                for right in events.iter().filter(|event| event.3 < 0 && left.3 + event.3 > 0) {
                    expected.push(format!("{start},{},{},{}", shown(key), left.3, right.3));
                }
            }
        }
        expected.sort();
        prop_assert_eq!(rows(&out), expected);
    }
}
