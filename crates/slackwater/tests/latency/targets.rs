//! `explain --targets`.

use super::folder;

#[test]
fn explain_shows_what_each_target_would_cost() {
    let folder = folder("");
    let explain = |arguments: &[&str]| {
        let mut all = vec!["explain", "query.sql", "--targets"];
        all.extend(arguments);
        folder.slackwater(&all)
    };
    let lines = |arguments: &[&str]| {
        let out = explain(arguments).ok().out;
        let lines = out.lines().map(str::to_string);
        lines.collect::<Vec<String>>()
    };
    let cheap = lines(&["--rate", "20k/s", "--price", "1"]);
    assert!(
        cheap[0].contains("at 20,000 rows/s (as --rate says); a core costs 1 per hour"),
        "{cheap:?}"
    );
    // The cores and the cost of a target.
    let cost = |lines: &[String], target: &str| {
        let line = lines
            .iter()
            .find(|line| line.trim_start().starts_with(target));
        let words = line.unwrap().split_whitespace().skip(4);
        let numbers = words.map_while(|word| word.parse::<f64>().ok());
        numbers.collect::<Vec<f64>>()
    };
    let (tight, loose) = (cost(&cheap, "1.00 ms"), cost(&cheap, "100.0 ms"));
    assert!(tight[0] > loose[0], "{cheap:?}");
    assert!((loose[1] - loose[0] * 730.0).abs() < 0.1, "{cheap:?}");
    let dear = lines(&["--rate", "20000", "--price", "10"]);
    assert!((cost(&dear, "100.0 ms")[1] / loose[1] - 10.0).abs() < 0.5);
    assert!(cost(&lines(&["--rate", "200k"]), "100.0 ms")[0] > loose[0]);
    explain(&["--rate", "many"]).fails(2, &["expected rows per second"]);
    explain(&["--price=-1"]).fails(2, &["expected a price"]);
    explain(&["--analyze"]).fails(2, &["--analyze", "--targets"]);
}
