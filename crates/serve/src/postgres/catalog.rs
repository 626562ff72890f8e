//! PostgreSQL's catalog (`pg_catalog` and `information_schema`), which clients query to find tables, columns
//! and types. SQLite answers: a database in memory has the tables, and the queries are reworded a little.
//!
//! A query that SQLite does not understand gets no rows, and a notice: a client that looks for indexes or
//! comments works without them, and would not work with an error. Queries are bounded in time, rows and
//! memory.

mod fill;
mod functions;
mod reword;
mod sets;
mod shape;

use std::collections::HashSet;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use rusqlite::limits::Limit;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Statement, params_from_iter};

use crate::backend::{Backend, Object, Parameter};
use crate::lock::lock;

pub use fill::DATABASE_NAME;
pub use functions::Facts;
use functions::{Asking, FACTS, elements};

use super::message::Report;
use super::types::{by_name, noted, oid};
use super::words::{Kind, Word, words};

/// How long a query may take.
const TIME_MAX: Duration = Duration::from_secs(2);
/// The most rows of an answer: more than a client shows.
const ROWS_MAX: usize = 100_000;
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The longest text or value within SQLite.
const VALUE_BYTES_MAX: i32 = 1 << 20;
/// The longest query: several times as long as those of clients, and short enough for what rewording costs.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// How many of its steps SQLite runs between looks at the clock. A step may call a function that takes a
/// millisecond.
const STEPS: i32 = 200;
/// How many queries are answered at once: each has a database of its own.
const DATABASES: usize = 4;

/// Types to which every literal can be cast.
const STRINGS: [&str; 3] = ["text", "varchar", "name"];

/// The catalog, for all clients.
pub struct Catalog {
    backend: Arc<dyn Backend>,
    /// The databases, with the objects that they were filled with.
    filled: [Mutex<Option<Filled>>; DATABASES],
    /// Which of them is next if all are busy.
    next: Mutex<usize>,
}

/// A database, with the objects that it was filled with.
type Filled = (Vec<Object>, Database);

struct Database {
    sqlite: Connection,
    asking: Asking,
    /// When the present query has taken too long.
    end: Arc<Mutex<Instant>>,
}

/// Whether this is the name of a table of the catalog, in small letters.
fn is_table(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let parts = include_str!("catalog/schema.sql").split(" pg_catalog.");
        let names = parts.skip(1).filter_map(|part| part.split(' ').next());
        names.collect()
    });
    NAMES.contains(name)
}

impl Catalog {
    pub fn new(backend: Arc<dyn Backend>) -> Catalog {
        Catalog {
            backend,
            filled: Default::default(),
            next: Mutex::new(0),
        }
    }

    /// Whether the catalog answers a query: it names one of its tables or schemas, or it has no FROM and asks
    /// only for facts of the connection or the values of literals.
    pub fn answers(&self, words: &[Word<'_>]) -> bool {
        let named = |at: usize, word: &Word<'_>| {
            let schema = || {
                let dot = words.get(at + 1).is_some_and(|next| next.is_sign("."));
                dot && (word.is("pg_catalog") || word.is("information_schema"))
            };
            let table = || {
                let name = word.text.trim_start_matches('"');
                let begins = name
                    .get(..3)
                    .is_some_and(|start| start.eq_ignore_ascii_case("pg_"));
                begins && word.name().is_some_and(|name| is_table(&name))
            };
            matches!(word.kind, Kind::Name | Kind::Quoted) && (schema() || table())
        };
        if words.iter().enumerate().any(|(at, word)| named(at, word)) {
            return true;
        }
        let mut names = words.iter().filter_map(Word::name);
        let asks = names.any(|name| FACTS.contains(&name.as_str()));
        let is_fact = |(at, word): (usize, &Word<'_>)| match word.kind {
            Kind::Text => true,
            // Others are computed by the session: SQLite has no errors for them.
            Kind::Number => word.text.parse::<i32>().is_ok(),
            Kind::Parameter => asks,
            Kind::Sign => {
                ["(", ")", ",", "::", "."].contains(&word.text) || (asks && word.is_sign("/"))
            }
            Kind::Quoted | Kind::Name => {
                let name = word.name().unwrap_or_default();
                let (before, after) = (&words[at - 1], words.get(at + 1));
                let calls = after.is_some_and(|next| next.is_sign("("));
                let is_last = after.is_none_or(|next| next.is_sign(","));
                let is_typed = before.is_sign("::") || before.is("as");
                let is_one_of = match name.as_str() {
                    "as" | "true" | "false" | "null" => true,
                    "cast" => calls,
                    fact if FACTS.contains(&fact) => calls || reword::is_bare(fact),
                    kind => {
                        is_typed && (asks || STRINGS.contains(&kind)) && reword::is_plain_type(kind)
                    }
                };
                // A name that the query gives a column, or one of the names that it may use.
                (before.is("as") && is_last) || (word.kind == Kind::Name && is_one_of)
            }
        };
        words.first().is_some_and(|word| word.is("select"))
            && words.len() > 1
            && words.iter().enumerate().skip(1).all(is_fact)
    }

    fn with<T>(
        &self,
        facts: Facts,
        call: impl FnOnce(&Database) -> Result<T, Report>,
    ) -> Result<T, Report> {
        let objects = self.backend.objects();
        let next = || {
            let mut next = lock(&self.next);
            *next = (*next + 1) % DATABASES;
            &self.filled[*next]
        };
        let free = self.filled.iter().find_map(|one| one.try_lock().ok());
        let mut filled = free.unwrap_or_else(|| lock(next()));
        if filled.as_ref().is_none_or(|(before, _)| *before != objects) {
            let failed =
                |error| Report::error("XX000", format!("the catalog can't be built: {error}"));
            *filled = Some((objects.clone(), Database::new(&objects).map_err(failed)?));
        }
        let Some((_, database)) = filled.as_ref() else {
            return Err(Report::error("XX000", "there is no catalog"));
        };
        *lock(&database.asking) = facts;
        *lock(&database.end) = Instant::now() + TIME_MAX;
        call(database)
    }

    /// The types of a query's parameters, and its columns.
    ///
    /// # Errors
    ///
    /// If the catalog can't be built.
    pub fn describe(&self, text: &str, facts: Facts) -> Result<(Vec<u32>, SchemaRef), Report> {
        check_length(text)?;
        self.with(facts, |database| {
            let words = words(text);
            let parameters = parameter_types(&words);
            let Prepared { schema, .. } = database.prepare(&words);
            Ok((parameters, schema))
        })
    }

    /// The rows of a query, and perhaps what the client should know.
    ///
    /// # Errors
    ///
    /// If it takes too long, or has too many rows.
    pub fn run(
        &self,
        text: &str,
        parameters: &[Parameter],
        facts: Facts,
    ) -> Result<(RecordBatch, Option<String>), Report> {
        check_length(text)?;
        self.with(facts, |database| {
            let words = words(text);
            let Prepared { schema, statement } = database.prepare(&words);
            let (rows, notice) = match statement {
                Ok(statement) => (rows(statement, parameters, &schema)?, None),
                Err(why) => {
                    let notice = format!(
                        "this query of the catalog is not supported, and returns no rows: {why}"
                    );
                    (vec![], Some(notice))
                }
            };
            let columns = schema.fields().iter().enumerate().map(|(at, field)| {
                let values = rows.iter().map(|row| &row[at]);
                column(field, values.collect::<Vec<_>>().as_slice())
            });
            let columns: Vec<ArrayRef> = columns.collect();
            let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let batch = RecordBatch::try_new_with_options(schema, columns, &options);
            batch
                .map(|batch| (batch, notice))
                .map_err(|error| Report::error("XX000", error.to_string()))
        })
    }
}

fn check_length(text: &str) -> Result<(), Report> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a query of the catalog may have {TEXT_BYTES_MAX} bytes at most");
    Err(Report::error("54000", message))
}

/// The type of each `$1`: that of the cast after it, else text.
fn parameter_types(words: &[Word<'_>]) -> Vec<u32> {
    let mut types = Vec::new();
    for (at, word) in words
        .iter()
        .enumerate()
        .filter(|(_, word)| word.kind == Kind::Parameter)
    {
        let number: usize = word.text[1..].parse().unwrap_or(0);
        // As many as PostgreSQL allows.
        if number == 0 || number > usize::from(u16::MAX) {
            continue;
        }
        if types.len() < number {
            types.resize(number, oid::TEXT);
        }
        let cast = words.get(at + 1).is_some_and(|word| word.is_sign("::"));
        if let Some((name, _)) = cast.then(|| reword::type_at(words, at + 2)).flatten() {
            types[number - 1] = by_name(&name).unwrap_or(oid::TEXT);
        }
    }
    types
}

/// A query for SQLite, or why there is none.
struct Prepared<'a> {
    schema: SchemaRef,
    statement: Result<Statement<'a>, String>,
}

impl Database {
    fn new(objects: &[Object]) -> rusqlite::Result<Database> {
        let mut sqlite = Connection::open_in_memory()?;
        let asking = Asking::default();
        // The views below call functions, which have to be known first.
        functions::add(&sqlite, fill::Names::default(), &asking)?;
        sqlite.execute_batch(include_str!("catalog/schema.sql"))?;
        let names = fill::fill(&sqlite, objects)?;
        functions::add(&sqlite, names, &asking)?;
        sqlite.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        sqlite.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 2)?;
        let end = Arc::new(Mutex::new(Instant::now() + TIME_MAX));
        let ends = Arc::clone(&end);
        let is_late = move || Instant::now() > *lock(&ends);
        sqlite.progress_handler(STEPS, Some(is_late))?;
        Ok(Database {
            sqlite,
            asking,
            end,
        })
    }

    fn prepare(&self, words: &[Word<'_>]) -> Prepared<'_> {
        let items = shape::items(words);
        let text = reword::reword(words)
            .ok_or_else(|| "its parentheses do not match, or it is nested too deeply".to_owned());
        let statement = text.and_then(|text| {
            let prepared = self
                .sqlite
                .prepare(&text)
                .map_err(|error| error.to_string())?;
            match prepared.readonly() {
                true => Ok(prepared),
                false => Err("it is not a query".to_owned()),
            }
        });
        let seen = |item: &shape::Item| field(&item.name, item.oid.unwrap_or(oid::TEXT));
        let fields: Vec<FieldRef> = match &statement {
            Err(_) => items.iter().map(seen).collect(),
            Ok(statement) => {
                let columns: Vec<_> = statement.columns().collect();
                let aligned =
                    items.len() == columns.len() && !items.iter().any(|item| item.is_star);
                let one = |(at, column): (usize, &rusqlite::Column<'_>)| {
                    let item = aligned.then(|| &items[at]);
                    let declared = column.decl_type().and_then(declared);
                    let oid = declared
                        .or_else(|| item.and_then(|item| item.oid))
                        .unwrap_or(oid::TEXT);
                    field(item.map_or(column.name(), |item| &item.name), oid)
                };
                columns.iter().enumerate().map(one).collect()
            }
        };
        Prepared {
            schema: Arc::new(Schema::new(fields)),
            statement,
        }
    }
}

/// The type of a column by its declaration in `schema.sql`.
fn declared(declared: &str) -> Option<u32> {
    Some(match declared {
        "OID_INT" => oid::OID,
        "NAME_TEXT" => oid::NAME,
        "CHAR_TEXT" => oid::CHAR,
        "TEXT" => oid::TEXT,
        "BOOL" => oid::BOOL,
        "INT2" => oid::INT2,
        "INT4" => oid::INT4,
        "INT8" => oid::INT8,
        "REAL" => oid::FLOAT8,
        "TEXT[]" | "INT2[]" | "OID_INT[]" => 1009,
        _ => return None,
    })
}

fn field(name: &str, oid: u32) -> FieldRef {
    let plain = |data_type| Arc::new(Field::new(name, data_type, true));
    match oid {
        oid::BOOL => plain(DataType::Boolean),
        oid::INT2 => plain(DataType::Int16),
        oid::INT4 => plain(DataType::Int32),
        oid::INT8 => plain(DataType::Int64),
        oid::FLOAT8 => plain(DataType::Float64),
        oid::OID => noted(name, DataType::Int64, oid),
        1009 => plain(DataType::List(Arc::new(Field::new_list_field(
            DataType::Utf8,
            true,
        )))),
        other => noted(name, DataType::Utf8, other),
    }
}

/// Runs a query to its end.
fn rows(
    mut statement: Statement<'_>,
    parameters: &[Parameter],
    schema: &Schema,
) -> Result<Vec<Vec<Value>>, Report> {
    let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::OperationInterrupted) => {
            Report::error("57014", "the query of the catalog took too long")
        }
        _ => Report::error("XX000", format!("the query of the catalog failed: {error}")),
    };
    // Numbers stay numbers, for columns of numbers are compared with them.
    let value = |parameter: &Parameter| match parameter {
        None => Value::Null,
        Some(text) => text
            .parse()
            .map_or_else(|_| Value::Text(text.clone()), Value::Integer),
    };
    let wanted = statement.parameter_count();
    let given = parameters
        .iter()
        .map(value)
        .chain(std::iter::repeat(Value::Null))
        .take(wanted);
    let given: Vec<Value> = given.collect();
    let mut found = statement.query(params_from_iter(given)).map_err(failed)?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next().map_err(failed)? {
        if rows.len() >= ROWS_MAX || bytes > ANSWER_BYTES_MAX {
            let message = format!(
                "the query of the catalog has more than {ROWS_MAX} rows, or {ANSWER_BYTES_MAX} bytes"
            );
            return Err(Report::error("54000", message));
        }
        let values = (0..schema.fields().len()).map(|at| match row.get_ref(at) {
            Ok(ValueRef::Integer(number)) => Value::Integer(number),
            Ok(ValueRef::Real(number)) => Value::Real(number),
            Ok(ValueRef::Text(text)) => Value::Text(String::from_utf8_lossy(text).into_owned()),
            Ok(ValueRef::Null | ValueRef::Blob(_)) | Err(_) => Value::Null,
        });
        let values: Vec<Value> = values.collect();
        let text = |value: &Value| match value {
            Value::Text(text) => text.len(),
            _ => 0,
        };
        bytes += values
            .iter()
            .map(|value| size_of_val(value) + text(value))
            .sum::<usize>();
        rows.push(values);
    }
    Ok(rows)
}

/// A column of the answer; what does not fit its type is NULL.
fn column(field: &Field, values: &[&Value]) -> ArrayRef {
    let number = |value: &&Value| match value {
        Value::Integer(number) => Some(*number),
        Value::Text(text) => text.parse().ok(),
        Value::Real(real) => Some(*real as i64),
        Value::Null | Value::Blob(_) => None,
    };
    let text = |value: &&Value| match value {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Real(real) => Some(real.to_string()),
        Value::Null | Value::Blob(_) => None,
    };
    match field.data_type() {
        DataType::Boolean => {
            let truth = |value: &&Value| match value {
                Value::Text(text) => Some(matches!(text.as_str(), "t" | "true" | "1")),
                other => number(other).map(|number| number != 0),
            };
            Arc::new(values.iter().map(truth).collect::<BooleanArray>())
        }
        DataType::Int16 => {
            let small = |value| number(value).and_then(|number| i16::try_from(number).ok());
            Arc::new(values.iter().map(small).collect::<Int16Array>())
        }
        DataType::Int32 => {
            let small = |value| number(value).and_then(|number| i32::try_from(number).ok());
            Arc::new(values.iter().map(small).collect::<Int32Array>())
        }
        DataType::Int64 => Arc::new(values.iter().map(number).collect::<Int64Array>()),
        DataType::Float64 => {
            let real = |value: &&Value| text(value).and_then(|text| text.parse::<f64>().ok());
            Arc::new(values.iter().map(real).collect::<Float64Array>())
        }
        DataType::List(_) => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for value in values {
                let list = text(value);
                for element in list.iter().flat_map(|list| elements(list)) {
                    lists.values().append_value(element);
                }
                lists.append(list.is_some());
            }
            Arc::new(lists.finish())
        }
        _ => Arc::new(values.iter().map(text).collect::<StringArray>()),
    }
}
