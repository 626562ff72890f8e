//! A query between two topics of a real broker, killed in between: `make test-mqtt`.

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::functions::example;
use crate::process::{Folder, PATIENCE, Running, eventually};

/// A broker of the test's own. It is ended when dropped.
struct Broker {
    port: u16,
    processes: Vec<Child>,
    _folder: tempfile::TempDir,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The program of a broker; `None` if it is not installed.
fn installed(variable: &str) -> Option<OsString> {
    let program = std::env::var_os(variable).filter(|program| !program.is_empty());
    if program.is_none() {
        eprintln!("skipped: no broker; run make test-mqtt");
    }
    program
}

impl Broker {
    fn mosquitto(program: OsString) -> Broker {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let file = folder.path().join("mosquitto.conf");
        // A client of version 3.1.1 can't say how many messages it takes before it acknowledges them.
        let settings = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n\
             max_inflight_messages 0\n"
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(file);
        Broker {
            port,
            processes: vec![started(command, port)],
            _folder: folder,
        }
    }

    /// RabbitMQ with its plugin for MQTT, as a node of its own.
    fn rabbitmq(program: OsString) -> Broker {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("plugins"), "[rabbitmq_mqtt].\n").unwrap();
        let settings = format!(
            "listeners.tcp.local = 127.0.0.1:{}\nmqtt.listeners.tcp.local = 127.0.0.1:{port}\n\
             mqtt.allow_anonymous = true\nmqtt.prefetch = 1000\n",
            free_port()
        );
        std::fs::write(path("rabbitmq.conf"), settings).unwrap();
        // Erlang's daemon of names. RabbitMQ would start one, and leave it behind.
        let names_port = free_port();
        let mut names = Command::new("epmd");
        names
            .args(["-port", &names_port.to_string()])
            .args(["-address", "127.0.0.1"]);
        let names = started(names, names_port);
        let mut command = Command::new(program);
        command
            .env("HOME", folder.path())
            .env("RABBITMQ_NODENAME", format!("test{port}@localhost"))
            .env("RABBITMQ_MNESIA_BASE", path("mnesia"))
            .env("RABBITMQ_LOG_BASE", path("log"))
            .env("RABBITMQ_PID_FILE", path("pid"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
            .env("RABBITMQ_CONF_ENV_FILE", path("none"))
            .env("RABBITMQ_DIST_PORT", free_port().to_string())
            .env("ERL_EPMD_PORT", names_port.to_string());
        Broker {
            port,
            processes: vec![names, started(command, port)],
            _folder: folder,
        }
    }

    fn options(&self, version: &str) -> String {
        format!(
            "'connector' = 'mqtt', 'address' = '127.0.0.1:{}', 'protocol_version' = '{version}'",
            self.port
        )
    }
}

/// Starts a program, and waits until it accepts connections.
fn started(mut command: Command, port: u16) -> Child {
    command.stdin(Stdio::null()).process_group(0);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let process = command.spawn().unwrap();
    eventually("broker", || TcpStream::connect(("127.0.0.1", port)).ok());
    process
}

impl Drop for Broker {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // All that it consists of: the script of RabbitMQ starts a virtual machine.
            let _ = kill_process_group(Pid::from_child(process), Signal::KILL);
            let _ = process.wait();
        }
    }
}

const ROWS: usize = 5_000;

#[test]
fn mqtt_no_row_is_lost_when_the_query_is_killed() {
    let Some(program) = installed("SLACKWATER_MOSQUITTO") else {
        return;
    };
    let broker = Broker::mosquitto(program);
    for version in ["5", "3.1.1"] {
        no_row_is_lost(&broker.options(version));
    }
}

#[test]
fn mqtt_3_1_1_with_rabbitmq() {
    let Some(program) = installed("SLACKWATER_RABBITMQ") else {
        return;
    };
    let broker = Broker::rabbitmq(program);
    no_row_is_lost(&broker.options("3.1.1"));
    // It delivers at least once, and says so when it is asked for more.
    let query = |options: &str| {
        format!(
            "CREATE TABLE readings (n INT) WITH ({options}, 'topic' = 't', 'format' = 'json');
             SELECT n FROM readings;"
        )
    };
    let folder = Folder::new();
    let exactly = broker.options("3.1.1") + ", 'qos' = '2'";
    let refused = folder.run(&query(&exactly), &[]);
    refused.fails(1, &["grants QoS 1 for 't'", "write 'qos' = '1'"]);
}

/// As RabbitMQ before version 3.13 does with a client of MQTT 5.
#[test]
fn mqtt_a_broker_that_hangs_up_may_speak_another_version() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let query = format!(
        "CREATE TABLE readings (n INT) WITH ('connector' = 'mqtt', 'address' = '127.0.0.1:{port}',
           'topic' = 't', 'format' = 'json');
         SELECT n FROM readings;"
    );
    let folder = Folder::new();
    let running = folder.start(&query, &[]);
    drop(listener.accept().unwrap());
    let hint = "has it MQTT 5? If not, write 'protocol_version' = '3.1.1'";
    eventually("hint", || running.said().contains(hint).then_some(()));
    running.interrupt();
    running.finish(PATIENCE).ok();
}

fn no_row_is_lost(mqtt: &str) {
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
    kill_process(Pid::from_raw(query.id() as i32).unwrap(), Signal::KILL).unwrap();
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
        installed("SLACKWATER_MOSQUITTO"),
        example("custom_operators"),
    ) else {
        return;
    };
    let broker = Broker::mosquitto(broker);
    let mqtt = broker.options("5") + ", 'qos' = '1'";
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
