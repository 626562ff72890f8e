//! One process of a fleet.

use std::net::Ipv4Addr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, mpsc};

use rustix::process::{Signal, set_parent_process_death_signal};
use slackwater_engine::deploy::RemoteEnds;
use slackwater_engine::protocol::{Attached, EVENTS_MAX, WorkerEvent};
use slackwater_engine::runtime::{Runtime, RuntimeOptions, WaitMode};
use slackwater_engine::time::now_ns;
use slackwater_sql::settings::LinkKind;

use super::load::{Factory, Note, Pace, Phase, PhaseControl};
use super::namespaces;
use super::parent::{Links, Measured, Order, Report, Start, TIMEOUT};
use crate::common::sleep_until;
use slackwater::hosts::channel::Channel;
use slackwater::hosts::connect::{self, Part};
use slackwater::machine;

/// Time between the order to start and the first message.
const LEAD_NS: u64 = 2_000_000;

/// Runs until the parent process ends it.
pub fn run(descriptor: RawFd) -> Result<(), String> {
    if descriptor <= 2 {
        return Err(format!("--control {descriptor}: not a valid descriptor"));
    }
    // SAFETY: the parent passed the descriptor to this process for this use alone; the first call detects
    // a wrong number.
    let channel = Channel::of(unsafe { OwnedFd::from_raw_fd(descriptor) });
    // A full load would otherwise continue for a while after the parent has ended.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("can't arrange to end with the parent process: {error}"))?;
    let (start, sockets) = match receive(&channel)? {
        (Order::Start(start), sockets) => (start, sockets),
        _ => return Err("received an order before it was told what to run".to_string()),
    };
    work(&start, sockets, &channel).map_err(|reason| format!("process {}: {reason}", start.process))
}

fn receive(channel: &Channel) -> Result<(Order, Vec<OwnedFd>), String> {
    let received = channel
        .receive::<Order>()
        .map_err(|error| error.to_string())?;
    received.ok_or_else(|| "the parent process has ended".to_string())
}

fn work(start: &Start, sockets: Vec<OwnedFd>, channel: &Channel) -> Result<(), String> {
    let say = |word: Report| channel.send(&word, &[]).map_err(|error| error.to_string());
    let deployment = start.shape.deployment()?;
    let mut address = Ipv4Addr::LOCALHOST;
    if start.links == Links::Namespaces {
        // Before the first thread, which would stay in the old namespace.
        namespaces::leave()?;
        say(Report::Apart)?;
        let (Order::Attached, _) = receive(channel)? else {
            return Err("was not attached to the shared network".to_string());
        };
        namespaces::join(start.process)?;
        address = namespaces::address(start.process);
    }
    let (events_sender, events) = mpsc::sync_channel(EVENTS_MAX);
    let options = RuntimeOptions {
        wait: WaitMode::Interrupt,
        ..RuntimeOptions::on(&[None])
    };
    let runtime = Runtime::start(&options, events_sender).map_err(|error| error.to_string())?;
    let nodes = vec![None; deployment.process_of.len()];
    let names = start.pids.iter().enumerate();
    let names = names.map(|(process, pid)| format!("process {process} (pid {pid})"));
    let names = names.collect::<Vec<String>>();
    let part = Part {
        deployment: &deployment,
        process: start.process,
        runtime: &runtime,
        epoch: 1,
        names: &names,
        nodes: &nodes,
        kind: match start.links {
            Links::SharedMemory => LinkKind::SharedMemory,
            _ => LinkKind::Tcp,
        },
        guard: None,
    };
    let failed = |error: std::io::Error| format!("can't connect to the other processes: {error}");
    let (ends, _watch, _acceptor);
    if start.links != Links::SharedMemory {
        let listening =
            connect::Listening::at(address.into(), None, &part, [0; 16]).map_err(failed)?;
        say(Report::Listens(listening.address()))?;
        let (Order::Connect(addresses), _) = receive(channel)? else {
            return Err("did not receive the addresses of the other processes".to_string());
        };
        let mut connected = RemoteEnds::default();
        _acceptor = listening
            .connect(&part, &addresses, &mut connected)
            .map_err(failed)?;
        ends = connected;
    } else {
        let mut sockets = sockets.into_iter();
        let others = (0..start.pids.len()).map(|process| {
            let other = process != start.process;
            other.then(|| sockets.next()).flatten()
        });
        (ends, _watch) = connect::shared_memory(&part, others.collect()).map_err(failed)?;
    }
    let sinks = start.shape.sinks(&deployment, start.process);
    // One note of each sink and of the source at a time.
    let (notes_sender, notes) = mpsc::sync_channel(sinks + 1);
    let control = Arc::new(PhaseControl::new(start.phases.clone(), notes_sender));
    let factory = Factory(control.clone());
    let deployed = runtime.deploy_part(&deployment, start.process, &factory, ends);
    deployed.map_err(|error| error.to_string())?;
    std::thread::spawn(move || end_with_the_first_failure(&events));
    say(Report::Ready)?;
    let has_source = start.process == 0;
    loop {
        let (Order::Begin(phase), _) = receive(channel)? else {
            return Err("received an order that is not allowed here".to_string());
        };
        let cpu_s = machine::process_cpu_s();
        if has_source {
            send(&control, phase, start.phases[phase]);
        }
        let mut measured = Measured::default();
        for _ in 0..sinks + usize::from(has_source) {
            let note = notes.recv_timeout(TIMEOUT);
            measured.add(note.map_err(|_| "messages were lost")?);
        }
        measured.cpu_s = machine::process_cpu_s() - cpu_s;
        say(Report::Done(measured))?;
    }
}

/// Lets the source send at its pace.
fn send(control: &PhaseControl, number: usize, phase: Phase) {
    control.begin(number);
    match phase.pace {
        Pace::Flat { .. } => control.allow(u64::MAX),
        Pace::Spaced { messages, gap_ns } => {
            let begin_ns = now_ns() + LEAD_NS;
            for message in 0..messages {
                sleep_until(begin_ns + message * gap_ns);
                control.allow(message + 1);
            }
        }
    }
}

/// After a failure, what the main thread waits for would never arrive.
fn end_with_the_first_failure(events: &mpsc::Receiver<(WorkerEvent, Attached)>) {
    while let Ok((event, _)) = events.recv() {
        if let WorkerEvent::Failed { error, .. } = event {
            // An error that follows from the end of another process is reported by that process, or the
            // parent has ended it.
            if !error.consequence {
                eprintln!("{error}");
            }
            std::process::exit(1);
        }
    }
}

impl Measured {
    fn add(&mut self, note: Note) {
        match note {
            Note::Sent { times_ns, messages } => {
                self.sent_ns = times_ns;
                self.messages = messages;
            }
            Note::Received { times_ns } => self.receive(&times_ns),
        }
    }
}
