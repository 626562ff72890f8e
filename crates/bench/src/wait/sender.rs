//! The sender: an open loop over absolute deadlines.
//!
//! It waits in the same way whatever is measured: it sleeps until the next message is due or, at high
//! rates, until the next tick, to avoid a sleep per message. The latency of a message that it sent late,
//! or that found no room, counts from the time at which it was due.

use slackwater_engine::time::now_ns;

use super::arrivals::Schedule;
use super::ends::{Message, SendingEnd};
use super::order::{GRACE_NS, Interval, Latency, Order, Sent, histogram};
use super::usage::Meter;
use crate::common::sleep_until;

/// Messages between two readings of the clock while more are due: some microseconds of sending.
const MESSAGES_PER_READING: u32 = 32;

/// A sender that is this far behind after the interval's end stops.
const BEHIND_MAX_NS: u64 = 500_000_000;

/// Sends what the order requests; returns the measurements.
pub fn send(order: &Order, interval: Interval, end: &mut SendingEnd) -> Result<Sent, String> {
    let start_ns = interval.begin_ns - order.warm_up_ns;
    let mut schedule = Schedule::new(order.arrivals, order.rate_per_s, order.seed, start_ns);
    let mut due_ns = schedule.next_due_ns();
    let mut meter = Meter::new(interval);
    let mut lags = histogram();
    let (mut number, mut due, mut beyond) = (0, 0, false);
    let mut now_ns = now_ns();
    loop {
        // Messages continue after the interval, so that its last ones are not the last of all; the first
        // one after it, which ends the measurement on both sides, is always sent.
        let over = due_ns >= interval.end_ns + GRACE_NS && beyond;
        if over || now_ns >= interval.end_ns + BEHIND_MAX_NS {
            break;
        }
        now_ns = sleep_until(due_ns.max(now_ns + order.tick_ns()));
        meter.at(now_ns);
        let mut unread = 0;
        while due_ns <= now_ns {
            end.send(&Message::new(number, due_ns, now_ns))?;
            number += 1;
            if interval.contains(due_ns) {
                lags.saturating_record(now_ns - due_ns);
                due += 1;
            }
            beyond |= due_ns >= interval.end_ns;
            due_ns = schedule.next_due_ns();
            unread += 1;
            if unread == MESSAGES_PER_READING {
                // The rest of a backlog is not sent now, and waiting for room may take long.
                unread = 0;
                now_ns = self::now_ns();
                end.push()?;
            }
        }
        end.push()?;
    }
    let usage = meter.finish();
    while due_ns < interval.end_ns {
        due += 1;
        due_ns = schedule.next_due_ns();
    }
    Ok(Sent {
        usage,
        due,
        lag: Latency::of(&lags),
    })
}
