//! What sources count of a partition's rows: how far they are behind, and which are late for the operators
//! that follow.
//!
//! Everything here is a property of the partition's rows in their order (I2): it does not depend on how they
//! were cut into chunks, and checkpoints contain it. A chunk whose rows are in order costs one comparison per
//! row; of others, rows are looked at one by one.

mod slots;

use arrow_schema::TimeUnit;
use serde::{Deserialize, Serialize};

use crate::operator::late_rows::Lateness;
use crate::operator::window::ticks_to_us;
use crate::time::{EventTime, MIN_WATERMARK};
pub use slots::{END_US, Slots};

/// The most operators for which the late rows of a source are counted apart, of up to 13 KiB for each
/// partition. Late rows for further ones are only counted by the operators themselves.
pub const JUDGED_MAX: usize = 8;

/// What was counted of a partition's rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The number of rows, without bad ones.
    pub rows: u64,
    /// Whether only the rows are counted, and not how far they are behind: the source has more partitions
    /// than that is counted for, or had when the partition began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rows_only: bool,
    /// The largest event time.
    pub largest: Option<EventTime>,
    /// By how much rows are behind the largest event time before them; rows that are not are not counted.
    pub behind: Slots,
    /// The furthest that a row was behind.
    pub behind_max_us: i64,
    /// The late rows for each operator that drops late rows.
    pub judged: Vec<Judged>,
    /// The rows that `idle_timeout` has made late, by the length of the silence before them: the partition
    /// was marked as idle, and the others went on.
    pub silences: Slots,
}

/// The rows of a partition that are late for an operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// When a row is late ([`Lateness::key`]).
    pub by: String,
    /// The rows since the operator was added to the query.
    pub rows: u64,
    /// The shortest delay of the watermark with which each row is in time; rows that are in time without a
    /// delay are not counted.
    pub delays: Slots,
    /// The longest of these delays.
    pub delay_max_us: i64,
    /// The rows that were late.
    pub rows_late: u64,
    /// Those of them that would have been in time if their partition had been there all the time: it had
    /// appeared late, or was idle.
    pub rows_late_by_start: u64,
    /// The watermark at which the earliest window of a late row had closed.
    pub first_closed: Option<EventTime>,
    /// The watermark at which the latest window of a late row had closed.
    pub last_closed: Option<EventTime>,
}

/// The rows of a chunk, with what is known of the partition before them.
pub(crate) struct Times<'a> {
    pub(crate) ticks: &'a [i64],
    pub(crate) unit: TimeUnit,
    /// The largest event time before; [`MIN_WATERMARK`] if there was none.
    pub(crate) largest: EventTime,
    /// The partition's watermark before.
    pub(crate) watermark: EventTime,
    pub(crate) delay_us: i64,
    /// The least ticks of a row that is earlier than a row before it, or than its own watermark.
    pub(crate) least: i64,
    /// The larger one of the largest event time and the watermark after the rows.
    pub(crate) edge: EventTime,
}

impl Judged {
    fn new(by: String) -> Judged {
        Judged {
            by,
            ..Judged::default()
        }
    }

    /// Adds what was counted for the same operator in another partition.
    pub fn merge(&mut self, other: &Judged) {
        let Judged {
            by: _,
            rows,
            delays,
            delay_max_us,
            rows_late,
            rows_late_by_start,
            first_closed,
            last_closed,
        } = other;
        self.rows += rows;
        self.delays.merge(delays);
        self.delay_max_us = self.delay_max_us.max(*delay_max_us);
        self.rows_late += rows_late;
        self.rows_late_by_start += rows_late_by_start;
        let first = self.first_closed.into_iter().chain(*first_closed);
        self.first_closed = first.min();
        let last = self.last_closed.into_iter().chain(*last_closed);
        self.last_closed = last.max();
    }

    fn count(&mut self, lateness: Lateness, times: &Times<'_>) -> u64 {
        let closes = lateness.closes(times.unit);
        // A later time closes no earlier: if the earliest row is in time at the end, all are.
        if closes(times.least).is_some_and(|closed| closed > times.edge) {
            return 0;
        }
        let mut by_start = 0;
        let (mut largest, mut watermark) = (times.largest, times.watermark);
        // Rows from `open` on are in time until `open_until`, so that most need no division.
        let (mut open, mut open_until) = (i64::MAX, MIN_WATERMARK);
        for &ticks in times.ticks {
            let time = ticks_to_us(ticks, times.unit);
            let edge = largest.max(watermark);
            let is_open = ticks >= open && open_until > edge;
            if time <= edge
                && !is_open
                && let Some(closed) = closes(ticks)
            {
                if closed > edge {
                    (open, open_until) = (ticks, closed);
                } else {
                    // Late with a delay of zero if it closes at the largest event time: a delay of one tick
                    // keeps the row.
                    let delay_us = largest.saturating_sub(closed).saturating_add(1);
                    if delay_us > 0 && largest > MIN_WATERMARK {
                        self.delays.add(delay_us as u64);
                        self.delay_max_us = self.delay_max_us.max(delay_us);
                    }
                    let by_delay = delay_us > times.delay_us && largest > MIN_WATERMARK;
                    if closed <= watermark {
                        self.late(closed);
                        by_start += u64::from(!by_delay);
                    }
                }
            }
            if time > largest {
                largest = time;
                watermark = watermark.max(largest - times.delay_us);
            }
        }
        self.rows_late_by_start += by_start;
        by_start
    }

    fn late(&mut self, closed: EventTime) {
        self.rows_late += 1;
        let first = self.first_closed.map_or(closed, |first| first.min(closed));
        self.first_closed = Some(first);
        let last = self.last_closed.map_or(closed, |last| last.max(closed));
        self.last_closed = Some(last);
    }
}

impl Counted {
    /// Counts only rows, from now on or going on with the `known` counts.
    pub(crate) fn of_rows(known: Option<&Counted>) -> Counted {
        Counted {
            rows: known.map_or(0, |known| known.rows),
            rows_only: true,
            largest: known.and_then(|known| known.largest),
            ..Counted::default()
        }
    }

    /// Nothing yet, or what was counted before by the `known` one, for the operators that are there now.
    pub(crate) fn of(lateness: &[Lateness], known: Option<&Counted>) -> Counted {
        if known.is_some_and(|known| known.rows_only) {
            return Counted::of_rows(known);
        }
        let judged = lateness.iter().map(|lateness| {
            let by = lateness.key();
            let mut known = known.into_iter().flat_map(|known| &known.judged);
            let known = known.find(|judged| judged.by == by);
            known.cloned().unwrap_or_else(|| Judged::new(by))
        });
        let judged = judged.collect();
        Counted {
            judged,
            ..known.cloned().unwrap_or_default()
        }
    }

    /// Counts rows of which none is early enough to be late.
    pub(crate) fn add_rows(&mut self, rows: usize) {
        self.rows += rows as u64;
        for judged in &mut self.judged {
            judged.rows += rows as u64;
        }
    }

    /// Counts the rows of a chunk that are behind, and those that are late. `silence_us` is how long the
    /// partition was silent before it was no longer idle.
    pub(crate) fn add(
        &mut self,
        times: &Times<'_>,
        lateness: &[Lateness],
        silence_us: Option<u64>,
    ) {
        let mut largest = times.largest;
        for &ticks in times.ticks {
            let time = ticks_to_us(ticks, times.unit);
            if time >= largest {
                largest = time;
            } else {
                self.behind.add((largest - time) as u64);
                self.behind_max_us = self.behind_max_us.max(largest - time);
            }
        }
        for (judged, &lateness) in self.judged.iter_mut().zip(lateness) {
            let by_start = judged.count(lateness, times);
            if let Some(silence_us) = silence_us {
                // The partition is idle when it was silent for the time-out: a longer one keeps the rows.
                (0..by_start).for_each(|_| self.silences.add(silence_us + 1));
            }
        }
    }

    /// Adds what was counted in another partition of the same source; nothing if that has counted only rows.
    pub fn merge(&mut self, other: &Counted) {
        if other.rows_only {
            return;
        }
        self.rows += other.rows;
        self.largest = self.largest.max(other.largest);
        self.behind.merge(&other.behind);
        self.behind_max_us = self.behind_max_us.max(other.behind_max_us);
        for other in &other.judged {
            match self.judged.iter_mut().find(|own| own.by == other.by) {
                Some(own) => own.merge(other),
                None => self.judged.push(other.clone()),
            }
        }
        self.silences.merge(&other.silences);
    }
}
