//! The bytes of a message on a link between processes.
//!
//! A message costs its link and both ends a fixed time, besides that of its rows. Large messages spread that
//! time over many rows; small ones let the receiver begin sooner, and delay what follows them for less time.
//! So a message has the largest of
//!
//! - the bytes that reach the bandwidth that is needed ([`plan_chunk`]): with smaller ones the link is full;
//! - the bytes of which the fixed time is [`FIXED_SHARE`] of the time for its rows: smaller ones cost CPU
//!   time, and larger ones hardly save any. With a latency target, no more than what both ends work on for
//!   [`TARGET_SHARE`] of it.
//!
//! A link that costs more gets larger messages by both rules, as long as it carries the load: one that can't
//! gets the smallest messages that nearly reach its bandwidth.

use super::chunk::{ChunkPlan, Demand, LinkPoint, plan_chunk};

/// The share of the time for a message's rows that its fixed time may have.
pub const FIXED_SHARE: f64 = 0.05;

/// The share of a latency target for which both ends work on a message: as for the chunks of a source
/// ([`chunk_rows`](super::planner::chunk_rows)).
pub const TARGET_SHARE: f64 = 1.0 / 16.0;

/// The share of a link's bandwidth that stays free.
pub const RESERVE: f64 = 0.1;

/// What is known of a link between processes and of its ends.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkLoad {
    /// The link, as calibrated.
    pub points: Vec<LinkPoint>,
    /// The bytes of a row.
    pub row_bytes: f64,
    /// The rows per second; `None` for as many as the ends can process.
    pub rows_per_s: Option<f64>,
    /// The work of both ends for each message, without the link's own.
    pub per_message_ns: f64,
    /// The work of both ends for each row.
    pub per_row_ns: f64,
    /// The tightest latency target of the sinks that the link leads to, in nanoseconds.
    pub target_ns: Option<f64>,
    /// The largest message.
    pub ceiling_bytes: usize,
}

/// Which rule decided the size of messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The bandwidth that is needed, in bytes per second, with the reserve.
    Bandwidth(f64),
    /// The fixed time of a message, in nanoseconds, is a small part of the time for its rows.
    FixedTime(f64),
    /// Both ends work on a message for this part of the latency target, in nanoseconds.
    Target(f64),
    /// The largest message that the link takes in one piece.
    Ceiling,
}

/// The size of a link's messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessagePlan {
    /// The bytes of a message at most: at least a row.
    pub size_bytes: usize,
    /// Why.
    pub reason: Reason,
}

impl MessagePlan {
    /// The rows of a message.
    pub fn rows(&self, row_bytes: f64) -> usize {
        ((self.size_bytes as f64 / row_bytes.max(1.0)) as usize).max(1)
    }
}

/// The size of messages for a link; `None` without a valid measurement of it.
pub fn plan_message(load: &LinkLoad) -> Option<MessagePlan> {
    let row_bytes = load.row_bytes.max(1.0);
    let per_byte_ns = load.per_row_ns.max(0.0) / row_bytes;
    let floor_bytes = row_bytes.ceil() as usize;
    let ceiling = (load.ceiling_bytes as f64).max(row_bytes);
    let fixed_ns = fixed_ns(&load.points)? + load.per_message_ns.max(0.0);
    let needed_per_s = needed_per_s(load);
    let bandwidth = plan_bandwidth(load, needed_per_s)?;
    let cheap = match per_byte_ns > 0.0 {
        true => (fixed_ns / FIXED_SHARE / per_byte_ns).min(ceiling),
        false => ceiling,
    };
    let in_time = load.target_ns.map(|target_ns| {
        let left_ns = (target_ns * TARGET_SHARE - fixed_ns).max(0.0);
        match per_byte_ns > 0.0 {
            true => left_ns / per_byte_ns,
            false => ceiling,
        }
    });
    let (wanted, reason) = match in_time {
        Some(bytes) if bytes < cheap => (bytes, Reason::Target(load.target_ns.unwrap_or_default())),
        _ if cheap >= ceiling => (ceiling, Reason::Ceiling),
        _ => (cheap, Reason::FixedTime(fixed_ns)),
    };
    Some(match bandwidth.size_bytes as f64 > wanted {
        true => MessagePlan {
            size_bytes: bandwidth.size_bytes,
            reason: Reason::Bandwidth(needed_per_s),
        },
        false => MessagePlan {
            size_bytes: (wanted as usize).max(floor_bytes),
            reason,
        },
    })
}

/// The bytes per second that the link has to carry: no more than one core can process.
fn needed_per_s(load: &LinkLoad) -> f64 {
    let row_bytes = load.row_bytes.max(1.0);
    let possible_per_s = match load.per_row_ns > 0.0 {
        true => 1e9 / load.per_row_ns * row_bytes,
        false => f64::MAX,
    };
    let known_per_s = load.rows_per_s.map(|rows_per_s| rows_per_s * row_bytes);
    known_per_s.unwrap_or(possible_per_s).min(possible_per_s)
}

/// The smallest messages with which the link carries what is needed.
fn plan_bandwidth(load: &LinkLoad, needed_per_s: f64) -> Option<ChunkPlan> {
    plan_chunk(
        &load.points,
        &Demand {
            bytes_per_s: needed_per_s,
            reserve: RESERVE,
            chunk_cost_ns: load.per_message_ns,
            floor_bytes: load.row_bytes.max(1.0).ceil() as usize,
            ceiling_bytes: load.ceiling_bytes,
        },
    )
}

/// The time that a message takes on a link however short it is: that of the shortest measured.
fn fixed_ns(points: &[LinkPoint]) -> Option<f64> {
    let valid = points
        .iter()
        .filter(|point| point.size_bytes > 0 && point.latency_ns.is_finite());
    let shortest = valid.min_by_key(|point| point.size_bytes)?;
    Some(shortest.latency_ns.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A link whose messages take `fixed_ns` and a time for each byte.
    fn link(fixed_ns: f64, per_byte_ns: f64) -> Vec<LinkPoint> {
        let sizes = [64, 1 << 10, 64 << 10, 1 << 20];
        let points = sizes.map(|size_bytes| {
            let time_ns = fixed_ns + per_byte_ns * size_bytes as f64;
            LinkPoint {
                size_bytes,
                latency_ns: time_ns,
                bytes_per_s: size_bytes as f64 / time_ns * 1e9,
            }
        });
        points.to_vec()
    }

    fn load() -> LinkLoad {
        LinkLoad {
            points: link(5_000.0, 0.2),
            row_bytes: 100.0,
            rows_per_s: Some(100_000.0),
            per_message_ns: 5_000.0,
            per_row_ns: 200.0,
            target_ns: None,
            ceiling_bytes: 1 << 20,
        }
    }

    #[test]
    fn the_fixed_time_is_a_small_part_of_the_work_on_the_rows() {
        let plan = plan_message(&load()).unwrap();
        // 10 us are 5 % of 200 us, in which 1,000 rows are processed.
        assert!((100_000..101_000).contains(&plan.size_bytes), "{plan:?}");
        assert!((1_000..1_010).contains(&plan.rows(100.0)), "{plan:?}");
        assert!(matches!(plan.reason, Reason::FixedTime(ns) if (10_000.0..10_100.0).contains(&ns)));
        let wide = plan_message(&LinkLoad {
            row_bytes: 10_000.0,
            ..load()
        });
        assert_eq!(wide.unwrap().reason, Reason::Ceiling);
    }

    #[test]
    fn a_tight_target_makes_messages_smaller_but_not_too_small_for_the_load() {
        let tight = |target_ns: f64, rows_per_s: f64| {
            let load = LinkLoad {
                target_ns: Some(target_ns),
                rows_per_s: Some(rows_per_s),
                ..load()
            };
            plan_message(&load).unwrap()
        };
        let loose = tight(100e6, 1e5);
        assert!(matches!(loose.reason, Reason::FixedTime(_)), "{loose:?}");
        let plan = tight(1e6, 1e5);
        // 62.5 us less 10 are 260 rows.
        assert_eq!(plan.reason, Reason::Target(1e6));
        assert!((250..270).contains(&plan.rows(100.0)), "{plan:?}");
        // 450 MB/s need messages of at least that size, however tight the target.
        let plan = tight(1e5, 4.5e6);
        assert!(matches!(plan.reason, Reason::Bandwidth(_)), "{plan:?}");
        assert!(plan.size_bytes > 5_000, "{plan:?}");
    }

    #[test]
    fn a_link_without_measurements_has_no_plan() {
        let points = Vec::new();
        assert_eq!(plan_message(&LinkLoad { points, ..load() }), None);
    }

    proptest! {
        #[test]
        fn a_link_that_costs_more_gets_messages_that_are_no_smaller(
            fixed_ns in 50.0f64..50_000.0, per_byte_ns in 0.001f64..2.0, factor in 1.0f64..16.0,
            row_bytes in 1.0f64..5_000.0, per_row_ns in 1.0f64..2_000.0, rows_per_s in 1.0f64..1e6,
            per_message_ns in 0.0f64..50_000.0,
        ) {
            let load = |factor: f64| LinkLoad {
                points: link(fixed_ns * factor, per_byte_ns * factor),
                row_bytes,
                rows_per_s: Some(rows_per_s),
                per_message_ns,
                per_row_ns,
                target_ns: None,
                ceiling_bytes: 1 << 20,
            };
            let [cheap, dear] = [1.0, factor].map(|factor| plan_message(&load(factor)).unwrap());
            prop_assert!(cheap.size_bytes >= row_bytes as usize);
            prop_assert!(cheap.size_bytes <= (1 << 20) + row_bytes as usize);
            let dear_load = load(factor);
            let carries = plan_bandwidth(&dear_load, needed_per_s(&dear_load)).unwrap().reaches;
            if carries {
                prop_assert!(dear.size_bytes >= cheap.size_bytes, "{cheap:?} {dear:?}");
            }
        }
    }
}
