//! The size of messages between processes, planned again from the rows that links carry. Pure.

use std::collections::HashMap;

use slackwater_control::latency::message::{LinkLoad, plan_message};

use crate::plan::{LinkMessages, Size};
use crate::probe::Seen;

/// The weight of the last interval in a link's rate.
const WEIGHT: f64 = 0.25;

/// The share by which a size must change before the sender is told.
const CHANGE_MIN: f64 = 0.2;

/// The rows of an interval that say something about their width.
const ROWS_MIN: u64 = 16;

/// The links whose messages are planned.
pub struct Messages {
    links: HashMap<usize, Link>,
}

struct Link {
    load: LinkLoad,
    /// The bytes that the sender was told.
    told: usize,
}

impl Messages {
    /// The links of a plan with a planned size.
    pub fn new(planned: &[LinkMessages]) -> Messages {
        let links = planned.iter().filter_map(|messages| {
            let Size::Planned(plan) = messages.size else {
                return None;
            };
            let link = Link {
                load: messages.load.clone(),
                told: plan.size_bytes,
            };
            Some((messages.link, link))
        });
        Messages {
            links: links.collect(),
        }
    }

    /// Plans again after the processes' activity; returns the links whose size changes, with the new size.
    pub fn correct(&mut self, seen: &[Seen]) -> Vec<(usize, usize)> {
        let mut changed = Vec::new();
        for (interval_ns, sent) in seen
            .iter()
            .flat_map(|seen| seen.links.iter().map(|link| (seen.interval_ns, link)))
        {
            let Some(link) = self.links.get_mut(&sent.link) else {
                continue;
            };
            if sent.rows < ROWS_MIN {
                continue;
            }
            let rows_per_s = sent.rows as f64 * 1e9 / interval_ns.max(1) as f64;
            let known = link.load.rows_per_s.unwrap_or(rows_per_s);
            // A rate that rises counts at once: messages that are too small fill the link.
            let rate = rows_per_s.max(known + (rows_per_s - known) * WEIGHT);
            link.load.rows_per_s = Some(rate);
            link.load.row_bytes = sent.bytes as f64 / sent.rows as f64;
            let Some(plan) = plan_message(&link.load) else {
                continue;
            };
            let (told, new) = (link.told as f64, plan.size_bytes as f64);
            if (told - new).abs() > CHANGE_MIN * told.max(new) {
                link.told = plan.size_bytes;
                changed.push((sent.link, plan.size_bytes));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::LinkSeen;
    use slackwater_control::latency::chunk::LinkPoint;
    use slackwater_control::latency::message::plan_message;

    fn load() -> LinkLoad {
        let point = |size_bytes: usize, latency_ns: f64| LinkPoint {
            size_bytes,
            latency_ns,
            bytes_per_s: size_bytes as f64 / latency_ns * 1e9,
        };
        LinkLoad {
            points: vec![point(64, 6_000.0), point(1 << 20, 180_000.0)],
            row_bytes: 100.0,
            rows_per_s: Some(1_000.0),
            per_message_ns: 1_000.0,
            per_row_ns: 100.0,
            target_ns: Some(20e6),
            ceiling_bytes: 1 << 20,
        }
    }

    fn seen(rows: u64, bytes: u64) -> [Seen; 1] {
        [Seen {
            interval_ns: 500_000_000,
            links: vec![LinkSeen {
                link: 3,
                rows,
                bytes,
            }],
            ..Seen::default()
        }]
    }

    #[test]
    fn a_size_follows_the_measured_width_of_rows() {
        let load = load();
        let plan = plan_message(&load).unwrap();
        let mut messages = Messages::new(&[LinkMessages {
            link: 3,
            load,
            size: Size::Planned(plan),
        }]);
        // As planned, and too few rows to say anything.
        assert_eq!(messages.correct(&seen(500, 50_000)), []);
        assert_eq!(messages.correct(&seen(3, 30_000)), []);
        // Rows of twice the width take the same time.
        let wider = messages.correct(&seen(500, 100_000));
        let [(3, size_bytes)] = wider[..] else {
            panic!("{wider:?}");
        };
        assert!(size_bytes.abs_diff(2 * plan.size_bytes) <= 200, "{plan:?}");
        assert_eq!(messages.correct(&seen(500, 100_000)), []);
    }

    #[test]
    fn a_size_that_was_set_stays() {
        let mut messages = Messages::new(&[LinkMessages {
            link: 3,
            load: load(),
            size: Size::Set(Some(4_096)),
        }]);
        assert_eq!(messages.correct(&seen(500, 5_000_000)), []);
    }
}
