//! Reference answers over real data, at parallelism 1, 2, 4 and 64, in one process and in several over every
//! kind of link, with random chunk sizes (I1); and as many instances, some of them slow, with any balancer,
//! in one phase and in two, in copies on two nodes or not, while buckets of keys move between them. Workers
//! wait in any way, with or without a latency target, also in two and three processes. Each answer is also
//! read from a materialized view. Four of these eleven runs are due, all of them with `EVERY_CASE=1` (`make
//! test-all`).

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use slackwater::views::Views;
use slackwater_engine::expression::row_text;

use crate::support::{
    Seeded, data, every_case, is_changelog, last_per_key, left_of, lines, rows, run_read,
    run_slowly,
};

/// The rows of a reference answer, sorted.
pub fn expected(data: &Path, name: &str) -> Vec<String> {
    let mut expected = String::new();
    let packed = std::fs::File::open(data.join(format!("expected/{name}.csv.gz"))).unwrap();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut expected)
        .unwrap();
    let mut expected = expected
        .lines()
        .skip(1)
        .map(str::to_string)
        .collect::<Vec<_>>();
    expected.sort();
    expected
}

fn check(name: &str, text: &str, only_last: bool) {
    let Some(data) = data() else { return };
    let expected = expected(&data, name);
    let folder = tempfile::tempdir().unwrap();
    let mut seeded = Seeded(name.len() as u64 * 7919 + 1);
    let run = |what: &str, settings: &[(&str, &str)], slow: Option<u64>| {
        let out = folder.path().join("out.csv");
        let text = text
            .replace("${DATA}", &data.display().to_string())
            .replace("${OUT}", &out.display().to_string());
        let report =
            run_slowly(&text, settings, slow).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = if is_changelog(&text) {
            left_of(&lines(&out), '|')
        } else if only_last {
            last_per_key(&lines(&out), '|')
        } else {
            rows(Path::new(&out))
        };
        std::fs::remove_file(&out).unwrap();
        assert!(
            found == expected,
            "{name}, {what}, {settings:?}: {} rows, {} expected",
            found.len(),
            expected.len()
        );
        assert_eq!((report.rows_late, report.rows_bad), (0, 0), "{name}");
        assert_eq!(report.latency_ms.count, report.rows_out, "{name}");
        report
    };
    let every = every_case();
    let placements = PLACEMENTS.iter().filter(|(is_fast, ..)| *is_fast || every);
    for &(_, parallelism, processes, link) in placements {
        let chunk_rows = (16 + seeded.below(5000)).to_string();
        let message_bytes = message_bytes(&mut seeded);
        let parsers = (1 + seeded.below(4)).to_string();
        // By default one, with all cores for parsing.
        let parallelism = match parallelism {
            "1" if seeded.below(2) == 0 => "auto",
            parallelism => parallelism,
        };
        let settings = [
            ("parallelism", parallelism),
            ("parsers", parsers.as_str()),
            ("chunk_rows", chunk_rows.as_str()),
            ("message_bytes", message_bytes.as_str()),
            ("processes", processes),
            ("link", link),
        ];
        let waits = any_wait(&mut seeded);
        let waits = waits.iter().map(|(key, value)| (*key, value.as_str()));
        let settings = settings.into_iter().chain(waits);
        let settings = settings.collect::<Vec<(&str, &str)>>();
        run("as it comes", &settings, None);
    }
    for _ in 0..if every { MANY } else { 1 } {
        let settings = many_instances(&mut seeded, only_last);
        let settings = settings.iter().map(|(key, value)| (*key, value.as_str()));
        let settings = settings.collect::<Vec<(&str, &str)>>();
        let slow = seeded.below(1 << 40);
        let report = run(&format!("slow {slow}"), &settings, Some(slow));
        // Without a key there is one instance, and nothing to move.
        let moved = report.plan.rebalancing.map_or(0, |moved| moved.times);
        let is_keyed = !name.contains("slide") && !name.contains("intervaljoin");
        assert_eq!(moved > 0, is_keyed, "{name}: {moved} moves, {settings:?}");
    }
    let text = text.replace("${DATA}", &data.display().to_string());
    check_view(name, &text, &expected, &mut seeded);
}

/// Keeps the answer in a materialized view, and compares its rows.
fn check_view(name: &str, text: &str, expected: &[String], seeded: &mut Seeded) {
    let kept = text.replace("INSERT INTO answer", "CREATE MATERIALIZED VIEW kept AS");
    assert_ne!(kept, text, "{name}");
    let settings = [
        ("parallelism", (1 + seeded.below(6)).to_string()),
        ("workers", (1 + seeded.below(4)).to_string()),
        ("chunk_rows", (16 + seeded.below(5000)).to_string()),
        ("rebalance", "shuffle".to_string()),
    ];
    let mut settings = settings.to_vec();
    settings.extend(any_wait(seeded));
    let views = Arc::new(Views::default());
    let settings = settings.iter().map(|(key, value)| (*key, value.as_str()));
    let settings = settings.collect::<Vec<(&str, &str)>>();
    run_read(&kept, &settings, &views).unwrap_or_else(|error| panic!("{name}: {error}"));
    let cut = views.cut("kept", Duration::ZERO, Duration::from_secs(1));
    let cut = cut.unwrap_or_else(|error| panic!("{name}: {error}"));
    let batches = cut.batches(1000).map(Result::unwrap);
    let mut found = batches
        .flat_map(|batch| as_written(&batch))
        .collect::<Vec<_>>();
    found.sort();
    assert!(
        found == expected,
        "{name}, as a view, {settings:?}: {} rows, {} expected",
        found.len(),
        expected.len()
    );
}

/// The rows of a batch as they stand in a file.
fn as_written(batch: &RecordBatch) -> Vec<String> {
    let columns = batch.columns().iter().enumerate();
    let columns = columns.map(|(at, column)| (format!("c{at}"), column.clone(), true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let row = |row: usize| {
        let mut text = row_text(&batch, row).replace("=NULL", "=");
        for at in 1..batch.num_columns() {
            text = text.replacen(&format!(", c{at}="), "|", 1);
        }
        text.replacen("c0=", "", 1)
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Whether it runs without `EVERY_CASE` too; parallelism, processes and links.
const PLACEMENTS: &[(bool, &str, &str, &str)] = &[
    (false, "1", "1", "auto"),
    (true, "2", "1", "auto"),
    (false, "4", "1", "auto"),
    (false, "64", "1", "auto"),
    (false, "1", "2", "shm"),
    (true, "4", "3", "shm"),
    (false, "3", "2", "tcp"),
];

/// With `EVERY_CASE`, how often each query runs as many instances, with keys that move.
const MANY: u64 = 3;

/// Whole chunks, messages of the planned size, or messages of 64 bytes to 64 KiB.
fn message_bytes(seeded: &mut Seeded) -> String {
    match seeded.below(6) {
        0 => "none".to_string(),
        1 => "auto".to_string(),
        _ => (64 << seeded.below(11)).to_string(),
    }
}

/// Random parallelism, threads, balancer and phases; keys that move all the time.
pub(crate) fn many_instances(seeded: &mut Seeded, only_last: bool) -> Vec<(&'static str, String)> {
    let processes = 1 + seeded.below(3);
    // Two nodes (`run_slowly`) have as many workers each.
    let in_copies = seeded.below(2) == 0;
    let workers = processes.max(2 + seeded.below(3));
    let workers = workers.next_multiple_of(1 + u64::from(in_copies));
    let mut settings = vec![
        ("parallelism", (2 + seeded.below(7)).to_string()),
        ("parsers", (1 + seeded.below(6)).to_string()),
        ("workers", workers.to_string()),
        ("processes", processes.to_string()),
        ("link", ["shm", "tcp"][seeded.below(2) as usize].to_string()),
        ("chunk_rows", (500 + seeded.below(8000)).to_string()),
        ("message_bytes", message_bytes(seeded)),
        ("rebalance", "shuffle".to_string()),
        (
            "two_phase",
            ["on", "off"][seeded.below(2) as usize].to_string(),
        ),
    ];
    let balancer = ["auto", "round_robin", "demand"][seeded.below(3) as usize];
    // Which row of a key is the last is a matter of order.
    if balancer != "auto" && !only_last {
        settings.push(("order", "none".to_string()));
        settings.push(("balancer", balancer.to_string()));
    }
    if in_copies {
        settings.push(("copies", "nodes".to_string()));
    }
    settings.extend(any_wait(seeded));
    settings
}

/// A random way to wait, and a random latency target; often neither.
fn any_wait(seeded: &mut Seeded) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    let waits = [
        "auto",
        "interrupt",
        "sleep:2ms",
        "sleep:50us",
        "spin:20us",
        "backoff",
        "poll",
    ];
    if let Some(wait) = waits.get(seeded.below(2 * waits.len() as u64) as usize) {
        settings.push(("wait", wait.to_string()));
    }
    let targets = ["10 us", "1 ms", "20 ms", "1 s"];
    if let Some(target) = targets.get(seeded.below(2 * targets.len() as u64) as usize) {
        settings.push(("latency_target", target.to_string()));
    }
    settings
}

#[test]
fn quakes_interval_join_with_a_side_in_every_instance() {
    let text = include_str!("answers/quakes.intervaljoin_60s_other_net.sql");
    let text = text.replace("SELECT a.id", "SELECT /*+ BROADCAST(a) */ a.id");
    assert!(text.contains("BROADCAST"));
    check("quakes.intervaljoin_60s_other_net", &text, false);
    let dealt = format!("SET 'order' = 'none';\n{text}");
    check("quakes.intervaljoin_60s_other_net", &dealt, false);
}

macro_rules! answers {
    ($($test:ident: $name:literal, $only_last:literal;)*) => {
        /// The queries: names, SQL, and whether the last row of a key is what counts.
        pub const ANSWERS: &[(&str, &str, bool)] = &[
            $(($name, include_str!(concat!("answers/", $name, ".sql")), $only_last),)*
        ];

        $(
            #[test]
            fn $test() {
                check($name, include_str!(concat!("answers/", $name, ".sql")), $only_last);
            }
        )*
    };
}

answers! {
    apache_tumbling: "apache.tumble30s_per_ip", false;
    apache_sliding: "apache.slide60s10s", false;
    apache_window_join: "apache.join30s_404_x_200", false;
    apache_sessions: "apache.session30min_per_ip", false;
    apache_running_count: "apache.running_count_final", true;
    nycflights_tumbling: "nycflights.tumble1h_per_origin", false;
    nycflights_window_join: "nycflights.join1h_by_origin", true;
    nycflights_weather_by_day: "nycflights.weather_tumble1d_per_origin", false;
    quakes_tumbling: "quakes.tumble1h_per_net", false;
    quakes_sliding: "quakes.slide60min10min", false;
    quakes_interval_join: "quakes.intervaljoin_60s_other_net", false;
    nexmark_q3: "nexmark_ooo500.q3", false;
    nexmark_q4: "nexmark_ooo500.q4", false;
    nexmark_q5: "nexmark_ooo500.q5", false;
    nexmark_q7: "nexmark_ooo500.q7", false;
    nexmark_q8: "nexmark_ooo500.q8", false;
    nexmark_q9: "nexmark_ooo500.q9", false;
    nexmark_q11: "nexmark_ooo500.q11", false;
    nexmark_q15: "nexmark_ooo500.q15", true;
}
