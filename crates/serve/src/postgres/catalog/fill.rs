//! The rows of the catalog: one schema, `public`, with tables, views and materialized views.

use std::collections::HashMap;

use rusqlite::{Connection, Result, ToSql, params};

use crate::backend::{Object, ObjectKind};

use super::super::types::{PgType, TYPES, oid, sql_name};

/// The numbers of schemas, the owner and the database, as in a new PostgreSQL.
const PG_CATALOG: i64 = 11;
const PUBLIC: i64 = 2_200;
const INFORMATION_SCHEMA: i64 = 13_000;
const OWNER: i64 = 10;
const DATABASE: i64 = 5;
const BTREE: i64 = 403;
/// Numbers from here on belong to what users create.
const FIRST: i64 = 16_384;

/// The name of the database, and of the owner of everything in it.
pub const DATABASE_NAME: &str = "slackwater";
pub const OWNER_NAME: &str = "slackwater";

/// What functions of the catalog look up by number.
#[derive(Default)]
pub struct Names {
    pub relations: HashMap<i64, String>,
    pub numbers: HashMap<String, i64>,
    /// The statements that made views, and the text of keys.
    pub definitions: HashMap<i64, String>,
}

/// A number for a name, the same each time, which no other name has yet.
fn number(name: &str, names: &mut Names) -> i64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let mut number = FIRST + i64::from((hash >> 34) as u32);
    while names.relations.contains_key(&number) {
        number += 1;
    }
    names.relations.insert(number, name.to_owned());
    names.numbers.insert(name.to_owned(), number);
    number
}

/// A name as it is written in SQL, with quotes if it needs them.
pub fn quoted(name: &str) -> String {
    let plain = |character: char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_'
    };
    match name.chars().all(plain)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
    {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn insert(sqlite: &Connection, table: &str, values: &[&dyn ToSql]) -> Result<()> {
    let places = vec!["?"; values.len()].join(", ");
    sqlite
        .execute(&format!("INSERT INTO {table} VALUES ({places})"), values)
        .map(drop)
}

/// Fills the tables, and returns the names that functions look up.
pub fn fill(sqlite: &Connection, objects: &[Object]) -> Result<Names> {
    let schemas = [
        (PG_CATALOG, "pg_catalog"),
        (PUBLIC, "public"),
        (INFORMATION_SCHEMA, "information_schema"),
    ];
    for (number, name) in schemas {
        sqlite.execute(
            "INSERT INTO pg_namespace VALUES (?, ?, ?, NULL)",
            params![number, name, OWNER],
        )?;
        insert(
            sqlite,
            "schemata",
            &[&DATABASE_NAME, &name, &OWNER_NAME, &None::<String>],
        )?;
    }
    sqlite.execute(
        "INSERT INTO pg_database VALUES (?, ?, ?, 6, 'c', 0, 1, -1, 1663, 'C.UTF-8', 'C.UTF-8', NULL, \
         NULL, NULL)",
        params![DATABASE, DATABASE_NAME, OWNER],
    )?;
    sqlite.execute(
        "INSERT INTO pg_roles VALUES (?, ?, 0, 1, 0, 0, 1, 0, -1, '********', NULL, 0, NULL)",
        params![OWNER, OWNER_NAME],
    )?;
    sqlite.execute(
        "INSERT INTO pg_user VALUES (?, ?, 0, 0, 0, 0, '********', NULL, NULL)",
        params![OWNER_NAME, OWNER],
    )?;
    sqlite.execute_batch(
        "INSERT INTO pg_am VALUES (2, 'heap', 'heap_tableam_handler', 't'), (403, 'btree', 'bthandler', 'i');
         INSERT INTO pg_tablespace VALUES (1663, 'pg_default', 10, NULL, NULL);
         INSERT INTO pg_language VALUES (14, 'sql', 10, 0, 1);
         INSERT INTO pg_collation VALUES (100, 'default', 11, 10, 'd', 1, -1, NULL, NULL)",
    )?;
    types(sqlite)?;
    let mut names = Names::default();
    for object in objects
        .iter()
        .filter(|object| object.kind != ObjectKind::Sink)
    {
        relation(sqlite, object, &mut names)?;
    }
    Ok(names)
}

fn types(sqlite: &Connection) -> Result<()> {
    let mut statement = sqlite.prepare(
        "INSERT INTO pg_type VALUES (?1, ?2, 11, 10, ?3, ?4, 'b', ?5, 0, 1, ',', 0, ?6, ?7, ?8, ?9 || 'in', \
         ?9 || 'out', ?9 || 'recv', ?9 || 'send', 0, 0, -1, 0, ?10, NULL)",
    )?;
    for row in &TYPES {
        let category = row.category.to_string();
        let collation = if row.category == 'S' { 100 } else { 0 };
        let by_value = row.size > 0 && row.size <= 8;
        let none = "-";
        let values = params![
            row.oid,
            row.name,
            row.size,
            by_value,
            category,
            none,
            0,
            row.array,
            row.functions,
            collation
        ];
        statement.execute(values)?;
        let (name, subscript) = (format!("_{}", row.name), "array_subscript_handler");
        let values = params![
            row.array, name, -1, false, "A", subscript, row.oid, 0, "array_", collation
        ];
        statement.execute(values)?;
    }
    Ok(())
}

fn relation(sqlite: &Connection, object: &Object, names: &mut Names) -> Result<()> {
    let table = number(&object.name, names);
    // The statement of a table may have passwords of its connector.
    if matches!(object.kind, ObjectKind::View | ObjectKind::MaterializedView) {
        names.definitions.insert(table, object.definition.clone());
    }
    let keys: Vec<usize> = (0..object.columns.len())
        .filter(|at| object.columns[*at].is_key)
        .collect();
    let (letter, kind) = match object.kind {
        ObjectKind::Table | ObjectKind::Sink => ("r", "BASE TABLE"),
        ObjectKind::View => ("v", "VIEW"),
        ObjectKind::MaterializedView => ("m", "MATERIALIZED VIEW"),
    };
    class(
        sqlite,
        (table, &object.name),
        letter,
        object.columns.len(),
        !keys.is_empty(),
    )?;
    if object.kind == ObjectKind::View {
        let values: [&dyn ToSql; 7] = [
            &DATABASE_NAME,
            &"public",
            &object.name,
            &object.definition,
            &"NONE",
            &"NO",
            &"NO",
        ];
        insert(sqlite, "views", &values)?;
    }
    // As in PostgreSQL, materialized views are not part of the information schema's tables; clients that list
    // nothing else would not find them, so that they are here.
    let values: [&dyn ToSql; 8] = [
        &DATABASE_NAME,
        &"public",
        &object.name,
        &kind,
        &None::<String>,
        &"NO",
        &"NO",
        &None::<String>,
    ];
    insert(sqlite, "information_schema.tables", &values)?;
    for (at, column) in object.columns.iter().enumerate() {
        attribute(sqlite, table, at, column)?;
        column_row(sqlite, &object.name, at, column)?;
    }
    if !keys.is_empty() {
        key(sqlite, object, table, &keys, names)?;
    }
    Ok(())
}

fn class(
    sqlite: &Connection,
    (number, name): (i64, &str),
    kind: &str,
    columns: usize,
    has_index: bool,
) -> Result<()> {
    // Of an index, and of a table.
    let method = if kind == "i" { BTREE } else { 2 };
    sqlite.execute(
        "INSERT INTO pg_class VALUES (?1, ?2, ?3, 0, 0, ?4, ?5, ?1, 0, 0, -1, 0, 0, ?6, 0, 'p', ?7, ?8, \
         0, 0, 0, 0, 0, 0, 1, 'd', 0, 0, NULL, NULL, NULL)",
        params![number, name, PUBLIC, OWNER, method, has_index, kind, columns as i64],
    )?;
    Ok(())
}

fn attribute(
    sqlite: &Connection,
    table: i64,
    at: usize,
    column: &crate::backend::Column,
) -> Result<()> {
    let kind = PgType::of(&column.data_type);
    let dimensions = i64::from(super::super::types::element_of(kind.oid).is_some());
    let collation = if kind.oid == oid::TEXT { 100 } else { 0 };
    sqlite.execute(
        "INSERT INTO pg_attribute VALUES (?, ?, ?, -1, ?, ?, ?, -1, ?, 0, 'p', 'i', '', ?, 0, 0, '', '', \
         0, 1, 0, ?, NULL, NULL, NULL)",
        params![
            table,
            column.name,
            kind.oid,
            kind.size,
            at as i64 + 1,
            dimensions,
            kind.modifier,
            !column.nullable,
            collation
        ],
    )?;
    Ok(())
}

fn column_row(
    sqlite: &Connection,
    table: &str,
    at: usize,
    column: &crate::backend::Column,
) -> Result<()> {
    let kind = PgType::of(&column.data_type);
    let array = super::super::types::element_of(kind.oid);
    let name = super::super::types::by_oid(kind.oid).map_or("", |row| row.name);
    let name = array.map_or_else(|| name.to_owned(), |element| format!("_{}", element.name));
    let shown = if array.is_some() {
        "ARRAY".to_owned()
    } else {
        sql_name(kind.oid, -1)
    };
    let numeric =
        (kind.modifier >= 4).then(|| ((kind.modifier - 4) >> 16, (kind.modifier - 4) & 0xffff));
    let (precision, scale) = match kind.oid {
        oid::INT2 => (Some(16), Some(0)),
        oid::INT4 => (Some(32), Some(0)),
        oid::INT8 => (Some(64), Some(0)),
        oid::FLOAT4 => (Some(24), None),
        oid::FLOAT8 => (Some(53), None),
        _ => (numeric.map(|both| both.0), numeric.map(|both| both.1)),
    };
    let radix = precision.map(|_| if numeric.is_some() { 10 } else { 2 });
    let none = None::<String>;
    let time = matches!(
        kind.oid,
        oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::INTERVAL
    )
    .then_some(6);
    let nullable = if column.nullable { "YES" } else { "NO" };
    let values: [&dyn ToSql; 26] = [
        &DATABASE_NAME,
        &"public",
        &table,
        &column.name,
        &(at as i64 + 1),
        &none,
        &nullable,
        &shown,
        &none,
        &none,
        &precision,
        &radix,
        &scale,
        &time,
        &none,
        &none,
        &none,
        &none,
        &DATABASE_NAME,
        &"pg_catalog",
        &name,
        &"NO",
        &none,
        &"NEVER",
        &none,
        &"NO",
    ];
    insert(sqlite, "columns", &values)
}

/// The key of a view, as the index and the constraint of a PRIMARY KEY.
fn key(
    sqlite: &Connection,
    object: &Object,
    table: i64,
    keys: &[usize],
    names: &mut Names,
) -> Result<()> {
    let name = format!("{}_pkey", object.name);
    let index = number(&name, names);
    class(sqlite, (index, &name), "i", keys.len(), false)?;
    let columns = keys.iter().map(|at| quoted(&object.columns[*at].name));
    let list = columns.collect::<Vec<_>>().join(", ");
    for (place, at) in keys.iter().enumerate() {
        let column = &object.columns[*at];
        attribute(sqlite, index, place, column)?;
        let values: [&dyn ToSql; 9] = [
            &DATABASE_NAME,
            &"public",
            &name,
            &DATABASE_NAME,
            &"public",
            &object.name,
            &column.name,
            &(place as i64 + 1),
            &None::<i64>,
        ];
        insert(sqlite, "key_column_usage", &values)?;
    }
    let values: [&dyn ToSql; 9] = [
        &DATABASE_NAME,
        &"public",
        &name,
        &DATABASE_NAME,
        &"public",
        &object.name,
        &"PRIMARY KEY",
        &"NO",
        &"NO",
    ];
    insert(sqlite, "table_constraints", &values)?;
    let numbers: Vec<String> = keys.iter().map(|at| (at + 1).to_string()).collect();
    let numbers = format!("[{}]", numbers.join(","));
    sqlite.execute(
        "INSERT INTO pg_index VALUES (?, ?, ?, ?, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, ?, '[]', '[]', '[]', \
         NULL, NULL)",
        params![index, table, keys.len() as i64, keys.len() as i64, numbers],
    )?;
    let constraint = number(&format!("{name} constraint"), names);
    sqlite.execute(
        "INSERT INTO pg_constraint VALUES (?, ?, ?, 'p', 0, 0, 1, ?, 0, ?, 0, 0, ' ', ' ', ' ', 1, 0, 1, \
         ?, NULL, NULL)",
        params![constraint, name, PUBLIC, table, index, numbers],
    )?;
    names
        .definitions
        .insert(constraint, format!("PRIMARY KEY ({list})"));
    let definition = format!(
        "CREATE UNIQUE INDEX {} ON public.{} USING btree ({list})",
        quoted(&name),
        quoted(&object.name)
    );
    names.definitions.insert(index, definition);
    Ok(())
}
