//! A table that a reader of the process reads: a source whose partitions come through lanes.
//!
//! Positions count the rows of a partition, bad ones included, from 1. Besides its position, a checkpoint
//! stores a [`Bookmark`] of a partition: the offset of the last piece that was passed on as a whole, and the
//! position after it. If a checkpoint falls into a piece, the reader gives it again, and the engine leaves
//! out the rows before the position.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use slackwater_engine::chunk::Positions;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{
    Rejected, Resume, Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
    SourceRows,
};

use super::lane::{Lane, Outlet, Taken, Waiting};
use super::{Custom, Reading, Source as Offered, named};
use crate::feed;
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// The hint if a checkpoint does not fit.
const START_OVER: &str = "declare the source as it was, or start over";

/// A table that is read.
pub(crate) struct CustomSource {
    schema: SchemaRef,
    name: String,
    custom: Arc<Custom>,
}

impl CustomSource {
    pub(super) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> std::result::Result<CustomSource, OptionError> {
        let custom = named(options)?;
        if matches!(*custom, Custom::Sink(_)) {
            return Err(OptionError::new(
                "name",
                format!("'{}' is a sink, and can't be read", table.name),
                "write to it with INSERT INTO",
            ));
        }
        Ok(CustomSource {
            schema: Arc::clone(&table.schema),
            name: table.name.clone(),
            custom,
        })
    }

    fn offered(&self) -> &Offered {
        match &*self.custom {
            Custom::Source(source) => source,
            Custom::Sink(_) => unreachable!("it was checked when the connector was made"),
        }
    }

    fn place(&self) -> String {
        format!("table '{}'", self.name)
    }

    fn partition_name(&self, partition: u32) -> String {
        format!("{}[{partition}]", self.name)
    }
}

impl SourceConnector for CustomSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        let offered = self.offered();
        let names = (0..offered.terms.partitions).map(|partition| self.partition_name(partition));
        SourceDescription {
            connector: "custom".into(),
            max_instances: offered.terms.partitions as usize,
            partitions: Some(names.collect()),
            bounded: offered.terms.ends,
            replayable: offered.terms.has_offsets,
            // The reader says when a partition ends.
            ends_with_peer: true,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        self.check_resume(&request.resume)?;
        Ok(Box::new(Partitions {
            place: self.place(),
            schema: Arc::new(self.schema.project(&request.projection)?),
            table: Arc::clone(&self.schema),
            names: (0..self.offered().terms.partitions)
                .map(|partition| self.partition_name(partition))
                .collect(),
            custom: Arc::clone(&self.custom),
            request,
            partitions: Vec::new(),
            turn: 0,
        }))
    }

    fn check_resume(&self, resume: &[Resume]) -> Result<()> {
        let partitions = self.offered().terms.partitions;
        for resume in resume.iter().filter(|resume| !resume.ended) {
            let names = (0..partitions).map(|partition| self.partition_name(partition));
            if !names.into_iter().any(|name| name == resume.name) {
                let reason = format!(
                    "the checkpoint has rows of {}, but the source has {partitions} partitions, from 0",
                    resume.name
                );
                return Err(Error::new(self.place(), reason)
                    .hint(START_OVER)
                    .final_one());
            }
        }
        Ok(())
    }
}

/// What a checkpoint stores of a partition besides the position, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bookmark {
    /// The offset that came with the last piece that was passed on as a whole; `None` before the first.
    pub(super) offset: Option<String>,
    /// The position of the row after it.
    pub(super) position: u64,
}

impl Bookmark {
    /// The beginning of a partition.
    pub(super) const BEGINNING: Bookmark = Bookmark {
        offset: None,
        position: 1,
    };
}

/// One instance's part of the source.
struct Partitions {
    place: String,
    /// The columns that are read.
    schema: SchemaRef,
    /// The columns of the table.
    table: SchemaRef,
    /// The names of all partitions.
    names: Vec<String>,
    custom: Arc<Custom>,
    request: SourceRequest,
    /// The partitions that this instance reads and that have not ended before.
    partitions: Vec<Partition>,
    /// Which of them is asked next.
    turn: usize,
}

struct Partition {
    lane: Arc<Lane>,
    /// The number of its reader, and the reader once it is started.
    number: u64,
    reading: Option<Box<dyn Reading>>,
    /// Where to resume.
    bookmark: Bookmark,
    /// The piece that is passed on.
    piece: Option<Passing>,
    /// The position of the first row of the piece, or of the next one.
    next: u64,
    has_ended: bool,
}

/// A piece, and how many of its rows and of the bad ones were passed on.
struct Passing {
    waiting: Waiting,
    rows: usize,
    bad: usize,
}

impl Passing {
    /// Passes on the next rows, at most so many, with the bad ones among them; `None` if there are none left.
    /// `base` is the position of the first row of the piece.
    fn next(
        &mut self,
        base: u64,
        rows_max: usize,
    ) -> Option<(RecordBatch, Positions, Vec<Rejected>)> {
        let fitted = &self.waiting.fitted;
        let begin = self.rows;
        let rows = (fitted.rows.num_rows() - begin).min(rows_max);
        let places = fitted.places.as_ref();
        // A bad row is passed on with the rows that it follows: all before a position must have been.
        let end = match begin + rows < fitted.rows.num_rows() {
            true => places.map_or(0, |places| places.value(begin + rows)),
            false => u64::MAX,
        };
        let bad = fitted.bad[self.bad..].iter();
        let rejected = bad.take_while(|bad| bad.row < end).map(|bad| Rejected {
            partition: None,
            position: Some(base + bad.row),
            reason: bad.reason.clone(),
            record: bad.record.clone(),
        });
        let rejected = rejected.collect::<Vec<_>>();
        if rows == 0 && rejected.is_empty() {
            return None;
        }
        let positions = match places {
            None => Positions::Run {
                first: base + begin as u64,
            },
            Some(places) => {
                let places = places.slice(begin, rows);
                let positions = places.values().iter().map(|place| base + place);
                Positions::List(UInt64Array::from_iter_values(positions))
            }
        };
        self.rows += rows;
        self.bad += rejected.len();
        Some((fitted.rows.slice(begin, rows), positions, rejected))
    }
}

impl Partition {
    /// The next rows, if some wait; the piece before them counts as passed on then.
    fn next(&mut self, rows_max: usize, schema: &SchemaRef) -> Result<Next> {
        loop {
            if let Some(piece) = &mut self.piece
                && let Some((batch, positions, rejected)) = piece.next(self.next, rows_max)
            {
                let batch = feed::fitted(&batch, schema);
                return Ok(Next::Rows(SourceRows {
                    batch: batch.map_err(|reason| Error::new("", reason))?,
                    partition: self.lane.partition,
                    positions,
                    ingest_ns: piece.waiting.since_ns,
                    rejected: (rejected.into_iter())
                        .map(|rejected| Rejected {
                            partition: Some(self.lane.partition),
                            ..rejected
                        })
                        .collect(),
                }));
            }
            self.settle();
            match self.lane.take()? {
                Taken::Piece(waiting) => {
                    self.piece = Some(Passing {
                        waiting,
                        rows: 0,
                        bad: 0,
                    });
                }
                Taken::Nothing => return Ok(Next::Nothing),
                Taken::End => return Ok(Next::End),
            }
        }
    }

    /// Moves the bookmark behind the piece if all of it was passed on.
    fn settle(&mut self) {
        let is_over = |piece: &mut Passing| {
            let fitted = &piece.waiting.fitted;
            piece.rows == fitted.rows.num_rows() && piece.bad == fitted.bad.len()
        };
        if let Some(piece) = self.piece.take_if(is_over) {
            self.next += piece.waiting.fitted.total();
            if let Some(offset) = piece.waiting.offset {
                self.bookmark = Bookmark {
                    offset: Some(offset),
                    position: self.next,
                };
            }
        }
    }
}

/// What a partition has.
enum Next {
    Rows(SourceRows),
    Nothing,
    End,
}

impl Partitions {
    fn offered(&self) -> &Offered {
        match &*self.custom {
            Custom::Source(source) => source,
            Custom::Sink(_) => unreachable!("it was checked when the connector was made"),
        }
    }

    /// Where a partition resumes; `None` if it was read to its end.
    fn resume(&self, name: &str) -> Result<Option<Bookmark>> {
        let known = self.request.resume.iter().find(|known| known.name == *name);
        let Some(known) = known else {
            return Ok(Some(Bookmark::BEGINNING));
        };
        if known.ended {
            return Ok(None);
        }
        // Without a bookmark all rows are read again, and those before the position are left out.
        let Some(text) = &known.bookmark else {
            return Ok(Some(Bookmark::BEGINNING));
        };
        let bookmark = serde_json::from_str::<Bookmark>(text);
        let bookmark = bookmark.map_err(|error| {
            let reason = format!("the checkpoint's offset can't be read: {error}: {text}");
            Error::new(name, reason).hint(START_OVER).final_one()
        });
        bookmark.map(Some)
    }
}

impl Source for Partitions {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        let partitions = self.offered().terms.partitions;
        let own = (0..partitions).filter(|partition| {
            *partition as usize % self.request.instances == self.request.instance
        });
        let mut opened = Vec::new();
        for partition in own {
            let name = self.names[partition as usize].clone();
            let bookmark = self.resume(&name)?;
            opened.push((partition, name));
            let Some(bookmark) = bookmark else { continue };
            let table = Arc::clone(&self.table);
            let lane = Arc::new(Lane::new(partition, partitions, table, waiter.waker()));
            let number = self.offered().running.begin(partition);
            self.partitions.push(Partition {
                lane: Arc::clone(&lane),
                number,
                reading: None,
                next: bookmark.position,
                bookmark: bookmark.clone(),
                piece: None,
                has_ended: false,
            });
            let outlet = Outlet {
                lane,
                offset: bookmark.offset,
                number,
                source: Arc::clone(&self.custom),
            };
            let started = self.offered().reader.start(outlet);
            let started = started.map_err(|error| error.at(&self.place).final_one())?;
            if let Some(own) = self.partitions.last_mut() {
                own.reading = Some(started);
            }
        }
        Ok(opened)
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        let rows_max = self.request.tuning.chunk_rows();
        let count = self.partitions.len();
        for _ in 0..count {
            let at = self.turn % count;
            self.turn = at + 1;
            let partition = &mut self.partitions[at];
            if partition.has_ended {
                continue;
            }
            let number = partition.lane.partition;
            let next = partition.next(rows_max, &self.schema);
            let place = || format!("{}, partition {number}", self.place);
            match next.map_err(|error| error.at(&place()).final_one())? {
                Next::Rows(rows) => return Ok(SourcePoll::Rows(rows)),
                Next::Nothing => {}
                Next::End => {
                    partition.has_ended = true;
                    return Ok(SourcePoll::PartitionEnded { partition: number });
                }
            }
        }
        match self.partitions.iter().all(|partition| partition.has_ended) {
            true => Ok(SourcePoll::End),
            false => Ok(SourcePoll::Pending),
        }
    }

    fn bookmark(&mut self, partition: u32) -> Option<String> {
        if !self.offered().terms.has_offsets {
            return None;
        }
        let mut own = self.partitions.iter_mut();
        let partition = own.find(|own| own.lane.partition == partition)?;
        partition.settle();
        serde_json::to_string(&partition.bookmark).ok()
    }

    fn close(&mut self) {
        for partition in std::mem::take(&mut self.partitions) {
            self.offered().running.over(partition.number);
            if let Some(reading) = partition.reading.filter(|_| partition.lane.close()) {
                reading.stop();
            }
        }
    }
}
