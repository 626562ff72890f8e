//! The committed inputs of the fuzz targets, run as ordinary tests.

use std::fs;
use std::panic::{catch_unwind, resume_unwind};
use std::path::PathBuf;

use super::*;
use crate::manifest::record::tests::manifest;
use crate::part::tests::state;
use crate::simulation::random::Random;

fn directory(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target)
}

/// One to four changes: a bit, a byte, a word set to an extreme value, a piece removed or duplicated.
fn mutated(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.between(1, 4) {
        let at = random.below(bytes.len() as u64) as usize;
        let length = random.below(16).min((bytes.len() - at) as u64) as usize;
        match random.below(5) {
            _ if bytes.is_empty() => {}
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => {
                let words = [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 1 << 20];
                let word = words[random.below(6) as usize].to_le_bytes();
                let at = at & !3;
                bytes
                    .iter_mut()
                    .skip(at)
                    .zip(word)
                    .for_each(|(old, new)| *old = new);
            }
            3 => drop(bytes.drain(at..at + length)),
            _ => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Mutations of each input; `SLACKWATER_MUTATIONS=1000000` if there is no fuzzer for the compiler.
const MUTATIONS: u64 = 2_000;

fn run_corpus(target: &str, body: fn(&[u8]), least: usize) {
    let mut random = Random(17);
    let mutations = std::env::var("SLACKWATER_MUTATIONS").ok();
    let mutations = mutations.and_then(|text| text.parse().ok());
    let mut inputs = 0;
    for entry in fs::read_dir(directory(target)).expect("the corpus is part of the repository") {
        let input = fs::read(entry.unwrap().path()).unwrap();
        inputs += 1;
        body(&input);
        for _ in 0..mutations.unwrap_or(MUTATIONS) {
            let changed = mutated(&mut random, &input);
            if let Err(panic) = catch_unwind(|| body(&changed)) {
                let path = std::env::temp_dir().join(format!("slackwater-found-{target}"));
                fs::write(&path, changed).unwrap();
                println!("the input is {}", path.display());
                resume_unwind(panic);
            }
        }
    }
    assert!(inputs >= least, "{inputs} inputs are left of the corpus");
}

#[test]
fn the_corpus_of_manifests_and_its_mutations_cause_no_panic() {
    run_corpus("manifest", fuzz_manifest, 3);
}

#[test]
fn the_corpus_of_parts_and_its_mutations_cause_no_panic() {
    run_corpus("part", fuzz_part, 5);
}

/// Writes the corpus' seeds: `cargo test -p slackwater-checkpoint write_the_corpus -- --ignored`. Needed only
/// if the format changes. Inputs that fuzzing has found are next to them and stay.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_corpus() {
    let write = |target: &str, name: &str, bytes: Vec<u8>| {
        fs::create_dir_all(directory(target)).unwrap();
        fs::write(directory(target).join(name), bytes).unwrap();
    };
    let checkpoint = Record::Checkpoint(manifest()).encode().unwrap();
    write("manifest", "seed-checkpoint", checkpoint);
    let empty = crate::manifest::Manifest {
        buckets: 1,
        ..Default::default()
    };
    write(
        "manifest",
        "seed-empty",
        Record::Checkpoint(empty).encode().unwrap(),
    );
    let claim = crate::manifest::record::Claim {
        number: 1,
        time_ms: 0,
        owner: "1".to_string(),
        restored: None,
        from_scratch: false,
    };
    write(
        "manifest",
        "seed-claim",
        Record::Claim(claim).encode().unwrap(),
    );
    let all = state(5);
    for column in 0..all.num_columns() {
        let one = all.project(&[column]).unwrap();
        let name = format!("seed-{}", all.schema().field(column).name());
        write("part", &name, part::encode(&[one.clone(), one]).unwrap());
    }
    write("part", "seed-all", part::encode(&[all]).unwrap());
    write("part", "seed-empty", part::encode(&[state(0)]).unwrap());
}
