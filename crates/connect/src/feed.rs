//! Rows that this process gives to tables with the connector `memory`, as Arrow columns that are not copied.
//!
//! ```text
//! a thread of the process ── Feed::push() ─► queue ─► source/memory.rs, on its worker
//! ```
//!
//! - A feed is offered under a name; the table's option `feed` names it. It lives as long as its [`Offer`] or
//!   a query that reads it.
//! - A feed that is *kept* has all of its rows from the beginning, and every query reads them again. Rows
//!   that are *pushed* are read once, by the query that reads the feed at the time.
//! - What waits in a feed is bounded by [`WAITING_BYTES_MAX`]; who pushes more waits, and is woken when there
//!   is room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Schema, SchemaRef};
use slackwater_engine::link::Waker;
use slackwater_engine::time::now_ns;

/// The bytes of the batches that wait for a query. A single batch may be larger.
pub const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The batches that wait for a query: some may have a row each.
const WAITING_BATCHES_MAX: usize = 65_536;

/// The rows of a table.
#[derive(Debug)]
pub struct Feed {
    schema: SchemaRef,
    /// The rows of a feed that is kept.
    kept: Option<Vec<RecordBatch>>,
    state: Mutex<State>,
    /// There is room, or nobody reads any more.
    room: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The position of the next row that is read.
    next: u64,
    is_closed: bool,
    /// What wakes the worker of the source, while a query reads the feed.
    reader: Option<Waker>,
    /// The queries that read the feed, or are going to.
    expected: usize,
}

/// A batch that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) batch: RecordBatch,
    pub(crate) since_ns: u64,
    bytes: usize,
}

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The rows wait for the query.
    Taken,
    /// There was no room in time, and no row was taken.
    Full,
    /// There is no room, and no query reads the feed.
    Unread,
    /// The feed is closed, so that no row was taken.
    Closed,
}

/// A feed under its name; dropping it takes the name back.
#[derive(Debug)]
pub struct Offer {
    name: String,
    feed: Arc<Feed>,
}

/// The feeds of this process.
static FEEDS: Mutex<BTreeMap<String, Weak<Feed>>> = Mutex::new(BTreeMap::new());

fn feeds() -> MutexGuard<'static, BTreeMap<String, Weak<Feed>>> {
    FEEDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The feed of that name.
pub(crate) fn named(name: &str) -> Option<Arc<Feed>> {
    feeds().get(name).and_then(Weak::upgrade)
}

impl Offer {
    /// Offers a feed to the tables whose option `feed` has this name, instead of the one before.
    pub fn new(name: &str, feed: Arc<Feed>) -> Offer {
        feeds().insert(name.to_string(), Arc::downgrade(&feed));
        Offer {
            name: name.to_string(),
            feed,
        }
    }

    /// The feed.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let mut feeds = feeds();
        let is_own = |known: &Weak<Feed>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&self.feed));
        if feeds.get(&self.name).is_some_and(is_own) {
            feeds.remove(&self.name);
        }
    }
}

impl Feed {
    /// A feed into which rows are pushed.
    pub fn pushed(schema: SchemaRef) -> Feed {
        Feed {
            schema,
            kept: None,
            state: Mutex::default(),
            room: Condvar::new(),
        }
    }

    /// A feed with these rows, which every query reads from the beginning.
    ///
    /// # Errors
    ///
    /// If a batch does not have the columns.
    pub fn kept(schema: SchemaRef, batches: &[RecordBatch]) -> Result<Feed, String> {
        let batches = batches.iter().map(|batch| fitted(batch, &schema));
        let batches = batches.collect::<Result<Vec<RecordBatch>, String>>()?;
        Ok(Feed {
            kept: Some(batches),
            ..Feed::pushed(schema)
        })
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows, if they are kept.
    pub(crate) fn rows(&self) -> Option<&[RecordBatch]> {
        self.kept.as_deref()
    }

    /// Pushes rows; waits for room, but no longer than `limit`. Columns are found by their names, and cast to
    /// the types of the table; a column of the right type is not copied.
    ///
    /// # Errors
    ///
    /// If the batch does not have the columns, or a value does not fit.
    pub fn push(&self, batch: &RecordBatch, limit: Duration) -> Result<Given, String> {
        let batch = fitted(batch, &self.schema)?;
        let until = Instant::now() + limit;
        let bytes = batch.get_array_memory_size();
        let mut state = self.state();
        loop {
            if state.is_closed || self.kept.is_some() {
                return Ok(Given::Closed);
            }
            let has_room = state.bytes + bytes <= WAITING_BYTES_MAX
                && state.waiting.len() < WAITING_BATCHES_MAX;
            if state.waiting.is_empty() || has_room {
                break;
            }
            if state.reader.is_none() && state.expected == 0 {
                return Ok(Given::Unread);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Given::Full);
            }
            let waited = self.room.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes += bytes;
        state.waiting.push_back(Waiting {
            batch,
            since_ns: now_ns(),
            bytes,
        });
        let reader = state.reader.clone();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(Given::Taken)
    }

    /// There are no further rows: a query ends with those that wait.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let reader = state.reader.clone();
        drop(state);
        self.room.notify_all();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// A query is going to read it, as long as this is kept.
    pub fn expect(self: &Arc<Feed>) -> Expected {
        self.state().expected += 1;
        Expected(Arc::clone(self))
    }

    /// Begins to read; returns false if somebody else reads it.
    pub(crate) fn open(&self, reader: Waker) -> bool {
        let mut state = self.state();
        if state.reader.is_some() {
            return false;
        }
        state.reader = Some(reader);
        true
    }

    /// Ends reading. What was not read waits for the next query.
    pub(crate) fn leave(&self) {
        self.state().reader = None;
        self.room.notify_all();
    }

    /// The next batch; an error if there is none and never will be.
    pub(crate) fn take(&self) -> Result<Option<Waiting>, Ended> {
        let mut state = self.state();
        let Some(next) = state.waiting.pop_front() else {
            return match state.is_closed {
                true => Err(Ended),
                false => Ok(None),
            };
        };
        state.bytes -= next.bytes;
        drop(state);
        self.room.notify_all();
        Ok(Some(next))
    }

    /// The position of the first of these rows, which are read now. Positions begin with 1.
    pub(crate) fn place(&self, rows: usize) -> u64 {
        let mut state = self.state();
        let first = state.next + 1;
        state.next += rows as u64;
        first
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A feed is going to be read.
#[derive(Debug)]
pub struct Expected(Arc<Feed>);

impl Drop for Expected {
    fn drop(&mut self) {
        self.0.state().expected -= 1;
        self.0.room.notify_all();
    }
}

/// A feed has no further rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

/// The batch with the columns of a schema, in its order. A column of the right type is not copied.
pub(crate) fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let given = batch.schema();
    let columns = schema.fields().iter().map(|field| {
        let Some(column) = batch.column_by_name(field.name()) else {
            let names = given.fields().iter().map(|field| field.name().as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(format!(
                "there is no column '{}'; the columns are: {names}",
                field.name()
            ));
        };
        fitted_column(column, field.data_type())
            .map_err(|reason| format!("column '{}': {reason}", field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>, String>>()?;
    let fields = schema.fields().iter();
    // A source may have NULLs in any column.
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let fitted = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(fitted, columns, &rows).map_err(|error| error.to_string())
}

/// The column with a type: fields of ROWs are found by their names, everything else is cast.
fn fitted_column(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    if let (DataType::Struct(fields), Some(row)) = (wanted, column.as_struct_opt()) {
        let parts = fields.iter().map(|field| {
            let part = row.column_by_name(field.name());
            let part = part.ok_or_else(|| format!("there is no field '{}'", field.name()))?;
            fitted_column(part, field.data_type())
        });
        let parts = parts.collect::<Result<Vec<ArrayRef>, String>>()?;
        let nulls = row.nulls().cloned();
        let fitted = StructArray::try_new_with_length(fields.clone(), parts, nulls, row.len());
        return Ok(Arc::new(fitted.map_err(|error| error.to_string())?));
    }
    cast_whole(column, wanted)
}

/// The column with a type, if that loses nothing but digits after the point of decimals and of times.
///
/// # Errors
///
/// If a value does not fit, has a fraction where the type has none, or is of another kind.
pub fn cast_whole(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    let given = column.data_type();
    let is_other = given.is_temporal() || given == &DataType::Boolean;
    if is_other && wanted.is_numeric() {
        return Err(format!("{given} is not {wanted}: convert it first"));
    }
    if wanted.is_integer()
        && let Some(value) = fraction(column)?
    {
        return Err(format!("{value} has a fraction, and {wanted} has none"));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, wanted, &options).map_err(|error| error.to_string())
}

/// A value of numbers that is not whole.
fn fraction(column: &ArrayRef) -> Result<Option<String>, String> {
    let given = column.data_type();
    if let DataType::Decimal128(_, scale) = given {
        let unit = u32::try_from(*scale)
            .ok()
            .and_then(|scale| 10_i128.checked_pow(scale));
        let values = column.as_primitive::<Decimal128Type>();
        let place = values.iter().position(|value| match (value, unit) {
            (Some(value), Some(unit)) => value % unit != 0,
            _ => false,
        });
        return Ok(place.map(|place| values.value_as_string(place)));
    }
    if !given.is_floating() {
        return Ok(None);
    }
    let wide = cast_with_options(column, &DataType::Float64, &CastOptions::default());
    let wide = wide.map_err(|error| error.to_string())?;
    let mut values = wide.as_primitive::<Float64Type>().iter().flatten();
    Ok(values
        .find(|value| value.fract() != 0.0 && value.is_finite())
        .map(|value| value.to_string()))
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int64Type;
    use arrow_array::{BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array};
    use arrow_array::{StringArray, TimestampMillisecondArray};
    use arrow_schema::Field;
    use slackwater_engine::link::Waiter;

    use super::*;

    fn schema() -> SchemaRef {
        let fields = [("n", DataType::Int64), ("name", DataType::Utf8View)];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        Arc::new(Schema::new(fields.to_vec()))
    }

    #[test]
    fn regression_a_fraction_is_not_cut_off() {
        let fits = |column: ArrayRef| cast_whole(&column, &DataType::Int64);
        let floats = |values: Vec<f64>| Arc::new(Float64Array::from(values)) as ArrayRef;
        assert_eq!(fits(floats(vec![2.0, -3.0])).unwrap().len(), 2);
        assert_eq!(
            fits(floats(vec![2.0, -1.5])).unwrap_err(),
            "-1.5 has a fraction, and Int64 has none"
        );
        assert!(fits(floats(vec![f64::NAN])).is_err());
        let decimals = Decimal128Array::from(vec![Some(250), None, Some(200)]);
        let decimals = decimals.with_precision_and_scale(10, 2).unwrap();
        assert!(
            fits(Arc::new(decimals.clone()))
                .unwrap_err()
                .starts_with("2.50 has")
        );
        assert_eq!(fits(Arc::new(decimals.slice(1, 2))).unwrap().len(), 2);
        assert!(fits(Arc::new(BooleanArray::from(vec![true]))).is_err());
        assert!(fits(Arc::new(TimestampMillisecondArray::from(vec![1]))).is_err());
    }

    fn batch(n: i64) -> RecordBatch {
        let names = StringArray::from(vec!["a name that is longer than 12 bytes"]);
        RecordBatch::try_from_iter([
            ("name", Arc::new(names) as _),
            ("n", Arc::new(Int64Array::from(vec![n])) as _),
        ])
        .unwrap()
    }

    #[test]
    fn columns_are_found_by_name_and_not_copied() {
        let given = batch(7);
        let fitted = fitted(&given, &schema()).unwrap();
        let own = fitted.column(0).as_primitive::<Int64Type>().values();
        let theirs = given.column(1).as_primitive::<Int64Type>().values();
        assert_eq!(own.as_ptr(), theirs.as_ptr());
        assert_eq!(
            fitted.column(1).as_string_view().value(0),
            "a name that is longer than 12 bytes"
        );
        let narrow = RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![1])) as _)]);
        let error = super::fitted(&narrow.unwrap(), &schema()).unwrap_err();
        assert_eq!(error, "there is no column 'name'; the columns are: n");
    }

    #[test]
    fn who_pushes_too_much_waits_while_somebody_reads() {
        let feed = Arc::new(Feed::pushed(schema()));
        for n in 0..WAITING_BATCHES_MAX as i64 {
            assert_eq!(feed.push(&batch(n), Duration::ZERO), Ok(Given::Taken));
        }
        assert_eq!(
            feed.push(&batch(0), Duration::from_secs(60)),
            Ok(Given::Unread)
        );
        let expected = feed.expect();
        let limit = Duration::from_millis(1);
        assert_eq!(feed.push(&batch(0), limit), Ok(Given::Full));
        drop(expected);
        let waiter = Waiter::new().unwrap();
        assert!(feed.open(waiter.waker()));
        assert!(!feed.open(waiter.waker()), "it is read once");
        assert_eq!(
            feed.push(&batch(0), Duration::from_millis(1)),
            Ok(Given::Full)
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| feed.push(&batch(0), Duration::from_secs(60)));
            assert!(feed.take().is_ok_and(|taken| taken.is_some()));
            assert_eq!(waits.join().unwrap(), Ok(Given::Taken));
        });
        feed.close();
        assert_eq!(feed.push(&batch(0), Duration::ZERO), Ok(Given::Closed));
        for _ in 0..WAITING_BATCHES_MAX {
            assert!(feed.take().is_ok_and(|taken| taken.is_some()));
        }
        assert_eq!(feed.take().err(), Some(Ended));
        feed.leave();
        assert!(feed.open(waiter.waker()));
    }

    #[test]
    fn a_feed_has_its_name_as_long_as_it_is_offered() {
        let offer = Offer::new("of a test", Arc::new(Feed::pushed(schema())));
        assert!(named("of a test").is_some());
        let newer = Offer::new("of a test", Arc::new(Feed::pushed(schema())));
        drop(offer);
        assert!(named("of a test").is_some_and(|feed| Arc::ptr_eq(&feed, newer.feed())));
        drop(newer);
        assert!(named("of a test").is_none());
    }
}
