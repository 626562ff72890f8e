//! Connects to a peer, repeatedly until it answers.
//!
//! This runs on its own thread, since name resolution and connecting may block: it sleeps between two
//! attempts, and the worker sleeps until it is woken with the connection. So waiting costs the worker
//! nothing, and a stop takes effect immediately.
//!
//! Shutdown: dropping the [`Dialer`] ends the pause between two attempts immediately. An attempt in progress
//! ends within the time that a peer may take, and its connection is closed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;

use super::Endpoint;

/// The pause before reconnecting: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long to wait before reconnecting: twice as long after each attempt, unless a connection has lasted. So
/// a peer that accepts and closes immediately does not cause a busy loop.
#[derive(Debug)]
pub(crate) struct BackOff {
    next: Duration,
    /// The time of the last connection.
    since: Option<Instant>,
    /// Whether the loss of the last connection was reported, so that its successor is, too.
    was_said: bool,
}

impl BackOff {
    pub(crate) fn new() -> BackOff {
        BackOff {
            next: PAUSE_MIN,
            since: None,
            was_said: false,
        }
    }

    /// A connection is there.
    pub(crate) fn connected(&mut self) {
        self.since = Some(Instant::now());
    }

    /// The connection is lost, or there was none. Returns whether to report it: once, for a peer that goes
    /// away again as soon as it is there.
    pub(crate) fn lost(&mut self) -> bool {
        let lasted = self.since.take().map(|since| since.elapsed());
        if lasted.is_some_and(|lasted| lasted > PAUSE_MAX) {
            self.next = PAUSE_MIN;
        }
        self.was_said = self.next == PAUSE_MIN;
        self.was_said
    }

    /// Whether the loss of the previous connection was reported.
    pub(crate) fn was_said(&self) -> bool {
        self.was_said
    }

    /// The next pause: between half and all of it, so that many clients of one peer don't connect at once.
    fn pause(&mut self) -> Duration {
        let longest = self.next;
        self.next = (longest * 2).min(PAUSE_MAX);
        // Each of these has its own keys.
        let random = RandomState::new().build_hasher().finish();
        let half_ns = longest.as_nanos() as u64 / 2;
        Duration::from_nanos(half_ns + random % (half_ns + 1))
    }
}

/// Attempts to connect that continue until the peer answers.
#[derive(Debug)]
pub(crate) struct Dialer {
    /// Dropped with the dialer, which ends the thread's pause.
    _stop: Sender<()>,
    answer: Receiver<(TcpStream, BackOff)>,
}

impl Dialer {
    /// Connects until the peer answers, and then wakes the worker.
    pub(crate) fn start(endpoint: &Endpoint, back_off: BackOff, waker: Waker) -> Result<Dialer> {
        let (stop, stopped) = channel::<()>();
        let (answer, answered) = sync_channel(1);
        let called = endpoint.clone();
        let mut back_off = back_off;
        std::thread::Builder::new()
            .name("tcp".into())
            .spawn(move || {
                // Nothing is ever sent: this returns at the end or after the pause.
                while stopped.recv_timeout(back_off.pause()) == Err(RecvTimeoutError::Timeout) {
                    if let Ok(stream) = called.connect() {
                        back_off.connected();
                        // There is no receiver when the dialer was dropped meanwhile.
                        if answer.send((stream, back_off)).is_ok() {
                            waker.wake();
                        }
                        return;
                    }
                }
            })
            .map_err(|error| {
                let reason = format!("can't start a thread: {error}");
                Error::new(endpoint.address.clone(), reason)
            })?;
        Ok(Dialer {
            _stop: stop,
            answer: answered,
        })
    }

    /// The connection, if the peer has answered.
    pub(crate) fn answer(&self) -> Option<(TcpStream, BackOff)> {
        self.answer.try_recv().ok()
    }

    /// The connection, if the peer answers within the given time.
    pub(crate) fn answer_within(&self, time: Duration) -> Option<(TcpStream, BackOff)> {
        self.answer.recv_timeout(time).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Mode;
    use slackwater_engine::link::Waiter;
    use std::net::TcpListener;

    #[test]
    fn pauses_double_up_to_a_limit_and_are_spread() {
        let mut back_off = BackOff::new();
        assert!(back_off.lost());
        let mut longest = PAUSE_MIN;
        for _ in 0..12 {
            let pause = back_off.pause();
            assert!(longest / 2 <= pause && pause <= longest, "{pause:?}");
            longest = (longest * 2).min(PAUSE_MAX);
        }
        assert_eq!(longest, PAUSE_MAX);
        // A short connection changes nothing, and is not reported.
        back_off.connected();
        assert!(!back_off.lost());
        assert!(back_off.pause() >= PAUSE_MAX / 2);
        // A connection that lasted resets the pause.
        back_off.since = Instant::now().checked_sub(PAUSE_MAX * 2);
        assert!(back_off.lost());
        assert!(back_off.pause() <= PAUSE_MIN);
    }

    #[test]
    fn an_unavailable_peer_is_retried_until_it_answers() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint {
            table: "t".into(),
            address: address.local_addr().unwrap().to_string(),
            mode: Mode::Connect,
        };
        drop(address);
        let waiter = Waiter::new().unwrap();
        let dialer = Dialer::start(&endpoint, BackOff::new(), waiter.waker()).unwrap();
        assert!(dialer.answer().is_none());
        std::thread::sleep(PAUSE_MIN * 2);
        let peer = endpoint.listen().unwrap();
        peer.set_nonblocking(false).unwrap();
        let (stream, back_off) = dialer.answer_within(Duration::from_secs(30)).unwrap();
        assert_eq!(peer.accept().unwrap().1, stream.local_addr().unwrap());
        assert!(back_off.since.is_some());
    }
}
