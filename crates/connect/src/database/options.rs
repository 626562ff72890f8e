//! Reads the options of database tables.

use std::sync::Arc;

use slackwater_engine::operator::lookup_join::CacheSettings;

use super::{Server, Table};
use crate::format::{is_scalar, sql_type_name};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// Attempts after the first one, which together wait 3.1 s: as long as a server takes to restart.
const RETRIES: u64 = 5;

/// The size of a cache for which only the time is set.
const CACHE_ROWS: u64 = 10_000;

/// Rejects columns of types that databases don't have.
pub(crate) fn check_columns(
    definition: &TableDefinition,
    connector: &str,
) -> Result<(), OptionError> {
    if let Some(field) = (definition.schema.fields().iter()).find(|f| !is_scalar(f.data_type())) {
        let (name, type_name) = (field.name(), sql_type_name(field.data_type()));
        return Err(OptionError::table(
            format!("column '{name}' is {type_name}, which {connector} does not have"),
            "declare it as STRING and cast it in the query",
        ));
    }
    if definition.schema.fields().is_empty() {
        return Err(OptionError::table(
            "the table has no column",
            "declare at least one",
        ));
    }
    Ok(())
}

/// Makes the table. `place` names its database, for messages.
pub(crate) fn open(
    definition: &TableDefinition,
    options: &Options<'_>,
    connector: &'static str,
    place: &str,
    server: Arc<dyn Server>,
) -> Result<Arc<Table>, OptionError> {
    let name = options.text("table-name").unwrap_or(&definition.name);
    let sink_name = options.text("sink.name").unwrap_or(&definition.name);
    if sink_name.is_empty() {
        let hint = "write a name that no other query uses, or leave it out";
        return Err(OptionError::new("sink.name", "is empty", hint));
    }
    let names = ["max-retries", "lookup.max_retries", "lookup.max-retries"];
    let retries = one_of(options, &names, |name| {
        options.number(name, None, 0..=1_000)
    })?;
    Ok(Arc::new(Table {
        place: format!("{connector} {place}, table {name}"),
        connector,
        database: place.to_string(),
        name: name.to_string(),
        schema: Arc::clone(&definition.schema),
        primary_key: definition.primary_key.clone(),
        sink_name: sink_name.to_string(),
        retries: retries.unwrap_or(RETRIES) as u32,
        cache: cache(options)?,
        server,
    }))
}

fn cache(options: &Options<'_>) -> Result<CacheSettings, OptionError> {
    let names = ["lookup.cache.max_rows", "lookup.partial-cache.max-rows"];
    let rows = one_of(options, &names, |name| {
        options.number(name, None, 2..=1_000_000_000)
    })?;
    let names = [
        "lookup.cache.ttl",
        "lookup.partial-cache.expire-after-write",
    ];
    let ttl_ns = one_of(options, &names, |name| options.duration_ns(name))?;
    let is_said = rows.is_some() || ttl_ns.is_some();
    let kind = options.text("lookup.cache").unwrap_or(match is_said {
        true => "partial",
        false => "none",
    });
    if kind.eq_ignore_ascii_case("full") {
        let hint = "leave FOR SYSTEM_TIME AS OF out: the table is then read once, when the query starts; \
            or write \
                    'lookup.cache.max_rows' = '10000'";
        let reason = "'full' is not a valid value";
        return Err(OptionError::new("lookup.cache", reason, hint));
    }
    let kinds = [("none", false), ("partial", true)];
    if !options.choice("lookup.cache", &kinds, is_said)? {
        if is_said {
            let reason = format!("'{kind}' contradicts the cache's size or time");
            let hint = "leave one of them out";
            return Err(OptionError::new("lookup.cache", reason, hint));
        }
        return Ok(CacheSettings::default());
    }
    Ok(CacheSettings {
        rows_max: rows.unwrap_or(CACHE_ROWS) as usize,
        ttl_ns,
    })
}

/// The value of an option with several names.
fn one_of<T>(
    options: &Options<'_>,
    names: &[&'static str],
    read: impl Fn(&str) -> Result<Option<T>, OptionError>,
) -> Result<Option<T>, OptionError> {
    let mut given = names.iter().filter(|name| options.text(name).is_some());
    match (given.next(), given.next()) {
        (Some(one), Some(other)) => Err(OptionError::new(
            *other,
            format!("means the same as '{one}'"),
            "leave one of them out",
        )),
        (Some(name), None) => read(name),
        _ => Ok(None),
    }
}
