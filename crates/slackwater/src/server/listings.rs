//! The answers of SHOW and DESCRIBE.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use slackwater_serve::backend::{Column, JobState, Status};
use slackwater_sql::session::Session;
use slackwater_sql::settings::SETTINGS;
use slackwater_sql::statement::server::Listing;
use slackwater_sql::types::sql_name;

use super::catalog::Kind;
use super::declared::Known;

/// A row of strings; `None` for NULL.
type Strings = Vec<Option<String>>;

/// The columns of a listing.
pub fn columns(listing: Listing) -> SchemaRef {
    strings(match listing {
        Listing::Tables => &["name", "connector"],
        Listing::Views => &["name"],
        Listing::MaterializedViews => &["name", "status"],
        Listing::Sinks => &["name", "connector", "status"],
        Listing::Jobs => &[
            "name", "kind", "status", "process", "starts", "reason", "settings", "state",
        ],
        Listing::Functions => &["name"],
        Listing::Settings => &["name", "value", "default", "description"],
    })
}

/// Columns of strings.
pub fn strings(names: &[&str]) -> SchemaRef {
    let fields = names
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, true));
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

/// Rows of strings.
pub fn rows(schema: &SchemaRef, rows: &[Strings]) -> RecordBatch {
    let columns = (0..schema.fields().len()).map(|column| {
        let values = rows.iter().map(|row| row[column].as_deref());
        Arc::new(values.collect::<StringArray>()) as ArrayRef
    });
    let columns = columns.collect::<Vec<ArrayRef>>();
    RecordBatch::try_new(Arc::clone(schema), columns).expect("each row has a text for each column")
}

/// The words of a status.
pub fn status(status: &Status) -> &'static str {
    match status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Stopped => "stopped",
        Status::Finished => "finished",
        Status::Failed { .. } => "failed",
    }
}

/// What was declared, as SHOW lists it. `state` knows the state of jobs.
pub fn declared<'a>(
    listing: Listing,
    known: impl Iterator<Item = &'a Known>,
    state: impl Fn(&str) -> Option<JobState>,
) -> RecordBatch {
    let row = |known: &Known| -> Option<Strings> {
        let name = || Some(known.object.name.clone());
        let state = || state(&known.object.name);
        let in_words = || state().map(|state| status(&state.status).to_string());
        let connector = || known.connector.clone();
        Some(match (listing, known.object.kind) {
            (Listing::Tables, Kind::Table) => vec![name(), connector()],
            (Listing::Views, Kind::View) | (Listing::Functions, Kind::Function) => vec![name()],
            (Listing::MaterializedViews, Kind::MaterializedView) => vec![name(), in_words()],
            (Listing::Sinks, Kind::Sink) => vec![name(), connector(), in_words()],
            (Listing::Jobs, kind) if kind.is_job() => {
                let state = state()?;
                let reason = match &state.status {
                    Status::Failed { reason } => Some(reason.clone()),
                    _ => None,
                };
                vec![
                    name(),
                    Some(kind.name().to_string()),
                    in_words(),
                    state.process.map(|process| process.to_string()),
                    Some(state.starts.to_string()),
                    reason,
                    Some(pairs(&known.object.settings)),
                    Some(known.object.state.clone()),
                ]
            }
            _ => return None,
        })
    };
    rows(
        &columns(listing),
        &known.filter_map(row).collect::<Vec<Strings>>(),
    )
}

/// Settings as SQL writes them.
fn pairs(settings: &[(String, String)]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let pairs = settings.iter();
    let pairs = pairs.map(|(key, value)| format!("{} = {}", quoted(key), quoted(value)));
    pairs.collect::<Vec<String>>().join(", ")
}

/// The functions that queries can call: those of SQL, and those that were declared.
pub fn functions<'a>(known: impl Iterator<Item = &'a Known>) -> RecordBatch {
    let session = Session::new();
    let names = session.function_names().into_iter();
    // The others are of the planner.
    let names = names.filter(|name| !name.starts_with("__"));
    let declared = known.filter(|known| known.object.kind == Kind::Function);
    let names = names.chain(declared.map(|known| &known.object.name));
    let names = names.collect::<BTreeSet<&String>>().into_iter();
    let names = names.map(|name| vec![Some(name.clone())]);
    rows(
        &columns(Listing::Functions),
        &names.collect::<Vec<Strings>>(),
    )
}

/// All settings, with their values in a session.
pub fn settings(set: &[(String, String)]) -> RecordBatch {
    let row = |setting: &slackwater_sql::settings::Setting| {
        let own = set.iter().rev().find(|(key, _)| key == setting.name);
        let default = setting.default.to_string();
        let value = own.map_or_else(|| default.clone(), |(_, value)| value.clone());
        vec![
            Some(setting.name.to_string()),
            Some(value),
            Some(default),
            Some(setting.meaning.to_string()),
        ]
    };
    let all = SETTINGS.iter().map(row).collect::<Vec<Strings>>();
    rows(&columns(Listing::Settings), &all)
}

/// The value of a setting in such a list.
pub fn find(settings: &RecordBatch, name: &str) -> Option<String> {
    let names = settings.column(0).as_string::<i32>();
    let found = (0..names.len()).find(|&row| names.value(row) == name)?;
    Some(
        settings
            .column(1)
            .as_string::<i32>()
            .value(found)
            .to_string(),
    )
}

/// The columns of DESCRIBE.
pub fn described() -> SchemaRef {
    strings(&["name", "type", "null", "key"])
}

/// The answer of DESCRIBE.
pub fn describe(of: &[Column]) -> RecordBatch {
    let row = |column: &Column| {
        let yes = |is: bool, yes: &str| Some(if is { yes.to_string() } else { String::new() });
        vec![
            Some(column.name.clone()),
            Some(sql_name(&column.data_type)),
            yes(!column.nullable, "NOT NULL"),
            yes(column.is_key, "PRIMARY KEY"),
        ]
    };
    rows(&described(), &of.iter().map(row).collect::<Vec<Strings>>())
}
