//! The shell's terminal, which draws changing results in place.
//!
//! Sinks write into a [`LiveTable`]; a thread draws it, at most every [`EVERY`], and sleeps while
//! nothing changes.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_schema::SchemaRef;
use slackwater_engine::chunk::{Chunk, RowKind};
use slackwater_engine::error::Result;
use slackwater_engine::link::Waiter;
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::sink::{
    Accepts, Delivery, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector, SinkDescription,
    SinkRequest,
};
use slackwater_sql::node::{Changes, NodeSpec};
use slackwater_sql::program::Program;
use slackwater_sql::settings::Processes;

use super::live_table::LiveTable;

/// The shortest interval between two drawings of a table: an eye can follow four per second.
const EVERY: Duration = Duration::from_millis(250);

/// How a query ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It ended with its inputs: the result is complete and shown to the last row.
    Whole,
    /// It was stopped by Ctrl-C: the screen stays as it is.
    Stopped,
    /// It failed.
    Failed,
}

/// The size to draw if the terminal doesn't report one.
const SIZE: (usize, usize) = (80, 24);

/// The terminal.
#[derive(Debug, Default)]
pub struct Screen {
    drawn: Mutex<Vec<Drawn>>,
}

/// A table and the thread that draws it.
#[derive(Debug)]
struct Drawn {
    shared: Arc<Shared>,
    drawer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    table: LiveTable,
    is_dirty: bool,
    /// How the query ended, once it has.
    end: Option<End>,
    /// The number of lines that were drawn last, above which the next drawing begins.
    lines_before: usize,
}

impl std::fmt::Debug for LiveTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows", self.len())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl crate::run::Screen for Screen {
    /// Shows changing results as tables, if the query runs in this process and the columns identify which row
    /// changes.
    fn take_over(&self, program: &mut Program) {
        if program.settings.processes != Processes::Count(1) {
            return;
        }
        for node in &mut program.nodes {
            let NodeSpec::Sink(sink) = node else { continue };
            let is_table = matches!(sink.changes, Changes::ByKey(_) | Changes::ByRow);
            if sink.table.is_some() || !is_table {
                continue;
            }
            let shared = Arc::new(Shared {
                state: Mutex::new(State {
                    table: table(&sink.schema, sink.changes.clone(), sink.order.clone()),
                    is_dirty: false,
                    end: None,
                    lines_before: 0,
                }),
                changed: Condvar::new(),
            });
            sink.connector = Arc::new(LiveConnector(Arc::clone(&shared)));
            let drawer = {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || draw_until_over(&shared))
            };
            let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
            drawn.push(Drawn {
                shared,
                drawer: Some(drawer),
            });
        }
    }
}

impl Screen {
    /// Writes something else to the terminal; tables are drawn anew below it.
    pub fn between(&self, write: impl FnOnce()) {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = drawn.iter().map(|table| table.shared.state());
        let states = states.by_ref().collect::<Vec<_>>();
        write();
        for (mut state, table) in states.into_iter().zip(drawn.iter()) {
            state.lines_before = 0;
            state.is_dirty = true;
            drop(state);
            table.shared.changed.notify_all();
        }
    }

    /// Draws the tables for the last time when the query is over. Returns the number of rows, if there were
    /// tables.
    pub fn finish(&self, end: End) -> Option<usize> {
        let drawn = std::mem::take(&mut *self.drawn.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rows = None;
        for mut table in drawn {
            table.shared.state().end = Some(end);
            table.shared.changed.notify_all();
            if let Some(drawer) = table.drawer.take() {
                // A thread that has panicked has nothing left to draw.
                let _ = drawer.join();
            }
            rows = Some(rows.unwrap_or(0) + table.shared.state().table.len());
        }
        rows
    }
}

fn table(schema: &SchemaRef, changes: Changes, order: RowOrder) -> LiveTable {
    let fields = schema.fields().iter();
    let names = fields.clone().map(|field| field.name().clone());
    let right = fields.map(|field| field.data_type().is_numeric());
    LiveTable::new(names.collect(), right.collect(), changes, order)
}

fn draw_until_over(shared: &Shared) {
    loop {
        let mut state = shared.state();
        while !state.is_dirty && state.end.is_none() {
            state = shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let end = state.end;
        let is_empty = end.is_some_and(|end| end != End::Failed) && state.lines_before == 0;
        if state.is_dirty || is_empty || end == Some(End::Whole) {
            state.is_dirty = false;
            let lines = match end {
                // It is not redrawn, so it may exceed the screen.
                Some(End::Whole) => state.table.draw(usize::MAX, usize::MAX),
                _ => {
                    let (width, height) = size();
                    // The last line is for the prompt, and a wrapped line would move all others.
                    state.table.draw(width, height.saturating_sub(1))
                }
            };
            // Under the lock, so that nothing else is written in between.
            show(&lines, state.lines_before);
            state.lines_before = lines.len();
            drop(state);
        } else {
            drop(state);
        }
        if end.is_some() {
            return;
        }
        // Changes during this time are drawn together.
        let state = shared.state();
        let wait = |state: &mut State| state.end.is_none();
        drop(shared.changed.wait_timeout_while(state, EVERY, wait));
    }
}

/// The columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => SIZE,
    }
}

/// Overwrites the previously drawn lines.
fn show(lines: &[String], lines_before: usize) {
    let mut out = String::new();
    if lines_before > 0 {
        out.push_str(&format!("\x1b[{lines_before}F"));
    }
    for line in lines {
        out.push_str(line);
        out.push_str("\x1b[K\n");
    }
    out.push_str("\x1b[J");
    let mut output = std::io::stdout().lock();
    // Errors are ignored: there is no other place to report them.
    let _ = output
        .write_all(out.as_bytes())
        .and_then(|()| output.flush());
}

struct LiveConnector(Arc<Shared>);

impl SinkConnector for LiveConnector {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("live table", "")
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: usize::MAX,
            max_instances_saved: usize::MAX,
            uses_waiter: false,
            accepts: Accepts::Rows,
            delivery: Delivery::AtLeastOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, _: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(LiveSink(Arc::clone(&self.0))))
    }

    fn begin(&self, _saved: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        None
    }
}

struct LiveSink(Arc<Shared>);

impl Sink for LiveSink {
    fn open(&mut self, _: &mut Waiter) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let rows = slackwater_connect::printed_rows(chunk)?;
        let mut state = self.0.state();
        for (index, row) in rows.into_iter().enumerate() {
            let kind = chunk
                .kinds
                .as_ref()
                .map_or(RowKind::Insert as i8, |kinds| kinds.value(index));
            state.table.apply(kind, row);
        }
        if !std::mem::replace(&mut state.is_dirty, true) {
            self.0.changed.notify_all();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}
