//! Sessions and what they declare: the classes that `slackwater/session.py` builds upon.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use slackwater::embed;
use slackwater::run::StateOptions;

use crate::batch::{Rows, read_schema};
use crate::capsule;
use crate::custom;
use crate::error::raised;
use crate::job::{Job, SIGNALS};

/// Declarations and settings.
#[pyclass(frozen, module = "slackwater._slackwater")]
pub struct Session {
    session: Mutex<embed::Session>,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, embed::Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn custom(
        &self,
        py: Python<'_>,
        name: &str,
        columns: &str,
        options: &[(String, String)],
        custom: embed::Custom,
    ) -> PyResult<()> {
        let declared = py.detach(|| self.lock().custom(name, columns, options, custom));
        declared.map_err(|error| raised(py, &error))
    }
}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (settings, state=None, from_scratch=false))]
    fn new(
        py: Python<'_>,
        settings: Vec<(String, String)>,
        state: Option<String>,
        from_scratch: bool,
    ) -> PyResult<Session> {
        let state = state.map(|place| StateOptions {
            place,
            from_scratch,
            accepts_duplicates: false,
        });
        let session = embed::Session::new(settings, state);
        let session = Mutex::new(session.map_err(|error| raised(py, &error))?);
        Ok(Session { session })
    }

    /// Takes statements; returns a query, the text of EXPLAIN, or None.
    fn take(&self, py: Python<'_>, text: &str) -> PyResult<Option<Py<PyAny>>> {
        // Functions in Python may be called for constants.
        let took = py.detach(|| self.lock().take(text));
        Ok(match took.map_err(|error| raised(py, &error))? {
            embed::Took::Declared => None,
            embed::Took::Explained(text) => Some(text.into_pyobject(py)?.into_any().unbind()),
            embed::Took::Query(prepared) => {
                let query = Query {
                    prepared: *prepared,
                };
                Some(Py::new(py, query)?.into_any())
            }
        })
    }

    /// Declares a table whose rows are pushed.
    fn pushed(&self, py: Python<'_>, name: &str, columns: &str) -> PyResult<Feed> {
        let feed = py.detach(|| self.lock().pushed(name, columns));
        let feed = feed.map_err(|error| raised(py, &error))?;
        Ok(Feed {
            name: name.to_string(),
            feed,
        })
    }

    /// Declares a table with these rows.
    fn kept(
        &self,
        py: Python<'_>,
        name: &str,
        columns: &str,
        rows: &Bound<'_, Rows>,
    ) -> PyResult<()> {
        let batches = &rows.get().batches;
        let kept = py.detach(|| self.lock().kept(name, columns, batches));
        kept.map(drop).map_err(|error| raised(py, &error))
    }

    /// Declares a table whose partitions a reader reads (`slackwater/sources.py`).
    fn source(
        &self,
        py: Python<'_>,
        name: &str,
        columns: &str,
        options: Vec<(String, String)>,
        reader: Py<PyAny>,
    ) -> PyResult<()> {
        let partitions = reader.getattr(py, "partitions")?.extract::<u32>(py)?;
        let is = |what: &str| reader.getattr(py, what)?.extract::<bool>(py);
        let (has_offsets, ends) = (is("has_offsets")?, is("ends")?);
        let reader = Box::new(custom::Source { reader });
        let custom = embed::Custom::source(
            reader,
            embed::Terms {
                partitions,
                has_offsets,
                ends,
            },
        );
        self.custom(py, name, columns, &options, custom)
    }

    /// Declares a table that is written by the methods of an object.
    fn sink(
        &self,
        py: Python<'_>,
        name: &str,
        columns: &str,
        options: Vec<(String, String)>,
        is_exactly_once: bool,
        methods: Py<PyAny>,
    ) -> PyResult<()> {
        let writer = Box::new(custom::Sink { methods });
        let custom = embed::Custom::sink(writer, is_exactly_once);
        self.custom(py, name, columns, &options, custom)
    }

    /// Forgets a table or view.
    fn forget(&self, py: Python<'_>, name: &str, if_exists: bool) -> PyResult<()> {
        let forgotten = py.detach(|| self.lock().forget(name, if_exists));
        forgotten.map_err(|error| raised(py, &error))
    }

    /// The names of the tables and views.
    fn names(&self) -> Vec<String> {
        self.lock()
            .names()
            .into_iter()
            .map(str::to_string)
            .collect()
    }
}

/// A query that can run.
#[pyclass(frozen, module = "slackwater._slackwater")]
pub struct Query {
    prepared: embed::Prepared,
}

#[pymethods]
impl Query {
    /// Whether it is a SELECT, so that there are rows to read.
    #[getter]
    fn has_rows(&self) -> bool {
        self.prepared.schema().is_some()
    }

    /// Whether rows change earlier ones.
    #[getter]
    fn changes(&self) -> bool {
        self.prepared.changes()
    }

    /// The names of the columns, and their Arrow types as text.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let schema = self.prepared.schema().into_iter();
        let schema = schema.map(|schema| read_schema(schema, self.prepared.changes()));
        let fields = schema.flat_map(|schema| {
            let fields = schema.fields().iter();
            let fields = fields.map(|field| (field.name().clone(), field.data_type().to_string()));
            fields.collect::<Vec<_>>()
        });
        fields.collect()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        match self.prepared.schema() {
            Some(schema) => capsule::rows_schema_capsule(py, schema),
            None => Err(PyRuntimeError::new_err("the query returns no rows")),
        }
    }

    /// Starts it.
    fn start(&self, py: Python<'_>) -> PyResult<Job> {
        Job::start(py, &self.prepared)
    }
}

/// The rows of a table that are pushed.
#[pyclass(frozen, module = "slackwater._slackwater")]
pub struct Feed {
    name: String,
    feed: Arc<embed::Feed>,
}

#[pymethods]
impl Feed {
    /// Pushes rows with Arrow's methods; returns how many, or None if there was no room in time.
    #[pyo3(signature = (rows, timeout=None))]
    fn push(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, Rows>,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        let limit = timeout.map(|s| Duration::from_secs_f64(s.clamp(0.0, 1e9)));
        let started = std::time::Instant::now();
        let mut pushed = 0;
        for batch in &rows.get().batches {
            loop {
                let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
                let slice = left.map_or(SIGNALS, |left| left.min(SIGNALS));
                let given = py.detach(|| self.feed.push(batch, slice));
                let given = given.map_err(|reason| {
                    let hint = "push rows with the columns of the table";
                    let message = format!("table '{}': {reason}", self.name);
                    raised(py, &embed::Error::sql(message, hint))
                })?;
                let reason = match given {
                    embed::Given::Taken => break,
                    embed::Given::Full if left.is_none_or(|left| !left.is_zero()) => {
                        py.check_signals()?;
                        continue;
                    }
                    embed::Given::Full => {
                        ("the query did not take the rows in time", "push them later")
                    }
                    embed::Given::Unread => (
                        "the table is full, and no query reads it",
                        "start a query first, with Query.start() or on another thread",
                    ),
                    embed::Given::Closed => ("the table is closed", "declare another one"),
                };
                let message = format!(
                    "table '{}': {} ({pushed} rows were pushed)",
                    self.name, reason.0
                );
                return Err(raised(py, &embed::Error::query(message, reason.1)));
            }
            pushed += batch.num_rows();
        }
        Ok(pushed)
    }

    /// There are no further rows.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.feed.close());
    }

    /// Lists of values, one for each column of the table, as rows.
    fn rows(&self, py: Python<'_>, columns: Vec<Vec<Bound<'_, PyAny>>>) -> PyResult<Rows> {
        Rows::of_columns(py, self.feed.schema(), &columns)
    }

    /// The names of the columns.
    #[getter]
    fn column_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let fields = self.feed.schema().fields().iter();
        PyList::new(py, fields.map(|field| field.name().as_str()))
    }
}
