//! What a run hears: one bounded queue for each attempt to run the query, so that nothing of an earlier
//! attempt is heard in a later one. Signals are for all of them.

use std::sync::{Mutex, mpsc};

use super::coordinator::Stored;
use crate::hosts::HostEvent;

/// Events that may wait for the supervisor, some 200 bytes each; whoever has more waits. The supervisor
/// never waits for one of them in turn, and hears none of them once it ends what it runs.
const RUN_EVENTS_MAX: usize = 1024;

/// What a run hears.
pub enum RunEvent {
    /// From the host that runs the query.
    Host(HostEvent),
    /// From the coordinator's thread.
    Stored(Stored),
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
}

/// Passes signals on to whoever listens, or keeps one until somebody does.
#[derive(Default)]
pub struct Signals(Mutex<Listening>);

#[derive(Default)]
struct Listening {
    sender: Option<mpsc::SyncSender<RunEvent>>,
    is_unheard: bool,
}

impl Signals {
    /// A queue for what is to be heard from now on.
    pub fn listen(&self) -> (mpsc::SyncSender<RunEvent>, mpsc::Receiver<RunEvent>) {
        let (sender, events) = mpsc::sync_channel(RUN_EVENTS_MAX);
        let mut listening = self.0.lock().expect("no thread panics under it");
        if std::mem::take(&mut listening.is_unheard) {
            // There is room: nobody else has the queue yet.
            let _ = sender.try_send(RunEvent::Signal);
        }
        listening.sender = Some(sender.clone());
        (sender, events)
    }

    /// A signal has come. It doesn't wait where the queue is full: a run that hears nothing has more to do
    /// than it can, and the user sends another one.
    pub fn raise(&self) {
        let mut listening = self.0.lock().expect("no thread panics under it");
        let sender = listening.sender.as_ref();
        let is_heard = sender.is_some_and(|sender| sender.try_send(RunEvent::Signal).is_ok());
        if !is_heard {
            listening.is_unheard = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_between_two_attempts_is_heard_by_the_second() {
        let signals = Signals::default();
        let (_sender, first) = signals.listen();
        signals.raise();
        assert!(matches!(first.try_recv(), Ok(RunEvent::Signal)));
        drop(first);
        signals.raise();
        let (_sender, second) = signals.listen();
        assert!(matches!(second.try_recv(), Ok(RunEvent::Signal)));
        assert!(second.try_recv().is_err(), "once");
    }
}
