//! A real Prometheus scrapes a run: `make test-metrics`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{ROWS, Scraped, get};
use crate::process::{Folder, eventually, free_address};

/// The folder of Prometheus' programs, if they are to be used.
fn programs() -> Option<PathBuf> {
    let programs = std::env::var_os("SLACKWATER_PROMETHEUS").map(PathBuf::from);
    if programs.is_none() {
        eprintln!("skipped: no Prometheus; run make test-metrics");
    }
    programs
}

/// The folder of the dashboard and the alerts.
fn grafana() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../grafana")
}

/// Succeeds, and says nothing on standard error.
#[track_caller]
fn promtool(programs: &Path, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(programs.join("promtool"))
        .args(arguments)
        .current_dir(grafana())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{}", text(&output.stdout));
    text(&output.stdout)
}

/// A Prometheus of the test's own. It is killed when dropped.
struct Prometheus {
    address: String,
    process: Child,
    _folder: Folder,
}

impl Prometheus {
    fn start(programs: &Path, target: &str) -> Prometheus {
        let folder = Folder::new();
        let settings = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: slackwater, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        folder.write("prometheus.yml", settings.as_bytes());
        let address = free_address();
        let process = Command::new(programs.join("prometheus"))
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(folder.path("."))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Prometheus {
            address,
            process,
            _folder: folder,
        }
    }

    /// The values of an expression, now; `None` while it doesn't answer.
    fn query(&self, expression: &str) -> Option<Vec<f64>> {
        let mut encoded = String::new();
        for byte in expression.bytes() {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        let answer = get(&self.address, &format!("/api/v1/query?query={encoded}"), "")?;
        // The body may come in chunks, but for short answers it doesn't.
        let json = &answer[answer.find('{')?..=answer.rfind('}')?];
        let answer = serde_json::from_str::<Value>(json).ok()?;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let values = answer["data"]["result"].as_array()?.iter();
        let values = values.map(|one| one["value"][1].as_str().unwrap().parse().unwrap());
        Some(values.collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The expressions of the dashboard, with their panels.
fn expressions() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(grafana().join("slackwater.json")).unwrap();
    let dashboard = serde_json::from_str::<Value>(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let expressions = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", "3s");
            (title.to_string(), expression.replace("$pipeline", "que.*"))
        })
    });
    expressions.collect()
}

#[test]
fn the_dashboard_names_only_metrics_that_exist() {
    let scraped = Scraped::start(&["--state", "state", "--set", "checkpoint_interval=50 ms"]);
    let mut peer = scraped.connect();
    peer.write_all(ROWS.as_bytes()).unwrap();
    let page = eventually("checkpoint", || {
        let page = get(&scraped.metrics, "/metrics", "")?;
        page.contains("slackwater_last_checkpoint").then_some(page)
    });
    let expressions = expressions();
    assert!(expressions.len() > 20, "{}", expressions.len());
    for (title, expression) in expressions {
        for name in expression.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            if name.starts_with("slackwater_") {
                assert!(page.contains(&format!("\n{name}{{")), "{title}: {name}");
            }
        }
    }
    scraped.end();
}

#[test]
fn prometheus_reads_what_the_report_says_and_the_dashboard_shows_it() {
    let Some(programs) = programs() else { return };
    let state = ["--state", "state", "--set", "checkpoint_interval=50 ms"];
    let scraped = Scraped::start(&state);
    let prometheus = Prometheus::start(&programs, &scraped.metrics);
    let mut peer = scraped.connect();
    peer.write_all(ROWS.as_bytes()).unwrap();
    let mut sent = 9.0;
    // Each expression has data while rows come, and numbers where it divides.
    let mut missing = expressions();
    eventually("data of every expression", || {
        sent += 1.0;
        let row = format!("{},a\n", 10_000 + sent as u64 * 1_000);
        peer.write_all(row.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        missing.retain(|(_, expression)| {
            let values = prometheus.query(expression).unwrap_or_default();
            values.is_empty() || values.iter().any(|value| value.is_nan())
        });
        let titles = missing.iter().map(|(title, _)| title.as_str());
        let titles = titles.collect::<Vec<_>>();
        match titles.is_empty() {
            true => Some(()),
            false => {
                eprintln!("no data yet: {}", titles.join(", "));
                None
            }
        }
    });
    let total = |name: &str| prometheus.query(&format!("sum(slackwater_{name}_total)"));
    eventually("all rows", || {
        (total("source_rows")? == [sent]).then_some(())
    });
    let page = get(&scraped.metrics, "/metrics", "").unwrap();
    let (_, page) = page.split_once("\r\n\r\n").unwrap();
    assert_eq!(promtool(&programs, &["check", "metrics"], page), "");
    let names = ["source_rows", "sink_rows", "rows_late", "rows_bad"];
    let values = eventually("a last scrape", || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let values = names.map(|name| total(name).unwrap_or_default());
        values
            .iter()
            .all(|values| values.len() == 1)
            .then_some(values)
    });
    let up = prometheus.query("min_over_time(up[1h])");
    let report = scraped.end();
    let fields = ["rows_in", "rows_out", "rows_late", "rows_bad"];
    for (field, value) in fields.iter().zip(values) {
        assert_eq!(report[field].as_f64(), Some(value[0]), "{field}");
    }
    assert_eq!(
        (&report["rows_late"], &report["rows_bad"]),
        (&2.into(), &3.into())
    );
    assert_eq!(up, Some(vec![1.0]), "every scrape was answered");
}

#[test]
fn the_alerts_fire_when_they_should() {
    let Some(programs) = programs() else { return };
    promtool(&programs, &["check", "rules", "alerts.yml"], "");
    promtool(&programs, &["test", "rules", "alerts_test.yml"], "");
}
