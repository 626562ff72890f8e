//! An instance of a module, with its own memory.

use arrow_array::{Array, ArrayRef};
use wasmi::{Func, Linker, Memory, Module, Store, StoreLimits, StoreLimitsBuilder, TypedFunc, Val};

use super::values::{Column, Results};
use super::{ALLOC, DEALLOC, reason};
use crate::definition::{Failure, WasmDefinition};

/// An instance.
pub(super) struct Instance {
    store: Store<StoreLimits>,
    function: Func,
    memory: Option<Memory>,
    alloc: Option<TypedFunc<i32, i32>>,
    dealloc: Option<TypedFunc<(i32, i32), ()>>,
}

impl Instance {
    /// An instance of a module that was checked.
    pub(super) fn new(module: &Module, definition: &WasmDefinition) -> Result<Instance, String> {
        let limit = usize::try_from(definition.memory).unwrap_or(usize::MAX);
        let limits = StoreLimitsBuilder::new().memory_size(limit).build();
        let mut store = Store::new(module.engine(), limits);
        store.limiter(|limits| limits);
        refuel(&mut store, definition)?;
        let instance = Linker::new(module.engine()).instantiate_and_start(&mut store, module);
        let instance = instance.map_err(|error| reason(&error, definition))?;
        let function = instance.get_func(&store, &definition.handler);
        Ok(Instance {
            function: function.ok_or_else(|| format!("no function '{}'", definition.handler))?,
            memory: instance.get_memory(&store, "memory"),
            alloc: instance.get_typed_func(&store, ALLOC).ok(),
            dealloc: instance.get_typed_func(&store, DEALLOC).ok(),
            store,
        })
    }

    /// The results for columns.
    pub(super) fn call(
        &mut self,
        definition: &WasmDefinition,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<ArrayRef, Failure> {
        let read = columns
            .iter()
            .map(Column::new)
            .collect::<Option<Vec<Column>>>();
        let read =
            read.ok_or_else(|| Failure::of("a column has another type than was declared"))?;
        let results = Results::new(&definition.result, rows);
        let mut results =
            results.ok_or_else(|| Failure::of("the result's type can't be passed"))?;
        for row in 0..rows {
            if columns.iter().any(|column| column.is_null(row)) {
                results.push_null();
                continue;
            }
            self.one(definition, &read, row, &mut results)
                .map_err(|reason| Failure {
                    reason,
                    row: Some(row),
                    is_final: false,
                })?;
        }
        Ok(results.finish())
    }

    /// The result for a row.
    fn one(
        &mut self,
        definition: &WasmDefinition,
        columns: &[Column],
        row: usize,
        results: &mut Results,
    ) -> Result<(), String> {
        refuel(&mut self.store, definition)?;
        let mut arguments = Vec::with_capacity(columns.len() + 1);
        let mut lent = Vec::new();
        for column in columns {
            match column.number(row) {
                Ok(number) => arguments.push(number),
                Err(text) => {
                    let (address, length) = self.lend(definition, text)?;
                    lent.push((address, length));
                    arguments.extend([Val::I32(address), Val::I32(length)]);
                }
            }
        }
        let mut result = [Val::I32(0)];
        let called = self.function.call(&mut self.store, &arguments, &mut result);
        called.map_err(|error| reason(&error, definition))?;
        match &result[0] {
            Val::I64(both) if results.is_text() => {
                let (address, length) = ((both >> 32) as u32, *both as u32);
                results.push_text(self.read(address, length)?)?;
                lent.push((address as i32, length as i32));
            }
            number => results.push_number(number)?,
        }
        for (address, length) in lent {
            if let Some(dealloc) = &self.dealloc {
                let freed = dealloc.call(&mut self.store, (address, length));
                freed.map_err(|error| reason(&error, definition))?;
            }
        }
        Ok(())
    }

    /// Writes a string into the module's memory; its address and length.
    fn lend(&mut self, definition: &WasmDefinition, text: &[u8]) -> Result<(i32, i32), String> {
        let too_long = || {
            format!(
                "a string of {} bytes is too long for the module",
                text.len()
            )
        };
        let length = i32::try_from(text.len()).map_err(|_| too_long())?;
        let (Some(alloc), Some(memory)) = (&self.alloc, &self.memory) else {
            return Err(format!("the module exports no '{ALLOC}'"));
        };
        let address = alloc.call(&mut self.store, length);
        let address = address.map_err(|error| reason(&error, definition))?;
        let written = memory.write(&mut self.store, address as u32 as usize, text);
        written.map_err(|_| {
            format!("'{ALLOC}' has returned {address}, which has no room for {length} bytes")
        })?;
        Ok((address, length))
    }

    /// A string in the module's memory.
    fn read(&self, address: u32, length: u32) -> Result<&[u8], String> {
        let outside =
            || format!("its result, {length} bytes at {address}, is not in the module's memory");
        let memory = self.memory.as_ref().ok_or_else(outside)?.data(&self.store);
        let begin = address as usize;
        memory
            .get(begin..begin.saturating_add(length as usize))
            .ok_or_else(outside)
    }
}

/// What a call, or a start, may use.
fn refuel(store: &mut Store<StoreLimits>, definition: &WasmDefinition) -> Result<(), String> {
    store
        .set_fuel(definition.fuel)
        .map_err(|error| error.to_string())
}
