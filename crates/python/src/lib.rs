//! The Python module `slackwater._slackwater`: the engine in a Python process.
//!
//! ```text
//! slackwater/session.py, udf.py ─► session ─► job ─► batch, array ─► capsule ─► pyarrow, polars, DuckDB, …
//!                                  functions ◄─ the engine's workers, with the interpreter's lock
//! slackwater/sources.py, threads ─► custom ─► slackwater/sinks.py
//! ```
//!
//! - What users see is in Python, with its documentation; this module has what Python can't do.
//! - Whoever waits releases the interpreter's lock, and looks at Python's signals ten times a second.
//! - A column crosses as Arrow's C structures ([`capsule`]) and is not copied.

mod array;
mod batch;
mod capsule;
mod custom;
mod error;
mod functions;
mod job;
mod numpy;
mod session;
mod values;

use pyo3::prelude::*;

/// Python's own allocator is not touched.
#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

/// The engine in a Python process.
#[pymodule]
fn _slackwater(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("PARTITIONS_MAX", slackwater::embed::PARTITIONS_MAX)?;
    module.add_class::<array::Array>()?;
    module.add_class::<batch::RecordBatch>()?;
    module.add_class::<batch::Rows>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Query>()?;
    module.add_class::<session::Feed>()?;
    module.add_class::<custom::Outlet>()?;
    module.add_class::<job::Job>()?;
    module.add_function(wrap_pyfunction!(batch::sql_columns, module)?)?;
    module.add_function(wrap_pyfunction!(batch::column_names, module)?)?;
    module.add_function(wrap_pyfunction!(job::shutdown, module)?)?;
    module.add_function(wrap_pyfunction!(functions::define_function, module)?)?;
    module.add_function(wrap_pyfunction!(functions::define_aggregate, module)?)?;
    module.add("OPERATORS", slackwater::embed::OPERATORS)?;
    module.add_function(wrap_pyfunction!(functions::define_operator, module)?)
}
