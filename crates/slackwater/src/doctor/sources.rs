//! A source, and what is reported of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slackwater_connect::event_time_text;
use slackwater_engine::counted::{Counted, END_US, Judged, Slots};
use slackwater_engine::intake::{PartitionSeen, State};
use slackwater_engine::operator::late_rows::Lateness;
use slackwater_engine::operator::window::{WindowKind, Windows};
use slackwater_engine::time::{EventTime, now_ns};
use slackwater_sql::node::SourceSpec;
use slackwater_sql::program::Program;

use super::spans::{interval, option, span};
use crate::report::{
    BehindReport, EventTimeReport, LateForReport, PartitionReport, ProposalReport,
};

/// The shares of rows to keep for which settings are proposed, in thousandths.
const KEPT: [u64; 2] = [990, 999];

/// How long what sources have told holds: twice the interval at which a page asks them.
const FRESH: Duration = Duration::from_secs(2);

/// A table and its partitions.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The table.
    pub table: String,
    /// The table's event time, if it declares one.
    pub event_time: Option<EventTimeReport>,
    /// The partitions.
    pub partitions: Vec<PartitionReport>,
}

/// A source and what its instances have seen.
pub(super) struct Source<'a> {
    pub(super) node: usize,
    pub(super) spec: &'a SourceSpec,
    pub(super) seen: Vec<&'a PartitionSeen>,
    /// Whether an instance of the source has reported.
    pub(super) has_begun: bool,
}

/// The present, on both clocks.
pub(super) struct Now {
    pub(super) ns: u64,
    wall: SystemTime,
}

impl Now {
    pub(super) fn read() -> Now {
        Now {
            ns: now_ns(),
            wall: SystemTime::now(),
        }
    }

    /// The moment to which what was heard at `heard_ns` belongs. What came since was not told yet: a source
    /// that tells once a second would seem to be silent for a second. One that tells no more is silent.
    pub(super) fn of_what_was_heard(self, heard_ns: u64) -> Now {
        let ago = Duration::from_nanos(self.ns.saturating_sub(heard_ns));
        if ago > FRESH {
            return self;
        }
        Now {
            ns: heard_ns.min(self.ns),
            wall: self.wall.checked_sub(ago).unwrap_or(self.wall),
        }
    }

    fn text(&self, at_ns: u64) -> String {
        let ago = Duration::from_nanos(self.ns.saturating_sub(at_ns));
        let at = self.wall.checked_sub(ago).unwrap_or(UNIX_EPOCH);
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        event_time_text((at.as_millis() * 1_000) as i64)
    }
}

impl Source<'_> {
    pub(super) fn examined(&self, program: &Program, now: &Now) -> Examined {
        let judges = program.judges(self.node);
        let has_time = self.spec.event_time.is_some();
        let partitions = self.seen.iter().map(|seen| {
            let counted = &seen.counted;
            let since_ns = seen.last_row_ns.unwrap_or(seen.since_ns);
            let silent_ns = now.ns.saturating_sub(since_ns);
            let is_known = seen.partition.is_some();
            PartitionReport {
                partition: seen.partition,
                name: seen.name.clone(),
                state: match seen.state {
                    State::Active => "active",
                    State::Idle => "idle",
                    State::Ended => "ended",
                }
                .to_string(),
                holds_back: false,
                rows: counted.rows,
                last_row: seen.last_row_ns.map(|at_ns| now.text(at_ns)),
                silent_s: is_known.then_some(silent_ns as f64 / 1e9),
                watermark: seen.watermark.map(event_time_text),
                watermark_us: seen.watermark,
                behind: (has_time && !counted.rows_only).then(|| behind(counted)),
                rows_late: counted.judged.iter().map(|judged| judged.rows_late).sum(),
                rows_late_by_start: by_start(counted),
                late_for: late_for(counted, &judges),
            }
        });
        Examined {
            table: self.spec.table.name.clone(),
            event_time: self
                .spec
                .event_time
                .map(|spec| self.event_time(spec.delay_us, &judges)),
            partitions: partitions.collect(),
        }
    }

    fn event_time(&self, delay_us: i64, judges: &[Lateness]) -> EventTimeReport {
        let table = &self.spec.table;
        let column = table
            .event_time
            .map(|(column, _)| table.schema.field(column).name().clone());
        let column = column.unwrap_or_default();
        let mut all = Counted::default();
        self.seen.iter().for_each(|seen| all.merge(&seen.counted));
        let proposals = match judges.is_empty() || all.rows == 0 {
            true => Vec::new(),
            false => KEPT.map(|kept| delay(&all, kept, &column)).to_vec(),
        };
        let idle_proposals = match all.silences.total() {
            0 => Vec::new(),
            _ => KEPT.map(|kept| idle_timeout(&all, kept)).to_vec(),
        };
        EventTimeReport {
            delay_us,
            idle_timeout: table.options.get("idle_timeout").cloned(),
            rows: all.rows,
            behind: behind(&all),
            rows_late: all.judged.iter().map(|judged| judged.rows_late).sum(),
            rows_late_by_start: by_start(&all),
            late_for: late_for(&all, judges),
            proposals,
            idle_proposals,
            column,
        }
    }
}

fn by_start(counted: &Counted) -> u64 {
    counted
        .judged
        .iter()
        .map(|judged| judged.rows_late_by_start)
        .sum()
}

/// The rows of `all` that a share of `kept` thousandths leaves out, at most.
fn rest(rows: u64, kept: u64) -> u64 {
    (u128::from(rows) * u128::from(1_000 - kept) / 1_000) as u64
}

/// The shortest delay, among the boundaries of slots, that keeps a share of the rows for every operator.
fn delay(all: &Counted, kept: u64, column: &str) -> ProposalReport {
    let us = |judged: &Judged| judged.delays.boundary_above(rest(judged.rows, kept));
    let us = all.judged.iter().map(us).max().unwrap_or(0);
    let late = all.judged.iter().map(|judged| judged.delays.above(us));
    ProposalReport {
        keep_percent: kept as f64 / 10.0,
        us,
        setting: format!("WATERMARK FOR {column} AS {column} - {}", interval(us)),
        rows_late: late.sum(),
    }
}

fn idle_timeout(all: &Counted, kept: u64) -> ProposalReport {
    let us = all.silences.boundary_above(rest(all.rows, kept));
    ProposalReport {
        keep_percent: kept as f64 / 10.0,
        us,
        setting: format!("'idle_timeout' = '{}'", option(us)),
        rows_late: all.silences.above(us),
    }
}

fn behind(counted: &Counted) -> BehindReport {
    let Counted {
        rows,
        behind,
        behind_max_us,
        ..
    } = counted;
    let at = |kept: u64| boundary(behind, rest(*rows, kept), *behind_max_us);
    BehindReport {
        rows: behind.total(),
        p50_us: at(500),
        p99_us: at(990),
        p999_us: at(999),
        max_us: *behind_max_us,
        slots: behind.filled(),
    }
}

/// The least boundary with at most `rest` rows above it. The last slot is shown by its longest duration.
fn boundary(slots: &Slots, rest: u64, max_us: i64) -> u64 {
    match slots.boundary_above(rest) {
        END_US => max_us.unsigned_abs(),
        us => us,
    }
}

fn late_for(counted: &Counted, judges: &[Lateness]) -> Vec<LateForReport> {
    let judged = counted.judged.iter().filter_map(|judged| {
        let mut judges = judges.iter();
        let lateness = judges.find(|lateness| lateness.key() == judged.by)?;
        let edges = judged.first_closed.zip(judged.last_closed);
        let edges = edges.map(|(first, last)| (edge(*lateness, first).0, edge(*lateness, last).1));
        Some(LateForReport {
            operator: operator(*lateness),
            rows_late: judged.rows_late,
            first: edges.map(|(first, _)| event_time_text(first)),
            last: edges.map(|(_, last)| event_time_text(last)),
            delay_max_us: judged.delay_max_us,
        })
    });
    judged.collect()
}

/// The window that is closed for its last row at a watermark; for operators without windows, the row's time.
fn edge(lateness: Lateness, closed: EventTime) -> (EventTime, EventTime) {
    match lateness {
        Lateness::Windows(windows, lateness_us) => {
            let end = closed.saturating_sub(lateness_us);
            let size_us = windows.to_event_time(windows.size);
            match windows.kind {
                // A session's row, before which the gap may have begun.
                WindowKind::Session => (end.saturating_sub(size_us), end.saturating_sub(size_us)),
                _ => (end.saturating_sub(size_us), end),
            }
        }
        Lateness::Time => (closed.saturating_sub(1), closed.saturating_sub(1)),
        Lateness::AtTime => (closed, closed),
    }
}

/// What makes a row late.
fn operator(lateness: Lateness) -> String {
    let text = |windows: Windows, ticks: i64| span(windows.to_event_time(ticks).unsigned_abs());
    match lateness {
        Lateness::Time => "a join with versions of a table, or a window of rows".to_string(),
        Lateness::AtTime => "OVER or an interval join".to_string(),
        Lateness::Windows(windows, _) => {
            let (size, slide) = (text(windows, windows.size), text(windows, windows.slide));
            match windows.kind {
                WindowKind::Aligned if windows.size == windows.slide => {
                    format!("windows of {size}")
                }
                WindowKind::Aligned => format!("windows of {size} every {slide}"),
                WindowKind::Cumulating => format!("windows of up to {size}"),
                WindowKind::Session => format!("sessions with a gap of {size}"),
                WindowKind::Count => "windows of rows".to_string(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_busy_source_is_not_silent_between_two_looks() {
        let second = 1_000_000_000;
        let moment = |heard_ns| {
            let now = Now {
                ns: 100 * second,
                wall: UNIX_EPOCH + Duration::from_secs(1000),
            };
            let now = now.of_what_was_heard(heard_ns);
            (
                now.ns / second,
                now.wall.duration_since(UNIX_EPOCH).unwrap().as_secs(),
            )
        };
        assert_eq!(moment(99 * second), (99, 999));
        // It does not answer any more.
        assert_eq!(moment(90 * second), (100, 1000));
        assert_eq!(moment(101 * second), (100, 1000));
    }
}
