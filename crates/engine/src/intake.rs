//! The intake of a source instance: it turns what a source reads into chunks with event time.
//!
//! For each batch it rejects bad records, computes columns, reads event times, moves the partition's
//! watermark (I2: on every well-formed row, before any condition of the query), and records each row's
//! own watermark if some row of the batch is earlier than its own. The instance's watermark is the
//! minimum over its partitions that are neither idle nor ended.

mod columns;
mod notices;
mod observe;
mod partitions;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_link::Waiter;

use crate::budget::Budget;
use crate::checkpoint::PartitionState;
use crate::chunk::{Chunk, Origin, Partitions};
use crate::counted::{Counted, JUDGED_MAX};
use crate::counters::clock;
use crate::error::Result;
use crate::expression::{Expression, reject};
use crate::operator::late_rows::Lateness;
use crate::ports::Input;
use crate::recorder::{Recorder, Suspect};
use crate::source::{DeadLetters, Helped, Rejected, Source, SourcePoll, SourceRows};
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK, now_ns};
use notices::Looking;
pub use notices::{Notice, Notices, Place, is_plausible, leaves};
use observe::{Partition, observe};
pub use partitions::{PartitionSeen, State};

/// How a source's batches become chunks.
#[derive(Clone)]
pub struct IntakeSpec {
    /// Columns of the chunks, over the columns that the source reads.
    pub columns: Vec<Arc<dyn Expression>>,
    /// The columns' names and types.
    pub schema: SchemaRef,
    /// The table's event time, if it declares one.
    pub event_time: Option<EventTimeSpec>,
    /// The number added to the source's partition numbers, so that they are unique in the query.
    pub partition_base: u32,
    /// A partition without rows for this long no longer holds the watermark back (`'idle_timeout'`).
    pub idle_timeout_ns: Option<u64>,
    /// Whether each partition is a unit of work.
    pub unit_per_partition: bool,
    /// Whether a partition that has ended is forgotten: no checkpoint needs to know of it, and there may
    /// be any number of them ([`crate::source::SourceDescription::transient_partitions`]).
    pub forgets_ended: bool,
    /// When rows are late for the operators that follow, each once: what is counted of late rows. At most
    /// [`JUDGED_MAX`] are.
    pub judged: Vec<Lateness>,
}

/// `WATERMARK FOR column AS column - delay`.
#[derive(Debug, Clone, Copy)]
pub struct EventTimeSpec {
    /// The column of the chunks with the event time.
    pub column: usize,
    /// How far the watermark stays behind the largest event time, in microseconds.
    pub delay_us: i64,
    /// Whether a later operator treats a row *at* its own watermark as late: such rows are then marked
    /// like those before it.
    pub marks_at_watermark: bool,
}

/// The number of records read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IntakeCounts {
    /// Records read, bad ones included.
    pub rows_in: u64,
    /// Records rejected.
    pub rows_bad: u64,
    /// Connections that were lost.
    pub connections_lost: u64,
    /// What other threads have done for the source.
    pub helped: Helped,
}

/// A source and how its rows become chunks.
pub struct Intake {
    source: Box<dyn Source>,
    spec: IntakeSpec,
    dead_letters: Arc<dyn DeadLetters>,
    /// Where partitions that were read before resume.
    restored: Vec<PartitionState>,
    partitions: BTreeMap<u32, Partition>,
    watermark: EventTime,
    /// The largest watermark of partitions that were forgotten.
    forgotten: EventTime,
    /// What was counted of partitions that were forgotten, and of units of work.
    past: Counted,
    all_idle: bool,
    ingest_ns: u64,
    /// What one poll has produced and has not been handed on: a chunk and a watermark.
    ready: VecDeque<Input>,
    counts: IntakeCounts,
    /// The budget of the process, and this source's place among those that wait for each other.
    budget: Option<(Arc<Budget>, usize)>,
    /// The schema of the source's batches, and whether their columns are the table's.
    as_read: Option<(SchemaRef, bool)>,
    /// Where the rows being processed are recorded, and the number of the instance.
    recorder: Option<(Recorder, usize)>,
    /// Whether something is recorded there.
    is_noted: bool,
    /// Rows that were being processed when a process died: they are processed one by one, and a single
    /// row that is left of them is rejected.
    suspects: Vec<Suspect>,
    /// Rows under suspicion that the source has read and that are not processed yet.
    pieces: VecDeque<SourceRows>,
    /// Where notices about the rows go.
    looking: Option<Box<Looking>>,
    stopped: bool,
    ended: bool,
}

/// How long a source that is ahead waits before it looks again.
const HELD_BACK_NS: u64 = 1_000_000;

/// There is nothing to hand on now.
pub enum Waiting {
    /// Wait until the waiter is woken by a descriptor or a waker, or, if given, until this time.
    ForSource(Option<u64>),
    /// Wait until this time on the engine's clock; news from sources can wait as long.
    Until(u64),
}

impl Intake {
    /// An intake that is not open yet.
    pub fn new(
        source: Box<dyn Source>,
        mut spec: IntakeSpec,
        letters: Arc<dyn DeadLetters>,
    ) -> Intake {
        spec.judged.truncate(JUDGED_MAX);
        Intake {
            source,
            spec,
            dead_letters: letters,
            restored: Vec::new(),
            partitions: BTreeMap::new(),
            watermark: MIN_WATERMARK,
            forgotten: MIN_WATERMARK,
            past: Counted::default(),
            all_idle: false,
            ingest_ns: clock::stamp_now(),
            ready: VecDeque::new(),
            counts: IntakeCounts::default(),
            budget: None,
            as_read: None,
            recorder: None,
            is_noted: false,
            suspects: Vec::new(),
            pieces: VecDeque::new(),
            looking: None,
            stopped: false,
            ended: false,
        }
    }

    /// Resumes from a checkpoint. `partitions` may be those of all instances.
    pub fn resume(&mut self, partitions: Vec<PartitionState>) {
        self.restored = partitions;
    }

    /// Opens the source, on its worker's thread.
    pub fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        for (partition, name) in self.source.open(waiter)? {
            self.begin_partition(partition, name, MIN_WATERMARK);
        }
        if !self.restored.is_empty() {
            self.move_watermark();
        }
        Ok(())
    }

    /// The watermark over all partitions; `None` before the first.
    pub fn watermark(&self) -> Option<EventTime> {
        (self.watermark > MIN_WATERMARK).then_some(self.watermark)
    }

    /// Stops reading; windows stay open.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Releases the source.
    pub fn close(&mut self) {
        self.source.close();
    }

    /// Records read and rejected since the last call; `None` if there were none.
    pub fn take_counts(&mut self) -> Option<IntakeCounts> {
        let helped = self.source.take_helped();
        if helped.busy_ns > 0 {
            self.counts.helped = helped;
        }
        let counts = std::mem::take(&mut self.counts);
        (counts != IntakeCounts::default()).then_some(counts)
    }

    /// The next input, or how long to wait for it.
    pub fn next_input(&mut self) -> Result<std::result::Result<Input, Waiting>> {
        if let Some(input) = self.ready.pop_front() {
            return Ok(Ok(input));
        }
        self.note(None);
        if self.ended {
            return Ok(Err(Waiting::ForSource(None)));
        }
        if self.stopped {
            self.ended = true;
            self.holds_nobody();
            return Ok(Ok(Input::End {
                ingest_ns: self.ingest_ns,
                stopped: true,
            }));
        }
        if let Some(piece) = self.pieces.pop_front() {
            self.take_rows(piece)?;
            return Ok(self.ready.pop_front().ok_or(Waiting::Until(0)));
        }
        if self.is_held_back() {
            return Ok(Err(Waiting::Until(now_ns() + HELD_BACK_NS)));
        }
        match self.source.poll()? {
            SourcePoll::Rows(rows) if !self.suspects.is_empty() => self.take_apart(rows)?,
            SourcePoll::Rows(rows) => self.take(rows)?,
            SourcePoll::PartitionStarted { partition, name } => {
                self.begin_partition(partition, name, self.watermark);
                if self.is_active() {
                    self.end_silence();
                }
            }
            SourcePoll::ConnectionLost => self.counts.connections_lost += 1,
            SourcePoll::PartitionEnded { partition } => {
                self.end_partition(partition);
                // After the last piece the source may have ended, too. It must not be marked silent
                // before it says so: rows that are still to come would be late if other sources are
                // further.
                if self.is_active() {
                    self.move_watermark();
                }
            }
            SourcePoll::EndOfWork => {
                let partitions = std::mem::take(&mut self.partitions);
                let ended = partitions.into_values();
                ended.for_each(|partition| self.past.merge(&partition.counted));
                self.watermark = MIN_WATERMARK;
                self.forgotten = MIN_WATERMARK;
                self.ready.push_back(Input::EndOfWork {
                    ingest_ns: self.ingest_ns,
                });
            }
            SourcePoll::Pending => {
                self.find_none();
                let next_idle_ns = self.find_idle();
                if self.ready.is_empty() {
                    return Ok(Err(Waiting::ForSource(next_idle_ns)));
                }
            }
            SourcePoll::NotBefore { time_ns } => {
                self.find_none();
                let next_idle_ns = self.find_idle().unwrap_or(u64::MAX);
                if self.ready.is_empty() {
                    return Ok(Err(Waiting::Until(time_ns.min(next_idle_ns))));
                }
            }
            SourcePoll::End => {
                self.ended = true;
                self.holds_nobody();
                self.ready.push_back(Input::End {
                    ingest_ns: self.ingest_ns,
                    stopped: false,
                });
            }
        }
        Ok(self.ready.pop_front().ok_or(Waiting::Until(0)))
    }

    /// Records what instance `instance` processes, and processes suspect rows one by one.
    pub fn watch_out(&mut self, recorder: Option<Recorder>, instance: usize, all: Vec<Suspect>) {
        self.recorder = recorder.map(|recorder| (recorder, instance));
        self.suspects = all;
    }

    fn note(&mut self, work: Option<Suspect>) {
        if let Some((recorder, instance)) = &self.recorder
            && (work.is_some() || self.is_noted)
        {
            recorder.note(*instance, work);
            self.is_noted = work.is_some();
        }
    }

    /// Cuts out the rows that are under suspicion.
    fn take_apart(&mut self, mut rows: SourceRows) -> Result<()> {
        // Rows that were read before must not be processed again.
        if let Some(partition) = self.partitions.get(&rows.partition) {
            rows.skip_before(partition.next);
        }
        let suspects = self.suspects.iter();
        let own = suspects.filter(|suspect| suspect.partition == rows.partition);
        let own = own.copied().collect::<Vec<Suspect>>();
        let is_meant = |position: u64| {
            let mut own = own.iter();
            own.any(|suspect| (suspect.first..=suspect.last).contains(&position))
        };
        let count = rows.batch.num_rows();
        let meant = (0..count).filter(|&row| is_meant(rows.positions.at(row)));
        let cuts = meant.flat_map(|row| [row, row + 1]).chain([count]);
        let cuts = cuts.collect::<Vec<usize>>();
        let mut begin = 0;
        for end in cuts {
            // Rejected records stay with the rows that they follow.
            if let Some(mut piece) = rows.slice(begin, end - begin) {
                let last = rows.positions.at(end - 1);
                let is_before = |row: &mut Rejected| row.position.is_none_or(|at| at <= last);
                piece.rejected = rows.rejected.extract_if(.., is_before).collect();
                self.pieces.push_back(piece);
            }
            begin = end;
        }
        if !rows.rejected.is_empty() {
            rows.batch = rows.batch.slice(0, 0);
            self.pieces.push_back(rows);
        }
        Ok(())
    }

    /// Whether a row has killed a process when it was processed alone.
    fn is_refused(&self, partition: u32, position: u64) -> bool {
        let mut suspects = self.suspects.iter();
        suspects
            .any(|rows| (rows.partition, rows.first, rows.last) == (partition, position, position))
    }

    /// Reports what is noticed in the rows.
    pub fn notice(&mut self, notices: Arc<dyn Notices>) {
        self.looking = Some(Box::new(Looking::new(notices)));
    }

    /// Makes the source wait for other sources when the memory budget is nearly used up.
    pub fn keep_to(&mut self, budget: &Arc<Budget>) {
        // Without event time, no source is ahead.
        if self.spec.event_time.is_some() {
            let place = budget.join();
            self.budget = place.map(|place| (Arc::clone(budget), place));
        }
    }

    /// Notes that the source has ended: no source waits for it.
    fn holds_nobody(&self) {
        if let Some((budget, place)) = &self.budget {
            budget.is_to_wait(*place, MAX_WATERMARK);
        }
    }

    fn is_held_back(&self) -> bool {
        let Some((budget, place)) = &self.budget else {
            return false;
        };
        // A silent source holds nobody back.
        let watermark = match self.all_idle {
            true => MAX_WATERMARK,
            false => self.watermark,
        };
        budget.is_to_wait(*place, watermark) && !self.all_idle
    }

    fn name_partition(&self, partition: u32, name: &str) {
        self.dead_letters
            .name_partition(self.spec.partition_base + partition, name);
    }

    fn take(&mut self, mut rows: SourceRows) -> Result<()> {
        if let Some(partition) = self.partitions.get(&rows.partition) {
            rows.skip_before(partition.next);
        }
        self.take_rows(rows)
    }

    fn take_rows(&mut self, rows: SourceRows) -> Result<()> {
        if let Some(partition) = self.partitions.get_mut(&rows.partition) {
            partition.next = rows.end().unwrap_or(0).max(partition.next);
        }
        // Silences are measured by the clock of this host.
        let ingest_ns = clock::stamp(rows.ingest_ns);
        self.ingest_ns = ingest_ns;
        self.counts.rows_in += (rows.batch.num_rows() + rows.rejected.len()) as u64;
        self.counts.rows_bad += rows.rejected.len() as u64;
        for mut rejected in rows.rejected {
            rejected.partition = Some(self.spec.partition_base + rows.partition);
            self.dead_letters.reject(&rejected)?;
        }
        if rows.batch.num_rows() == 0 {
            return Ok(());
        }
        if let Some(looking) = &mut self.looking {
            looking.at_columns(&rows.batch);
        }
        let first = rows.positions.at(0);
        let last = rows.positions.at(rows.batch.num_rows() - 1);
        let is_refused = first == last && self.is_refused(rows.partition, first);
        if !is_refused {
            self.note(Some(Suspect {
                partition: rows.partition,
                first,
                last,
            }));
        }
        let mut chunk = Chunk::new(rows.batch, ingest_ns);
        chunk.origin = Some(Origin {
            partitions: Partitions::One(self.spec.partition_base + rows.partition),
            positions: rows.positions,
            watermarks: None,
        });
        if is_refused {
            self.counts.rows_bad += 1;
            let reason = "a process died twice while processing it".to_string();
            return self.dead_letters.reject(&reject(&chunk, 0, reason));
        }
        let mut chunk = self.compute(chunk)?;
        if let Some(event_time) = self.spec.event_time {
            chunk = self.check_event_time(event_time, chunk)?;
        }
        let (floor, before) = (self.watermark, self.partitions.len());
        let partition = self.partitions.entry(rows.partition);
        let partition = partition.or_insert_with(|| {
            let counted = self.spec.counted(rows.partition, before, None);
            Partition::new(String::new(), floor, counted)
        });
        partition.counted.add_rows(chunk.rows());
        if let Some(event_time) = self.spec.event_time {
            if std::mem::take(&mut partition.idle) {
                partition.floor = floor.max(partition.watermark(event_time.delay_us));
                let silence_ns = rows.ingest_ns.saturating_sub(partition.last_row_ns);
                partition.silence_us = Some(silence_ns / 1_000);
            }
            let looking = self.looking.as_deref_mut();
            let judged = &self.spec.judged;
            let observed = observe(partition, event_time, judged, &chunk, looking)?;
            if let Some(origin) = &mut chunk.origin {
                origin.watermarks = observed;
            }
        }
        partition.last_row_ns = rows.ingest_ns;
        partition.has_sent = true;
        self.end_silence();
        if chunk.rows() > 0 {
            self.ready.push_back(Input::Chunk { port: 0, chunk });
        }
        self.move_watermark();
        Ok(())
    }

    /// A source that waits for its first or next partition (a listening socket) holds nobody back.
    fn find_none(&mut self) {
        if !self.is_active() {
            self.move_watermark();
        }
    }

    /// Reports that the source holds others back again, before anything else: a partition that has
    /// appeared and has sent nothing yet has no watermark, and rows that are routed by key reach only
    /// some of the receivers.
    fn end_silence(&mut self) {
        if std::mem::take(&mut self.all_idle) {
            self.ready.push_back(Input::Active);
        }
    }
}

#[cfg(test)]
mod tests;
