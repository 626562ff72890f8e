//! Materialized views over Redis' protocol, while the query runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::process::{Folder, PATIENCE, Running, eventually, free_address};

/// Counts and sums by word of what comes on standard input.
const QUERY: &str = "CREATE TABLE words (word STRING, n INT) WITH ('connector' = 'stdin', 'format' = 'csv');
CREATE MATERIALIZED VIEW totals AS SELECT word, COUNT(*) AS times, SUM(n) AS total FROM words GROUP BY word;
CREATE MATERIALIZED VIEW counts AS SELECT word, COUNT(*) AS times FROM words GROUP BY word;
";

pub(crate) struct Redis(BufReader<TcpStream>);

impl Redis {
    pub(crate) fn connect(address: &str) -> Redis {
        let socket = eventually("a door", || TcpStream::connect(address).ok());
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Redis(BufReader::new(socket))
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        let line = format!("{command}\r\n");
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
        self.reply()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<i64>()) {
            ("$", Ok(length)) if length >= 0 => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8(bytes[..length as usize].to_vec()).unwrap()
            }
            ("$", _) => "nil".to_owned(),
            ("*", Ok(count)) => {
                let all = (0..count).map(|_| self.reply()).collect::<Vec<_>>();
                format!("[{}]", all.join(" "))
            }
            _ => line.trim_end().to_owned(),
        }
    }

    fn wait_for(&mut self, command: &str, expected: &str) {
        eventually(&format!("{command}: {expected}"), || {
            (self.ask(command) == expected).then_some(())
        });
    }
}

/// A query, its input, and a client.
fn serving(folder: &Folder) -> (Running, std::process::ChildStdin, Redis) {
    let address = free_address();
    let text = format!("SET 'serve' = 'redis://{address}';\n{QUERY}");
    folder.write("query.sql", text.as_bytes());
    let command = folder.command(&["run", "query.sql", "--quiet", "--state", "state"]);
    let (running, input) = Running::start_with_input(command);
    (running, input, Redis::connect(&address))
}

#[test]
fn rows_are_read_while_they_change_and_after_a_stop() {
    let folder = Folder::new();
    let (running, mut input, mut client) = serving(&folder);
    input.write_all(b"a,1\nb,2\na,3\n\"x:y\",5\n").unwrap();
    client.wait_for("GET counts:a", "2");
    client.wait_for("MGET counts:b counts:x%3Ay counts:none", "[1 1 nil]");
    client.wait_for("HGETALL totals:a", "[word a times 2 total 4]");
    assert_eq!(
        client.ask("GET totals:b"),
        r#"{"word":"b","times":1,"total":2}"#
    );
    assert_eq!(client.ask("DBSIZE"), ":6");
    assert!(client.ask("DEL totals:a").starts_with("-READONLY"));
    input.write_all(b"a,10\n").unwrap();
    client.wait_for("HMGET totals:a times total", "[3 14]");
    running.interrupt();
    drop(input);
    running.finish(PATIENCE).ok();
}

#[test]
fn what_can_not_be_served_is_said() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let serve = |place: &str, text: &str| format!("SET 'serve' = '{place}';\n{text}");
    let no_view = "CREATE TABLE words (word STRING) WITH ('connector' = 'stdin', 'format' = 'csv');
SELECT word FROM words;";
    let no_key = "CREATE TABLE words (word STRING) WITH ('connector' = 'stdin', 'format' = 'csv');
CREATE MATERIALIZED VIEW v AS SELECT word FROM words;";
    for (text, more, parts) in [
        (
            serve("127.0.0.1:6380", QUERY),
            "",
            &["an address such as 'redis://127.0.0.1:6380'"][..],
        ),
        (
            serve("redis://127.0.0.1", QUERY),
            "",
            &["an address such as 'redis://127.0.0.1:6380'"],
        ),
        (
            serve(&format!("redis://{taken}"), QUERY),
            "",
            &["'serve'", "use another port"],
        ),
        (
            serve("redis://0.0.0.0:0", QUERY),
            "",
            &["other machines", "SLACKWATER_TOKEN"],
        ),
        (
            serve("redis://127.0.0.1:0", no_view),
            "",
            &["there is no materialized view"],
        ),
        (
            serve("redis://127.0.0.1:0", no_key),
            "",
            &["no materialized view has a key", "PRIMARY KEY"],
        ),
        (
            serve("redis://127.0.0.1:0", QUERY),
            "processes=2",
            &["'serve'", "worker processes"],
        ),
    ] {
        let more = match more {
            "" => vec![],
            setting => vec!["--set", setting, "--parallelism", "2"],
        };
        folder.run(&text, &more).fails(2, parts);
    }
}
