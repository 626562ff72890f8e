//! Statements over a table of PostgreSQL, whose parameters are arrays of strings: one for each column, so
//! that the same statement works for any number of rows, with one round trip.

use arrow_schema::DataType;

use crate::database::{Attempt, Failure, Select, Table, list, no_column, order, quoted, upsert};
use crate::format::sql_type_name;

/// A table, and the types that its columns have in the database.
pub(super) struct Statements {
    /// The table's name, quoted.
    name: String,
    /// The type of each declared column, without a length: a cast to `varchar(5)` would cut the value off.
    types: Vec<String>,
}

impl Statements {
    /// `actual` are the names and types of the table's columns.
    pub(super) fn new(table: &Table, actual: &[(String, String)]) -> Attempt<Statements> {
        let mut types = Vec::new();
        for field in table.schema.fields() {
            let Some((_, actual_type)) = actual.iter().find(|(name, _)| name == field.name())
            else {
                let names = actual.iter().map(|(name, _)| name.clone());
                return Err(no_column(field, &names.collect::<Vec<_>>()));
            };
            if !fits(field.data_type(), actual_type) {
                let (name, declared) = (field.name(), sql_type_name(field.data_type()));
                let reason = format!(
                    "column '{name}' is declared {declared}, but is {actual_type} in the database"
                );
                let hint =
                    "declare it with a type that fits; STRING fits every column that is read";
                return Err(Failure::new(reason).hint(hint));
            }
            types.push(actual_type.clone());
        }
        Ok(Statements {
            name: quoted_path(&table.name),
            types,
        })
    }

    /// The expression that reads a column.
    fn read(&self, table: &Table, column: usize) -> String {
        let name = quoted(table.schema.field(column).name());
        match self.types[column].as_str() {
            "timestamp with time zone" => format!("(t.{name} AT TIME ZONE 'UTC')::text"),
            _ => format!("t.{name}::text"),
        }
    }

    fn read_all(&self, table: &Table, columns: &[usize]) -> Vec<String> {
        let columns = columns.iter();
        columns.map(|&column| self.read(table, column)).collect()
    }

    /// All rows.
    pub(super) fn scan(&self, table: &Table, select: &Select) -> String {
        let columns = self.read_all(table, &select.columns).join(", ");
        let order = order(table, select);
        format!("SELECT {columns} FROM {} AS t{order}", self.name)
    }

    /// The number of a key, from 1, and its rows.
    pub(super) fn look_up(&self, table: &Table, select: &Select) -> String {
        let mut columns = vec!["k.n".to_string()];
        columns.extend(self.read_all(table, &select.columns));
        let equal = select.keys.iter().enumerate().map(|(index, &column)| {
            let field = table.schema.field(column);
            let (name, actual_type) = (quoted(field.name()), &self.types[column]);
            match key_type(field.data_type(), actual_type) {
                Some(cast) => format!("t.{name} = k.k{index}::{cast}"),
                None => format!("t.{name}::text = k.k{index}"),
            }
        });
        format!(
            "SELECT {} FROM unnest({}) WITH ORDINALITY AS k({}, n) JOIN {} AS t ON {}",
            columns.join(", "),
            arrays(select.keys.len()),
            aliases(select.keys.len()),
            self.name,
            equal.collect::<Vec<_>>().join(" AND ")
        )
    }

    /// Inserts rows, or replaces those with the same key.
    pub(super) fn insert(&self, table: &Table) -> String {
        let count = self.types.len();
        let values = self.types.iter().enumerate();
        let values = values.map(|(index, actual_type)| format!("k.k{index}::{actual_type}"));
        let all = (0..count).collect::<Vec<usize>>();
        format!(
            "INSERT INTO {} ({}) SELECT {} FROM unnest({}) AS k({}){}",
            self.name,
            list(&table.names(&all)),
            values.collect::<Vec<_>>().join(", "),
            arrays(count),
            aliases(count),
            upsert(table)
        )
    }

    /// Deletes the rows of some keys.
    pub(super) fn delete(&self, table: &Table) -> String {
        let equal = table.primary_key.iter().enumerate();
        let equal = equal.map(|(index, &column)| {
            let name = quoted(table.schema.field(column).name());
            format!("t.{name} = k.k{index}::{}", self.types[column])
        });
        let count = table.primary_key.len();
        format!(
            "DELETE FROM {} AS t USING unnest({}) AS k({}) WHERE {}",
            self.name,
            arrays(count),
            aliases(count),
            equal.collect::<Vec<_>>().join(" AND ")
        )
    }
}

/// `schema.table`, quoted.
pub(super) fn quoted_path(name: &str) -> String {
    name.split('.').map(quoted).collect::<Vec<_>>().join(".")
}

/// `$1::text[], $2::text[]`.
fn arrays(count: usize) -> String {
    let arrays = (1..=count).map(|number| format!("${number}::text[]"));
    arrays.collect::<Vec<_>>().join(", ")
}

/// `k0, k1`.
fn aliases(count: usize) -> String {
    let aliases = (0..count).map(|number| format!("k{number}"));
    aliases.collect::<Vec<_>>().join(", ")
}

/// Whether a column of the database can have the declared type.
fn fits(declared: &DataType, actual: &str) -> bool {
    let is_whole = matches!(actual, "smallint" | "integer" | "bigint");
    let is_float = matches!(actual, "real" | "double precision");
    let is_numeric = actual == "numeric";
    match declared {
        DataType::Boolean => actual == "boolean",
        DataType::Date32 => actual == "date",
        DataType::Timestamp(_, _) => actual.starts_with("timestamp "),
        DataType::Float32 | DataType::Float64 => is_whole || is_float || is_numeric,
        other if other.is_integer() => is_whole || is_numeric,
        DataType::Decimal128(_, _) => is_whole || is_numeric,
        _ => true,
    }
}

/// The type to which the text of a key is cast, so that an index is used and no value of the stream can fail:
/// a number that does not fit an `integer` is still a `bigint`. `None`: the column is compared as text.
fn key_type<'a>(declared: &DataType, actual: &'a str) -> Option<&'a str> {
    Some(match declared {
        DataType::Boolean | DataType::Date32 | DataType::Timestamp(_, _) => actual,
        DataType::Float32 | DataType::Float64 => "double precision",
        DataType::UInt64 | DataType::Decimal128(_, _) => "numeric",
        other if other.is_integer() => "bigint",
        _ => match actual {
            "text" | "character varying" | "name" => "text",
            "bpchar" | "character" => "bpchar",
            _ => return None,
        },
    })
}
