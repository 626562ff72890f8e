//! A table whose rows are records of a format that a build adds: its columns and options.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use arrow_schema::{DataType, SchemaRef};
use slackwater_engine::format::{FormatError, RecordTable};

use super::values::{Store, Value, store_of};
use crate::error::nearest;
use crate::functions::operator::Column;
use crate::functions::values::fits;
use crate::types::sql_name;

/// A table of a format. The format asks for the columns and options that it knows.
pub struct Table<'t> {
    format: &'t str,
    /// The names of the format's options, as tables have them.
    known: &'t [String],
    schema: &'t SchemaRef,
    options: &'t BTreeMap<String, String>,
    is_written: bool,
    wanted: RefCell<Vec<Wanted>>,
    /// The names of all columns that were asked for, whether the table has them or not.
    asked: RefCell<Vec<String>>,
}

/// A column that a format has asked for.
#[derive(Clone)]
pub(super) struct Wanted {
    /// Its index in the table.
    pub(super) index: usize,
    /// The type of its values in Rust.
    pub(super) data_type: DataType,
    /// Makes what keeps them.
    pub(super) store: fn() -> Box<dyn Store>,
}

impl<'t> Table<'t> {
    pub(super) fn new(format: &'t str, known: &'t [String], table: &RecordTable<'t>) -> Table<'t> {
        Table {
            format,
            known,
            schema: table.schema,
            options: table.options,
            is_written: table.is_written,
            wanted: RefCell::default(),
            asked: RefCell::default(),
        }
    }

    /// Whether rows are written; otherwise they are read.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// The columns of the table that are in records.
    pub fn schema(&self) -> &SchemaRef {
        self.schema
    }

    /// Asks for a column that the table must have, as values of a type: any integer for any other, any number
    /// for floating point, [`Time`](crate::functions::Time) for any TIMESTAMP.
    ///
    /// # Errors
    ///
    /// When there is no such column, or it has another type.
    pub fn column<A: Value>(&self, name: &str) -> Result<Column<A>, FormatError> {
        let found = self.optional(name)?;
        found.ok_or_else(|| {
            let names = (self.schema.fields().iter()).map(|field| field.name().as_str());
            let names = names.collect::<Vec<&str>>().join(", ");
            let reason = format!("needs a column '{name}', and the table has {names}");
            FormatError::new(
                reason,
                format!("declare {name} {}", sql_name(&A::data_type())),
            )
        })
    }

    /// Asks for a column that the table may have; `None` if it has not. A column that the format has not
    /// asked for is an error.
    ///
    /// # Errors
    ///
    /// When the column has another type.
    pub fn optional<A: Value>(&self, name: &str) -> Result<Option<Column<A>>, FormatError> {
        self.asked.borrow_mut().push(name.to_string());
        let Ok(index) = self.schema.index_of(name) else {
            return Ok(None);
        };
        let (declared, own) = (self.schema.field(index).data_type(), A::data_type());
        let is_fitting = match self.is_written {
            true => fits(declared, &own),
            false => fits(&own, declared),
        };
        if !is_fitting {
            let (is, should) = (sql_name(declared), sql_name(&own));
            let reason = format!("needs a column '{name}' of type {should}, and it is {is}");
            return Err(FormatError::new(reason, format!("declare {name} {should}")));
        }
        let mut wanted = self.wanted.borrow_mut();
        let known = wanted.iter().position(|wanted| wanted.index == index);
        let place = match known {
            Some(place) if wanted[place].data_type != own => {
                let reason = format!("is declared wrongly: column '{name}' has two types in it");
                return Err(FormatError::new(reason, "correct the format"));
            }
            Some(place) => place,
            None => {
                wanted.push(Wanted {
                    index,
                    data_type: own,
                    store: store_of::<A>,
                });
                wanted.len() - 1
            }
        };
        Ok(Some(Column::at(place)))
    }

    /// The value of the option `FORMAT.name`; `None` if the table does not have it. `String` takes any text.
    ///
    /// # Errors
    ///
    /// When the text is not a value of the type.
    pub fn option<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, FormatError> {
        let full = format!("{}.{name}", self.format);
        if !self.known.contains(&full) {
            let reason = format!("is declared wrongly: it has no option '{name}'");
            return Err(FormatError::new(reason, "correct the format"));
        }
        let Some(text) = self.options.get(&full) else {
            return Ok(None);
        };
        let value = text.parse::<T>();
        value
            .map(Some)
            .map_err(|error| self.option_error(name, format!("'{text}': {error}")))
    }

    /// An error about the option `FORMAT.name`, which is shown at its place.
    pub fn option_error(&self, name: &str, reason: impl Into<String>) -> FormatError {
        FormatError {
            option: Some(format!("{}.{name}", self.format)),
            ..FormatError::from(reason.into())
        }
    }

    /// The columns that were asked for: all that the table has.
    pub(super) fn wanted(self) -> Result<Vec<Wanted>, FormatError> {
        let wanted = self.wanted.into_inner();
        for (index, field) in self.schema.fields().iter().enumerate() {
            if wanted.iter().all(|wanted| wanted.index != index) {
                let known = self.asked.into_inner();
                let mut hint = format!("its columns are {}", known.join(", "));
                if let Some(near) = nearest(field.name(), &known) {
                    hint = format!("did you mean '{near}'? {hint}");
                }
                return Err(FormatError::new(
                    format!("has no column '{}'", field.name()),
                    hint,
                ));
            }
        }
        Ok(wanted)
    }
}
