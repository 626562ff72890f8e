//! Functions of PostgreSQL that queries of the catalog call, for SQLite.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use regex::{Regex, RegexBuilder};
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Result};

use crate::lock::lock;

use super::super::settings::{Settings, VERSION};
use super::super::types::{by_name, sql_name};
use super::super::words::Word;
use super::fill::{DATABASE_NAME, Names, OWNER_NAME, quoted};

/// What functions know of the client that asks.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub user: String,
    pub process: i32,
    settings: BTreeMap<String, String>,
}

impl Facts {
    pub fn new(user: &str, process: i32) -> Facts {
        Facts {
            user: user.to_owned(),
            process,
            settings: BTreeMap::new(),
        }
    }

    /// The same facts with the settings of this moment.
    pub fn with(&self, settings: &Settings) -> Facts {
        let settings = settings
            .all()
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Facts {
            settings: settings.collect(),
            ..self.clone()
        }
    }
}

/// The facts of the client that asks at the moment.
pub type Asking = Arc<Mutex<Facts>>;

/// The names of all functions below: a query without FROM that calls only these is one of the catalog.
pub const FACTS: [&str; 22] = [
    "version",
    "current_database",
    "current_catalog",
    "current_schema",
    "current_schemas",
    "current_user",
    "current_role",
    "session_user",
    "user",
    "current_setting",
    "set_config",
    "pg_backend_pid",
    "pg_is_in_recovery",
    "pg_encoding_to_char",
    "to_regclass",
    "has_table_privilege",
    "has_schema_privilege",
    "has_database_privilege",
    "pg_advisory_unlock_all",
    "quote_ident",
    "pg_postmaster_start_time",
    "txid_current",
];

fn text(context: &Context<'_>, at: usize) -> Option<String> {
    match (at < context.len()).then(|| context.get_raw(at))? {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

fn number(context: &Context<'_>, at: usize) -> Option<i64> {
    text(context, at)?.parse().ok()
}

fn show(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

/// Adds all of them.
pub fn add(sqlite: &Connection, names: Names, asking: &Asking) -> Result<()> {
    let names = Arc::new(names);
    let define = |name: &str, call: Box<dyn Fn(&Context<'_>) -> Value + Send + Sync>| {
        let count = match OPERATORS.iter().any(|(operator, _)| *operator == name) {
            // SQLite prefers its own function if that has the number of arguments and this has any.
            true => 2,
            false => -1,
        };
        sqlite.create_scalar_function(name, count, FunctionFlags::SQLITE_UTF8, move |context| {
            Ok(call(context))
        })
    };
    macro_rules! function {
        ($($name:literal)|+, $context:pat => $value:expr) => {{
            $(define($name, Box::new(move |$context| $value))?;)+
        }};
    }
    macro_rules! with_facts {
        ($($name:literal)|+, ($facts:ident, $context:pat) => $value:expr) => {{
            $({
                let asking = Arc::clone(asking);
                define($name, Box::new(move |$context| {
                    let $facts = lock(&asking);
                    $value
                }))?;
            })+
        }};
    }
    macro_rules! with_names {
        ($($name:literal)|+, ($names:ident, $context:pat) => $value:expr) => {{
            $({
                let $names = Arc::clone(&names);
                define($name, Box::new(move |$context| $value))?;
            })+
        }};
    }
    function!("version", _ => {
        show(format!("PostgreSQL {VERSION} (Slackwater {})", env!("CARGO_PKG_VERSION")))
    });
    function!("current_database" | "current_catalog", _ => show(DATABASE_NAME));
    function!("current_schema", _ => show("public"));
    function!("current_schemas", context => match number(context, 0) {
        Some(1) => show("[\"pg_catalog\",\"public\"]"),
        _ => show("[\"public\"]"),
    });
    with_facts!("current_user" | "current_role" | "session_user" | "user", (facts, _) => {
        show(facts.user.clone())
    });
    with_facts!("pg_backend_pid", (facts, _) => Value::Integer(facts.process.into()));
    with_facts!("current_setting", (facts, context) => {
        let name = text(context, 0).unwrap_or_default().to_lowercase();
        facts.settings.get(&name).map_or(Value::Null, show)
    });
    function!("set_config", context => text(context, 1).map_or(Value::Null, show));
    function!("pg_is_in_recovery" | "row_security_active", _ => Value::Integer(0));
    function!("pg_table_is_visible" | "pg_type_is_visible" | "pg_function_is_visible"
        | "pg_opclass_is_visible" | "pg_operator_is_visible" | "pg_collation_is_visible"
        | "pg_statistics_obj_is_visible" | "pg_relation_is_publishable" | "has_table_privilege"
        | "has_schema_privilege" | "has_column_privilege" | "has_database_privilege"
        | "has_any_column_privilege" | "has_function_privilege" | "pg_has_role", _ => Value::Integer(1));
    function!("pg_encoding_to_char", _ => show("UTF8"));
    function!("pg_char_to_encoding", _ => Value::Integer(6));
    function!("pg_get_userbyid" | "pg_regrole", _ => show(OWNER_NAME));
    function!("obj_description" | "col_description" | "shobj_description" | "pg_get_expr"
        | "pg_get_partkeydef" | "pg_get_serial_sequence" | "pg_tablespace_location"
        | "pg_get_triggerdef" | "pg_get_ruledef" | "pg_get_function_identity_arguments"
        | "pg_get_function_result" | "pg_get_function_arguments" | "pg_get_statisticsobjdef_columns"
        | "pg_postmaster_start_time" | "inet_server_addr" | "inet_client_addr", _ => Value::Null);
    function!("pg_relation_size" | "pg_total_relation_size" | "pg_table_size" | "pg_database_size"
        | "pg_indexes_size" | "txid_current" | "pg_my_temp_schema" | "pg_is_other_temp_schema", _ => {
        Value::Integer(0)
    });
    function!("pg_size_pretty", context => show(format!("{} bytes", number(context, 0).unwrap_or(0))));
    function!("pg_advisory_unlock_all" | "pg_sleep", _ => show(""));
    function!("format_type", context => match number(context, 0) {
        Some(oid) => show(sql_name(u32::try_from(oid).unwrap_or(0), modifier(context))),
        None => Value::Null,
    });
    function!("quote_ident", context => text(context, 0).map_or(Value::Null, |name| show(quoted(&name))));
    function!("quote_literal", context => {
        text(context, 0).map_or(Value::Null, |value| show(format!("'{}'", value.replace('\'', "''"))))
    });
    with_names!("pg_get_viewdef" | "pg_get_constraintdef", (names, context) => {
        number(context, 0).and_then(|oid| names.definitions.get(&oid)).map_or(Value::Null, show)
    });
    with_names!("pg_get_indexdef", (names, context) => {
        // With the number of a column: only its name, which clients ask of expressions.
        let column = number(context, 1).is_some_and(|column| column > 0);
        let found = number(context, 0).filter(|_| !column);
        found.and_then(|oid| names.definitions.get(&oid)).map_or(Value::Null, show)
    });
    with_names!("pg_regclass", (names, context) => match context.get_raw(0) {
        ValueRef::Integer(oid) => names.relations.get(&oid).map_or_else(|| show(oid.to_string()), show),
        _ => to_number(&names, text(context, 0)),
    });
    with_names!("to_regclass", (names, context) => to_number(&names, text(context, 0)));
    function!("pg_regtype", context => match context.get_raw(0) {
        ValueRef::Integer(oid) => show(sql_name(u32::try_from(oid).unwrap_or(0), -1)),
        _ => type_number(&text(context, 0).unwrap_or_default()),
    });
    function!("pg_regproc" | "pg_regprocedure", context => text(context, 0).map_or(Value::Null, show));
    function!("pg_regnamespace", context => match context.get_raw(0) {
        ValueRef::Integer(11) => show("pg_catalog"),
        ValueRef::Integer(_) => show("public"),
        _ => Value::Integer(if text(context, 0).as_deref() == Some("pg_catalog") { 11 } else { 2_200 }),
    });
    function!("pg_bool", context => match text(context, 0).as_deref() {
        Some("t" | "true" | "1" | "on" | "yes") => Value::Integer(1),
        Some(_) => Value::Integer(0),
        None => Value::Null,
    });
    strings(&define)?;
    arrays(&define)
}

type Define<'a> = &'a dyn Fn(&str, Box<dyn Fn(&Context<'_>) -> Value + Send + Sync>) -> Result<()>;

/// The longest pattern: those of clients have the name of a table.
const PATTERN_BYTES_MAX: usize = 1_000;

/// The pattern that was used last: a query compares every row with the same one.
#[derive(Default)]
struct Pattern(Mutex<Option<(String, Option<Regex>)>>);

impl Pattern {
    /// Calls a closure with the pattern; `None` if it is not valid, or too long.
    fn with<T>(&self, pattern: String, call: impl FnOnce(&Regex) -> T) -> Option<T> {
        let mut last = lock(&self.0);
        if last.as_ref().is_none_or(|(text, _)| *text != pattern) {
            let is_short = pattern.len() <= PATTERN_BYTES_MAX;
            let build = || RegexBuilder::new(&pattern).size_limit(1 << 20).build().ok();
            let built = is_short.then(build).flatten();
            *last = Some((pattern, built));
        }
        last.as_ref()
            .and_then(|(_, built)| built.as_ref())
            .map(call)
    }
}

/// The functions of SQLite's operators REGEXP, LIKE and MATCH, which stands for ILIKE, with the flags of
/// their regular expressions.
const OPERATORS: [(&str, Option<&str>); 3] = [
    ("regexp", None),
    ("like", Some("(?s)")),
    ("match", Some("(?si)")),
];

/// Functions of strings: patterns are PostgreSQL's.
fn strings(define: Define<'_>) -> Result<()> {
    for (name, flags) in OPERATORS {
        let last = Pattern::default();
        let matches = move |context: &Context<'_>| {
            let (pattern, value) = (text(context, 0)?, text(context, 1)?);
            let pattern = flags.map_or_else(|| pattern.clone(), |flags| as_regex(&pattern, flags));
            let found = last.with(pattern, |regex| regex.is_match(&value));
            Some(Value::Integer(found.unwrap_or(false).into()))
        };
        define(
            name,
            Box::new(move |context| matches(context).unwrap_or(Value::Null)),
        )?;
    }
    let last = Pattern::default();
    let replace = move |context: &Context<'_>| {
        let (value, with) = (text(context, 0)?, text(context, 2)?);
        let replaced = last.with(text(context, 1)?, |regex| {
            regex.replace(&value, with.as_str()).into_owned()
        });
        Some(show(replaced.unwrap_or(value)))
    };
    define(
        "regexp_replace",
        Box::new(move |context| replace(context).unwrap_or(Value::Null)),
    )?;
    define(
        "left",
        Box::new(|context| {
            let count = usize::try_from(number(context, 1).unwrap_or(0)).unwrap_or(0);
            text(context, 0).map_or(Value::Null, |value| {
                show(value.chars().take(count).collect::<String>())
            })
        }),
    )
}

/// A pattern of LIKE, with a backslash as escape, as a regular expression.
fn as_regex(pattern: &str, flags: &str) -> String {
    let mut out = format!("{flags}^");
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let literal = match character {
            '%' => {
                out.push_str(".*");
                continue;
            }
            '_' => {
                out.push('.');
                continue;
            }
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        };
        out.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
    }
    out.push('$');
    out
}

/// Functions of arrays, which are JSON here.
fn arrays(define: Define<'_>) -> Result<()> {
    define(
        "pg_array",
        Box::new(|context| text(context, 0).map_or(Value::Null, |value| show(as_json(&value)))),
    )?;
    define(
        "pg_item",
        Box::new(|context| {
            let at = number(context, 1).and_then(|at| usize::try_from(at - 1).ok());
            let items = text(context, 0)
                .map(|value| elements(&value))
                .unwrap_or_default();
            at.and_then(|at| items.get(at).cloned())
                .map_or(Value::Null, show)
        }),
    )?;
    define(
        "array_to_string",
        Box::new(|context| {
            let between = text(context, 1).unwrap_or_default();
            text(context, 0).map_or(Value::Null, |value| show(elements(&value).join(&between)))
        }),
    )?;
    define(
        "string_to_array",
        Box::new(|context| match (text(context, 0), text(context, 1)) {
            (Some(value), Some(between)) if !between.is_empty() => {
                let parts: Vec<String> = value.split(&between).map(quoted_json).collect();
                show(format!("[{}]", parts.join(",")))
            }
            _ => Value::Null,
        }),
    )?;
    for name in ["array_length", "array_upper", "cardinality"] {
        define(
            name,
            Box::new(|context| {
                text(context, 0).map_or(Value::Null, |value| {
                    Value::Integer(elements(&value).len() as i64)
                })
            }),
        )?;
    }
    let removed = |context: &Context<'_>| {
        let (all, one) = (text(context, 0)?, text(context, 1)?);
        let kept = elements(&all).into_iter().filter(|element| *element != one);
        Some(as_list(kept))
    };
    define(
        "array_remove",
        Box::new(move |context| removed(context).unwrap_or(Value::Null)),
    )?;
    define(
        "parse_ident",
        Box::new(|context| text(context, 0).map_or(Value::Null, |name| parts(&name))),
    )?;
    define(
        "pg_series",
        Box::new(|context| match (number(context, 0), number(context, 1)) {
            (Some(from), Some(to)) => {
                let end = to.min(from.saturating_add(SERIES_MAX));
                as_list((from..=end).map(|number| number.to_string()))
            }
            _ => Value::Null,
        }),
    )?;
    define(
        "array_lower",
        Box::new(|context| text(context, 0).map_or(Value::Null, |_| Value::Integer(1))),
    )
}

/// The most numbers of a series: more than arrays of the catalog have elements.
const SERIES_MAX: i64 = 10_000;

/// Strings as an array.
fn as_list(all: impl Iterator<Item = String>) -> Value {
    let all: Vec<String> = all.map(|one| quoted_json(&one)).collect();
    show(format!("[{}]", all.join(",")))
}

/// The parts of a name such as `public."a b"`.
fn parts(name: &str) -> Value {
    as_list(
        super::super::words::words(name)
            .iter()
            .filter_map(Word::name),
    )
}

fn quoted_json(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The elements of an array, written as JSON or as PostgreSQL does (`{a,b}`), as strings.
pub fn elements(value: &str) -> Vec<String> {
    let inner = value.trim();
    let inner = inner
        .strip_prefix(['[', '{'])
        .and_then(|inner| inner.strip_suffix([']', '}']))
        .unwrap_or("");
    let (mut found, mut element, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => quoted = !quoted,
            '\\' => element.extend(characters.next()),
            ',' if !quoted => found.push(std::mem::take(&mut element).trim().to_owned()),
            other => element.push(other),
        }
    }
    if !inner.is_empty() {
        found.push(element.trim().to_owned());
    }
    found
}

/// The array as JSON: numbers stay numbers.
fn as_json(value: &str) -> String {
    if value.trim_start().starts_with('[') {
        return value.to_owned();
    }
    let element = |text: String| match text.parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => quoted_json(&text),
    };
    let parts: Vec<String> = elements(value).into_iter().map(element).collect();
    format!("[{}]", parts.join(","))
}

fn modifier(context: &Context<'_>) -> i32 {
    number(context, 1)
        .and_then(|modifier| i32::try_from(modifier).ok())
        .unwrap_or(-1)
}

/// The number of a relation by its name, with a schema and quotes perhaps.
fn to_number(names: &Names, name: Option<String>) -> Value {
    let Some(name) = name else {
        return Value::Null;
    };
    if let Ok(number) = name.parse() {
        return Value::Integer(number);
    }
    let words = super::super::words::words(&name);
    let last = words
        .last()
        .and_then(|word| word.name())
        .unwrap_or_default();
    names
        .numbers
        .get(&last)
        .map_or(Value::Null, |number| Value::Integer(*number))
}

fn type_number(name: &str) -> Value {
    let name = name.trim_start_matches("pg_catalog.");
    let known = by_name(name).or_else(|| name.parse().ok());
    known.map_or(Value::Null, |oid| Value::Integer(oid.into()))
}
