//! Runs a reader's connection on the bytes of the fuzz target `frame`, and an acceptor's greeting on those
//! of `greeting`.

use std::os::unix::net::UnixStream;

use crate::sync::Arc;
use crate::tcp::acceptor;
use crate::tcp::hello::{HELLO_BYTES, Hello};
use crate::tcp::incoming::{Incoming, Next};
use crate::tcp::mailbox::{Arrival, Shared, Slot};
use crate::tcp::ready::Ready;
use crate::tcp::record::{Fragment, Record};
use crate::tcp::wire::Wire;
use crate::tcp::{Identity, Settings};

/// A small window, so that an input can exceed it.
const WINDOW: usize = 8 << 10;

/// More than any input has.
const STEPS_MAX: usize = 1 << 12;

/// Reads `bytes` as what the peer sends: as they are, or as a list of records that are written with
/// correct checks, so that the code after the first check is reached. `peer_sends` makes the socket on
/// which the peer has sent something, in one or in two pieces.
pub(crate) fn fuzz_connection(
    bytes: &[u8],
    as_they_are: bool,
    peer_sends: impl Fn(&[u8], bool) -> UnixStream,
) {
    let sent = if as_they_are {
        bytes.to_vec()
    } else {
        records(bytes)
    };
    let mut incoming = Incoming::new(
        Arrival {
            wire: Wire::new(peer_sends(&sent, bytes.len() % 2 == 1).into(), None),
            frames: None,
            address: "127.0.0.1:1".parse().expect("an address"),
            writer: 1,
            window: WINDOW,
            position: 0,
        },
        Ready::unwatched(),
        true,
    );
    let mut received = 0;
    for _ in 0..STEPS_MAX {
        match incoming.next(received) {
            Ok(Next::Frame(frame)) => {
                assert!(!frame.is_empty() && frame.len() <= sent.len());
                received += 1;
            }
            Ok(Next::Nothing) => {}
            Ok(Next::End | Next::Gone) | Err(_) => return,
        }
    }
}

/// The token of the acceptor, and of greetings that are made of an input.
const TOKEN: [u8; 16] = *b"a token of fuzz!";

/// Reads `bytes` as a greeting: as they are, or as the fields of one with the right magic and hash, with
/// the right token if the last byte is even. A peer without the token gets no answer.
pub(crate) fn fuzz_greeting(
    bytes: &[u8],
    as_they_are: bool,
    peer_sends: impl Fn(&[u8], bool) -> UnixStream,
) {
    let identity = Identity {
        epoch: 2,
        token: TOKEN,
    };
    let shared = Shared::new(identity, Settings::default());
    let waiter = crate::Waiter::new().expect("a waiter");
    let slot = Slot::new(7, Settings::default(), waiter.waker());
    slot.set_received(3);
    shared.expect(1, Arc::new(slot));
    let mut sent = bytes.to_vec();
    if !as_they_are {
        sent.resize(HELLO_BYTES, 0);
        let field = |at: usize| u64::from(bytes.get(at).copied().unwrap_or_default());
        let hello = Hello {
            epoch: field(0) % 4,
            token: if field(1) % 2 == 0 {
                TOKEN
            } else {
                [bytes[1]; 16]
            },
            link: field(2) % 3,
            writer: field(3),
            oldest: field(4) % 8,
            unsent: field(5) % 8,
            window: (field(6) << (field(7) % 26)) as u32,
        };
        sent.copy_from_slice(&hello.encode());
        if field(8) > 200 {
            sent[8] = field(8) as u8;
        }
    }
    let socket = peer_sends(&sent, bytes.len() % 2 == 1).into();
    let (_, is_answered) = acceptor::fuzz_greeting(socket, &shared);
    let has_token = sent.len() >= 40 && sent[24..40] == TOKEN;
    assert!(!is_answered || has_token, "a stranger was answered");
}

fn records(bytes: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    let mut number = 0u64;
    for spec in bytes.chunks_exact(6) {
        let length = u32::from(u16::from_le_bytes([spec[1], spec[2]]));
        let frames = number.wrapping_add(u64::from(spec[4] / 200));
        let record = match spec[0] % 16 {
            0 => Record::Heartbeat,
            1 => Record::End { frames },
            2 => Record::Gone,
            3 => Record::Credit {
                frames,
                cost: length,
            },
            4 => Record::EndTaken { frames },
            _ => Record::Data(Fragment {
                number: frames,
                length: if spec[5] > 250 {
                    length << 16
                } else {
                    length % 2048
                },
                first: spec[3] & 1 == 0,
                last: spec[3] & 2 == 0,
            }),
        };
        sent.extend_from_slice(&record.encode());
        if let Record::Data(fragment) = record {
            // Sometimes less than it says.
            let whole = (fragment.length as usize).min(4096);
            let payload = whole.saturating_sub(usize::from(spec[5] == 250));
            sent.extend(std::iter::repeat_n(spec[4], payload));
            number += u64::from(fragment.last);
        }
    }
    sent
}
