//! The parent process: starts the processes, runs the phases, and combines the measurements.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::load::{Pace, Phase};
use super::namespaces::Network;
use super::shape::Shape;
use crate::programs;
use slackwater::hosts::channel::Channel;
use slackwater::hosts::mesh;

/// The longest time that a phase may take: far longer than any does.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What connects processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Links {
    /// Shared memory.
    SharedMemory,
    /// TCP over the loopback interface.
    Tcp,
    /// TCP between network namespaces, one for each process.
    Namespaces,
}

/// What a fleet runs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Instances and what connects them.
    pub shape: Shape,
    /// What connects processes.
    pub links: Links,
    /// The phases, in order.
    pub phases: Vec<Phase>,
}

/// Measurements of a phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Time until the last sink had a message, in microseconds; for spaced messages only.
    pub latencies_us: Vec<f64>,
    /// Messages per second; for a flat phase only.
    pub messages_per_s: Option<f64>,
    /// CPU time of all processes per message, in microseconds.
    pub cpu_us_per_message: f64,
}

/// An order to a process.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// The shape that it belongs to; sent with sockets to the other processes.
    Start(Start),
    /// The process is attached to the shared network.
    Attached,
    /// The addresses at which the processes listen.
    Connect(Vec<Option<SocketAddr>>),
    /// Run this phase.
    Begin(usize),
}

/// The first order to a process.
#[derive(Serialize, Deserialize)]
pub struct Start {
    /// The shape that all processes run.
    pub shape: Shape,
    /// What connects the processes.
    pub links: Links,
    /// The phases.
    pub phases: Vec<Phase>,
    /// The number of this process.
    pub process: usize,
    /// Process ids of all.
    pub pids: Vec<u32>,
}

/// A message from a process.
#[derive(Serialize, Deserialize)]
pub enum Word {
    /// It has left the parent's network namespace.
    Apart,
    /// The address at which it listens, if others send to it.
    Listens(Option<SocketAddr>),
    /// It is connected.
    Ready,
    /// The phase has ended in this process.
    Done(Account),
}

/// Measurements of a phase in one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// When messages were sent, from the process with the source.
    pub sent_ns: Vec<u64>,
    /// Number of messages.
    pub messages: u64,
    /// When the last of its sinks had each message.
    pub received_ns: Vec<u64>,
    /// CPU time in seconds.
    pub cpu_s: f64,
}

impl Account {
    /// Adds the times at which a sink, or all sinks of a process, had the messages.
    pub fn receive(&mut self, times_ns: &[u64]) {
        let more = self.received_ns.len().max(times_ns.len());
        self.received_ns.resize(more, 0);
        for (latest, time_ns) in self.received_ns.iter_mut().zip(times_ns) {
            *latest = (*latest).max(*time_ns);
        }
    }
}

impl Seen {
    /// The measurements of all processes together.
    fn of(phase: &Phase, accounts: &[Account]) -> Result<Seen, String> {
        let mut all = Account::default();
        for account in accounts {
            all.receive(&account.received_ns);
            all.messages += account.messages;
            all.cpu_s += account.cpu_s;
            all.sent_ns.extend(&account.sent_ns);
        }
        if all.sent_ns.is_empty() || all.sent_ns.len() != all.received_ns.len() {
            return Err(format!(
                "{} messages were sent, and {} arrived",
                all.sent_ns.len(),
                all.received_ns.len()
            ));
        }
        let pairs = all.sent_ns.iter().zip(&all.received_ns);
        let took_ns = pairs.map(|(sent, received)| received.saturating_sub(*sent) as f64);
        let took_ns = took_ns.collect::<Vec<f64>>();
        let mut seen = Seen {
            cpu_us_per_message: all.cpu_s * 1e6 / all.messages.max(1) as f64,
            ..Seen::default()
        };
        match phase.pace {
            Pace::Spaced { .. } => seen.latencies_us = took_ns.iter().map(|ns| ns / 1e3).collect(),
            Pace::Flat { .. } => {
                seen.messages_per_s = Some(all.messages as f64 / took_ns[0].max(1.0) * 1e9);
            }
        }
        Ok(seen)
    }
}

/// A process, which ends when this is dropped.
struct Party {
    channel: Channel,
    child: Child,
}

impl Party {
    fn start() -> Result<Party, String> {
        let failed = |error: std::io::Error| format!("can't start a process: {error}");
        let (channel, theirs) = Channel::pair().map_err(failed)?;
        // A copy without the flag that closes it when the program is started.
        let inherited = rustix::io::dup(&theirs).map_err(|error| failed(error.into()))?;
        let mut command = programs::part("fleet-part", inherited.as_raw_fd())?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        Ok(Party { channel, child })
    }

    fn tell(&self, order: &Order, sockets: &[OwnedFd]) -> Result<(), String> {
        let sockets = sockets.iter().map(AsFd::as_fd).collect::<Vec<_>>();
        let told = self.channel.send(order, &sockets);
        told.map_err(|error| format!("a process has ended ({error}); see above for the reason"))
    }

    fn hear(&self) -> Result<Word, String> {
        let heard = self
            .channel
            .receive::<Word>()
            .map_err(|error| error.to_string())?;
        let (word, _) = heard.ok_or("a process has failed; see above for the reason")?;
        Ok(word)
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All processes, which end together: one that outlived the others would report their end as an error.
struct Parties(Vec<Party>);

impl Drop for Parties {
    fn drop(&mut self) {
        for party in &mut self.0 {
            let _ = party.child.kill();
        }
    }
}

/// Runs the phases; returns the measurements of each.
///
/// # Errors
///
/// If a process can't be started, or fails.
pub fn run(setup: &Setup) -> Result<Vec<Seen>, String> {
    let processes = setup.shape.processes();
    let mut fleet = Parties(Vec::new());
    for _ in 0..processes {
        fleet.0.push(Party::start()?);
    }
    let parties = &fleet.0;
    let pids = parties.iter().map(|party| party.child.id());
    let pids = pids.collect::<Vec<u32>>();
    let sockets = mesh(processes).map_err(|error| format!("can't create sockets: {error}"))?;
    for (process, (party, sockets)) in parties.iter().zip(sockets).enumerate() {
        let start = Start {
            shape: setup.shape.clone(),
            links: setup.links,
            phases: setup.phases.clone(),
            process,
            pids: pids.clone(),
        };
        party.tell(&Order::Start(start), &sockets)?;
    }
    // Dropped before the processes: the bridge can be removed with or without its cables.
    let _network = match setup.links {
        Links::Namespaces => Some(attach(parties, &pids)?),
        _ => None,
    };
    if setup.links != Links::SharedMemory {
        let mut addresses = Vec::new();
        for party in parties {
            let Word::Listens(address) = party.hear()? else {
                return Err(out_of_turn());
            };
            addresses.push(address);
        }
        for party in parties {
            party.tell(&Order::Connect(addresses.clone()), &[])?;
        }
    }
    for party in parties {
        let Word::Ready = party.hear()? else {
            return Err(out_of_turn());
        };
    }
    let phases = setup.phases.iter().enumerate();
    let seen = phases.map(|(number, phase)| {
        for party in parties {
            party.tell(&Order::Begin(number), &[])?;
        }
        let mut accounts = Vec::new();
        for party in parties {
            let Word::Done(account) = party.hear()? else {
                return Err(out_of_turn());
            };
            accounts.push(account);
        }
        Seen::of(phase, &accounts)
    });
    seen.collect()
}

/// Gives each process its cable, once it has left the parent's network namespace.
fn attach(parties: &[Party], pids: &[u32]) -> Result<Network, String> {
    let network = Network::create()?;
    for (party, &pid) in parties.iter().zip(pids) {
        let Word::Apart = party.hear()? else {
            return Err(out_of_turn());
        };
        network.attach(pid)?;
        party.tell(&Order::Attached, &[])?;
    }
    Ok(network)
}

fn out_of_turn() -> String {
    "received an unexpected message from a process".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_arrived_when_the_last_sink_has_it() {
        let account = |sent: &[u64], received: &[u64]| {
            let mut account = Account {
                sent_ns: sent.to_vec(),
                messages: sent.len() as u64,
                cpu_s: 1e-6,
                ..Account::default()
            };
            account.receive(received);
            account
        };
        let phase = Phase {
            size_bytes: 64,
            pace: Pace::Spaced {
                messages: 2,
                gap_ns: 1,
            },
        };
        let accounts = [
            account(&[1_000, 2_000], &[1_500, 9_000]),
            account(&[], &[4_000, 3_000]),
        ];
        let seen = Seen::of(&phase, &accounts).expect("all came");
        assert_eq!(seen.latencies_us, [3.0, 7.0]);
        assert_eq!(seen.cpu_us_per_message, 1.0);
        let error = Seen::of(&phase, &[accounts[0].clone(), accounts[0].clone()])
            .expect_err("messages are missing");
        assert!(
            error.contains("4 messages were sent, and 2 arrived"),
            "{error}"
        );
    }
}
