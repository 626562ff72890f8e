//! The loops of the two sides: round trips, and one way as fast as it goes.
//!
//! Numbers count messages from zero; [`END`] ends an order on the follower's side and is sent back,
//! so both sides agree on what was measured.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use slackwater_link::{Listen, Sources};

use super::order::{Latency, Order, Pattern, Sample, Waiting};
use super::side::Side;
use super::{PATIENCE, median, thread_cpu};

/// The number of an order's last message.
pub const END: u64 = u64::MAX;

/// The number of empty polls between two readings of the clock.
const LOOKS_PER_READING: u32 = 1 << 16;

/// Round trips longer than this count as this long: far more than [`PATIENCE`] allows.
const ROUND_TRIP_MAX_NS: u64 = 100_000_000_000;

/// The shortest time of a batch of round trips, against which one reading of the clock is negligible.
const BATCH_TIME: Duration = Duration::from_micros(20);

/// The part of a ping-pong in which round trips are timed one by one; the rest is in batches.
const SINGLE_SHARE: f64 = 0.7;

/// Bytes between two looks at the clock while streaming: at 10 GB/s 26 µs.
const BYTES_PER_READING: usize = 256 << 10;

/// The most bytes of one stream: 8 GiB, which bounds what a fast link does in its time.
const STREAM_BYTES_MAX: u64 = 8 << 30;

/// Polls until something is there, and waits in between as the order says.
struct Patience {
    waiting: Waiting,
    looks: u32,
    since: Option<Instant>,
}

impl Patience {
    fn new(order: &Order) -> Patience {
        Patience {
            waiting: order.waiting,
            looks: 0,
            since: None,
        }
    }

    #[inline]
    fn until<S: Side, T>(
        &mut self,
        side: &mut S,
        mut look: impl FnMut(&mut S) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        loop {
            if let Some(found) = look(side)? {
                self.since = None;
                return Ok(found);
            }
            match self.waiting {
                Waiting::Poll => std::hint::spin_loop(),
                Waiting::Interrupt => {
                    if let Some(waiter) = side.waiter() {
                        waiter.announce(Listen::Everything);
                    }
                    if let Some(found) = look(side)? {
                        if let Some(waiter) = side.waiter() {
                            waiter.retract();
                        }
                        return Ok(found);
                    }
                    if let Some(waiter) = side.waiter() {
                        let woken = waiter.wait(Some(PATIENCE), Sources::All);
                        woken.map_err(|error| error.to_string())?;
                    }
                }
            }
            self.looks = self.looks.wrapping_add(1);
            if self.waiting == Waiting::Interrupt || self.looks.is_multiple_of(LOOKS_PER_READING) {
                self.check(side)?;
            }
        }
    }

    #[cold]
    fn check<S: Side>(&mut self, side: &S) -> Result<(), String> {
        if side.has_left() {
            return Err("the other side has left".to_string());
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            let waited_s = PATIENCE.as_secs();
            return Err(format!("nothing came from the other side for {waited_s} s"));
        }
        Ok(())
    }

    #[inline]
    fn receive<S: Side>(&mut self, side: &mut S) -> Result<u64, String> {
        self.until(side, S::receive)
    }

    #[inline]
    fn send<S: Side>(&mut self, side: &mut S, number: u64) -> Result<(), String> {
        if side.send(number)? {
            return Ok(());
        }
        self.send_later(side, number)
    }

    #[cold]
    fn send_later<S: Side>(&mut self, side: &mut S, number: u64) -> Result<(), String> {
        self.until(side, |side| {
            // So that the reader doesn't sleep while the link is full.
            side.push()?;
            Ok(side.send(number)?.then_some(()))
        })
    }

    /// Waits for the other side's answer to [`END`], and takes the buffers that come back before it.
    fn end<S: Side>(&mut self, side: &mut S) -> Result<(), String> {
        self.until(side, |side| {
            // Messages that the link has taken may still wait for room.
            side.push()?;
            while let Some(number) = side.receive()? {
                if number == END {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
    }
}

/// Executes an order as the follower and returns its CPU time. `ready` notifies the leader.
pub fn follow<S: Side>(
    side: &mut S,
    order: &Order,
    ready: impl FnOnce() -> Result<(), String>,
) -> Result<f64, String> {
    side.prepare(order)?;
    ready()?;
    let cpu = thread_cpu();
    let mut patience = Patience::new(order);
    let mut expected = 0;
    loop {
        let number = patience.receive(side)?;
        if number != expected && number != END {
            return Err(format!("received message {number} instead of {expected}"));
        }
        expected += 1;
        if number == END || order.pattern == Pattern::PingPong {
            patience.send(side, number)?;
            side.push()?;
        }
        if number == END {
            return Ok((thread_cpu() - cpu).as_secs_f64());
        }
    }
}

/// Executes an order as the leader; the caller fills in the follower's CPU time.
pub fn lead<S: Side>(side: &mut S, order: &Order) -> Result<Sample, String> {
    match order.pattern {
        Pattern::PingPong => lead_ping_pong(side, order),
        Pattern::Stream => lead_stream(side, order),
    }
}

fn lead_ping_pong<S: Side>(side: &mut S, order: &Order) -> Result<Sample, String> {
    let mut patience = Patience::new(order);
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, ROUND_TRIP_MAX_NS, 3).map_err(|e| e.to_string())?;
    let mut number = 0;
    let mut round_trip = |side: &mut S, patience: &mut Patience| -> Result<(), String> {
        patience.send(side, number)?;
        side.push()?;
        let answer = patience.receive(side)?;
        if answer != number {
            return Err(format!("message {answer} came back instead of {number}"));
        }
        number += 1;
        Ok(())
    };
    let cpu = thread_cpu();
    let begin = Instant::now();
    let single_until = begin + order.time().mul_f64(SINGLE_SHARE);
    loop {
        let sent = Instant::now();
        round_trip(side, &mut patience)?;
        let received = Instant::now();
        let took_ns = (received - sent).as_nanos() as u64;
        histogram.saturating_record(took_ns.max(1));
        if received >= single_until {
            break;
        }
    }
    let median_ns = histogram.value_at_quantile(0.5).max(1);
    let batch = (BATCH_TIME.as_nanos() as u64).div_ceil(median_ns);
    let mut means = Vec::new();
    let mut last = Instant::now();
    while means.is_empty() || begin.elapsed() < order.time() {
        for _ in 0..batch {
            round_trip(side, &mut patience)?;
        }
        let now = Instant::now();
        means.push((now - last).as_nanos() as f64 / batch as f64 / 2.0);
        last = now;
    }
    let wall_s = begin.elapsed().as_secs_f64();
    let sender_cpu_s = (thread_cpu() - cpu).as_secs_f64();
    patience.send(side, END)?;
    patience.end(side)?;
    let one_way = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 2.0;
    Ok(Sample {
        messages: number,
        wall_s,
        latency: Some(Latency {
            p50_ns: one_way(0.5),
            p99_ns: one_way(0.99),
            p999_ns: one_way(0.999),
            max_ns: histogram.max() as f64 / 2.0,
            batched_ns: median(means),
        }),
        sender_cpu_s,
        receiver_cpu_s: 0.0,
    })
}

fn lead_stream<S: Side>(side: &mut S, order: &Order) -> Result<Sample, String> {
    let mut patience = Patience::new(order);
    let batch = order.batch();
    let batch_bytes = batch * order.size_bytes;
    let batches_per_reading = (BYTES_PER_READING / batch_bytes).max(1);
    let messages_max = STREAM_BYTES_MAX / order.size_bytes as u64;
    let cpu = thread_cpu();
    let begin = Instant::now();
    let mut number = 0;
    while number < messages_max {
        for _ in 0..batches_per_reading {
            for _ in 0..batch {
                patience.send(side, number)?;
                number += 1;
            }
            side.push()?;
        }
        if begin.elapsed() >= order.time() {
            break;
        }
    }
    patience.send(side, END)?;
    patience.end(side)?;
    Ok(Sample {
        messages: number,
        wall_s: begin.elapsed().as_secs_f64(),
        latency: None,
        sender_cpu_s: (thread_cpu() - cpu).as_secs_f64(),
        receiver_cpu_s: 0.0,
    })
}
