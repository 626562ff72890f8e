//! The server, as its clients see it: a process of its own, and PostgreSQL's protocol.

mod declarations;
mod functions;
mod hosts;
mod http;
mod killed;
mod reads;
mod shell;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls, SimpleQueryMessage};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A server that runs. Dropping it kills it.
struct Server {
    process: Child,
    port: u16,
    /// The address of the page.
    page: String,
    /// The lines of its log.
    log: mpsc::Receiver<String>,
}

impl Server {
    /// Starts a server of a folder.
    fn start(folder: &Path) -> Server {
        match Server::try_start(folder, &[]) {
            Ok(server) => server,
            Err(log) => panic!("the server has not started: {log}"),
        }
    }

    /// Starts a server of a folder; returns its log if it ends instead.
    fn try_start(folder: &Path, arguments: &[&str]) -> Result<Server, String> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args([
                "serve",
                "--pg",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--dir",
                "data",
            ])
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stderr.take().unwrap());
        let (sender, log) = mpsc::sync_channel(10_000);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A test that doesn't look at the log leaves it.
                let _ = sender.try_send(line);
            }
        });
        let (mut lines, mut page) = (String::new(), String::new());
        loop {
            let Ok(line) = log.recv_timeout(LIMIT) else {
                let _ = process.kill();
                process.wait().unwrap();
                return Err(lines);
            };
            if let Some((_, url)) = line.split_once("ready for a browser at http://") {
                page = url.trim_end_matches('/').to_string();
            }
            if let Some((_, port)) = line.split_once("ready for psql -h 127.0.0.1 -p ") {
                let port = port.parse().unwrap();
                return Ok(Server {
                    process,
                    port,
                    page,
                    log,
                });
            }
            lines = lines + &line + "\n";
        }
    }

    /// The status and the body of an HTTP request.
    fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.page).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{body}",
            self.page
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            body.to_string(),
        )
    }

    fn client(&self) -> Client {
        let text = format!(
            "host=127.0.0.1 port={} user=me dbname=slackwater",
            self.port
        );
        Client::connect(&text, NoTls).unwrap()
    }

    /// Runs statements, each for itself.
    fn run(&self, statements: &[&str]) {
        let mut client = self.client();
        for statement in statements {
            if let Err(error) = client.batch_execute(statement) {
                panic!("{statement}: {}", message(&error));
            }
        }
    }

    /// The rows of a query, with the fields separated by bars; sorted.
    fn rows(&self, query: &str) -> Vec<String> {
        let mut rows =
            read(&mut self.client(), query).unwrap_or_else(|error| panic!("{query}: {error}"));
        rows.sort();
        rows
    }

    /// The error of a statement.
    fn error(&self, statement: &str) -> String {
        match self.client().batch_execute(statement) {
            Ok(()) => panic!("{statement}: no error"),
            Err(error) => message(&error),
        }
    }

    /// Waits until the rows of a query are these.
    fn wait_for(&self, query: &str, wanted: &[&str]) {
        let until = Instant::now() + LIMIT;
        loop {
            let rows = self.rows(query);
            if rows == wanted {
                return;
            }
            assert!(
                Instant::now() < until,
                "{query}: {rows:?} instead of {wanted:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the log has a line with these words.
    fn wait_for_log(&self, words: &str) -> String {
        let until = Instant::now() + LIMIT;
        loop {
            let line = self
                .log
                .recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("the log has no line with {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Ends it with SIGTERM, and returns its exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.process.wait().unwrap().code()
    }

    /// Kills it with SIGKILL.
    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(client: &mut Client, query: &str) -> Result<Vec<String>, String> {
    let messages = client
        .simple_query(query)
        .map_err(|error| message(&error))?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let fields = (0..row.len()).map(|field| row.get(field).unwrap_or("NULL"));
            Some(fields.collect::<Vec<&str>>().join("|"))
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// The code, the text, the hint and the place of an error.
fn message(error: &postgres::Error) -> String {
    let Some(error) = error.as_db_error() else {
        return format!("{error:?}");
    };
    let mut text = format!("{}: {}", error.code().code(), error.message());
    if let Some(hint) = error.hint() {
        text = text + " | " + hint;
    }
    if let Some(place) = error.position() {
        text = format!("{text} @ {place:?}");
    }
    text
}

/// A table of a file with rows of a key and a value, and the statements that count them.
fn write_input(folder: &Path, rows: u64) {
    let mut text = String::from("id,k,v\n");
    for id in 0..rows {
        text += &format!("{id},{},{}\n", id % 7, id * 31 % 1000);
    }
    std::fs::write(folder.join("in.csv"), text).unwrap();
}

/// The statement of that table; `replay` as in `'1000/s'`, or empty for as fast as possible.
fn table(folder: &Path, replay: &str) -> String {
    let replay = match replay {
        "" => String::new(),
        rate => format!(", 'replay_rate' = '{rate}'"),
    };
    format!(
        "CREATE TABLE numbers (id BIGINT, k BIGINT, v BIGINT)
         WITH ('connector' = 'file', 'path' = '{}'{replay})",
        folder.join("in.csv").display()
    )
}
