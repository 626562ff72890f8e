//! Rust functions of one row as functions of columns.
//!
//! A closure takes its arguments for any lifetime (`for<'a> Fn(&'a str) -> i64`), over which a trait can't be
//! generic directly. So each arity has its own impl, selected by a marker type, `fn(A, B) -> R`.

use std::marker::PhantomData;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::scalar::Overload;
use super::values::{Argument, Cell, Output, downcast, fits};

/// A function or closure of one row: `|text: &str, times: i64| -> String { … }`, with up to six arguments
/// ([`Argument`]) and a result ([`Output`]). The compiler infers `Marker`.
pub trait RowFunction<Marker>: Send + Sync + 'static {
    /// The types of the arguments.
    fn arguments() -> Vec<DataType>;

    /// The type of the result.
    fn result() -> DataType;

    /// The results for columns of these types, with `rows` rows.
    ///
    /// # Errors
    ///
    /// The error that the function returns for one of the rows.
    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, String>;
}

fn collect<O: Output>(
    rows: usize,
    value: impl FnMut(usize) -> Option<O>,
) -> Result<ArrayRef, String> {
    let cells = (0..rows).map(value).map(|value| value.cell());
    let cells = cells.collect::<Result<Vec<Option<O::Cell>>, String>>()?;
    Ok(O::Cell::column(cells))
}

macro_rules! row_function {
    ($($argument:ident $column:ident $index:literal),*) => {
        impl<F, R: Output, $($argument: Argument),*> RowFunction<fn($($argument),*) -> R> for F
        where
            F: Send + Sync + 'static,
            F: Fn($($argument),*) -> R,
            F: for<'a> Fn($($argument::Item<'a>),*) -> R,
        {
            fn arguments() -> Vec<DataType> {
                vec![$($argument::data_type()),*]
            }

            fn result() -> DataType {
                R::Cell::data_type()
            }

            #[allow(unused_variables)]
            fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, String> {
                $(let $column = downcast::<$argument::Column>(columns, $index)?;)*
                // The type annotation is needed: the compiler can't choose between the two bounds.
                #[allow(clippy::too_many_arguments)]
                fn one<T, $($argument),*>(f: impl Fn($($argument),*) -> T, $($column: $argument),*) -> T {
                    f($($column),*)
                }
                collect(rows, |row| Some(one(self, $($argument::get($column, row)?),*)))
            }
        }
    };
}

row_function!();
row_function!(A a 0);
row_function!(A a 0, B b 1);
row_function!(A a 0, B b 1, C c 2);
row_function!(A a 0, B b 1, C c 2, D d 3);
row_function!(A a 0, B b 1, C c 2, D d 3, E e 4);
row_function!(A a 0, B b 1, C c 2, D d 3, E e 4, G g 5);

/// A function of one row as an overload.
pub(super) struct Rows<F, Marker> {
    function: F,
    marker: PhantomData<fn() -> Marker>,
}

impl<F, Marker> Rows<F, Marker> {
    pub(super) fn new(function: F) -> Rows<F, Marker> {
        Rows {
            function,
            marker: PhantomData,
        }
    }
}

impl<Marker: 'static, F: RowFunction<Marker>> Overload for Rows<F, Marker> {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        let wanted = F::arguments();
        let fit = given.len() == wanted.len()
            && given
                .iter()
                .zip(&wanted)
                .all(|(given, wanted)| fits(given, wanted));
        fit.then_some(wanted)
    }

    fn result(&self, _: &[DataType]) -> DataType {
        F::result()
    }

    fn call(&self, columns: &[ArrayRef], rows: usize, _: &DataType) -> Result<ArrayRef, String> {
        self.function.call(columns, rows)
    }

    fn shape(&self) -> String {
        let names = F::arguments();
        let names = names.iter().map(crate::types::sql_name);
        names.collect::<Vec<String>>().join(", ")
    }
}
