//! The model's prediction for a running query, with measured costs and rates.

use slackwater_control::latency::controller::Setting;
use slackwater_control::latency::model::{
    HostCosts, Load, Shape, UTILISATION_MAX, Waiting, Work, predict,
};

/// The most interrupts per second: rows that arrive together wake a worker once.
const ARRIVALS_PER_S_MAX: f64 = 1_000.0;

/// One worker's share of the work.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    work: Work,
    load: Load,
    waiting: Waiting,
    is_woken: bool,
}

impl Share {
    /// The share of a worker that runs a source, which waits as set and read `rows` in the interval.
    pub fn of_source(work: Work, rows: u64, interval_ns: u64, setting: Setting) -> Share {
        let rows_per_s = per_second(rows, interval_ns);
        Share {
            work,
            load: Load {
                rows_per_s,
                arrivals_per_s: rows_per_s.min(ARRIVALS_PER_S_MAX),
            },
            waiting: match setting.delay_ns {
                0 => Waiting::Interrupt,
                ns => Waiting::Sleep(ns as f64),
            },
            is_woken: false,
        }
    }

    /// The share of a worker that others have woken `activations` times.
    pub fn woken(work: Work, rows: u64, activations: u64, interval_ns: u64) -> Share {
        Share {
            work,
            load: Load {
                rows_per_s: per_second(rows, interval_ns),
                arrivals_per_s: per_second(activations, interval_ns),
            },
            waiting: Waiting::Interrupt,
            is_woken: true,
        }
    }
}

fn per_second(count: u64, interval_ns: u64) -> f64 {
    count as f64 * 1e9 / interval_ns.max(1) as f64
}

/// The model's predictions for every active interval.
#[derive(Debug, Default)]
pub struct Predicted {
    /// The CPU time and the intervals' time, in seconds.
    cpu_s: f64,
    active_s: f64,
    /// The p99 of each interval in nanoseconds times its rows, and the rows.
    p99_rows: f64,
    rows: f64,
}

impl Predicted {
    /// Adds the model's prediction for an interval in which sources read `rows`. The CPU time is that of all
    /// shares; the latency is that of the slowest source's worker plus that of the slowest woken one.
    pub fn add(&mut self, shares: &[Share], costs: &HostCosts, rows: u64, interval_ns: u64) {
        let (mut cores, mut first_ns, mut then_ns) = (0.0, 0.0f64, 0.0f64);
        for share in shares {
            let shape = Shape {
                groups: vec![1],
                source: share.waiting,
                between: Waiting::Interrupt,
                // For the fit, a chunk is one activation, however many chunks it has.
                chunk_rows: f64::MAX,
            };
            let prediction = predict(&shape, &[share.work], &share.load, costs);
            // The model can't predict a worker that falls behind.
            if prediction.utilisation > UTILISATION_MAX {
                return;
            }
            cores += prediction.cores;
            match share.is_woken {
                true => then_ns = then_ns.max(prediction.p99_ns),
                false => first_ns = first_ns.max(prediction.p99_ns),
            }
        }
        if shares.is_empty() {
            return;
        }
        let seconds = interval_ns as f64 / 1e9;
        self.cpu_s += cores * seconds;
        self.active_s += seconds;
        self.p99_rows += (first_ns + then_ns) * rows as f64;
        self.rows += rows as f64;
    }

    /// The CPU time per second and the p99 in nanoseconds, if anything was predicted.
    pub fn mean(&self) -> Option<(f64, f64)> {
        let mean = || (self.cpu_s / self.active_s, self.p99_rows / self.rows);
        (self.rows > 0.0).then(mean)
    }
}
