//! Rows that are pushed over HTTP into a query: `POST /v1/tables/{name}`.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::crash::seeds;
use crate::idle::{activity, settled};
use crate::process::{self, Folder, PATIENCE, Running, eventually, free_address};
use crate::support::Seeded;

/// A table that is pushed to, and a folder of parts.
const QUERY: &str = "CREATE TABLE t (n BIGINT, s STRING) WITH ('connector' = 'http' ${OPTIONS});
CREATE TABLE o (n BIGINT, s STRING) WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO o SELECT n, s FROM t;";

fn query(options: &str) -> String {
    QUERY.replace("${OPTIONS}", options)
}

/// A running query, and the address at which it is pushed to.
struct Pushed {
    running: Running,
    address: String,
}

/// The status and the body of an answer.
type Answered = (u16, Value);

impl Pushed {
    fn start(folder: &Folder, text: &str, arguments: &[&str]) -> Pushed {
        let address = free_address();
        let arguments = [&["--metrics", &address], arguments].concat();
        let running = folder.start(text, &arguments);
        let pushed = Pushed { running, address };
        eventually("query that is ready", || {
            let (status, _) = request(&pushed.address, "GET /readyz", "", b"")?;
            (status == 200).then_some(())
        });
        pushed
    }

    #[track_caller]
    fn post(&self, table: &str, rows: &str) -> Answered {
        post(&self.address, table, rows).expect("an answer")
    }

    fn end(self) {
        self.running.interrupt();
        self.running.finish(PATIENCE).ok();
    }
}

/// Pushes rows; `None` if the connection breaks.
fn post(address: &str, table: &str, rows: &str) -> Option<Answered> {
    let path = format!("POST /v1/tables/{table}");
    request(address, &path, "", rows.as_bytes())
}

/// The status and the body (JSON, or a string) of the answer to a request.
fn request(address: &str, path: &str, header: &str, body: &[u8]) -> Option<Answered> {
    let answer = process::request(address, path, header, body)?;
    let (status, body) = process::status_and_body(&answer)?;
    let json = serde_json::from_str(body);
    Some((status, json.unwrap_or_else(|_| body.into())))
}

/// The rows of all parts, in order.
fn rows(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_part = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        !name.starts_with('.')
    };
    let contents = paths
        .filter(is_part)
        .map(|path| std::fs::read_to_string(path).unwrap());
    let contents = contents.collect::<String>();
    let mut rows = contents.lines().map(str::to_string).collect::<Vec<_>>();
    rows.sort();
    rows
}

#[test]
fn rows_are_pushed_and_the_answers_say_what_became_of_them() {
    let folder = Folder::new();
    let text = "CREATE TABLE t (n BIGINT, s STRING) WITH ('connector' = 'http');
        CREATE TABLE j (n BIGINT, s STRING)
        WITH ('connector' = 'http', 'format' = 'json', 'bad_rows' = 'skip');
        CREATE TABLE o (n BIGINT, s STRING) WITH ('connector' = 'file', 'path' = 'out');
        INSERT INTO o SELECT n, s FROM t UNION ALL SELECT n, s FROM j;";
    let pushed = Pushed::start(&folder, text, &[]);
    let (status, body) = pushed.post("t", "1,a\n2,b\n");
    assert_eq!((status, &body["rows"]), (200, &2.into()), "{body}");
    let (status, body) = pushed.post("t", "3,c\nx,d\n");
    assert_eq!(status, 400, "{body}");
    let error = &body["error"];
    assert_eq!(error["line"], 2, "{body}");
    let message = "line 2: column 'n' (BIGINT): can't read 'x'";
    assert_eq!(error["message"], message);
    let (status, body) = pushed.post("j", "{\"n\":4,\"s\":\"d\"}\nno\n");
    assert_eq!((status, &body["rows"]), (200, &1.into()), "{body}");
    assert_eq!(body["rejected"], 1);
    let (status, body) = pushed.post("u", "1,a\n");
    assert_eq!(status, 404, "{body}");
    assert_eq!(body["error"]["hint"], "the tables are: j, t");
    let (status, _) = pushed.post("t", &"1,a\n".repeat(3_000_000));
    assert_eq!(status, 413);
    let (status, body) = pushed.post("t?producer=a", "1,a\n");
    assert_eq!(status, 400, "{body}");
    let (status, body) = pushed.post("t?producer=a&sequence=7", "5,e\n");
    assert_eq!((status, &body["rows"]), (200, &1.into()), "{body}");
    let (status, body) = pushed.post("t?producer=a&sequence=7", "5,e\n");
    assert_eq!((status, &body["repeated"]), (200, &true.into()), "{body}");
    let compressed = "content-encoding: gzip\r\n";
    let answer = request(&pushed.address, "POST /v1/tables/t", compressed, b"1,a\n");
    assert_eq!(answer.unwrap().0, 415);
    let got = request(&pushed.address, "GET /v1/tables/t", "", b"");
    assert_eq!(got.unwrap().0, 405);
    pushed.end();
    assert_eq!(rows(&folder.path("out")), ["1,a", "2,b", "4,d", "5,e"]);
    let report = folder.json("report.json");
    let of_json = report["sources"].as_array().unwrap().iter();
    let bad = of_json.map(|source| source["rows_bad"].as_u64().unwrap());
    assert_eq!(bad.sum::<u64>(), 1, "a push that is refused is not read");
    let dead = folder.json_lines("slackwater-dead-letter/j.jsonl");
    let reason = dead[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("line 2 of a push: "), "{reason}");
}

#[test]
fn a_table_that_nothing_can_push_to_is_an_error_at_the_start() {
    let folder = Folder::new();
    let parts = ["table 't'", "--metrics 127.0.0.1:9464", "/v1/tables/t"];
    folder.run(&query(""), &[]).fails(2, &parts);
    let processes = ["--processes", "2", "--metrics", "127.0.0.1:0"];
    let parts = ["in one process only", "leave out --processes"];
    folder.run(&query(""), &processes).fails(2, &parts);
    let text = query(", 'acknowledge' = 'checkpoint'");
    let failed = folder.run(&text, &["--metrics", "127.0.0.1:0"]);
    failed.fails(1, &["takes no checkpoints", "--state DIR"]);
    assert!(!folder.path("out").exists(), "nothing has started");
}

#[test]
fn only_those_with_the_token_push() {
    let folder = Folder::new();
    let pushed = Pushed::start(&folder, &query(""), &["--token", "secret"]);
    let push = |header: &str| {
        let answer = request(&pushed.address, "POST /v1/tables/t", header, b"1,a\n");
        answer.unwrap().0
    };
    assert_eq!(push(""), 401);
    assert_eq!(push("authorization: Bearer secret\r\n"), 200);
    pushed.end();
    assert_eq!(rows(&folder.path("out")), ["1,a"]);
}

#[test]
fn nothing_wakes_up_while_nothing_is_pushed() {
    let folder = Folder::new();
    let pushed = Pushed::start(&folder, &query(""), &[]);
    assert_eq!(pushed.post("t", "1,a\n").0, 200);
    let process = pushed.running.id();
    let rest = settled(process);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(activity(process), rest);
    assert_eq!(pushed.post("t", "2,b\n").0, 200);
    assert_ne!(activity(process), rest, "the measurement sees nothing");
    pushed.end();
}

#[test]
fn a_query_that_does_not_read_keeps_pushes_out() {
    let folder = Folder::new();
    let reader = free_address();
    // The reader does not read, so the query waits.
    let text = format!(
        "CREATE TABLE t (n BIGINT, s STRING)
         WITH ('connector' = 'http', 'timeout' = '300 ms', 'buffer_bytes' = '4000000');
         CREATE TABLE o (n BIGINT, s STRING)
         WITH ('connector' = 'tcp', 'address' = '{reader}', 'mode' = 'listen');
         INSERT INTO o SELECT n, s FROM t;"
    );
    let pushed = Pushed::start(&folder, &text, &[]);
    let mut stream = eventually("listener", || TcpStream::connect(&reader).ok());
    let filler = "x".repeat(1_000);
    let accepted = std::thread::scope(|scope| {
        let pushers = (0..8).map(|pusher| {
            let (address, filler) = (&pushed.address, &filler);
            scope.spawn(move || {
                let mut accepted = Vec::new();
                for nth in 0..12 {
                    let numbers = (pusher * 12 + nth) * 1_000..(pusher * 12 + nth + 1) * 1_000;
                    let rows = numbers.clone().map(|n| format!("{n},{filler}\n"));
                    let (status, body) = post(address, "t", &rows.collect::<String>()).unwrap();
                    match status {
                        200 => accepted.extend(numbers),
                        _ => assert_eq!((status, &body["error"]["kind"]), (503, &"busy".into())),
                    }
                }
                accepted
            })
        });
        let pushers = pushers.collect::<Vec<_>>();
        let joined = pushers.into_iter().map(|pusher| pusher.join().unwrap());
        joined.flatten().collect::<BTreeSet<usize>>()
    });
    // 96 MB were pushed. What is on its way is bounded, and so is what waits.
    assert!(!accepted.is_empty() && accepted.len() < 96_000);
    let status = std::fs::read_to_string(format!("/proc/{}/status", pushed.running.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    let peak_kb = peak.parse::<u64>().unwrap();
    assert!(peak_kb < 400_000, "{peak_kb} kB");
    let mut numbers = BTreeSet::new();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(&mut stream));
    while numbers.len() < accepted.len() {
        let line = lines.next().unwrap().unwrap();
        let (number, _) = line.split_once(',').unwrap();
        assert!(numbers.insert(number.parse::<usize>().unwrap()));
    }
    assert_eq!(numbers, accepted, "what was refused is not read");
    assert_eq!(pushed.post("t", "1,a\n").0, 200);
    pushed.end();
}

#[test]
fn what_was_accepted_is_kept_when_the_query_is_stopped() {
    let folder = Folder::new();
    let mut accepted = BTreeSet::new();
    for round in 0..4 {
        let state = ["--state", "state", "--set", "checkpoint_interval=50 ms"];
        let pushed = Pushed::start(&folder, &query(""), &state);
        let address = pushed.address.clone();
        let pusher = std::thread::spawn(move || {
            let mut accepted = Vec::new();
            // Until nobody answers.
            for number in 0.. {
                let row = format!("{},a", round * 1_000_000 + number);
                match post(&address, "t", &format!("{row}\n")) {
                    Some((200, _)) => accepted.push(row),
                    Some((503, _)) => {}
                    Some(answer) => panic!("{answer:?}"),
                    None => return accepted,
                }
            }
            accepted
        });
        std::thread::sleep(Duration::from_millis(200));
        pushed.end();
        accepted.extend(pusher.join().unwrap());
    }
    let rows = rows(&folder.path("out"));
    let distinct = rows.iter().cloned().collect::<BTreeSet<String>>();
    assert_eq!(distinct.len(), rows.len(), "nothing twice");
    assert!(accepted.is_subset(&distinct), "what was accepted is there");
}

/// Rounds of the test with kills, and how often a query is killed in one.
const ROUNDS: u64 = 3;
const KILLS: u64 = 8;

/// Producers, and how many pushes each has.
const PRODUCERS: usize = 3;
const SEQUENCES: usize = 60;

#[test]
fn nothing_pushed_is_lost_or_doubled_when_the_query_is_killed() {
    let mut killed = 0;
    for seed in seeds(ROUNDS).0 {
        killed += killed_round(seed);
    }
    assert!(killed > 0, "nothing was ever killed");
}

/// Producers repeat each push until it is answered; returns how often the query was killed.
fn killed_round(seed: u64) -> u64 {
    let folder = Folder::new();
    let mut seeded = Seeded(seed * 7919 + 1);
    let interval = ["5 ms", "20 ms", "80 ms"][seeded.below(3) as usize];
    // Small chunks: barriers come in the middle of pushes.
    let chunk_rows = ["1", "7", "100"][seeded.below(3) as usize];
    let settings = [
        format!("checkpoint_interval={interval}"),
        format!("chunk_rows={chunk_rows}"),
    ];
    let address = free_address();
    let arguments = [
        &["--state", "state", "--metrics", &address],
        &["--set", &settings[0], "--set", &settings[1]][..],
    ]
    .concat();
    let text = query(", 'acknowledge' = 'checkpoint', 'timeout' = '2 s'");
    let body = |producer: usize, sequence: usize| {
        let lines = (producer * 31 + sequence * 17) % 40 + 1;
        let rows = (0..lines).map(|line| format!("{line},{producer}.{sequence}\n"));
        rows.collect::<String>()
    };
    let is_done = AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        let producers = (0..PRODUCERS).map(|producer| {
            let address = &address;
            scope.spawn(move || {
                for sequence in 0..SEQUENCES {
                    let table = format!("t?producer=p{producer}&sequence={sequence}");
                    let rows = body(producer, sequence);
                    eventually("answer to a push", || {
                        let (status, answer) = post(address, &table, &rows)?;
                        assert!([200, 503].contains(&status), "{answer}");
                        (status == 200).then_some(())
                    });
                }
            })
        });
        let producers = producers.collect::<Vec<_>>();
        let done = &is_done;
        scope.spawn(move || {
            let joined = producers.into_iter().map(|producer| producer.join());
            let all = joined.collect::<Result<Vec<()>, _>>();
            done.store(true, Ordering::Release);
            all.unwrap();
        });
        let mut killed = 0;
        while !is_done.load(Ordering::Acquire) {
            let running = folder.start(&text, &arguments);
            let pause = Duration::from_millis(100 + seeded.below(500));
            let until = std::time::Instant::now() + pause;
            let is_last = killed == KILLS;
            while !is_done.load(Ordering::Acquire) && (is_last || std::time::Instant::now() < until)
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            if is_done.load(Ordering::Acquire) {
                running.interrupt();
                running.finish(PATIENCE).ok();
            } else {
                killed += 1;
                // Dropping it kills it.
            }
        }
        killed
    });
    let mut wanted = Vec::new();
    for producer in 0..PRODUCERS {
        for sequence in 0..SEQUENCES {
            wanted.extend(body(producer, sequence).lines().map(str::to_string));
        }
    }
    wanted.sort();
    assert!(
        rows(&folder.path("out")) == wanted,
        "SLACKWATER_SEED={seed}: other rows, after {killed} kills"
    );
    killed
}
