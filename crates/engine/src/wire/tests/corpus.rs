//! The committed inputs of the fuzz target `message`, run as ordinary tests.

use std::fs;
use std::path::PathBuf;

use super::hostile::{messages, mutated};
use super::*;
use crate::wire::check::{CORRECTED, MISALIGNED};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/message")
}

#[test]
fn the_fuzz_corpus_and_its_mutations_cause_no_panic() {
    let mut random = Random(11);
    let mut inputs = 0;
    for entry in fs::read_dir(directory()).expect("the corpus is part of the repository") {
        let input = fs::read(entry.unwrap().path()).unwrap();
        inputs += 1;
        fuzz_decode(&input);
        for _ in 0..300 {
            fuzz_decode(&mutated(&mut random, &input));
        }
    }
    assert!(inputs >= 20, "{inputs} inputs are left of the corpus");
}

/// Writes the corpus' seeds: `cargo test -p slackwater-engine write_the_corpus -- --ignored`. Needed only
/// when the format changes; inputs found by fuzzing are kept beside them.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_corpus() {
    fs::create_dir_all(directory()).unwrap();
    // `mode` is set in the length of every frame.
    let write = |name: &str, messages: &[Message], mode: u32| {
        let mut encoder = Encoder::new();
        let mut input = Vec::new();
        for message in messages {
            for frame in frames(&mut encoder, message) {
                input.extend_from_slice(&(frame.len() as u32 | mode).to_le_bytes());
                input.extend_from_slice(&frame);
            }
        }
        fs::write(directory().join(name), input).unwrap();
    };
    for (index, message) in messages().into_iter().enumerate() {
        write(&format!("seed-one-{index}"), &[message], CORRECTED);
    }
    write("seed-all", &messages(), 0);
    write("seed-misaligned", &messages()[1..2], MISALIGNED);
    let mut random = Random(23);
    for index in 0..10 {
        let (rows, columns) = (random.below(12), random.below(4));
        let batch = random::batch(&mut random, rows, columns);
        let chunk = random::chunk(&mut random, batch);
        let again = random::chunk(&mut random, chunk.batch.slice(0, rows / 2));
        let messages = [Message::Chunk(chunk), Message::Chunk(again)];
        write(&format!("seed-random-{index}"), &messages, CORRECTED);
    }
}
