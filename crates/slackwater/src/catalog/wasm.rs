//! Functions in WebAssembly, for the SQL layer.

use std::sync::Arc;

use arrow_array::ArrayRef;
use slackwater_engine::accumulator::AccumulatorFactory;
use slackwater_sql::error::{Result, SqlError};
use slackwater_sql::functions::operator::OperatorFunction;
use slackwater_sql::functions::{DeclaredFunction, Failure};
use slackwater_sql::statement::CreateFunction;
use slackwater_sql::types::sql_name;
use slackwater_udf::{WasmDefinition, WasmFunction};

/// The text of a module that was read from a file.
pub(super) fn text(bytes: &[u8]) -> String {
    slackwater_udf::module_text(bytes)
}

/// A function with this module, which is in the SQL or was read from a file.
pub(super) fn declared(
    create: &CreateFunction,
    module: String,
    file: Option<&str>,
) -> Result<Arc<dyn DeclaredFunction>> {
    let name = &create.name.value;
    let types = create.arguments.iter().chain([&create.result]);
    if let Some(refused) = slackwater_udf::wasm_unsupported(types) {
        let error = format!(
            "function '{name}': values of {} can't be passed",
            sql_name(refused)
        );
        return Err(SqlError::new(error)
            .at(create.name.span)
            .hint("CAST them to a number, STRING or BYTES"));
    }
    let options = &create.options;
    let function = WasmFunction::new(WasmDefinition {
        name: name.clone(),
        handler: options.handler.clone().unwrap_or_else(|| name.clone()),
        module,
        arguments: create.arguments.clone(),
        result: create.result.clone(),
        memory: options.memory.unwrap_or(u64::MAX),
        fuel: options.fuel,
    });
    let of_file = file.map_or_else(String::new, |path| format!("{path}: "));
    let function = function.map_err(|problem| {
        SqlError::new(format!("function '{name}': {of_file}{}", problem.message))
            .at(create.span)
            .hint(problem.hint)
    })?;
    Ok(Arc::new(InWasm {
        function,
        create: create.clone(),
    }))
}

struct InWasm {
    function: WasmFunction,
    create: CreateFunction,
}

impl DeclaredFunction for InWasm {
    fn call(&self, columns: &[ArrayRef], rows: usize) -> std::result::Result<ArrayRef, Failure> {
        let called = self.function.call(columns, rows);
        called.map_err(|failure| Failure {
            reason: failure.reason,
            row: failure.row,
            is_final: failure.is_final,
        })
    }

    fn accumulators(&self) -> Option<Arc<dyn AccumulatorFactory>> {
        None
    }

    fn operator(&self) -> Option<Arc<OperatorFunction>> {
        None
    }

    fn start(&self, _keep: bool) -> Result<()> {
        self.function.start().map_err(|problem| {
            let name = &self.create.name.value;
            SqlError::new(format!("function '{name}': {}", problem.message))
                .at(self.create.span)
                .hint(problem.hint)
        })
    }

    fn end(&self) {}

    fn describe(&self) -> String {
        "WebAssembly, in this process".to_string()
    }

    fn file_text(&self) -> Option<&str> {
        let is_file = matches!(self.create.body, slackwater_sql::statement::Body::File(_));
        is_file.then_some(self.function.definition().module.as_str())
    }
}
