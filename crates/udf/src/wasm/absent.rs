//! A build without functions in WebAssembly: none can be made.

use std::convert::Infallible;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use crate::definition::{Failure, Problem, WasmDefinition};

/// A function, of which there is none.
pub struct WasmFunction(Infallible);

impl WasmFunction {
    /// Makes none.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn new(_definition: WasmDefinition) -> Result<WasmFunction, Problem> {
        Err(Problem::new(
            "this build has no functions in WebAssembly",
            "build it with them: cargo build --release -p slackwater --features wasm",
        ))
    }

    /// What the function is.
    pub fn definition(&self) -> &WasmDefinition {
        match self.0 {}
    }

    /// Makes an instance.
    ///
    /// # Errors
    ///
    /// None: there is no function.
    pub fn start(&self) -> Result<(), Problem> {
        match self.0 {}
    }

    /// The results for columns.
    ///
    /// # Errors
    ///
    /// None: there is no function.
    pub fn call(&self, _columns: &[ArrayRef], _rows: usize) -> Result<ArrayRef, Failure> {
        match self.0 {}
    }
}

/// The module of a file.
pub fn module_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A type that functions can't have; here none is asked for.
pub fn wasm_unsupported<'a>(
    _types: impl IntoIterator<Item = &'a DataType>,
) -> Option<&'a DataType> {
    None
}
