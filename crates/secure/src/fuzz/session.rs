//! The body of the fuzz target `session`, so that an ordinary test runs it too.
//!
//! The first byte chooses the portions in which the others arrive. They are messages or an error, whatever
//! the portions; what is received is no more than what was sent, and is received again if it is sent again.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use crate::frames::{Beside, Frames, Kind, frame};

/// What was received: a message, whether a file came with it, and its bytes or those of the file.
type Received = (Vec<u8>, Option<bool>, Vec<u8>);

/// Runs one input.
pub fn fuzz_session(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let portion = [1, 3, 64, 1 << 20][usize::from(choice) % 4];
    let (received, is_whole) = receive(Portions { bytes, portion });
    let lengths = received.iter();
    let lengths = lengths.map(|(message, _, beside)| message.len() + beside.len());
    assert!(lengths.sum::<usize>() <= bytes.len(), "more than was sent");
    let other = receive(bytes);
    assert_eq!(
        (&received, is_whole),
        (&other.0, other.1),
        "portions matter"
    );
    let again = received.iter().flat_map(send).collect::<Vec<u8>>();
    assert_eq!(receive(&again[..]), (received, true));
}

struct Portions<'a> {
    bytes: &'a [u8],
    portion: usize,
}

impl Read for Portions<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let most = room.len().min(self.portion);
        self.bytes.read(&mut room[..most])
    }
}

/// All messages, and whether they end where a message does.
fn receive(from: impl Read) -> (Vec<Received>, bool) {
    let (mut frames, mut received) = (Frames::new(from), Vec::new());
    loop {
        match frames.receive() {
            Ok(None) => return (received, true),
            Err(_) => return (received, false),
            Ok(Some((message, beside))) => received.push(match beside {
                Beside::Nothing => (message, None, Vec::new()),
                Beside::Bytes(bytes) => (message, Some(false), bytes),
                Beside::File(file) => {
                    let file = File::from(file);
                    let length = file.metadata().expect("a memory file").len();
                    let mut bytes = vec![0; usize::try_from(length).expect("it is in memory")];
                    file.read_exact_at(&mut bytes, 0).expect("a memory file");
                    (message, Some(true), bytes)
                }
            }),
        }
    }
}

/// A message as it is sent, with what comes with it in pieces.
fn send((message, file, beside): &Received) -> Vec<u8> {
    let kind = match file {
        None => return frame(Kind::Message, message),
        Some(false) => Kind::WithBytes,
        Some(true) => Kind::WithFile,
    };
    let (first, rest) = beside.split_at(beside.len() / 2);
    let frames = [
        frame(kind, message),
        frame(Kind::Piece, first),
        frame(Kind::Last, rest),
    ];
    frames.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs of every kind: the seeds of the corpus.
    fn seeds() -> Vec<(&'static str, Vec<u8>)> {
        let message = |text: &str| (text.as_bytes().to_vec(), None, Vec::new());
        let with = |text: &str, is_file, beside: &[u8]| {
            (text.as_bytes().to_vec(), Some(is_file), beside.to_vec())
        };
        let beat = frame(Kind::Message, br#"{"Beat":{"epoch":3}}"#);
        let whole = send(&with("state", true, &[7; 300]));
        let open = frame(Kind::WithBytes, b"counts");
        let piece = frame(Kind::Piece, &[1; 40]);
        let last = frame(Kind::Last, b"");
        vec![
            ("message", send(&message(r#"{"Over":null}"#))),
            ("empty", send(&message(""))),
            ("bytes", send(&with("counts", false, b"0123456789"))),
            ("file", whole.clone()),
            (
                "beat-between-pieces",
                [&open[..], &piece, &beat, &last].concat(),
            ),
            ("two-at-once", [&open[..], &open].concat()),
            ("piece-of-nothing", piece.clone()),
            ("half", whole[..whole.len() / 2].to_vec()),
            ("huge", vec![0, 0xff, 0xff, 0xff, 0xff, b'{']),
            ("announced", [&[0, 0, 0, 0, 4][..], b"{}"].concat()),
            ("unknown-kind", vec![9, 1, 0, 0, 0, b'x']),
        ]
    }

    fn folder() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/session")
    }

    #[test]
    #[ignore = "writes fuzz/corpus/session"]
    fn write_the_corpus() {
        std::fs::create_dir_all(folder()).unwrap();
        for (number, (name, bytes)) in seeds().into_iter().enumerate() {
            let input = [&[number as u8][..], &bytes].concat();
            std::fs::write(folder().join(format!("seed-{name}")), input).unwrap();
        }
    }

    /// The stored inputs, cut off anywhere, and with each byte changed.
    #[test]
    fn the_corpus_of_sessions_and_mutations_of_it_are_survived() {
        let mut inputs = 0;
        for entry in std::fs::read_dir(folder()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            for at in 0..bytes.len() {
                fuzz_session(&bytes[..at]);
                for change in [1, 0x55, 0x80] {
                    let mut changed = bytes.clone();
                    changed[at] ^= change;
                    fuzz_session(&changed);
                }
            }
            fuzz_session(&bytes);
            inputs += 1;
        }
        assert_eq!(inputs, seeds().len());
    }

    #[test]
    fn random_frames_are_messages_or_an_error() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..3_000 {
            let mut bytes = vec![random.u8(..)];
            for _ in 0..random.usize(..8) {
                let payload = vec![random.u8(..); random.usize(..40)];
                let kind = [
                    Kind::Message,
                    Kind::WithBytes,
                    Kind::WithFile,
                    Kind::Piece,
                    Kind::Last,
                ][random.usize(..5)];
                bytes.extend(frame(kind, &payload));
            }
            bytes.truncate(bytes.len() - random.usize(..bytes.len().min(3)));
            fuzz_session(&bytes);
        }
        for _ in 0..3_000 {
            let length = random.usize(..60);
            let bytes = std::iter::repeat_with(|| random.u8(..6));
            let bytes = bytes.take(length).collect::<Vec<u8>>();
            fuzz_session(&bytes);
        }
    }

    #[test]
    fn what_is_announced_takes_no_memory() {
        let mut announced = frame(Kind::Message, &[]);
        // 64 MiB, and then nothing: a thousand of them at once would be 64 GiB.
        announced[1..].copy_from_slice(&(64u32 << 20).to_le_bytes());
        let before = resident_bytes();
        let waiting = (0..1_000).map(|_| {
            let mut frames = Frames::new(&announced[..]);
            assert!(frames.receive().is_err());
            frames
        });
        let waiting = waiting.collect::<Vec<_>>();
        let more = resident_bytes().saturating_sub(before);
        assert_eq!(waiting.len(), 1_000);
        assert!(more < 64 << 20, "{more} bytes");
    }

    fn resident_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages = statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
        pages * 4096
    }
}
