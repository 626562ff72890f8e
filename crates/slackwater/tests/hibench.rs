//! HiBench's streaming workloads as they stand in `examples/hibench`, over fewer rows: the number of results,
//! with one instance and with two.

use std::collections::BTreeMap;

use crate::process::Folder;

const ROWS: u64 = 100_000;

/// The rows that an example writes, from the file that stands in for its sink.
fn results(text: &str, arguments: &[&str]) -> Vec<String> {
    let folder = Folder::new();
    let sink = "'connector' = 'file', 'path' = 'out.csv'";
    let text = text
        .replace("'rows' = '1000000'", &format!("'rows' = '{ROWS}'"))
        .replace(
            "'events_per_second' = '10000'",
            "'events_per_second' = '1000', 'addresses' = '50'",
        )
        .replace("'connector' = 'blackhole'", sink);
    folder.run(&text, arguments).ok();
    assert_eq!(folder.json("report.json")["rows_in"], ROWS);
    folder.sorted("out.csv")
}

/// A field of a row of CSV.
fn field(row: &str, number: usize) -> &str {
    row.split(',').nth(number).unwrap()
}

macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../examples/hibench/", $name, ".sql"))
    };
}

const INSTANCES: [&[&str]; 2] = [&["--parallelism", "1"], &["--parallelism", "2"]];

#[test]
fn identity_and_repartition_copy_rows() {
    let identity = INSTANCES.map(|arguments| results(example!("identity"), arguments));
    assert_eq!(identity[0].len() as u64, ROWS);
    assert_eq!(identity[0], identity[1]);
    assert_eq!(identity[0][0].split(',').count(), 11);
    let repartition = INSTANCES.map(|arguments| results(example!("repartition"), arguments));
    assert_eq!(repartition[0], repartition[1]);
    let short = |row: &String| [0, 2, 3].map(|number| field(row, number)).join(",");
    let mut expected = identity[0].iter().map(short).collect::<Vec<String>>();
    expected.sort();
    assert_eq!(repartition[0], expected);
}

#[test]
fn wordcount_counts_every_visit_of_an_address() {
    let visits = results(example!("identity"), &[]);
    let mut expected = BTreeMap::<&str, u64>::new();
    for row in &visits {
        *expected.entry(field(row, 2)).or_default() += 1;
    }
    for arguments in INSTANCES {
        let counts = results(example!("wordcount"), arguments);
        assert_eq!(counts.len() as u64, ROWS);
        let mut last = BTreeMap::<&str, u64>::new();
        for row in &counts {
            let most = last.entry(field(row, 0)).or_default();
            *most = (*most).max(field(row, 1).parse().unwrap());
        }
        assert_eq!(last, expected);
    }
}

#[test]
fn windows_have_the_first_visit_their_number_and_when_they_were_emitted() {
    let without_time = |row: &String| {
        let (row, emitted) = row.rsplit_once(',').unwrap();
        // Of this century and not of the visits, which are from 2015.
        assert!(
            emitted.starts_with("20") && !emitted.starts_with("2015"),
            "{emitted}"
        );
        row.to_string()
    };
    let [one, two] = INSTANCES.map(|arguments| {
        let rows = results(example!("fixwindow"), arguments);
        rows.iter().map(without_time).collect::<Vec<String>>()
    });
    assert_eq!(one, two);
    let visits = one.iter().map(|row| field(row, 3).parse::<u64>().unwrap());
    assert_eq!(visits.sum::<u64>(), ROWS);
    let windows = one
        .iter()
        .map(|row| field(row, 0))
        .collect::<std::collections::BTreeSet<_>>();
    // 100 s of visits.
    assert_eq!(windows.len(), 4);
    let [one, two] = INSTANCES.map(|arguments| {
        let rows = results(example!("countwindow"), arguments);
        rows.iter().map(without_time).collect::<Vec<String>>()
    });
    assert_eq!(one, two);
    assert!(!one.is_empty() && one.iter().all(|row| field(row, 3) == "100"));
}
