//! What a client of PostgreSQL's protocol sends: `crates/serve/src/postgres/fuzz.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| slackwater_serve::postgres::fuzz::fuzz_client(bytes));
