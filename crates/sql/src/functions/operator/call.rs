//! A call of an operator in a query: its inputs and its arguments.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use datafusion_common::ScalarValue;

use crate::explain::literal;
use crate::functions::values::{Argument, fits, holds};
use crate::types::{of_tables, sql_name};

/// A call of an operator.
#[derive(Debug)]
pub struct Call {
    /// The names of the parameters, and what the call gives for them.
    arguments: Vec<(String, Option<Given>)>,
    inputs: Vec<Input>,
    asked: Mutex<Asked>,
}

/// What a call was asked for, for messages.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The number of tables.
    pub tables: Option<usize>,
    /// The parameters that are columns.
    pub columns: BTreeSet<String>,
    /// Whether the operator has turned out to have no state.
    pub is_without_state: bool,
}

/// An argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    /// A constant.
    Constant(ScalarValue),
    /// The names of columns: `DESCRIPTOR(a, b)`.
    Columns(Vec<String>),
}

/// An input of a call: a table.
#[derive(Debug)]
pub struct Input {
    schema: SchemaRef,
    /// The number of columns before those that are asked for: of the key, and the event time.
    before: usize,
    is_keyed: bool,
    is_ordered: bool,
    wanted: Mutex<Vec<Wanted>>,
}

/// A column that a call has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the column.
    pub name: String,
    /// The type in which it is wanted.
    pub data_type: DataType,
}

/// A column of an input, as values of a type.
#[derive(Debug)]
pub struct Column<A> {
    place: usize,
    marker: PhantomData<fn() -> A>,
}

impl<A> Clone for Column<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Column<A> {}

impl<A> Column<A> {
    /// The column at a place of batches.
    pub(in crate::functions) fn at(place: usize) -> Column<A> {
        Column {
            place,
            marker: PhantomData,
        }
    }

    /// The column's place in batches.
    pub(in crate::functions) fn index(self) -> usize {
        self.place
    }
}

impl<A: Argument> Column<A> {
    /// The column in a batch of its input.
    ///
    /// # Panics
    ///
    /// When the batch is not one of the column's input.
    pub fn of<'b>(&self, batch: &'b RecordBatch) -> &'b A::Column {
        let column = batch.column(self.place).as_any().downcast_ref();
        column.expect("a batch of the input that the column was asked of")
    }
}

/// A type of constants: `bool`, `i64`, `f64`, `String`.
pub trait Constant: Sized {
    /// What a constant of this type is called in messages.
    const NAME: &'static str;

    /// The value; `None` if it has another type.
    fn of(value: &ScalarValue) -> Option<Self>;
}

impl Constant for bool {
    const NAME: &'static str = "a BOOLEAN";

    fn of(value: &ScalarValue) -> Option<bool> {
        match value {
            ScalarValue::Boolean(value) => *value,
            _ => None,
        }
    }
}

impl Constant for i64 {
    const NAME: &'static str = "a whole number";

    fn of(value: &ScalarValue) -> Option<i64> {
        match value.data_type().is_integer() {
            true => match value.cast_to(&DataType::Int64).ok()? {
                ScalarValue::Int64(value) => value,
                _ => None,
            },
            false => None,
        }
    }
}

impl Constant for f64 {
    const NAME: &'static str = "a number";

    fn of(value: &ScalarValue) -> Option<f64> {
        match value.data_type().is_numeric() {
            true => match value.cast_to(&DataType::Float64).ok()? {
                ScalarValue::Float64(value) => value,
                _ => None,
            },
            false => None,
        }
    }
}

impl Constant for String {
    const NAME: &'static str = "a string";

    fn of(value: &ScalarValue) -> Option<String> {
        value.try_as_str()?.map(str::to_string)
    }
}

/// An INTERVAL of days or smaller units.
impl Constant for std::time::Duration {
    const NAME: &'static str = "an INTERVAL of days or smaller units";

    fn of(value: &ScalarValue) -> Option<std::time::Duration> {
        let ns = match value {
            ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
                i128::from(interval.days) * 86_400_000_000_000 + i128::from(interval.nanoseconds)
            }
            ScalarValue::IntervalDayTime(Some(interval)) => {
                i128::from(interval.days) * 86_400_000_000_000
                    + i128::from(interval.milliseconds) * 1_000_000
            }
            _ => return None,
        };
        Some(std::time::Duration::from_nanos(u64::try_from(ns).ok()?))
    }
}

impl Call {
    pub(crate) fn new(arguments: Vec<(String, Option<Given>)>, inputs: Vec<Input>) -> Call {
        Call {
            arguments,
            inputs,
            asked: Mutex::default(),
        }
    }

    /// The inputs, in the order of the call.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The only input.
    ///
    /// # Errors
    ///
    /// When there are several.
    pub fn input(&self) -> Result<&Input, String> {
        self.asked().tables = Some(1);
        match self.inputs.as_slice() {
            [input] => Ok(input),
            inputs => Err(format!("takes one table, not {}", inputs.len())),
        }
    }

    /// This many inputs.
    ///
    /// # Errors
    ///
    /// When there are more or fewer.
    pub fn inputs_of<const N: usize>(&self) -> Result<&[Input; N], String> {
        self.asked().tables = Some(N);
        let given = self.inputs.len();
        let inputs = <&[Input; N]>::try_from(self.inputs.as_slice());
        inputs.map_err(|_| format!("takes {N} tables, not {given}"))
    }

    /// The constant that the call gives for a parameter.
    ///
    /// # Errors
    ///
    /// When it is missing, or has another type.
    pub fn argument<C: Constant>(&self, parameter: &str) -> Result<C, String> {
        let value = self.optional(parameter)?;
        value.ok_or_else(|| format!("needs '{parameter}', {}", C::NAME))
    }

    /// The constant that the call gives for a parameter; `None` if it gives none.
    ///
    /// # Errors
    ///
    /// When it has another type.
    pub fn optional<C: Constant>(&self, parameter: &str) -> Result<Option<C>, String> {
        match self.given(parameter)? {
            None => Ok(None),
            Some(Given::Constant(value)) => match C::of(value) {
                Some(value) => Ok(Some(value)),
                None => {
                    let (must, is) = (C::NAME, literal(value));
                    Err(format!("'{parameter}' must be {must}, and is {is}"))
                }
            },
            Some(Given::Columns(_)) => Err(format!("'{parameter}' must be {}", C::NAME)),
        }
    }

    /// The names of columns that the call gives for a parameter: `DESCRIPTOR(a, b)`.
    ///
    /// # Errors
    ///
    /// When they are missing.
    pub fn columns(&self, parameter: &str) -> Result<&[String], String> {
        self.asked().columns.insert(parameter.to_string());
        match self.given(parameter)? {
            Some(Given::Columns(columns)) => Ok(columns),
            _ => Err(format!("needs '{parameter}', columns: DESCRIPTOR(column)")),
        }
    }

    /// The name of the only column that the call gives for a parameter: `DESCRIPTOR(a)`.
    ///
    /// # Errors
    ///
    /// When it is missing, or there are several.
    pub fn column(&self, parameter: &str) -> Result<&str, String> {
        match self.columns(parameter)? {
            [column] => Ok(column),
            columns => Err(format!(
                "'{parameter}' is one column, not {}",
                columns.len()
            )),
        }
    }

    pub(super) fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn given(&self, parameter: &str) -> Result<Option<&Given>, String> {
        let mut arguments = self.arguments.iter();
        let found = arguments.find(|(name, _)| name == parameter);
        match found {
            Some((_, given)) => Ok(given.as_ref()),
            None => Err(format!(
                "is declared wrongly: it has no parameter '{parameter}'"
            )),
        }
    }
}

impl Input {
    pub(crate) fn new(schema: SchemaRef, keys: Option<usize>, is_ordered: bool) -> Input {
        Input {
            schema,
            before: keys.unwrap_or(0) + usize::from(is_ordered),
            is_keyed: keys.is_some(),
            is_ordered,
            wanted: Mutex::default(),
        }
    }

    /// The columns of the table.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the call says PARTITION BY.
    pub fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// Whether the call says ORDER BY.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Asks for a column, as values of a type to which its own can be cast without losing anything silently:
    /// any integer to any other, numbers to floating point, times to [`Time`](crate::functions::Time).
    ///
    /// # Errors
    ///
    /// When there is no such column, or it has another type.
    pub fn column<A: Argument>(&self, name: &str) -> Result<Column<A>, String> {
        let (given, wanted) = (self.type_of(name)?, A::data_type());
        match fits(given, &wanted) {
            true => Ok(Column::at(self.want(name, wanted))),
            false => Err(wrong_type(name, given, &wanted)),
        }
    }

    /// Asks for a column as values of a type that has every value of its own: a cast loses nothing, and
    /// rejects no row. Returns its place in batches.
    ///
    /// # Errors
    ///
    /// When there is no such column, or it has another type.
    pub fn column_of(&self, name: &str, data_type: DataType) -> Result<usize, String> {
        let given = self.type_of(name)?;
        if holds(given, &data_type) {
            return Ok(self.want(name, data_type));
        }
        let wrong = wrong_type(name, given, &data_type);
        let (is, should) = (sql_name(&of_tables(given)), sql_name(&data_type));
        Err(
            match fits(given, &data_type) || given.is_numeric() && data_type.is_numeric() {
                true => format!(
                    "{wrong}, so a cast may lose something: declare '{name} {is}', or write TABLE (SELECT \
                 CAST({name} AS {should}) AS {name}, … FROM t)"
                ),
                false => wrong,
            },
        )
    }

    fn type_of(&self, name: &str) -> Result<&DataType, String> {
        let fields = self.schema.fields();
        let found = fields.iter().find(|field| field.name() == name);
        let found = found.ok_or_else(|| {
            let names = fields.iter().map(|field| field.name().as_str());
            let names = names.collect::<Vec<&str>>().join(", ");
            format!("needs a column '{name}', and the table has {names}")
        });
        Ok(found?.data_type())
    }

    fn want(&self, name: &str, data_type: DataType) -> usize {
        let wanted = Wanted {
            name: name.to_string(),
            data_type,
        };
        let mut all = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|other| *other == wanted);
        let place = known.unwrap_or_else(|| {
            all.push(wanted);
            all.len() - 1
        });
        self.before + place
    }

    /// Asks for all columns of the table in their own types, in their order: the batch then begins with them
    /// (after the key and the event time). For operators that read Arrow arrays themselves. Returns the place
    /// of the first one.
    pub fn all(&self) -> usize {
        let fields = self.schema.fields().iter().map(|field| Wanted {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
        });
        let mut all = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        *all = fields.collect();
        self.before
    }

    /// The columns that were asked for.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let wanted = self.wanted.lock();
        wanted.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn wrong_type(name: &str, given: &DataType, wanted: &DataType) -> String {
    let (is, should) = (sql_name(given), sql_name(wanted));
    format!("needs a column '{name}' of type {should}, and it is {is}")
}
