//! Results that come out once, at the end of their inputs, with stops on the way.

use super::*;

/// Most frequent keys, in order; and a table of all keys.
const FINAL: &str = "
  CREATE TABLE top (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = '{folder}/top.csv');
  CREATE TABLE totals (k STRING, n BIGINT, total BIGINT)
  WITH ('connector' = 'file', 'path' = '{folder}/totals.csv');
  INSERT INTO top SELECT k, COUNT(*) AS n FROM events GROUP BY k ORDER BY n DESC, k LIMIT 5;
  INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM events GROUP BY k HAVING COUNT(*) > 300;";

fn expected() -> (Vec<String>, Vec<String>) {
    let mut groups = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for row in 0..ROWS {
        let (n, total) = groups.entry(format!("k{}", row * row % 101)).or_default();
        (*n, *total) = (*n + 1, *total + row);
    }
    let mut top = groups.iter().collect::<Vec<_>>();
    top.sort_by_key(|(k, (n, _))| (std::cmp::Reverse(*n), k.as_str()));
    let top = top.iter().take(5).map(|(k, (n, _))| format!("{k},{n}"));
    let totals = groups.iter().filter(|(_, (n, _))| *n > 300);
    let mut totals = totals
        .map(|(k, (n, total))| format!("{k},{n},{total}"))
        .collect::<Vec<_>>();
    totals.sort();
    (top.collect(), totals)
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_string).collect()
}

#[test]
fn a_final_result_is_written_once_and_whole_after_stops_at_any_parallelism() {
    let mut case = Case::new("");
    case.query = FINAL.replace("{folder}", &case.folder.path().display().to_string());
    for parallelism in ["1", "3", "2"] {
        let settings = [("parallelism", parallelism)];
        case.run_for(Some(200), &settings, false).unwrap();
        assert!(!case.path("top.csv").exists(), "rows before the end");
        assert!(!case.path("totals.csv").exists(), "rows before the end");
    }
    case.run(&[("parallelism", "2")], false).unwrap();
    let (top, totals) = expected();
    assert_eq!(lines(&case.path("top.csv")), top);
    let mut written = lines(&case.path("totals.csv"));
    written.sort();
    assert_eq!(written, totals);
}

/// The state of an operator whose input has ended may still be in a checkpoint that others go on from.
#[test]
fn regression_a_final_result_is_not_written_again_when_another_statement_resumes() {
    let mut case = Case::new("");
    let folder = case.folder.path().display().to_string();
    std::fs::write(case.path("short.csv"), "b,1\na,2\nb,3\n").unwrap();
    case.query = format!(
        "CREATE TABLE short (k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = '{folder}/short.csv');
         CREATE TABLE sums (k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = '{folder}/sums');
         CREATE TABLE first (k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = '{folder}/first');
         CREATE TABLE whole (n BIGINT) WITH ('connector' = 'file', 'path' = '{folder}/whole');
         INSERT INTO sums SELECT k, SUM(v) FROM short GROUP BY k ORDER BY k;
         INSERT INTO first SELECT k, v FROM short ORDER BY v DESC LIMIT 2;
         INSERT INTO whole SELECT COUNT(*) FROM (SELECT k FROM short GROUP BY k HAVING COUNT(*) > 1) ORDER \
         BY 1;
         INSERT INTO copies SELECT ms, k, v FROM events;"
    );
    for _ in 0..3 {
        case.run_for(Some(250), &[], false).unwrap();
    }
    case.run(&[], false).unwrap();
    let rows = |name: &str| {
        let parts = std::fs::read_dir(case.path(name)).unwrap();
        let mut paths = parts.map(|part| part.unwrap().path()).collect::<Vec<_>>();
        paths.sort();
        paths
            .iter()
            .flat_map(|path| lines(path))
            .collect::<Vec<_>>()
    };
    assert_eq!(rows("sums"), ["a,2", "b,4"]);
    assert_eq!(rows("first"), ["b,3", "a,2"]);
    assert_eq!(rows("whole"), ["1"]);
    assert_eq!(lines(&case.path("copies.csv")).len(), ROWS as usize);
}
