//! What goes through Python and back is what it was.

use arrow_schema::DataType;
use proptest::prelude::*;
use slackwater_udf::{Definition, Function, Mode};

use super::{columns, definition, python_with_arrow};

const IDENTITY: &str = "def f(x):\n    return x\n";

/// Calls the identity several times: with more rows, so that the memories grow, and with fewer.
fn goes_through(definition: Definition, seed: u64) -> Result<(), TestCaseError> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let data_type = columns::data_type(&mut rng, 2);
    let function = Function::new(Definition {
        arguments: vec![data_type.clone()],
        result: data_type.clone(),
        ..definition
    });
    for rows in [rng.usize(1..50), rng.usize(1000..5000), 1] {
        let given = columns::column(&mut rng, &data_type, rows);
        let returned = function.call(std::slice::from_ref(&given), rows);
        let returned = match returned {
            Ok(returned) => returned,
            Err(failure) => return Err(TestCaseError::fail(format!("{data_type}: {failure:?}"))),
        };
        prop_assert!(
            returned.as_ref() == given.as_ref(),
            "{data_type}: {returned:?} is not {given:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn of_rows(seed in any::<u64>(), takes_nulls in any::<bool>()) {
        let identity = definition(IDENTITY, &[], DataType::Int64);
        goes_through(Definition { takes_nulls, ..identity }, seed)?;
    }
}

#[test]
fn of_columns() {
    let Some(python) = python_with_arrow() else {
        return;
    };
    // Importing pyarrow takes a while: each case is a process.
    let config = ProptestConfig::with_cases(12);
    proptest!(config, |(seed in any::<u64>(), takes_nulls in any::<bool>())| {
        goes_through(Definition {
            mode: Mode::Columns,
            python: Some(python.clone()),
            takes_nulls,
            ..definition(IDENTITY, &[], DataType::Int64)
        }, seed)?;
    });
}
