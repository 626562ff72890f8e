//! A stream of events (`text/event-stream`) for one client.
//!
//! ```text
//! timer, or nothing before the first ─► ask ─► Piece ─► client
//! ```
//!
//! - The next event is asked for only when the client has taken the one before, so at most one is kept.
//! - The timer runs only while the client is connected.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

/// The first interval, in parts of the later ones; each is twice as long as the one before, until these are
/// reached. So a page has two looks to compare before a second has passed.
const FIRST_PART: u32 = 10;

/// Asks for the next event.
pub type Ask = Box<dyn FnMut(Piece) + Send>;

/// Where the next event of a stream goes. Dropping it ends the stream.
#[derive(Debug)]
pub struct Piece(oneshot::Sender<Bytes>);

impl Piece {
    /// Sends an event: a name, and data without line breaks.
    pub fn send(self, name: &str, data: &str) {
        self.send_all(&[(name, data)]);
    }

    /// Sends several events at once.
    pub fn send_all(self, events: &[(&str, &str)]) {
        let events = events
            .iter()
            .map(|(name, data)| format!("event: {name}\ndata: {data}\n\n"));
        // It is lost if the client has gone.
        let _ = self.0.send(events.collect::<String>().into());
    }
}

/// The events of a client.
pub struct Events {
    ask: Ask,
    every: Duration,
    /// How long the next event is waited for.
    wait: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    asked: Option<oneshot::Receiver<Bytes>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Events").field(&self.every).finish()
    }
}

impl Events {
    /// Events that are asked for at once, soon again, and then so often.
    pub fn new(every: Duration, ask: Ask) -> Events {
        Events {
            ask,
            every,
            wait: every / FIRST_PART,
            timer: None,
            asked: None,
        }
    }

    /// The next event; `None` after the last.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(asked) = &mut self.asked {
                let Poll::Ready(answer) = Pin::new(asked).poll(context) else {
                    return Poll::Pending;
                };
                self.asked = None;
                self.timer = Some(Box::pin(sleep(self.wait)));
                self.wait = (self.wait * 2).min(self.every);
                return Poll::Ready(answer.ok());
            }
            if let Some(timer) = &mut self.timer {
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.timer = None;
            }
            let (sender, receiver) = oneshot::channel();
            (self.ask)(Piece(sender));
            self.asked = Some(receiver);
        }
    }
}
