//! The events of a run: one bounded queue for each attempt to run the query, so that a later attempt receives
//! no events of an earlier one. Signals are for all attempts.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, mpsc};

use super::coordinator::Stored;
use crate::hosts::HostEvent;
use crate::metrics::Look;
use crate::standby::Heard;

/// The most events that may wait for the supervisor, about 200 bytes each; then senders wait. The supervisor
/// never waits for a sender, and receives no events once it ends the attempt.
const RUN_EVENTS_MAX: usize = 1024;

/// An event of a run.
pub enum RunEvent {
    /// An event of the host.
    Host(HostEvent),
    /// A finished job of the coordinator's thread.
    Stored(Stored),
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// Somebody wants to see how the query stands.
    Look(Look),
    /// A reader waits for the rows of a materialized view.
    Read,
    /// A host has joined, or is to leave.
    Hosts,
    /// The question why nothing comes out, and where the answer goes.
    Why(mpsc::SyncSender<String>),
    /// Somebody changes a latency target.
    Retarget(Retarget),
    /// The standby has come or gone, or is to go on.
    Door,
    /// What a run that stands by hears of the active one.
    Active(Heard),
}

/// New latency targets. Dropping them says that nobody has heard them.
pub struct Retarget {
    /// The nodes of sinks, with their targets in nanoseconds.
    pub targets: Vec<(usize, u64)>,
    /// Called when they are in force.
    pub done: Box<dyn FnOnce() + Send>,
}

/// Passes signals on to the current attempt, or keeps one until there is an attempt. Passes scrapes on, too.
#[derive(Default)]
pub struct Signals {
    listening: Mutex<Listening>,
    /// Called whenever an incarnation has begun.
    begun: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Called with the address at which hosts join.
    listens: OnceLock<Box<dyn Fn(SocketAddr) + Send + Sync>>,
    /// Why rows were late and the like, as of the end of the last attempt.
    diagnosis: Mutex<Option<String>>,
}

#[derive(Default)]
struct Listening {
    sender: Option<mpsc::SyncSender<RunEvent>>,
    is_unheard: bool,
    /// Whether a signal has come since the start.
    was_raised: bool,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Signals {
    /// Calls `tell` whenever an incarnation has begun. Only the first call counts.
    pub fn when_begun(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.begun.set(Box::new(tell));
    }

    /// Calls `tell` when hosts can join, with the address. Only the first call counts.
    pub fn when_listening(&self, tell: impl Fn(SocketAddr) + Send + Sync + 'static) {
        let _ = self.listens.set(Box::new(tell));
    }

    /// Hosts can join at an address.
    pub fn listens(&self, address: SocketAddr) {
        if let Some(tell) = self.listens.get() {
            tell(address);
        }
    }

    /// An incarnation has begun.
    pub fn has_begun(&self) {
        if let Some(tell) = self.begun.get() {
            tell();
        }
    }

    /// Creates the queue of a new attempt.
    pub fn listen(&self) -> (mpsc::SyncSender<RunEvent>, mpsc::Receiver<RunEvent>) {
        let (sender, events) = mpsc::sync_channel(RUN_EVENTS_MAX);
        let mut listening = self.lock();
        if std::mem::take(&mut listening.is_unheard) {
            // There is room, because the queue is new.
            let _ = sender.try_send(RunEvent::Signal);
        }
        listening.sender = Some(sender.clone());
        (sender, events)
    }

    /// Passes a scrape on. If nobody hears it, it is dropped, which answers it with what is known.
    pub fn look(&self, look: Look) {
        let sender = self.lock().sender.clone();
        if let Some(sender) = sender {
            let _ = sender.try_send(RunEvent::Look(look));
        }
    }

    /// Tells the current attempt that a reader waits. Without an attempt, the reader asks again when there
    /// is one.
    pub fn read(&self) {
        let sender = self.lock().sender.clone();
        if let Some(sender) = sender {
            // The queue has no receiver only when the attempt is over.
            let _ = sender.send(RunEvent::Read);
        }
    }

    /// Passes a question on to the current attempt, if there is one: otherwise the caller's queue is closed.
    pub fn ask(&self, reply: mpsc::SyncSender<String>) {
        let listening = self.lock();
        if let Some(sender) = &listening.sender {
            let _ = sender.try_send(RunEvent::Why(reply));
        }
    }

    /// Keeps what the attempt that has just ended knows, for questions that come later.
    pub fn keep_diagnosis(&self, text: String) {
        *self.diagnosis.lock().expect("no thread panics under it") = Some(text);
    }

    /// What the last attempt that has ended knew.
    pub fn last_diagnosis(&self) -> Option<String> {
        let diagnosis = self.diagnosis.lock();
        diagnosis.expect("no thread panics under it").clone()
    }

    /// Passes a new target on. If nobody hears it, it is dropped.
    pub fn retarget(&self, retarget: Retarget) {
        let sender = self.lock().sender.clone();
        if let Some(sender) = sender {
            let _ = sender.try_send(RunEvent::Retarget(retarget));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listening> {
        self.listening.lock().expect("no thread panics under it")
    }

    /// Hears of hosts, orchestrators and signals from now on, instead of an attempt.
    pub fn hear(&self) -> News<'_> {
        let (_sender, events) = self.listen();
        News {
            signals: self,
            _sender,
            events,
        }
    }

    /// Tells the current attempt that a host has joined or is to leave.
    pub fn hosts(&self) {
        let sender = self.lock().sender.clone();
        if let Some(sender) = sender {
            // An attempt that is busy looks at its hosts when it ends.
            let _ = sender.try_send(RunEvent::Hosts);
        }
    }

    /// Tells the current attempt that its standby has come or gone, or is to go on. Each attempt looks at
    /// that when it begins.
    pub fn door(&self) {
        let sender = self.lock().sender.clone();
        if let Some(sender) = sender {
            let _ = sender.try_send(RunEvent::Door);
        }
    }

    /// Whether a signal has come that no attempt has heard.
    pub fn is_raised(&self) -> bool {
        self.lock().is_unheard
    }

    /// A signal has come.
    pub fn raise(&self) {
        self.lock().was_raised = true;
        self.stop();
    }

    /// Whether a signal has come since the start.
    pub fn was_raised(&self) -> bool {
        self.lock().was_raised
    }

    /// Forgets a [`Signals::stop`] that no attempt has heard.
    pub fn resume(&self) {
        let mut listening = self.lock();
        listening.is_unheard = listening.was_raised;
    }

    /// Ends the current attempt. If its queue is full that is dropped, and the user can send another signal.
    pub fn stop(&self) {
        let mut listening = self.lock();
        let sender = listening.sender.as_ref();
        let is_heard = sender.is_some_and(|sender| sender.try_send(RunEvent::Signal).is_ok());
        if !is_heard {
            listening.is_unheard = true;
        }
    }
}

/// News that come while no attempt runs. What comes before somebody waits is kept, and a signal that nobody
/// has waited for is left to the next attempt.
pub struct News<'a> {
    signals: &'a Signals,
    /// Keeps the queue open.
    _sender: mpsc::SyncSender<RunEvent>,
    events: mpsc::Receiver<RunEvent>,
}

impl News<'_> {
    /// Waits for the next; returns false if it is a signal.
    pub fn wait(&self) -> bool {
        !matches!(self.events.recv(), Ok(RunEvent::Signal) | Err(_))
    }
}

impl Drop for News<'_> {
    fn drop(&mut self) {
        // With the lock, so that none comes in between.
        let mut listening = self.signals.lock();
        let mut left = self.events.try_iter();
        listening.is_unheard |= left.any(|event| matches!(event, RunEvent::Signal));
        listening.sender = None;
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

    #[test]
    fn news_that_come_before_somebody_waits_are_heard() {
        let signals = Signals::default();
        let news = signals.hear();
        signals.hosts();
        assert!(news.wait(), "or it would wait for ever");
        signals.raise();
        assert!(!news.wait());
        drop(news);
        assert!(!signals.is_raised(), "it was heard");
    }

    #[test]
    fn a_signal_that_nobody_has_waited_for_is_left_to_the_next_attempt() {
        let signals = Signals::default();
        let news = signals.hear();
        signals.raise();
        drop(news);
        let (_sender, events) = signals.listen();
        assert!(matches!(events.try_recv(), Ok(RunEvent::Signal)));
    }
}
