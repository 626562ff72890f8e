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
use std::time::Instant;

use slackwater_link::Waiter;
use slackwater_link::tcp::{Carrier, Guard, Writer};
use slackwater_secure::Secret;

fn guard() -> Option<Arc<dyn Guard>> {
    static GUARD: OnceLock<Arc<dyn Guard>> = OnceLock::new();
    let guard = GUARD.get_or_init(|| Secret::generate().expect("randomness").guard());
    Some(Arc::clone(guard))
}

/// What the readers' connections have.
fn reading() -> Carrier {
    guard().into()
}

/// What the writers' connections have.
fn writing() -> Carrier {
    guard().into()
}

/// Why a stranger is refused.
const STRANGER: &str = "does not use this protocol";

/// Whether this may be the answer to a stranger: nothing, or an alert of TLS.
fn may_tell_a_stranger(answer: &[u8]) -> bool {
    answer.is_empty() || (answer.len() == 7 && answer[0] == 21)
}

#[test]
fn a_writer_with_another_secret_is_told_so() {
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = harness::bind(harness::settings());
    let mut reader = acceptor.reader(harness::LINK, "the writer", &waiter);
    let mut writer: Writer<Vec<u8>> = Writer::connect_guarded(
        acceptor.local_address(),
        harness::IDENTITY,
        harness::LINK,
        "the reader",
        &waiter,
        harness::settings(),
        Some(Secret::generate().expect("randomness").guard()),
    );
    let end = Instant::now() + harness::TOO_LONG;
    while !writer.is_closed() {
        assert!(Instant::now() < end, "not refused");
        writer.push(false);
        assert!(reader.receive().expect("a link that waits").is_none());
    }
    let error = writer.error().expect("an error");
    assert!(error.reason.contains("has another secret"), "{error}");
    let refused = acceptor.refused();
    let last = refused.last.last().expect("a refusal");
    assert!(last.reason.contains("has another secret"), "{last}");
}
