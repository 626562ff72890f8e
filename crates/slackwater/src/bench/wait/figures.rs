//! The figures: medians over rounds, as tables and as JSON.

use serde::Serialize;

use super::arrivals::Arrivals;
use super::host::{Host, Oversleep};
use super::order::{Latency, MESSAGE_BYTES, Point, tick_ns};
use super::verdict::Verdict;
use super::way::{Mode, Transport, Way};
use crate::measure::{Cores, median};

/// The least share of what was due that must have been received: below it the throughput was lower.
pub const SHARE_MIN: f64 = 0.99;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Where.
    pub host: Host,
    /// The sender's core and the receiver's.
    pub cores: Cores,
    /// How messages came.
    pub arrivals: Arrivals,
    /// Of the arrivals.
    pub seed: u64,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Rounds.
    pub rounds: u32,
    /// How long each point was measured in each of them.
    pub seconds: f64,
    /// How late sleeps end: medians.
    pub oversleeps: Vec<Oversleep>,
    /// The sender alone, rate by rate.
    pub baselines: Vec<Baseline>,
    /// Medians of each way at each rate.
    pub summaries: Vec<Summary>,
    /// The goals, met or missed.
    pub verdicts: Vec<Verdict>,
    /// Every point of every round.
    pub points: Vec<Point>,
}

/// A sender that does all but send.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Baseline {
    /// Messages per second.
    pub rate_per_s: f64,
    /// CPU time in per cent of a core.
    pub percent: f64,
    /// Each round's.
    pub percent_min: f64,
    /// Each round's.
    pub percent_max: f64,
    /// How long after they were due messages would have been sent.
    pub lag_p99_us: f64,
}

/// A way at a rate: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What was measured.
    pub way: Way,
    /// Messages per second.
    pub rate_per_s: f64,
    /// CPU time of the sender in per cent of a core, its waiting included.
    pub sender_percent: f64,
    /// CPU time of the receiver in per cent of a core.
    pub receiver_percent: f64,
    /// Of both.
    pub total_percent: f64,
    /// The smallest and the largest of the rounds.
    pub total_percent_min: f64,
    /// The largest.
    pub total_percent_max: f64,
    /// Of both, less the sender alone.
    pub net_percent: f64,
    /// CPU time of the sender for a message, less that of the sender alone.
    pub sender_us_per_message: f64,
    /// CPU time of the receiver for a message.
    pub receiver_us_per_message: f64,
    /// CPU time of both for 1 GB of messages, less that of the sender alone.
    pub cpu_s_per_gb: f64,
    /// How often the sender's threads went to sleep in a second.
    pub sender_switches_per_s: f64,
    /// And the receiver's.
    pub receiver_switches_per_s: f64,
    /// Messages received, as a share of those due.
    pub received_share: f64,
    /// From the time that a message was due.
    pub since_due: Latency,
    /// From the beginning of its sending.
    pub since_sent: Latency,
    /// How often `auto` changed its mode in a second.
    pub changes_per_s: f64,
}

impl Baseline {
    /// Of the points of a rate, which are the sender's alone.
    pub fn of(rate_per_s: f64, points: &[Point]) -> Option<Baseline> {
        let alone = points
            .iter()
            .filter(|point| point.way == Way::BASELINE && point.rate_per_s == rate_per_s)
            .collect::<Vec<_>>();
        let percents = alone.iter().map(|point| point.sent.usage.percent());
        let percents = percents.collect::<Vec<_>>();
        let lags = alone.iter().map(|point| point.sent.lag.p99_us);
        (!alone.is_empty()).then(|| Baseline {
            rate_per_s,
            percent_min: percents.iter().copied().fold(f64::INFINITY, f64::min),
            percent_max: percents.iter().copied().fold(0.0, f64::max),
            percent: median(percents),
            lag_p99_us: median(lags.collect()),
        })
    }
}

impl Summary {
    /// Of a way's points at the baseline's rate.
    pub fn of(way: Way, baseline: &Baseline, points: &[Point]) -> Option<Summary> {
        let rate_per_s = baseline.rate_per_s;
        let of_it = points.iter().filter(|point| point.way == way);
        let of_it = of_it.filter(|point| point.rate_per_s == rate_per_s);
        let both = of_it.filter_map(|point| Some((point.sent, point.received?)));
        let both = both.collect::<Vec<_>>();
        if both.is_empty() {
            return None;
        }
        let totals = both
            .iter()
            .map(|(sent, received)| sent.usage.percent() + received.usage.percent());
        let totals = totals.collect::<Vec<f64>>();
        let sent = |pick: fn(&super::order::Sent) -> f64| {
            median(both.iter().map(|(sent, _)| pick(sent)).collect())
        };
        let received = |pick: fn(&super::order::Received) -> f64| {
            median(both.iter().map(|(_, received)| pick(received)).collect())
        };
        let shares = both
            .iter()
            .map(|(sent, received)| received.in_time as f64 / sent.due.max(1) as f64);
        let received_share = median(shares.collect());
        let sender_percent = sent(|sent| sent.usage.percent());
        let receiver_percent = received(|received| received.usage.percent());
        // A per cent of a core is 10 ms in a second.
        let us_per_message = |percent: f64| percent * 1e4 / (rate_per_s * received_share);
        let sender_us_per_message = us_per_message(sender_percent - baseline.percent);
        let receiver_us_per_message = us_per_message(receiver_percent);
        let us_per_gb = 1e9 / MESSAGE_BYTES as f64;
        Some(Summary {
            way,
            rate_per_s,
            sender_percent,
            receiver_percent,
            total_percent_min: totals.iter().copied().fold(f64::INFINITY, f64::min),
            total_percent_max: totals.iter().copied().fold(0.0, f64::max),
            net_percent: median(totals.clone()) - baseline.percent,
            total_percent: median(totals),
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
            since_due: Latency {
                p50_us: received(|received| received.since_due.p50_us),
                p99_us: received(|received| received.since_due.p99_us),
                p999_us: received(|received| received.since_due.p999_us),
                max_us: received(|received| received.since_due.max_us),
            },
            since_sent: Latency {
                p50_us: received(|received| received.since_sent.p50_us),
                p99_us: received(|received| received.since_sent.p99_us),
                p999_us: received(|received| received.since_sent.p999_us),
                max_us: received(|received| received.since_sent.max_us),
            },
            // Over the run and not the interval, for what there is to see in it.
            changes_per_s: both
                .iter()
                .map(|(_, received)| received.changes as f64 / received.usage.wall_s)
                .sum::<f64>()
                / both.len() as f64,
        })
    }

    /// Whether it received what was due.
    pub fn keeps_up(&self) -> bool {
        self.received_share >= SHARE_MIN
    }
}

/// A rate as people write it: `10 k/s`.
pub fn rate(rate_per_s: f64) -> String {
    if rate_per_s >= 1e6 {
        format!("{} M/s", rate_per_s / 1e6)
    } else if rate_per_s >= 1e3 {
        format!("{} k/s", rate_per_s / 1e3)
    } else {
        format!("{rate_per_s}/s")
    }
}

/// Microseconds as people write them, with three digits.
fn time(us: f64) -> String {
    match us {
        ..99.95 => format!("{us:.1} us"),
        ..999.5 => format!("{us:.0} us"),
        ..9_995.0 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.1} ms", us / 1e3),
    }
}

impl Figures {
    fn at(&self, way: Way, rate_per_s: f64) -> Option<&Summary> {
        let mut summaries = self.summaries.iter();
        summaries.find(|summary| summary.way == way && summary.rate_per_s == rate_per_s)
    }

    fn modes(&self, transport: Transport) -> Vec<Mode> {
        let mut modes = Vec::new();
        for summary in &self.summaries {
            if summary.way.transport == transport && !modes.contains(&summary.way.mode) {
                modes.push(summary.way.mode);
            }
        }
        modes
    }

    /// A Markdown table with a row for each mode of each transport and a column for each rate.
    fn table(&self, first: Option<String>, cell: impl Fn(&Summary) -> String) -> String {
        let columns = self.baselines.iter().map(|base| base.rate_per_s);
        let columns = columns.collect::<Vec<f64>>();
        let mut text = "| messages by | reader waits |".to_string();
        for &column in &columns {
            text.push_str(&format!(" {} |", rate(column)));
        }
        text.push_str(&format!("\n|---|---|{}\n", "---|".repeat(columns.len())));
        text.extend(first);
        for transport in Transport::ALL {
            for mode in self.modes(transport) {
                text.push_str(&format!("| {} | {mode} |", transport.title()));
                for &column in &columns {
                    let summary = self.at(Way { transport, mode }, column);
                    text.push_str(&format!(" {} |", summary.map_or(String::new(), &cell)));
                }
                text.push('\n');
            }
        }
        text
    }

    /// The medians as people read them.
    pub fn text(&self) -> String {
        let host = &self.host;
        let mut text = format!(
            "{}; {} cores{}; Linux {}; load {:.2} before and {:.2} after\n",
            host.processor,
            host.cores,
            if host.virtualised {
                " of a virtual machine"
            } else {
                ""
            },
            host.kernel,
            host.load_before,
            host.load_after,
        );
        text.push_str(&format!(
            "messages of {} bytes, {} arrivals; {} round(s) of {} s a point, medians; sender on core \
             {}, receiver on core {}\n",
            self.message_bytes,
            self.arrivals,
            self.rounds,
            self.seconds,
            self.cores.leader,
            self.cores.follower
        ));
        for oversleep in &self.oversleeps {
            let late = oversleep.late;
            text.push_str(&format!(
                "a sleep of {} ends {} late (p50), {} (p99)\n",
                time(oversleep.sleep_us),
                time(late.p50_us),
                time(late.p99_us)
            ));
        }
        let ticks = self.baselines.iter().map(|base| tick_ns(base.rate_per_s));
        if let Some(tick_ns) = ticks.max().filter(|&tick_ns| tick_ns > 0) {
            text.push_str(&format!(
                "above 10 k/s the sender sends every {} what is due; latency counts from the due \
                 time\n",
                time(tick_ns as f64 / 1e3)
            ));
        }
        let alone = self.baselines.iter().map(|base| {
            format!(
                " {:.1}; {} |",
                base.percent,
                time(base.lag_p99_us)
            )
        });
        let alone = format!("| nothing | (sender alone) |{}\n", alone.collect::<String>());
        text.push_str(
            "\nCPU time in % of a core, sender + receiver, nothing subtracted; p99 latency since \
             due. ! less than 99 % received\n\n",
        );
        text.push_str(&self.table(Some(alone), |summary| {
            format!(
                "{:.1} + {:.1}; {}{}",
                summary.sender_percent,
                summary.receiver_percent,
                time(summary.since_due.p99_us),
                if summary.keeps_up() { "" } else { " !" }
            )
        }));
        text.push_str(
            "\nCPU time in us per message, sender (less the sender alone) + receiver; in s per GB \
             of messages\n\n",
        );
        text.push_str(&self.table(None, |summary| {
            format!(
                "{:.2} + {:.2}; {:.1}",
                summary.sender_us_per_message,
                summary.receiver_us_per_message,
                summary.cpu_s_per_gb
            )
        }));
        text.push_str(
            "\nLatency since due, p50 and p99.9; times a second that the sender + the receiver went \
             to sleep\n\n",
        );
        text.push_str(&self.table(None, |summary| {
            format!(
                "{}, {}; {:.0} + {:.0}",
                time(summary.since_due.p50_us),
                time(summary.since_due.p999_us),
                summary.sender_switches_per_s,
                summary.receiver_switches_per_s
            )
        }));
        if !self.verdicts.is_empty() {
            text.push_str(
                "\nGoals, on CPU time of sender and receiver less the sender alone (raw: nothing \
                 subtracted)\n\n",
            );
        }
        for verdict in &self.verdicts {
            text.push_str(&format!("- {}\n", verdict.line()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wait::order::{Received, Sent, Usage};

    fn usage(cpu_s: f64) -> Usage {
        Usage {
            cpu_s,
            wall_s: 2.0,
            voluntary_switches: 100,
        }
    }

    fn point(way: Way, round: u32, sender_cpu_s: f64, receiver_cpu_s: Option<f64>) -> Point {
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
        assert!((baseline.percent - 1.0).abs() < 1e-9);
        assert!(Baseline::of(10.0, &points).is_none());
        let summary = Summary::of(Way::PLAIN, &baseline, &points).unwrap();
        assert!((summary.sender_percent - 3.0).abs() < 1e-9);
        assert!((summary.receiver_percent - 10.0).abs() < 1e-9);
        // Of the sums 8, 12.5 and 90 %.
        assert!((summary.total_percent - 12.5).abs() < 1e-9);
        assert!((summary.net_percent - 11.5).abs() < 1e-9);
        // 2 % of a core are 20 ms a second for 1,000 messages.
        assert!((summary.sender_us_per_message - 20.0).abs() < 1e-9);
        assert!((summary.receiver_us_per_message - 100.0).abs() < 1e-9);
        // Five million messages at 120 us.
        assert!((summary.cpu_s_per_gb - 600.0).abs() < 1e-6);
        assert_eq!(summary.received_share, 1.0);
        assert!(Summary::of(Way::BASELINE, &baseline, &points).is_none());
    }

    #[test]
    fn tables_have_a_row_for_each_way() {
        let points = vec![
            point(Way::BASELINE, 0, 0.02, None),
            point(Way::PLAIN, 0, 0.06, Some(0.1)),
        ];
        let baseline = Baseline::of(1_000.0, &points).unwrap();
        let figures = Figures {
            host: Host::this(),
            cores: Cores {
                leader: 0,
                follower: 1,
            },
            arrivals: Arrivals::Poisson,
            seed: 1,
            message_bytes: MESSAGE_BYTES,
            rounds: 1,
            seconds: 2.0,
            oversleeps: Vec::new(),
            summaries: vec![Summary::of(Way::PLAIN, &baseline, &points).unwrap()],
            baselines: vec![baseline],
            verdicts: Vec::new(),
            points,
        };
        let text = figures.text();
        assert!(text.contains("| 1 k/s |"), "{text}");
        assert!(text.contains("| plain TCP | interrupt | 3.0 + 5.0; 250 us |"), "{text}");
        assert!(text.contains("20.00 + 50.00; 350.0"), "{text}");
    }

    #[test]
    fn rates_and_times_are_short() {
        let rates = [100.0, 1e3, 1e4, 2.5e5, 1e6].map(rate);
        assert_eq!(rates, ["100/s", "1 k/s", "10 k/s", "250 k/s", "1 M/s"]);
        let times = [3.14, 99.97, 999.6, 12_345.0].map(time);
        assert_eq!(times, ["3.1 us", "100 us", "1.00 ms", "12.3 ms"]);
    }
}
