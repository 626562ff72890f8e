//! Records of files and topics in every format: `crates/connect/src/format/`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_connect::fuzz::fuzz_record(bytes));
