//! The bodies of the fuzz targets `frame` and `greeting`, so that ordinary tests run them too.
//!
//! A frame: the first byte chooses the reader: a lane of shared memory that a broken process has written
//! to, or a TCP connection of a broken or hostile peer. Whatever the bytes are, the reader returns frames
//! or an error; it doesn't panic, read elsewhere, or take more memory than bytes came.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::doorbell::{Doorbell, Waker};
use crate::lane::cells::{CONTROL_BYTES, Cells};
use crate::lane::{UNIT, commit_word};
use crate::memory::Memory;
use crate::shm::{Peer, Reader};
use crate::sync::Ordering;

/// More frames than any input has.
const FRAMES_MAX: usize = 1 << 12;

/// Runs one input.
pub fn fuzz_frames(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    match choice % 3 {
        0 => lane(bytes, choice >> 2),
        1 => crate::tcp::fuzz_connection(bytes, choice & 4 != 0, peer_sends),
        _ => raw_lane(bytes, choice >> 2),
    }
}

/// Runs one greeting of an unknown peer. The first byte says whether it is sent as it is, or made of the
/// bytes.
pub fn fuzz_greeting(bytes: &[u8]) {
    if let Some((&choice, bytes)) = bytes.split_first() {
        crate::tcp::fuzz_greeting(bytes, choice % 2 == 0, peer_sends);
    }
}

fn waker() -> Waker {
    Waker::new(Arc::new(Doorbell::new().expect("an eventfd")))
}

fn cells(choice: u8) -> Cells {
    let units = 16 << (choice % 4);
    const { assert!(CONTROL_BYTES <= 4096) };
    let memory = Arc::new(Memory::on_heap(4096 + units * UNIT));
    Cells::new(memory, 0, 4096, units)
}

/// A lane whose headers are mostly valid: each 8 bytes of the input place one.
fn lane(bytes: &[u8], choice: u8) {
    let cells = cells(choice);
    let mut position = 0u64;
    for header in bytes.chunks_exact(8) {
        let unit = match header[0] {
            // Where the reader will look next if all went well.
            0..200 => position as usize % cells.units(),
            other => usize::from(other) % cells.units(),
        };
        let length = usize::from(u16::from_le_bytes([header[1], header[2]]) % 1024);
        let total = match header[3] {
            0..150 => length as u64,
            _ => u64::from(u32::from_le_bytes([header[4], header[5], header[6], 0])),
        };
        cells.write_total(unit, total);
        let flags = header[4] % 8;
        let skew = u64::from(header[5] / 250);
        let word = commit_word(length, flags, position + skew);
        cells.commit(unit).store(word, Ordering::Release);
        position += 1 + length.div_ceil(UNIT) as u64;
    }
    read(cells, choice);
}

/// A lane of arbitrary bytes.
fn raw_lane(bytes: &[u8], choice: u8) {
    let cells = cells(choice);
    let room = cells.units() * UNIT;
    cells.write(0, &bytes[..bytes.len().min(room)]);
    read(cells, choice);
}

fn read(cells: Cells, choice: u8) {
    let room = cells.units() * UNIT;
    let mut reader = Reader::new(cells, waker(), waker(), Peer::new("a broken process"));
    reader.lend(choice & 32 == 0);
    let mut held = Vec::new();
    for _ in 0..FRAMES_MAX {
        match reader.receive() {
            Ok(Some(frame)) => {
                assert!(!frame.is_empty() && frame.len() <= room * FRAMES_MAX);
                // Every byte is read.
                std::hint::black_box(frame.iter().fold(0u8, |sum, byte| sum ^ byte));
                held.push(frame);
                if held.len() > 3 {
                    held.remove(1);
                }
            }
            Ok(None) => break,
            Err(error) => {
                assert!(reader.is_closed() && !error.reason.is_empty());
                assert!(matches!(reader.receive(), Ok(None)), "an error comes once");
                break;
            }
        }
    }
}

/// A connection whose peer sends `bytes`, whole or in two parts, and leaves. Returns our end.
pub(crate) fn peer_sends(bytes: &[u8], in_two: bool) -> UnixStream {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket");
    theirs.set_nonblocking(true).expect("a socket");
    let middle = if in_two { bytes.len() / 2 } else { 0 };
    // What doesn't fit into the socket is not sent: the peer left.
    let _ = theirs.write(&bytes[..middle]);
    let _ = theirs.write(&bytes[middle..]);
    ours
}

#[cfg(test)]
mod tests {
    use super::{fuzz_frames, fuzz_greeting};
    use fastrand::Rng;
    use std::fs;
    use std::path::PathBuf;

    fn mutated(random: &mut Rng, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..1 + random.u64(..4) {
            let at = random.usize(..bytes.len() + 1);
            match random.u64(..4) {
                0 if at < bytes.len() => bytes[at] ^= 1 << (random.u64(..8)),
                1 if at < bytes.len() => bytes[at] = random.u8(..),
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        bytes
    }

    #[test]
    fn the_fuzz_corpus_and_its_mutations_cause_no_panic() {
        run("frame", 12, fuzz_frames);
        run("greeting", 8, fuzz_greeting);
    }

    fn run(target: &str, least: usize, fuzz: fn(&[u8])) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let folder = folder.join(target);
        let mut random = Rng::with_seed(5);
        let mut inputs = 0;
        for entry in fs::read_dir(folder).expect("the corpus is part of the repository") {
            let input = fs::read(entry.expect("a file").path()).expect("a file");
            inputs += 1;
            fuzz(&input);
            for _ in 0..300 {
                fuzz(&mutated(&mut random, &input));
            }
        }
        assert!(inputs >= least, "{inputs} inputs are left of the corpus");
    }
}
