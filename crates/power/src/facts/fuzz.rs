//! The properties that hold for whatever a server answers: the body of the fuzz target `reply`, here so that
//! an ordinary test runs its corpus too.

use super::{Info, role, sentinel_master, sentinel_said, shards};
use crate::resp::{self, Malformed, Reply};

/// Splits bytes into replies, whole and in portions: the replies are the same, or the error; and whatever is
/// read of a reply is read without a panic.
pub fn fuzz_replies(bytes: &[u8]) {
    let whole = replies(bytes, bytes.len().max(1));
    for portion in [1, 7] {
        assert_eq!(
            replies(bytes, portion),
            whole,
            "in portions of {portion} bytes"
        );
    }
    for reply in &whole.0 {
        read(reply);
    }
}

fn replies(bytes: &[u8], portion: usize) -> (Vec<Reply>, Option<Malformed>) {
    let (mut held, mut found) = (Vec::new(), Vec::new());
    for portion in bytes.chunks(portion) {
        held.extend_from_slice(portion);
        let mut used = 0;
        loop {
            match resp::parse(&held[used..]) {
                Ok(Some((reply, length))) => {
                    assert!(length > 0, "a reply takes bytes");
                    found.push(reply);
                    used += length;
                }
                Ok(None) => break,
                Err(malformed) => return (found, Some(malformed)),
            }
        }
        held.drain(..used);
    }
    (found, None)
}

/// Everything that is read of replies, whatever they answer.
fn read(reply: &Reply) {
    let _ = role(reply);
    let _ = sentinel_master(reply);
    let _ = sentinel_said(reply);
    let _ = shards(reply);
    if let Some(text) = reply.text() {
        let info = Info::of(text);
        let _ = (info.product(), info.calls("wait"), info.number("loading"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn corpus() -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/reply");
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
            .collect()
    }

    #[test]
    fn the_corpus_holds() {
        let inputs = corpus();
        assert!(inputs.len() > 5, "{} inputs", inputs.len());
        for input in inputs {
            fuzz_replies(&input);
        }
    }

    #[test]
    fn mutations_of_the_corpus_hold() {
        let inputs = corpus();
        let pieces = [
            &b"\r\n"[..],
            b"*2\r\n",
            b"$-1\r\n",
            b":",
            b"$3\r\n",
            b"+",
            b"-",
        ];
        let mut random = fastrand::Rng::with_seed(23);
        for _ in 0..20_000 {
            let mut bytes = inputs[random.usize(..inputs.len())].clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..=bytes.len());
                match random.u8(0..4) {
                    0 => bytes.truncate(at),
                    1 if at < bytes.len() => bytes[at] = random.u8(..),
                    2 => bytes.extend_from_within(at..),
                    _ => {
                        let piece = pieces[random.usize(..pieces.len())];
                        bytes.splice(at..at, piece.iter().copied());
                    }
                }
            }
            bytes.truncate(4_096);
            fuzz_replies(&bytes);
        }
    }
}
