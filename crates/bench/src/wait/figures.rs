//! The figures: medians over rounds, as tables and as JSON.

use serde::Serialize;

use super::arrivals::Arrivals;
use super::order::{MESSAGE_BYTES, Point, Received, Sent};
use super::oversleep::Oversleep;
use super::way::Way;
use crate::common::{Assumed, Latency};
use crate::lab::{median, spread};
use slackwater::measure::{Cores, Spread};

/// The smallest share of the due messages that must be received; with less, the throughput was lower.
pub const SHARE_MIN: f64 = 0.99;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The sender's core and the receiver's.
    pub cores: Cores,
    /// How messages arrived.
    pub arrivals: Arrivals,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The assumed cost of waiting for `auto`.
    #[serde(flatten)]
    pub assumed: Assumed,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point was measured in each round.
    pub seconds: f64,
    /// How late sleeps end: medians.
    pub oversleeps: Vec<Oversleep>,
    /// The sender alone, at each rate.
    pub baselines: Vec<Baseline>,
    /// Medians of each way at each rate.
    pub summaries: Vec<Summary>,
    /// Points that were measured again because other processes disturbed them.
    pub repeated: usize,
    /// Points that were disturbed nevertheless.
    pub disturbed: usize,
    /// Every point of every round.
    pub points: Vec<Point>,
}

/// A sender that does everything except sending.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Baseline {
    /// Messages per second.
    pub rate_per_s: f64,
    /// CPU time in percent of a core.
    pub percent: Spread,
    /// The 99th percentile of the time from when messages were due until they would have been sent.
    pub lag_p99_us: f64,
}

/// A way at a rate: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The way that was measured.
    pub way: Way,
    /// Messages per second.
    pub rate_per_s: f64,
    /// CPU time of the sender in percent of a core, including its waiting.
    pub sender_percent: f64,
    /// CPU time of the receiver in percent of a core.
    pub receiver_percent: f64,
    /// CPU time of both.
    pub total_percent: Spread,
    /// CPU time of both, less the sender alone.
    pub net_percent: f64,
    /// CPU time of the sender per message, less that of the sender alone.
    pub sender_us_per_message: f64,
    /// CPU time of the receiver per message.
    pub receiver_us_per_message: f64,
    /// CPU time of both for 1 GB of messages, less that of the sender alone.
    pub cpu_s_per_gb: f64,
    /// How often per second a thread of the sender went to sleep.
    pub sender_switches_per_s: f64,
    /// How often per second a thread of the receiver went to sleep.
    pub receiver_switches_per_s: f64,
    /// Messages received, as a share of those due.
    pub received_share: f64,
    /// The share of the time in which other processes kept a side from its core.
    pub disturbed: f64,
    /// Latency since messages were due.
    pub since_due: Latency,
    /// Latency since their sending began.
    pub since_sent: Latency,
    /// How often per second `auto` changed its mode.
    pub changes_per_s: f64,
}

impl Baseline {
    /// The medians of a rate's points, which must be of the sender alone.
    pub fn of(rate_per_s: f64, points: &[Point]) -> Option<Baseline> {
        let alone = points
            .iter()
            .filter(|point| point.way == Way::BASELINE && point.rate_per_s == rate_per_s)
            .collect::<Vec<_>>();
        (!alone.is_empty()).then(|| Baseline {
            rate_per_s,
            percent: spread(&alone, |point| point.sent.usage.percent()),
            lag_p99_us: median(&alone, |point| point.sent.lag.p99_us),
        })
    }
}

impl Summary {
    /// The medians of a way's points at the baseline's rate.
    pub fn of(way: Way, baseline: &Baseline, points: &[Point]) -> Option<Summary> {
        let rate_per_s = baseline.rate_per_s;
        let of_it = points.iter().filter(|point| point.way == way);
        let of_both = of_it
            .filter(|point| point.rate_per_s == rate_per_s)
            .collect::<Vec<_>>();
        let both = of_both
            .iter()
            .filter_map(|point| Some((point.sent, point.received?)));
        let both = both.collect::<Vec<_>>();
        if both.is_empty() {
            return None;
        }
        let total_percent = spread(&both, |(sent, received)| {
            sent.usage.percent() + received.usage.percent()
        });
        let sent = |pick: fn(&Sent) -> f64| median(&both, |(sent, _)| pick(sent));
        let received = |pick: fn(&Received) -> f64| median(&both, |(_, got)| pick(got));
        let latency = |pick: fn(&Received) -> Latency| {
            let latencies = both.iter().map(|(_, received)| pick(received));
            Latency::medians(&latencies.collect::<Vec<_>>())
        };
        let received_share = median(&both, |(sent, received)| {
            received.in_time as f64 / sent.due.max(1) as f64
        });
        let sender_percent = sent(|sent| sent.usage.percent());
        let receiver_percent = received(|received| received.usage.percent());
        // One percent of a core is 10 ms in a second. If hardly anything arrived, the figure is large,
        // but finite.
        let messages_per_s = rate_per_s * received_share.max(0.01);
        let us_per_message = |percent: f64| percent * 1e4 / messages_per_s;
        let sender_us_per_message = us_per_message(sender_percent - baseline.percent.median);
        let receiver_us_per_message = us_per_message(receiver_percent);
        let us_per_gb = 1e9 / MESSAGE_BYTES as f64;
        Some(Summary {
            way,
            rate_per_s,
            sender_percent,
            receiver_percent,
            total_percent,
            net_percent: total_percent.median - baseline.percent.median,
            sender_us_per_message,
            receiver_us_per_message,
            cpu_s_per_gb: (sender_us_per_message + receiver_us_per_message) * us_per_gb / 1e6,
            sender_switches_per_s: sent(|sent| {
                sent.usage.voluntary_switches as f64 / sent.usage.wall_s
            }),
            receiver_switches_per_s: received(|received| {
                received.usage.voluntary_switches as f64 / received.usage.wall_s
            }),
            received_share,
            disturbed: median(&of_both, |point| point.disturbed()),
            since_due: latency(|received| received.since_due),
            since_sent: latency(|received| received.since_sent),
            // Over the whole run and not the interval, because changes are rare.
            changes_per_s: both
                .iter()
                .map(|(_, received)| received.changes as f64 / received.usage.wall_s)
                .sum::<f64>()
                / both.len() as f64,
        })
    }

    /// Whether the receiver received the messages that were due.
    pub fn keeps_up(&self) -> bool {
        self.received_share >= SHARE_MIN
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::common::Usage;

    fn usage(cpu_s: f64) -> Usage {
        Usage {
            cpu_s,
            wall_s: 2.0,
            voluntary_switches: 100,
            waited_s: 0.0,
        }
    }

    /// A point of 1,000 messages a second over two seconds.
    pub fn point(way: Way, round: u32, sender_cpu_s: f64, receiver_cpu_s: Option<f64>) -> Point {
        Point {
            way,
            rate_per_s: 1_000.0,
            round,
            sent: Sent {
                usage: usage(sender_cpu_s),
                due: 2_000,
                lag: Latency::default(),
            },
            received: receiver_cpu_s.map(|cpu_s| Received {
                usage: usage(cpu_s),
                in_time: 2_000,
                since_due: Latency {
                    p99_us: 250.0,
                    ..Latency::default()
                },
                since_sent: Latency::default(),
                sleeps: 0,
                sleeps_ended_early: 0,
                parks: 0,
                changes: 0,
            }),
        }
    }

    #[test]
    fn a_summary_is_the_median_with_the_sender_alone_subtracted() {
        let mut points = Vec::new();
        for (round, (alone, sender, receiver)) in
            [(0.02, 0.06, 0.1), (0.02, 0.05, 0.2), (0.03, 0.9, 0.9)]
                .into_iter()
                .enumerate()
        {
            let round = round as u32;
            points.push(point(Way::BASELINE, round, alone, None));
            points.push(point(Way::PLAIN, round, sender, Some(receiver)));
        }
        let baseline = Baseline::of(1_000.0, &points).unwrap();
        assert!((baseline.percent.median - 1.0).abs() < 1e-9);
        assert!(Baseline::of(10.0, &points).is_none());
        let summary = Summary::of(Way::PLAIN, &baseline, &points).unwrap();
        assert!((summary.sender_percent - 3.0).abs() < 1e-9);
        assert!((summary.receiver_percent - 10.0).abs() < 1e-9);
        // Of the sums 8, 12.5 and 90 %.
        assert!((summary.total_percent.median - 12.5).abs() < 1e-9);
        assert!((summary.net_percent - 11.5).abs() < 1e-9);
        // 2 % of a core are 20 ms a second for 1,000 messages.
        assert!((summary.sender_us_per_message - 20.0).abs() < 1e-9);
        assert!((summary.receiver_us_per_message - 100.0).abs() < 1e-9);
        // Five million messages at 120 us.
        assert!((summary.cpu_s_per_gb - 600.0).abs() < 1e-6);
        assert_eq!(summary.received_share, 1.0);
        assert!(Summary::of(Way::BASELINE, &baseline, &points).is_none());
    }
}
