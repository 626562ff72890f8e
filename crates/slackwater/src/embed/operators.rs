//! Operators that the program runs itself, in another language than Rust.

use std::sync::Arc;

use arrow_schema::DataType;
use slackwater_sql::functions::operator::Call;
use slackwater_sql::functions::{self, Functions};
use slackwater_sql::statement::Constants;
use slackwater_sql::types::sql_name;
use slackwater_udf::unsupported;

use super::{Error, data_types};
use crate::catalog::operators::{function, plan, types};

pub use crate::catalog::keyed_operators::Runner as OperatorRunner;
pub use slackwater_udf::{
    Failure as OperatorFailure, KeyedBatch, KeyedRan, OPERATORS, StepFailure,
    Table as OperatorCall, TableRows,
};

/// An operator: a function that takes tables and returns a table. `docs/python-operators.md` describes the
/// parts.
pub use slackwater_sql::statement::TableFunction as OperatorDeclaration;

/// The parameters of an operator that are not tables, of their names and types in SQL.
///
/// # Errors
///
/// When a parameter can't have its type.
pub fn operator_constants(named: Vec<(String, String)>) -> Result<Vec<(String, Constants)>, Error> {
    let constants = named.into_iter().map(|(name, kind)| {
        let constant = match kind.to_uppercase().as_str() {
            "INTERVAL" => Constants::Intervals,
            _ => match data_types(std::slice::from_ref(&kind))?.remove(0) {
                DataType::Boolean => Constants::Booleans,
                data_type if data_type.is_integer() => Constants::Integers,
                data_type if data_type.is_floating() => Constants::Numbers,
                DataType::Utf8View => Constants::Strings,
                _ => {
                    let error = format!("argument '{name}' can't be {kind}");
                    let hint = "arguments are BOOLEAN, BIGINT, DOUBLE, STRING or INTERVAL";
                    return Err(Error::sql(error, hint));
                }
            },
        };
        Ok((name, constant))
    });
    constants.collect()
}

/// Adds an operator to the language, for all queries of this process that are made from now on, or replaces
/// the one of its name. `run` makes what runs a call.
///
/// # Errors
///
/// When a type can't be passed, or the name is one of the language.
pub fn define_operator(
    name: &str,
    declared: OperatorDeclaration,
    run: impl Fn(OperatorCall) -> Result<Arc<dyn OperatorRunner>, String> + Send + Sync + 'static,
) -> Result<(), Error> {
    if let Some(part) = types(&declared).find_map(unsupported) {
        let error = format!("values of {} can't be passed", sql_name(part));
        return Err(Error::sql(error, "use another type, such as STRING"));
    }
    let (own, of_call) = (name.to_string(), declared.clone());
    let plan = move |call: &Call| plan(&own, &of_call, call, &run);
    let mut added = Functions::default();
    added.operator_function(function(name, &declared, plan));
    let hint = "use a name that SQL does not have: name=\"…\"";
    functions::define(added).map_err(|reason| Error::sql(reason, hint))
}
