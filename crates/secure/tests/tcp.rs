//! The tests of links over TCP, those of `slackwater-link`, with the real seal.

#[path = "../../link/tests/tcp/harness.rs"]
mod harness;

#[path = "../../link/tests/tcp/breaks.rs"]
mod breaks;
#[path = "../../link/tests/tcp/credits.rs"]
mod credits;
#[path = "../../link/tests/tcp/ends.rs"]
mod ends;
#[path = "../../link/tests/tcp/hostile.rs"]
mod hostile;
#[path = "../../link/tests/tcp/idle.rs"]
mod idle;
#[path = "../../link/tests/tcp/streams.rs"]
mod streams;

use std::sync::{Arc, OnceLock};

use slackwater_link::tcp::Guard;
use slackwater_secure::Secret;

fn guard() -> Option<Arc<dyn Guard>> {
    static GUARD: OnceLock<Arc<dyn Guard>> = OnceLock::new();
    let guard = GUARD.get_or_init(|| Secret::generate().expect("randomness").guard());
    Some(Arc::clone(guard))
}

/// Why a stranger is refused.
const STRANGER: &str = "does not use this protocol";

/// The most that a stranger gets for an answer: an alert.
const ALERT_BYTES: usize = 7;
