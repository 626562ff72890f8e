//! `DIRECT(number)`: direct grouping (Kamburugamuve et al. 2016, the groupings of Storm). As part of a key
//! the number places rows, instead of a hash: consecutive numbers are at different instances.
//!
//! What a key is made of does not depend on where its rows are, so answers do not depend on it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt16Type};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_schema::DataType;
use slackwater_engine::hash::{BUCKETS, DIRECT};

use super::scalar::{Columns, Scalar};

/// DIRECT.
pub(super) fn functions() -> Vec<Scalar> {
    let direct = |columns: &[ArrayRef], _: usize| {
        let number = columns[0].as_primitive::<Int64Type>();
        let places: PrimitiveArray<UInt16Type> =
            number.unary(|number| number.rem_euclid(BUCKETS as i64) as u16);
        Ok(Arc::new(places) as ArrayRef)
    };
    vec![Scalar::new("direct").with(Columns {
        arguments: vec![DataType::Int64],
        result: DIRECT,
        function: direct,
    })]
}
