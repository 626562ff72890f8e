//! `run --page`: what the page shows is what the report says, its slider changes the target and never the
//! answer, and nothing wakes up while no page is open. In a browser: `make test-page`.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::idle::{activity, settled};
use crate::metrics::{QUERY, ROWS};
use crate::process::{
    Folder, PATIENCE, Running, eventually, free_address, request, status_and_body,
};

mod demo;

const TARGET: &[&str] = &["--set", "latency_target=20 ms"];

/// A running query with its page.
struct Shown {
    running: Running,
    folder: Folder,
    rows: String,
    page: String,
}

impl Shown {
    fn start(arguments: &[&str]) -> Shown {
        let folder = Folder::new();
        let (rows, page) = (free_address(), free_address());
        let text = QUERY.replace("${ADDRESS}", &rows);
        let option = format!("--page={page}");
        let running = folder.start(&text, &[&[&*option], arguments].concat());
        let shown = Shown {
            running,
            folder,
            rows,
            page,
        };
        shown.until("running query", |counts| counts["status"] == "running");
        shown
    }

    fn connect(&self) -> TcpStream {
        eventually("listener", || TcpStream::connect(&self.rows).ok())
    }

    fn job(&self) -> Value {
        let (status, body) = eventually("job", || ask(&self.page, "GET", "/v1/jobs/query", "", ""));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until the counts are so.
    fn until(&self, what: &str, mut are_so: impl FnMut(&Value) -> bool) -> Value {
        eventually(what, || {
            let (_, body) = ask(&self.page, "GET", "/v1/jobs/query", "", "")?;
            let counts = serde_json::from_str::<Value>(&body).unwrap()["counts"].take();
            are_so(&counts).then_some(counts)
        })
    }

    /// Changes the target; it is in force afterwards.
    #[track_caller]
    fn retarget(&self, body: &str) {
        let (status, answer) = patch(&self.page, body);
        assert_eq!(status, 200, "{answer}");
    }

    /// Ends it, and returns the report.
    fn end(self) -> Value {
        self.running.interrupt();
        self.running.finish(PATIENCE).ok();
        self.folder.json("report.json")
    }
}

/// The status and the body of an answer, if somebody listens.
fn ask(address: &str, method: &str, path: &str, header: &str, body: &str) -> Option<(u16, String)> {
    let answer = request(
        address,
        &format!("{method} {path}"),
        header,
        body.as_bytes(),
    )?;
    let (status, body) = status_and_body(&answer)?;
    Some((status, body.to_string()))
}

fn patch(address: &str, body: &str) -> (u16, String) {
    ask(address, "PATCH", "/v1/jobs/query", "", body).unwrap()
}

/// Listens as a page does, and returns the data of the first events, by name.
fn listen(address: &str, events: usize) -> (TcpStream, Vec<(String, Value)>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /v1/jobs/query/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut heard = Vec::new();
    let mut name = String::new();
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.to_string();
        } else if let Some(data) = line.strip_prefix("data: ") {
            heard.push((name.clone(), serde_json::from_str(data).unwrap()));
            if heard.len() == events {
                break;
            }
        }
    }
    (stream, heard)
}

#[test]
fn the_page_shows_what_the_report_says() {
    let settings: [&[&str]; 4] = [
        &[],
        &["--parallelism", "2", "--set", "chunk_rows=1"],
        &["--processes", "2", "--parallelism", "2"],
        &["--processes", "2", "--parallelism", "2", "--state", "state"],
    ];
    for arguments in settings {
        let shown = Shown::start(&[TARGET, arguments].concat());
        let (_, list) = ask(&shown.page, "GET", "/v1/jobs", "", "").unwrap();
        let list = serde_json::from_str::<Value>(&list).unwrap();
        assert_eq!(list[0]["name"], "query");
        assert_eq!(list[0]["is_run"], true);
        let mut peer = shown.connect();
        peer.write_all(ROWS.as_bytes()).unwrap();
        let counts = shown.until("all rows", |counts| {
            counts["sinks"][0]["rows"] == 3 && counts["sources"][0]["bad"] == 3
        });
        let job = shown.job()["job"].take();
        let nodes = job["plan"]["query"].as_array().unwrap();
        assert_eq!(nodes.len(), counts["nodes"].as_array().unwrap().len());
        assert_eq!(
            (&nodes[0]["kind"], &job["name"]),
            (&json!("source"), &json!("query"))
        );
        let waiting = shown.until("no row that waits", |counts| {
            let nodes = counts["nodes"].as_array().unwrap().iter();
            nodes
                .clone()
                .all(|node| node["waiting"].as_u64().unwrap_or(0) == 0)
        });
        let links = job["plan"]["links"].as_array().unwrap().len();
        let heads = waiting["nodes"].as_array().unwrap().iter();
        let heads = heads.filter(|node| node["waiting"].is_u64()).count();
        assert_eq!(links > 0, heads > 0, "{arguments:?}");
        let reasons = counts["bad_rows"].as_array().unwrap();
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(reasons.iter().all(|bad| bad["table"] == "t"));
        assert!(
            reasons.iter().any(|bad| bad["record"] == "no"),
            "{reasons:?}"
        );
        let examined = shown.until("partitions", |counts| counts["partitions"][0]["rows"] == 6);
        let partition = &examined["partitions"][0];
        assert_eq!(
            (&partition["table"], &partition["rows_late"]),
            (&json!("t"), &json!(2))
        );
        assert_eq!(partition["state"], "active");
        let said = examined["diagnosis"].as_array().unwrap();
        assert!(!said.is_empty());
        let source = &counts["sources"][0];
        assert_eq!(source["watermark_ms"], 9_000);
        assert_eq!(counts["sinks"][0]["target_ms"], 20.0);
        assert_eq!(
            counts["checkpoints"].is_object(),
            arguments.contains(&"--state")
        );
        let counts = shown.until("latencies", |counts| {
            let slots = counts["sinks"][0]["latency"].as_array().unwrap().iter();
            slots.map(|slot| slot[1].as_u64().unwrap()).sum::<u64>() == 3
        });
        let report = shown.end();
        for (field, of_report) in [
            ("rows", "rows_in"),
            ("late", "rows_late"),
            ("bad", "rows_bad"),
        ] {
            assert_eq!(
                counts["sources"][0][field], report["sources"][0][of_report],
                "{field}"
            );
        }
        assert_eq!(counts["sinks"][0]["rows"], report["sinks"][0]["rows_out"]);
        assert_eq!(report["sinks"][0]["latency_target_changes"], 0);
    }
}

#[test]
fn a_page_hears_the_job_and_then_its_counts() {
    let shown = Shown::start(TARGET);
    let (_stream, heard) = listen(&shown.page, 3);
    let names = heard.iter().map(|(name, _)| &**name).collect::<Vec<_>>();
    assert_eq!(names, ["job", "counts", "counts"]);
    let at = |event: usize| heard[event].1["at_s"].as_f64().unwrap();
    assert!(at(1) < at(2));
    let (status, page) = ask(&shown.page, "GET", "/", "", "").unwrap();
    assert_eq!(status, 200);
    assert!(page.contains("<title>Slackwater</title>"));
    let (status, metrics) = ask(&shown.page, "GET", "/metrics", "", "").unwrap();
    assert_eq!(status, 200);
    assert!(metrics.contains("slackwater_build_info"));
    shown.end();
}

#[test]
fn a_target_changes_while_the_query_runs() {
    let settings: [&[&str]; 4] = [
        TARGET,
        // It had none.
        &[],
        &["--processes", "2", "--parallelism", "2"],
        &["--set", "wait=interrupt"],
    ];
    for arguments in settings {
        let shown = Shown::start(arguments);
        let mut peer = shown.connect();
        peer.write_all(ROWS.as_bytes()).unwrap();
        let before = match arguments == TARGET {
            true => json!(20.0),
            false => Value::Null,
        };
        let counts = shown.job()["counts"].take();
        assert_eq!(counts["sinks"][0]["target_ms"], before);
        shown.retarget(r#"{"settings": {"latency_target": "5 s"}}"#);
        // No row keeps this.
        shown.retarget(r#"{"settings": {"latency_target.o": "1 us"}}"#);
        let counts = shown.job()["counts"].take();
        assert_eq!(counts["sinks"][0]["target_ms"], 0.001, "{arguments:?}");
        let mut second = 9;
        // Seconds that are over are judged.
        shown.until("late seconds", |counts| {
            second += 1;
            peer.write_all(format!("{second}000,a\n").as_bytes())
                .unwrap();
            std::thread::sleep(Duration::from_millis(100));
            counts["sinks"][0]["violated_s"].as_f64() > Some(0.0)
        });
        let (_, metrics) = ask(&shown.page, "GET", "/metrics", "", "").unwrap();
        let target = r#"slackwater_latency_target_seconds{pipeline="query",table="o"} 0.000001"#;
        assert!(metrics.contains(target), "{metrics}");
        let report = shown.end();
        let sink = &report["sinks"][0];
        assert_eq!(sink["latency_target_ms"], 0.001);
        assert_eq!(sink["latency_target_changes"], 2);
        assert_eq!(sink["target_met"], Value::Null);
    }
}

#[test]
fn a_changed_target_holds_after_a_restart() {
    let shown = Shown::start(&["--processes", "2", "--parallelism", "2", "--state", "state"]);
    shown.retarget(r#"{"settings": {"latency_target": "70 ms"}}"#);
    let children = crate::processes::children(shown.running.id());
    rustix::process::kill_process(children[0], rustix::process::Signal::KILL).unwrap();
    let counts = shown.until("restart", |counts| {
        counts["restarts"].as_u64() >= Some(1) && counts["status"] == "running"
    });
    assert_eq!(counts["sinks"][0]["target_ms"], 70.0);
    assert_eq!(shown.end()["sinks"][0]["latency_target_ms"], 70.0);
}

/// I1: the rows that a query emits do not depend on when its target is changed, and to what.
#[test]
fn the_answer_does_not_depend_on_the_target() {
    let text = |rate: &str| {
        format!(
            "SET 'latency_target' = '20 ms';
             CREATE TABLE visits (ts_ms BIGINT, ip STRING, duration INT,
               ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
             WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '30000',
                   'disorder' = '3 s', 'addresses' = '100', 'events_per_second' = '5000'{rate});
             CREATE TABLE o (w TIMESTAMP(3), ip STRING, n BIGINT, sum BIGINT)
             WITH ('connector' = 'file', 'path' = 'o.csv');
             INSERT INTO o SELECT window_start, ip, COUNT(*), SUM(duration)
             FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '1' SECOND)
             GROUP BY window_start, window_end, ip;"
        )
    };
    let folder = Folder::new();
    folder.run(&text(""), &[]).ok();
    let expected = folder.sorted("o.csv");
    assert!(expected.len() > 100);
    let targets = ["500 us", "100 ms", "3 ms", "9 s", "1 ms", "30 ms"];
    let settings: [&[&str]; 4] = [
        &[],
        &["--parallelism", "2"],
        &[
            "--parallelism",
            "3",
            "--workers",
            "2",
            "--set",
            "chunk_rows=7",
        ],
        &["--processes", "2", "--parallelism", "2"],
    ];
    for arguments in settings {
        let (folder, page) = (Folder::new(), free_address());
        let option = format!("--page={page}");
        let paced = text(", 'rate' = '10000/s'");
        let mut running = folder.start(&paced, &[&[&*option], arguments].concat());
        let mut changes = 0;
        for target in targets.iter().cycle() {
            let body = format!("{{\"settings\": {{\"latency_target\": \"{target}\"}}}}");
            let answer = ask(&page, "PATCH", "/v1/jobs/query", "", &body);
            changes += u64::from(answer.is_some_and(|(status, _)| status == 200));
            if !running.is_running() {
                break;
            }
            std::thread::sleep(Duration::from_millis(150));
        }
        running.finish(PATIENCE).ok();
        assert!(changes > 3, "{changes}");
        assert_eq!(folder.sorted("o.csv"), expected, "{arguments:?}");
    }
}

#[test]
fn nothing_wakes_up_while_no_page_is_open() {
    for arguments in [TARGET, &["--processes", "2", "--parallelism", "2"]] {
        let shown = Shown::start(arguments);
        let mut peer = shown.connect();
        peer.write_all(ROWS.as_bytes()).unwrap();
        shown.until("rows", |counts| counts["sinks"][0]["rows"] == 3);
        let (stream, heard) = listen(&shown.page, 3);
        assert_eq!(heard.len(), 3);
        drop(stream);
        let children = crate::processes::children(shown.running.id());
        let numbers = children.iter().map(|pid| pid.as_raw_nonzero().get() as u32);
        let processes = numbers.chain([shown.running.id()]).collect::<Vec<u32>>();
        for &process in &processes {
            settled(process);
        }
        let rest = processes.iter().map(|&process| activity(process));
        let rest = rest.collect::<Vec<_>>();
        std::thread::sleep(Duration::from_secs(3));
        for (&process, rest) in processes.iter().zip(&rest) {
            assert_eq!(activity(process), *rest, "{arguments:?}");
        }
        // What an open page costs an idle query is printed: it depends on the machine.
        let cpu_ns = || {
            processes
                .iter()
                .map(|&process| activity(process).cpu_ns)
                .sum::<u64>()
        };
        let (begin, begin_ns) = (Instant::now(), cpu_ns());
        let (_stream, _) = listen(&shown.page, 5);
        let share = (cpu_ns() - begin_ns) as f64 / begin.elapsed().as_nanos() as f64;
        println!(
            "{arguments:?}: an open page costs {:.3} % of a core",
            share * 100.0
        );
        shown.end();
    }
}

#[test]
fn wrong_requests_are_answered_with_what_to_do() {
    let shown = Shown::start(TARGET);
    let cases = [
        ("GET", "/v1/jobs/other", "", "", 404, "the job is 'query'"),
        (
            "PATCH",
            "/v1/jobs/other",
            "",
            "{}",
            404,
            "the job is 'query'",
        ),
        ("PATCH", "/v1/jobs/query", "", "{", 400, "send {"),
        ("DELETE", "/v1/jobs/query", "", "", 405, "use GET, PATCH"),
        ("POST", "/v1/sql", "", "", 404, "try /metrics"),
        (
            "PATCH",
            "/v1/jobs/query",
            "origin: https://evil.example\r\n",
            r#"{"settings": {"latency_target": "1 s"}}"#,
            403,
            "evil.example",
        ),
    ];
    for (method, path, header, body, status, hint) in cases {
        let (found, answer) = ask(&shown.page, method, path, header, body).unwrap();
        assert_eq!(found, status, "{method} {path}: {answer}");
        assert!(answer.contains(hint), "{method} {path}: {answer}");
    }
    let counts = shown.job()["counts"].take();
    assert_eq!(counts["sinks"][0]["target_ms"], 20.0);
    shown.end();
}

#[test]
fn a_page_that_can_not_open_is_an_error_before_the_query_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--page={}", taken.local_addr().unwrap());
    let folder = Folder::new();
    let cases: [(&str, &[&str]); 3] = [
        (&taken, &["in use", "= use another port"]),
        ("--page=0.0.0.0:0", &["other machines", "SLACKWATER_TOKEN"]),
        ("--page=80", &["--page: '80' is not an address"]),
    ];
    for (option, parts) in cases {
        let text = "CREATE TABLE i (a INT) WITH ('connector' = 'file', 'path' = 'i.csv');
                    CREATE TABLE o (a INT) WITH ('connector' = 'file', 'path' = 'o.csv');
                    INSERT INTO o SELECT a FROM i;";
        folder.write("i.csv", b"1\n");
        folder.run(text, &[option]).fails(2, parts);
        assert!(!folder.path("o.csv").exists(), "nothing has started");
        // Without an address it is no option of the file's.
        folder.run(text, &["--page"]).ok();
        std::fs::remove_file(folder.path("o.csv")).unwrap();
    }
}

#[test]
fn with_a_token_the_page_is_open_and_what_it_asks_for_is_not() {
    let (folder, rows, page) = (Folder::new(), free_address(), free_address());
    folder.write("query.sql", QUERY.replace("${ADDRESS}", &rows).as_bytes());
    let option = format!("--page={page}");
    let mut command = folder.command(&["run", "query.sql", &option]);
    command.env("SLACKWATER_TOKEN", "secret");
    let running = Running::start(command);
    let status = |method: &str, path: &str, header: &str| {
        let body = match method {
            "PATCH" => r#"{"settings": {"latency_target": "1 s"}}"#,
            _ => "",
        };
        eventually("answer", || ask(&page, method, path, header, body)).0
    };
    assert_eq!(status("GET", "/", ""), 200);
    let token = "authorization: Bearer secret\r\n";
    eventually("running query", || {
        (status("GET", "/readyz", "") == 200).then_some(())
    });
    for (method, path) in [
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/query"),
        ("PATCH", "/v1/jobs/query"),
    ] {
        assert_eq!(status(method, path, ""), 401, "{method} {path}");
    }
    assert_eq!(status("GET", "/v1/jobs", token), 200);
    assert_eq!(status("PATCH", "/v1/jobs/query", token), 200);
    running.interrupt();
    running.finish(PATIENCE).ok();
}
