//! Manifests and claims of checkpoints: `crates/checkpoint/src/manifest/record.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_checkpoint::fuzz::fuzz_manifest(bytes));
