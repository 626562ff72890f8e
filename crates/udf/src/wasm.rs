//! Functions in WebAssembly, which are interpreted in this process.
//!
//! A module has no imports, so a function computes its result from its arguments and its own memory, and
//! reaches nothing else. Numbers are passed as they are. A string is written where the module's `alloc` says,
//! and passed as its address and length; a result that is a string is an i64, with the address in its upper
//! 32 bits and the length in the lower ones. What the engine has allocated or read is given to `dealloc`.
//!
//! Invariants: a call is bounded in instructions (fuel) and memory, so it always ends, and the same call
//! fails on every machine or on none. An instance that has failed is dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::ArrayRef;
use arrow_schema::{DataType, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use wasmi::{Config, Engine, ExternType, Module, TrapCode, ValType};

use crate::definition::{Failure, Problem, WasmDefinition};
use instance::Instance;

mod instance;
mod values;

#[cfg(test)]
mod tests;

/// The first characters of a binary module in Base64.
const BINARY: &str = "AGFzbQ";

/// What makes room for a string, and takes it back.
const ALLOC: &str = "alloc";
const DEALLOC: &str = "dealloc";

/// A function. Any number of threads may call it; each call has an instance of its own.
pub struct WasmFunction {
    definition: WasmDefinition,
    module: Module,
    idle: Mutex<Vec<Instance>>,
}

impl WasmFunction {
    /// A function of a module, whose exports are checked.
    ///
    /// # Errors
    ///
    /// If the module is not valid, has imports, or does not export a function with these types.
    pub fn new(definition: WasmDefinition) -> Result<WasmFunction, Problem> {
        let mut config = Config::default();
        config.consume_fuel(true);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, bytes(&definition.module)?).map_err(|error| {
            Problem::new(
                format!("it is not a module: {error}"),
                "give a .wasm file, or the text of a module",
            )
        })?;
        check(&module, &definition)?;
        Ok(WasmFunction {
            definition,
            module,
            idle: Mutex::default(),
        })
    }

    /// What the function is.
    pub fn definition(&self) -> &WasmDefinition {
        &self.definition
    }

    /// Makes an instance, which runs the module's start function.
    ///
    /// # Errors
    ///
    /// If the module needs more memory or fuel than it may have, or its start function fails.
    pub fn start(&self) -> Result<(), Problem> {
        let instance = Instance::new(&self.module, &self.definition).map_err(|reason| {
            Problem::new(reason, "the options 'memory' and 'fuel' are its limits")
        })?;
        self.give_back(instance);
        Ok(())
    }

    /// The results for columns of the declared types; for a row with a NULL it is NULL.
    ///
    /// # Errors
    ///
    /// The first row that fails, and why.
    pub fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, Failure> {
        let idle = self.idle().pop();
        let mut instance = match idle {
            Some(instance) => instance,
            None => Instance::new(&self.module, &self.definition).map_err(Failure::of)?,
        };
        let results = instance.call(&self.definition, columns, rows)?;
        self.give_back(instance);
        Ok(results)
    }

    fn give_back(&self, instance: Instance) {
        self.idle().push(instance);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Instance>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The module's bytes: its text as it is, or what Base64 stands for.
fn bytes(module: &str) -> Result<Vec<u8>, Problem> {
    let module = module.trim();
    if !module.starts_with(BINARY) {
        return Ok(module.as_bytes().to_vec());
    }
    BASE64.decode(module).map_err(|error| {
        let fix = "base64 -w0 function.wasm prints it";
        Problem::new(format!("the module's Base64 is broken: {error}"), fix)
    })
}

/// The module of a file for [`WasmDefinition::module`]: its text, or its bytes in Base64.
pub fn module_text(bytes: &[u8]) -> String {
    match bytes.starts_with(b"\0asm") {
        true => BASE64.encode(bytes),
        false => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// What a value of a type is passed as; `None` for types that can't be passed.
fn passed(data_type: &DataType) -> Option<&'static [ValType]> {
    Some(match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Date32 => &[ValType::I32],
        DataType::Int64
        | DataType::Timestamp(_, None)
        | DataType::Time64(TimeUnit::Microsecond) => &[ValType::I64],
        DataType::Float32 => &[ValType::F32],
        DataType::Float64 => &[ValType::F64],
        DataType::Utf8View | DataType::Binary => &[ValType::I32, ValType::I32],
        _ => return None,
    })
}

/// What a result of a type is: a string is an address and a length in one number.
fn returned(data_type: &DataType) -> Option<ValType> {
    match passed(data_type)? {
        [one] => Some(*one),
        _ => Some(ValType::I64),
    }
}

/// A type that functions in WebAssembly can't have; `None` if they can have all of these.
pub fn wasm_unsupported<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<&'a DataType> {
    types
        .into_iter()
        .find(|data_type| passed(data_type).is_none())
}

fn check(module: &Module, definition: &WasmDefinition) -> Result<(), Problem> {
    if let Some(import) = module.imports().next() {
        let what = format!("{}.{}", import.module(), import.name());
        return Err(Problem::new(
            format!("the module imports '{what}', and functions have no imports"),
            "compile it for wasm32-unknown-unknown, without WASI and bindings to JavaScript",
        ));
    }
    let arguments = definition.arguments.iter();
    let arguments = arguments.flat_map(|data_type| passed(data_type).unwrap_or_default());
    let arguments = arguments.copied().collect::<Vec<ValType>>();
    let result = returned(&definition.result);
    let result = result.into_iter().collect::<Vec<ValType>>();
    exports(module, &definition.handler, &arguments, &result)?;
    let is_text = |data_type: &DataType| passed(data_type).is_some_and(|passed| passed.len() == 2);
    let takes_text = definition.arguments.iter().any(is_text);
    if takes_text || is_text(&definition.result) {
        if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
            return Err(Problem::new(
                "the module exports no 'memory'",
                "strings are passed in it",
            ));
        }
        if takes_text {
            exports(module, ALLOC, &[ValType::I32], &[ValType::I32])?;
        }
        if module.get_export(DEALLOC).is_some() {
            exports(module, DEALLOC, &[ValType::I32, ValType::I32], &[])?;
        }
    }
    Ok(())
}

/// Whether the module exports a function with these types.
fn exports(
    module: &Module,
    name: &str,
    arguments: &[ValType],
    results: &[ValType],
) -> Result<(), Problem> {
    let wanted = form(name, arguments, results);
    let functions = module
        .exports()
        .filter(|export| matches!(export.ty(), ExternType::Func(_)));
    let names = functions
        .map(|export| export.name().to_string())
        .collect::<Vec<_>>();
    match module.get_export(name) {
        Some(ExternType::Func(ty)) if ty.params() == arguments && ty.results() == results => Ok(()),
        Some(ExternType::Func(ty)) => Err(Problem::new(
            format!(
                "the module exports {}",
                form(name, ty.params(), ty.results())
            ),
            format!("the types in SQL need {wanted}"),
        )),
        _ => Err(Problem::new(
            format!("the module exports no function '{name}'"),
            format!("it needs {wanted}; its functions are: {}", names.join(", ")),
        )),
    }
}

fn form(name: &str, arguments: &[ValType], results: &[ValType]) -> String {
    let list = |types: &[ValType]| {
        let names = types.iter().map(|one| format!("{one:?}").to_lowercase());
        names.collect::<Vec<_>>().join(", ")
    };
    format!("{name}({}) -> ({})", list(arguments), list(results))
}

/// Why a call has ended.
fn reason(error: &wasmi::Error, definition: &WasmDefinition) -> String {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => {
            format!("it needs more than 'fuel' = '{}'", definition.fuel)
        }
        Some(TrapCode::UnreachableCodeReached) => "it has panicked (unreachable)".to_string(),
        _ => error.to_string(),
    }
}
