//! `slackwater sql` in front of a terminal (a pty), and without one.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::process::{Folder, PATIENCE};

const BIDS: &str = "1,a,10\n2,b,20\n3,a,5\n";

const TABLE: &str = "CREATE TABLE bids (ms BIGINT, bidder STRING, price INT) WITH ('connector' = 'file', \
                     'path' = 'bids.csv');";

const ENDLESS: &str = "CREATE TABLE v (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen', \
                       'generator' = 'uservisits', 'rate' = '20000/s', 'addresses' = '500');";

/// A shell in front of a terminal.
struct Terminal {
    keys: File,
    child: Child,
    seen: Arc<(Mutex<String>, Condvar)>,
    /// What was seen up to here was asked for already.
    mark: usize,
    /// Prompts that were answered.
    answered: usize,
}

/// What the line editor writes when it begins to read a line.
const READS: &str = "\x1b[?2004h";

impl Terminal {
    fn start(folder: &Folder, arguments: &[&str]) -> Terminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let size = Winsize {
            ws_row: 20,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&controller, size).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(name.to_str().unwrap())
                .unwrap()
        };
        // So that Ctrl-C becomes a signal, the terminal has to be the child's own.
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", env!("CARGO_BIN_EXE_slackwater"), "sql"])
            .args(arguments)
            .current_dir(folder.path(""))
            .env("TERM", "xterm")
            .env("XDG_STATE_HOME", folder.path("state"))
            .env("EDITOR", folder.path("editor.sh"))
            .env_remove("VISUAL")
            .stdin(open())
            .stdout(open())
            .stderr(open());
        let child = command.spawn().unwrap();
        let keys = File::from(controller);
        let mut output = keys.try_clone().unwrap();
        let seen = Arc::<(Mutex<String>, Condvar)>::default();
        let writer = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The terminal gives an error when its other side has gone.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                writer
                    .0
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..length]));
                writer.1.notify_all();
            }
        });
        let mut terminal = Terminal {
            keys,
            child,
            seen,
            mark: 0,
            answered: 0,
        };
        terminal.expect("sql> ");
        terminal
    }

    fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the next prompt.
    #[track_caller]
    fn prompt(&mut self) {
        let answered = self.answered;
        let is_missing = |seen: &mut String| seen.matches(READS).count() <= answered;
        let seen = self.seen.0.lock().unwrap();
        let (seen, result) = self
            .seen
            .1
            .wait_timeout_while(seen, PATIENCE, is_missing)
            .unwrap();
        assert!(
            !result.timed_out(),
            "no prompt in:\n{}",
            seen.escape_debug()
        );
    }

    /// Types lines at the prompt, and ends each with Enter.
    #[track_caller]
    fn line(&mut self, line: &str) {
        // Each line of a statement is read separately.
        for line in line.split('\n') {
            self.prompt();
            self.answered += 1;
            self.keys(&format!("{line}\r"));
        }
    }

    /// Waits until this is seen behind what was seen before.
    #[track_caller]
    fn expect(&mut self, wanted: &str) {
        let seen = self.seen.0.lock().unwrap();
        let mark = self.mark;
        let is_missing = |seen: &mut String| !seen[mark..].contains(wanted);
        let (seen, result) = self
            .seen
            .1
            .wait_timeout_while(seen, PATIENCE, is_missing)
            .unwrap();
        assert!(
            !result.timed_out(),
            "no '{wanted}' in:\n{}",
            &seen[mark..].escape_debug()
        );
        self.mark = mark + seen[mark..].find(wanted).unwrap() + wanted.len();
    }

    #[track_caller]
    fn leave(mut self) {
        self.line("\\q");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended where the test has passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn statements_of_several_lines_and_what_is_declared() {
    let folder = Folder::with(&[("bids.csv", BIDS)]);
    let mut shell = Terminal::start(&folder, &[]);
    shell.line("CREATE TABLE bids (ms BIGINT, bidder STRING, price INT,\n  ts AS TO_TIMESTAMP_LTZ(ms, 0), \
                WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)\nWITH ('connector' = 'file', 'path' = \
                'bids.csv');");
    shell.line("CREATE VIEW cheap AS SELECT bidder, price FROM bids WHERE price < 15;");
    shell.line("\\d");
    shell.expect("bids   table  file");
    shell.expect("cheap  view");
    shell.line("\\d bids");
    shell.expect("price   INT");
    shell.expect("event time, watermark 5 s behind");
    shell.expect("'path' = 'bids.csv'");
    shell.line("SELECT bidder,\n  price FROM cheap;");
    shell.expect("a          10");
    shell.expect("a           5");
    shell.expect("(2 rows)");
    shell.line("SELECT biddr FROM bids;");
    shell.expect("error: sql:1:8: there is no column 'biddr'");
    shell.expect("1 | SELECT biddr FROM bids");
    shell.expect("^^^^^");
    shell.line("\\timing");
    shell.expect("timing is on");
    shell.line("SET 'parallelism' = '2'; SELECT price / (price - 5) AS p FROM bids;");
    shell.expect("(2 rows, 1 bad, ");
    shell.line("\\drop bids");
    shell.expect("'bids' is needed by 'cheap'");
    shell.expect("\\drop cheap first");
    shell.line("\\drop cheap");
    shell.line("\\d");
    shell.expect("bids  table  file");
    shell.line("\\what");
    shell.expect("there is no command '\\what'");
    shell.line("EXPLAIN SELECT price FROM bids;");
    shell.expect("Query graph");
    shell.leave();
}

#[test]
fn completion_and_history_over_two_sessions() {
    let folder = Folder::with(&[("bids.csv", BIDS), ("tables.sql", TABLE)]);
    let mut shell = Terminal::start(&folder, &["tables.sql"]);
    shell.prompt();
    shell.keys("sel\t");
    shell.expect("select");
    shell.keys(" pri\t");
    shell.expect("price");
    shell.line(" FROM bids\nWHERE bidder = 'b';");
    shell.expect("   20");
    shell.expect("(1 row)");
    shell.leave();
    let mut again = Terminal::start(&folder, &["tables.sql"]);
    // The last one was \q.
    again.prompt();
    again.keys("\x1b[A\x1b[A");
    again.expect("WHERE bidder = 'b';");
    again.line("");
    again.expect("(1 row)");
    again.leave();
    let kept = std::fs::read_to_string(folder.path("state/slackwater/history")).unwrap();
    assert!(kept.contains("WHERE bidder = 'b';"), "{kept}");
}

#[test]
fn a_statement_goes_on_behind_a_prompt_of_its_own() {
    let folder = Folder::with(&[("bids.csv", BIDS), ("tables.sql", TABLE)]);
    let mut shell = Terminal::start(&folder, &["tables.sql"]);
    shell.line("SELECT bidder,");
    shell.expect("  -> ");
    shell.line("\\d bids");
    shell.expect("price   INT");
    shell.expect("  -> ");
    shell.line("'\n\\d'\n AS t FROM bids WHERE price = 20;");
    shell.expect("(1 row)");
    // Lines that are typed ahead are not lost.
    shell.prompt();
    shell.answered += 3;
    shell.keys("SELECT price AS ahead\rFROM bids\rWHERE price = 20;\r");
    shell.expect("ahead\r\n");
    shell.expect("(1 row)");
    shell.line("SELECT price");
    shell.expect("  -> ");
    shell.prompt();
    shell.answered += 1;
    shell.keys("FROM\x03");
    shell.expect("sql> ");
    shell.line("help");
    shell.expect("\\drop name");
    shell.line("SHOW CATALOGS;");
    shell.expect("SHOW is not supported");
    shell.expect("\\d lists");
    shell.line("SHOW TABLES;");
    shell.expect("connector");
    shell.line("DESCRIBE bids;");
    shell.expect("price   INT");
    shell.line("DROP TABLE bids;");
    shell.line("SHOW TABLES;");
    shell.expect("no tables yet");
    shell.line("exit");
    assert!(shell.child.wait().unwrap().success());
}

#[test]
fn what_a_query_costs_is_its_own() {
    let folder = Folder::new();
    let mut shell = Terminal::start(&folder, &[]);
    let source = "'connector' = 'datagen', 'generator' = 'uservisits', 'rows'";
    let busy = format!("CREATE TABLE many (ts_ms BIGINT, ip STRING) WITH ({source} = '2000000');");
    shell.line(&busy);
    shell.line(&busy.replace("many", "few").replace("2000000", "10"));
    shell.line("CREATE TABLE o (ip STRING, n BIGINT) WITH ('connector' = 'blackhole');");
    let mut cpu_s = |table: &str| {
        shell.line(&format!(
            "INSERT INTO o SELECT ip, COUNT(*) FROM {table} GROUP BY ip;"
        ));
        shell.expect("wake-ups");
        let seen = shell.seen.0.lock().unwrap();
        let line = seen[..shell.mark].lines().last().unwrap_or_default();
        let seconds = line.split_whitespace().nth(1).unwrap_or_default();
        seconds.parse::<f64>().unwrap()
    };
    let (many, few) = (cpu_s("many"), cpu_s("few"));
    // Ten rows cost less than two million and ten, whatever the machine.
    assert!(few < many, "{few} s and {many} s");
    shell.leave();
}

#[test]
fn control_c_ends_the_query_and_not_the_shell() {
    let folder = Folder::with(&[("bids.csv", BIDS)]);
    let mut shell = Terminal::start(&folder, &[]);
    shell.line(TABLE);
    shell.line(ENDLESS);
    shell.line("SELECT ip FROM v WHERE ip LIKE '%7';");
    shell.expect("7\r\n");
    shell.keys("\x03");
    shell.expect("stopped before its inputs ended");
    // At the prompt it drops the line.
    shell.prompt();
    shell.answered += 1;
    shell.keys("SELECT nothing\x03");
    shell.line("SELECT price FROM bids WHERE price = 20;");
    shell.expect("   20");
    shell.leave();
}

#[test]
fn a_result_that_changes_is_a_table_that_is_drawn_in_place() {
    let folder = Folder::with(&[("bids.csv", BIDS)]);
    let mut shell = Terminal::start(&folder, &[]);
    shell.line(TABLE);
    shell.line("SELECT bidder, SUM(price) AS total FROM bids GROUP BY bidder;");
    shell.expect("bidder  total\x1b[K");
    shell.expect("a          15\x1b[K");
    shell.expect("b          20\x1b[K");
    shell.expect("(2 rows)");
    shell.line(ENDLESS);
    shell.line("SELECT ip, COUNT(*) AS n FROM v GROUP BY ip;");
    // 20 lines less the prompt's, less the titles and the rest: 17 rows.
    shell.expect("more of ");
    shell.expect("\x1b[19F");
    shell.expect("\x1b[19F");
    shell.expect("483 more of 500 rows");
    shell.keys("\x03");
    shell.expect("(500 rows)");
    shell.leave();
}

#[test]
fn a_result_that_has_come_to_its_end_is_shown_to_the_last_row() {
    let folder = Folder::new();
    let rows = (0..100).map(|n| format!("{n},{}\n", "wide ".repeat(40)));
    folder.write("wide.csv", rows.collect::<String>().as_bytes());
    let mut shell = Terminal::start(&folder, &[]);
    shell.line(
        "CREATE TABLE wide (n INT, t STRING) WITH ('connector' = 'file', 'path' = 'wide.csv');",
    );
    shell.line("SELECT n, MAX(CONCAT(t, 'end')) AS t FROM wide GROUP BY n;");
    for n in [0, 50, 99] {
        shell.expect(&format!("\n{n:>2}  wide wide"));
        shell.expect("wide end");
    }
    shell.expect("(100 rows)");
    shell.leave();
}

#[test]
fn what_is_not_saved_in_the_editor_is_not_run() {
    let folder = Folder::with(&[
        ("bids.csv", BIDS),
        ("tables.sql", TABLE),
        ("editor.sh", "#!/bin/sh\n"),
    ]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path("editor.sh"), mode).unwrap();
    let mut shell = Terminal::start(&folder, &["tables.sql"]);
    shell.line("SELECT ms FROM bids;");
    shell.expect("(3 rows)");
    shell.line("\\e");
    shell.expect("not saved: nothing is run");
    shell.leave();
}

#[test]
fn the_editor_and_files() {
    let folder = Folder::with(&[
        ("bids.csv", BIDS),
        ("tables.sql", &format!("-- all\n{TABLE}\n")),
        ("editor.sh", "#!/bin/sh\nsed -i 's/ms/price/' \"$1\"\n"),
    ]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path("editor.sh"), mode).unwrap();
    let mut shell = Terminal::start(&folder, &[]);
    shell.line("\\i tables.sql");
    shell.line("SELECT ms FROM bids WHERE bidder = 'b';");
    shell.expect("(1 row)");
    shell.line("\\e");
    shell.expect("SELECT price FROM bids WHERE bidder = 'b';");
    shell.expect("   20");
    shell.line("\\i nowhere.sql");
    shell.expect("error: nowhere.sql: No such file");
    shell.leave();
}

#[test]
fn without_a_terminal_it_runs_what_it_reads() {
    let folder = Folder::with(&[("bids.csv", BIDS), ("tables.sql", TABLE)]);
    let text = "\\d\nSELECT bidder, COUNT(*) AS n FROM bids GROUP BY bidder;\nSET 'chunk_rows' = \
                '1';\nSELECT price FROM bids";
    let finished = folder
        .slackwater_with_input(&["sql", "tables.sql"], text.as_bytes())
        .ok();
    let words = finished
        .out
        .split_whitespace()
        .collect::<Vec<&str>>()
        .join(" ");
    assert!(
        words.starts_with("name kind connector bids table file op bidder n +I a 2 +I b 1"),
        "{words}"
    );
    assert!(words.ends_with("price 10 20 5"), "{words}");
    let text = "SELECT price FROM bids;\n\nSELECT prce FROM bids;\nSELECT price FROM bids;";
    let finished = folder.slackwater_with_input(&["sql", "tables.sql"], text.as_bytes());
    assert_eq!(finished.out.lines().count(), 4, "{}", finished.out);
    finished.fails(
        2,
        &[
            "error: -:3:8: there is no column 'prce'",
            "3 | SELECT prce FROM bids",
        ],
    );
    folder
        .slackwater(&["sql", "nowhere.sql"])
        .fails(2, &["nowhere.sql: No such file"]);
}

/// A STATEMENT SET runs as one query; a table that a query made stays, and is not made again.
#[test]
fn sets_of_inserts_and_tables_from_queries_in_the_shell() {
    let folder = Folder::with(&[("bids.csv", BIDS), ("tables.sql", TABLE)]);
    let text = "EXECUTE STATEMENT SET BEGIN\nINSERT INTO high SELECT bidder FROM bids WHERE price > 10;\n\
                INSERT INTO low SELECT bidder FROM bids WHERE price < 10;\nEND;\n\
                CREATE TABLE some WITH ('connector' = 'file', 'path' = 'some.csv') AS SELECT bidder, price \
                * 2 AS twice \
                FROM bids WHERE price < 20;\nDESCRIBE some;\nSELECT twice FROM some;\nRESET;\nSHOW TABLES;\n\
                DROP VIEW IF EXISTS nothing;\n";
    let tables = "CREATE TABLE high (bidder STRING COMMENT 'who') WITH ('connector' = 'file', 'path' = \
                  'high.csv');\n\
                  CREATE TABLE low (bidder STRING) WITH ('connector' = 'file', 'path' = 'low.csv');\n";
    let finished = folder
        .slackwater_with_input(
            &["sql", "tables.sql"],
            format!("{tables}\\d high\n{text}").as_bytes(),
        )
        .ok();
    let words = finished
        .out
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(words.contains("bidder STRING who"), "{words}");
    assert!(words.contains("twice BIGINT"), "{words}");
    assert!(words.contains("twice 20 10"), "{words}");
    assert!(words.contains("some table file"), "{words}");
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
    assert_eq!(read("high.csv"), "b\n");
    assert_eq!(read("low.csv"), "a\n");
    assert_eq!(read("some.csv"), "a,20\na,10\n");
}

#[test]
fn statements_on_the_command_line() {
    let folder = Folder::with(&[
        ("bids.csv", BIDS),
        ("tables.sql", TABLE.trim_end_matches(';')),
    ]);
    let run = |arguments: &[&str]| folder.slackwater(&[&["run", "--quiet"], arguments].concat());
    let finished = run(&[
        "tables.sql",
        "-e",
        "SELECT price FROM bids WHERE price > 15",
    ])
    .ok();
    assert_eq!(finished.out, "price\n   20\n");
    let finished = run(&["-e", TABLE, "-e", "SELECT price FROM bids WHERE price < 7"]).ok();
    assert_eq!(finished.out, "price\n    5\n");
    let wrong = [
        "tables.sql",
        "-e",
        "SELECT price FROM bids",
        "-e",
        "\nSELECT prise FROM bids",
    ];
    run(&wrong).fails(
        2,
        &[
            "error: -e 2:2:8: there is no column 'prise'",
            "2 | SELECT prise FROM bids",
        ],
    );
    folder.slackwater(&["run"]).fails(2, &["<FILE>"]);
    let explained = folder
        .slackwater(&["explain", "tables.sql", "-e", "SELECT price FROM bids"])
        .ok();
    assert!(
        explained.out.contains("bids (file): reads price"),
        "{}",
        explained.out
    );
}

mod completions;
mod why;
