//! Operators of SQL that are written in Python: functions that return a table.
//!
//! They run as those of CREATE FUNCTION do, with the same text (`slackwater_udf`'s worker), but in this
//! process: `slackwater/operators.py` is between. The states are the engine's: nothing is kept here.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, BooleanArray, ListArray, UInt32Array};
use arrow_schema::DataType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use slackwater::embed::{
    self, KeyedBatch, KeyedRan, OperatorCall, OperatorDeclaration, OperatorFailure, OperatorRunner,
    StepFailure, TableRows,
};

use super::types;
use crate::error::{raised, reason};
use crate::values::{Types, column_of, objects};

/// The most rows and timers of a call.
const EVENTS_MAX: usize = 100_000;

type Named = Vec<(String, String)>;

/// Defines an operator of SQL; a function in Python that has the name is replaced. `make` makes the object
/// that runs a call of it.
#[pyfunction]
#[pyo3(signature = (name, make, inputs, columns, state, arguments, options))]
#[allow(clippy::too_many_arguments)]
pub fn define_operator(
    py: Python<'_>,
    name: &str,
    make: Py<PyAny>,
    inputs: Vec<Option<Named>>,
    columns: Named,
    state: Option<Named>,
    arguments: Named,
    options: (u32, bool, bool, Vec<String>, bool, bool),
) -> PyResult<()> {
    let named = |columns: Named| -> PyResult<Vec<(String, DataType)>> {
        let (names, kinds): (Vec<String>, Vec<String>) = columns.into_iter().unzip();
        Ok(names.into_iter().zip(types(py, &kinds)?).collect())
    };
    let (version, needs_order, forgets, outputs, takes_updates, emits_updates) = options;
    let inputs = inputs
        .into_iter()
        .map(|columns| columns.map(named).transpose());
    let declaration = OperatorDeclaration {
        inputs: inputs.collect::<PyResult<_>>()?,
        constants: Vec::new(),
        columns: named(columns)?,
        state: state.map(named).transpose()?,
        version,
        needs_order,
        forgets,
        outputs,
        takes_updates,
        emits_updates,
    };
    let runner = move |call: OperatorCall| {
        let made = Python::try_attach(|py| {
            let made = make.call1(py, (call.told(),));
            made.map_err(|error| reason(py, error))
        });
        let object = made.unwrap_or_else(|| Err("Python is ending".to_string()))?;
        let runner: Arc<dyn OperatorRunner> = Arc::new(InProcess { object, call });
        Ok(runner)
    };
    let defined = py.detach(|| {
        let constants = embed::operator_constants(arguments)?;
        let declaration = OperatorDeclaration {
            constants,
            ..declaration
        };
        embed::define_operator(name, declaration, runner)
    });
    defined.map_err(|error| raised(py, &error))
}

/// A call of an operator.
struct InProcess {
    /// An object of `slackwater/operators.py`.
    object: Py<PyAny>,
    call: OperatorCall,
}

/// An error that ends the query.
fn ended(reason: impl Into<String>) -> OperatorFailure {
    OperatorFailure {
        reason: reason.into(),
        row: None,
        is_final: true,
    }
}

impl InProcess {
    fn with<T>(
        &self,
        work: impl for<'py> FnOnce(Python<'py>, &Types<'py>) -> PyResult<T>,
    ) -> Result<T, OperatorFailure> {
        let done = Python::try_attach(|py| {
            let done = Types::new(py).and_then(|types| work(py, &types));
            done.map_err(|error| failure(py, error))
        });
        done.unwrap_or_else(|| Err(ended("Python is ending")))
    }

    fn keyed_once<'py>(
        &self,
        py: Python<'py>,
        types: &Types<'py>,
        batch: &KeyedBatch,
        is_careful: bool,
    ) -> PyResult<KeyedRan> {
        let list = |column: ArrayRef| objects(py, types, &column);
        let lists = |columns: &[ArrayRef]| {
            let columns = columns.iter().map(|column| objects(py, types, column));
            columns.collect::<PyResult<Vec<_>>>()
        };
        let inputs = batch.columns.iter().map(|columns| lists(columns));
        let arguments = (
            list(Arc::new(batch.has_state.clone()))?,
            list(Arc::new(batch.timers.clone()))?,
            lists(&batch.states)?,
            [
                list(Arc::new(batch.keys.clone()))?,
                list(Arc::new(batch.inputs.clone()))?,
                list(Arc::new(batch.rows.clone()))?,
                list(Arc::new(batch.times.clone()))?,
                list(Arc::new(batch.retracts.clone()))?,
            ],
            inputs.collect::<PyResult<Vec<_>>>()?,
            EVENTS_MAX,
            is_careful,
        );
        let ran = self.object.bind(py).call_method1("keyed", arguments)?;
        let part = |number: usize| {
            ran.get_item(number)?
                .cast_into::<PyList>()
                .map_err(PyErr::from)
        };
        let column = |list: Bound<'py, PyList>, data_type: &DataType| {
            column_of(types, &list.iter().collect::<Vec<_>>(), data_type)
        };
        let columns = |number: usize, declared: &[(String, DataType)]| {
            let given = part(number)?;
            let columns = declared.iter().zip(given.iter());
            let columns = columns.map(|((name, data_type), values)| {
                let made = column(values.cast_into::<PyList>()?, data_type);
                made.map_err(|error| PyValueError::new_err(format!("'{name}': {error}")))
            });
            columns.collect::<PyResult<Vec<ArrayRef>>>()
        };
        let long = |number: usize| -> PyResult<_> {
            let column = column(part(number)?, &DataType::Int64)?;
            Ok(column.as_primitive::<Int64Type>().clone())
        };
        let state = self.call.state.as_deref().unwrap_or_default();
        let mut own = columns(8, &self.call.columns)?;
        own.push(column(part(7)?, &DataType::Int32)?);
        let timers = part(3)?.iter().map(|timers| {
            let timers = timers.extract::<Vec<i64>>()?;
            Ok(Some(timers.into_iter().map(Some).collect::<Vec<_>>()))
        });
        let timers = timers.collect::<PyResult<Vec<_>>>()?;
        let failed = (long(9)?, part(10)?, part(11)?);
        let failed = failed
            .0
            .values()
            .iter()
            .zip(failed.1.iter())
            .zip(failed.2.iter());
        let failed = failed.map(|((step, timer), reason)| {
            Ok(StepFailure {
                step: *step as usize,
                timer: timer.extract()?,
                reason: reason.extract()?,
            })
        });
        Ok(KeyedRan {
            steps: ran.get_item(0)?.extract()?,
            has_state: BooleanArray::from(part(1)?.extract::<Vec<bool>>()?),
            fired: long(2)?,
            timers: ListArray::from_iter_primitive::<Int64Type, _, _>(timers),
            states: columns(4, state)?,
            keys: column(part(5)?, &DataType::Int32)?
                .as_primitive::<Int32Type>()
                .clone(),
            times: long(6)?,
            columns: own,
            retracted: BooleanArray::from(part(12)?.extract::<Vec<bool>>()?),
            failed: failed.collect::<PyResult<_>>()?,
        })
    }
}

/// What was raised: a row's failure, if the object says which row it was.
fn failure(py: Python<'_>, error: PyErr) -> OperatorFailure {
    let value = error.value(py);
    let of_row = || -> PyResult<(usize, String)> {
        Ok((
            value.getattr("row")?.extract()?,
            value.getattr("reason")?.extract()?,
        ))
    };
    match of_row() {
        Ok((row, reason)) => OperatorFailure {
            reason,
            row: Some(row),
            is_final: false,
        },
        Err(_) => ended(reason(py, error)),
    }
}

impl OperatorRunner for InProcess {
    fn keyed(&self, batch: &KeyedBatch) -> Result<KeyedRan, OperatorFailure> {
        self.with(|py, types| {
            let ran = self.keyed_once(py, types, batch, false);
            // Once more, and slower: which row has made a value that is not of its type.
            ran.or_else(|_| self.keyed_once(py, types, batch, true))
        })
    }

    fn table(&self, columns: &[ArrayRef], rows: usize) -> Result<TableRows, OperatorFailure> {
        self.with(|py, types| {
            let lists = columns.iter().map(|column| objects(py, types, column));
            let lists = lists.collect::<PyResult<Vec<_>>>()?;
            let object = self.object.bind(py);
            let made = object.call_method1("table", (lists,))?;
            let (of, own) = made.extract::<(Vec<u32>, Vec<Vec<Bound<'_, PyAny>>>)>()?;
            if self.call.columns.is_empty() {
                let kept = own[0].iter().map(|kept| kept.extract::<bool>());
                return Ok(TableRows::Kept(
                    kept.collect::<PyResult<Vec<bool>>>()?.into(),
                ));
            }
            let columns = self.call.columns.iter().zip(&own);
            let columns =
                columns.map(|((_, data_type), values)| column_of(types, values, data_type));
            let columns = columns.collect::<PyResult<Vec<ArrayRef>>>();
            let columns = columns.map_err(|error| {
                // Its row, if it can be found.
                let found = object.call_method1("check", (&of, &own));
                found.err().unwrap_or(error)
            })?;
            debug_assert!(of.iter().all(|row| (*row as usize) < rows));
            Ok(TableRows::Made(Some(UInt32Array::from(of)), columns))
        })
    }
}
