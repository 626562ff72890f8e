//! CREATE FUNCTION and CREATE AGGREGATE FUNCTION.

mod table;

use std::collections::BTreeMap;

use arrow_schema::DataType;
use sqlparser::ast::Ident;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::create::{name, options, sql_type};
use super::{Statement, end, expect, is_word, parsed, parser};
use crate::error::{Result, SqlError, nearest, shown};
use crate::settings::values::{bytes, chosen, number, positive_ns, unless_none};

/// `CREATE [AGGREGATE] FUNCTION name (types) RETURNS type LANGUAGE python AS $$ … $$ WITH (…)`.
#[derive(Debug, Clone)]
pub struct CreateFunction {
    /// The name.
    pub name: Ident,
    /// Whether it is an aggregate function.
    pub is_aggregate: bool,
    /// `IF NOT EXISTS`: no error if the program has declared it.
    pub if_not_exists: bool,
    /// The types of the arguments.
    pub arguments: Vec<DataType>,
    /// The type of the result; NULL's if it returns a table.
    pub result: DataType,
    /// What it is if it returns a table.
    pub table: Option<TableFunction>,
    /// The language of the body.
    pub language: Language,
    /// What computes it.
    pub body: Body,
    /// Where the body is in the SQL: its first character, if that is on the line of its quotes.
    pub span: Span,
    /// The options.
    pub options: FunctionOptions,
}

/// The language of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python, in processes of its own.
    Python,
    /// WebAssembly, interpreted in this process.
    Wasm,
}

/// The text of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// `AS $$ … $$`.
    Text(String),
    /// `USING 'path'`.
    File(String),
}

/// The options of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionOptions {
    /// Whether it is called once for each chunk, with columns, instead of once for each row.
    pub columns: bool,
    /// Whether it gets NULLs.
    pub nulls: bool,
    /// The name of the function in the text, if it is not the one in SQL.
    pub handler: Option<String>,
    /// The most workers in a process.
    pub workers: Option<usize>,
    /// The most memory of a worker, or of an instance in WebAssembly, in bytes.
    pub memory: Option<u64>,
    /// The most instructions of a call in WebAssembly.
    pub fuel: u64,
    /// The longest time for a row, or for a chunk of columns.
    pub timeout_ns: u64,
    /// The interpreter, if it is not that of the setting.
    pub python: Option<String>,
}

/// The default of `memory`: enough for most libraries, and less than what makes a host kill others.
const MEMORY: u64 = 4 << 30;

/// The least `memory`: the interpreter needs some itself.
const MEMORY_MIN: u64 = 32 << 20;

/// The default of `memory` in WebAssembly, and the size of a page of it.
const WASM_MEMORY: u64 = 64 << 20;
const WASM_PAGE: u64 = 64 << 10;

/// The default of `fuel`: the interpreter takes about a second for it.
const FUEL: u64 = 100_000_000;

/// The default of `timeout`.
const TIMEOUT_NS: u64 = 60_000_000_000;

/// The maximum of `workers`.
const WORKERS_MAX: usize = 1024;

/// The options in Python, and their values.
const OPTIONS: [(&str, &str); 7] = [
    ("mode", "'rows' or 'columns'"),
    ("nulls", "'true' or 'false'"),
    ("handler", "the name of a function in the text"),
    ("workers", "a number from 1 to 1024"),
    (
        "memory",
        "a size of at least '32 MiB', such as '512 MB', or 'none'",
    ),
    ("timeout", "a duration such as '10 s'"),
    ("python", "the path of an interpreter"),
];

/// The options in WebAssembly, and their values.
const WASM_OPTIONS: [(&str, &str); 3] = [
    ("handler", "the name of an exported function"),
    ("memory", "a size of at least '64 KiB', such as '16 MiB'"),
    ("fuel", "a number of instructions from 1 to 1000000000000"),
];

/// The most of `fuel`.
const FUEL_MAX: usize = 1_000_000_000_000;

const FORM: &str =
    "CREATE FUNCTION name(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS $$ def name(x): … $$";

const AGGREGATE_FORM: &str = "CREATE AGGREGATE FUNCTION name(x DOUBLE) RETURNS DOUBLE \
                              LANGUAGE python AS $$ class name: … $$";

pub use table::{Constants, NamedType, TableFunction};

/// Whether the words begin CREATE FUNCTION.
pub(super) fn begins(words: &[&str]) -> bool {
    let rest = match words {
        ["CREATE", "OR", "REPLACE", rest @ ..] | ["CREATE", rest @ ..] => rest,
        _ => return false,
    };
    let mut rest = rest
        .iter()
        .skip_while(|word| ["TEMPORARY", "SYSTEM"].contains(word));
    matches!(rest.next(), Some(&"FUNCTION" | &"AGGREGATE"))
}

pub(super) fn function(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    let mut is_aggregate = false;
    loop {
        let next = parser.next_token();
        if is_word(&next, "FUNCTION") {
            break;
        }
        if is_aggregate {
            let error = format!("expected FUNCTION, found {}", shown(&next.token));
            return Err(SqlError::new(error).at_token(&next).hint(AGGREGATE_FORM));
        }
        is_aggregate = is_word(&next, "AGGREGATE");
    }
    let form = if is_aggregate { AGGREGATE_FORM } else { FORM };
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = name(&mut parser)?;
    let next = parser.peek_token();
    if next.token != Token::LParen {
        let error = format!(
            "expected '(' and the types of the arguments, found {}",
            shown(&next.token)
        );
        return Err(SqlError::new(error).at_token(&next).hint(form));
    }
    let parameters = table::parameters(&mut parser)?;
    let arguments = match parameters {
        Some(_) => Vec::new(),
        None => arguments(&mut parser, form)?,
    };
    let mut clauses = Clauses::default();
    while parser.peek_token().token != Token::EOF {
        clause(&mut parser, &mut clauses)?;
    }
    end(&mut parser)?;
    let missing = |what: &str| {
        let error = format!("function '{}' has no {what}", name.value);
        SqlError::new(error).at(name.span).hint(form)
    };
    let language = clauses.language.ok_or_else(|| missing("LANGUAGE"))?;
    if is_aggregate && language == Language::Wasm {
        let error = "aggregate functions in WebAssembly are not supported";
        return Err(SqlError::new(error)
            .at(name.span)
            .hint("use LANGUAGE python"));
    }
    let table = table::function(parameters, &mut clauses, &name, is_aggregate, language)?;
    let result = match table {
        Some(_) => DataType::Null,
        None => clauses.result.take().ok_or_else(|| missing("RETURNS"))?,
    };
    let body = clauses.body.take();
    let (body, span) = body.ok_or_else(|| missing("text: AS $$ … $$, or USING 'file.py'"))?;
    Ok(Statement::CreateFunction(Box::new(CreateFunction {
        options: of_options(&clauses, language, table.is_some())?,
        table,
        language,
        name,
        is_aggregate,
        if_not_exists,
        arguments,
        result,
        body,
        span,
    })))
}

#[derive(Default)]
struct Clauses {
    result: Option<DataType>,
    /// The columns after RETURNS TABLE.
    returns: Option<Vec<NamedType>>,
    state: Option<Vec<NamedType>>,
    language: Option<Language>,
    body: Option<(Body, Span)>,
    options: BTreeMap<String, String>,
    places: BTreeMap<String, Span>,
}

fn arguments(parser: &mut Parser, form: &str) -> Result<Vec<DataType>> {
    expect(parser, Token::LParen)?;
    let mut arguments = Vec::new();
    if parser.consume_token(&Token::RParen) {
        return Ok(arguments);
    }
    loop {
        // `DOUBLE` or `x DOUBLE`: the name of an argument may look like a type.
        let unnamed = parser.maybe_parse(|parser| {
            let failed = || ParserError::ParserError(String::new());
            let data_type = sql_type(parser)
                .and_then(|it| it.to_arrow())
                .map_err(|_| failed())?;
            match parser.peek_token().token {
                Token::Comma | Token::RParen => Ok(data_type),
                _ => Err(failed()),
            }
        });
        arguments.push(match parsed(unnamed)? {
            Some(data_type) => data_type,
            None => {
                // An unknown type is reported as one.
                if !matches!(parser.peek_nth_token(1).token, Token::Comma | Token::RParen) {
                    parsed(parser.parse_identifier())?;
                }
                sql_type(parser)?.to_arrow()?
            }
        });
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(arguments),
            ref token => {
                let error = format!("expected ',' or ')', found {}", shown(token));
                return Err(SqlError::new(error).at_token(&next).hint(form));
            }
        }
    }
}

fn clause(parser: &mut Parser, clauses: &mut Clauses) -> Result<()> {
    let next = parser.next_token();
    let word = match &next.token {
        Token::Word(word) => word.value.to_uppercase(),
        _ => String::new(),
    };
    let is_repeated = match word.as_str() {
        "RETURNS" => {
            let start = parser.peek_token();
            if is_word(&start, "SETOF") {
                let error = "SETOF is not supported";
                return Err(SqlError::new(error).at_token(&start).hint(table::FORM));
            }
            if is_word(&start, "TABLE") {
                parser.next_token();
                let columns = match parser.peek_token().token {
                    Token::LParen => table::columns(parser)?,
                    _ => Vec::new(),
                };
                let is_repeated = clauses.returns.replace(columns).is_some();
                return is_once(&word, is_repeated, &next);
            }
            clauses
                .result
                .replace(sql_type(parser)?.to_arrow()?)
                .is_some()
        }
        "STATE" => clauses.state.replace(table::columns(parser)?).is_some(),
        "LANGUAGE" => {
            let next = parser.next_token();
            let language = match () {
                () if is_word(&next, "PYTHON") => Language::Python,
                () if is_word(&next, "WASM") => Language::Wasm,
                () => {
                    let error = format!("functions in {} are not supported", next.token);
                    return Err(SqlError::new(error).at_token(&next).hint(
                        "use LANGUAGE python or wasm; functions in Rust are added to a build: \
                         docs/functions.md",
                    ));
                }
            };
            clauses.language.replace(language).is_some()
        }
        "AS" => {
            let text = parser.next_token();
            let ((body, spaces), quotes) = match &text.token {
                Token::DollarQuotedString(quoted) => (on_one_line(&quoted.value), 2),
                Token::SingleQuotedString(quoted) => (on_one_line(quoted), 1),
                token => {
                    let error = format!("expected the function's text, found {}", shown(token));
                    return Err(SqlError::new(error)
                        .at_token(&text)
                        .hint("write it between two $$"));
                }
            };
            let mut span = text.span;
            if !body.starts_with(['\n', '\r']) {
                // A place in the first line is counted from where the text begins.
                span.start.column += quotes + spaces;
            }
            clauses.body.replace((Body::Text(body), span)).is_some()
        }
        "USING" => {
            let path = parser.next_token();
            let Token::SingleQuotedString(file) = &path.token else {
                let error = format!("expected the path of a file, found {}", shown(&path.token));
                return Err(SqlError::new(error)
                    .at_token(&path)
                    .hint("for example USING 'score.py'"));
            };
            clauses
                .body
                .replace((Body::File(file.clone()), path.span))
                .is_some()
        }
        "WITH" => {
            let is_repeated = !clauses.options.is_empty();
            options(parser, &mut clauses.options, &mut clauses.places)?;
            is_repeated
        }
        _ => {
            let error = format!("unexpected {}", shown(&next.token));
            return Err(SqlError::new(error)
                .at_token(&next)
                .hint("the clauses are RETURNS, STATE, LANGUAGE, AS, USING and WITH"));
        }
    };
    is_once(&word, is_repeated, &next)
}

fn is_once(clause: &str, is_repeated: bool, place: &TokenWithSpan) -> Result<()> {
    match is_repeated {
        true => {
            let error = format!("{clause} is given twice, or with another text");
            Err(SqlError::new(error).at_token(place))
        }
        false => Ok(()),
    }
}

fn of_options(
    clauses: &Clauses,
    language: Language,
    returns_table: bool,
) -> Result<FunctionOptions> {
    let (known, memory) = match language {
        Language::Python => (&OPTIONS[..], MEMORY),
        Language::Wasm => (&WASM_OPTIONS[..], WASM_MEMORY),
    };
    let mut known = known.to_vec();
    if returns_table {
        known.retain(|(name, _)| *name != "nulls");
        known.extend(table::OPTIONS);
    }
    let mut options = FunctionOptions {
        columns: false,
        nulls: false,
        handler: None,
        workers: None,
        memory: Some(memory),
        fuel: FUEL,
        timeout_ns: TIMEOUT_NS,
        python: None,
    };
    for (key, value) in &clauses.options {
        let place = clauses.places[key];
        // `table.rs` has read them, or has said what they are for.
        if table::OPTIONS.iter().any(|(name, _)| name == key) {
            continue;
        }
        let Some((_, wanted)) = known.iter().find(|(name, _)| name == key) else {
            let kind = if returns_table {
                "functions that return a table"
            } else {
                "functions"
            };
            let error = SqlError::new(format!("{kind} have no option '{key}'")).at(place);
            let known = known.iter().map(|(name, _)| name.to_string());
            let known = known.collect::<Vec<String>>();
            return Err(match nearest(key, &known) {
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None => error.hint(format!("the options are: {}", known.join(", "))),
            });
        };
        let is_set = match language {
            Language::Python => options.set(key, value.trim()),
            Language::Wasm => options.set_wasm(key, value.trim()),
        };
        if is_set.is_none() {
            let error = SqlError::new(format!("option '{key}': '{value}' is not valid"));
            return Err(error.at(place).hint(format!("use {wanted}")));
        }
    }
    Ok(options)
}

impl FunctionOptions {
    /// Sets one of [`OPTIONS`]; `None` if the value is not valid.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let name = || Some(value.to_string()).filter(|name| !name.is_empty());
        match key {
            "mode" => self.columns = chosen(value, &[("rows", false), ("columns", true)])?,
            "nulls" => self.nulls = chosen(value, &[("false", false), ("true", true)])?,
            "handler" => self.handler = Some(name()?),
            "workers" => self.workers = Some(number(value, WORKERS_MAX)?),
            "memory" => {
                let enough = |value: &str| bytes(value).filter(|bytes| *bytes >= MEMORY_MIN);
                self.memory = unless_none(value, enough)?;
            }
            "timeout" => self.timeout_ns = positive_ns(value)?,
            _ => self.python = Some(name()?),
        }
        Some(())
    }

    /// Sets one of [`WASM_OPTIONS`]; `None` if the value is not valid.
    fn set_wasm(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "handler" => self.handler = Some(value.to_string()).filter(|name| !name.is_empty()),
            "memory" => self.memory = Some(bytes(value).filter(|bytes| *bytes >= WASM_PAGE)?),
            _ => self.fuel = number(value, FUEL_MAX)? as u64,
        }
        Some(())
    }
}

/// A text that begins on the line of its quotes, without the spaces there, and how many these were.
fn on_one_line(text: &str) -> (String, u64) {
    let first = text.lines().next().unwrap_or_default();
    if first.trim().is_empty() {
        return (text.to_string(), 0);
    }
    let begun = text.trim_start_matches([' ', '\t']);
    (begun.to_string(), (text.len() - begun.len()) as u64)
}
