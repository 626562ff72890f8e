//! Reads of materialized views: a SELECT over their rows at one cut, in the process of the reader.
//!
//! ```text
//! text ─ Reads::prepare ─► Prepared ─ Reads::run, with values of $1, … ─► Read: batches, as they are taken
//!                                          │
//!          by key: Rows::get, and nothing else   else: Rows::at, a query on the reader's thread
//! ```
//!
//! A read starts no thread. Its query runs as far as its reader takes rows ([`Inline`]), so nothing waits
//! between the two, and a reader that stops costs nothing more.
//!
//! Invariants:
//! - All rows of a read are of one cut ([`Rows::at`]).
//! - A value that can't be computed fails the read; in a query it would reject the row.
//! - A read ends with an error once it is cancelled, its time is over, or its operators hold more than
//!   [`Limits::memory`]. The first two are looked at between steps: 8 chunks, or the sort of all rows.
//!
//! [`Inline`]: slackwater_engine::inline::Inline

mod ends;
mod failed;
mod limits;
mod local;
mod running;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use slackwater_sql::read::{DirectRead, From, Planned, Reader};

pub use slackwater_sql::read::{Prepared, Readable};

pub use failed::Failed;
pub use limits::{Limits, READ_BYTES, READ_TIME};
pub use local::Local;

use ends::{Ends, Shared};
use running::{Running, planned};

/// The rows of views, wherever they are.
pub trait Rows: Send + Sync {
    /// The rows of these views at one cut.
    ///
    /// # Errors
    ///
    /// If they can't be read within the limits.
    fn at(&self, views: &[String], limits: &Limits) -> Result<Box<dyn AtCut>, Failed>;

    /// The rows of a view with a key: a column of one value for each column of the view's key, of its type.
    ///
    /// # Errors
    ///
    /// If they can't be read within the limits.
    fn get(&self, view: &str, key: Vec<ArrayRef>, limits: &Limits) -> Result<RecordBatch, Failed>;
}

/// The rows of some views at one cut.
pub trait AtCut: Send + Sync {
    /// All rows of a view, in any order: these of its columns, in this order. The iterator may block until it
    /// has the next rows; it looks at the limits then.
    ///
    /// # Errors
    ///
    /// If they can't be read.
    fn scan(&self, view: &str, columns: &[usize]) -> Result<Scan, Failed>;
}

/// The rows of a view, as they are taken.
pub type Scan = Box<dyn Iterator<Item = Result<RecordBatch, Failed>> + Send>;

/// Plans and runs reads of some views.
pub struct Reads {
    reader: Reader,
}

/// The rows of a read, as they are taken; after an error there are no more.
pub struct Read {
    schema: SchemaRef,
    state: State,
}

enum State {
    /// These rows, and no more.
    Last(RecordBatch),
    Running(Box<Running>),
    Over,
}

/// The column of EXPLAIN.
const PLAN: &str = "plan";

impl Reads {
    /// Plans reads of these views.
    ///
    /// # Errors
    ///
    /// If two of them have the same name.
    pub fn new(views: Vec<Readable>) -> Result<Reads, Failed> {
        let reader = Reader::new(views)?;
        Ok(Reads { reader })
    }

    /// Adds views that are not materialized: the text has their CREATE VIEW statements.
    ///
    /// # Errors
    ///
    /// If the text has other statements, or one of the views reads what is not there.
    pub fn define(&mut self, text: &str) -> Result<(), Failed> {
        Ok(self.reader.define(text)?)
    }

    /// Checks a SELECT, or EXPLAIN of one.
    ///
    /// # Errors
    ///
    /// If the text is not one of these, or a name or a type in it is wrong.
    pub fn prepare(&self, text: &str) -> Result<Prepared, Failed> {
        Ok(self.reader.prepare(text)?)
    }

    /// The columns that a read returns.
    pub fn columns(&self, prepared: &Prepared) -> SchemaRef {
        match prepared.is_explained() {
            true => plan_schema(),
            false => prepared.schema().clone(),
        }
    }

    /// Runs a read with the values of its parameters, as text without quotes; `None` is NULL.
    ///
    /// # Errors
    ///
    /// If a value does not fit, or the views can't be read. What fails later is an item of the rows.
    pub fn run(
        &self,
        prepared: &Prepared,
        values: &[Option<String>],
        rows: &dyn Rows,
        limits: &Limits,
    ) -> Result<Read, Failed> {
        limits.check()?;
        let shared = Arc::new(Shared::new(limits.clone()));
        let ends = Arc::clone(&shared);
        let connectors = |constants| Ends::new(ends, constants);
        let found = self.reader.plan(prepared, values, connectors)?;
        let explained = prepared.is_explained();
        let state = match found {
            Planned::Direct(direct) if explained => State::Last(plan_rows(&described(&direct))?),
            Planned::Direct(direct) => State::Last(direct_rows(&direct, rows, limits)?),
            Planned::Program(program) if explained => {
                let plan = planned(&program)?;
                State::Last(plan_rows(&crate::explain::query_graph(&program, &plan))?)
            }
            Planned::Program(program) => {
                shared.set(rows.at(&prepared.tables(), limits)?);
                State::Running(Box::new(Running::new(*program, shared)?))
            }
        };
        Ok(Read {
            schema: self.columns(prepared),
            state,
        })
    }
}

impl Read {
    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Iterator for Read {
    type Item = Result<RecordBatch, Failed>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.state {
            State::Running(running) => running.next(),
            State::Over => return None,
            State::Last(_) => match std::mem::replace(&mut self.state, State::Over) {
                State::Last(batch) => Some(Ok(batch)),
                _ => None,
            },
        };
        if !matches!(next, Some(Ok(_))) {
            self.state = State::Over;
        }
        let next = next?.and_then(|batch| named(batch, &self.schema));
        Some(next)
    }
}

/// The batch with the names of these columns.
fn named(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Failed> {
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    let named = RecordBatch::try_new_with_options(schema.clone(), columns, &rows);
    named.map_err(|error| Failed::Query(error.to_string()))
}

/// The rows of a read that needs no query.
fn direct_rows(read: &DirectRead, rows: &dyn Rows, limits: &Limits) -> Result<RecordBatch, Failed> {
    let DirectRead {
        direct,
        values,
        constants,
    } = read;
    let found = match direct.from() {
        From::Constant(number) => constants[*number].clone(),
        From::Key { table, .. } => match direct.key(values)? {
            Some(key) => rows.get(table, key, limits)?,
            None => return Ok(RecordBatch::new_empty(direct.schema().clone())),
        },
    };
    Ok(direct.rows(found)?)
}

/// EXPLAIN of a read that needs no query.
fn described(read: &DirectRead) -> String {
    match read.direct.from() {
        From::Constant(_) => "rows of the statement".to_string(),
        From::Key { table, .. } => format!("{table}: looks up a key"),
    }
}

fn plan_schema() -> SchemaRef {
    let column = Field::new(PLAN, DataType::Utf8View, false);
    Arc::new(Schema::new(vec![column]))
}

/// A row for each line of a text.
fn plan_rows(text: &str) -> Result<RecordBatch, Failed> {
    let lines = StringViewArray::from_iter_values(text.lines());
    let rows = RecordBatch::try_new(plan_schema(), vec![Arc::new(lines)]);
    rows.map_err(|error| Failed::Query(error.to_string()))
}
