//! Scalar functions for the planner, each made of one or more overloads.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::error::SqlError;
use crate::types::sql_name;

/// An overload of a function: its argument types, its result, and how it is computed.
pub(super) trait Overload: Send + Sync {
    /// The types that arguments of the given types are cast to; `None` if they are not accepted.
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>>;

    /// The type of the result for arguments of types that [`Overload::fit`] has returned.
    fn result(&self, arguments: &[DataType]) -> DataType;

    /// The results for columns of these types; an error means that at least one row fails.
    fn call(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        result: &DataType,
    ) -> std::result::Result<ArrayRef, String>;

    /// The arguments, for messages: `STRING, BIGINT`.
    fn shape(&self) -> String;

    /// Checks constant arguments before the query runs.
    fn check(&self, _constants: &[Option<&str>]) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// An overload of whole columns.
pub(super) struct Columns<F> {
    pub arguments: Vec<DataType>,
    pub result: DataType,
    pub function: F,
}

impl<F> Overload for Columns<F>
where
    F: Fn(&[ArrayRef], usize) -> std::result::Result<ArrayRef, String> + Send + Sync,
{
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        let fit = given.len() == self.arguments.len()
            && given
                .iter()
                .zip(&self.arguments)
                .all(|(given, wanted)| super::values::fits(given, wanted));
        fit.then(|| self.arguments.clone())
    }

    fn result(&self, _: &[DataType]) -> DataType {
        self.result.clone()
    }

    fn call(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        result: &DataType,
    ) -> std::result::Result<ArrayRef, String> {
        let column = (self.function)(columns, rows)?;
        if column.len() != rows || column.data_type() != result {
            return Err(format!(
                "returned {} values of {} instead of {rows} of {}",
                column.len(),
                sql_name(column.data_type()),
                sql_name(result)
            ));
        }
        Ok(column)
    }

    fn shape(&self) -> String {
        self.arguments
            .iter()
            .map(sql_name)
            .collect::<Vec<String>>()
            .join(", ")
    }
}

/// A function with one or more overloads.
pub(super) struct Scalar {
    name: String,
    aliases: Vec<String>,
    overloads: Vec<Arc<dyn Overload>>,
    signature: Signature,
}

impl Scalar {
    /// A function without overloads, whose result depends on its arguments alone.
    pub(super) fn new(name: &str) -> Scalar {
        Scalar {
            name: name.to_lowercase(),
            aliases: Vec::new(),
            overloads: Vec::new(),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn alias(mut self, alias: &str) -> Scalar {
        self.aliases.push(alias.to_string());
        self
    }

    pub(super) fn not_deterministic(mut self) -> Scalar {
        self.signature = Signature::user_defined(Volatility::Volatile);
        self
    }

    pub(super) fn with(mut self, overload: impl Overload + 'static) -> Scalar {
        self.overloads.push(Arc::new(overload));
        self
    }

    pub(super) fn udf(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(self))
    }

    /// The overload for arguments of these types: one that takes them without casts, else the first that
    /// takes them with casts.
    fn overload(&self, given: &[DataType]) -> Option<(&Arc<dyn Overload>, Vec<DataType>)> {
        let fitting = self.overloads.iter();
        let mut fitting = fitting.filter_map(|overload| Some((overload, overload.fit(given)?)));
        let first = fitting.next()?;
        if first.1 == given {
            return Some(first);
        }
        Some(fitting.find(|(_, types)| types == given).unwrap_or(first))
    }

    fn refused(&self, given: &[DataType]) -> DataFusionError {
        let forms = self.overloads.iter();
        let forms =
            forms.map(|overload| format!("{}({})", self.name.to_uppercase(), overload.shape()));
        let given = given
            .iter()
            .map(sql_name)
            .collect::<Vec<String>>()
            .join(", ");
        let error = SqlError::new(format!(
            "function '{}' does not accept ({given})",
            self.name
        ))
        .hint(forms.collect::<Vec<String>>().join(" or "));
        DataFusionError::External(Box::new(error))
    }
}

impl ScalarUDFImpl for Scalar {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match self.overload(given) {
            Some((_, types)) => Ok(types),
            // The planner hides errors from here; it asks for the type of the result next.
            None => Ok(given.to_vec()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match self.overload(given) {
            Some((overload, types)) => Ok(overload.result(&types)),
            None => Err(self.refused(given)),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone());
        let types = types.collect::<Vec<DataType>>();
        let result = self.return_type(&types)?;
        if let Some((overload, _)) = self.overload(&types) {
            let constants = args.scalar_arguments.iter();
            let constants =
                constants.map(|value| value.and_then(|value| value.try_as_str().flatten()));
            overload
                .check(&constants.collect::<Vec<Option<&str>>>())
                .map_err(|reason| {
                    let error = SqlError::new(reason).near(self.name.to_uppercase());
                    DataFusionError::External(Box::new(error))
                })?;
        }
        Ok(Arc::new(Field::new(&self.name, result, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.into_iter().map(|value| value.into_array(rows));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let types = columns.iter().map(|column| column.data_type().clone());
        let types = types.collect::<Vec<DataType>>();
        let Some((overload, _)) = self.overload(&types) else {
            return Err(self.refused(&types));
        };
        let column = overload.call(&columns, rows, args.return_field.data_type());
        // As it is: what a function says is not in the planner's words.
        let failed = |reason: String| {
            let reason = format!("{}: {reason}", self.name.to_uppercase());
            DataFusionError::External(Box::new(SqlError::new(reason)))
        };
        Ok(ColumnarValue::Array(column.map_err(failed)?))
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

// Function names are unique.
impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.name == other.name
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
