//! Errors of `sqlparser` and DataFusion in our own words: with SQL's names of types, without internal
//! details, and with a hint where there is one.

mod forms;
mod functions;
mod parser;
mod planner;

pub use parser::{from_parser, from_tokenizer, misspelt, no_table_function};

/// The text between `before` and `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let length = text[start..].find(after)?;
    Some(&text[start..start + length])
}

/// The name of a column or expression without its table.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
