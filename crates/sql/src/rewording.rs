//! Errors of `sqlparser` and DataFusion in our words: with SQL's names of types, without the insides of the
//! two, and with a hint where one is known.

mod forms;
mod functions;
mod parser;
mod planner;

pub use parser::{from_parser, from_tokenizer, misspelt, no_table_function};

/// The text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let length = text[start..].find(after)?;
    Some(&text[start..start + length])
}

/// A column's or expression's name without its table.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
