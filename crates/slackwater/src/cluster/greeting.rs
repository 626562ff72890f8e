//! What every door does with those who come in, and with those who don't.

use std::cell::Cell;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use slackwater_link::LinkError;
use slackwater_secure::Stream;

use super::messages::{Hello, ToAgent};
use super::session::{Beside, Receiver, Session};
use crate::hosts::Build;

/// How often strangers are told of.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Greets whoever has come in, on a thread of its own.
pub fn receive(
    stream: Stream,
    peer: SocketAddr,
    greet: impl FnOnce(&Arc<Session>) + Send + 'static,
) {
    // If there is no thread left, an agent tries again.
    let _ = std::thread::Builder::new()
        .name("session".to_string())
        .spawn(move || {
            if let Ok(session) = Session::new(stream, &peer.to_string()) {
                greet(&session);
            }
        });
}

/// Sends a last message, and ends the session once the other end has read it.
pub fn answer_last<R: Read>(
    session: &Session,
    receiver: &mut Receiver<R>,
    message: &impl Serialize,
) {
    session.send(message, Beside::Nothing);
    session.finish();
    let _ = receiver.receive::<serde_json::Value>();
}

/// The answer to an agent that runs another program than this host; `None` if it runs the same.
pub fn other_program(hello: &Hello) -> Option<ToAgent> {
    let build = Build::this();
    let reason = format!(
        "runs {build}, and this host {}\n  = run the same program on every host",
        hello.build
    );
    let try_again = false;
    (hello.build != build).then_some(ToAgent::Refused { reason, try_again })
}

/// Calls `count` for each stranger that was turned away, and `tell` for the first, and then once a minute:
/// with what has happened, and the fix.
pub fn strangers(count: impl Fn(), tell: impl Fn(&str, &str)) -> impl Fn(&LinkError) {
    let (told, since) = (Cell::new(None::<Instant>), Cell::new(0_u64));
    move |refusal| {
        count();
        since.set(since.get() + 1);
        if told.get().is_some_and(|told| told.elapsed() < TELL_AGAIN) {
            return;
        }
        let LinkError { peer, reason, hint } = refusal;
        let others = match since.take() {
            0 | 1 => String::new(),
            count => format!(" ({} more since the last one)", count - 1),
        };
        tell(
            &format!("{peer} was turned away: it {reason}{others}"),
            hint,
        );
        told.set(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_crowd_of_strangers_is_counted_and_told_of_once() {
        let (count, told) = (Cell::new(0), RefCell::new(Vec::new()));
        let strangers = strangers(
            || count.set(count.get() + 1),
            |what, _| told.borrow_mut().push(what.to_string()),
        );
        for _ in 0..10_000 {
            strangers(&LinkError {
                peer: "10.0.0.9:1".to_string(),
                reason: "said nothing".to_string(),
                hint: String::new(),
            });
        }
        assert_eq!(count.get(), 10_000);
        assert_eq!(
            *told.borrow(),
            ["10.0.0.9:1 was turned away: it said nothing"]
        );
    }
}
