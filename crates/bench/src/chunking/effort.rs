//! How thoroughly each amount of computing is measured.

use std::time::Duration;

use super::part::Times;

/// Block sizes that are tried.
const SIZES: [usize; 9] = [
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
];
const SIZES_QUICK: [usize; 5] = [2 << 10, 8 << 10, 32 << 10, 128 << 10, 256 << 10];

/// With computing, larger blocks only take longer: 64 KiB are 1.2 ms in each filter.
const SIZE_COMPUTING_MAX: usize = 128 << 10;

/// How thoroughly the points of one amount of computing are measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Nanoseconds of computing per byte in each filter.
    pub ns_per_byte: f64,
    /// Block sizes that are tried.
    pub sizes: Vec<usize>,
    /// Rounds of the search for the best block, and of the mixed queries.
    pub short_rounds: u32,
    /// Durations of a point.
    pub times: Times,
    /// Partial updates per second in addition to complete ones.
    pub partial_per_s: f64,
    /// Guaranteed rates, as multiples of the best rate that TCP reaches; more than 1 only for shared
    /// memory.
    pub fractions: Vec<f64>,
    /// Rounds of the guaranteed rates.
    pub rounds: u32,
    /// Guaranteed latencies, as multiples of the latency over TCP alone.
    pub guarantees: Vec<f64>,
    /// Rates that are tried for each guarantee.
    pub probes: u32,
    /// How often a rate that does not keep its guarantee is tried: disturbances make latencies longer,
    /// and hardly ever shorter.
    pub tries: u32,
    /// Shares of complete updates among mixed queries.
    pub shares: Vec<f64>,
    /// Numbers of parts of the image for mixed queries.
    pub partitions: Vec<usize>,
}

impl Effort {
    /// A full effort, or a quick one.
    pub fn of(quick: bool, ns_per_byte: f64, image_bytes: usize) -> Effort {
        let computing = ns_per_byte > 0.0;
        let ms = Duration::from_millis;
        let times = match (quick, computing) {
            (false, false) => (100, 500, 500),
            (false, true) => (400, 1_500, 1_500),
            (true, false) => (50, 200, 300),
            (true, true) => (150, 600, 700),
        };
        let sizes: &[usize] = if quick { &SIZES_QUICK } else { &SIZES };
        let size_max = if computing {
            SIZE_COMPUTING_MAX
        } else {
            usize::MAX
        };
        let sizes = sizes.iter().copied();
        // At least two blocks for each copy of a stage; otherwise there is no pipeline.
        let sizes = sizes.filter(|&size| size <= size_max.min(image_bytes / 8));
        Effort {
            ns_per_byte,
            sizes: sizes.collect(),
            short_rounds: if quick || computing { 1 } else { 2 },
            times: Times {
                warm_up: ms(times.0),
                time: ms(times.1),
                grace: ms(times.2),
            },
            // A few percent of the load.
            partial_per_s: if computing { 20.0 } else { 100.0 },
            fractions: match (quick, computing) {
                (true, true) => vec![0.5, 0.9],
                (true, false) => vec![0.5, 0.9, 2.0],
                (false, true) => vec![0.0, 0.25, 0.5, 0.75, 0.9],
                (false, false) => vec![0.0, 0.25, 0.5, 0.75, 0.9, 1.5, 2.0],
            },
            rounds: match (quick, computing) {
                (true, _) => 1,
                (false, true) => 2,
                (false, false) => 3,
            },
            guarantees: if quick {
                vec![2.0]
            } else {
                vec![2.0, 4.0, 8.0]
            },
            probes: match (quick, computing) {
                (true, true) => 3,
                (true, false) => 4,
                (false, _) => 5,
            },
            tries: if quick || computing { 1 } else { 2 },
            shares: match (quick, computing) {
                (true, _) => vec![0.0, 0.6],
                (false, true) => vec![0.0, 0.6, 1.0],
                (false, false) => vec![0.0, 0.3, 0.6, 1.0],
            },
            partitions: if quick { vec![1, 64] } else { vec![1, 8, 64] },
        }
    }

    /// The items in the order of a round; every other round goes backwards.
    pub fn in_turn<T: Copy>(round: u32, items: &[T]) -> Vec<T> {
        let mut items = items.to_vec();
        if round % 2 == 1 {
            items.reverse();
        }
        items
    }
}
