//! Windows that are emitted before they close: on the clock, so also when nothing comes that would move
//! anything; and a row without a change since the last time never again.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::process::{Folder, PATIENCE, Running};

/// A few times the interval of the query.
const SILENCE: Duration = Duration::from_millis(300);

const QUERY: &str = "
CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'tcp', 'address' = '${ADDRESS}', 'on_close' = 'end');
SET 'emit' = 'every 30 ms';
SELECT CAST(window_start AS BIGINT) AS start_ms, k, COUNT(*) AS n
FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k;";

/// What the terminal shows, and the last row of each window and key.
struct Shown {
    running: Running,
    peer: TcpStream,
    values: BTreeMap<String, u64>,
}

impl Shown {
    fn start(folder: &Folder, arguments: &[&str]) -> Shown {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let running = folder.start(&QUERY.replace("${ADDRESS}", &address), arguments);
        Shown {
            running,
            peer: listener.accept().unwrap().0,
            values: BTreeMap::new(),
        }
    }

    fn send(&mut self, rows: &str) {
        self.peer.write_all(rows.as_bytes()).unwrap();
    }

    /// Takes a row in: new as an insert, another value as an update (behind what it was), and never the
    /// same again.
    fn take(&mut self, line: &str) {
        let [op, start, k, n] = line.split_whitespace().collect::<Vec<&str>>()[..] else {
            panic!("no row: {line}");
        };
        if op == "op" {
            return;
        }
        let n = n.parse::<u64>().unwrap();
        let key = format!("{start} {k}");
        if op == "-U" {
            assert_eq!(self.values.get(&key), Some(&n), "{line}");
            return;
        }
        let before = self.values.insert(key, n);
        match before {
            None => assert_eq!(op, "+I", "{line}"),
            Some(before) => {
                assert_eq!(op, "+U", "{line}");
                assert!(n > before, "{line}: emitted again, and {before} before");
            }
        }
    }

    /// Reads until the values are those, and then that nothing more comes.
    fn expect(&mut self, values: &[(&str, u64)]) {
        let values = values.iter().map(|(key, n)| (key.to_string(), *n));
        let values = values.collect::<BTreeMap<String, u64>>();
        while self.values != values {
            let line = self.running.line();
            self.take(&line);
        }
        let more = self.running.line_within(SILENCE);
        assert_eq!(more, None, "nothing had changed");
    }
}

#[test]
fn windows_are_emitted_though_the_input_is_silent_and_not_twice_without_a_change() {
    let saved = ["--state", "state", "--set", "checkpoint_interval=10 ms"];
    for arguments in [
        &["--parallelism", "1"][..],
        &["--parallelism", "3", "--set", "chunk_rows=1"],
        &["--parallelism", "2", "--processes", "2"],
        &saved,
    ] {
        let folder = Folder::new();
        let mut shown = Shown::start(&folder, arguments);
        shown.send("1000,a\n1100,a\n1200,b\n");
        shown.expect(&[("0 a", 2), ("0 b", 1)]);
        // One group has changed, and the watermark has moved; the other one has not.
        shown.send("1300,a\n");
        shown.expect(&[("0 a", 3), ("0 b", 1)]);
        // The next window begins, which closes this one: it had gone out.
        shown.send("11000,b\n");
        shown.expect(&[("0 a", 3), ("0 b", 1), ("10000 b", 1)]);
        // The end closes the last one.
        let Shown { running, peer, .. } = shown;
        drop(peer);
        let finished = running.finish(PATIENCE).ok();
        assert_eq!(finished.out, "", "{arguments:?}");
    }
}

#[test]
fn what_changed_last_goes_out_when_the_window_closes() {
    let folder = Folder::new();
    // So long that only the end is left.
    let mut shown = Shown::start(&folder, &["--set", "emit=every 1 h"]);
    shown.send("1000,a\n1100,a\n");
    assert_eq!(shown.running.line_within(SILENCE), None);
    shown.send("11000,b\n");
    shown.expect(&[("0 a", 2)]);
}
