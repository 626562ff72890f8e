//! Reference answers over real data, at parallelism 1, 2, 4 and 64, in one process and in several
//! over every kind of link, with random chunk sizes (I1).

use std::io::Read;
use std::path::Path;

use crate::support::{Seeded, data, last_per_key, lines, rows, run_text};

fn check(name: &str, text: &str, only_last: bool) {
    let Some(data) = data() else { return };
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
    let folder = tempfile::tempdir().unwrap();
    let mut seeded = Seeded(name.len() as u64 * 7919 + 1);
    for (parallelism, processes, link) in [
        ("1", "1", "auto"),
        ("2", "1", "auto"),
        ("4", "1", "auto"),
        ("64", "1", "auto"),
        ("1", "2", "shm"),
        ("4", "3", "shm"),
        ("3", "2", "tcp"),
    ] {
        let chunk_rows = (16 + seeded.below(5000)).to_string();
        let out = folder.path().join(format!("{parallelism} {processes}.csv"));
        let text = text
            .replace("${DATA}", &data.display().to_string())
            .replace("${OUT}", &out.display().to_string());
        let settings = [
            ("parallelism", parallelism),
            ("chunk_rows", chunk_rows.as_str()),
            ("processes", processes),
            ("link", link),
        ];
        let report = run_text(&text, &settings).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = if only_last {
            last_per_key(&lines(&out), '|')
        } else {
            rows(Path::new(&out))
        };
        assert!(
            found == expected,
            "{name} at parallelism {parallelism}, {processes} processes over {link}, chunk_rows \
             {chunk_rows}: {} rows, {} expected",
            found.len(),
            expected.len()
        );
        assert_eq!((report.rows_late, report.rows_bad), (0, 0), "{name}");
        assert_eq!(report.latency_ms.count, report.rows_out, "{name}");
    }
}

macro_rules! answers {
    ($($test:ident: $name:literal, $only_last:literal;)*) => {
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
    apache_running_count: "apache.running_count_final", true;
    nycflights_tumbling: "nycflights.tumble1h_per_origin", false;
    nycflights_window_join: "nycflights.join1h_by_origin", true;
    nycflights_weather_by_day: "nycflights.weather_tumble1d_per_origin", false;
    quakes_tumbling: "quakes.tumble1h_per_net", false;
    quakes_sliding: "quakes.slide60min10min", false;
    nexmark_q5: "nexmark_ooo500.q5", false;
    nexmark_q7: "nexmark_ooo500.q7", false;
    nexmark_q8: "nexmark_ooo500.q8", false;
}
