//! The connectors by which a program's tables are read and written, for the SQL layer.
//!
//! The tests of `crates/sql` compile this file too, so it uses nothing from this crate.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use slackwater_connect::{Findings, OptionError, TableDefinition};
use slackwater_engine::accumulator::AccumulatorFactory;
use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;
use slackwater_sql::connectors::Connectors;
use slackwater_sql::error::{Place, Result, SqlError};
use slackwater_sql::functions::operator::OperatorFunction;
use slackwater_sql::functions::{self, DeclaredFunction, Failure};
use slackwater_sql::statement::{Body, CreateFunction, CreateTable, Language};
use slackwater_sql::table::{CHANGELOG, HOST, LATE_ROWS, Table};
use slackwater_sql::types::sql_name;
use slackwater_udf::{Definition, Function, Mode};

use super::aggregates::Factory;
use super::operators::{self, Calls};
use super::wasm;

/// The connectors of this build.
pub struct BuiltIn;

/// The table as connectors see it.
pub(super) fn definition(table: &Table) -> TableDefinition {
    let mut options = table.options.clone();
    // The query acts on these, not the connector.
    options.remove(LATE_ROWS);
    options.remove(HOST);
    TableDefinition {
        name: table.name.clone(),
        schema: table.physical.clone(),
        metadata: table.metadata.clone(),
        primary_key: table.primary_key.clone(),
        findings: Findings::Look,
        options,
        formats: functions::formats(),
    }
}

/// The table as its sink sees it: with the column for the kind of change, if the table asks for one.
fn written(table: &Table) -> TableDefinition {
    let mut definition = definition(table);
    let Some(name) = definition.options.remove(CHANGELOG) else {
        return definition;
    };
    let own = Arc::new(Field::new(name, DataType::Utf8View, true));
    let fields = [own].into_iter();
    let fields = fields.chain(table.physical.fields().iter().cloned());
    definition.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    definition.metadata = table
        .metadata
        .iter()
        .map(|(at, key)| (at + 1, key.clone()))
        .collect();
    // Each change is written as a separate row.
    definition.primary_key = Vec::new();
    definition
}

/// The error for a wrong option, at its place in the SQL.
pub fn option_error(table: &Table, error: OptionError) -> SqlError {
    let place = error
        .option
        .as_ref()
        .and_then(|option| table.option_places.get(option));
    SqlError::new(reason(&table.name, &error))
        .at(place.copied().unwrap_or(table.span))
        .hint(error.hint)
}

fn reason(table: &str, error: &OptionError) -> String {
    match &error.option {
        Some(option) => format!("table '{table}', option '{option}': {}", error.reason),
        None => format!("table '{table}': {}", error.reason),
    }
}

impl Connectors for BuiltIn {
    fn source(&self, table: &Table) -> Result<Arc<dyn SourceConnector>> {
        let connector = slackwater_connect::source(&definition(table));
        connector.map_err(|error| option_error(table, error))
    }

    fn sink(&self, table: Option<&Table>, schema: &SchemaRef) -> Result<Arc<dyn SinkConnector>> {
        match table {
            None => Ok(slackwater_connect::print(schema)),
            Some(table) => slackwater_connect::sink(&written(table))
                .map_err(|error| option_error(table, error)),
        }
    }

    fn lookup(&self, table: &Table) -> Result<Option<Arc<dyn LookupConnector>>> {
        let connector = slackwater_connect::lookup(&definition(table));
        connector.map_err(|error| option_error(table, error))
    }

    fn translate(&self, create: &mut CreateTable) -> Result<()> {
        let renamed = slackwater_connect::renamed(&create.options).map_err(|error| {
            let option = error.option.as_ref();
            let place = option.and_then(|option| create.option_places.get(option));
            SqlError::new(reason(&create.name.value, &error))
                .at(place.copied().unwrap_or(create.name.span))
                .hint(error.hint)
        })?;
        for (theirs, ours) in renamed {
            create.options.remove(&theirs);
            let place = create.option_places.remove(&theirs);
            let Some((name, value)) = ours else { continue };
            if let Some(place) = place {
                create.option_places.insert(name.clone(), place);
            }
            create.options.insert(name, value);
        }
        Ok(())
    }

    fn function(&self, create: &CreateFunction) -> Result<Arc<dyn DeclaredFunction>> {
        match &create.body {
            Body::Text(text) => declared(create, text.clone(), None),
            Body::File(path) => declared(create, file_text(create, path)?, Some(path)),
        }
    }

    fn check(&self, table: &Table) -> Result<()> {
        for option in table.options.keys() {
            let known = slackwater_connect::known_table_options().contains(&option.as_str());
            if !known && slackwater_sql::settings::setting(option).is_some() {
                let value = &table.options[option];
                return Err(SqlError::new(format!(
                    "'{option}' is a setting of the query, not an option of a table"
                ))
                .at(table
                    .option_places
                    .get(option)
                    .copied()
                    .unwrap_or(table.span))
                .hint(format!("SET '{option}' = '{value}'")));
            }
        }
        let per_host = table.options.get("files");
        let per_host = per_host.is_some_and(|files| files.eq_ignore_ascii_case("per_host"));
        if per_host && table.options.contains_key(HOST) {
            let place = table.option_places.get("files").copied();
            return Err(SqlError::new(format!(
                "table '{}', option 'files': each host would read its own files, and '{HOST}' names one",
                table.name
            ))
            .at(place.unwrap_or(table.span))
            .hint("leave one of the two out"));
        }
        if table.options.contains_key("connector") {
            return Ok(());
        }
        Err(
            SqlError::new(format!("table '{}' has no 'connector'", table.name))
                .at(table.span)
                .hint("CREATE TABLE … (…) WITH ('connector' = 'file', 'path' = 'in.csv')"),
        )
    }

    fn table_options(&self) -> Vec<String> {
        let known = slackwater_connect::known_table_options().iter();
        let own = functions::formats();
        let own = own.iter().flat_map(|format| format.options().to_vec());
        known.map(|name| name.to_string()).chain(own).collect()
    }
}

/// The text of a function's file. A binary module in WebAssembly is written in Base64.
fn file_text(create: &CreateFunction, path: &str) -> Result<String> {
    let text = match create.language {
        Language::Python => std::fs::read_to_string(path),
        Language::Wasm => std::fs::read(path).map(|bytes| wasm::text(&bytes)),
    };
    text.map_err(|error| {
        let error = format!("function '{}': {path}: {error}", create.name.value);
        SqlError::new(error)
            .at(create.span)
            .hint("relative paths begin in the folder in which the program runs")
    })
}

/// A function with this text, which is in the SQL or was read from a file.
pub(super) fn declared(
    create: &CreateFunction,
    text: String,
    file: Option<&str>,
) -> Result<Arc<dyn DeclaredFunction>> {
    match create.language {
        Language::Python => in_python(create, text, file),
        Language::Wasm => wasm::declared(create, text, file),
    }
}

fn in_python(
    create: &CreateFunction,
    text: String,
    file: Option<&str>,
) -> Result<Arc<dyn DeclaredFunction>> {
    let name = &create.name.value;
    let types: Vec<&DataType> = match &create.table {
        Some(table) => operators::types(table).collect(),
        None => create.arguments.iter().chain([&create.result]).collect(),
    };
    for data_type in types {
        if let Some(part) = slackwater_udf::unsupported(data_type) {
            let error = format!(
                "function '{name}': values of {} can't be passed",
                sql_name(part)
            );
            return Err(SqlError::new(error)
                .at(create.name.span)
                .hint("CAST them to another type, such as STRING"));
        }
    }
    let options = &create.options;
    let definition = Definition {
        name: name.clone(),
        handler: options.handler.clone().unwrap_or_else(|| name.clone()),
        text,
        file: file.map_or_else(|| format!("<function {name}>"), str::to_string),
        arguments: create.arguments.clone(),
        result: create.result.clone(),
        is_aggregate: create.is_aggregate,
        table: create.table.as_ref().map(operators::unplanned),
        mode: match options.columns {
            true => Mode::Columns,
            false => Mode::Rows,
        },
        takes_nulls: options.nulls,
        workers: options.workers,
        memory: options.memory,
        timeout: Duration::from_nanos(options.timeout_ns),
        python: options.python.clone(),
    };
    let calls = create.table.as_ref().map(|table| {
        let calls = Calls::new(definition.clone(), table.clone());
        Arc::new(calls)
    });
    Ok(Arc::new(InPython {
        function: Arc::new(Function::new(definition)),
        calls,
        place: SqlError::new("").at(create.span).place,
        is_file: file.is_some(),
    }))
}

/// A function in Python, and where its text begins.
struct InPython {
    function: Arc<Function>,
    /// The calls of one that returns a table.
    calls: Option<Arc<Calls>>,
    /// The place of the text in the SQL, or of the path of its file.
    place: Option<Place>,
    is_file: bool,
}

impl DeclaredFunction for InPython {
    fn call(&self, columns: &[ArrayRef], rows: usize) -> std::result::Result<ArrayRef, Failure> {
        let called = self.function.call(columns, rows);
        called.map_err(|failure| Failure {
            reason: failure.reason,
            row: failure.row,
            is_final: failure.is_final,
        })
    }

    fn accumulators(&self) -> Option<Arc<dyn AccumulatorFactory>> {
        let is_aggregate = self.function.definition().is_aggregate;
        is_aggregate.then(|| Arc::new(Factory(Arc::clone(&self.function))) as _)
    }

    fn operator(&self) -> Option<Arc<OperatorFunction>> {
        self.calls.as_ref().map(Calls::operator)
    }

    fn start(&self, keep: bool) -> Result<()> {
        let made = self.calls.as_ref().map(|calls| calls.made());
        let made = made.filter(|made| !made.is_empty());
        let started = match &made {
            Some(made) => made.iter().try_for_each(|function| function.start(keep)),
            // Only to check its text.
            None => self.function.start(keep && self.calls.is_none()),
        };
        let Err(problem) = started else {
            return Ok(());
        };
        let mut error = SqlError::new(problem.message).hint(problem.hint);
        error.place = self.place;
        match (problem.place, &mut error.place) {
            (Some((line, column)), _) if self.is_file => {
                let file = &self.function.definition().file;
                error.message = format!("{file}:{line}:{}: {}", column.max(1), error.message);
            }
            // The first line of the text is that of its $$.
            (Some((line, column)), Some(place)) => {
                *place = Place {
                    line: place.line + line - 1,
                    column: match line {
                        1 => place.column + column.max(1) - 1,
                        _ => column.max(1),
                    },
                    length: 1,
                };
            }
            _ => {}
        }
        Err(error)
    }

    fn end(&self) {
        self.function.end();
        let made = self.calls.iter().flat_map(|calls| calls.made());
        made.for_each(|function| function.end());
    }

    fn describe(&self) -> String {
        let definition = self.function.definition();
        let called = match (definition.mode, definition.is_aggregate) {
            (Mode::Rows, _) => "a row",
            (Mode::Columns, false) => "a chunk",
            (Mode::Columns, true) => "a group of a chunk",
        };
        let table = definition.table.as_ref();
        let called = match table.and_then(|table| table.state.as_ref()) {
            Some(_) => "a row and the state of its key",
            None => called,
        };
        let workers = match definition.workers {
            None => "a worker for each thread that calls it".to_string(),
            Some(1) => "at most 1 worker in a process".to_string(),
            Some(most) => format!("at most {most} workers in a process"),
        };
        format!("Python, {called} at a time; {workers}")
    }

    fn file_text(&self) -> Option<&str> {
        let definition = self.function.definition();
        self.is_file.then_some(definition.text.as_str())
    }
}
