//! A query that runs: the class `Job`.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use slackwater::embed::{self, Next, Results};

use crate::batch::{RecordBatch, Rows, read_batch, read_schema};
use crate::capsule;
use crate::error::raised;

/// How long a wait may last before Python's signals are looked at. A wait that is over ends at once.
pub const SIGNALS: Duration = Duration::from_millis(100);

/// How long a query that was interrupted, or is left when Python ends, may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// The queries that run, for the end of the process.
static JOBS: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

/// A query that runs; when nobody refers to it any more, it is stopped.
struct Running {
    job: embed::Job,
    results: Option<Arc<Results>>,
    changes: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.job.abandon();
    }
}

impl Running {
    /// The next rows; `None` after the last ones.
    fn next(&self, py: Python<'_>) -> PyResult<Option<embed::Batch>> {
        let results = self.results.as_ref();
        let results = results.ok_or_else(|| PyTypeError::new_err("the query returns no rows"))?;
        loop {
            let next = py.detach(|| results.next(SIGNALS));
            self.check_signals(py)?;
            match next {
                Next::Rows(batch) => return Ok(Some(batch)),
                Next::End => return self.raise(py).map(|()| None),
                Next::TimedOut => {}
            }
        }
    }

    /// Raises what the query has failed with.
    fn raise(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| self.job.wait(ENDING));
        match ended.as_ref().and_then(|ended| ended.error.as_ref()) {
            Some(error) => Err(raised(py, error)),
            None => Ok(()),
        }
    }

    /// Ends the query if Python has received a signal.
    fn check_signals(&self, py: Python<'_>) -> PyResult<()> {
        py.check_signals().inspect_err(|_| {
            self.job.abandon();
            py.detach(|| self.job.wait(ENDING));
        })
    }
}

/// A query that runs.
#[pyclass(frozen, module = "slackwater._slackwater")]
pub struct Job {
    running: Arc<Running>,
}

impl Job {
    pub fn start(py: Python<'_>, prepared: &embed::Prepared) -> PyResult<Job> {
        let job = embed::Job::start(prepared).map_err(|error| raised(py, &error))?;
        let running = Arc::new(Running {
            results: job.results().cloned(),
            job,
            changes: prepared.changes(),
        });
        let mut jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|job| job.strong_count() > 0);
        jobs.push(Arc::downgrade(&running));
        Ok(Job { running })
    }
}

fn batch_of(batch: &embed::Batch, changes: bool) -> PyResult<RecordBatch> {
    let batch = read_batch(batch, changes).map_err(PyRuntimeError::new_err)?;
    Ok(RecordBatch { batch })
}

#[pymethods]
impl Job {
    /// Waits for the next batch; None after the last one.
    fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let next = self.running.next(py)?;
        next.map(|batch| batch_of(&batch, self.running.changes))
            .transpose()
    }

    /// The next batch, whether the query has ended, or neither after so many seconds.
    fn poll(&self, py: Python<'_>, seconds: f64) -> PyResult<(Option<RecordBatch>, bool)> {
        let results = self.running.results.as_ref();
        let results = results.ok_or_else(|| PyTypeError::new_err("the query returns no rows"))?;
        let limit = Duration::from_secs_f64(seconds.clamp(0.0, 60.0));
        match py.detach(|| results.next(limit)) {
            Next::Rows(batch) => Ok((Some(batch_of(&batch, self.running.changes)?), false)),
            Next::End => self.running.raise(py).map(|()| (None, true)),
            Next::TimedOut => Ok((None, false)),
        }
    }

    /// Waits for the end, and returns the rows that the result has then.
    fn collect(&self, py: Python<'_>) -> PyResult<Rows> {
        let mut batches = Vec::new();
        while let Some(batch) = self.running.next(py)? {
            batches.push(batch);
        }
        let running = &self.running;
        let results = running.results.as_ref().expect("it has returned rows");
        let folded = py.detach(|| embed::folded(results, &batches));
        let folded = folded.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        if let Some(batches) = folded {
            let schema = Arc::clone(results.schema());
            return Ok(Rows { schema, batches });
        }
        let batches = batches
            .iter()
            .map(|batch| read_batch(batch, running.changes));
        let batches = batches.collect::<Result<Vec<_>, String>>();
        Ok(Rows {
            schema: read_schema(results.schema(), running.changes),
            batches: batches.map_err(PyRuntimeError::new_err)?,
        })
    }

    /// A stream of the rows, as they come.
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let running = Arc::clone(&self.running);
        let results = running.results.as_ref();
        let results = results.ok_or_else(|| PyTypeError::new_err("the query returns no rows"))?;
        let schema = read_schema(results.schema(), running.changes);
        let make = move || {
            let next = Python::attach(|py| running.next(py).map_err(|error| error.to_string()))?;
            next.map(|batch| read_batch(&batch, running.changes))
                .transpose()
        };
        capsule::stream_capsule(py, schema, Box::new(make))
    }

    /// Waits for the end; returns the report as JSON and whether the query was stopped, or None if it still
    /// runs after `timeout` seconds. Rows that nobody reads are dropped.
    #[pyo3(signature = (timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(Option<String>, bool)>> {
        let started = Instant::now();
        let limit = timeout.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        loop {
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            let slice = left.map_or(SIGNALS, |left| left.min(SIGNALS));
            if let Some(ended) = py.detach(|| self.running.job.wait(slice)) {
                if let Some(error) = &ended.error {
                    return Err(raised(py, error));
                }
                return Ok(Some((ended.report_json(), ended.stopped)));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.running.check_signals(py)?;
        }
    }

    /// The report as JSON, once the query has ended, also if it has failed.
    fn report(&self, py: Python<'_>) -> Option<String> {
        let ended = py.detach(|| self.running.job.wait(Duration::ZERO));
        ended.and_then(|ended| ended.report_json())
    }

    /// Whether it has not ended.
    #[getter]
    fn is_running(&self, py: Python<'_>) -> bool {
        py.detach(|| self.running.job.wait(Duration::ZERO))
            .is_none()
    }

    /// The counts so far, as JSON.
    fn progress(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.running.job.progress())
    }

    /// Ends it; what it has made is still read.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.running.job.stop());
    }

    /// Drops its rows.
    fn drain(&self, py: Python<'_>) {
        py.detach(|| self.running.job.drain());
    }

    /// Ends it, and drops its rows.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| self.running.job.abandon());
    }
}

/// Ends all queries, for the end of the process: their threads would call functions of an interpreter that is
/// gone.
#[pyfunction]
pub fn shutdown(py: Python<'_>) {
    let jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let jobs = jobs.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
    py.detach(|| {
        jobs.iter().for_each(|running| running.job.abandon());
        let until = Instant::now() + ENDING;
        for running in &jobs {
            running
                .job
                .wait(until.saturating_duration_since(Instant::now()));
        }
    });
}
