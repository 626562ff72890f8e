//! A table as a statement.

use slackwater_sql::table::Table;
use slackwater_sql::types::sql_name;

/// The CREATE TABLE statement of a table, with its physical columns.
pub fn written(table: &Table) -> String {
    let name = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let columns = table.physical.fields().iter();
    let columns =
        columns.map(|field| format!("{} {}", name(field.name()), sql_name(field.data_type())));
    let options = table.options.iter();
    let options = options.map(|(key, value)| format!("{} = {}", text(key), text(value)));
    format!(
        "CREATE TABLE {} ({}) WITH ({})",
        name(&table.name),
        columns.collect::<Vec<String>>().join(", "),
        options.collect::<Vec<String>>().join(", ")
    )
}
