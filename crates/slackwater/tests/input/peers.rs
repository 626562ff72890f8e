//! Peers of tcp tables that are silent, leave, come back, or mean no good.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{Folder, PATIENCE, Running, eventually, free_address};

use super::EVENTS;

/// Long enough for a message to pass through the program, on a busy machine.
const A_MOMENT: Duration = Duration::from_millis(500);

fn connect(address: &str) -> TcpStream {
    eventually("listener", || TcpStream::connect(address).ok())
}

/// Ends the connection with a reset, as a peer does that dies with something unread.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

/// Waits until the program has accepted all who have connected.
fn all_accepted(address: &str) {
    let (_, port) = address.rsplit_once(':').unwrap();
    let local = format!("0100007F:{:04X}", port.parse::<u16>().unwrap());
    eventually("accepted connection", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut lines = sockets.lines().map(|line| line.split_whitespace());
        // Of a socket that listens (0A) the second queue is of those that wait to be accepted.
        let waiting = lines.find_map(|mut fields| {
            let is_meant = fields.nth(1)? == local && fields.nth(1)? == "0A";
            is_meant
                .then(|| fields.next().map(str::to_string))
                .flatten()
        });
        waiting?.ends_with(":00000000").then_some(())
    });
    std::thread::sleep(A_MOMENT);
}

/// The next row; each process prints the names before its first one.
fn row(running: &Running) -> String {
    eventually("row", || {
        Some(running.line()).filter(|line| line != "k  other")
    })
}

/// Two tables that listen, `a` and `b`, and a query over both.
fn two_tables(query: &str) -> (String, String, String) {
    let (a, b) = (free_address(), free_address());
    let table = |name: &str, address: &str| {
        format!(
            "CREATE TABLE {name} ({EVENTS}) WITH ('connector' = 'tcp', 'address' = '{address}', 'mode' = \
             'listen');\n"
        )
    };
    let text = table("a", &a) + &table("b", &b) + query;
    (text, a, b)
}

const INTERVAL_JOIN: &str = "SELECT a.k, b.k AS other FROM a LEFT JOIN b
    ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + INTERVAL '1' SECOND;";

const WINDOW_JOIN: &str = "SELECT l.k, r.k AS other
    FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)) l
    LEFT JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '10' SECOND)) r
    ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end;";

const SETTINGS: [&[&str]; 3] = [
    &["--parallelism", "1"],
    &["--parallelism", "3"],
    &["--parallelism", "2", "--processes", "2"],
];

#[test]
fn regression_a_silent_peer_of_a_listening_table_holds_the_other_table_back() {
    for (query, arguments) in [INTERVAL_JOIN, WINDOW_JOIN]
        .into_iter()
        .flat_map(|query| SETTINGS.map(|arguments| (query, arguments)))
    {
        let folder = Folder::new();
        let (text, a, b) = two_tables(query);
        let running = folder.start(&text, arguments);
        // Both say first that nobody is there.
        let mut silent = connect(&b);
        all_accepted(&b);
        let mut ahead = connect(&a);
        ahead.write_all(b"1000,x\n2000,y\n25000,z\n").unwrap();
        std::thread::sleep(A_MOMENT);
        silent.write_all(b"1500,x\n2500,y\n").unwrap();
        // One that comes while the other is ahead holds it back, too: from where the source is.
        let mut second = connect(&b);
        all_accepted(&b);
        silent.write_all(b"26000,z\n60000,q\n").unwrap();
        ahead.write_all(b"60000,w\n").unwrap();
        std::thread::sleep(A_MOMENT);
        second.write_all(b"25500,z\n60000,v\n").unwrap();
        let mut lines = (0..4).map(|_| row(&running)).collect::<Vec<_>>();
        lines.sort();
        assert_eq!(
            lines,
            ["x  x", "y  y", "z  z", "z  z"],
            "{query} {arguments:?}"
        );
        running.interrupt();
        let finished = running.finish(PATIENCE).ok();
        assert!(finished.err.contains(" 0 late"), "{}", finished.err);
    }
}

#[test]
fn a_listening_table_without_a_peer_holds_nobody_back() {
    for arguments in SETTINGS {
        let folder = Folder::new();
        let (text, a, b) = two_tables(INTERVAL_JOIN);
        let running = folder.start(&text, arguments);
        let mut only = connect(&a);
        only.write_all(b"1000,x\n25000,z\n").unwrap();
        assert_eq!(row(&running), "x  NULL");
        // Somebody comes and leaves: while it is there it is waited for, and then no longer.
        let other = connect(&b);
        all_accepted(&b);
        only.write_all(b"50000,w\n").unwrap();
        assert_eq!(running.line_within(A_MOMENT), None, "it is waited for");
        drop(other);
        assert_eq!(row(&running), "z  NULL");
        running.interrupt();
        running.finish(PATIENCE).ok();
    }
}

fn counting(address: &str, options: &str) -> String {
    format!(
        "CREATE TABLE t ({EVENTS}) WITH ('connector' = 'tcp', 'address' = '{address}'{options});
         SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
         GROUP BY window_start, window_end, k;"
    )
}

const STATE: [&str; 4] = ["--state", "state", "--set", "checkpoint_interval=50 ms"];

#[test]
fn regression_a_saved_query_outlives_the_peer_of_its_table() {
    for processes in ["1", "2"] {
        let folder = Folder::new();
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = counting(&peer.local_addr().unwrap().to_string(), "");
        let arguments = [
            &STATE[..],
            &["--parallelism", "2", "--processes", processes],
        ]
        .concat();
        let running = folder.start(&text, &arguments);
        peer.accept().unwrap().0.write_all(b"1000,a\n").unwrap();
        let mut second = peer.accept().unwrap().0;
        second.write_all(b"1500,a\nhalf a l").unwrap();
        std::thread::sleep(A_MOMENT);
        reset(second);
        let mut third = peer.accept().unwrap().0;
        third.write_all(b"2000,a\n11000,b\n").unwrap();
        assert_eq!(running.line(), "k  n");
        assert_eq!(running.line(), "a  3");
        running.interrupt();
        let finished = running.finish(PATIENCE).ok();
        let said = finished
            .err
            .matches("has closed the connection; waiting for it");
        assert_eq!(said.count(), 1, "{}", finished.err);
        assert!(
            finished.err.contains("5 in, 1 out, 0 late, 1 bad"),
            "{}",
            finished.err
        );
        let report = folder.json("report.json");
        assert_eq!(report["sources"][0]["connections_lost"], 2);
        let letters = folder.json_lines("slackwater-dead-letter/t.jsonl");
        assert_eq!(letters[0]["record"], "half a l");
        drop(third);
        // The query goes on where it was: the windows that were open are.
        let running = folder.start(&text, &arguments);
        let mut peer = peer.accept().unwrap().0;
        peer.write_all(b"5000,late\n12000,b\n21000,c\n").unwrap();
        assert_eq!(running.line(), "k  n");
        assert_eq!(running.line(), "b  2");
        running.interrupt();
        let finished = running.finish(PATIENCE).ok();
        assert!(finished.err.contains("1 late"), "{}", finished.err);
    }
}

#[test]
fn a_stop_ends_a_query_that_waits_for_its_peer() {
    let folder = Folder::new();
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = counting(&peer.local_addr().unwrap().to_string(), "");
    let running = folder.start(&text, &STATE);
    peer.accept().unwrap().0.write_all(b"1000,a\n").unwrap();
    drop(peer);
    // The pauses get longer than the stop may take.
    std::thread::sleep(Duration::from_secs(4));
    running.interrupt();
    let finished = running.finish(Duration::from_secs(4)).ok();
    assert!(
        !finished.err.contains("nothing is left"),
        "{}",
        finished.err
    );
    // So does one that has not found it yet.
    let running = folder.start(&text, &STATE);
    std::thread::sleep(A_MOMENT);
    running.interrupt();
    let finished = running.finish(PATIENCE).ok();
    assert!(finished.err.contains("waiting for it"), "{}", finished.err);
}

#[test]
fn a_reset_is_an_error_where_a_close_is_the_end() {
    let folder = Folder::new();
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let running = folder.start(&counting(&address, ""), &[]);
    let mut stream = peer.accept().unwrap().0;
    stream.write_all(b"1000,a\n").unwrap();
    std::thread::sleep(A_MOMENT);
    reset(stream);
    let parts = [
        &*address,
        "broke before its end",
        "'on_close' = 'reconnect'",
    ];
    running.finish(PATIENCE).fails(1, &parts);
    // One peer of several that listens to is told of, and the others go on.
    let address = free_address();
    let running = folder.start(&counting(&address, ", 'mode' = 'listen'"), &[]);
    let (mut torn, mut good) = (connect(&address), connect(&address));
    torn.write_all(b"1000,a\nhalf").unwrap();
    good.write_all(b"1000,a\n").unwrap();
    all_accepted(&address);
    let name = torn.local_addr().unwrap().to_string();
    reset(torn);
    good.write_all(b"11000,b\n").unwrap();
    assert_eq!(running.line(), "k  n");
    assert_eq!(running.line(), "a  2");
    running.interrupt();
    let finished = running.finish(PATIENCE).ok();
    assert!(
        finished
            .err
            .contains(&format!("the connection of {name} broke")),
        "{}",
        finished.err
    );
    assert!(
        finished.err.contains("1 connection was lost"),
        "{}",
        finished.err
    );
    assert!(finished.err.contains("1 bad"), "{}", finished.err);
}

#[test]
fn a_query_that_has_ended_says_why_nothing_is_read() {
    let folder = Folder::new();
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let text = counting(&address, ", 'on_close' = 'end'");
    let running = folder.start(&text, &STATE);
    peer.accept().unwrap().0.write_all(b"1000,a\n").unwrap();
    assert!(running.finish(PATIENCE).ok().out.contains("a  1"));
    let finished = folder.run(&text, &STATE).ok();
    let parts = [
        "there is nothing left to do",
        "new input from 't' (tcp) is not read",
    ];
    for part in parts {
        assert!(finished.err.contains(part), "{}", finished.err);
    }
    // A table that has no end can't have come to it.
    let finished = folder.run(&counting(&address, ""), &STATE);
    finished.fails(2, &["'t' (tcp) now has no end", "--from-scratch"]);
}

/// Rows of a sink, as a reader gets them.
fn reader(address: &str) -> BufReader<TcpStream> {
    BufReader::new(connect(address))
}

fn to_a_sink(address: &str, rows: u64) -> String {
    format!(
        "CREATE TABLE v (ts_ms BIGINT, ip STRING)
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '{rows}');
         CREATE TABLE o (ts_ms BIGINT, ip STRING)
         WITH ('connector' = 'tcp', 'address' = '{address}', 'mode' = 'listen', 'csv.header' = 'true');
         INSERT INTO o SELECT ts_ms, ip FROM v;"
    )
}

#[test]
fn regression_a_sink_whose_reader_leaves_waits_for_the_next() {
    let rows = 300_000;
    let folder = Folder::new();
    let address = free_address();
    let running = folder.start(&to_a_sink(&address, rows), &["--parallelism", "2"]);
    let mut first = reader(&address).lines();
    assert_eq!(first.next().unwrap().unwrap(), "ts_ms,ip");
    let got = (0..1_000).map(|_| first.next().unwrap().unwrap());
    let mut got = got.collect::<Vec<String>>();
    drop(first);
    let mut rest = String::new();
    reader(&address).read_to_string(&mut rest).unwrap();
    let mut rest = rest.lines().map(str::to_string);
    assert_eq!(rest.next().unwrap(), "ts_ms,ip", "it gets the names, too");
    got.extend(rest);
    let finished = running.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("takes no more rows"),
        "{}",
        finished.err
    );
    let report = folder.json("report.json");
    assert_eq!(report["rows_out"], rows);
    assert_eq!(report["sinks"][0]["connections_lost"], 1);
    // What the kernel held for the first reader is lost; all others are there once, in their order.
    let mut all = String::new();
    let running = folder.start(&to_a_sink(&address, rows), &["--parallelism", "2"]);
    reader(&address).read_to_string(&mut all).unwrap();
    running.finish(PATIENCE).ok();
    let mut all = all.lines().skip(1);
    for row in &got {
        assert!(all.any(|line| line == row), "twice, or no row of it: {row}");
    }
    assert_eq!(all.next(), None, "the last row is there");
}

#[test]
fn a_stop_ends_a_query_whose_reader_has_left() {
    let folder = Folder::new();
    let address = free_address();
    let running = folder.start(&to_a_sink(&address, 1_000_000_000), &[]);
    let mut line = String::new();
    reader(&address).read_line(&mut line).unwrap();
    std::thread::sleep(A_MOMENT);
    running.interrupt();
    let finished = running.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("takes no more rows"),
        "{}",
        finished.err
    );
}

/// A program that may open few files, and callers of all kinds.
#[test]
fn hostile_peers_do_not_end_a_query() {
    let folder = Folder::new();
    let address = free_address();
    folder.write(
        "query.sql",
        counting(&address, ", 'mode' = 'listen', 'idle_timeout' = '100 ms'").as_bytes(),
    );
    let mut command = Command::new("sh");
    let limited = "ulimit -n 64; exec \"$0\" run query.sql --report report.json";
    command
        .args(["-c", limited, env!("CARGO_BIN_EXE_slackwater")])
        .current_dir(folder.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = Running::start(command);
    drop(connect(&address));
    let callers = (0..100).map(|nth| {
        let mut stream = TcpStream::connect(&address).unwrap();
        match nth % 4 {
            0 => {}
            1 => stream.write_all(&[0, 255, b'"', 13, 128, b'\n']).unwrap(),
            2 => stream.write_all(b"1000").unwrap(),
            _ => stream.write_all(&[b'x'; 4096]).unwrap(),
        }
        stream
    });
    let callers = callers.collect::<Vec<_>>();
    std::thread::sleep(A_MOMENT);
    for (nth, stream) in callers.into_iter().enumerate() {
        match nth % 3 {
            0 => reset(stream),
            _ => drop(stream),
        }
    }
    let mut good = connect(&address);
    good.write_all(b"1000,a\n11000,b\n").unwrap();
    assert_eq!(running.line(), "k  n");
    assert_eq!(running.line(), "a  1");
    running.interrupt();
    let finished = running.finish(PATIENCE).ok();
    let full = "32 peers are connected, as many as 'connections_max' and 'ulimit -n' allow";
    assert!(finished.err.contains(full), "{}", finished.err);
    // Each bad line is kept, though files are short.
    let report = folder.json("report.json");
    let letters = folder.json_lines("slackwater-dead-letter/t.jsonl");
    assert_eq!(report["rows_bad"], letters.len());
}
