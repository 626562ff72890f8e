//! Functions in Python, with the interpreter of this host.

mod aggregates;
mod calls;
mod columns;
mod deaths;
mod identity;
mod operators;

use std::process::Command;
use std::time::Duration;

use arrow_schema::DataType;
use slackwater_udf::{Definition, Mode};

/// A function `f` with this text.
pub fn definition(text: &str, arguments: &[DataType], result: DataType) -> Definition {
    Definition {
        name: "f".to_string(),
        handler: "f".to_string(),
        text: text.to_string(),
        file: "<function f>".to_string(),
        arguments: arguments.to_vec(),
        result,
        is_aggregate: false,
        table: None,
        mode: Mode::Rows,
        takes_nulls: false,
        workers: None,
        memory: Some(4 << 30),
        timeout: Duration::from_secs(60),
        python: Some("python3".to_string()),
    }
}

/// The interpreter with pyarrow that `make python` has made; `None` if there is none.
pub fn python_with_arrow() -> Option<String> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/python/bin/python"
    );
    let imports = Command::new(folder)
        .args(["-c", "import pyarrow, numpy"])
        .output();
    if imports.is_ok_and(|imports| imports.status.success()) {
        return Some(folder.to_string());
    }
    eprintln!("skipped: there is no target/python with pyarrow");
    None
}
