//! The agent of a host: it joins an orchestrator, and starts, commands and ends worker processes for it.
//!
//! ```text
//! join ─► serve ─► the session ends ─► kill all processes ─► join again
//! ```
//!
//! Invariants:
//! - Processes live no longer than the session, or their lease (`pulse.rs`).
//! - An orchestrator of an earlier term is refused.
//! - The agent compiles nothing and reads no state: it hands on what it is sent.
//!
//! Shutdown: a signal ends the session; the processes are killed, and the agent exits.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use slackwater_secure::{Secret, Stream};

use super::messages::{FromAgent, Hello, ToAgent};
use super::pulse::{Order, Pulse, say_ended};
use super::session::{Beside, Receiver, Session};
use super::stopping::Stopping;
use crate::hosts::{
    Build, Facts, Group, Hear, Host, HostProcesses, LocalHost, News, ProcessCommand, ProcessEvent,
    What,
};
use crate::machine::Machine;
use crate::terminal::say;

/// How long a connection and its greeting may take.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// The first pause between two attempts to join, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The kernel breaks a silent session so long after its other end has gone: 5 s + 3 × 2 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_COUNT: u32 = 3;

/// How an agent joins.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The addresses of orchestrators: whoever answers is joined.
    pub join: Vec<String>,
    /// The host's name.
    pub name: String,
    /// What it shares with the orchestrator; `None` on loopback only.
    pub secret: Option<Secret>,
    /// The address at which processes listen for links; `None` for that of the session's end.
    pub address: Option<IpAddr>,
    /// The ports at which they may listen; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// What processes may use.
    pub machine: Machine,
    /// The file that is there while the agent has joined, for those who ask whether it is ready.
    pub joined: Option<PathBuf>,
}

/// Why an agent ends.
#[derive(Debug)]
pub enum Ending {
    /// A signal has come.
    Stopped,
    /// The query is over.
    Over,
    /// It can't join, and trying again would not help.
    Refused(String),
}

/// Runs an agent to its end.
pub fn run(options: &AgentOptions, stopping: &Stopping) -> Ending {
    if let Some(path) = &options.joined
        && let Err(error) = Mark::check(path)
    {
        return Ending::Refused(error);
    }
    let mut pause = PAUSE_MIN;
    let mut told = None;
    let mut term = 0;
    loop {
        for address in &options.join {
            if stopping.is_stopping() {
                return Ending::Stopped;
            }
            match attempt(options, address, &mut term, stopping) {
                Attempt::Over => {
                    say(&format!("{}: the query is over\n", options.name));
                    return Ending::Over;
                }
                Attempt::Refused(reason) => {
                    return Ending::Refused(at(address, &reason, " "));
                }
                Attempt::Served(reason) => {
                    pause = PAUSE_MIN;
                    told = None;
                    if !stopping.is_stopping() {
                        say(&format!("{address}: {reason}: joining again\n"));
                    }
                }
                Attempt::Failed(reason) => {
                    let reason = at(address, &reason, ": ") + ": trying again\n";
                    // Said once, however long it takes.
                    if told.as_ref() != Some(&reason) {
                        say(&reason);
                        told = Some(reason);
                    }
                }
            }
        }
        stopping.wait(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// A reason with the address that it is about, unless that is part of it.
fn at(address: &str, reason: &str, separator: &str) -> String {
    match reason.starts_with(address) {
        true => reason.to_string(),
        false => format!("{address}{separator}{reason}"),
    }
}

/// How an attempt to join went.
enum Attempt {
    /// It had joined; why the session has ended.
    Served(String),
    /// It has not joined, for now.
    Failed(String),
    /// It has not joined, and won't.
    Refused(String),
    /// The query is over.
    Over,
}

fn attempt(options: &AgentOptions, address: &str, term: &mut u64, stopping: &Stopping) -> Attempt {
    let failed = |error: io::Error| Attempt::Failed(error.to_string());
    let stream = match connect(address, options.secret.as_ref()) {
        Ok(stream) => stream,
        // It has another secret, or is something else.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Attempt::Refused(error.to_string());
        }
        Err(error) => return failed(error),
    };
    // Silent hosts are watched by the kernel.
    if let Err(error) = stream.keep_alive(KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT) {
        return failed(error);
    }
    let own = options.address;
    let own = own.unwrap_or_else(|| stream.local_address().ip());
    let facts = Facts {
        ports: options.ports,
        ..Facts::here(&options.name, own, &options.machine)
    };
    let session = match Session::new(stream, address) {
        Ok(session) => session,
        Err(error) => return failed(error),
    };
    let _stopping = stopping.watch(&session);
    let hello = Hello {
        build: Build::this(),
        facts: facts.clone(),
        term: *term,
    };
    session.send(&hello, Beside::Nothing);
    let mut receiver = Receiver::new(session.stream());
    let (of_leader, host_timeout) = match receiver.receive() {
        Ok(Some((
            ToAgent::Welcome {
                term: of_leader,
                name,
                host_timeout_ms,
            },
            _,
        ))) if of_leader >= *term => {
            say(&format!(
                "{}: joined {name} ({address}), term {of_leader}\n",
                options.name
            ));
            (of_leader, Duration::from_millis(host_timeout_ms))
        }
        Ok(Some((ToAgent::Welcome { term: earlier, .. }, _))) => {
            session.end("an earlier term");
            return Attempt::Failed(format!("leads term {earlier}, which is over"));
        }
        Ok(Some((ToAgent::Refused { reason, try_again }, _))) => {
            return match try_again {
                true => Attempt::Failed(reason),
                false => Attempt::Refused(reason),
            };
        }
        Ok(Some(_)) => return Attempt::Failed("did not answer the greeting".to_string()),
        Ok(None) => return Attempt::Failed("closed the connection".to_string()),
        Err(error) => return failed(error),
    };
    *term = of_leader;
    stopping.has_joined();
    let _mark = options.joined.as_deref().map(Mark::set);
    let agent = Agent {
        host: LocalHost::new(facts, None)
            .with_secret(options.secret.clone())
            .of_agent(),
        asked: Mutex::default(),
        session: Arc::clone(&session),
        parts: Arc::default(),
        pulse: match Pulse::start(&session, host_timeout) {
            Ok(pulse) => Arc::new(pulse),
            Err(error) => return failed(error),
        },
    };
    agent.serve(&mut receiver, stopping)
}

fn connect(address: &str, secret: Option<&Secret>) -> io::Result<Stream> {
    let mut last = None;
    for address in address.to_socket_addrs()? {
        match Stream::connect(address, secret, JOIN_PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the name has no address")))
}

/// The file that says that the agent has joined: it is removed when this is dropped.
struct Mark<'a>(&'a Path);

impl Mark<'_> {
    /// Removes the mark of an earlier agent that was killed, and makes sure that there can be one.
    fn check(path: &Path) -> Result<(), String> {
        let made = std::fs::write(path, "").and_then(|()| std::fs::remove_file(path));
        made.map_err(|error| {
            format!(
                "--joined {}: {error}\n  = name a file in a folder that the agent may write",
                path.display()
            )
        })
    }

    fn set(path: &Path) -> Mark<'_> {
        if let Err(error) = std::fs::write(path, "") {
            say(&format!("warning: --joined {}: {error}\n", path.display()));
        }
        Mark(path)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // Whoever has removed it knows.
        let _ = std::fs::remove_file(self.0);
    }
}

/// An agent that has joined.
struct Agent {
    host: LocalHost,
    session: Arc<Session>,
    /// The processes that are to be started once their lease is granted.
    asked: Mutex<Option<Group>>,
    parts: Arc<Mutex<Option<Part>>>,
    pulse: Arc<Pulse>,
}

/// The processes of an incarnation.
struct Part {
    group: Group,
    processes: Arc<dyn HostProcesses>,
}

impl Agent {
    /// Obeys the orchestrator until the session ends.
    fn serve<R: io::Read>(&self, receiver: &mut Receiver<R>, stopping: &Stopping) -> Attempt {
        let ended = loop {
            match receiver.receive::<ToAgent>() {
                Ok(Some((ToAgent::Over, _))) => break Attempt::Over,
                Ok(Some((ToAgent::Stay { reason }, _))) => {
                    say(&format!("leaving harms the query: {reason}\n"));
                    stopping.end();
                }
                Ok(Some((message, beside))) => self.obey(message, beside),
                Ok(None) => break Attempt::Served("the orchestrator has ended".to_string()),
                Err(error) => break Attempt::Served(error.to_string()),
            }
        };
        let ended = match (self.session.ended(), ended) {
            (Some(reason), Attempt::Served(_)) => Attempt::Served(reason),
            (_, ended) => ended,
        };
        self.session.end("over");
        self.pulse.stop();
        self.end_all();
        ended
    }

    fn obey(&self, message: ToAgent, beside: Beside) {
        match message {
            ToAgent::Look(ask) => {
                let looked = FromAgent::Looked(ask.look());
                self.session.send(&looked, Beside::Nothing);
            }
            ToAgent::Start(group) => {
                self.end_all();
                self.pulse.begin(group.epoch);
                *self.asked.lock().expect("no thread panics under it") = Some(group);
            }
            ToAgent::Command {
                epoch,
                process,
                command,
            } => {
                let state = match beside {
                    Beside::File(file) => Some(file),
                    Beside::Nothing | Beside::Bytes(_) => None,
                };
                let runs = matches!(command, ProcessCommand::Run);
                if let Some(processes) = self.of(epoch) {
                    processes.tell(process, command, state);
                    if runs {
                        self.pulse.watch(process, &processes);
                    }
                }
            }
            ToAgent::Kill { epoch, process } => {
                if let Some(processes) = self.of(epoch) {
                    processes.kill(process);
                }
            }
            ToAgent::End { epoch } => {
                if self.of(epoch).is_some() {
                    self.end_all();
                }
                say_ended(&self.session, epoch);
            }
            ToAgent::Answer {
                answer,
                received_ns,
                answered_ns,
            } => match self.pulse.answered(&answer, received_ns, answered_ns) {
                Order::Nothing => {}
                Order::Start => {
                    let asked = self.asked.lock().expect("no thread panics under it").take();
                    asked.into_iter().for_each(|group| self.start(group));
                }
                Order::Kill => {
                    self.end_all();
                    say_ended(&self.session, answer.epoch);
                }
            },
            // Each of these comes once, before.
            ToAgent::Welcome { .. }
            | ToAgent::Refused { .. }
            | ToAgent::Stay { .. }
            | ToAgent::Over => {}
        }
    }

    /// Starts the processes of an incarnation.
    fn start(&self, group: Group) {
        let epoch = group.epoch;
        let hear = self.hear(epoch);
        let answer = match self.host.start(&group, hear) {
            Ok(processes) => {
                let pids = processes.pids().to_vec();
                if let Some(clock) = self.pulse.clock() {
                    for process in group.first..group.first + group.count {
                        let command = ProcessCommand::Clock {
                            offset_ns: clock.offset_ns,
                        };
                        processes.tell(process, command, None);
                    }
                }
                *self.parts() = Some(Part { group, processes });
                FromAgent::Started { epoch, pids }
            }
            Err(error) => FromAgent::NotStarted {
                epoch,
                reason: error.to_string(),
            },
        };
        self.session.send(&answer, Beside::Nothing);
    }

    /// Hands on what processes of an incarnation say.
    fn hear(&self, epoch: u64) -> Hear {
        let session = Arc::clone(&self.session);
        let pulse = Arc::clone(&self.pulse);
        Arc::new(move |news: News| {
            let process = news.process;
            match news.what {
                What::Said {
                    event: ProcessEvent::Active,
                    ..
                } => pulse.is_active(process),
                What::Said {
                    event,
                    bytes,
                    state,
                } => {
                    let beside = match state {
                        Some(file) => Beside::File(file),
                        None if bytes.is_empty() => Beside::Nothing,
                        None => Beside::Bytes(bytes),
                    };
                    let said = FromAgent::Said {
                        epoch,
                        process,
                        event,
                    };
                    session.send(&said, beside);
                }
                What::Left(exit) => {
                    let left = FromAgent::Left {
                        epoch,
                        process,
                        exit,
                    };
                    session.send(&left, Beside::Nothing);
                }
            }
        })
    }

    /// The processes of an incarnation, if it is the last one.
    fn of(&self, epoch: u64) -> Option<Arc<dyn HostProcesses>> {
        let parts = self.parts();
        let part = parts.as_ref().filter(|part| part.group.epoch == epoch);
        part.map(|part| Arc::clone(&part.processes))
    }

    fn end_all(&self) {
        self.pulse.forget();
        let part = self.parts().take();
        if let Some(part) = part {
            part.processes.end();
        }
    }

    fn parts(&self) -> MutexGuard<'_, Option<Part>> {
        self.parts.lock().expect("no thread panics under it")
    }
}

/// The first address of a name.
///
/// # Errors
///
/// If there is none.
pub fn resolve(address: &str) -> io::Result<SocketAddr> {
    let mut addresses = address.to_socket_addrs()?;
    let first = addresses.next();
    first.ok_or_else(|| io::Error::other("the name has no address"))
}
