//! Functions that a program declares itself, in another language: CREATE FUNCTION.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use slackwater_engine::accumulator::AccumulatorFactory;

use super::aggregate::aggregate_of;
use super::operator::OperatorFunction;
use crate::error::SqlError;
use crate::types::sql_name;

/// A function that a program declares.
pub trait DeclaredFunction: Send + Sync {
    /// The results for columns of the declared types. An error means that at least one row fails.
    ///
    /// # Errors
    ///
    /// Why, and which row, if that is known.
    fn call(&self, columns: &[ArrayRef], rows: usize) -> std::result::Result<ArrayRef, Failure>;

    /// The accumulators of an aggregate function; `None` for one of rows.
    fn accumulators(&self) -> Option<Arc<dyn AccumulatorFactory>>;

    /// What a call of a function that returns a table does; `None` for one of rows, or an aggregate.
    fn operator(&self) -> Option<Arc<OperatorFunction>>;

    /// Starts the function, so that what is wrong with it is found before a query calls it. If this process
    /// is not going to call it, it is not kept.
    ///
    /// # Errors
    ///
    /// What is wrong, with its place in the program.
    fn start(&self, keep: bool) -> std::result::Result<(), SqlError>;

    /// Ends what the function has started and is not being called. A call starts it again.
    fn end(&self);

    /// How it runs, for EXPLAIN.
    fn describe(&self) -> String;

    /// The text that was read from a file, for the other processes of a query.
    fn file_text(&self) -> Option<&str>;
}

/// Why a declared function has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub reason: String,
    /// A row that fails, if one is known.
    pub row: Option<usize>,
    /// Whether it would be the same for any row, so that the query must end.
    pub is_final: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The failure of a declared function that is the cause of an error.
    pub(crate) fn of(error: &DataFusionError) -> Option<&Failure> {
        match error.find_root() {
            DataFusionError::External(cause) => cause.downcast_ref::<Failure>(),
            _ => None,
        }
    }
}

/// A declared function, with its types, for the planner.
pub struct Declared {
    /// The name, in lower case.
    pub name: String,
    /// The name as it was written.
    shown: String,
    /// The types of its arguments.
    pub arguments: Vec<DataType>,
    /// The type of its result.
    pub result: DataType,
    /// What computes it.
    pub function: Arc<dyn DeclaredFunction>,
    signature: Signature,
}

impl Declared {
    /// A function for the planner. It is called for rows only, never in advance for constants: planning a
    /// query starts no process.
    pub fn new(
        name: &str,
        arguments: Vec<DataType>,
        result: DataType,
        function: Arc<dyn DeclaredFunction>,
    ) -> Declared {
        Declared {
            name: name.to_lowercase(),
            shown: name.to_string(),
            arguments,
            result,
            function,
            signature: Signature::user_defined(Volatility::Volatile),
        }
    }

    /// The function as the planner knows it.
    pub fn udf(self) -> ScalarUDF {
        ScalarUDF::new_from_impl(self)
    }

    /// An aggregate function as the planner knows it; `None` for one of rows.
    pub fn aggregate(&self) -> Option<Arc<AggregateUDF>> {
        let accumulators = self.function.accumulators()?;
        Some(aggregate_of(
            &self.shown,
            self.arguments.clone(),
            accumulators,
        ))
    }

    fn fits(&self, given: &[DataType]) -> bool {
        let mut both = given.iter().zip(&self.arguments);
        given.len() == self.arguments.len()
            && both.all(|(given, wanted)| super::values::fits(given, wanted))
    }

    fn refused(&self, given: &[DataType]) -> DataFusionError {
        let names = |types: &[DataType]| {
            let names = types.iter().map(sql_name);
            names.collect::<Vec<String>>().join(", ")
        };
        let name = &self.shown;
        let error = SqlError::new(format!(
            "function '{name}' does not accept ({})",
            names(given)
        ));
        let form = format!("{}({})", name.to_uppercase(), names(&self.arguments));
        DataFusionError::External(Box::new(error.hint(form)))
    }
}

impl ScalarUDFImpl for Declared {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match self.fits(given) {
            true => Ok(self.arguments.clone()),
            // The planner hides errors from here; it asks for the type of the result next.
            false => Ok(given.to_vec()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match self.fits(given) {
            true => Ok(self.result.clone()),
            false => Err(self.refused(given)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.into_iter().map(|value| value.into_array(rows));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        match self.function.call(&columns, rows) {
            Ok(column) => Ok(ColumnarValue::Array(column)),
            Err(failure) => Err(DataFusionError::External(Box::new(failure))),
        }
    }
}

impl fmt::Debug for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

// A program declares a name once.
impl PartialEq for Declared {
    fn eq(&self, other: &Declared) -> bool {
        self.name == other.name
    }
}

impl Eq for Declared {}

impl Hash for Declared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
