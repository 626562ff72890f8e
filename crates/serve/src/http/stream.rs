//! A body that is sent while it is produced, by a thread that may block.
//!
//! ```text
//! thread ─► Outlet ─ at most PIECES_MAX ─► Stream ─► client
//! ```
//!
//! - A slow client holds the thread up, and nothing is kept for it but these pieces.
//! - When the client has gone, or takes too long, the work is cancelled, which wakes a thread that waits for
//!   rows.
//! - A thread that ends without [`Outlet::end`] breaks the answer off, so that no client takes a part of it
//!   for the whole.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{self, channel as bounded};
use tokio::time::{Sleep, sleep};

use crate::backend::Cancelled;

/// The most pieces that wait for a client.
const PIECES_MAX: usize = 4;

/// Where the pieces of a body go.
#[derive(Debug)]
pub struct Outlet(mpsc::Sender<Option<Bytes>>);

impl Outlet {
    /// Sends a piece, and waits until there is room for it. Returns whether the client still wants more.
    pub fn send(&self, piece: Bytes) -> bool {
        self.0.blocking_send(Some(piece)).is_ok()
    }

    /// The body is whole.
    pub fn end(self) {
        let _ = self.0.blocking_send(None);
    }
}

/// The pieces of a body.
#[derive(Debug)]
pub struct Stream {
    pieces: mpsc::Receiver<Option<Bytes>>,
    cancelled: Cancelled,
    /// Whether it goes on as long as the client listens.
    lasts: bool,
    late: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(lasts: bool, cancelled: Cancelled) -> (Outlet, Stream) {
        let (sender, pieces) = bounded(PIECES_MAX);
        let stream = Stream {
            pieces,
            cancelled,
            lasts,
            late: None,
        };
        (Outlet(sender), stream)
    }

    /// Whether it goes on as long as the client listens.
    pub(super) fn lasts(&self) -> bool {
        self.lasts
    }

    /// Breaks it off after this time, unless it lasts.
    pub(super) fn end_within(&mut self, time: Duration) {
        if !self.lasts {
            self.late = Some(Box::pin(sleep(time)));
        }
    }

    /// The next piece; `None` after the last.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let late = self.late.as_mut();
        if late.is_some_and(|late| late.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some(Some(piece)) => Some(Ok(piece)),
            Some(None) => None,
            None => Some(Err(io::ErrorKind::BrokenPipe.into())),
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}
