//! The body of the fuzz target `handshake`, so that an ordinary test runs it too.
//!
//! The first byte chooses who is addressed (who accepts, or who connects), whether a real handshake comes
//! first, and the portions in which the bytes arrive. Whatever the bytes are, there is plaintext only after
//! a real handshake, or an error.

mod session;

use std::io::Read;
use std::sync::OnceLock;

use slackwater_link::tcp::{Moved, Seal};

use crate::connection::Connection;
use crate::keys::{Keys, Purpose};
use crate::secret::Secret;

pub use session::fuzz_session;

/// More than any input needs.
const STEPS_MAX: usize = 1 << 12;

fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let secret = Secret::generate().expect("randomness");
        Keys::new(&secret, Purpose::Control)
    })
}

/// Runs one input.
pub fn fuzz_handshake(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let mut accepting = Connection::accepting(keys()).expect("randomness");
    let mut connecting = Connection::connecting(keys()).expect("randomness");
    let is_known = choice & 2 != 0;
    if is_known {
        introduce(&mut connecting, &mut accepting);
    }
    let mut addressed = match choice & 1 {
        0 => accepting,
        _ => connecting,
    };
    let portion = [1, 7, 100, 70_000][usize::from(choice >> 2) % 4];
    assert_eq!(addressed.is_ready(), is_known);
    read(&mut addressed, bytes, portion);
    if !is_known {
        assert!(!addressed.is_ready(), "a stranger was let in");
    }
}

/// A whole handshake.
fn introduce(connecting: &mut Connection, accepting: &mut Connection) {
    for _ in 0..2 {
        hand_over(connecting, accepting);
        hand_over(accepting, connecting);
    }
    assert!(connecting.is_ready() && accepting.is_ready());
}

fn hand_over(from: &mut Connection, to: &mut Connection) {
    let mut sent = Vec::new();
    from.pay(&mut sent).expect("memory takes everything");
    let mut rest = &sent[..];
    while !rest.is_empty() {
        to.take(&mut rest).expect("memory gives everything");
        to.open(&mut []).expect("a peer with the secret");
    }
}

fn read(seal: &mut Connection, bytes: &[u8], portion: usize) {
    let mut rest = bytes;
    let mut room = [0; 512];
    for _ in 0..STEPS_MAX {
        match seal.open(&mut room) {
            Ok(Moved::Bytes(_)) => panic!("plaintext of a stranger"),
            Ok(Moved::End) => return,
            Ok(Moved::WouldBlock) if rest.is_empty() => break,
            Ok(Moved::WouldBlock) => {
                let most = rest.len().min(portion);
                let taken = seal.take(&mut rest.take(most as u64));
                rest = &rest[taken.expect("memory gives everything")..];
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!(seal.open(&mut room).is_err(), "an error that goes away");
                break;
            }
        }
    }
    // What it answers is an alert, or its part of a handshake, and never much.
    let mut answer = Vec::new();
    seal.pay(&mut answer).expect("memory takes everything");
    assert!(answer.len() < 2_000, "answered {} bytes", answer.len());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use fastrand::Rng;

    use super::*;

    fn folder() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/handshake")
    }

    #[test]
    fn the_fuzz_corpus_and_its_mutations_cause_no_panic() {
        let mut random = Rng::with_seed(6);
        let mut inputs = 0;
        for entry in fs::read_dir(folder()).expect("the corpus is part of the repository") {
            let input = fs::read(entry.expect("a file").path()).expect("a file");
            inputs += 1;
            fuzz_handshake(&input);
            for _ in 0..60 {
                let mut bytes = input.clone();
                for _ in 0..random.usize(1..5) {
                    let at = random.usize(..bytes.len());
                    match random.u8(..4) {
                        0 => bytes[at] ^= 1 << random.u8(..8),
                        1 => bytes[at] = random.u8(..),
                        2 => bytes.truncate(at.max(1)),
                        _ => bytes.insert(at, random.u8(..)),
                    }
                }
                fuzz_handshake(&bytes);
            }
        }
        assert!(inputs >= 8, "{inputs} inputs are left of the corpus");
    }

    /// What the other side says first, as the seeds have it.
    #[test]
    #[ignore = "writes the seeds of the corpus"]
    fn write_the_corpus() {
        let first = |tls: &mut Connection| {
            let mut sent = Vec::new();
            tls.pay(&mut sent).expect("memory takes everything");
            sent
        };
        let mut connecting = Connection::connecting(keys()).expect("randomness");
        let mut accepting = Connection::accepting(keys()).expect("randomness");
        let hello = first(&mut connecting);
        let mut rest = &hello[..];
        accepting.take(&mut rest).expect("memory gives everything");
        accepting.open(&mut []).expect("a greeting");
        let answer = first(&mut accepting);
        let record: &[u8] = b"\x17\x03\x03\x00\x20a record that nobody has encrypted";
        let alert: &[u8] = b"\x15\x03\x03\x00\x02\x02\x28";
        fs::create_dir_all(folder()).expect("a folder");
        for (name, choice, bytes) in [
            ("accepting-hello", 12, &hello[..]),
            ("accepting-hello-bytes", 0, &hello[..]),
            (
                "accepting-hello-twice",
                8,
                &[&hello[..], &hello[..]].concat(),
            ),
            ("accepting-http", 12, b"GET / HTTP/1.1\r\n\r\n"),
            ("accepting-alert", 4, alert),
            ("connecting-answer", 13, &answer[..]),
            ("connecting-alert", 13, alert),
            ("known-record", 14, record),
            ("known-alert", 15, alert),
            ("known-hello", 10, &hello[..]),
        ] {
            let input = [&[choice], bytes].concat();
            fs::write(folder().join(format!("seed-{name}")), input).expect("a file");
        }
    }
}
