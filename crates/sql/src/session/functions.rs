//! The functions that a program declares.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use super::Session;
use crate::error::{Result, SqlError};
use crate::functions::{Declared, DeclaredFunction};
use crate::names::TABLE_FUNCTIONS;

impl Session {
    /// Declares a function.
    pub fn add_function(&mut self, function: Declared) -> Result<()> {
        let name = function.name.clone();
        if self.functions.contains_key(&name) {
            let error = format!("there is already a function '{name}'");
            return Err(SqlError::new(error).hint("a program declares a name once"));
        }
        let is_table_function = self
            .operators
            .names()
            .iter()
            .map(String::as_str)
            .chain(TABLE_FUNCTIONS.iter().copied())
            .any(|known| known.eq_ignore_ascii_case(&name));
        let is_taken = self.scalars.contains_key(&name)
            || self.is_aggregate(&name)
            || self.window_functions.contains_key(&name)
            || is_table_function;
        if is_taken {
            let error = format!("there is already a function '{name}': it is one of SQL's");
            return Err(SqlError::new(error).hint("use another name"));
        }
        let declared = Arc::clone(&function.function);
        let operator = declared.operator();
        self.functions.insert(name.clone(), declared);
        match (function.aggregate(), operator) {
            (_, Some(operator)) => self.operators.add(operator),
            (Some(aggregate), None) => {
                self.aggregates.insert(name, aggregate);
            }
            (None, None) => {
                self.scalars.insert(name, Arc::new(function.udf()));
            }
        }
        Ok(())
    }

    /// The declared function with this name.
    pub fn declared_function(&self, name: &str) -> Option<&Arc<dyn DeclaredFunction>> {
        self.functions.get(&name.to_lowercase())
    }

    /// Whether there is a declared function with this name.
    pub fn is_declared_function(&self, name: &str) -> bool {
        self.functions.contains_key(&name.to_lowercase())
    }

    /// The declared functions that the statements use, with their names.
    pub fn functions_used(&self) -> BTreeMap<String, Arc<dyn DeclaredFunction>> {
        let used = self.functions_used.lock();
        let used = used.unwrap_or_else(PoisonError::into_inner);
        let functions = self.functions.iter();
        let functions = functions.filter(|(name, _)| used.contains(*name));
        let functions = functions.map(|(name, function)| (name.clone(), Arc::clone(function)));
        functions.collect()
    }

    /// Notes that a statement calls a function, if it was declared.
    pub(super) fn calls(&self, name: &str) {
        if self.functions.contains_key(name) {
            let used = self.functions_used.lock();
            let mut used = used.unwrap_or_else(PoisonError::into_inner);
            used.insert(name.to_string());
            self.uses(name);
        }
    }
}
