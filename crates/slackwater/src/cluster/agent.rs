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
//! Shutdown: a signal asks the orchestrator to go on without this host, and ends the session after 30 s at
//! the latest; a second one ends it at once (`stopping.rs`). Without a session the processes are killed.

mod jobs;
mod mark;

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_control::lease::Terms;
use slackwater_secure::{Secret, Stream};

use super::messages::{FromAgent, Greeting, Hello, ToAgent};
use super::pulse::{Order, Pulse};
use super::session::{Beside, Receiver, Session};
use super::stopping::Stopping;
use crate::hosts::{
    Build, Facts, Group, Hear, Host, HostProcesses, LocalHost, News, ProcessCommand, ProcessEvent,
    What,
};
use crate::machine::Machine;
use crate::terminal::say;
use jobs::serve_jobs;
use mark::Mark;

/// How long a connection and its greeting may take.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// The same if there are other addresses to try: enough for a packet that is lost.
const OTHERS_PATIENCE: Duration = Duration::from_secs(2);

/// The first pause between two attempts to join, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The longest pause if there are several addresses: one of them is about to lead.
const OTHERS_PAUSE_MAX: Duration = Duration::from_millis(200);

/// A connection that fails after so long has met silence. Its address is left out for a while if there are
/// others: a host that is gone does not delay the next try of the one that is about to lead.
const SILENCE: Duration = Duration::from_millis(500);
const SILENT_PAUSE: Duration = Duration::from_secs(5);

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
    /// The query is over, or goes on without it.
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
    // What was last said of each address, however long it takes.
    let mut told = vec![None; options.join.len()];
    let mut term = 0;
    let pause_max = match options.join.len() {
        1 => PAUSE_MAX,
        _ => OTHERS_PAUSE_MAX,
    };
    let mut silent_since = vec![None::<Instant>; options.join.len()];
    loop {
        if silent_since.iter().all(Option::is_some) {
            silent_since.fill(None);
        }
        let tries = told.iter_mut().zip(&mut silent_since);
        for (address, (told, silent_since)) in options.join.iter().zip(tries) {
            if silent_since.is_some_and(|since| since.elapsed() < SILENT_PAUSE) {
                continue;
            }
            if stopping.is_stopping() {
                return Ending::Stopped;
            }
            let begun = Instant::now();
            let attempted = attempt(options, address, &mut term, stopping);
            let is_silent = matches!(attempted, Attempt::Away(_)) && begun.elapsed() >= SILENCE;
            *silent_since = is_silent.then(Instant::now);
            match attempted {
                Attempt::Over { is_drained } => {
                    let why = match is_drained {
                        true => "the query goes on without it",
                        false => "the query is over",
                    };
                    say(&format!("{}: {why}\n", options.name));
                    return Ending::Over;
                }
                Attempt::Refused(reason) => {
                    return Ending::Refused(at(address, &reason, " "));
                }
                Attempt::Freed => {
                    pause = PAUSE_MIN;
                    *told = None;
                }
                Attempt::Served(reason) => {
                    pause = PAUSE_MIN;
                    *told = None;
                    if !stopping.is_stopping() {
                        say(&format!("{address}: {reason}: joining again\n"));
                    }
                }
                Attempt::Failed(reason) | Attempt::Away(reason) => {
                    let reason = at(address, &reason, ": ") + ": trying again\n";
                    if told.as_ref() != Some(&reason) {
                        say(&reason);
                        *told = Some(reason);
                    }
                }
            }
        }
        stopping.wait(pause);
        pause = (pause * 2).min(pause_max);
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
    /// Nobody was reached.
    Away(String),
    /// It has not joined, and won't.
    Refused(String),
    /// It isn't needed any more.
    Over { is_drained: bool },
    /// It isn't needed by a job any more, but may be by another one.
    Freed,
}

fn attempt(options: &AgentOptions, address: &str, term: &mut u64, stopping: &Stopping) -> Attempt {
    let failed = |error: io::Error| Attempt::Failed(error.to_string());
    let patience = match options.join.len() {
        1 => JOIN_PATIENCE,
        _ => OTHERS_PATIENCE,
    };
    let stream = match connect(address, options.secret.as_ref(), patience) {
        Ok(stream) => stream,
        // It has another secret, or is something else.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Attempt::Refused(error.to_string());
        }
        Err(error) => return Attempt::Away(error.to_string()),
    };
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
    session.send(&Greeting::Join(Box::new(hello)), Beside::Nothing);
    if let Err(error) = session.stream().await_answer(patience) {
        session.end("no answer");
        return Attempt::Away(error.to_string());
    }
    let mut receiver = Receiver::new(session.stream());
    let (of_leader, terms) = match receiver.receive() {
        Ok(Some((
            ToAgent::Welcome {
                term: of_leader,
                name,
                host_timeout_ns,
            },
            _,
        ))) if of_leader >= *term => {
            say(&format!(
                "{}: joined {name} ({address}), term {of_leader}\n",
                options.name
            ));
            (of_leader, Terms { host_timeout_ns })
        }
        Ok(Some((ToAgent::Welcome { term: earlier, .. }, _))) => {
            session.end("an earlier term");
            return Attempt::Failed(format!("leads term {earlier}, which is over"));
        }
        Ok(Some((ToAgent::Wait { name }, _))) => {
            say(&format!(
                "{}: waits for a job of {name} ({address})\n",
                options.name
            ));
            return serve_jobs(options, address, &session, &mut receiver, stopping);
        }
        Ok(Some((ToAgent::Refused { reason, try_again }, _))) => {
            return match try_again {
                true => Attempt::Failed(reason),
                false => Attempt::Refused(reason),
            };
        }
        Ok(Some(_)) => return Attempt::Failed("did not answer the greeting".to_string()),
        Ok(None) => return Attempt::Failed("closed the connection".to_string()),
        // It has a secret, or is something else.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Attempt::Refused(error.to_string());
        }
        Err(error) => return failed(error),
    };
    *term = of_leader;
    stopping.has_joined();
    let _mark = options.joined.as_deref().map(Mark::set);
    let mut agent = Agent {
        host: LocalHost::new(facts, None)
            .with_secret(options.secret.clone())
            .of_agent(),
        session: Arc::clone(&session),
        part: None,
        pulse: match Pulse::start(&session, terms) {
            Ok(pulse) => Arc::new(pulse),
            Err(error) => return failed(error),
        },
    };
    agent.serve(&mut receiver, stopping)
}

fn connect(address: &str, secret: Option<&Secret>, patience: Duration) -> io::Result<Stream> {
    let mut last = None;
    for address in address.to_socket_addrs()? {
        match Stream::connect(address, secret, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the name has no address")))
}

/// An agent that has joined.
struct Agent {
    host: LocalHost,
    session: Arc<Session>,
    /// That of the last incarnation.
    part: Option<Part>,
    pulse: Arc<Pulse>,
}

/// The processes of an incarnation.
struct Part {
    group: Group,
    /// None until their lease is granted.
    processes: Option<Arc<dyn HostProcesses>>,
}

impl Agent {
    /// Obeys the orchestrator until the session ends.
    fn serve<R: io::Read>(&mut self, receiver: &mut Receiver<R>, stopping: &Stopping) -> Attempt {
        let ended = loop {
            match receiver.receive::<ToAgent>() {
                Ok(Some((ToAgent::Over { is_drained }, _))) => break Attempt::Over { is_drained },
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

    fn obey(&mut self, message: ToAgent, beside: Beside) {
        match message {
            ToAgent::Look(ask) => {
                let looked = FromAgent::Looked(ask.look());
                self.session.send(&looked, Beside::Nothing);
            }
            ToAgent::Start(group) => {
                self.end_all();
                self.pulse.begin(group.epoch);
                self.part = Some(Part {
                    group,
                    processes: None,
                });
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
                if self.part_of(epoch).is_some() {
                    self.end_all();
                }
                self.say_ended(epoch);
            }
            ToAgent::Answer {
                answer,
                received_ns,
                answered_ns,
            } => match self.pulse.answered(&answer, received_ns, answered_ns) {
                Order::Nothing => {}
                Order::Start => self.start(answer.epoch),
                Order::Kill => {
                    self.end_all();
                    self.say_ended(answer.epoch);
                }
            },
            // Each of these comes once, before.
            ToAgent::Welcome { .. }
            | ToAgent::Wait { .. }
            | ToAgent::Serve { .. }
            | ToAgent::Refused { .. }
            | ToAgent::Stay { .. }
            | ToAgent::Over { .. } => {}
        }
    }

    /// Starts the processes of an incarnation, whose lease was granted.
    fn start(&mut self, epoch: u64) {
        let hear = self.hear(epoch);
        let Some(group) = self.part_of(epoch).map(|part| part.group.clone()) else {
            return;
        };
        let answer = match self.host.start(&group, hear) {
            Ok(processes) => {
                let pids = processes.pids().to_vec();
                let clock = self.pulse.clock();
                if let Some(clock) = clock {
                    for process in group.first..group.first + group.count {
                        let command = ProcessCommand::Clock {
                            offset_ns: clock.offset_ns,
                        };
                        processes.tell(process, command, None);
                    }
                }
                self.part = Some(Part {
                    group,
                    processes: Some(processes),
                });
                FromAgent::Started { epoch, pids, clock }
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
        self.part_of(epoch)?.processes.clone()
    }

    fn part_of(&self, epoch: u64) -> Option<&Part> {
        self.part.as_ref().filter(|part| part.group.epoch == epoch)
    }

    fn end_all(&mut self) {
        self.pulse.forget();
        if let Some(processes) = self.part.take().and_then(|part| part.processes) {
            processes.end();
        }
    }

    fn say_ended(&self, epoch: u64) {
        let ended = FromAgent::Ended { epoch };
        self.session.send(&ended, Beside::Nothing);
    }
}

#[cfg(test)]
mod tests;
