//! The goals of the links, and whether they are met. Ratios compare neighbors of one round.

use super::figures::{Point, Samples};
use crate::lab::Verdict;
use slackwater::measure::order::{Pattern, Sample, Waiting};
use slackwater::measure::{Kind, Spread};

/// The peer that the link inside a process is compared with.
const RING: &str = "rtrb";

/// The goals with their verdicts.
pub fn verdicts(samples: &Samples) -> Vec<Verdict> {
    let latency = |sample: &Sample| sample.latency.unwrap_or_default();
    let polling = |kind: &str, pattern, size_bytes| Point {
        kind: kind.to_string(),
        pattern,
        waiting: Waiting::Poll,
        size_bytes,
    };
    let shm = Kind::ShmLent.name();
    let own = Kind::InProcess.name();
    let latency_ns = samples.each(&polling(shm, Pattern::PingPong, 64), |s| latency(s).p50_ns);
    let bandwidth = samples.each(&polling(shm, Pattern::Stream, 1 << 20), |sample| {
        sample.gb_per_s(1 << 20)
    });
    let copies = samples.floors.iter().map(|floor| floor.copy_gb_per_s);
    let batched = |kind| {
        samples.each(&polling(kind, Pattern::PingPong, 64), |sample| {
            latency(sample).batched_ns
        })
    };
    let rate = |kind| samples.each(&polling(kind, Pattern::Stream, 64), Sample::messages_per_s);
    vec![
        at_most(
            "shared memory, polling, 64 B: p50 one way",
            latency_ns,
            300.0,
            "ns",
        ),
        at_least(
            "shared memory, polling, 1 MiB: bandwidth, compared with a copy in memory",
            ratios(bandwidth, Some(copies.collect())),
            0.7,
            "times",
        ),
        at_most(
            "in process, 64 B: one-way latency, compared with rtrb",
            ratios(batched(own), batched(RING)),
            1.2,
            "times",
        ),
        at_most(
            "in process, 64 B: time per message, compared with rtrb",
            ratios(rate(RING), rate(own)),
            1.2,
            "times",
        ),
    ]
}

fn ratios(value: Option<Vec<f64>>, to: Option<Vec<f64>>) -> Option<Vec<f64>> {
    Some(
        value?
            .into_iter()
            .zip(to?)
            .map(|(value, to)| value / to)
            .collect(),
    )
}

fn at_most(goal: &str, values: Option<Vec<f64>>, limit: f64, unit: &str) -> Verdict {
    judge(Verdict::at_most, goal, values, limit, unit)
}

fn at_least(goal: &str, values: Option<Vec<f64>>, limit: f64, unit: &str) -> Verdict {
    judge(Verdict::at_least, goal, values, limit, unit)
}

fn judge(
    bound: fn(String, Option<f64>, f64) -> Verdict,
    goal: &str,
    values: Option<Vec<f64>>,
    limit: f64,
    unit: &str,
) -> Verdict {
    let values = values.filter(|values| !values.is_empty());
    let measured = values.map(Spread::of);
    let goal = format!("{goal}, {unit}");
    let verdict = bound(goal, measured.map(|spread| spread.median), limit);
    match measured {
        Some(Spread { min, max, .. }) => verdict.note(format!("{min:.2} to {max:.2}")),
        None => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Floor;
    use super::super::figures::tests::{point, sample};
    use super::*;

    #[test]
    fn goals_use_the_median_and_are_not_measured_without_a_peer() {
        let round = |latency_ns, rate| {
            let small = |kind| {
                [
                    (point(kind, Pattern::PingPong, 64), sample(latency_ns, 1)),
                    (point(kind, Pattern::Stream, 64), sample(1.0, rate)),
                ]
            };
            let mut round = small(Kind::ShmLent.name()).to_vec();
            round.extend(small(Kind::InProcess.name()));
            let large = point(Kind::ShmLent.name(), Pattern::Stream, 1 << 20);
            round.push((large, sample(1.0, 8_000)));
            round
        };
        let floor = Floor {
            clock_ns: 50.0,
            line_one_way_ns: 40.0,
            copy_gb_per_s: 10.0,
        };
        let mut samples = Samples {
            rounds: vec![round(250.0, 10), round(350.0, 10), round(290.0, 10)],
            floors: vec![floor; 3],
        };
        let met = |samples: &Samples| {
            let goals = verdicts(samples).into_iter();
            goals.map(|goal| goal.met).collect::<Vec<_>>()
        };
        assert_eq!(met(&samples), [Some(true), Some(true), None, None]);
        for round in &mut samples.rounds {
            round.push((point(RING, Pattern::PingPong, 64), sample(200.0, 1)));
            round.push((point(RING, Pattern::Stream, 64), sample(1.0, 11)));
        }
        assert_eq!(
            met(&samples),
            [Some(true), Some(true), Some(false), Some(true)]
        );
    }
}
