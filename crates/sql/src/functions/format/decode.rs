//! Records into rows, with a function that a build brings.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef, TimeUnit};
use slackwater_engine::error::panic_text;
use slackwater_engine::format::{ROWS_OF_RECORD_MAX, RecordDecoder};

use super::Decode;
use super::table::Wanted;
use super::values::{Store, Value};
use crate::functions::operator::Column;
use crate::types::sql_name;

/// The rows of a record.
pub struct Decoded<'d> {
    stores: &'d mut [Option<Box<dyn Store>>],
    /// The number of the row that comes next.
    row: usize,
    end: usize,
    /// Whether a value of it was set.
    is_begun: bool,
}

impl Decoded<'_> {
    /// Sets the value of a column in the row that comes next; `None` is NULL, as is a value that is never
    /// set. Nothing happens for a column that the table does not have.
    pub fn set<'v, A: Value>(
        &mut self,
        column: impl Into<Option<Column<A>>>,
        value: impl Into<Option<A::Item<'v>>>,
    ) {
        self.is_begun = true;
        let Some(column) = column.into() else { return };
        // A column that no statement reads has no store.
        let Some(store) = &mut self.stores[column.index()] else {
            return;
        };
        let store: &mut dyn Any = store.as_mut();
        let kept = store.downcast_mut::<A::Kept>();
        let kept = kept.expect("a column of the table that the format was asked for");
        match value.into() {
            Some(value) => A::keep(kept, self.row, value),
            None => kept.truncate(self.row),
        }
    }

    /// Emits the row.
    ///
    /// # Panics
    ///
    /// When the record has more than [`ROWS_OF_RECORD_MAX`] rows, which rejects it.
    pub fn emit(&mut self) {
        assert!(
            self.row < self.end,
            "it has more than {ROWS_OF_RECORD_MAX} rows"
        );
        self.row += 1;
        self.is_begun = false;
    }
}

/// Decodes records in one thread.
pub(super) struct Decoder {
    decode: Arc<Decode>,
    /// Of the columns that the format has asked for.
    stores: Vec<Option<Box<dyn Store>>>,
    /// The columns that are read, by their places among these.
    read: Vec<(usize, FieldRef)>,
    rows: usize,
}

impl Decoder {
    pub(super) fn new(
        decode: Arc<Decode>,
        wanted: &[Wanted],
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Decoder {
        let stores = wanted.iter();
        let stores =
            stores.map(|wanted| projection.contains(&wanted.index).then(|| (wanted.store)()));
        let read = projection.iter().filter_map(|&index| {
            let place = wanted.iter().position(|wanted| wanted.index == index)?;
            Some((place, Arc::clone(&schema.fields()[index])))
        });
        Decoder {
            decode,
            stores: stores.collect(),
            read: read.collect(),
            rows: 0,
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a decoder with {} rows", self.rows)
    }
}

impl RecordDecoder for Decoder {
    fn decode(&mut self, record: &[u8]) -> Result<usize, String> {
        let before = self.rows;
        let mut out = Decoded {
            stores: &mut self.stores,
            row: before,
            end: before + ROWS_OF_RECORD_MAX,
            is_begun: false,
        };
        // What a panic leaves behind is forgotten below.
        let done = catch_unwind(AssertUnwindSafe(|| (self.decode)(record, &mut out)));
        let done = done.unwrap_or_else(|panic| {
            Err(format!(
                "the decoder panicked: {}",
                panic_text(panic.as_ref())
            ))
        });
        let done = match (done, out.is_begun) {
            (Ok(()), true) => Err("the decoder set values after its last row".to_string()),
            (done, _) => done,
        };
        match done {
            Ok(()) => {
                self.rows = out.row;
                Ok(self.rows - before)
            }
            Err(reason) => {
                let stores = self.stores.iter_mut().flatten();
                stores.for_each(|store| store.truncate(before));
                Err(reason)
            }
        }
    }

    fn take(&mut self) -> (Vec<ArrayRef>, Vec<(usize, String)>) {
        let rows = std::mem::take(&mut self.rows);
        let mut bad = Vec::new();
        let columns = self.read.iter().map(|(place, field)| {
            let kept = self.stores[*place].as_mut().map(|store| store.take(rows));
            match kept {
                Some(kept) if kept.data_type() == field.data_type() => kept,
                Some(kept) => declared(&kept, field, &mut bad),
                None => new_null_array(field.data_type(), rows),
            }
        });
        (columns.collect(), bad)
    }
}

/// The values in a type that their own fits; those that it can't hold are NULL. Times are cut off.
fn cast(kept: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let us_in_unit = match wanted {
        DataType::Timestamp(TimeUnit::Second, None) => 1_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, None) => 1_000,
        _ => 1,
    };
    match kept.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(times) if us_in_unit > 1 => {
            // Before 1970 a cast would round up.
            let times = times.unary::<_, Int64Type>(|us| us.div_euclid(us_in_unit));
            cast_with_options(&times, wanted, &CastOptions::default())
        }
        _ => cast_with_options(kept, wanted, &CastOptions::default()),
    }
}

/// The values in the type that the table declares. A row with a value that does not fit is bad.
fn declared(kept: &ArrayRef, field: &FieldRef, bad: &mut Vec<(usize, String)>) -> ArrayRef {
    let name = field.name();
    let declared = sql_name(field.data_type());
    match cast(kept, field.data_type()) {
        Ok(column) => {
            if column.null_count() > kept.null_count() {
                let lost = (0..kept.len()).filter(|&row| kept.is_valid(row) && column.is_null(row));
                bad.extend(lost.map(|row| {
                    let value = array_value_to_string(kept, row).unwrap_or_default();
                    (
                        row,
                        format!("column '{name}' ({declared}): can't hold {value}"),
                    )
                }));
            }
            column
        }
        Err(error) => {
            bad.extend((0..kept.len()).map(|row| (row, format!("column '{name}': {error}"))));
            new_null_array(field.data_type(), kept.len())
        }
    }
}
