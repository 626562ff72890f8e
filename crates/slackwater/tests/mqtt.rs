//! A query between two topics of a real broker, killed in between: `make test-mqtt`.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::functions::example;
use crate::process::{Folder, PATIENCE, Running, eventually};

/// A Mosquitto of the test's own. It is killed when dropped.
struct Broker {
    port: u16,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Broker {
    fn start(program: PathBuf) -> Broker {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mosquitto.conf");
        let settings =
            format!("listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(file).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        eventually("broker", || TcpStream::connect(("127.0.0.1", port)).ok());
        Broker {
            port,
            process,
            _folder: folder,
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const ROWS: usize = 5_000;

#[test]
fn no_row_between_brokers_is_lost_when_the_query_is_killed() {
    let Some(program) = std::env::var_os("SLACKWATER_MOSQUITTO") else {
        eprintln!("skipped: no broker; run make test-mqtt");
        return;
    };
    let broker = Broker::start(program.into());
    let mqtt = format!(
        "'connector' = 'mqtt', 'address' = '127.0.0.1:{}'",
        broker.port
    );
    let lines = (0..ROWS)
        .map(|n| format!("{n},{}\n", n % 7))
        .collect::<String>();
    let folder = Folder::with(&[("in.csv", &lines)]);
    let reads = format!(
        "CREATE TABLE readings (n INT, device INT, topic STRING METADATA)
         WITH ({mqtt}, 'topic' = 'plant/+', 'client_id' = 'reader', 'format' = 'json');
         CREATE TABLE kept (n INT, device INT, topic STRING)
         WITH ('connector' = 'file', 'path' = 'kept');
         INSERT INTO kept SELECT n, device, topic FROM readings WHERE device < 6;"
    );
    let saved = ["--state", "state", "--set", "checkpoint_interval=20 ms"];
    // The session is there before anything is written.
    let first = [&saved[..], &["--duration", "500 ms"]].concat();
    let warned = folder.run(&reads, &first).ok();
    assert!(
        warned
            .err
            .contains("what mqtt delivered since the last checkpoint is delivered again"),
        "{}",
        warned.err
    );
    let writes = format!(
        "CREATE TABLE rows (n INT, device INT) WITH ('connector' = 'file', 'path' = 'in.csv');
         CREATE TABLE readings (n INT, device INT, topic STRING)
         WITH ({mqtt}, 'topic_column' = 'topic', 'format' = 'json');
         INSERT INTO readings SELECT n, device, 'plant/' || CAST(device AS STRING) FROM rows;"
    );
    folder.run(&writes, &[]).ok();
    // Killed as soon as some of them are committed.
    let kept = folder.path("kept");
    let parts = || kept.read_dir().into_iter().flatten().count();
    let query = folder.start(&reads, &saved);
    eventually("committed part", || (parts() > 0).then_some(()));
    let pid = query.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-9", &pid])
            .status()
            .unwrap()
            .success()
    );
    drop(query);
    let wanted = (0..ROWS).filter(|n| n % 7 < 6).count();
    let query = folder.start(&reads, &saved);
    let numbers = eventually("row of each message", || {
        let names = kept
            .read_dir()
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path());
        let names =
            names.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'));
        let contents = names.map(|path| std::fs::read_to_string(path).unwrap());
        let all = contents.collect::<String>();
        let numbers = all.lines().map(|line| {
            let [n, device, topic] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert_eq!(topic, format!("plant/{device}"));
            n.parse::<usize>().unwrap()
        });
        let numbers = numbers.collect::<std::collections::BTreeSet<usize>>();
        (numbers.len() >= wanted).then_some(numbers)
    });
    assert!(numbers.iter().all(|n| n % 7 < 6));
    query.interrupt();
    query.finish(PATIENCE).ok();
}

#[test]
fn formats_of_a_build_read_and_write_messages() {
    let (Some(broker), Some(program)) = (
        std::env::var_os("SLACKWATER_MOSQUITTO"),
        example("custom_operators"),
    ) else {
        eprintln!("skipped: no broker; run make test-mqtt");
        return;
    };
    let broker = Broker::start(broker.into());
    let mqtt = format!(
        "'connector' = 'mqtt', 'address' = '127.0.0.1:{}', 'qos' = '1'",
        broker.port
    );
    let (good, bad) = (
        "$GPGSV,1,1,02,01,40,083,46,02,17,308,41",
        "$GPGSV,1,1,00*00",
    );
    let folder = Folder::with(&[
        ("lines", &format!("{good}*7D\n{bad}\n{good}*7D\n")),
        ("places.csv", "48.5,-11.25\n-1,2\n"),
    ]);
    let start = |text: &str, name: &str| {
        folder.write(name, text.as_bytes());
        let mut command = Command::new(&program);
        command.args(["run", name]).current_dir(folder.path(""));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(command)
    };
    let reads = start(
        &format!(
            "CREATE TABLE s (topic STRING METADATA, satellite INT, signal INT)
             WITH ({mqtt}, 'topic' = 'seen/+', 'client_id' = 's', 'format' = 'nmea_satellites');
             CREATE TABLE o (topic STRING, satellite INT, signal INT)
             WITH ('connector' = 'file', 'path' = 'seen.csv');
             CREATE TABLE f (latitude DOUBLE, longitude DOUBLE)
             WITH ({mqtt}, 'topic' = 'fixes', 'client_id' = 'f', 'format' = 'nmea');
             CREATE TABLE p (latitude DOUBLE, longitude DOUBLE)
             WITH ('connector' = 'file', 'path' = 'fixes.csv');
             SET 'latency_target' = '20 ms';
             INSERT INTO o SELECT topic, satellite, signal FROM s;
             INSERT INTO p SELECT latitude, longitude FROM f;"
        ),
        "reads.sql",
    );
    let writes = format!(
        "CREATE TABLE lines (line STRING) WITH ('connector' = 'file', 'path' = 'lines', 'format' = 'raw');
         CREATE TABLE seen (line STRING)
         WITH ({mqtt}, 'topic' = 'seen/a', 'csv.delimiter' = '|', 'client_id' = 'a');
         CREATE TABLE places (latitude DOUBLE, longitude DOUBLE)
         WITH ('connector' = 'file', 'path' = 'places.csv');
         CREATE TABLE fixes (latitude DOUBLE, longitude DOUBLE)
         WITH ({mqtt}, 'topic' = 'fixes', 'format' = 'nmea', 'client_id' = 'b');
         INSERT INTO fixes SELECT latitude, longitude FROM places;
         INSERT INTO seen SELECT line FROM lines;"
    );
    // Until the readers have subscribed, messages go nowhere: they are written again.
    let found = |name: &str| {
        // A file has a hidden name until it is complete.
        let mut names = folder.names().into_iter();
        let file = names.find(|file| file.trim_start_matches('.').starts_with(name));
        let text = file.map_or(String::new(), |file| folder.read(&file));
        let rows = text.lines().map(str::to_string);
        rows.collect::<std::collections::BTreeSet<String>>()
    };
    let dead = folder.path("slackwater-dead-letter/s.jsonl");
    let (seen, fixes) = eventually("row of each message", || {
        start(&writes, "writes.sql").finish(PATIENCE).ok();
        let (seen, fixes) = (found("seen.csv"), found("fixes.csv"));
        (seen.len() >= 2 && fixes.len() >= 2 && dead.exists()).then_some((seen, fixes))
    });
    assert_eq!(Vec::from_iter(seen), ["seen/a,1,46", "seen/a,2,41"]);
    assert_eq!(Vec::from_iter(fixes), ["-1.0,2.0", "48.5,-11.25"]);
    reads.interrupt();
    reads.finish(PATIENCE).ok();
    let letters = folder.json_lines("slackwater-dead-letter/s.jsonl");
    assert!(
        letters
            .iter()
            .all(|letter| letter["record"].as_str().unwrap().starts_with(bad))
    );
}
