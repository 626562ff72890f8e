//! `\why`, and what else is typed while a query runs.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::*;

const QUERY: &str = "SELECT COUNT(*) AS n FROM TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' SECOND)\n\
                     GROUP BY window_start, window_end;";

#[test]
fn a_query_that_runs_says_what_it_waits_for_and_what_is_typed_meanwhile_is_not_lost() {
    let folder = Folder::with(&[("bids.csv", BIDS)]);
    let mut shell = Terminal::start(&folder, &[]);
    shell.line("\\why");
    shell.expect("no query runs: type \\why while one does");
    shell.line(TABLE);
    let time = "ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts";
    let [quiet, busy] = ["s", "f"].map(|table| {
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = peer.local_addr().unwrap();
        shell.line(&format!(
            "CREATE TABLE {table} ({time}) WITH ('connector' = 'tcp', 'address' = '{address}');"
        ));
        peer
    });
    shell.line("CREATE VIEW c AS SELECT ts FROM s UNION ALL SELECT ts FROM f;");
    shell.line(QUERY);
    let _silent = quiet.accept().unwrap();
    let mut sends = busy.accept().unwrap().0;
    sends.write_all(b"5000\n9000\n").unwrap();
    shell.keys("\\timing\r");
    let wanted = "table 's' holds the others back: no row has come from it for ";
    let begin = Instant::now();
    loop {
        // The rows may not have been read yet.
        shell.keys("\\why\r");
        shell.expect("table 's': the watermark is 0 s behind ts");
        if shell.seen.0.lock().unwrap().contains(wanted) {
            break;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "{}",
            shell.seen.0.lock().unwrap()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    shell.keys("\x03");
    shell.expect("stopped before its inputs ended");
    shell.expect("timing is on");
    shell.line("SELECT price FROM bids;");
    shell.expect("(3 rows, ");
    shell.leave();
}
