//! Event time that is missing or wrong, and partitions that fall silent.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::process::{Folder, PATIENCE, eventually, free_address};

use super::{EVENTS, reading, refused};

#[test]
fn a_bad_event_time_moves_no_watermark() {
    // The bad ones would make everything after them late: they have no time, one that can't be
    // read, one far in the future in a record with a bad column, and one out of all range.
    let lines = [
        "1000,1",
        ",1",
        "soon,1",
        "99999999,x",
        "9223372036854775807,1",
        "99999999,1,1",
        "2000,1",
        "12000,1",
        "3000,1",
    ];
    let folder = Folder::with(&[("in.csv", &lines.join("\n"))]);
    let columns = "ms BIGINT, n INT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts";
    let query = "SELECT CAST(window_start AS BIGINT), SUM(n)
        FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end";
    for (parallelism, chunk_rows) in [("1", "8192"), ("2", "1")] {
        let set = format!("chunk_rows={chunk_rows}");
        let text = reading(columns, "", "s BIGINT, n BIGINT", query);
        folder
            .run(&text, &["--parallelism", parallelism, "--set", &set])
            .ok();
        assert_eq!(folder.sorted("out.csv"), ["0,2", "10000,1"]);
        let report = folder.json("report.json");
        assert_eq!(
            (&report["rows_in"], &report["rows_bad"]),
            (&9.into(), &5.into())
        );
        assert_eq!(report["rows_late"], 1, "the last: its window ended at 12 s");
        let mut refused = refused(&folder);
        refused.sort();
        assert!(
            refused[0].starts_with("in.csv:2: event time ts is NULL"),
            "{refused:?}"
        );
        assert!(
            refused[1].starts_with("in.csv:3: column 'ms' (BIGINT)"),
            "{refused:?}"
        );
        assert!(
            refused[2].starts_with("in.csv:4: column 'n' (INT)"),
            "{refused:?}"
        );
        assert!(refused[3].starts_with("in.csv:5: "), "{refused:?}");
        assert!(refused[4].starts_with("in.csv:6: 3 fields"), "{refused:?}");
        std::fs::remove_file(folder.path("out.csv")).unwrap();
        std::fs::remove_dir_all(folder.path("slackwater-dead-letter")).unwrap();
    }
}

#[test]
fn rows_that_a_condition_drops_move_the_watermark() {
    let folder = Folder::with(&[("in.csv", "1000,a\n50000,b\n2000,a\n")]);
    let query =
        "SELECT CAST(window_start AS BIGINT), COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), \
                 INTERVAL '10' SECOND)
        WHERE k = 'a' GROUP BY window_start, window_end";
    folder
        .run(&reading(EVENTS, "", "s BIGINT, n BIGINT", query), &[])
        .ok();
    assert_eq!(folder.read("out.csv"), "0,1\n");
    assert_eq!(folder.json("report.json")["rows_late"], 1);
}

#[test]
fn a_silent_connection_holds_nobody_back_after_its_timeout() {
    for (timeout, parallelism) in [
        (", 'idle_timeout' = '100 ms'", "1"),
        (", 'idle_timeout' = '100 ms'", "2"),
        ("", "1"),
    ] {
        let folder = Folder::new();
        let address = free_address();
        let text = format!(
            "CREATE TABLE t ({EVENTS}) WITH ('connector' = 'tcp', 'address' = '{address}', 'mode' = \
             'listen'{timeout});
             SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
             GROUP BY window_start, window_end, k;"
        );
        let running = folder.start(&text, &["--parallelism", parallelism]);
        let connect = || eventually("listener", || TcpStream::connect(&address).ok());
        let mut silent = connect();
        silent.write_all(b"1000,a\n").unwrap();
        let mut busy = connect();
        // Both are partitions before time goes on.
        busy.write_all(b"1500,a\n").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        busy.write_all(b"2000,a\n25000,b\n").unwrap();
        if timeout.is_empty() {
            std::thread::sleep(Duration::from_millis(500));
            running.interrupt();
            assert_eq!(
                running.finish(PATIENCE).ok().out,
                "",
                "it waits for the silent one"
            );
            continue;
        }
        assert_eq!(running.line(), "k  n");
        assert_eq!(running.line(), "a  3");
        // It resumes at the source's watermark: what lies behind that is late.
        silent.write_all(b"3000,late\n26000,b\n").unwrap();
        busy.write_all(b"45000,c\n").unwrap();
        assert_eq!(running.line(), "b  2");
        running.interrupt();
        let finished = running.finish(PATIENCE).ok();
        assert!(finished.err.contains("1 late"), "{}", finished.err);
    }
}

#[test]
fn a_silent_table_does_not_hold_back_the_files_beside_it() {
    let folder = Folder::with(&[
        ("a.csv", "1000,a\n15000,a\n"),
        ("b.csv", "2000,b\n25000,b\n"),
    ]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "CREATE TABLE f ({EVENTS}) WITH ('connector' = 'file', 'path' = '?.csv');
         CREATE TABLE s ({EVENTS}) WITH ('connector' = 'tcp', 'address' = '{address}', 'idle_timeout' = \
         '100 ms');
         CREATE VIEW t AS SELECT ts, k FROM f UNION ALL SELECT ts, k FROM s;
         SELECT COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
         GROUP BY window_start, window_end;"
    );
    for parallelism in ["1", "2"] {
        let running = folder.start(&text, &["--parallelism", parallelism]);
        let (mut peer, _) = listener.accept().unwrap();
        assert_eq!(running.line(), "n");
        // The files have ended long before the socket counts as idle.
        assert_eq!(running.line(), "2", "the window from 0 to 10 s");
        assert_eq!(running.line(), "1", "the window from 10 to 20 s");
        peer.write_all(b"31000,s\n").unwrap();
        assert_eq!(running.line(), "1", "the window from 20 to 30 s");
        drop(peer);
        let finished = running.finish(PATIENCE).ok();
        assert_eq!(finished.out, "1\n", "the end closes the last window");
    }
}
