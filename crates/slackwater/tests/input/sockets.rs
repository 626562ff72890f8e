//! Sockets, in both modes and both directions.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use crate::process::{Folder, PATIENCE, eventually, free_address};

#[test]
fn sockets_are_read_and_written_in_both_modes() {
    let folder = Folder::new();
    for (source_mode, sink_mode) in [
        ("connect", "connect"),
        ("listen", "connect"),
        ("connect", "listen"),
        ("listen", "listen"),
    ] {
        let source = TcpListener::bind("127.0.0.1:0").unwrap();
        let sink = TcpListener::bind("127.0.0.1:0").unwrap();
        let source_address = source.local_addr().unwrap();
        let sink_address = sink.local_addr().unwrap();
        // Where the program listens, the address must be free again.
        let source = Some(source).filter(|_| source_mode == "connect");
        let sink = Some(sink).filter(|_| sink_mode == "connect");
        let text = format!(
            "CREATE TABLE t (n INT, k STRING)
             WITH ('connector' = 'tcp', 'address' = '{source_address}', 'mode' = '{source_mode}');
             CREATE TABLE o (k STRING, n INT)
             WITH ('connector' = 'tcp', 'address' = '{sink_address}', 'mode' = '{sink_mode}', 'format' = \
             'json');
             INSERT INTO o SELECT k, n + 1 FROM t;"
        );
        let running = folder.start(&text, &[]);
        let connect = |address| eventually("listener", || TcpStream::connect(address).ok());
        let output = match &sink {
            Some(sink) => sink.accept().unwrap().0,
            None => connect(sink_address),
        };
        let mut input = match &source {
            Some(source) => source.accept().unwrap().0,
            None => connect(source_address),
        };
        input.write_all(b"1,a\nx,bad\n2,\"b").unwrap();
        input.write_all(b"\"\n3,the last has no line end").unwrap();
        drop(input);
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
        let mut line = || lines.next().map(Result::unwrap);
        assert_eq!(line().as_deref(), Some(r#"{"k":"a","n":2}"#));
        assert_eq!(line().as_deref(), Some(r#"{"k":"b","n":3}"#));
        assert_eq!(
            line().as_deref(),
            Some(r#"{"k":"the last has no line end","n":4}"#)
        );
        if source_mode == "listen" {
            // It waits for the next caller, until it is stopped.
            running.interrupt();
        }
        assert_eq!(line(), None);
        let finished = running.finish(PATIENCE).ok();
        assert!(
            finished.err.contains("4 in, 3 out, 0 late, 1 bad"),
            "{}",
            finished.err
        );
    }
    let place = folder.json_lines("slackwater-dead-letter/t.jsonl")[0]["place"].clone();
    assert!(
        place.as_str().unwrap().starts_with("127.0.0.1:"),
        "the peer and the line: {place}"
    );
    assert!(place.as_str().unwrap().ends_with(":2"), "{place}");
}

#[test]
fn sockets_that_do_not_work_are_named() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let listener = TcpListener::bind(&taken).map(drop);
    let free = free_address();
    let source = |options: &str| {
        let text =
            format!("CREATE TABLE t (n INT) WITH ('connector' = 'tcp'{options}); SELECT n FROM t;");
        folder.run(&text, &[])
    };
    source(&format!(", 'address' = '{free}'")).fails(1, &[&free, "refused", "'mode' = 'listen'"]);
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let listening = source(&format!(", 'address' = '{address}', 'mode' = 'listen'"));
    listening.fails(1, &[&address, "can't listen", "already in use"]);
    source(", 'address' = 'nowhere'")
        .fails(2, &["'nowhere' is not a host and port", "127.0.0.1:9000"]);
    source("").fails(2, &["option 'address': is missing"]);
    source(", 'address' = 'a:1', 'mode' = 'call'")
        .fails(2, &["'call' is not a valid value", "'listen'"]);
    // A peer that hangs up on a sink that has no other.
    let text = format!(
        "CREATE TABLE v (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen', 'generator' = 'uservisits');
         CREATE TABLE o (ip STRING) WITH ('connector' = 'tcp', 'address' = '{address}', 'on_close' = 'fail');
         INSERT INTO o SELECT ip FROM v;"
    );
    let running = folder.start(&text, &[]);
    drop(busy.accept().unwrap());
    running
        .finish(PATIENCE)
        .fails(1, &[&address, "can't send", "did the peer close?"]);
    drop(listener);
}
