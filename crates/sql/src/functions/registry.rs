//! Functions that a build adds to the language.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use datafusion_expr::{AggregateUDF, ScalarUDF};
use slackwater_engine::accumulator::AccumulatorFactory;
use slackwater_engine::format::RecordFormat;

use super::aggregate::{Aggregate, aggregate_of, user_aggregate};
use super::format::{Format, FormatError, FormatFunction, Table};
use super::operator::{Call, Operator, OperatorFunction};
use super::rows::{RowFunction, Rows};
use super::scalar::{Columns, Scalar};

/// Functions that a build adds to the language: see `docs/functions.md`.
///
/// ```
/// let mut functions = slackwater_sql::functions::Functions::default();
/// functions.scalar("count_char", |text: &str, wanted: &str| text.matches(wanted).count() as i64);
/// ```
#[derive(Default)]
pub struct Functions {
    pub(super) scalars: Vec<Scalar>,
    pub(super) scalar_udfs: Vec<Arc<ScalarUDF>>,
    pub(super) aggregates: Vec<Arc<AggregateUDF>>,
    pub(super) operators: Vec<Arc<OperatorFunction>>,
    pub(super) formats: Vec<Arc<dyn RecordFormat>>,
}

impl Functions {
    /// Adds a function of one row, whose result depends on its arguments alone. Arguments are `bool`, `i8` to
    /// `i64`, `f32`, `f64`, `&str` and [`Time`](super::Time): where one is NULL the result is NULL, unless
    /// its type is an `Option`. The result is one of these (`String` for strings), an `Option` of it, or a
    /// `Result`, whose error rejects the row.
    ///
    /// A name may be added several times, for different argument types.
    pub fn scalar<Marker: 'static>(
        &mut self,
        name: &str,
        function: impl RowFunction<Marker>,
    ) -> &mut Functions {
        self.add(name, true, |scalar| scalar.with(Rows::new(function)))
    }

    /// Adds a function of one row whose result does not depend on its arguments alone: it is called for every
    /// row, and a restored query may get other values than before.
    pub fn scalar_not_deterministic<Marker: 'static>(
        &mut self,
        name: &str,
        function: impl RowFunction<Marker>,
    ) -> &mut Functions {
        self.add(name, false, |scalar| scalar.with(Rows::new(function)))
    }

    /// Adds a function of whole columns: it gets Arrow arrays of the types `arguments` and the number of
    /// rows, and returns an array of the type `result`. An error means that at least one row fails: the
    /// function is called again with fewer rows, until the failing rows are found.
    pub fn scalar_columns(
        &mut self,
        name: &str,
        arguments: &[DataType],
        result: DataType,
        function: impl Fn(&[ArrayRef], usize) -> Result<ArrayRef, String> + Send + Sync + 'static,
    ) -> &mut Functions {
        let columns = Columns {
            arguments: arguments.to_vec(),
            result,
            function,
        };
        self.add(name, true, |scalar| scalar.with(columns))
    }

    /// Adds an aggregate function.
    pub fn aggregate<A: Aggregate>(&mut self, name: &str) -> &mut Functions {
        self.aggregates.push(user_aggregate::<A>(name));
        self
    }

    /// Adds an aggregate function with arguments of these types, whose accumulators `factory` makes.
    pub fn aggregate_of(
        &mut self,
        name: &str,
        arguments: &[DataType],
        factory: Arc<dyn AccumulatorFactory>,
    ) -> &mut Functions {
        let aggregate = aggregate_of(name, arguments.to_vec(), factory);
        self.aggregates.push(aggregate);
        self
    }

    /// Adds an operator, a table function: `FROM name(TABLE t, arguments)`. `plan` says for each call what it
    /// does; it must say the same for equal calls. `parameters` are the names of the arguments after the
    /// tables. See `docs/operators.md`.
    pub fn operator(
        &mut self,
        name: &str,
        parameters: &[&str],
        plan: impl Fn(&Call) -> Result<Operator, String> + Send + Sync + 'static,
    ) -> &mut Functions {
        self.operator_function(OperatorFunction::new(name, parameters, plan))
    }

    /// Adds an operator.
    pub fn operator_function(&mut self, operator: OperatorFunction) -> &mut Functions {
        self.operators.push(Arc::new(operator));
        self
    }

    /// Adds a format: `WITH ('format' = 'name', 'name.option' = '…')`. `plan` says for each table how its
    /// records are read and written. The name consists of letters, digits and `_`; `options` are the names of
    /// the options, without that of the format. See `docs/connectors/formats.md`.
    pub fn format(
        &mut self,
        name: &str,
        options: &[&str],
        plan: impl Fn(&Table<'_>) -> Result<Format, FormatError> + Send + Sync + 'static,
    ) -> &mut Functions {
        let format = FormatFunction::new(name, options, plan);
        self.formats.push(Arc::new(format));
        self
    }

    /// Adds a scalar function of DataFusion.
    pub fn scalar_udf(&mut self, function: ScalarUDF) -> &mut Functions {
        self.scalar_udfs.push(Arc::new(function));
        self
    }

    /// Adds an aggregate function of DataFusion. Its accumulators must be able to continue after saving their
    /// state.
    pub fn aggregate_udf(&mut self, function: AggregateUDF) -> &mut Functions {
        self.aggregates.push(Arc::new(function));
        self
    }

    fn add(
        &mut self,
        name: &str,
        deterministic: bool,
        with: impl FnOnce(Scalar) -> Scalar,
    ) -> &mut Functions {
        let name = name.to_lowercase();
        let known = self.scalars.iter().position(|scalar| scalar.name() == name);
        let (place, scalar) = match known {
            Some(place) => (place, self.scalars.remove(place)),
            None => (self.scalars.len(), Scalar::new(&name)),
        };
        // A function is deterministic if all its overloads are.
        let scalar = match deterministic {
            true => scalar,
            false => scalar.not_deterministic(),
        };
        self.scalars.insert(place, with(scalar));
        self
    }

    /// The names of all added functions, without formats, in lower case.
    pub(super) fn names(&self) -> Vec<String> {
        let scalars = self.scalars.iter().map(|scalar| scalar.name().to_string());
        let udfs = self.scalar_udfs.iter().map(|udf| udf.name().to_lowercase());
        let aggregates = self
            .aggregates
            .iter()
            .map(|udaf| udaf.name().to_lowercase());
        let operators = self.operators.iter().map(|operator| operator.name.clone());
        let names = scalars.chain(udfs).chain(aggregates);
        names.chain(operators).collect()
    }
}
