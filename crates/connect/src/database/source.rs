//! Reads the whole table on a thread: one bounded partition.
//!
//! The thread requests all rows with one statement, which sees the table as it was at its start, converts
//! them to columns, and passes chunks through a short queue, waking the worker. A row's position is its
//! number in the table's order, from 1; a query that resumes from a checkpoint reads the table again up to
//! there.
//!
//! Shutdown: the queue is dropped, which the thread notices with the next chunk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use arrow_array::UInt64Array;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::SchemaRef;
use slackwater_engine::chunk::Positions;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::{Waiter, Waker};
use slackwater_engine::source::{
    Rejected, Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest, SourceRows,
    Tuning,
};
use slackwater_engine::time::now_ns;

use super::Table;
use super::cells::{Decoded, TextRows};
use super::client::{Connection, Failure, Select};

/// Chunks that wait for the worker.
const CHUNKS_WAITING_MAX: usize = 4;

/// The bytes after which a chunk is complete: 1 MiB, so that all waiting chunks take a few MiB.
const CHUNK_BYTES: usize = 1 << 20;

/// A table that is read.
pub(crate) struct DatabaseSource(pub(crate) Arc<Table>);

impl SourceConnector for DatabaseSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: self.0.connector.into(),
            max_instances: 1,
            partitions: Some(vec![self.0.place.clone()]),
            bounded: true,
            replayable: true,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(TableSource {
            table: Arc::clone(&self.0),
            request,
            chunks: None,
            told_end: false,
        }))
    }
}

/// The messages of the thread: rows, then `None` or an error. After a panic it sends nothing more.
type Arrived = Result<Option<SourceRows>>;

struct TableSource {
    table: Arc<Table>,
    request: SourceRequest,
    chunks: Option<Receiver<Arrived>>,
    told_end: bool,
}

impl Source for TableSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if self.request.instance > 0 {
            return Ok(Vec::new());
        }
        let (sender, receiver) = sync_channel(CHUNKS_WAITING_MAX);
        let reader = Reader {
            table: Arc::clone(&self.table),
            columns: self.request.projection.clone(),
            tuning: Arc::clone(&self.request.tuning),
            chunks: sender,
            waker: waiter.waker(),
            rows: 0,
        };
        std::thread::Builder::new()
            .name(self.table.connector.into())
            .spawn(move || reader.read())
            .map_err(|error| {
                let reason = format!("can't start the reader: {error}");
                Error::new(&self.table.place, reason)
            })?;
        self.chunks = Some(receiver);
        Ok(vec![(0, self.table.place.clone())])
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        let Some(chunks) = &self.chunks else {
            return Ok(SourcePoll::End);
        };
        if self.told_end {
            return Ok(SourcePoll::End);
        }
        match chunks.try_recv() {
            Ok(arrived) => match arrived? {
                Some(rows) => {
                    let bytes = rows.batch.get_array_memory_size();
                    crate::source::count_bytes(&self.request, bytes);
                    Ok(SourcePoll::Rows(rows))
                }
                None => {
                    self.told_end = true;
                    Ok(SourcePoll::PartitionEnded { partition: 0 })
                }
            },
            Err(TryRecvError::Empty) => Ok(SourcePoll::Pending),
            Err(TryRecvError::Disconnected) => {
                Err(Error::new(&self.table.place, "its reader thread died"))
            }
        }
    }

    fn close(&mut self) {
        self.chunks = None;
    }
}

/// The thread's state.
struct Reader {
    table: Arc<Table>,
    columns: Vec<usize>,
    tuning: Arc<Tuning>,
    chunks: SyncSender<Arrived>,
    waker: Waker,
    /// The number of rows passed on.
    rows: u64,
}

impl Reader {
    fn read(mut self) {
        let end = self.read_all().map(|()| None);
        // An error means that the receiver is gone.
        let _ = self.chunks.send(end);
        self.waker.wake();
    }

    fn read_all(&mut self) -> Result<()> {
        let table = Arc::clone(&self.table);
        let select = Select {
            columns: self.columns.clone(),
            keys: Vec::new(),
        };
        let mut failed = None;
        let mut connection = Connection::new(&table);
        let mut rows = TextRows::new(&table.schema, &self.columns);
        connection.run(|client| {
            let scanned = client.scan(&select, &mut |row| {
                rows.push(row);
                if rows.rows() < self.tuning.chunk_rows() && rows.bytes() < CHUNK_BYTES {
                    return true;
                }
                match self.hand_over(&mut rows) {
                    Ok(is_wanted) => is_wanted,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            });
            // Rows that were passed on must not be read again.
            scanned.map_err(|failure| Failure {
                passes: failure.passes && self.rows == 0 && rows.rows() == 0,
                ..failure
            })
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        self.hand_over(&mut rows).map(|_| ())
    }

    /// Passes the rows so far to the worker; returns whether it wants more.
    fn hand_over(&mut self, rows: &mut TextRows) -> Result<bool> {
        let count = rows.rows() as u64;
        if count == 0 {
            return Ok(true);
        }
        let first = self.rows + 1;
        self.rows += count;
        let rows = source_rows(rows.take()?, first)?;
        let is_wanted = self.chunks.send(Ok(Some(rows))).is_ok();
        self.waker.wake();
        Ok(is_wanted)
    }
}

/// Rows, with the position of the first one.
fn source_rows(decoded: Decoded, first: u64) -> Result<SourceRows> {
    let positions = match &decoded.kept {
        None => Positions::Run { first },
        Some(kept) => {
            let all = UInt64Array::from_iter_values(first..first + kept.len() as u64);
            let list = arrow_select::filter::filter(&all, kept)?;
            Positions::List(list.as_primitive::<UInt64Type>().clone())
        }
    };
    let rejected = decoded.refused.into_iter();
    let rejected = rejected.map(|(row, reason, record)| Rejected {
        partition: Some(0),
        position: Some(first + row as u64),
        reason,
        record,
    });
    Ok(SourceRows {
        batch: decoded.batch,
        partition: 0,
        positions,
        ingest_ns: now_ns(),
        rejected: rejected.collect(),
    })
}
