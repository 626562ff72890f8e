//! The partitions of a source instance: how they begin, fall silent and end, what checkpoints keep of them,
//! and which of them holds the watermark back.

use serde::{Deserialize, Serialize};

use super::observe::Partition;
use super::{Input, Intake, IntakeSpec};
use crate::checkpoint::PartitionState;
use crate::counted::Counted;
use crate::source::Resume;
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK, now_ns};

/// The most sets of slots of a source: with up to 1,622 slots each, and up to 25 bytes for one in a message,
/// they take less than 52 MB, and a message between processes may have 64 MiB.
pub const SLOTS_SETS_MAX: usize = 1_280;

/// What is known of a partition, for whoever asks why nothing comes out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionSeen {
    /// The partition's number in its source; `None` for all those together that have ended and are no longer
    /// told apart: connections, units of work.
    pub partition: Option<u32>,
    /// The partition's name, such as the file's.
    pub name: String,
    /// Whether the partition holds the watermark back.
    pub state: State,
    /// When the partition appeared, on the engine's clock.
    pub since_ns: u64,
    /// When the last row came, on the engine's clock; `None` before the first one.
    pub last_row_ns: Option<u64>,
    /// The partition's watermark; `None` before the first.
    pub watermark: Option<EventTime>,
    /// What was counted of the partition's rows.
    pub counted: Counted,
}

/// Whether a partition holds the watermark back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The watermark waits for the partition.
    Active,
    /// The partition was silent for `idle_timeout`.
    Idle,
    /// The partition has ended.
    Ended,
}

impl IntakeSpec {
    /// The number of partitions of which it is counted how far rows are behind; of further ones only the
    /// number of rows is.
    pub fn partitions_counted(&self) -> usize {
        // `Counted::behind` and `Counted::silences` are sets, too.
        SLOTS_SETS_MAX / (self.judged.len() + 2)
    }

    /// The counts of a partition that begins when there are `before` others, or of a `known` one.
    pub(super) fn counted(&self, number: u32, before: usize, known: Option<&Counted>) -> Counted {
        // Numbers are those of the whole source, so that it doesn't matter how many instances share it. Those
        // of connections grow for ever.
        let ahead = match self.forgets_ended {
            true => before,
            false => number as usize,
        };
        match ahead < self.partitions_counted() {
            true => Counted::of(&self.judged, known),
            false => Counted::of_rows(known),
        }
    }
}

impl Intake {
    /// What is known of the partitions.
    pub fn examine(&self) -> Vec<PartitionSeen> {
        let delay_us = self.spec.event_time.map_or(0, |spec| spec.delay_us);
        let is_over = self.ended && !self.stopped;
        let own = self.partitions.iter().map(|(&number, partition)| {
            let watermark = partition.watermark(delay_us);
            let is_known = self.spec.event_time.is_some() && watermark > MIN_WATERMARK;
            PartitionSeen {
                partition: Some(number),
                name: partition.name.clone(),
                state: match (partition.ended || is_over, partition.idle) {
                    (true, _) => State::Ended,
                    (false, true) => State::Idle,
                    (false, false) => State::Active,
                },
                since_ns: partition.since_ns,
                last_row_ns: partition.has_sent.then_some(partition.last_row_ns),
                watermark: is_known.then_some(watermark),
                counted: partition.counted.clone(),
            }
        });
        let past = (self.past.rows > 0).then(|| PartitionSeen {
            partition: None,
            name: String::new(),
            state: State::Ended,
            since_ns: 0,
            last_row_ns: None,
            watermark: None,
            counted: self.past.clone(),
        });
        own.chain(past).collect()
    }

    pub(super) fn begin_partition(&mut self, number: u32, name: String, floor: EventTime) {
        self.name_partition(number, &name);
        // Units are read one after the other: the silence of the next one must not hold this one back.
        if self.spec.unit_per_partition {
            return;
        }
        let known = self.restored.iter().find(|state| state.resume.name == name);
        let counted = known.and_then(|known| known.counted.as_deref());
        let counted = self.spec.counted(number, self.partitions.len(), counted);
        let mut partition = Partition::new(name, floor, counted);
        if let Some(known) = known {
            partition.next = known.resume.position;
            partition.ended = known.resume.ended;
            partition.floor = known.watermark.unwrap_or(floor);
        }
        self.partitions.insert(number, partition);
    }

    /// How far the partitions have been read.
    pub fn partition_states(&mut self) -> Vec<PartitionState> {
        let delay_us = self.spec.event_time.map_or(0, |spec| spec.delay_us);
        let (source, watermark) = (&mut self.source, self.watermark);
        // The source has read further than what was processed.
        let has_pieces = !self.pieces.is_empty();
        let states = self.partitions.iter().map(|(&number, partition)| {
            let own = partition.watermark(delay_us);
            // A partition that returns is as far as the source was meanwhile.
            let own = if partition.idle {
                own.max(watermark)
            } else {
                own
            };
            PartitionState {
                resume: Resume {
                    name: partition.name.clone(),
                    position: partition.next,
                    bookmark: match partition.ended || has_pieces {
                        true => None,
                        false => source.bookmark(number),
                    },
                    ended: partition.ended,
                },
                watermark: (own > MIN_WATERMARK).then_some(own),
                counted: Some(Box::new(partition.counted.clone())),
            }
        });
        states.collect()
    }

    pub(super) fn end_partition(&mut self, number: u32) {
        let delay_us = self.spec.event_time.map_or(0, |spec| spec.delay_us);
        if self.spec.forgets_ended {
            if let Some(partition) = self.partitions.remove(&number) {
                self.forgotten = self.forgotten.max(partition.watermark(delay_us));
                self.past.merge(&partition.counted);
                let number = self.spec.partition_base + number;
                self.dead_letters.forget_partition(number);
            }
        } else if let Some(partition) = self.partitions.get_mut(&number) {
            partition.ended = true;
        }
    }

    /// Whether some partition is neither idle nor ended.
    pub(super) fn is_active(&self) -> bool {
        self.partitions.values().any(|p| !p.idle && !p.ended)
    }

    /// Marks partitions as idle that have been silent too long; returns when the next one will be.
    pub(super) fn find_idle(&mut self) -> Option<u64> {
        let timeout_ns = self.spec.idle_timeout_ns?;
        let now = now_ns();
        let mut next: Option<u64> = None;
        let mut changed = false;
        for partition in self.partitions.values_mut().filter(|p| !p.idle && !p.ended) {
            let idle_at = partition.last_row_ns.saturating_add(timeout_ns);
            if idle_at <= now {
                partition.idle = true;
                changed = true;
            } else {
                next = Some(next.map_or(idle_at, |next| next.min(idle_at)));
            }
        }
        if changed {
            self.move_watermark();
        }
        next
    }

    pub(super) fn move_watermark(&mut self) {
        let Some(event_time) = self.spec.event_time else {
            return;
        };
        let watermark = |partition: &Partition| partition.watermark(event_time.delay_us);
        let active = self.partitions.values().filter(|p| !p.idle && !p.ended);
        let held_at = active.map(watermark).min();
        // If nobody holds the others back, the largest watermark counts; otherwise the windows that close
        // would depend on which partition fell silent last.
        let furthest = self.partitions.values().map(watermark);
        let furthest = furthest.chain([self.forgotten]).max();
        if let Some(time) = held_at.or(furthest)
            && time > self.watermark
            && time < MAX_WATERMARK
        {
            self.watermark = time;
            self.ready.push_back(Input::Watermark {
                time,
                ingest_ns: self.ingest_ns,
            });
        }
        // Between units there are no partitions either, but then the next unit's rows follow.
        let between_units =
            self.spec.unit_per_partition && !self.partitions.values().any(|p| p.idle);
        if held_at.is_none() && !self.all_idle && !between_units {
            self.all_idle = true;
            self.ready.push_back(Input::Idle);
        }
    }
}
