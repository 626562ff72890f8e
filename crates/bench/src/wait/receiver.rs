//! The receiver: does what a worker does, with a tally instead of operators.

use hdrhistogram::Histogram;
use slackwater_engine::time::now_ns;
use slackwater_link::idle::IdleCounters;
use slackwater_link::{Idle, IdleStrategy, Woken};

use super::ends::{ReceivingEnd, ReceivingLink, TIMEOUT, until};
use super::order::{GRACE_NS, Interval, Latency, MESSAGE_BYTES, Order, Received, histogram};
use super::usage::Meter;

/// Messages of one look that share a reading of the clock: some microseconds of receiving.
const MESSAGES_PER_READING: u32 = 32;

/// Receives until the sender has finished; returns the measurements.
pub fn receive(
    order: &Order,
    interval: Interval,
    end: &mut ReceivingEnd,
) -> Result<Received, String> {
    let mut tally = Tally::new(interval);
    let counters = match end {
        ReceivingEnd::Link(link) => work(order, link, &mut tally)?,
        ReceivingEnd::Plain(reader) => {
            let mut open = true;
            while open {
                tally.look();
                open = reader.read(|message| tally.take(message))?;
            }
            IdleCounters::default()
        }
    };
    Ok(tally.finish(counters))
}

/// The loop of a worker: look; if there was nothing, look again, or announce, look once more and wait, as
/// the strategy decides.
fn work(
    order: &Order,
    link: &mut ReceivingLink,
    tally: &mut Tally,
) -> Result<IdleCounters, String> {
    let mut idle = IdleStrategy::new(order.way.mode.0, order.costs.into());
    loop {
        if look(link, tally)? {
            idle.worked();
            continue;
        }
        if link.receiver.is_closed() {
            return Ok(idle.counters());
        }
        let wait = match idle.idle(now_ns) {
            Idle::Spin => {
                std::hint::spin_loop();
                continue;
            }
            Idle::Wait(wait) => wait,
        };
        link.waiter.announce(wait.listen);
        if look(link, tally)? {
            link.waiter.retract();
            idle.worked();
            continue;
        }
        if link.receiver.is_closed() {
            link.waiter.retract();
            return Ok(idle.counters());
        }
        let wait = wait.bounded(link.receiver.due_ns().map(until), true);
        let timeout = wait.timeout.unwrap_or(TIMEOUT);
        let woken = link.waiter.wait(Some(timeout), wait.sources);
        let woken = woken.map_err(|error| error.to_string())?;
        if wait.timeout.is_none() && woken == Woken::TimedOut {
            return Err("the receiver was not woken: a wake-up was lost".to_string());
        }
        idle.woke(now_ns(), woken);
    }
}

/// Receives everything available; returns whether there was anything.
#[inline]
fn look(link: &mut ReceivingLink, tally: &mut Tally) -> Result<bool, String> {
    tally.look();
    let mut found = false;
    while let Some(frame) = link.receiver.receive().map_err(|error| error.to_string())? {
        tally.take(&frame)?;
        found = true;
    }
    Ok(found)
}

/// The messages that arrived, and when.
struct Tally {
    interval: Interval,
    meter: Meter,
    next_number: u64,
    now_ns: u64,
    /// Messages until the next reading of the clock.
    until_reading: u32,
    in_time: u64,
    since_due: Histogram<u64>,
    since_sent: Histogram<u64>,
}

impl Tally {
    fn new(interval: Interval) -> Tally {
        Tally {
            interval,
            meter: Meter::new(interval),
            next_number: 0,
            now_ns: 0,
            until_reading: 0,
            in_time: 0,
            since_due: histogram(),
            since_sent: histogram(),
        }
    }

    /// Notes that the next message follows a pause.
    #[inline]
    fn look(&mut self) {
        self.until_reading = 0;
    }

    #[inline]
    fn take(&mut self, message: &[u8]) -> Result<(), String> {
        let Some((stamps, _)) = message.split_first_chunk::<24>() else {
            return Err(format!("received a message of {} bytes", message.len()));
        };
        let word = |at: usize| {
            let bytes = stamps[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let (number, due_ns, sent_ns) = (word(0), word(8), word(16));
        if number != self.next_number || message.len() != MESSAGE_BYTES {
            return Err(format!(
                "received message {number} of {} bytes instead of message {}",
                message.len(),
                self.next_number
            ));
        }
        self.next_number += 1;
        if self.until_reading == 0 {
            self.until_reading = MESSAGES_PER_READING;
            self.now_ns = now_ns();
        }
        self.until_reading -= 1;
        self.meter.at(due_ns);
        if self.interval.contains(due_ns) {
            // A message may arrive up to some microseconds after the reading that it shares.
            self.since_due
                .saturating_record(self.now_ns.saturating_sub(due_ns));
            self.since_sent
                .saturating_record(self.now_ns.saturating_sub(sent_ns));
            self.in_time += u64::from(self.now_ns < self.interval.end_ns + GRACE_NS);
        }
        Ok(())
    }

    fn finish(self, counters: IdleCounters) -> Received {
        Received {
            usage: self.meter.finish(),
            in_time: self.in_time,
            since_due: Latency::of(&self.since_due),
            since_sent: Latency::of(&self.since_sent),
            sleeps: counters.sleeps,
            sleeps_ended_early: counters.sleeps_ended_early,
            parks: counters.parks,
            changes: counters.changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::ends::Message;

    #[test]
    fn the_tally_counts_what_was_due_within_the_interval() {
        let now_ns = now_ns();
        let interval = Interval {
            begin_ns: now_ns - 1_000_000,
            end_ns: now_ns + 1_000_000,
        };
        let mut tally = Tally::new(interval);
        let dues = [now_ns - 2_000_000, now_ns - 1_000_000, now_ns - 500_000];
        for (number, due_ns) in dues.into_iter().enumerate() {
            let message = Message::new(number as u64, due_ns, due_ns + 100_000);
            assert_eq!(tally.take(&message), Ok(()));
        }
        let again = tally.take(&Message::new(2, now_ns, now_ns));
        assert!(again.unwrap_err().contains("instead of message 3"));
        let received = tally.finish(IdleCounters::default());
        assert_eq!(received.in_time, 2);
        let (due_us, sent_us) = (received.since_due.p50_us, received.since_sent.p50_us);
        assert!(due_us >= 500.0 && sent_us >= 400.0 && sent_us < due_us);
    }

    #[test]
    fn a_message_of_a_wrong_length_is_rejected() {
        let mut tally = Tally::new(Interval {
            begin_ns: 0,
            end_ns: 1,
        });
        assert!(tally.take(&[0; 8]).is_err());
        assert!(tally.take(&[0; 100]).is_err());
    }
}
