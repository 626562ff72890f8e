//! ARRAY<DOUBLE> in Rust: `Vec<f64>`, as an argument, as a column of an operator, and in a saved state.

use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_schema::{DataType, Field};

use super::aggregate::Stored;
use super::values::{Argument, Cell, downcast};

/// The numbers of an ARRAY<DOUBLE>; a NULL in it is NaN.
impl Argument for Vec<f64> {
    type Item<'a> = Vec<f64>;
    type Column = ListArray;

    fn data_type() -> DataType {
        DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))
    }

    fn get(column: &ListArray, row: usize) -> Option<Vec<f64>> {
        use arrow_array::cast::AsArray;
        column.is_valid(row).then(|| {
            let values = column.value(row);
            let values = values.as_primitive::<Float64Type>().iter();
            values.map(|value| value.unwrap_or(f64::NAN)).collect()
        })
    }
}

impl Cell for Vec<f64> {
    fn data_type() -> DataType {
        <Vec<f64> as Argument>::data_type()
    }

    fn column(cells: Vec<Option<Vec<f64>>>) -> ArrayRef {
        let cells = cells.into_iter();
        let cells = cells.map(|cell| cell.map(|values| values.into_iter().map(Some)));
        Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(cells))
    }
}

impl Stored for Vec<f64> {
    type Cell = Vec<f64>;

    fn store(self) -> Option<Vec<f64>> {
        Some(self)
    }

    fn read(columns: &[ArrayRef], index: usize, row: usize) -> Result<Vec<f64>, String> {
        let column = downcast::<ListArray>(columns, index)?;
        let is_double = column.value_type() == DataType::Float64;
        let value = is_double.then(|| <Vec<f64> as Argument>::get(column, row));
        value
            .flatten()
            .ok_or_else(|| "a part of the state is missing".to_string())
    }
}
