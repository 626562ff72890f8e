//! Sources and sinks that are written in Python. What users see of them is in `slackwater/sources.py` and
//! `slackwater/sinks.py`, which have the threads, too: Python's own, so that no frames of Rust are below a
//! generator that blocks when the interpreter ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch as Batch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use slackwater::embed::{self, Bad, Given, Piece};
use slackwater_engine::error::{Error, Result};

use crate::batch::{RecordBatch, Rows};
use crate::error::{raised, reason};
use crate::values::{Types, column_of};

/// A row that could not be made: its number, why, and its text.
type BadRow = (u64, String, String);

/// How long a reader waits for the one before it.
const TURN: Duration = Duration::from_secs(5);

/// A source: an object whose `start(outlet)` begins to read a partition, and returns an object with `stop()`.
pub struct Source {
    pub reader: Py<PyAny>,
}

struct Reading(Py<PyAny>);

/// A sink: an object with the methods that `slackwater/sinks.py` gives to all sinks.
pub struct Sink {
    pub methods: Py<PyAny>,
}

/// The error of a query, with what to do on a line of its own: a traceback is before it.
fn error_of(reason: &str, hint: &str) -> Error {
    match hint.is_empty() {
        true => Error::new("", reason),
        false => Error::new("", format!("{reason}\n  = {hint}")),
    }
}

/// What was raised, as the error of a query.
fn failed(py: Python<'_>, error: PyErr, what: &str) -> Error {
    let hint = error.value(py).getattr("hint");
    let hint = hint.and_then(|hint| hint.extract::<String>());
    let hint = hint.ok().filter(|hint| !hint.is_empty());
    let hint = hint.unwrap_or_else(|| match what {
        // It is repeated once.
        "commit()" => String::new(),
        _ => "what is raised ends the query: catch what may pass".to_string(),
    });
    error_of(&format!("{what} has raised:\n{}", reason(py, error)), &hint)
}

fn attached<T>(call: impl FnOnce(Python<'_>) -> Result<T>) -> Result<T> {
    let called = Python::try_attach(call);
    called.unwrap_or_else(|| Err(Error::new("", "Python is ending").consequence()))
}

impl embed::Reader for Source {
    fn start(&self, outlet: embed::Outlet) -> Result<Box<dyn embed::Reading>> {
        attached(|py| {
            let outlet = Outlet {
                outlet: Mutex::new(Some(Arc::new(outlet))),
            };
            let started = self.reader.call_method1(py, "start", (outlet,));
            let started = started.map_err(|error| failed(py, error, "the source"))?;
            Ok(Box::new(Reading(started)) as Box<dyn embed::Reading>)
        })
    }
}

impl embed::Reading for Reading {
    fn stop(&self) {
        // An interpreter that ends takes its threads along.
        Python::try_attach(|py| {
            if let Err(error) = self.0.call_method0(py, "stop") {
                error.write_unraisable(py, None);
            }
        });
    }
}

impl Sink {
    fn call<T>(
        &self,
        method: &str,
        call: impl for<'py> FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        attached(|py| {
            let called = call(py, self.methods.bind(py));
            called.map_err(|error| failed(py, error, &format!("{method}()")))
        })
    }
}

impl embed::Writer for Sink {
    fn begin(&self) -> Result<()> {
        self.call("begin", |_, sink| sink.call_method0("begin").map(drop))
    }

    fn write(&self, rows: &Batch) -> Result<()> {
        self.call("write", |_, sink| {
            let batch = rows.clone();
            sink.call_method1("write", (RecordBatch { batch },))
                .map(drop)
        })
    }

    fn flush(&self) -> Result<()> {
        self.call("flush", |_, sink| sink.call_method0("flush").map(drop))
    }

    fn prepare(&self, checkpoint: &str) -> Result<String> {
        self.call("prepare", |_, sink| {
            sink.call_method1("prepare", (checkpoint,))?
                .extract::<String>()
        })
    }

    fn commit(&self, prepared: &str) -> Result<()> {
        self.call("commit", |_, sink| {
            sink.call_method1("commit", (prepared,)).map(drop)
        })
    }

    fn close(&self) {
        let closed = self.call("close", |py, sink| {
            if let Err(error) = sink.call_method0("close") {
                error.write_unraisable(py, Some(sink));
            }
            Ok(())
        });
        // Without an interpreter there is nothing to close.
        drop(closed);
    }
}

/// Where the rows of a partition go.
#[pyclass(frozen, module = "slackwater._slackwater")]
pub struct Outlet {
    /// `None` once the reader has ended.
    outlet: Mutex<Option<Arc<embed::Outlet>>>,
}

impl Outlet {
    fn get(&self) -> PyResult<Arc<embed::Outlet>> {
        let outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner);
        outlet
            .clone()
            .ok_or_else(|| PyRuntimeError::new_err("the partition has ended"))
    }

    fn take(&self) -> Option<Arc<embed::Outlet>> {
        let mut outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner);
        outlet.take()
    }
}

#[pymethods]
impl Outlet {
    /// The partition.
    #[getter]
    fn partition(&self) -> PyResult<u32> {
        Ok(self.get()?.partition())
    }

    /// The text of the offset to resume from; None at the beginning.
    #[getter]
    fn offset(&self) -> PyResult<Option<String>> {
        Ok(self.get()?.offset().map(str::to_string))
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> PyResult<Vec<String>> {
        let outlet = self.get()?;
        let fields = outlet.schema().fields().iter();
        Ok(fields.map(|field| field.name().clone()).collect())
    }

    /// Waits, but not for ever, until an earlier reader of the partition has ended.
    fn wait_for_turn(&self, py: Python<'_>) -> PyResult<()> {
        let outlet = self.get()?;
        py.detach(|| outlet.wait_for_turn(TURN));
        Ok(())
    }

    /// Lists of values, one for each column of the table, as rows; and the number, the reason and the text of
    /// each row that has a wrong value.
    fn rows(
        &self,
        py: Python<'_>,
        columns: Vec<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<(Rows, Vec<BadRow>)> {
        let outlet = self.get()?;
        if columns.windows(2).any(|two| two[0].len() != two[1].len()) {
            let message = "the columns have different numbers of values";
            return Err(PyValueError::new_err(message));
        }
        let types = Types::new(py)?;
        match whole(&types, outlet.schema(), &columns) {
            Ok(rows) => Ok((rows, Vec::new())),
            Err(_) => parted(py, &types, outlet.schema(), &columns),
        }
    }

    /// Hands rows on, with the number, the reason and the text of rows that could not be made. Returns True
    /// if they were taken, False if nothing is taken any more, and None if there was no room and it should
    /// not wait.
    #[pyo3(signature = (rows, bad, offset, wait))]
    fn push(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, Rows>,
        bad: Vec<BadRow>,
        offset: Option<String>,
        wait: bool,
    ) -> PyResult<Option<bool>> {
        let outlet = self.get()?;
        let given = &rows.get().batches;
        let none = Batch::new_empty(rows.get().schema.clone());
        let batch = match given.as_slice() {
            [] => none,
            [batch] => batch.clone(),
            batches => {
                let joined = py.detach(|| {
                    let schema = batches[0].schema();
                    arrow_select::concat::concat_batches(&schema, batches)
                });
                joined.map_err(|error| PyValueError::new_err(error.to_string()))?
            }
        };
        let bad = bad.into_iter().map(|(row, reason, record)| Bad {
            row,
            reason,
            record,
        });
        let piece = Piece {
            rows: batch,
            bad: bad.collect(),
            offset,
        };
        let limit = (!wait).then_some(Duration::ZERO);
        let given = py.detach(|| outlet.push(piece, limit));
        let hint = "yield rows with the columns of the table, and an offset that is small";
        let given = given.map_err(|reason| raised(py, &embed::Error::sql(reason, hint)))?;
        Ok(match given {
            Given::Taken => Some(true),
            Given::Full => None,
            Given::Closed | Given::Unread => Some(false),
        })
    }

    /// The partition has no further rows.
    fn end(&self) {
        if let Some(outlet) = self.take() {
            outlet.end();
        }
    }

    /// The partition can't be read any further.
    fn fail(&self, reason: &str, hint: &str) {
        if let Some(outlet) = self.take() {
            outlet.fail(error_of(reason, hint));
        }
    }
}

/// The schema of a table whose columns may have NULLs.
fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>) -> PyResult<Rows> {
    let schema = nullable(schema);
    let batch = Batch::try_new(Arc::clone(&schema), columns);
    let batch = batch.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let batches = vec![batch];
    Ok(Rows { schema, batches })
}

fn whole(
    types: &Types<'_>,
    schema: &SchemaRef,
    columns: &[Vec<Bound<'_, PyAny>>],
) -> PyResult<Rows> {
    let made = schema.fields().iter().zip(columns);
    let made = made.map(|(field, values)| column_of(types, values, field.data_type()));
    batch_of(schema, made.collect::<PyResult<Vec<_>>>()?)
}

/// The rows of columns of which one can't be made as a whole: value by value.
fn parted<'py>(
    py: Python<'py>,
    types: &Types<'py>,
    schema: &SchemaRef,
    columns: &[Vec<Bound<'py, PyAny>>],
) -> PyResult<(Rows, Vec<BadRow>)> {
    let rows = columns.first().map_or(0, Vec::len);
    let mut good = vec![Vec::<ArrayRef>::new(); columns.len()];
    let mut bad = Vec::new();
    for row in 0..rows {
        let values = schema.fields().iter().zip(columns).map(|(field, values)| {
            let value = std::slice::from_ref(&values[row]);
            let made = column_of(types, value, field.data_type());
            made.map_err(|error| wrong(py, field.name(), field.data_type(), &values[row], &error))
        });
        match values.collect::<std::result::Result<Vec<ArrayRef>, String>>() {
            Ok(values) => good
                .iter_mut()
                .zip(values)
                .for_each(|(column, value)| column.push(value)),
            Err(reason) => {
                let record = PyDict::new(py);
                for (field, values) in schema.fields().iter().zip(columns) {
                    record.set_item(field.name(), &values[row])?;
                }
                let record = record.repr().map(|text| text.to_string());
                bad.push((row as u64, reason, record.unwrap_or_default()));
            }
        }
    }
    let joined = good.iter().zip(schema.fields()).map(|(values, field)| {
        let values = values.iter().map(AsRef::as_ref).collect::<Vec<_>>();
        match values.is_empty() {
            true => Ok(arrow_array::new_empty_array(field.data_type())),
            false => concat(&values).map_err(|error| PyValueError::new_err(error.to_string())),
        }
    });
    Ok((
        batch_of(schema, joined.collect::<PyResult<Vec<_>>>()?)?,
        bad,
    ))
}

/// Why a value is not one of its column.
fn wrong(
    py: Python<'_>,
    column: &str,
    data_type: &DataType,
    value: &Bound<'_, PyAny>,
    error: &PyErr,
) -> String {
    let field = Field::new("c", data_type.clone(), true);
    let columns = embed::sql_columns(&Arc::new(Schema::new(vec![field])));
    let columns = columns.unwrap_or_else(|_| data_type.to_string());
    let kind = columns.trim_start_matches("\"c\" ");
    let shown = value.repr().map(|text| text.to_string());
    let shown = shown.unwrap_or_else(|_| "a value".to_string());
    let shown = shown.chars().take(100).collect::<String>();
    format!(
        "column '{column}': {shown} is not a valid {kind}: {}",
        error.value(py)
    )
}
