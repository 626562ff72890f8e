//! Operators that the program runs itself, in another language than Rust.

use std::sync::Arc;

use arrow_schema::DataType;
use slackwater_sql::functions::{self, Functions};
use slackwater_sql::statement::{Constants, NamedType, TableFunction};
use slackwater_udf::unsupported;

use super::{Error, data_types};
use crate::catalog::operators::{plan, types};

pub use crate::catalog::keyed_operators::Runner as OperatorRunner;
pub use slackwater_udf::{
    Failure as OperatorFailure, KeyedBatch, KeyedRan, OPERATORS, StepFailure,
    Table as OperatorCall, TableRows,
};

/// An operator: a function that takes tables and returns a table. `docs/python-operators.md` describes the
/// parts.
#[derive(Debug, Clone)]
pub struct OperatorDeclaration {
    /// The columns that it reads of each of its tables; `None` for all.
    pub inputs: Vec<Option<Vec<NamedType>>>,
    /// Its other parameters: names, and types in SQL.
    pub constants: Vec<(String, String)>,
    /// Its own columns; none for a filter.
    pub columns: Vec<NamedType>,
    /// What it keeps for each key; `None` without a state.
    pub state: Option<Vec<NamedType>>,
    /// The version of the state.
    pub version: u32,
    /// Whether its calls need ORDER BY.
    pub needs_order: bool,
    /// Whether it forgets its keys.
    pub forgets: bool,
    /// The names of its outputs, if it has several.
    pub outputs: Vec<String>,
    /// Whether it takes rows that are updated and taken back.
    pub takes_updates: bool,
}

impl OperatorDeclaration {
    fn declared(self) -> Result<TableFunction, Error> {
        let mut constants = Vec::new();
        for (name, kind) in self.constants {
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
            constants.push((name, constant));
        }
        let declared = TableFunction {
            inputs: self.inputs,
            constants,
            columns: self.columns,
            state: self.state,
            version: self.version,
            needs_order: self.needs_order,
            forgets: self.forgets,
            outputs: self.outputs,
            takes_updates: self.takes_updates,
        };
        let part = types(&declared).find_map(unsupported).cloned();
        match part {
            None => Ok(declared),
            Some(part) => {
                let error = format!(
                    "values of {} can't be passed",
                    slackwater_sql::types::sql_name(&part)
                );
                Err(Error::sql(error, "use another type, such as STRING"))
            }
        }
    }
}

/// Adds an operator to the language, for all queries of this process that are made from now on, or replaces
/// the one of its name. `run` makes what runs a call.
///
/// # Errors
///
/// When a type can't be passed, or the name is one of the language.
pub fn define_operator(
    name: &str,
    declaration: OperatorDeclaration,
    run: impl Fn(OperatorCall) -> Result<Arc<dyn OperatorRunner>, String> + Send + Sync + 'static,
) -> Result<(), Error> {
    let declared = declaration.declared()?;
    let parameters = declared.constants.iter().map(|(name, _)| name.clone());
    let parameters = parameters.collect::<Vec<String>>();
    let parameters = parameters.iter().map(String::as_str).collect::<Vec<&str>>();
    let own = name.to_string();
    let mut added = Functions::default();
    added.operator(name, &parameters, move |call| {
        plan(&own, &declared, call, &run)
    });
    let hint = "use a name that SQL does not have: name=\"…\"";
    functions::define(added).map_err(|reason| Error::sql(reason, hint))
}
