//! The queries of the robots' example, over files instead of a broker: the same commands and poses however
//! they run, bad states, robots that are silent, and a query that is stopped and resumes.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Once;

use crate::process::Folder;
use crate::support::run_text;

#[path = "../examples/robots/correlate.rs"]
mod correlate;
#[path = "../examples/robots/matchers.rs"]
mod matchers;
#[path = "../examples/robots/orca.rs"]
mod orca;
#[path = "../examples/robots/planners.rs"]
mod planners;
#[path = "../examples/robots/slam.rs"]
mod slam;

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut functions = slackwater::functions::Functions::default();
        planners::add(&mut functions);
        matchers::add(&mut functions);
        slackwater::functions::install(functions).unwrap();
    });
}

const TICKS: i64 = 40;
const ROBOTS: i64 = 16;
/// The robot that is silent from this tick on.
const SILENT: (i64, i64) = (3, 15);

/// The query of a file of the example, with tables of files in a folder instead of topics.
fn query(name: &str, folder: &Folder) -> String {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/robots");
    let text = std::fs::read_to_string(format!("{example}/{name}.sql")).unwrap();
    let mqtt = "'connector' = 'mqtt', 'address' = '127.0.0.1:1883', ";
    let at = |file: &str| format!("'path' = '{}'", folder.path(file).display());
    let text = text.replace(mqtt, "'connector' = 'file', ");
    let mut text = text.replace("'topic_column' = 'topic'", &at("commands"));
    for topic in ["fleet", "odometry", "scans"] {
        let bad = at(&format!("{topic}.bad")).replace("'path'", "'dead_letter'");
        let file = format!("{}, {bad}", at(&format!("{topic}.jsonl")));
        text = text.replace(&format!("'topic' = '{topic}/#'"), &file);
    }
    let text = text.replace("'topic' = 'poses'", &at("poses"));
    // Two hypotheses instead of four, and a smaller window, take a quarter of the time.
    text.replace("NOT NULL), 4)", "NOT NULL), 2)").replace(
        "hypothesis) ORDER BY ts",
        "hypothesis) ORDER BY ts, turn => 0.08",
    )
}

/// A message of a robot.
fn state(tick: i64, robot: i64, x: &str) -> String {
    let (ms, y) = (tick * 100, robot % 4);
    format!(
        r#"{{"ms":{ms},"robot":{robot},"x":{x},"y":{y},"vx":1.0,"vy":0,"gx":{},"gy":{y}}}"#,
        30 - robot
    ) + "\n"
}

/// What robots send: rows of four behind each other, one that is silent, and one that appears later.
fn states(with_bad: bool) -> String {
    let mut lines = String::new();
    for tick in 0..TICKS {
        for robot in 0..ROBOTS {
            let is_silent = robot == SILENT.0 && tick >= SILENT.1;
            let appears = robot == ROBOTS - 1 && tick < 10;
            if is_silent || appears {
                continue;
            }
            let x = (robot / 4) as f64 * 1.2 + tick as f64 * 0.1;
            lines += &state(tick, robot, &format!("{x:.4}"));
        }
        if with_bad && tick == 20 {
            // Not JSON; not a number of JSON; then states that a robot can't have.
            lines += "{\"ms\":2000,\"robot\":\n";
            lines += &state(tick, 90, "NaN");
            lines += &state(tick, 91, "null");
            lines += &state(tick, 92, "1e300");
            lines += &state(tick, -7, "1.0");
        }
        lines += &format!("{{\"ms\":{}}}\n", tick * 100 + 1);
    }
    lines
}

/// The files of a table that writes several, without those that are not complete.
fn written(folder: &Folder, name: &str) -> Vec<serde_json::Value> {
    let entries = folder.path(name).read_dir();
    let paths = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let mut paths = paths.collect::<Vec<_>>();
    if paths.is_empty() {
        paths.push(folder.path(name));
    }
    paths.retain(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'));
    let all = paths
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let lines = all.collect::<String>();
    let mut lines = lines.lines().collect::<Vec<&str>>();
    lines.sort_unstable();
    let rows = lines.iter().map(|line| serde_json::from_str(line).unwrap());
    rows.collect()
}

fn cleared(folder: &Folder, name: &str) {
    let _ = std::fs::remove_file(folder.path(name));
    let _ = std::fs::remove_dir_all(folder.path(name));
}

const SETTINGS: [&[(&str, &str)]; 3] = [
    &[("parallelism", "1")],
    &[("parallelism", "4"), ("chunk_rows", "7")],
    &[("parallelism", "3"), ("workers", "2"), ("chunk_rows", "1")],
];

/// The instances of the join, which all get what is broadcast.
fn joins(report: &slackwater::report::Report) -> String {
    let mut subqueries = report.plan.subqueries.iter();
    let is_join = |operator: &String| operator.contains("interval");
    let join = subqueries.find(|subquery| subquery.operators.iter().any(is_join));
    join.unwrap().instances.to_string()
}

#[test]
fn robots_get_the_same_commands_however_the_query_runs() {
    install();
    let folder = Folder::with(&[("fleet.jsonl", &states(false))]);
    let text = query("avoid", &folder);
    let mut expected = None;
    for settings in SETTINGS {
        cleared(&folder, "commands");
        let report = run_text(&text, settings).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((report.rows_late, report.rows_bad), (0, 0), "{settings:?}");
        assert_eq!(joins(&report), settings[0].1, "{settings:?}");
        let found = written(&folder, "commands");
        assert!(
            *expected.get_or_insert_with(|| found.clone()) == found,
            "{settings:?}"
        );
    }
    let commands = expected.unwrap();
    let mut counts = BTreeMap::<i64, i64>::new();
    for command in &commands {
        let robot = command["robot"].as_i64().unwrap();
        assert_eq!(command["topic"], format!("commands/{robot}"));
        let speed = command["vx"]
            .as_f64()
            .unwrap()
            .hypot(command["vy"].as_f64().unwrap());
        assert!(speed <= 2.0 + 1e-9, "{command}");
        *counts.entry(robot).or_default() += 1;
    }
    for robot in 0..ROBOTS {
        let wanted = match robot {
            _ if robot == SILENT.0 => SILENT.1,
            15 => TICKS - 10,
            _ => TICKS,
        };
        assert_eq!(counts.remove(&robot), Some(wanted), "robot {robot}");
    }
    assert!(counts.is_empty(), "{counts:?}");
}

#[test]
fn bad_states_are_left_out_counted_and_kept() {
    install();
    let folder = Folder::with(&[("fleet.jsonl", &states(false))]);
    let text = query("avoid", &folder);
    run_text(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let expected = written(&folder, "commands");
    folder.write("fleet.jsonl", states(true).as_bytes());
    for settings in SETTINGS {
        for name in ["commands", "fleet.bad"] {
            cleared(&folder, name);
        }
        let report = run_text(&text, settings).unwrap_or_else(|error| panic!("{error}"));
        // Two are not JSON. Three are states that GATHER leaves out, and AVOID as well.
        assert_eq!((report.rows_late, report.rows_bad), (0, 8), "{settings:?}");
        assert!(written(&folder, "commands") == expected, "{settings:?}");
        let kept = folder.read("fleet.bad");
        for wanted in ["fleet.jsonl:341\"", "NaN"] {
            assert!(kept.contains(wanted), "{wanted}: {kept}");
        }
    }
}

/// Rays of a scan: few, since a debug build matches them.
const RAYS: u32 = 60;

/// Scans of a robot that drives a circle in a room of 10 by 8 meters, and what its odometer tells.
fn drive(steps: i64) -> (String, String, BTreeMap<i64, [[f64; 2]; 2]>) {
    let (mut odometry, mut scans, mut truth) = (String::new(), String::new(), BTreeMap::new());
    let (mut x, mut y, mut heading) = (2.5_f64, 0.0_f64, std::f64::consts::FRAC_PI_2);
    let (mut told_x, mut told_y, mut told) = (x, y, heading);
    for step in 0..steps {
        let ms = step * 200;
        let rays = (0..RAYS).map(|ray| {
            let (sin, cos) =
                (heading + f64::from(ray) * std::f64::consts::TAU / f64::from(RAYS)).sin_cos();
            let to_wall = |at: f64, along: f64, wall: f64| match along {
                along if along > 0.0 => (wall - at) / along,
                along => (-wall - at) / along,
            };
            format!("{:.3}", to_wall(x, cos, 5.0).min(to_wall(y, sin, 4.0)))
        });
        let rays = rays.collect::<Vec<String>>().join(",");
        odometry += &format!(
            "{{\"ms\":{ms},\"robot\":1,\"x\":{told_x:.5},\"y\":{told_y:.5},\"heading\":{told:.6}}}\n"
        );
        scans += &format!("{{\"ms\":{ms},\"robot\":1,\"ranges\":[{rays}]}}\n");
        for file in [&mut odometry, &mut scans] {
            *file += &format!("{{\"ms\":{}}}\n", ms + 1);
        }
        truth.insert(ms, [[x, y], [told_x, told_y]]);
        x += 0.1 * heading.cos();
        y += 0.1 * heading.sin();
        heading += 0.04;
        told_x += 0.106 * told.cos();
        told_y += 0.106 * told.sin();
        told += 0.058;
    }
    (odometry, scans, truth)
}

#[test]
fn scan_matching_finds_the_way_and_the_same_one_however_the_query_runs() {
    install();
    let (odometry, scans, truth) = drive(45);
    let folder = Folder::with(&[("odometry.jsonl", &odometry), ("scans.jsonl", &scans)]);
    let text = query("slam", &folder);
    let mut expected = None;
    for settings in [SETTINGS[0], SETTINGS[1]] {
        cleared(&folder, "poses");
        let report = run_text(&text, settings).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((report.rows_late, report.rows_bad), (0, 0), "{settings:?}");
        assert_eq!(joins(&report), settings[0].1, "{settings:?}");
        let found = written(&folder, "poses");
        assert!(
            *expected.get_or_insert_with(|| found.clone()) == found,
            "{settings:?}"
        );
    }
    let poses = expected.unwrap();
    assert_eq!(poses.len(), truth.len());
    assert!(is_better(&poses, &truth));
    // A scan that can't be one costs the pose of its moment; one of a robot without odometry finds no
    // partner.
    let from = scans.find("{\"ms\":3000,").unwrap();
    let to = scans.find("{\"ms\":3001}").unwrap();
    let bad = "{\"ms\":3000,\"robot\":1,\"ranges\":[1.0,-2.0]}\n{\"robot\":\n";
    let unknown = "{\"ms\":3000,\"robot\":9,\"ranges\":[1.0,2.0]}\n";
    let scans = format!("{}{bad}{unknown}{}", &scans[..from], &scans[to..]);
    folder.write("scans.jsonl", scans.as_bytes());
    cleared(&folder, "poses");
    let report = run_text(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    // One is not JSON, and two hypotheses reject the other.
    assert_eq!((report.rows_late, report.rows_bad), (0, 3));
    let poses = written(&folder, "poses");
    assert_eq!(poses.len(), truth.len() - 1);
    assert!(is_better(&poses, &truth));
}

/// Whether the error of the poses is less than a fifth of the odometry's.
fn is_better(poses: &[serde_json::Value], truth: &BTreeMap<i64, [[f64; 2]; 2]>) -> bool {
    let (mut own, mut told) = (0.0, 0.0);
    for pose in poses {
        let [[x, y], [told_x, told_y]] = truth[&pose["ms"].as_i64().unwrap()];
        let found = [pose["x"].as_f64().unwrap(), pose["y"].as_f64().unwrap()];
        own += (found[0] - x).powi(2) + (found[1] - y).powi(2);
        told += (told_x - x).powi(2) + (told_y - y).powi(2);
    }
    told > 25.0 * own
}

#[test]
fn a_query_that_is_stopped_resumes_with_its_robots_and_maps() {
    let Some(program) = crate::functions::example("robots") else {
        return;
    };
    let (odometry, scans, _) = drive(15);
    let fleet = states(true);
    for (name, sink, rate) in [("avoid", "commands", 400), ("slam", "poses", 100)] {
        let folder = Folder::with(&[
            ("fleet.jsonl", &fleet),
            ("odometry.jsonl", &odometry),
            ("scans.jsonl", &scans),
        ]);
        let text = query(name, &folder);
        folder.write("query.sql", text.as_bytes());
        let run = |arguments: &[&str]| {
            let mut command = Command::new(&program);
            command
                .args(["run", "query.sql", "--quiet"])
                .args(arguments);
            let output = command.current_dir(folder.path("")).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{name} {arguments:?}: {said}");
        };
        run(&[]);
        let expected = written(&folder, sink);
        assert!(!expected.is_empty());
        if name == "avoid" {
            let kept = folder.read("slackwater-dead-letter/query.jsonl");
            for wanted in [
                "robot 91: 'x' is NULL",
                "'x' is 1e300: from -1000000 to 1000000",
                "robot -7: ",
            ] {
                assert!(kept.contains(wanted), "{wanted}: {kept}");
            }
        }
        cleared(&folder, sink);
        run(&[
            "--processes",
            "2",
            "--parallelism",
            "4",
            "--set",
            "broadcast=ring",
        ]);
        assert!(written(&folder, sink) == expected, "{name}: processes");
        // At a rate, so that it is stopped in the middle.
        cleared(&folder, sink);
        let slow = format!(".jsonl', 'replay_rate' = '{rate}/s', 'dead_letter'");
        let slowly = text.replace(".jsonl', 'dead_letter'", &slow);
        folder.write("query.sql", slowly.as_bytes());
        let saved = ["--state", "state", "--set", "checkpoint_interval=10 ms"];
        let stopped = [&saved[..], &["--duration", "100 ms"]].concat();
        run(&stopped);
        assert!(
            written(&folder, sink).len() < expected.len(),
            "{name}: stopped early"
        );
        run(&stopped);
        run(&saved);
        assert!(written(&folder, sink) == expected, "{name}: resumed");
    }
}

#[test]
fn what_calls_get_wrong_is_said() {
    install();
    let folder = Folder::with(&[("fleet.jsonl", &states(false)), ("odometry.jsonl", "{}\n")]);
    for (query_name, from, to, wanted) in [
        (
            "avoid",
            "gather(TABLE states ORDER BY ts)",
            "gather(TABLE states)",
            "gather needs an order",
        ),
        (
            "avoid",
            "gather(TABLE states ORDER BY ts)",
            "gather(TABLE states ORDER BY ts, keep => 5)",
            "'keep' must be an INTERVAL of days or smaller units, and is 5",
        ),
        (
            "avoid",
            "s.ts = t.ts))",
            "s.ts = t.ts), radius => 0)",
            "avoid 'radius' must be above 0, and is 0",
        ),
        (
            "avoid",
            "s.ts = t.ts))",
            "s.ts = t.ts), right => 2)",
            "avoid 'right' is from -1.5 to 1.5 radians, and is 2",
        ),
        (
            "avoid",
            "s.gy, t.robots",
            "s.gy",
            "avoid needs a column 'robots'",
        ),
        (
            "slam",
            "NOT NULL), 2)",
            "NOT NULL), 0)",
            "hypotheses 'count' is from 1 to 1000, and is 0",
        ),
        (
            "slam",
            "turn => 0.08",
            "turn => 0.08, extent => 500",
            "match_scan 'extent' is from 1 to 200, and is 500",
        ),
        (
            "slam",
            "TABLE matched PARTITION BY robot ORDER BY ts",
            "TABLE matched PARTITION BY robot",
            "best needs an order",
        ),
    ] {
        let text = query(query_name, &folder);
        assert!(text.contains(from), "{from}");
        let shown = run_text(&text.replace(from, to), &[]).unwrap_err();
        assert!(shown.contains(wanted), "{to}:\n{shown}\nand not: {wanted}");
        assert!(shown.starts_with("test.sql:"), "{shown}");
    }
}
