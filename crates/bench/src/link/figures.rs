//! The figures: what each round measured, and the medians over rounds.

use serde::Serialize;

use slackwater::measure::order::{Answer, Order, Pattern, Sample, Waiting};
use slackwater::measure::{Cores, Spread};

use crate::lab::spread;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The two cores.
    pub cores: Cores,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point was measured in a round, in milliseconds.
    pub point_ms: u64,
    /// The limits of the host.
    pub floor: FloorSpread,
    /// Each kind at each point.
    pub points: Vec<Measured>,
    /// The measurements of each round, from which goals calculate ratios.
    #[serde(skip)]
    pub samples: Samples,
}

/// The limits of the host, in one round.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    pub clock_ns: f64,
    pub line_one_way_ns: f64,
    pub copy_gb_per_s: f64,
}

/// The limits of the host.
#[derive(Debug, Serialize)]
pub struct FloorSpread {
    /// Reading the clock once.
    pub clock_ns: Spread,
    /// Moving a cache line from one core to the other.
    pub line_one_way_ns: Spread,
    /// Copying memory as large as a ring on one core.
    pub copy_gb_per_s: Spread,
}

/// A measured point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The kind.
    pub kind: String,
    /// The pattern of messages.
    pub pattern: Pattern,
    /// How a side waits that has nothing to do.
    pub waiting: Waiting,
    /// Bytes of a message.
    pub size_bytes: usize,
}

impl Point {
    pub fn of(kind: &str, order: &Order) -> Point {
        Point {
            kind: kind.to_string(),
            pattern: order.pattern,
            waiting: order.waiting,
            size_bytes: order.size_bytes,
        }
    }
}

/// What one round measured. The points are the same in each.
pub type Round = Vec<(Point, Answer)>;

/// What all rounds measured.
#[derive(Debug, Default)]
pub struct Samples {
    pub rounds: Vec<Round>,
    pub floors: Vec<Floor>,
}

/// A kind at a point: medians over rounds.
#[derive(Debug, PartialEq, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub point: Point,
    /// The reason, if the kind does not support this point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// One-way latency; for ping-pong only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencySpread>,
    /// Throughput and its cost; for both patterns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
}

/// One-way latency in nanoseconds.
#[derive(Debug, PartialEq, Serialize)]
pub struct LatencySpread {
    pub p50_ns: Spread,
    pub p99_ns: Spread,
    pub p999_ns: Spread,
    pub max_ns: Spread,
    pub batched_ns: Spread,
}

/// Messages in one direction and their CPU time.
#[derive(Debug, PartialEq, Serialize)]
pub struct Flow {
    pub messages_per_s: Spread,
    pub gb_per_s: Spread,
    pub sender_cpu_ns_per_message: Spread,
    pub receiver_cpu_ns_per_message: Spread,
    pub sender_cpu_s_per_gb: Spread,
    pub receiver_cpu_s_per_gb: Spread,
}

impl Samples {
    /// A figure of a kind at a point, in each round; `None` if it was not measured.
    pub fn each(&self, point: &Point, figure: impl Fn(&Sample) -> f64) -> Option<Vec<f64>> {
        let of_round = |round: &Round| {
            let (_, answer) = round.iter().find(|(asked, _)| asked == point)?;
            match answer {
                Answer::Sample(sample) => Some(figure(sample)),
                Answer::Unsupported(_) => None,
            }
        };
        self.rounds.iter().map(of_round).collect()
    }

    /// The floor over all rounds.
    pub fn floor(&self) -> FloorSpread {
        let spread = |pick: fn(&Floor) -> f64| spread(&self.floors, pick);
        FloorSpread {
            clock_ns: spread(|floor| floor.clock_ns),
            line_one_way_ns: spread(|floor| floor.line_one_way_ns),
            copy_gb_per_s: spread(|floor| floor.copy_gb_per_s),
        }
    }

    /// The medians of a kind at a point.
    pub fn measured(&self, point: Point) -> Measured {
        let answers = self.rounds.first().into_iter().flatten();
        let mut answers = answers.filter(|(asked, _)| *asked == point);
        if let Some((_, Answer::Unsupported(reason))) = answers.next() {
            return Measured {
                point,
                unsupported: Some(reason.clone()),
                latency: None,
                flow: None,
            };
        }
        let spread = |figure: &dyn Fn(&Sample) -> f64| {
            Spread::of(self.each(&point, figure).unwrap_or_default())
        };
        let latency = |pick: fn(&slackwater::measure::Latency) -> f64| {
            spread(&|sample| sample.latency.as_ref().map_or(0.0, pick))
        };
        let size = point.size_bytes;
        let per_message = |cpu_s: f64, sample: &Sample| cpu_s * 1e9 / sample.messages as f64;
        let per_gb =
            |cpu_s: f64, sample: &Sample| cpu_s * 1e9 / (sample.messages as f64 * size as f64);
        Measured {
            unsupported: None,
            latency: (point.pattern == Pattern::PingPong).then(|| LatencySpread {
                p50_ns: latency(|latency| latency.p50_ns),
                p99_ns: latency(|latency| latency.p99_ns),
                p999_ns: latency(|latency| latency.p999_ns),
                max_ns: latency(|latency| latency.max_ns),
                batched_ns: latency(|latency| latency.batched_ns),
            }),
            flow: Some(Flow {
                messages_per_s: spread(&|sample| sample.messages_per_s()),
                gb_per_s: spread(&|sample| sample.gb_per_s(size)),
                sender_cpu_ns_per_message: spread(&|s| per_message(s.sender_cpu_s, s)),
                receiver_cpu_ns_per_message: spread(&|s| per_message(s.receiver_cpu_s, s)),
                sender_cpu_s_per_gb: spread(&|s| per_gb(s.sender_cpu_s, s)),
                receiver_cpu_s_per_gb: spread(&|s| per_gb(s.receiver_cpu_s, s)),
            }),
            point,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use slackwater::measure::Latency;

    /// A round in which one point had this latency and number of messages.
    pub fn sample(latency_ns: f64, messages: u64) -> Answer {
        Answer::Sample(Sample {
            messages,
            wall_s: 1.0,
            latency: Some(Latency {
                p50_ns: latency_ns,
                p99_ns: latency_ns * 2.0,
                p999_ns: latency_ns * 3.0,
                max_ns: latency_ns * 4.0,
                batched_ns: latency_ns,
            }),
            sender_cpu_s: 1.0,
            receiver_cpu_s: 0.5,
        })
    }

    pub fn point(kind: &str, pattern: Pattern, size_bytes: usize) -> Point {
        Point {
            kind: kind.to_string(),
            pattern,
            waiting: Waiting::Poll,
            size_bytes,
        }
    }

    #[test]
    fn figures_are_medians_over_rounds() {
        let at = point("pipe", Pattern::PingPong, 1 << 10);
        let rounds = [100.0, 300.0, 200.0].map(|ns| vec![(at.clone(), sample(ns, 1_000_000))]);
        let samples = Samples {
            rounds: rounds.to_vec(),
            floors: Vec::new(),
        };
        let measured = samples.measured(at);
        let latency = measured.latency.unwrap();
        assert_eq!((latency.p50_ns.median, latency.p50_ns.max), (200.0, 300.0));
        let flow = measured.flow.unwrap();
        assert_eq!(flow.gb_per_s.median, 1.024);
        assert_eq!(flow.sender_cpu_ns_per_message.median, 1_000.0);
        assert_eq!(flow.receiver_cpu_s_per_gb.median, 0.5 / 1.024);
        assert!(
            samples
                .each(&point("tcp", Pattern::Stream, 64), |_| 1.0)
                .is_none()
        );
    }
}
