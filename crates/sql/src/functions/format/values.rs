//! The values of decoded rows, column by column, until they are arrays.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringViewBuilder};
use arrow_array::{ArrayRef, BinaryArray, StringViewArray};

use crate::functions::values::{Argument, Cell, Time};

/// A type of values in records: `bool`, `i8` to `i64`, `f32`, `f64`, `&str`, `&[u8]` (BYTES), [`Time`] and
/// `Vec<f64>` (ARRAY&lt;DOUBLE>).
pub trait Value: Argument + 'static {
    /// What keeps the values of a column until they are an array.
    type Kept: Default + Store;

    /// Keeps the value of a row.
    fn keep(kept: &mut Self::Kept, row: usize, value: Self::Item<'_>);
}

/// The values of a column; a row that has none is NULL.
pub trait Store: Any + Debug + Send {
    /// Forgets the values from row `rows` on.
    fn truncate(&mut self, rows: usize);

    /// The values of this many rows, which are forgotten.
    fn take(&mut self, rows: usize) -> ArrayRef;
}

/// An empty store for values of a type.
pub(super) fn store_of<A: Value>() -> Box<dyn Store> {
    Box::new(A::Kept::default())
}

/// Values that are kept as they are.
#[derive(Debug)]
pub struct Plain<T>(Vec<Option<T>>);

impl<T> Default for Plain<T> {
    fn default() -> Plain<T> {
        Plain(Vec::new())
    }
}

impl<T> Plain<T> {
    fn keep(&mut self, row: usize, value: T) {
        if row >= self.0.len() {
            self.0.resize_with(row + 1, || None);
        }
        self.0[row] = Some(value);
    }
}

impl<T: Cell + Debug + Send + 'static> Store for Plain<T> {
    fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows);
    }

    fn take(&mut self, rows: usize) -> ArrayRef {
        self.0.resize_with(rows, || None);
        T::column(std::mem::take(&mut self.0))
    }
}

macro_rules! plain {
    ($($rust:ty),*) => {$(
        impl Value for $rust {
            type Kept = Plain<$rust>;

            fn keep(kept: &mut Plain<$rust>, row: usize, value: $rust) {
                kept.keep(row, value);
            }
        }
    )*};
}

plain!(bool, i8, i16, i32, i64, f32, f64, Time, Vec<f64>);

/// Bytes of strings, one after the other, and the end of each. NULL is a string that was never kept.
#[derive(Debug, Default)]
pub struct Bytes {
    bytes: Vec<u8>,
    spans: Plain<(usize, usize)>,
}

impl Bytes {
    fn keep(&mut self, row: usize, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.spans.keep(row, (start, self.bytes.len()));
    }

    fn truncate(&mut self, rows: usize) {
        self.spans.0.truncate(rows);
        // Values of earlier rows end before those of later ones begin.
        let end = self.spans.0.iter().rev().flatten().next();
        self.bytes.truncate(end.map_or(0, |(_, end)| *end));
    }

    /// Calls `append` with the value of each row.
    fn take(&mut self, rows: usize, mut append: impl FnMut(Option<&[u8]>)) {
        self.spans.0.resize_with(rows, || None);
        for span in self.spans.0.drain(..) {
            append(span.map(|(start, end)| &self.bytes[start..end]));
        }
        self.bytes.clear();
    }
}

/// The values of a STRING column.
#[derive(Debug, Default)]
pub struct Strings(Bytes);

impl Store for Strings {
    fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows);
    }

    fn take(&mut self, rows: usize) -> ArrayRef {
        let mut column = StringViewBuilder::with_capacity(rows);
        self.0.take(rows, |value| {
            column.append_option(value.and_then(|value| std::str::from_utf8(value).ok()));
        });
        let column: StringViewArray = column.finish();
        Arc::new(column)
    }
}

impl Value for &'static str {
    type Kept = Strings;

    fn keep(kept: &mut Strings, row: usize, value: &str) {
        kept.0.keep(row, value.as_bytes());
    }
}

/// The values of a BYTES column.
#[derive(Debug, Default)]
pub struct Blobs(Bytes);

impl Store for Blobs {
    fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows);
    }

    fn take(&mut self, rows: usize) -> ArrayRef {
        let mut column = BinaryBuilder::with_capacity(rows, self.0.bytes.len());
        self.0.take(rows, |value| column.append_option(value));
        let column: BinaryArray = column.finish();
        Arc::new(column)
    }
}

impl Value for &'static [u8] {
    type Kept = Blobs;

    fn keep(kept: &mut Blobs, row: usize, value: &[u8]) {
        kept.0.keep(row, value);
    }
}
