//! The pushes of a table: parsed by the threads that push, taken in turn by the source's worker.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::UInt64Array;
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use slackwater_engine::chunk::Positions;
use slackwater_engine::link::Waker;
use slackwater_engine::source::{SourceRequest, SourceRows};
use slackwater_engine::time::now_ns;

use super::producers::{Producers, Seen};
use super::{NotPushed, Producer, Push, Pushed};
use crate::format::{DecodedRows, Decoder, Format, Stop};
use crate::lines::BOM;

/// Decoders that are kept for the next pushes.
const DECODERS_KEPT_MAX: usize = 8;

/// When a push is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// When all of its rows were read.
    Accepted,
    /// When a stored checkpoint has them.
    Checkpoint,
}

/// How a table takes pushes.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) acknowledge: Acknowledge,
    /// Whether bad rows are left out, and don't refuse the whole push.
    pub(crate) skips_bad_rows: bool,
    /// The bytes of the pushes that wait; a single one may exceed it.
    pub(crate) buffer_bytes: usize,
    /// How long a push may wait.
    pub(crate) timeout: Duration,
}

/// The pushes of a table in one incarnation of its query.
pub(crate) struct Inbox {
    terms: Terms,
    schema: SchemaRef,
    format: Format,
    request: SourceRequest,
    waker: Waker,
    decoders: Mutex<Vec<Decoder>>,
    /// Whether a push begins with a header.
    has_header: bool,
    state: Mutex<State>,
    /// There is room for another push, or never will be.
    room: Condvar,
    /// A checkpoint was stored, or never will be.
    kept: Condvar,
}

struct State {
    waiting: VecDeque<Waiting>,
    /// The bytes of the pushes that wait or are being parsed.
    bytes: usize,
    /// The number of the next push.
    ticket: u64,
    /// The position of the next row.
    next: u64,
    /// A stored checkpoint has the rows before this position.
    stored: u64,
    producers: Producers,
    is_closed: bool,
    /// Whether no checkpoint of this incarnation will be stored any more.
    is_abandoned: bool,
}

/// A push that waits for its turn.
struct Waiting {
    ticket: u64,
    producer: Option<Producer>,
    /// Its rows and rejected records by chunk; their positions are numbers of lines.
    pieces: VecDeque<SourceRows>,
    body_bytes: usize,
    /// The bytes that it takes of the buffer.
    bytes: usize,
    since_ns: u64,
    /// The position of line 0, once some of it was taken.
    base: Option<u64>,
    answer: SyncSender<Outcome>,
}

/// What became of a push that waited for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It was read, up to this position.
    Read(u64),
    /// It had been read before, up to this position.
    Repeated(u64),
    /// It was read only in part.
    Broken,
}

/// What was found in a push.
#[derive(Default)]
struct Parsed {
    pieces: VecDeque<SourceRows>,
    rows: u64,
    rejected: u64,
    /// About the bytes of the columns.
    bytes: usize,
}

impl Inbox {
    /// An inbox for rows from `position` on, after what the `bookmark` says; `None` if that is not valid.
    pub(crate) fn new(
        (schema, format): (&SchemaRef, &Format),
        terms: &Terms,
        request: &SourceRequest,
        waker: Waker,
        (position, bookmark): (u64, Option<&str>),
    ) -> Option<Arc<Inbox>> {
        let producers = match bookmark {
            Some(bookmark) => Producers::parse(bookmark)?,
            None => Producers::default(),
        };
        let decoder = format.decoder(schema, &request.projection);
        Some(Arc::new(Inbox {
            terms: terms.clone(),
            schema: Arc::clone(schema),
            format: format.clone(),
            request: request.clone(),
            waker,
            decoders: Mutex::default(),
            has_header: decoder.is_header_pending(),
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                bytes: 0,
                ticket: 0,
                next: position.max(1),
                // What the query resumes from is stored.
                stored: position,
                producers,
                is_closed: false,
                is_abandoned: false,
            }),
            room: Condvar::new(),
            kept: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody reads it.
    pub(super) fn is_open(&self) -> bool {
        !self.state().is_closed
    }

    /// Pushes rows, and waits until they are accepted.
    pub(super) fn push(&self, push: Push) -> Result<Pushed, NotPushed> {
        let deadline = Instant::now() + self.terms.timeout;
        let Push { rows, producer } = push;
        let seen = producer
            .as_ref()
            .map(|push| self.state().producers.seen(push));
        if let Some(Seen::Whole(end)) = seen {
            return self.confirmed(Outcome::Repeated(end), &Parsed::default(), deadline);
        }
        let room = self.reserve(rows.len(), deadline)?;
        let mut parsed = self.parse(rows)?;
        if parsed.pieces.is_empty() {
            return Ok(Pushed::default());
        }
        let (answer, answered) = sync_channel(1);
        let pieces = std::mem::take(&mut parsed.pieces);
        let ticket = self.enqueue(room, parsed.bytes, producer, pieces, answer)?;
        let outcome = match answered.recv_timeout(left(deadline)) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Disconnected) => return Err(NotPushed::NotRunning),
            Err(RecvTimeoutError::Timeout) => {
                let taken_back = self.take_back(ticket);
                // It may have been answered at this moment.
                match answered.try_recv() {
                    Ok(outcome) => outcome,
                    Err(_) if taken_back => return Err(NotPushed::Busy),
                    Err(_) => return Err(NotPushed::Unconfirmed),
                }
            }
        };
        self.confirmed(outcome, &parsed, deadline)
    }

    /// Waits for room for this many bytes.
    fn reserve(&self, bytes: usize, deadline: Instant) -> Result<Room<'_>, NotPushed> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return Err(NotPushed::NotRunning);
            }
            if state.bytes == 0 || state.bytes + bytes <= self.terms.buffer_bytes {
                state.bytes += bytes;
                return Ok(Room { inbox: self, bytes });
            }
            let left = left(deadline);
            if left.is_zero() {
                return Err(NotPushed::Busy);
            }
            let waited = self.room.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn release(&self, state: &mut State, bytes: usize) {
        state.bytes -= bytes;
        self.room.notify_all();
    }

    /// Parses rows as the source's columns. The first bad row is an error, unless bad rows are left out.
    fn parse(&self, rows: Bytes) -> Result<Parsed, NotPushed> {
        let decoders = || self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = decoders().pop();
        let mut decoder = kept.unwrap_or_else(|| self.decoder());
        let parsed = self.parse_with(&mut decoder, rows);
        let mut decoders = decoders();
        if decoders.len() < DECODERS_KEPT_MAX {
            decoders.push(decoder);
        }
        parsed
    }

    fn decoder(&self) -> Decoder {
        let decoder = self.format.decoder(&self.schema, &self.request.projection);
        decoder.naming_fields(&self.request.tuning)
    }

    fn parse_with(&self, decoder: &mut Decoder, rows: Bytes) -> Result<Parsed, NotPushed> {
        // Each push begins like a file.
        decoder.go_on(1, self.has_header);
        let block = Buffer::from(rows);
        let rows_max = self.request.tuning.chunk_rows();
        let mut at = if block.starts_with(BOM) { BOM.len() } else { 0 };
        let mut parsed = Parsed::default();
        loop {
            let (rows, until, stop) = decoder.decode(&block, at, true, rows_max);
            at = until;
            if let Some(bad) = rows.rejected.first().filter(|_| !self.terms.skips_bad_rows) {
                return Err(NotPushed::BadRow {
                    line: bad.position.unwrap_or(0),
                    reason: bad.reason.clone(),
                });
            }
            if !rows.is_empty() {
                let columns = rows.batch.columns().iter();
                let widths = columns.map(|column| column.data_type().primitive_width());
                let width: usize = widths.map(|width| width.unwrap_or(VIEW_BYTES)).sum();
                parsed.bytes += width * rows.batch.num_rows();
                parsed.rows += rows.batch.num_rows() as u64;
                parsed.rejected += rows.rejected.len() as u64;
                parsed.pieces.push_back(unplaced(rows));
            }
            if stop != Stop::Full {
                return Ok(parsed);
            }
        }
    }

    /// Lets a push wait for its turn; returns its number.
    fn enqueue(
        &self,
        mut room: Room<'_>,
        bytes: usize,
        producer: Option<Producer>,
        pieces: VecDeque<SourceRows>,
        answer: SyncSender<Outcome>,
    ) -> Result<u64, NotPushed> {
        let mut state = self.state();
        if state.is_closed {
            // The room is given back when this lock is not held any more.
            drop(state);
            return Err(NotPushed::NotRunning);
        }
        state.bytes += bytes;
        let ticket = state.ticket;
        state.ticket += 1;
        let body_bytes = std::mem::take(&mut room.bytes);
        state.waiting.push_back(Waiting {
            ticket,
            producer,
            pieces,
            body_bytes,
            bytes: body_bytes + bytes,
            since_ns: now_ns(),
            base: None,
            answer,
        });
        drop(state);
        self.waker.wake();
        Ok(ticket)
    }

    /// Takes a push back of which nothing was read; returns whether there was such a push.
    fn take_back(&self, ticket: u64) -> bool {
        let mut state = self.state();
        let is_it = |push: &Waiting| push.ticket == ticket && push.base.is_none();
        let Some(index) = state.waiting.iter().position(is_it) else {
            return false;
        };
        let bytes = state.waiting.remove(index).map_or(0, |push| push.bytes);
        self.release(&mut state, bytes);
        true
    }

    /// Waits, if need be, until a checkpoint has the rows.
    fn confirmed(
        &self,
        outcome: Outcome,
        parsed: &Parsed,
        deadline: Instant,
    ) -> Result<Pushed, NotPushed> {
        let (pushed, end) = match outcome {
            Outcome::Broken => return Err(NotPushed::Unconfirmed),
            Outcome::Read(end) => {
                let pushed = Pushed {
                    rows: parsed.rows,
                    rejected: parsed.rejected,
                    repeated: false,
                };
                (pushed, end)
            }
            Outcome::Repeated(end) => {
                let pushed = Pushed {
                    repeated: true,
                    ..Pushed::default()
                };
                (pushed, end)
            }
        };
        let mut state = self.state();
        while self.terms.acknowledge == Acknowledge::Checkpoint && state.stored < end {
            let left = left(deadline);
            if state.is_abandoned || left.is_zero() {
                return Err(NotPushed::Unconfirmed);
            }
            let waited = self.kept.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Ok(pushed)
    }

    /// The next rows, and the bytes of the push if they are the last of it.
    pub(crate) fn take(&self) -> Option<(SourceRows, usize)> {
        let mut state = self.state();
        while let Some(mut push) = state.waiting.pop_front() {
            let seen = push
                .producer
                .as_ref()
                .map(|push| state.producers.seen(push));
            let line = match seen {
                Some(Seen::Whole(end)) => {
                    self.release(&mut state, push.bytes);
                    // Whoever pushed it may have gone.
                    let _ = push.answer.try_send(Outcome::Repeated(end));
                    continue;
                }
                Some(Seen::Until(line)) => line,
                None => 0,
            };
            let base = *push.base.get_or_insert(state.next - 1);
            let piece = push.pieces.pop_front().map(|mut piece| {
                piece.skip_before(line);
                piece
            });
            let until = piece.as_ref().and_then(SourceRows::end);
            state.next = state.next.max(base + until.unwrap_or(0));
            let (end, since_ns) = (state.next, push.since_ns);
            let mut body_bytes = 0;
            if push.pieces.is_empty() {
                body_bytes = push.body_bytes;
                if let Some(producer) = &push.producer {
                    state.producers.read_whole(producer, end);
                }
                self.release(&mut state, push.bytes);
                let _ = push.answer.try_send(Outcome::Read(end));
            } else {
                if let (Some(producer), Some(until)) = (&push.producer, until) {
                    state.producers.read_until(producer, until);
                }
                state.waiting.push_front(push);
            }
            if let Some(piece) = piece.filter(|_| until.is_some()) {
                return Some((placed(piece, base, since_ns), body_bytes));
            }
        }
        None
    }

    /// What producers have pushed, up to the rows that were taken.
    pub(crate) fn bookmark(&self) -> Option<String> {
        self.state().producers.bookmark()
    }

    /// Notes that a stored checkpoint has everything before `position`.
    pub(super) fn stored(&self, position: u64) {
        let mut state = self.state();
        state.stored = state.stored.max(position);
        self.kept.notify_all();
    }

    /// Nobody reads it any more. What waits for a checkpoint continues to wait for the last one.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for push in state.waiting.drain(..) {
            if push.base.is_some() {
                let _ = push.answer.try_send(Outcome::Broken);
            }
        }
        state.bytes = 0;
        self.room.notify_all();
    }

    /// No checkpoint will be stored any more.
    pub(super) fn abandon(&self) {
        self.state().is_abandoned = true;
        self.kept.notify_all();
    }
}

/// The bytes of a string in a column, without its text.
const VIEW_BYTES: usize = 16;

/// Room for a push, which is given back when this is dropped.
struct Room<'a> {
    inbox: &'a Inbox,
    bytes: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.inbox.state();
            let bytes = self.bytes.min(state.bytes);
            self.inbox.release(&mut state, bytes);
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The rows, which have lines of the push for positions.
fn unplaced(rows: DecodedRows) -> SourceRows {
    SourceRows {
        batch: rows.batch,
        partition: 0,
        positions: rows.positions,
        ingest_ns: 0,
        rejected: rows.rejected,
    }
}

/// The rows with positions in the table instead of lines.
fn placed(mut rows: SourceRows, base: u64, ingest_ns: u64) -> SourceRows {
    rows.ingest_ns = ingest_ns;
    rows.positions = match rows.positions {
        Positions::Run { first } => Positions::Run {
            first: base + first,
        },
        Positions::List(lines) => {
            let positions = lines.values().iter().map(|line| base + line);
            Positions::List(UInt64Array::from_iter_values(positions))
        }
    };
    for rejected in &mut rows.rejected {
        let line = rejected.position.unwrap_or(0);
        rejected.position = Some(base + line);
        rejected.partition = Some(0);
        rejected.reason = format!("line {line} of a push: {}", rejected.reason);
    }
    rows
}
