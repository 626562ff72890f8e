//! What comes over sessions and control sockets, cut off and changed anywhere: it is read or refused, and
//! never a panic. The frames around messages are fuzzed where they are read, in `slackwater_secure::frames`.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_control::lease::{Answer, Beat};
use slackwater_engine::barrier::{Barrier, Purpose};
use slackwater_engine::counters::{CutCounts, InstanceCounters};
use slackwater_engine::protocol::Command;
use slackwater_link::shm::handover;

use super::messages::{ClockKnown, FromAgent, Hello, ToAgent};
use crate::broadcast::distance_between_hosts;
use crate::checkpoints::AgentEvent;
use crate::hosts::channel::Channel;
use crate::hosts::{
    Ask, Build, Exit, Facts, FinalCounts, Found, Group, HostCommand, HostEvent, ProcessCommand,
    ProcessEvent,
};
use crate::machine::Machine;

fn to_agent() -> Vec<ToAgent> {
    let barrier = Barrier {
        number: 7,
        purpose: Purpose::Checkpoint {
            since: Some(6),
            bases: vec![1, 2].into(),
            stops: false,
        },
    };
    let command = |command| ToAgent::Command {
        epoch: 3,
        process: 1,
        command,
    };
    vec![
        ToAgent::Welcome {
            term: 1,
            name: "h1".to_string(),
            host_timeout_ns: 3_000,
        },
        ToAgent::Look(Ask {
            folder: PathBuf::from("/data"),
            files: vec![PathBuf::from("a.csv")],
            patterns: vec!["*.csv".to_string()],
            marks: Vec::new(),
        }),
        ToAgent::Start(Group {
            epoch: 3,
            first: 0,
            count: 2,
            records: true,
        }),
        command(ProcessCommand::Host(HostCommand::Workers(
            Command::Barrier(barrier),
        ))),
        command(ProcessCommand::Connect(vec![
            None,
            Some((Ipv4Addr::LOCALHOST, 7070).into()),
        ])),
        ToAgent::Answer {
            answer: Answer {
                epoch: 3,
                number: 9,
                is_granted: true,
            },
            received_ns: 5,
            answered_ns: 6,
        },
        ToAgent::Over { is_drained: true },
    ]
}

fn from_agent() -> Vec<FromAgent> {
    let said = |event| FromAgent::Said {
        epoch: 3,
        process: 1,
        event,
    };
    let counts = CutCounts::of(&InstanceCounters::new(3, &[], &[]));
    vec![
        FromAgent::Looked(Found {
            files: vec![Ok(7), Err("is not a file".to_string())],
            matches: vec![Ok(vec![(PathBuf::from("a.csv"), 7)])],
            marks: vec![true],
        }),
        FromAgent::Started {
            epoch: 3,
            pids: vec![4711],
            clock: None,
        },
        said(ProcessEvent::Finished(Box::<FinalCounts>::default())),
        said(ProcessEvent::Host(HostEvent::Checkpoint(
            AgentEvent::Counted {
                barrier: 7,
                instance: 2,
                has_ended: false,
                counts,
            },
        ))),
        FromAgent::Left {
            epoch: 3,
            process: 1,
            exit: Exit {
                reason: "was killed by signal 9".to_string(),
                is_crash: true,
                noted: Vec::new(),
            },
        },
        FromAgent::Beat {
            beat: Beat {
                epoch: 3,
                number: 9,
                is_silent: false,
            },
            clock: Some(ClockKnown {
                offset_ns: -5,
                error_ns: 7,
            }),
        },
    ]
}

/// This host, which takes a while to describe.
fn machine() -> Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(Machine::this).clone()
}

fn hello() -> &'static [u8] {
    static HELLO: OnceLock<Vec<u8>> = OnceLock::new();
    HELLO.get_or_init(|| {
        bytes_of(&Hello {
            build: Build::this(),
            facts: Facts::here("h2", Ipv4Addr::LOCALHOST.into(), &machine()),
            term: 1,
        })
    })
}

/// What numbers, words and lists may be replaced by.
const REPLACED: [&str; 9] = [
    "0",
    "-1",
    "18446744073709551615",
    "1e999",
    "null",
    "[]",
    "{}",
    "\"\"",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

/// A message that is cut off, has another byte, or has something else in a place.
fn mutated(json: &[u8], at: usize, how: usize, byte: u8) -> Vec<u8> {
    let at = at % json.len();
    match how % 3 {
        0 => json[..at].to_vec(),
        1 => {
            let mut changed = json.to_vec();
            changed[at] = byte;
            changed
        }
        _ => {
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.\"".contains(byte);
            let start = json[..at].iter().rposition(|byte| !is_word(byte));
            let start = start.map_or(0, |last| last + 1);
            let end = json[at..].iter().position(|byte| !is_word(byte));
            let end = end.map_or(json.len(), |first| at + first);
            let other = REPLACED[usize::from(byte) % REPLACED.len()];
            [&json[..start], other.as_bytes(), &json[end..]].concat()
        }
    }
}

/// Reads what may be a message; one that is read can be written.
fn read<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Option<T> {
    let message = serde_json::from_slice::<T>(bytes).ok()?;
    serde_json::to_vec(&message).expect("messages are plain data");
    Some(message)
}

fn bytes_of(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages are plain data")
}

#[test]
fn messages_are_read_as_they_were_sent() {
    for message in to_agent() {
        let bytes = bytes_of(&message);
        assert_eq!(bytes_of(&read::<ToAgent>(&bytes).unwrap()), bytes);
    }
    for message in from_agent() {
        let bytes = bytes_of(&message);
        assert_eq!(bytes_of(&read::<FromAgent>(&bytes).unwrap()), bytes);
    }
    assert!(read::<Hello>(hello()).is_some());
}

proptest! {
    #[test]
    fn messages_that_were_changed_are_read_or_refused(
        which: prop::sample::Index,
        at: usize,
        how in 0..3usize,
        byte: u8,
    ) {
        let to_agent = to_agent().iter().map(bytes_of).collect::<Vec<_>>();
        let from_agent = from_agent().iter().map(bytes_of).collect::<Vec<_>>();
        let (to_agent, from_agent): (&Vec<u8>, &Vec<u8>) = (which.get(&to_agent), which.get(&from_agent));
        read::<ToAgent>(&mutated(to_agent, at, how, byte));
        read::<FromAgent>(&mutated(from_agent, at, how, byte));
        // Hosts that describe themselves wrongly are planned for, or not let in.
        if let Some(hello) = read::<Hello>(&mutated(hello(), at, how, byte)) {
            let home = (machine(), true);
            Machine::of_hosts(&[home, (hello.facts.machine(), true)], distance_between_hosts(true));
        }
    }

    #[test]
    fn any_bytes_are_no_reason_to_panic(bytes: Vec<u8>) {
        read::<ToAgent>(&bytes);
        read::<FromAgent>(&bytes);
        read::<Hello>(&bytes);
    }

    /// What a worker process finds on its control socket, or its parent, in packets of any content.
    #[test]
    fn packets_of_any_content_are_messages_or_an_error(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
    ) {
        let (ours, theirs) = Channel::pair().unwrap();
        for packet in &packets {
            handover::send(theirs.as_fd(), packet, &[]).unwrap();
        }
        drop(theirs);
        // Each packet that is the last of a message ends one; after that, the other side has gone.
        for _ in 0..=packets.len() {
            if let Ok(None) = ours.receive_with::<serde_json::Value>() {
                return Ok(());
            }
        }
        prop_assert!(matches!(ours.receive_with::<ProcessEvent>(), Ok(None)));
    }

    #[test]
    fn messages_of_the_control_socket_that_were_changed_are_read_or_refused(
        which: prop::sample::Index,
        at: usize,
        how in 0..3usize,
        byte: u8,
    ) {
        let events = from_agent().into_iter().filter_map(|message| match message {
            FromAgent::Said { event, .. } => Some(bytes_of(&event)),
            _ => None,
        });
        let commands = to_agent().into_iter().filter_map(|message| match message {
            ToAgent::Command { command, .. } => Some(bytes_of(&command)),
            _ => None,
        });
        let messages = events.chain(commands).collect::<Vec<Vec<u8>>>();
        let json = which.get(&messages);
        // As it is sent: whether it is the last packet, the length, and the message.
        let length = u32::try_from(json.len()).unwrap().to_le_bytes();
        let packet = [&[1][..], &length, json].concat();
        let (ours, theirs) = Channel::pair().unwrap();
        let changed = mutated(&packet, at, how, byte);
        if !changed.is_empty() {
            handover::send(theirs.as_fd(), &changed, &[]).unwrap();
        }
        drop(theirs);
        let _ = ours.receive_with::<ProcessEvent>();
        let (ours, theirs) = Channel::pair().unwrap();
        if !changed.is_empty() {
            handover::send(theirs.as_fd(), &changed, &[]).unwrap();
        }
        drop(theirs);
        let _ = ours.receive_with::<ProcessCommand>();
    }
}
