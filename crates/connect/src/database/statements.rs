//! Parts of statements, and messages, that are the same for both databases.

use arrow_schema::Field;

use super::{Failure, Select, Table};
use crate::options::nearest;

/// A name in double quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names, quoted.
pub(crate) fn list(names: &[&str]) -> String {
    let names = names.iter().map(|name| quoted(name));
    names.collect::<Vec<_>>().join(", ")
}

/// A stable order: by the primary key, or by all columns that are read. The table's alias is `t`.
pub(crate) fn order(table: &Table, select: &Select) -> String {
    let by = match table.primary_key.is_empty() {
        true => &select.columns,
        false => &table.primary_key,
    };
    // Without the table's alias it would refer to the column of the answer, which is text.
    let names = table.names(by).into_iter();
    let names = names.map(|name| format!("t.{}", quoted(name)));
    match by.is_empty() {
        true => String::new(),
        false => format!(" ORDER BY {}", names.collect::<Vec<_>>().join(", ")),
    }
}

/// The clause that is added to an INSERT into a table with a primary key.
pub(crate) fn upsert(table: &Table) -> String {
    if table.primary_key.is_empty() {
        return String::new();
    }
    let others = (0..table.schema.fields().len()).filter(|c| !table.primary_key.contains(c));
    let others = others.map(|column| {
        let name = quoted(table.schema.field(column).name());
        format!("{name} = excluded.{name}")
    });
    let others = others.collect::<Vec<_>>().join(", ");
    let key = list(&table.names(&table.primary_key));
    match others.is_empty() {
        true => format!(" ON CONFLICT ({key}) DO NOTHING"),
        false => format!(" ON CONFLICT ({key}) DO UPDATE SET {others}"),
    }
}

/// The failure: there is no table of this name.
pub(crate) fn no_table(name: &str, tables: &[String]) -> Failure {
    let tables = tables.iter().map(String::as_str).collect::<Vec<_>>();
    Failure::new(format!("there is no table '{name}'")).hint(match nearest(name, &tables) {
        Some(near) => format!("did you mean '{near}'? 'table-name' says which one it is"),
        None => "create it first, or name another with 'table-name'".to_string(),
    })
}

/// The failure: the table has no such column.
pub(crate) fn no_column(field: &Field, columns: &[String]) -> Failure {
    Failure::new(format!("it has no column '{}'", field.name()))
        .hint(format!("its columns are: {}", columns.join(", ")))
}
