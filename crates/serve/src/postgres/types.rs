//! Arrow types as PostgreSQL's.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

/// A type as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PgType {
    /// Its number in `pg_type`.
    pub oid: u32,
    /// Its bytes; -1 if values differ.
    pub size: i16,
    /// Precision and scale of a NUMERIC; -1 for the others.
    pub modifier: i32,
}

/// The numbers of the types, as in every PostgreSQL.
pub mod oid {
    pub const BOOL: u32 = 16;
    pub const BYTEA: u32 = 17;
    pub const CHAR: u32 = 18;
    pub const NAME: u32 = 19;
    pub const INT8: u32 = 20;
    pub const INT2: u32 = 21;
    pub const INT4: u32 = 23;
    pub const TEXT: u32 = 25;
    pub const OID: u32 = 26;
    pub const JSON: u32 = 114;
    pub const FLOAT4: u32 = 700;
    pub const FLOAT8: u32 = 701;
    pub const BPCHAR: u32 = 1042;
    pub const VARCHAR: u32 = 1043;
    pub const DATE: u32 = 1082;
    pub const TIME: u32 = 1083;
    pub const TIMESTAMP: u32 = 1114;
    pub const TIMESTAMPTZ: u32 = 1184;
    pub const INTERVAL: u32 = 1186;
    pub const NUMERIC: u32 = 1700;
    pub const UUID: u32 = 2950;
    pub const JSONB: u32 = 3802;
}

/// A type of `pg_type`.
pub struct TypeRow {
    pub oid: u32,
    pub name: &'static str,
    /// What SQL calls it.
    pub sql: &'static str,
    pub size: i16,
    /// The letter of the kind of types that it belongs to.
    pub category: char,
    /// The array of such values.
    pub array: u32,
    /// The start of the names of its functions `…in`, `…out`, `…recv`, `…send`.
    pub functions: &'static str,
}

macro_rules! types {
    ($($oid:expr, $name:literal, $sql:literal, $size:literal, $category:literal, $array:literal,
       $functions:literal;)*) => {
        [$(TypeRow { oid: $oid, name: $name, sql: $sql, size: $size, category: $category,
                     array: $array, functions: $functions }),*]
    };
}

/// The types that columns, parameters and the catalog have.
pub const TYPES: [TypeRow; 22] = types! {
    oid::BOOL, "bool", "boolean", 1, 'B', 1000, "bool";
    oid::BYTEA, "bytea", "bytea", -1, 'U', 1001, "bytea";
    oid::CHAR, "char", "\"char\"", 1, 'Z', 1002, "char";
    oid::NAME, "name", "name", 64, 'S', 1003, "name";
    oid::INT8, "int8", "bigint", 8, 'N', 1016, "int8";
    oid::INT2, "int2", "smallint", 2, 'N', 1005, "int2";
    oid::INT4, "int4", "integer", 4, 'N', 1007, "int4";
    oid::TEXT, "text", "text", -1, 'S', 1009, "text";
    oid::OID, "oid", "oid", 4, 'N', 1028, "oid";
    oid::JSON, "json", "json", -1, 'U', 199, "json_";
    oid::FLOAT4, "float4", "real", 4, 'N', 1021, "float4";
    oid::FLOAT8, "float8", "double precision", 8, 'N', 1022, "float8";
    oid::BPCHAR, "bpchar", "character", -1, 'S', 1014, "bpchar";
    oid::VARCHAR, "varchar", "character varying", -1, 'S', 1015, "varchar";
    oid::DATE, "date", "date", 4, 'D', 1182, "date_";
    oid::TIME, "time", "time without time zone", 8, 'D', 1183, "time_";
    oid::TIMESTAMP, "timestamp", "timestamp without time zone", 8, 'D', 1115, "timestamp_";
    oid::TIMESTAMPTZ, "timestamptz", "timestamp with time zone", 8, 'D', 1185, "timestamptz_";
    oid::INTERVAL, "interval", "interval", 16, 'T', 1187, "interval_";
    oid::NUMERIC, "numeric", "numeric", -1, 'N', 1231, "numeric_";
    oid::UUID, "uuid", "uuid", 16, 'U', 2951, "uuid_";
    oid::JSONB, "jsonb", "jsonb", -1, 'U', 3807, "jsonb_";
};

/// The type with this number.
pub fn by_oid(oid: u32) -> Option<&'static TypeRow> {
    TYPES.iter().find(|row| row.oid == oid)
}

/// The type whose arrays have this number.
pub fn element_of(array: u32) -> Option<&'static TypeRow> {
    TYPES.iter().find(|row| row.array == array)
}

/// The number of a type that SQL or the catalog calls so.
pub fn by_name(name: &str) -> Option<u32> {
    let (element, is_array) = match name.strip_suffix("[]") {
        Some(element) => (element, true),
        None => (name, false),
    };
    let element = match element {
        "int" => "integer",
        "decimal" => "numeric",
        "float" | "double" => "double precision",
        // These are shown and taken as strings.
        "char" | "character" => "text",
        other => other,
    };
    let row = TYPES
        .iter()
        .find(|row| row.name == element || row.sql == element)?;
    Some(if is_array { row.array } else { row.oid })
}

/// What SQL calls a type, with precision and scale.
pub fn sql_name(oid: u32, modifier: i32) -> String {
    if let Some(element) = element_of(oid) {
        return format!("{}[]", element.sql);
    }
    match by_oid(oid) {
        Some(row) if oid == oid::NUMERIC && modifier >= 4 => {
            let packed = modifier - 4;
            format!("{}({},{})", row.sql, packed >> 16, packed & 0xffff)
        }
        Some(row) => row.sql.to_owned(),
        None => "???".to_owned(),
    }
}

/// The name of a field's note that says another type than its Arrow type would have.
const NOTE: &str = "postgres.oid";

/// A column of the catalog, which has types that the engine does not.
pub fn noted(name: &str, data_type: DataType, oid: u32) -> FieldRef {
    let note = [(NOTE.to_owned(), oid.to_string())];
    Arc::new(Field::new(name, data_type, true).with_metadata(note.into()))
}

impl PgType {
    fn new(oid: u32) -> PgType {
        PgType {
            oid,
            size: by_oid(oid).map_or(-1, |row| row.size),
            modifier: -1,
        }
    }

    /// The type of a column.
    pub fn of_field(field: &Field) -> PgType {
        let noted = field.metadata().get(NOTE).and_then(|oid| oid.parse().ok());
        noted.map_or_else(|| PgType::of(field.data_type()), PgType::new)
    }

    /// The type of values of an Arrow type.
    pub fn of(data_type: &DataType) -> PgType {
        let oid = match data_type {
            DataType::Boolean => oid::BOOL,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => oid::INT2,
            DataType::UInt16 | DataType::Int32 => oid::INT4,
            DataType::UInt32 | DataType::Int64 => oid::INT8,
            DataType::UInt64 => return numeric(20, 0),
            DataType::Float16 | DataType::Float32 => oid::FLOAT4,
            DataType::Float64 => oid::FLOAT8,
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => return numeric(*precision, *scale),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => oid::BYTEA,
            DataType::Date32 | DataType::Date64 => oid::DATE,
            DataType::Time32(_) | DataType::Time64(_) => oid::TIME,
            DataType::Timestamp(_, None) => oid::TIMESTAMP,
            DataType::Timestamp(_, Some(_)) => oid::TIMESTAMPTZ,
            DataType::Interval(_) | DataType::Duration(_) => oid::INTERVAL,
            DataType::List(element)
            | DataType::LargeList(element)
            | DataType::FixedSizeList(element, _) => {
                // PostgreSQL's arrays of arrays have rows of one length: others are JSON.
                let inner = PgType::of(element.data_type()).oid;
                by_oid(inner).map_or(oid::JSON, |row| row.array)
            }
            DataType::Struct(_) | DataType::Map(_, _) => oid::JSON,
            DataType::Null
            | DataType::Dictionary(_, _)
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::ListView(_)
            | DataType::LargeListView(_)
            | DataType::RunEndEncoded(_, _)
            | DataType::Union(_, _) => oid::TEXT,
        };
        PgType::new(oid)
    }
}

fn numeric(precision: u8, scale: i8) -> PgType {
    PgType {
        modifier: ((i32::from(precision) << 16) | (i32::from(scale) & 0xffff)) + 4,
        ..PgType::new(oid::NUMERIC)
    }
}
