//! What a function is, and how it fails.

use std::time::Duration;

use arrow_schema::{DataType, TimeUnit};
use serde_json::{Value, json};

/// How a function gets its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is called once per row, with values of Python.
    Rows,
    /// It is called once per chunk, with arrays of pyarrow.
    Columns,
}

/// A function in Python.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The name in SQL, for messages.
    pub name: String,
    /// The name of the function in the text.
    pub handler: String,
    /// The text.
    pub text: String,
    /// The name of the text in tracebacks.
    pub file: String,
    /// The types of the arguments.
    pub arguments: Vec<DataType>,
    /// The type of the result.
    pub result: DataType,
    /// Whether it is an aggregate function: a class whose objects are groups.
    pub is_aggregate: bool,
    /// What it is if it returns a table.
    pub table: Option<Table>,
    /// How it gets its arguments.
    pub mode: Mode,
    /// Whether it gets NULLs; if not, the result for a NULL is NULL.
    pub takes_nulls: bool,
    /// The most workers at a time; `None` for as many as threads call it.
    pub workers: Option<usize>,
    /// The most memory of a worker, in bytes.
    pub memory: Option<u64>,
    /// The longest time for a row (of [`Mode::Rows`]) or a chunk.
    pub timeout: Duration,
    /// The interpreter; `None` for that of the environment.
    pub python: Option<String>,
}

/// A function that returns a table, as a call in SQL uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The columns that it gets of each of its tables.
    pub inputs: Vec<Vec<(String, DataType)>>,
    /// The names of its other parameters.
    pub parameters: Vec<String>,
    /// The other arguments by their names; `None` if the text is only to be checked.
    pub constants: Option<Vec<(String, Constant)>>,
    /// Its own columns; none for a filter.
    pub columns: Vec<(String, DataType)>,
    /// What it keeps for each key; `None` without a state.
    pub state: Option<Vec<(String, DataType)>>,
    /// The names of its outputs, if it has several.
    pub outputs: Vec<String>,
    /// Whether rows come in the order of event time.
    pub is_ordered: bool,
}

/// A constant argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    /// A bool.
    Boolean(bool),
    /// An int.
    Integer(i64),
    /// A float.
    Number(f64),
    /// A str.
    Text(String),
    /// A timedelta, in microseconds.
    Interval(i64),
}

impl Table {
    /// What the Python that runs the call is told, as JSON.
    pub fn told(&self) -> String {
        self.value().to_string()
    }

    fn value(&self) -> Value {
        let named = |columns: &Vec<(String, DataType)>| {
            let columns = columns.iter();
            let columns = columns.map(|(name, data_type)| json!([name, kind(data_type)]));
            columns.collect::<Vec<Value>>()
        };
        let constant = |(name, constant): &(String, Constant)| {
            // Strings: JSON has no infinity.
            let (kind, text) = match constant {
                Constant::Boolean(value) => ("boolean", value.to_string()),
                Constant::Integer(value) => ("integer", value.to_string()),
                Constant::Number(value) => ("number", value.to_string()),
                Constant::Text(value) => ("string", value.clone()),
                Constant::Interval(value) => ("interval", value.to_string()),
            };
            json!([name, kind, text])
        };
        let constants = self.constants.as_ref();
        json!({
            "inputs": self.inputs.iter().map(named).collect::<Vec<_>>(),
            "parameters": self.parameters,
            "constants": constants.map(|all| all.iter().map(constant).collect::<Vec<_>>()),
            "columns": named(&self.columns),
            "state": self.state.as_ref().map(named),
            "outputs": self.outputs,
            "ordered": self.is_ordered,
        })
    }
}

impl Definition {
    /// What a worker is told at its start.
    pub(crate) fn told(&self) -> Vec<u8> {
        let arguments = self.arguments.iter().map(kind).collect::<Vec<Value>>();
        let mode = match self.mode {
            Mode::Rows => "rows",
            Mode::Columns => "columns",
        };
        let told = json!({
            "text": self.text,
            "file": self.file,
            "handler": self.handler,
            "mode": mode,
            "aggregate": self.is_aggregate,
            "nulls": self.takes_nulls,
            "table": self.table.as_ref().map(Table::value),
            "arguments": arguments,
            "result": self.table.is_none().then(|| kind(&self.result)),
            "memory": self.memory.unwrap_or(0),
        });
        told.to_string().into_bytes()
    }
}

/// A type as workers know it.
fn kind(data_type: &DataType) -> Value {
    let name = match data_type {
        DataType::Boolean => "bool",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::Float32 => "float32",
        DataType::Float64 => "float64",
        DataType::Utf8View => "string",
        DataType::Binary => "bytes",
        DataType::Date32 => "date",
        DataType::Time64(TimeUnit::Microsecond) => "time",
        DataType::Timestamp(unit, None) => {
            let unit = match unit {
                TimeUnit::Second => "s",
                TimeUnit::Millisecond => "ms",
                TimeUnit::Microsecond => "us",
                TimeUnit::Nanosecond => "ns",
            };
            return json!({"kind": "timestamp", "unit": unit});
        }
        DataType::Decimal128(precision, scale) => {
            return json!({"kind": "decimal", "precision": precision, "scale": scale});
        }
        DataType::List(item) => return json!({"kind": "list", "item": kind(item.data_type())}),
        DataType::Struct(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|field| json!([field.name(), kind(field.data_type())]));
            return json!({"kind": "row", "fields": fields.collect::<Vec<Value>>()});
        }
        other => unreachable!("{other}: unsupported() has accepted it"),
    };
    json!({"kind": name})
}

/// The part of a type that functions can't have; `None` if they can have the type.
pub fn unsupported(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8View
        | DataType::Binary
        | DataType::Date32
        | DataType::Time64(TimeUnit::Microsecond)
        | DataType::Timestamp(_, None)
        | DataType::Decimal128(_, _) => None,
        DataType::List(item) => unsupported(item.data_type()),
        DataType::Struct(fields) => {
            let mut fields = fields.iter();
            fields.find_map(|field| unsupported(field.data_type()))
        }
        other => Some(other),
    }
}

/// Why a call has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason, with the traceback if Python has raised something.
    pub reason: String,
    /// The row that has failed, if it is known.
    pub row: Option<usize>,
    /// Whether it would be the same for any row, so that the query must end.
    pub is_final: bool,
}

impl Failure {
    pub(crate) fn of(reason: impl Into<String>) -> Failure {
        Failure {
            reason: reason.into(),
            row: None,
            is_final: false,
        }
    }
}

/// Why a function can't be called at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// How to fix it; empty if the message says it.
    pub hint: String,
    /// The line of the function's text, from 1, and the column, from 1, or 0 if it is not known.
    pub place: Option<(usize, usize)>,
    /// Whether its worker was killed: another one may start.
    pub(crate) is_killed: bool,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem {
            message: message.into(),
            hint: hint.into(),
            place: None,
            is_killed: false,
        }
    }
}

/// A function in WebAssembly.
#[derive(Debug, Clone)]
pub struct WasmDefinition {
    /// The name in SQL, for messages.
    pub name: String,
    /// The name of the exported function.
    pub handler: String,
    /// The module: its text, or its bytes in Base64.
    pub module: String,
    /// The types of the arguments.
    pub arguments: Vec<DataType>,
    /// The type of the result.
    pub result: DataType,
    /// The most bytes of an instance's memory.
    pub memory: u64,
    /// The most fuel of a call: about one for each instruction.
    pub fuel: u64,
}
