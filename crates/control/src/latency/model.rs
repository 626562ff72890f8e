//! Predicts the cost of a plan and the latency of its rows.
//!
//! A path is a sequence of stages (subqueries) between a source and a sink, cut into groups; each group
//! runs on one worker, and between two groups there is a link with a wake-up. The source's worker waits
//! as the plan says; what it finds goes through all stages at once. Rates are means, and arrivals come at
//! random times.
//!
//! The law (`docs/internals/latency.md` derives it):
//!
//! ```text
//! CPU  = waits/s · c_wait + activations/s · (Σ per chunk + hops · c_wake) + rows/s · Σ per row
//! p99  = T + oversleep_p99 + drain + hops · wake-up_p99
//! ```
//!
//! What an activation costs beyond that depends on the host, and on how long the core was idle before (cold
//! caches): it is calibrated for one small query ([`Activation`]), and what other queries do more is added.
//!
//! The law holds if the work of an activation is short compared with T, and if nothing else runs on the
//! cores. It doesn't model the queues that build up above [`UTILISATION_MAX`], and calls such plans
//! impossible instead.

/// The costs of waiting on a host, as calibrated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostCosts {
    /// The CPU time of a wake-up, both sides together, in nanoseconds.
    pub wake_ns: f64,
    /// The time from the wake-up to the first look, 99th percentile, in nanoseconds.
    pub wake_until_look_p99_ns: f64,
    /// The CPU time of a timed sleep, in nanoseconds.
    pub sleep_ns: f64,
    /// How much longer than asked a sleep lasts, median, in nanoseconds.
    pub oversleep_p50_ns: f64,
    /// How much longer than asked a sleep lasts, 99th percentile, in nanoseconds.
    pub oversleep_p99_ns: f64,
    /// The measured cost of activations, if there is one.
    pub activations: Option<Activations>,
}

/// The measured CPU time of activations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activations {
    /// After a short and a long idle time.
    pub after: [Activation; 2],
    /// What each further arrival costs that an activation finds, in nanoseconds: the system keeps each on its
    /// own.
    pub arrival_ns: f64,
}

/// The measured CPU time of an activation of a small query: a worker reads a record from a socket, filters
/// it and writes it to a socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activation {
    /// How long the core was idle before, in nanoseconds.
    pub idle_ns: f64,
    /// The CPU time if the worker was woken, in nanoseconds, with the wake-up.
    pub woken_ns: f64,
    /// The CPU time if it slept, in nanoseconds, with the sleep.
    pub slept_ns: f64,
}

/// The assumed work of that query for each activation: source, filter and sink.
pub const REFERENCE_NS: f64 = 27_000.0;

/// The assumed work of that query for each row if it keeps half of them.
pub const REFERENCE_ROW_NS: f64 = 85.0;

/// How often the tuner looks at a query with a target, per second; what a look costs, in activations after a
/// long idle time; and the largest share of the workers' CPU time that looks cost.
const LOOKS_PER_S: f64 = 2.0;
const LOOK_ACTIVATIONS: f64 = 2.0;
const LOOKS_SHARE_MAX: f64 = 0.05;

impl HostCosts {
    /// By how much an activation costs more than the sum of what is assumed for its parts, in nanoseconds;
    /// negative if it costs less.
    fn more_ns(&self, waiting: Waiting, idle_ns: f64) -> f64 {
        let [first, last] = match self.activations {
            Some(activations) => activations.after,
            None => return 0.0,
        };
        // The cost grows with the logarithm of the time.
        let decades = (idle_ns / first.idle_ns).ln() / (last.idle_ns / first.idle_ns).ln();
        let share = decades.clamp(0.0, 1.0);
        let between = |first_ns: f64, last_ns: f64| first_ns + (last_ns - first_ns) * share;
        match waiting {
            Waiting::Poll => 0.0,
            Waiting::Interrupt => {
                between(first.woken_ns, last.woken_ns) - self.wake_ns - REFERENCE_NS
            }
            Waiting::Sleep(_) => {
                between(first.slept_ns, last.slept_ns) - self.sleep_ns - REFERENCE_NS
            }
        }
    }
}

/// The CPU time of a stage, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// The time for each chunk, however few rows it has.
    pub per_chunk_ns: f64,
    /// The time for each row.
    pub per_row_ns: f64,
}

/// The arrivals at the source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Rows per second.
    pub rows_per_s: f64,
    /// Wake-ups that interrupts would cause: rows that arrive together count once.
    pub arrivals_per_s: f64,
}

/// How the source's worker waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Waiting {
    /// It never waits: a core for each worker.
    Poll,
    /// It waits until something comes.
    Interrupt,
    /// It sleeps for this many nanoseconds at a time.
    Sleep(f64),
}

/// A way to run a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// How many stages each worker runs, in order.
    pub groups: Vec<usize>,
    /// How the source's worker waits.
    pub source: Waiting,
    /// How the workers after it wait.
    pub between: Waiting,
    /// The most rows per chunk.
    pub chunk_rows: f64,
}

/// The predicted cost and latency of a shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// CPU time per second: 0.01 is a hundredth of a core.
    pub cores: f64,
    /// The latency that 99 of 100 rows keep, in nanoseconds. An upper bound: rows that arrive during a
    /// sleep count from its start, as the engine counts them.
    pub p99_ns: f64,
    /// The busy share of the busiest worker, without waiting.
    pub utilisation: f64,
    /// How often the source's worker finds something, per second.
    pub activations_per_s: f64,
}

/// A worker that is busier than this is assumed to fall behind: bursts then queue for longer than the
/// model predicts.
pub const UTILISATION_MAX: f64 = 0.8;

/// The number of empty sleeps in a row after which a worker waits to be woken (`link::idle`).
const EMPTY_SLEEPS_MAX: f64 = 4.0;

/// How long a polling worker takes to notice something: a look at a few links and a socket.
const LOOK_NS: f64 = 1_000.0;

/// The waits of one worker at `arrivals_per_s`: CPU time per second, activations per second, and the 99th
/// percentile of the delay.
struct Waits {
    cores: f64,
    activations_per_s: f64,
    delay_p99_ns: f64,
}

fn waits(waiting: Waiting, arrivals_per_s: f64, busy_ns: f64, costs: &HostCosts) -> Waits {
    let per_ns = arrivals_per_s / 1e9;
    match waiting {
        Waiting::Poll => Waits {
            cores: 1.0,
            activations_per_s: arrivals_per_s,
            delay_p99_ns: LOOK_NS,
        },
        Waiting::Interrupt => {
            // A worker that is still busy with the last arrival finds the next one without a wait.
            let activations_per_s = arrivals_per_s / (1.0 + per_ns * busy_ns);
            Waits {
                cores: activations_per_s * costs.wake_ns / 1e9,
                activations_per_s,
                delay_p99_ns: costs.wake_until_look_p99_ns,
            }
        }
        Waiting::Sleep(time_ns) => {
            let lasts_ns = time_ns + costs.oversleep_p50_ns;
            let found = 1.0 - (-per_ns * (lasts_ns + busy_ns)).exp();
            let period_ns = lasts_ns + found * busy_ns;
            let asleep = costs.sleep_ns / period_ns;
            // Rare arrivals: some empty sleeps, then a wait for the wake-up.
            let rare = per_ns * (costs.wake_ns + EMPTY_SLEEPS_MAX * costs.sleep_ns);
            Waits {
                cores: asleep.min(rare),
                activations_per_s: (found * 1e9 / period_ns).min(arrivals_per_s),
                delay_p99_ns: time_ns + costs.oversleep_p99_ns,
            }
        }
    }
}

/// Predicts a shape for stages with this work. The groups of the shape must cover the stages.
pub fn predict(shape: &Shape, stages: &[Work], load: &Load, costs: &HostCosts) -> Prediction {
    assert_eq!(
        shape.groups.iter().sum::<usize>(),
        stages.len(),
        "groups cover the stages"
    );
    let mut rest = stages;
    let groups = shape.groups.iter().map(|&count| {
        let (group, behind) = rest.split_at(count);
        rest = behind;
        group.iter().fold(Work::default(), |sum, stage| Work {
            per_chunk_ns: sum.per_chunk_ns + stage.per_chunk_ns,
            per_row_ns: sum.per_row_ns + stage.per_row_ns,
        })
    });
    let groups = groups.collect::<Vec<Work>>();
    // The work of one activation depends on how many rows it finds, and vice versa.
    let mut first = waits(shape.source, load.arrivals_per_s, 0.0, costs);
    let mut rows = 0.0;
    let busy = |work: &Work, rows: f64| {
        (rows / shape.chunk_rows).ceil().max(1.0) * work.per_chunk_ns + rows * work.per_row_ns
    };
    for _ in 0..8 {
        rows = if first.activations_per_s > 0.0 {
            load.rows_per_s / first.activations_per_s
        } else {
            0.0
        };
        first = waits(
            shape.source,
            load.arrivals_per_s,
            busy(&groups[0], rows),
            costs,
        );
    }
    let mut prediction = Prediction {
        cores: first.cores,
        p99_ns: first.delay_p99_ns,
        utilisation: 0.0,
        activations_per_s: first.activations_per_s,
    };
    let per_s = first.activations_per_s;
    let more_ns = costs.more_ns(shape.source, 1e9 / per_s.max(1e-3));
    for (number, work) in groups.iter().enumerate() {
        if number > 0 {
            let hop = waits(
                shape.between,
                first.activations_per_s,
                busy(work, rows),
                costs,
            );
            prediction.cores += hop.cores;
            prediction.p99_ns += hop.delay_p99_ns;
        }
        let busy_ns = busy(work, rows);
        let utilisation = first.activations_per_s * busy_ns / 1e9;
        prediction.utilisation = prediction.utilisation.max(utilisation);
        prediction.p99_ns += busy_ns;
        if shape.source != Waiting::Poll || number > 0 && shape.between != Waiting::Poll {
            prediction.cores += utilisation;
        }
    }
    // However little an activation costs, rows do.
    let rows_ns = load.rows_per_s * stages.iter().map(|stage| stage.per_row_ns).sum::<f64>();
    let mut measured = prediction.cores + per_s * more_ns / 1e9;
    if let Some(activations) = costs.activations {
        let together = (load.arrivals_per_s - per_s).max(0.0);
        measured += together * activations.arrival_ns / 1e9;
        let looks_ns = LOOKS_PER_S * LOOK_ACTIVATIONS * activations.after[1].woken_ns;
        measured += (looks_ns / 1e9).min(measured * LOOKS_SHARE_MAX);
    }
    prediction.cores = measured.max(rows_ns / 1e9);
    prediction
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A virtual machine of two cores.
    pub(crate) const COSTS: HostCosts = HostCosts {
        wake_ns: 30_000.0,
        wake_until_look_p99_ns: 70_000.0,
        sleep_ns: 22_000.0,
        oversleep_p50_ns: 27_000.0,
        oversleep_p99_ns: 53_000.0,
        activations: None,
    };

    const WORK: Work = Work {
        per_chunk_ns: 10_000.0,
        per_row_ns: 150.0,
    };

    fn shape(groups: &[usize], source: Waiting) -> Shape {
        Shape {
            groups: groups.to_vec(),
            source,
            between: Waiting::Interrupt,
            chunk_rows: 8_192.0,
        }
    }

    fn load(rows_per_s: f64) -> Load {
        Load {
            rows_per_s,
            arrivals_per_s: rows_per_s.min(1_000.0),
        }
    }

    fn cores(groups: &[usize], source: Waiting, rows_per_s: f64) -> f64 {
        let stages = vec![WORK; groups.iter().sum()];
        predict(&shape(groups, source), &stages, &load(rows_per_s), &COSTS).cores
    }

    #[test]
    fn long_sleeps_beat_interrupts_at_high_rates_only() {
        let sleep = Waiting::Sleep(15e6);
        assert!(cores(&[1], sleep, 1e4) < 0.2 * cores(&[1], Waiting::Interrupt, 1e4));
        assert!(cores(&[1], Waiting::Sleep(2e5), 1e2) > cores(&[1], Waiting::Interrupt, 1e2));
        assert!(cores(&[1], Waiting::Poll, 1e2) >= 1.0);
    }

    #[test]
    fn a_hop_costs_a_wake_up_for_each_activation() {
        let sleep = Waiting::Sleep(1e7);
        let (one, two) = (cores(&[2], sleep, 1e4), cores(&[1, 1], sleep, 1e4));
        let wakes = 100.0 * COSTS.wake_ns / 1e9;
        assert!((two - one - wakes).abs() < 0.1 * wakes, "{one} {two}");
    }

    #[test]
    fn an_activation_costs_what_was_measured_after_such_an_idle_time() {
        let activation = |idle_ns, woken_ns, slept_ns| Activation {
            idle_ns,
            woken_ns,
            slept_ns,
        };
        let costs = HostCosts {
            activations: Some(Activations {
                after: [activation(1e6, 50e3, 60e3), activation(1e7, 150e3, 180e3)],
                arrival_ns: 1e3,
            }),
            ..COSTS
        };
        let stages = [Work {
            per_chunk_ns: REFERENCE_NS,
            per_row_ns: 0.0,
        }];
        let per_activation = |source, rate: f64, stages: &[Work]| {
            let load = Load {
                rows_per_s: rate,
                arrivals_per_s: rate,
            };
            let predicted = predict(&shape(&[1], source), stages, &load, &costs);
            predicted.cores * 1e9 / predicted.activations_per_s
        };
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.05;
        assert!(near(
            per_activation(Waiting::Interrupt, 100.0, &stages),
            150e3
        ));
        assert!(near(
            per_activation(Waiting::Interrupt, 1_000.0, &stages),
            50e3
        ));
        // Two hundred arrivals, and two looks per second.
        assert!(near(
            per_activation(Waiting::Sleep(20e6), 1e4, &stages),
            180e3 + 200e3 + 12e3
        ));
        // Half of the decade lies between.
        let middle = per_activation(Waiting::Interrupt, 316.2, &stages);
        assert!(near(middle, 100e3), "{middle}");
        // A query that does more costs more.
        let more = [Work {
            per_chunk_ns: REFERENCE_NS + 40e3,
            per_row_ns: 0.0,
        }];
        assert!(near(
            per_activation(Waiting::Interrupt, 100.0, &more),
            190e3
        ));
    }

    #[test]
    fn latency_is_the_sleep_the_oversleep_and_the_work() {
        let prediction = predict(
            &shape(&[1], Waiting::Sleep(10e6)),
            &[WORK],
            &load(1e5),
            &COSTS,
        );
        // About a thousand rows per sleep.
        let work_ns = 1_003.0 * 150.0 + 10_000.0;
        let expected_ns = 10e6 + 53_000.0 + work_ns;
        assert!(
            (prediction.p99_ns - expected_ns).abs() < 20_000.0,
            "{prediction:?}"
        );
    }

    #[test]
    fn work_counts_once_whatever_the_groups() {
        for source in [Waiting::Interrupt, Waiting::Sleep(1e6)] {
            let stages = [WORK; 4];
            let whole = predict(&shape(&[4], source), &stages, &load(1e5), &COSTS);
            let cut = predict(&shape(&[1, 2, 1], source), &stages, &load(1e5), &COSTS);
            assert!(cut.cores > whole.cores);
            assert!(cut.utilisation < whole.utilisation);
        }
    }
}
