//! `slackwater calibrate`, run as users run it. Speed is asserted nowhere: other tests run beside
//! these.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program with its cache in a folder.
fn slackwater(cache: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args(arguments)
        .env("SLACKWATER_CACHE", cache)
        .output()
        .unwrap()
}

fn succeeds(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn number(value: &Value, field: &str) -> f64 {
    let number = value[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} is no number in {value}"))
}

/// Two figures of a distribution, the first at most the second.
fn assert_ordered(value: &Value, p50: &str, p99: &str) {
    let (p50_ns, p99_ns) = (number(value, p50), number(value, p99));
    assert!(0.0 <= p50_ns && p50_ns <= p99_ns, "{value}");
}

#[test]
#[ignore = "slow: make test-all"]
fn calibrate_measures_keeps_and_finds_its_figures_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let output = slackwater(&cache, &["calibrate", "--quick", "--json"]);
    let text = succeeds(&output);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("has not been calibrated yet"), "{errors}");
    let measured: Value = serde_json::from_str(&text).unwrap();

    assert_eq!(measured["format"], 1);
    assert_eq!(measured["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(measured["quick"], true);
    assert!(number(&measured, "clock_ns") > 0.0);
    assert!(number(&measured["host"], "cores") >= 1.0);
    assert!(measured["date"].as_str().unwrap().ends_with('Z'));

    let activations = measured["activations"].as_array().unwrap();
    assert_eq!(activations.len(), 2);
    for activated in activations {
        assert!(number(activated, "idle_us") > 0.0, "{activated}");
        assert!(number(activated, "woken_cpu_ns") > 0.0, "{activated}");
        assert!(number(activated, "slept_cpu_ns") > 0.0, "{activated}");
    }
    // A difference, which is zero if other work disturbed one of the two.
    assert!(number(&measured["more"], "record_cpu_ns") >= 0.0);
    assert!(number(&measured["more"], "arrival_cpu_ns") >= 0.0);

    let costs = &measured["costs"];
    assert!(number(costs, "wake_ns") > 0.0 && number(costs, "sleep_ns") > 0.0);
    assert_ordered(costs, "oversleep_p50_ns", "oversleep_p99_ns");

    let wakes = measured["wakes"].as_array().unwrap();
    assert!(!wakes.is_empty());
    for wake in wakes {
        assert!(number(wake, "count") > 0.0, "{wake}");
        assert!(number(wake, "ringing_cpu_ns") > 0.0, "{wake}");
        assert!(number(wake, "woken_cpu_ns") > 0.0, "{wake}");
        assert_ordered(wake, "until_look_p50_ns", "until_look_p99_ns");
    }
    let sleeps = measured["sleeps"].as_array().unwrap();
    let asked = sleeps.iter().map(|sleep| number(sleep, "asked_us"));
    let asked = asked.collect::<Vec<f64>>();
    assert_eq!(asked, [50.0, 200.0, 1_000.0, 10_000.0]);
    for sleep in sleeps {
        assert!(number(sleep, "cpu_ns") > 0.0, "{sleep}");
        assert_ordered(sleep, "oversleep_p50_ns", "oversleep_p99_ns");
    }
    let links = measured["links"].as_array().unwrap();
    for kind in ["in-process", "shm-lent", "tcp-link"] {
        assert!(links.iter().any(|link| link["kind"] == kind), "{kind}");
    }
    for link in links {
        assert!(number(link, "latency_p50_ns") > 0.0, "{link}");
        assert_ordered(link, "latency_p50_ns", "latency_p99_ns");
        assert!(number(link, "messages_per_s") > 0.0, "{link}");
        assert!(number(link, "gb_per_s") > 0.0, "{link}");
    }

    let file = cache.join("calibration.json");
    if errors.contains("not saved") {
        // Other tests use the cores: it says so, and leaves no figures of theirs behind.
        assert!(
            errors.contains("the host was busy while it was measured"),
            "{errors}"
        );
        assert!(errors.contains("queries use the built-in ones"), "{errors}");
        assert_eq!(errors.matches("measuring again").count(), 2, "{errors}");
        assert!(!file.exists());
        std::fs::create_dir_all(&cache).unwrap();
        std::fs::write(&file, at_rest(&measured).to_string()).unwrap();
    } else {
        let kept = std::fs::read_to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), measured);
    }
    let measured = serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap();
    // The same figures, not measured anew.
    let again = slackwater(&cache, &["calibrate", "--if-stale", "--json"]);
    let again: Value = serde_json::from_str(&succeeds(&again)).unwrap();
    assert_eq!(again, measured);
    let table = succeeds(&slackwater(&cache, &["calibrate", "--if-stale"]));
    assert!(table.contains("measured before"), "{table}");
    assert!(table.contains("shm-lent"), "{table}");
}

/// The figures with costs as of a host that does nothing else.
fn at_rest(measured: &Value) -> Value {
    let mut figures = measured.clone();
    figures["costs"] = serde_json::json!({
        "wake_ns": 35_000, "sleep_ns": 20_000, "oversleep_p50_ns": 37_000, "oversleep_p99_ns": 66_000
    });
    figures
}

/// Calibrates, and keeps figures of this host in the cache whether the host is busy or not.
fn calibrated(cache: &Path) -> Value {
    let text = succeeds(&slackwater(cache, &["calibrate", "--quick", "--json"]));
    let figures = at_rest(&serde_json::from_str(&text).unwrap());
    std::fs::create_dir_all(cache).unwrap();
    std::fs::write(cache.join("calibration.json"), figures.to_string()).unwrap();
    figures
}

/// Runs a query of no rows whose workers choose how to wait; what it says.
fn run(folder: &Path, cache: &Path) -> String {
    let query = folder.join("query.sql");
    let text = "CREATE TABLE t (page_id BIGINT)
                WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '1');
                SELECT page_id FROM t;";
    std::fs::write(&query, text).unwrap();
    let output = slackwater(cache, &["run", query.to_str().unwrap()]);
    succeeds(&output);
    String::from_utf8(output.stderr).unwrap()
}

#[test]
#[ignore = "slow: make test-all"]
fn a_query_uses_no_figures_of_another_version_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let file = cache.join("calibration.json");
    let said = run(folder.path(), &cache);
    assert!(!said.contains("calibrat"), "nobody asked for one: {said}");
    assert!(!file.exists());
    let mut old = calibrated(&cache);
    let said = run(folder.path(), &cache);
    assert!(!said.contains("calibrat"), "{said}");

    // regression: figures of a busy host were used in silence.
    let mut busy = old.clone();
    busy["costs"]["oversleep_p99_ns"] = 968_000_000.into();
    std::fs::write(&file, busy.to_string()).unwrap();
    let said = run(folder.path(), &cache);
    assert!(
        said.contains("sleeps of 1 ms that overslept by 968.00 ms at p99"),
        "{said}"
    );
    assert!(said.contains("run slackwater calibrate again"), "{said}");

    old["version"] = "0.0.1".into();
    std::fs::write(&file, old.to_string()).unwrap();
    let said = run(folder.path(), &cache);
    assert!(said.contains("measured by version 0.0.1"), "{said}");
    assert!(said.contains("slackwater calibrate"), "{said}");
    // What is asked to measure only then measures.
    let again = slackwater(&cache, &["calibrate", "--quick", "--if-stale"]);
    succeeds(&again);
    assert!(String::from_utf8_lossy(&again.stderr).contains("version 0.0.1"));
}

#[test]
#[ignore = "slow: make test-all"]
fn figures_that_can_not_be_kept_are_printed_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let output = slackwater(&file, &["calibrate", "--quick", "--force"]);
    let table = succeeds(&output);
    assert!(table.contains("not saved"), "{table}");
    let errors = String::from_utf8_lossy(&output.stderr);
    // What is no host's is not even tried to be kept.
    let is_refused = errors.contains("the host was busy while it was measured");
    assert!(
        is_refused || errors.contains("SLACKWATER_CACHE"),
        "{errors}"
    );
}
