//! The functions of the language: DataFusion's, Flink's, and those that a build adds; and its formats.
//!
//! Flink's have Flink's names and meaning, and take precedence over DataFusion's of the same name. All scalar
//! functions except those whose type depends on more than their argument types are Rust functions of one row
//! ([`rows`]). A build adds its own in the same way ([`Functions`], `docs/functions.md`).

mod aggregate;
mod arrays;
mod broadcast_mark;
mod clock;
mod declared;
mod direct;
pub mod format;
mod json;
mod json_path;
pub mod operator;
mod pattern;
mod registry;
mod rewritten;
mod rounding;
mod rows;
mod scalar;
mod subquery_mark;
mod system_time;
mod text;
mod time;
mod to_timestamp_ltz;
mod values;
mod with_pattern;

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use datafusion_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use slackwater_engine::format::RecordFormat;

use broadcast_mark::BroadcastMark;
use operator::OperatorFunction;
use subquery_mark::SubqueryMark;
use system_time::SystemTimeAsOf;
use to_timestamp_ltz::ToTimestampLtz;

use crate::names::TABLE_FUNCTIONS;

pub use aggregate::{Aggregate, Arguments, State, Stored, UserAggregate};
pub use declared::{Declared, DeclaredFunction, Failure};
pub use registry::Functions;
pub use rewritten::is_rewritten;
pub use rows::RowFunction;
pub use values::{Argument, Cell, Output, Time};

/// All functions of the language.
#[derive(Clone)]
struct All {
    scalars: Vec<Arc<ScalarUDF>>,
    aggregates: Vec<Arc<AggregateUDF>>,
    operators: Vec<Arc<OperatorFunction>>,
    /// The names of those that were added, in lower case.
    added: HashSet<String>,
    formats: Vec<Arc<dyn RecordFormat>>,
}

/// The functions of this process; `None` before the first use.
static ALL: RwLock<Option<Arc<All>>> = RwLock::new(None);

fn all() -> Arc<All> {
    if let Some(all) = &*ALL.read().unwrap_or_else(PoisonError::into_inner) {
        return Arc::clone(all);
    }
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.get_or_insert_with(|| Arc::new(built_in())))
}

/// Adds functions to the language, for all programs that this process compiles from now on. Worker processes
/// run the same executable, and must add the same functions first.
///
/// # Errors
///
/// When a name is already taken: then no function is added.
pub fn install(functions: Functions) -> std::result::Result<(), String> {
    change(|all| all.add(functions))
}

/// Adds functions as [`install`] does, but replaces those of the same name that were added before. Programs
/// that are compiled already keep theirs.
///
/// # Errors
///
/// When a name is that of a function of the language: then no function is added.
pub fn define(functions: Functions) -> std::result::Result<(), String> {
    change(|all| {
        for name in functions.names() {
            if all.added.remove(&name) {
                all.scalars.retain(|function| function.name() != name);
                all.aggregates
                    .retain(|function| function.name().to_lowercase() != name);
                all.operators.retain(|operator| operator.name != name);
            }
        }
        for new in &functions.formats {
            all.formats.retain(|format| format.name() != new.name());
        }
        all.add(functions)
    })
}

/// Changes the functions, unless that fails. Others that change them wait, so that no change is lost.
fn change(
    change: impl FnOnce(&mut All) -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    let mut changed = all
        .as_deref()
        .map_or_else(built_in, std::clone::Clone::clone);
    change(&mut changed)?;
    *all = Some(Arc::new(changed));
    Ok(())
}

impl All {
    fn add(&mut self, functions: Functions) -> std::result::Result<(), String> {
        let mut taken = HashSet::new();
        for function in &self.scalars {
            taken.insert(function.name().to_string());
            taken.extend(function.aliases().iter().cloned());
        }
        for function in &self.aggregates {
            taken.insert(function.name().to_lowercase());
            taken.extend(function.aliases().iter().cloned());
        }
        taken.extend(self.operators.iter().map(|operator| operator.name.clone()));
        taken.extend(TABLE_FUNCTIONS.iter().map(|name| name.to_lowercase()));
        let names = functions.names();
        for name in &names {
            if !taken.insert(name.clone()) {
                return Err(format!("function '{name}' already exists"));
            }
        }
        for format in functions.formats {
            let name = format.name();
            let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(format!(
                    "the name of format '{name}' must consist of letters, digits and _"
                ));
            }
            if self.formats.iter().any(|known| known.name() == name) {
                return Err(format!("format '{name}' already exists"));
            }
            self.formats.push(format);
        }
        self.added.extend(names);
        self.scalars
            .extend(functions.scalars.into_iter().map(scalar::Scalar::udf));
        self.scalars.extend(functions.scalar_udfs);
        self.aggregates.extend(functions.aggregates);
        self.operators.extend(functions.operators);
        Ok(())
    }
}

fn built_in() -> All {
    let mut scalars = datafusion_functions::all_default_functions();
    let patterns = with_pattern::functions(&scalars);
    for function in &mut scalars {
        let aliases: &[&'static str] = match function.name() {
            "trunc" => &["truncate"],
            "signum" => &["sign"],
            "random" => &["rand"],
            "ceil" => &["ceiling"],
            _ => continue,
        };
        let known = function.aliases();
        let new = aliases
            .iter()
            .filter(|alias| !known.iter().any(|known| known == *alias));
        let new = new.copied().collect::<Vec<&str>>();
        *function = Arc::new(function.as_ref().clone().with_aliases(new));
    }
    scalars.extend(datafusion_functions_nested::all_default_nested_functions());
    scalars.extend(patterns);
    scalars.push(Arc::new(ScalarUDF::new_from_impl(ToTimestampLtz::new())));
    scalars.push(Arc::new(ScalarUDF::new_from_impl(SystemTimeAsOf::new())));
    scalars.push(Arc::new(ScalarUDF::new_from_impl(BroadcastMark::new())));
    scalars.push(Arc::new(ScalarUDF::new_from_impl(SubqueryMark::new())));
    let own = [
        clock::functions(),
        direct::functions(),
        time::functions(),
        rounding::functions(),
        text::functions(),
        json::functions(),
    ];
    scalars.extend(own.into_iter().flatten().map(scalar::Scalar::udf));
    scalars.extend(rewritten::functions());
    All {
        scalars,
        aggregates: datafusion_functions_aggregate::all_default_aggregate_functions(),
        operators: Vec::new(),
        added: HashSet::new(),
        formats: Vec::new(),
    }
}

/// All scalar functions; the last one with a name counts.
pub fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    all().scalars.clone()
}

/// All aggregate functions.
pub fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    all().aggregates.clone()
}

/// The operators that were added.
pub fn operators() -> Vec<Arc<OperatorFunction>> {
    all().operators.clone()
}

/// The formats that were added.
pub fn formats() -> Vec<Arc<dyn RecordFormat>> {
    all().formats.clone()
}

/// The names of all functions that need no OVER, for suggestions.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for function in scalar_functions() {
        names.push(function.name().to_string());
        names.extend(function.aliases().iter().cloned());
    }
    for function in aggregate_functions() {
        names.push(function.name().to_lowercase());
        names.extend(function.aliases().iter().cloned());
    }
    names
}

/// All functions that need OVER, such as ROW_NUMBER.
pub fn window_functions() -> Vec<Arc<WindowUDF>> {
    datafusion_functions_window::all_default_window_functions()
}

#[cfg(test)]
mod tests;
