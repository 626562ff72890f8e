//! Visible lag: messages that are published at the master hold the time at which they were due, and a
//! subscriber at the replica sees when they are visible there.
//!
//! A probe costs the replica a message to a subscriber, in every way that is compared alike.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;

use hdrhistogram::Histogram;
use slackwater_engine::time::now_ns;

use super::client::Client;
use super::resp::{self, Reply};
use crate::common::histogram;

/// The channel's name.
const CHANNEL: &[u8] = b"slackwater-probe";

/// Probes per second, on average.
pub const PROBES_PER_S: f64 = 50.0;

/// When probes are due: at random times, because regular ones would meet a beat at the same place each time.
pub struct Probes {
    random: fastrand::Rng,
    next_ns: u64,
}

impl Probes {
    /// Probes from now on.
    pub fn new(seed: u64) -> Probes {
        Probes {
            random: fastrand::Rng::with_seed(seed),
            next_ns: now_ns(),
        }
    }

    /// Whether a probe belongs to the write that is due at this time.
    pub fn is_due(&mut self, due_ns: u64) -> bool {
        let is_due = due_ns >= self.next_ns;
        if is_due {
            let gap_ns = (0.2 + 1.6 * self.random.f64()) / PROBES_PER_S * 1e9;
            self.next_ns = due_ns + gap_ns as u64;
        }
        is_due
    }
}

/// Appends a probe.
pub fn command(bytes: &mut Vec<u8>, due_ns: u64) {
    resp::command(bytes, &[b"PUBLISH", CHANNEL, due_ns.to_string().as_bytes()]);
}

/// A subscriber at a replica.
pub struct Listener {
    stream: TcpStream,
    thread: JoinHandle<Histogram<u64>>,
}

impl Listener {
    /// Subscribes.
    ///
    /// # Errors
    ///
    /// If the replica does not answer.
    pub fn start(replica: SocketAddr) -> Result<Listener, String> {
        let mut client = Client::connect(replica)?;
        client.call(&["SUBSCRIBE", &String::from_utf8_lossy(CHANNEL)])?;
        let stream = client.stream()?;
        let thread = std::thread::spawn(move || {
            let mut lags = histogram();
            while let Ok(message) = client.receive() {
                let now_ns = now_ns();
                if let Some(due_ns) = due_ns(&message) {
                    lags.saturating_record(now_ns.saturating_sub(due_ns));
                }
            }
            lags
        });
        Ok(Listener { stream, thread })
    }

    /// The lags of all probes that were seen, in nanoseconds.
    ///
    /// # Errors
    ///
    /// If the subscriber failed.
    pub fn end(self) -> Result<Histogram<u64>, String> {
        // The server may have ended the connection before.
        let _ = self.stream.shutdown(Shutdown::Both);
        let failed = |_| "the subscriber has failed".to_string();
        self.thread.join().map_err(failed)
    }
}

/// The time in a message, in nanoseconds.
fn due_ns(message: &Reply) -> Option<u64> {
    let Reply::Array(parts) = message else {
        return None;
    };
    parts.get(2)?.text()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_as_many_as_wanted() {
        let mut probes = Probes::new(1);
        let begin_ns = now_ns();
        let due = (0..100_000).filter(|number| probes.is_due(begin_ns + number * 100_000));
        // 10 s with a write each 100 us.
        assert!((450..550).contains(&due.count()));
    }

    #[test]
    fn only_messages_with_a_time_are_probes() {
        let text = |text: &str| Reply::String(Some(text.as_bytes().to_vec()));
        let message = |last: Reply| Reply::Array(vec![text("message"), text("c"), last]);
        assert_eq!(due_ns(&message(text("17"))), Some(17));
        assert_eq!(due_ns(&message(text("x"))), None);
        assert_eq!(due_ns(&message(Reply::Number(1))), None);
        assert_eq!(due_ns(&Reply::Number(1)), None);
    }
}
