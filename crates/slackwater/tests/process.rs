//! The program as a child process in a folder of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any of these runs takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder in which queries are run; relative paths in their text begin in it.
pub struct Folder(tempfile::TempDir);

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

/// A run that goes on, with the lines of its standard output as they come.
pub struct Running {
    child: Child,
    begin: Instant,
    lines: Option<Receiver<String>>,
    err: Option<std::thread::JoinHandle<String>>,
    /// What has come on standard error.
    said: Arc<Mutex<String>>,
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// A folder with files.
    pub fn with(files: &[(&str, &str)]) -> Folder {
        let folder = Folder::new();
        for (name, text) in files {
            folder.write(name, text.as_bytes());
        }
        folder
    }

    /// The path of something in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    /// The text of a file.
    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The lines of a file, sorted.
    pub fn sorted(&self, name: &str) -> Vec<String> {
        sorted(&self.read(name))
    }

    /// A file of JSON.
    pub fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Lines of JSON.
    pub fn json_lines(&self, name: &str) -> Vec<serde_json::Value> {
        self.read(name)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Names of everything in it, hidden files too, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        names.sort();
        names
    }

    /// The program with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub fn slackwater(&self, arguments: &[&str]) -> Finished {
        Running::of(self.command(arguments)).finish(PATIENCE)
    }

    /// Runs the program to its end with this standard input.
    pub fn slackwater_with_input(&self, arguments: &[&str], input: &[u8]) -> Finished {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped());
        let mut running = Running::of(command);
        let mut stdin = running.child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // The program may end before it has read everything.
            let _ = stdin.write_all(&input);
        });
        let finished = running.finish(PATIENCE);
        writer.join().unwrap();
        finished
    }

    /// Runs a text to its end; the report is in `report.json`.
    pub fn run(&self, text: &str, arguments: &[&str]) -> Finished {
        self.write("query.sql", text.as_bytes());
        let run = ["run", "query.sql", "--report", "report.json"];
        self.slackwater(&[&run, arguments].concat())
    }

    /// Starts a text and lets it run.
    pub fn start(&self, text: &str, arguments: &[&str]) -> Running {
        self.write("query.sql", text.as_bytes());
        let run = ["run", "query.sql", "--report", "report.json"];
        Running::start(self.command(&[&run, arguments].concat()))
    }
}

impl Finished {
    /// Ended well.
    #[track_caller]
    pub fn ok(self) -> Finished {
        self.with_code(0)
    }

    /// Ended with this code, and says all of `parts` on standard error.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Finished {
        let finished = self.with_code(code);
        for part in parts {
            assert!(
                finished.err.contains(part),
                "'{part}' is not in:\n{}",
                finished.err
            );
        }
        finished
    }

    #[track_caller]
    fn with_code(self, code: i32) -> Finished {
        assert_eq!(
            self.code,
            Some(code),
            "out: {}\nerr: {}",
            self.out,
            self.err
        );
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }
}

impl Running {
    fn of(mut command: Command) -> Running {
        let mut child = command.spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let saying = Arc::clone(&said);
        let err = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let (mut text, mut piece) = (vec![], [0; 4096]);
                loop {
                    let read = stderr.read(&mut piece).unwrap();
                    text.extend_from_slice(&piece[..read]);
                    let all = String::from_utf8_lossy(&text).into_owned();
                    if read == 0 {
                        return all;
                    }
                    *saying.lock().unwrap() = all;
                }
            })
        });
        Running {
            said,
            child,
            begin: Instant::now(),
            lines: None,
            err,
        }
    }

    /// Starts a command whose lines on standard output are read as they come.
    pub fn start(command: Command) -> Running {
        let mut running = Running::of(command);
        let stdout = running.child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        running.lines = Some(lines);
        running
    }

    /// The same, with the end of its standard input that is written.
    pub fn start_with_input(mut command: Command) -> (Running, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let stdin = running.child.stdin.take().unwrap();
        (running, stdin)
    }

    /// Starts a command whose standard output nobody reads.
    pub fn start_unread(command: Command) -> Running {
        Running::of(command)
    }

    /// The next line of standard output.
    pub fn line(&self) -> String {
        let lines = self.lines.as_ref().expect("started with `start`");
        lines
            .recv_timeout(PATIENCE)
            .expect("another line of output")
    }

    /// The next line of standard output, if one comes within a time.
    pub fn line_within(&self, time: Duration) -> Option<String> {
        let lines = self.lines.as_ref().expect("started with `start`");
        lines.recv_timeout(time).ok()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Closes its standard output, as `head` does.
    pub fn close_output(&mut self) {
        self.child.stdout = None;
    }

    /// What it has said on standard error so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Kills it, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Presses Ctrl-C.
    pub fn interrupt(&self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(mut self, patience: Duration) -> Finished {
        let waiting = Instant::now();
        let stdout = if self.lines.is_none() {
            self.child.stdout.take()
        } else {
            None
        };
        let reader = stdout.map(|mut stdout| {
            std::thread::spawn(move || {
                let mut text = vec![];
                let _ = stdout.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        self.end(waiting, patience, reader)
    }

    /// Waits for its end without reading its standard output.
    #[track_caller]
    pub fn finish_unread(mut self, patience: Duration) -> Finished {
        let unread = self.child.stdout.take();
        let finished = self.end(Instant::now(), patience, None);
        drop(unread);
        finished
    }

    #[track_caller]
    fn end(
        mut self,
        waiting: Instant,
        patience: Duration,
        reader: Option<std::thread::JoinHandle<String>>,
    ) -> Finished {
        while self.is_running() {
            if waiting.elapsed() > patience {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let err = self.err.take().map(|err| err.join().unwrap());
                panic!(
                    "still running after {patience:?}: {}",
                    err.unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let code = self.child.wait().unwrap().code();
        let took = self.begin.elapsed();
        let out = match (reader, &self.lines) {
            (Some(reader), _) => reader.join().unwrap(),
            (None, Some(lines)) => lines.iter().map(|line| line + "\n").collect(),
            (None, None) => String::new(),
        };
        let err = self
            .err
            .take()
            .map(|err| err.join().unwrap())
            .unwrap_or_default();
        Finished {
            code,
            out,
            err,
            took,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a text, sorted.
pub fn sorted(text: &str) -> Vec<String> {
    let mut lines = text.lines().map(str::to_string).collect::<Vec<_>>();
    lines.sort();
    lines
}

/// The whole answer to a request (`GET /metrics`), if somebody listens. Each line of `header` has its end.
pub fn request(address: &str, request: &str, header: &str, body: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let head = format!("{request} {head}content-length: {length}\r\n{header}\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    // A body that is too large is not read to its end.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    (!answer.is_empty()).then_some(answer)
}

/// The status and the body of an answer.
pub fn status_and_body(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body))
}

/// An address of this machine that nobody listens at.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

/// Bytes packed as one gzip member.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The text of a gzip file.
pub fn gunzip(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::MultiGzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Tries until it works.
#[track_caller]
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begin.elapsed() < PATIENCE, "no {what} after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
