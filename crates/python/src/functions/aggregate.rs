//! Aggregate functions whose groups are Python objects.
//!
//! A group is an object of the user's class: `accumulate(*arguments)`, `merge(other)`, `finish()`, and
//! `retract(*arguments)` if it can take rows back. Its state in checkpoints is the object, pickled.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, BinaryArray};
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use slackwater::functions;
use slackwater_engine::accumulator::{
    Accumulator, AccumulatorFactory, Failures, OrderKey, Retract, Signature, Values,
};
use slackwater_engine::{Error, Result};

use super::{install, reason, types};
use crate::values::{Types, column_of, objects};

/// About the bytes of an object: what its attributes hold is not known.
const OBJECT_BYTES: usize = 256;

/// An aggregate function.
struct Class {
    name: String,
    class: Py<PyAny>,
    output: DataType,
    retracts: bool,
    takes_nulls: bool,
}

/// Defines an aggregate function of SQL; a function in Python that has the name is replaced.
#[pyfunction]
pub fn define_aggregate(
    py: Python<'_>,
    name: &str,
    class: Py<PyAny>,
    inputs: Vec<String>,
    output: String,
    takes_nulls: bool,
) -> PyResult<()> {
    let inputs = types(py, &inputs)?;
    let class = Class {
        name: name.to_lowercase(),
        retracts: class.bind(py).hasattr("retract")?,
        output: types(py, &[output])?.remove(0),
        class,
        takes_nulls,
    };
    let mut added = functions::Functions::default();
    added.aggregate_of(name, &inputs, Arc::new(Factory(Arc::new(class))));
    install(py, added)
}

impl Class {
    /// Calls `work` with the interpreter; what it raises ends the query.
    fn with<T>(&self, work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
        let done = Python::try_attach(|py| work(py).map_err(|error| reason(py, error)));
        let done = done.unwrap_or_else(|| Err("Python is ending".to_string()));
        done.map_err(|reason| Error::new(self.name.as_str(), reason))
    }
}

struct Factory(Arc<Class>);

impl Factory {
    fn groups(&self) -> Groups {
        Groups {
            class: Arc::clone(&self.0),
            groups: Vec::new(),
        }
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl AccumulatorFactory for Factory {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.groups()))
    }

    fn data_type(&self) -> DataType {
        self.0.output.clone()
    }

    fn signature(&self) -> Signature {
        Signature {
            name: self.0.name.clone(),
            ..Signature::default()
        }
    }

    fn retractable(&self) -> Result<Option<Box<dyn Retract>>> {
        let retracts = self.0.retracts;
        Ok(retracts.then(|| Box::new(self.groups()) as Box<dyn Retract>))
    }
}

/// An object for each group, made with its first row or state.
struct Groups {
    class: Arc<Class>,
    groups: Vec<Option<Py<PyAny>>>,
}

impl Groups {
    /// Calls a method of the group of each row with the row's arguments.
    fn each(&mut self, method: &str, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        let (class, all) = (Arc::clone(&self.class), &mut self.groups);
        class.with(|py| {
            let types = Types::new(py)?;
            let columns = arguments.iter().map(|column| objects(py, &types, column));
            let columns = columns.collect::<PyResult<Vec<_>>>()?;
            for (row, &group) in groups.iter().enumerate() {
                let is_null = arguments.iter().any(|column| column.is_null(row));
                if is_null && !class.takes_nulls {
                    continue;
                }
                let of_group = object(py, &class, &mut all[group as usize])?;
                let arguments = columns.iter().map(|column| &column[row]);
                of_group.call_method1(method, PyTuple::new(py, arguments)?)?;
            }
            Ok(())
        })
    }
}

/// The object of a group.
fn object<'py>(
    py: Python<'py>,
    class: &Class,
    group: &mut Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(object) = group {
        return Ok(object.bind(py).clone());
    }
    let made = class.class.bind(py).call0()?;
    *group = Some(made.clone().unbind());
    Ok(made)
}

/// The state of a group.
fn pickled(
    dumps: &Bound<'_, PyAny>,
    object: &Bound<'_, PyAny>,
) -> std::result::Result<Vec<u8>, String> {
    let state = dumps.call1((object,));
    let state = state.and_then(|state| state.extract::<Vec<u8>>());
    state.map_err(|error| {
        let culprit = culprit(dumps, object).unwrap_or_default();
        format!("its state can't be pickled: {culprit}{error}")
    })
}

/// The first attribute of an object that can't be pickled.
fn culprit(dumps: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> PyResult<String> {
    let class = object.get_type().name()?;
    for attribute in object
        .getattr("__dict__")?
        .call_method0("items")?
        .try_iter()?
    {
        let (name, value) = attribute?.extract::<(String, Bound<'_, PyAny>)>()?;
        if dumps.call1((value,)).is_err() {
            return Ok(format!("attribute '{name}' of {class}: "));
        }
    }
    Ok(String::new())
}

impl Accumulator for Groups {
    fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, || None);
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.groups[group as usize] = None;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        self.each("accumulate", groups, arguments)?;
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let (class, all) = (Arc::clone(&self.class), &mut self.groups);
        class.with(|py| {
            let (mut values, mut failed) = (Vec::with_capacity(groups.len()), Vec::new());
            let types = Types::new(py)?;
            for (place, &group) in groups.iter().enumerate() {
                let finished = match &all[group as usize] {
                    Some(object) => object.bind(py).call_method0("finish"),
                    None => class
                        .class
                        .bind(py)
                        .call0()
                        .and_then(|new| new.call_method0("finish")),
                };
                // A value of another type concerns its group only.
                let finished = finished.and_then(|value| {
                    column_of(&types, std::slice::from_ref(&value), &class.output)?;
                    Ok(value)
                });
                values.push(finished.unwrap_or_else(|error| {
                    failed.push((place, reason(py, error)));
                    py.None().into_bound(py)
                }));
            }
            let column = column_of(&types, &values, &class.output)?;
            Ok(Values { column, failed })
        })
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let (class, all) = (Arc::clone(&self.class), &self.groups);
        let states = class.with(|py| {
            let dumps = py.import("pickle")?.getattr("dumps")?;
            let states = groups.iter().map(|&group| {
                let object = all[group as usize].as_ref();
                let state = object.map(|object| pickled(&dumps, object.bind(py)));
                state.transpose()
            });
            Ok(states.collect::<std::result::Result<Vec<_>, String>>())
        })?;
        // It would fail after each restart, too.
        let states = states.map_err(|reason| Error::new(&self.class.name, reason).final_one())?;
        Ok(vec![Arc::new(BinaryArray::from_iter(states)) as ArrayRef])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let (class, all) = (Arc::clone(&self.class), &mut self.groups);
        let states = states
            .first()
            .and_then(|states| states.as_binary_opt::<i32>());
        let states = states.ok_or_else(|| {
            Error::new(
                class.name.as_str(),
                "its state is not that of a function in Python",
            )
        })?;
        class.with(|py| {
            let loads = py.import("pickle")?.getattr("loads")?;
            for (row, &group) in groups.iter().enumerate() {
                if states.is_null(row) {
                    continue;
                }
                let other = loads.call1((PyBytes::new(py, states.value(row)),))?;
                match &mut all[group as usize] {
                    Some(object) => {
                        object.bind(py).call_method1("merge", (other,))?;
                    }
                    empty => *empty = Some(other.unbind()),
                }
            }
            Ok(())
        })
    }

    fn bytes(&self) -> usize {
        let made = self.groups.iter().flatten().count();
        self.groups.capacity() * size_of::<Option<Py<PyAny>>>() + made * OBJECT_BYTES
    }
}

impl Retract for Groups {
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        self.each("retract", groups, arguments)
    }
}
