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
pub const TIMEOUT: Duration = Duration::from_secs(60);

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
pub enum Report {
    /// It has left the parent's network namespace.
    Apart,
    /// The address at which it listens, if others send to it.
    Listens(Option<SocketAddr>),
    /// It is connected.
    Ready,
    /// The phase has ended in this process.
    Done(Measured),
}

/// Measurements of a phase in one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// When messages were sent, from the process with the source.
    pub sent_ns: Vec<u64>,
    /// Number of messages.
    pub messages: u64,
    /// When the last of its sinks had each message.
    pub received_ns: Vec<u64>,
    /// CPU time in seconds.
    pub cpu_s: f64,
}

impl Measured {
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
    fn of(phase: &Phase, all_measured: &[Measured]) -> Result<Seen, String> {
        let mut all = Measured::default();
        for measured in all_measured {
            all.receive(&measured.received_ns);
            all.messages += measured.messages;
            all.cpu_s += measured.cpu_s;
            all.sent_ns.extend(&measured.sent_ns);
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
struct ChildProcess {
    channel: Channel,
    child: Child,
}

impl ChildProcess {
    fn start() -> Result<ChildProcess, String> {
        let failed = |error: std::io::Error| format!("can't start a process: {error}");
        let (channel, theirs) = Channel::pair().map_err(failed)?;
        // A copy without the flag that closes it when the program is started.
        let inherited = rustix::io::dup(&theirs).map_err(|error| failed(error.into()))?;
        let mut command = programs::part("fleet-part", inherited.as_raw_fd())?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        Ok(ChildProcess { channel, child })
    }

    fn send(&self, order: &Order, sockets: &[OwnedFd]) -> Result<(), String> {
        let sockets = sockets.iter().map(AsFd::as_fd).collect::<Vec<_>>();
        let sent = self.channel.send(order, &sockets);
        sent.map_err(|error| format!("a process has ended ({error}); see above for the reason"))
    }

    fn receive(&self) -> Result<Report, String> {
        let received = self
            .channel
            .receive::<Report>()
            .map_err(|error| error.to_string())?;
        let (report, _) = received.ok_or("a process has failed; see above for the reason")?;
        Ok(report)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All processes, which end together: one that outlived the others would report their end as an error.
struct ChildProcesses(Vec<ChildProcess>);

impl Drop for ChildProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.child.kill();
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
    let mut fleet = ChildProcesses(Vec::new());
    for _ in 0..processes {
        fleet.0.push(ChildProcess::start()?);
    }
    let children = &fleet.0;
    let pids = children.iter().map(|child| child.child.id());
    let pids = pids.collect::<Vec<u32>>();
    let sockets = mesh(processes).map_err(|error| format!("can't create sockets: {error}"))?;
    for (process, (child, sockets)) in children.iter().zip(sockets).enumerate() {
        let start = Start {
            shape: setup.shape.clone(),
            links: setup.links,
            phases: setup.phases.clone(),
            process,
            pids: pids.clone(),
        };
        child.send(&Order::Start(start), &sockets)?;
    }
    // Dropped before the processes: the bridge can be removed with or without its cables.
    let _network = match setup.links {
        Links::Namespaces => Some(attach(children, &pids)?),
        _ => None,
    };
    if setup.links != Links::SharedMemory {
        let mut addresses = Vec::new();
        for child in children {
            let Report::Listens(address) = child.receive()? else {
                return Err(out_of_turn());
            };
            addresses.push(address);
        }
        for child in children {
            child.send(&Order::Connect(addresses.clone()), &[])?;
        }
    }
    for child in children {
        let Report::Ready = child.receive()? else {
            return Err(out_of_turn());
        };
    }
    let phases = setup.phases.iter().enumerate();
    let seen = phases.map(|(number, phase)| {
        for child in children {
            child.send(&Order::Begin(number), &[])?;
        }
        let mut all_measured = Vec::new();
        for child in children {
            let Report::Done(measured) = child.receive()? else {
                return Err(out_of_turn());
            };
            all_measured.push(measured);
        }
        Seen::of(phase, &all_measured)
    });
    seen.collect()
}

/// Gives each process its cable, once it has left the parent's network namespace.
fn attach(children: &[ChildProcess], pids: &[u32]) -> Result<Network, String> {
    let network = Network::create()?;
    for (child, &pid) in children.iter().zip(pids) {
        let Report::Apart = child.receive()? else {
            return Err(out_of_turn());
        };
        network.attach(pid)?;
        child.send(&Order::Attached, &[])?;
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
        let measured = |sent: &[u64], received: &[u64]| {
            let mut measured = Measured {
                sent_ns: sent.to_vec(),
                messages: sent.len() as u64,
                cpu_s: 1e-6,
                ..Measured::default()
            };
            measured.receive(received);
            measured
        };
        let phase = Phase {
            size_bytes: 64,
            pace: Pace::Spaced {
                messages: 2,
                gap_ns: 1,
            },
        };
        let measured = [
            measured(&[1_000, 2_000], &[1_500, 9_000]),
            measured(&[], &[4_000, 3_000]),
        ];
        let seen = Seen::of(&phase, &measured).expect("all arrived");
        assert_eq!(seen.latencies_us, [3.0, 7.0]);
        assert_eq!(seen.cpu_us_per_message, 1.0);
        let error = Seen::of(&phase, &[measured[0].clone(), measured[0].clone()])
            .expect_err("messages are missing");
        assert!(
            error.contains("4 messages were sent, and 2 arrived"),
            "{error}"
        );
    }
}
