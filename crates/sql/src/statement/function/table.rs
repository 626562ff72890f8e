//! Functions that return a table: operators.
//!
//! ```text
//! CREATE FUNCTION name(t TABLE [(column TYPE, …)] [, u TABLE …] [, parameter TYPE …])
//! RETURNS TABLE [(column TYPE, …)] [STATE (name TYPE, …)] LANGUAGE python …
//! ```

use std::collections::BTreeSet;

use arrow_schema::DataType;
use sqlparser::ast::Ident;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::{Clauses, Language};
use crate::error::{Result, SqlError, shown};
use crate::settings::values::{chosen, number};
use crate::statement::create::sql_type;
use crate::statement::{expect, is_word, parsed};

/// An example, for messages.
pub const FORM: &str = "CREATE FUNCTION name(t TABLE (x DOUBLE)) RETURNS TABLE (y DOUBLE) \
                        LANGUAGE python AS $$ def name(x): … $$";

/// The options that only functions that return a table have, and their values.
pub const OPTIONS: [(&str, &str); 6] = [
    ("version", "a number from 1 to 1000000"),
    ("order", "'any' or 'required'"),
    ("forgets", "'true' or 'false'"),
    ("outputs", "two or more names, such as 'high, low'"),
    ("updates", "'true' or 'false'"),
    ("emits_updates", "'true' or 'false'"),
];

/// The most of `version`.
const VERSION_MAX: usize = 1_000_000;

/// A column, a value of a state, or a parameter: its name and type.
pub type NamedType = (String, DataType);

/// A function that returns a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFunction {
    /// The columns that it reads of each of its tables; `None` for all.
    pub inputs: Vec<Option<Vec<NamedType>>>,
    /// Its other parameters.
    pub constants: Vec<(String, Constants)>,
    /// Its own columns; none for a filter.
    pub columns: Vec<NamedType>,
    /// What it keeps for each key; `None` without a state.
    pub state: Option<Vec<NamedType>>,
    /// The version of the state.
    pub version: u32,
    /// Whether its calls need ORDER BY.
    pub needs_order: bool,
    /// Whether it forgets its keys.
    pub forgets: bool,
    /// The names of its outputs, if it has several.
    pub outputs: Vec<String>,
    /// Whether it takes rows that are updated and taken back.
    pub takes_updates: bool,
    /// Whether it takes rows back that it has emitted.
    pub emits_updates: bool,
}

/// The constants that a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constants {
    /// BOOLEAN.
    Booleans,
    /// TINYINT, SMALLINT, INT, BIGINT.
    Integers,
    /// FLOAT, DOUBLE.
    Numbers,
    /// STRING.
    Strings,
    /// INTERVAL.
    Intervals,
}

/// A parameter.
pub enum Parameter {
    /// A table, and the columns that are read of it.
    Table(Option<Vec<NamedType>>),
    /// A constant.
    Constant(String, Constants),
}

/// The parameters of a function whose first one is a table, or `None`. The next token is a parenthesis.
pub fn parameters(parser: &mut Parser) -> Result<Option<Vec<Parameter>>> {
    let is_name = matches!(parser.peek_nth_token(1).token, Token::Word(_));
    let second = parser.peek_nth_token(2);
    if !is_name || !is_word(&second, "TABLE") {
        return Ok(None);
    }
    expect(parser, Token::LParen)?;
    let (mut parameters, mut names) = (Vec::new(), BTreeSet::new());
    loop {
        let start = parser.peek_token();
        let name = parsed(parser.parse_identifier())?.value;
        if !names.insert(name.clone()) {
            let error = SqlError::new(format!("there are two parameters '{name}'"));
            return Err(error.at_token(&start).hint("rename one of them"));
        }
        let next = parser.peek_token();
        let is_after_constant = matches!(parameters.last(), Some(Parameter::Constant(..)));
        parameters.push(match is_word(&next, "TABLE") {
            true if is_after_constant => {
                let error = SqlError::new("tables come before other parameters");
                return Err(error.at_token(&start).hint("write it first"));
            }
            true => {
                parser.next_token();
                let has_columns = parser.peek_token().token == Token::LParen;
                Parameter::Table(has_columns.then(|| columns(parser)).transpose()?)
            }
            false => {
                is_python_name(&name, "a parameter").map_err(|error| error.at_token(&start))?;
                Parameter::Constant(name, constants(parser)?)
            }
        });
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(Some(parameters)),
            ref token => {
                let error = format!("expected ',' or ')', found {}", shown(token));
                return Err(SqlError::new(error).at_token(&next).hint(FORM));
            }
        }
    }
}

fn constants(parser: &mut Parser) -> Result<Constants> {
    let start = parser.peek_token();
    if is_word(&start, "INTERVAL") {
        parser.next_token();
        return Ok(Constants::Intervals);
    }
    Ok(match sql_type(parser)?.to_arrow()? {
        DataType::Boolean => Constants::Booleans,
        data_type if data_type.is_integer() => Constants::Integers,
        DataType::Float32 | DataType::Float64 => Constants::Numbers,
        DataType::Utf8View => Constants::Strings,
        _ => {
            let error = format!("a parameter can't be {}", shown(&start.token));
            return Err(SqlError::new(error)
                .at_token(&start)
                .hint("parameters are BOOLEAN, BIGINT, DOUBLE, STRING or INTERVAL"));
        }
    })
}

/// `(name TYPE, …)`.
pub fn columns(parser: &mut Parser) -> Result<Vec<NamedType>> {
    let mut columns = Vec::<NamedType>::new();
    expect(parser, Token::LParen)?;
    loop {
        let start = parser.peek_token();
        if start.token == Token::RParen {
            let error = SqlError::new("there is no column in parentheses");
            return Err(error.at_token(&start).hint("for example (x DOUBLE)"));
        }
        let name = parsed(parser.parse_identifier())?.value;
        if columns.iter().any(|(known, _)| *known == name) {
            let error = SqlError::new(format!("there are two columns '{name}'"));
            return Err(error.at_token(&start).hint("rename one of them"));
        }
        columns.push((name, sql_type(parser)?.to_arrow()?));
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(columns),
            ref token => {
                let error = format!("expected ',' or ')', found {}", shown(token));
                return Err(SqlError::new(error)
                    .at_token(&next)
                    .hint("for example (x DOUBLE, name STRING)"));
            }
        }
    }
}

/// The function that returns a table, if the statement declares one.
pub(super) fn function(
    parameters: Option<Vec<Parameter>>,
    clauses: &mut Clauses,
    name: &Ident,
    is_aggregate: bool,
    language: Language,
) -> Result<Option<TableFunction>> {
    let called = &name.value;
    let wrong = |what: &str, hint: &str| {
        let error = SqlError::new(format!("function '{called}' {what}"));
        Err(error.at(name.span).hint(hint))
    };
    let (parameters, columns) = match (parameters, clauses.returns.take()) {
        (None, None) if clauses.state.is_some() => {
            return wrong("has STATE, and takes no table", FORM);
        }
        (None, None) => {
            let own = OPTIONS.map(|(option, _)| option);
            return check(clauses, called, &own, "that return a table").map(|()| None);
        }
        (Some(_), None) => return wrong("takes a table, and has no RETURNS TABLE", FORM),
        (None, Some(_)) => return wrong("returns a table, and takes none", FORM),
        (Some(parameters), Some(columns)) => (parameters, columns),
    };
    if is_aggregate {
        let hint = "remove AGGREGATE, or RETURNS a type";
        return wrong("is an aggregate, and can't return a table", hint);
    }
    if language == Language::Wasm {
        return wrong(
            "returns a table, which is not supported in WebAssembly",
            "use LANGUAGE python, or an operator in Rust: docs/operators.md",
        );
    }
    let mut made = TableFunction {
        inputs: Vec::new(),
        constants: Vec::new(),
        columns,
        state: clauses.state.take(),
        version: 1,
        needs_order: false,
        forgets: false,
        outputs: Vec::new(),
        takes_updates: false,
        emits_updates: false,
    };
    for parameter in parameters {
        match parameter {
            Parameter::Table(columns) => made.inputs.push(columns),
            Parameter::Constant(name, constants) => made.constants.push((name, constants)),
        }
    }
    for (value, _) in made.state.iter().flatten() {
        is_python_name(value, "a value of STATE").map_err(|error| error.at(name.span))?;
    }
    for (option, wanted) in OPTIONS {
        let Some(value) = clauses.options.get(option) else {
            continue;
        };
        if made.set(option, value.trim()).is_none() {
            let error = SqlError::new(format!("option '{option}': '{value}' is not valid"));
            let place = clauses.places[option];
            return Err(error.at(place).hint(format!("use {wanted}")));
        }
    }
    let mode = clauses.options.get("mode").map(|mode| mode.trim());
    let with_state = ["version", "order", "forgets", "outputs", "emits_updates"];
    match made.state {
        None if made.inputs.len() > 1 => wrong(
            "has no STATE and takes one table",
            "combine several with UNION ALL, or add STATE (name TYPE)",
        ),
        Some(_) if mode == Some("columns") => {
            let error = format!("function '{called}' has STATE, and gets rows one by one");
            let error = SqlError::new(error).at(clauses.places["mode"]);
            Err(error.hint("remove 'mode' = 'columns'"))
        }
        None => check(clauses, called, &with_state, "with STATE").map(|()| Some(made)),
        Some(_) => Ok(Some(made)),
    }
}

/// An error if one of these options is given.
fn check(clauses: &Clauses, called: &str, options: &[&str], only: &str) -> Result<()> {
    let mut options = options.iter();
    let Some(option) = options.find(|option| clauses.options.contains_key(**option)) else {
        return Ok(());
    };
    let error = format!("function '{called}', option '{option}': it is for functions {only}");
    let place = clauses.places[*option];
    Err(SqlError::new(error).at(place).hint("remove it"))
}

/// An error if a name can't be one in Python.
fn is_python_name(name: &str, what: &str) -> Result<()> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_digit = name.starts_with(|first: char| first.is_ascii_digit());
    if !name.is_empty() && !is_digit && name.chars().all(is_letter) {
        return Ok(());
    }
    let error = SqlError::new(format!("'{name}' can't be the name of {what} in Python"));
    Err(error.hint("use letters of ASCII, digits and _"))
}

impl TableFunction {
    /// Sets one of [`OPTIONS`]; `None` if the value is not valid.
    fn set(&mut self, option: &str, value: &str) -> Option<()> {
        let is_true = || chosen(value, &[("false", false), ("true", true)]);
        match option {
            "version" => self.version = number(value, VERSION_MAX)? as u32,
            "order" => self.needs_order = chosen(value, &[("any", false), ("required", true)])?,
            "forgets" => self.forgets = is_true()?,
            "updates" => self.takes_updates = is_true()?,
            "emits_updates" => self.emits_updates = is_true()?,
            _ => {
                let names = value.split(',').map(|name| name.trim().to_string());
                self.outputs = names.collect();
                let different = self.outputs.iter().collect::<BTreeSet<_>>();
                let is_valid = different.len() == self.outputs.len() && different.len() > 1;
                let is_named = self.outputs.iter().all(|name| !name.is_empty());
                return (is_valid && is_named).then_some(());
            }
        }
        Some(())
    }
}
