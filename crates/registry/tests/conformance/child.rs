//! Another process with a registry, which does what it reads from its standard input, a line each, and
//! answers on its standard output with lines that start with `@`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};
use slackwater_registry::{Candidacy, Expect, Kind, Life, Registry, Stage, Term};

use super::{TOO_LONG, registry};

const URL: &str = "SLACKWATER_TEST_REGISTRY";

/// A process that a test has started; killed when dropped.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    pub fn start(url: &str) -> Child {
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args([
                "--exact",
                "other_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let stdout = process.stdout.take().expect("a pipe");
        let (found, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The test harness writes lines too, and its name of this test before the first of ours.
                if let Some((_, line)) = line.split_once('@')
                    && found.send(line.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let child = Child { process, lines };
        assert_eq!(child.line(), "open");
        child
    }

    /// Sends a command without waiting for the answer.
    pub fn send(&mut self, command: &str) {
        let stdin = self.process.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{command}").expect("a process that reads");
    }

    /// The next answer.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(TOO_LONG).expect("an answer")
    }

    /// What a command is answered with.
    pub fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.line()
    }

    /// How often its threads were switched to, each with its name.
    pub fn switches(&self) -> Vec<(String, u64)> {
        let tasks =
            std::fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("a process");
        let mut found = Vec::new();
        for task in tasks {
            let task = task.expect("a thread").path();
            let read = |name: &str| std::fs::read_to_string(task.join(name)).expect("a file");
            let status = read("status");
            let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
            let count = |line: &str| -> u64 {
                let number = line.split_whitespace().last().expect("a number");
                number.parse().expect("a number")
            };
            found.push((read("comm"), counts.map(count).sum()));
        }
        found.sort();
        found
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).expect("an id");
        kill_process(Pid::from_raw(id).expect("an id"), signal).expect("a process");
    }

    /// `kill -9`, as it would be at any moment.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Does what a test asks for, until the end of its input.
pub fn main() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let registry = registry(&url);
    let mut candidacies: Vec<Candidacy> = Vec::new();
    let mut watches = Vec::new();
    let term = std::sync::Arc::new(std::sync::Mutex::new(None::<Term>));
    say("open");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["elect", name] => {
                let term = std::sync::Arc::clone(&term);
                let told = move |stage: Stage| match stage {
                    Stage::Elected(elected) => {
                        *term.lock().expect("no panic") = Some(elected);
                        say(&format!("elected {}", elected.number()));
                    }
                    Stage::Over(error) => say(&format!("over {:?}", error.kind)),
                };
                let candidacy = registry.elect(name.as_bytes(), Box::new(told));
                candidacies.push(candidacy.unwrap_or_else(|error| panic!("{error}")));
            }
            ["put", key, value] => say_kind(put(&*registry, key, value, None, Life::Kept)),
            ["session", key, value] => say_kind(put(&*registry, key, value, None, Life::Session)),
            ["guarded", key, value] => {
                let term = *term.lock().expect("no panic");
                say_kind(put(&*registry, key, value, term.as_ref(), Life::Kept));
            }
            ["count", key, times] => {
                count(&*registry, key, times.parse().expect("a number"));
                say("counted");
            }
            ["watch", prefix] => {
                let watch = registry.watch(prefix, Box::new(|| say("changed")));
                watches.push(watch.unwrap_or_else(|error| panic!("{error}")));
                say("watching");
            }
            _ => panic!("an unknown command: {line}"),
        }
    }
}

/// Adds one to a number, as often as asked for, by compare-and-set.
pub fn count(registry: &dyn Registry, key: &str, times: u64) {
    for _ in 0..times {
        loop {
            let entry = registry.get(key).unwrap_or_else(|error| panic!("{error}"));
            let (number, expect) = match entry {
                None => (0, Expect::Absent),
                Some(entry) => {
                    let version = entry.version;
                    (
                        super::text(entry).parse::<u64>().expect("a number"),
                        Expect::Version(version),
                    )
                }
            };
            let next = (number + 1).to_string();
            match registry.put(key, Some(next.as_bytes()), expect, None, Life::Kept) {
                Ok(_) => break,
                // Nothing was written; the locks of SQLite aren't fair, and disks can be slow.
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::Busy) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn put(
    registry: &dyn Registry,
    key: &str,
    value: &str,
    guard: Option<&Term>,
    life: Life,
) -> Result<u64, Kind> {
    let put = registry.put(key, Some(value.as_bytes()), Expect::Any, guard, life);
    put.map_err(|error| error.kind)
}

fn say_kind(put: Result<u64, Kind>) {
    match put {
        Ok(_) => say("done"),
        Err(kind) => say(&format!("{kind:?}")),
    }
}

/// A line of its own, whoever else writes.
fn say(what: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "@{what}");
    let _ = stdout.flush();
}
