//! Formats that a build adds: `CREATE TABLE … WITH ('format' = 'name', 'name.option' = '…')`.
//!
//! A build registers a name, the names of the options, and a function that is asked for each table
//! ([`Table`]) how its records are read and written ([`Format`]). See `docs/connectors/formats.md`.

mod decode;
mod encode;
mod table;
mod values;

use std::fmt;
use std::sync::Arc;

use slackwater_engine::format::{RecordDecoder, RecordEncoder, RecordFormat, RecordTable, Records};

use super::operator::Row;
use decode::Decoder;
use encode::Encoder;
use table::Wanted;

pub use decode::Decoded;
pub use slackwater_engine::format::{FormatError, ROWS_OF_RECORD_MAX};
pub use table::Table;
pub use values::Value;

type Decode = dyn Fn(&[u8], &mut Decoded<'_>) -> Result<(), String> + Send + Sync;
type Encode = dyn Fn(&Row<'_>, &mut Vec<u8>) -> Result<(), String> + Send + Sync;
type Plan = dyn Fn(&Table<'_>) -> Result<Format, FormatError> + Send + Sync;

/// How the records of a table are read and written.
#[derive(Clone, Default)]
pub struct Format {
    decode: Option<Arc<Decode>>,
    encode: Option<Arc<Encode>>,
}

impl Format {
    /// A format that can neither be read nor written yet.
    pub fn new() -> Format {
        Format::default()
    }

    /// Says how a record is read: a line without its line end, or a message. The function emits any number of
    /// rows, up to [`ROWS_OF_RECORD_MAX`]. An error or a panic rejects the record: none of its rows are kept.
    /// Each record is read alone, and several threads read those of one file.
    #[must_use]
    pub fn decoder(
        mut self,
        decode: impl Fn(&[u8], &mut Decoded<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Format {
        self.decode = Some(Arc::new(decode));
        self
    }

    /// Says how a row is written: the function gets an empty vector for the bytes of the record, without a
    /// line end. An error or a panic ends the query.
    #[must_use]
    pub fn encoder(
        mut self,
        encode: impl Fn(&Row<'_>, &mut Vec<u8>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Format {
        self.encode = Some(Arc::new(encode));
        self
    }
}

/// A format of the language.
pub(super) struct FormatFunction {
    name: String,
    /// The names of the options, as tables have them.
    options: Vec<String>,
    plan: Box<Plan>,
}

impl FormatFunction {
    pub(super) fn new(
        name: &str,
        options: &[&str],
        plan: impl Fn(&Table<'_>) -> Result<Format, FormatError> + Send + Sync + 'static,
    ) -> FormatFunction {
        let name = name.to_lowercase();
        FormatFunction {
            options: (options.iter().map(|option| format!("{name}.{option}"))).collect(),
            name,
            plan: Box::new(plan),
        }
    }
}

impl fmt::Debug for FormatFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "format {}", self.name)
    }
}

impl RecordFormat for FormatFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn options(&self) -> &[String] {
        &self.options
    }

    fn records(&self, table: &RecordTable<'_>) -> Result<Arc<dyn Records>, FormatError> {
        let asked = Table::new(&self.name, &self.options, table);
        let format = (self.plan)(&asked)?;
        let (is_able, reason) = match table.is_written {
            true => (format.encode.is_some(), "can only be read"),
            false => (format.decode.is_some(), "can only be written"),
        };
        if !is_able {
            return Err(FormatError {
                option: Some("format".to_string()),
                reason: format!("'{}' {reason}", self.name),
                hint: "use another format, such as 'json'".to_string(),
            });
        }
        Ok(Arc::new(OfTable {
            name: self.name.clone(),
            schema: Arc::clone(table.schema),
            wanted: asked.wanted()?,
            format,
        }))
    }
}

/// The records of a table.
struct OfTable {
    name: String,
    schema: arrow_schema::SchemaRef,
    wanted: Vec<Wanted>,
    format: Format,
}

impl fmt::Debug for OfTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "records of format {}", self.name)
    }
}

impl Records for OfTable {
    fn decoder(&self, projection: &[usize]) -> Box<dyn RecordDecoder> {
        let decode = self.format.decode.clone();
        let decode = decode.unwrap_or_else(|| Arc::new(|_, _| Err("can't be read".to_string())));
        Box::new(Decoder::new(decode, &self.wanted, &self.schema, projection))
    }

    fn encoder(&self) -> Box<dyn RecordEncoder> {
        let encode = self.format.encode.clone();
        let encode = encode.unwrap_or_else(|| Arc::new(|_, _| Err("can't be written".to_string())));
        Box::new(Encoder::new(encode, &self.wanted, &self.name))
    }
}

#[cfg(test)]
mod tests;
