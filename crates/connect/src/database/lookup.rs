//! Looks rows up by their keys.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_select::filter::filter;
use slackwater_engine::error::Result;
use slackwater_engine::operator::lookup_join::{
    CacheSettings, Found, Lookup, LookupConnector, LookupRequest,
};

use super::Table;
use super::cells::{TextRows, text};
use super::client::{Connection, Failure, Select};
use crate::encode::Cell;

/// The most rows that the keys of one chunk may find together: all of them are held in memory at once.
const ROWS_MAX: usize = 1 << 20;

/// Bytes of these rows: 256 MiB, of which each instance holds what one chunk needs.
const BYTES_MAX: usize = 256 << 20;

/// A table in which rows are looked up.
pub(crate) struct DatabaseLookup(pub(crate) Arc<Table>);

impl LookupConnector for DatabaseLookup {
    fn describe(&self) -> String {
        self.0.place.clone()
    }

    fn cache(&self) -> CacheSettings {
        self.0.cache
    }

    fn lookup(&self, request: &LookupRequest) -> Result<Box<dyn Lookup>> {
        Ok(Box::new(TableLookup {
            connection: Connection::new(&self.0),
            select: Select {
                columns: request.columns.clone(),
                keys: request.keys.clone(),
            },
        }))
    }
}

struct TableLookup {
    connection: Connection,
    select: Select,
}

impl Lookup for TableLookup {
    fn open(&mut self) -> Result<()> {
        self.connection.open()
    }

    fn look_up(&mut self, keys: &[ArrayRef]) -> Result<Found> {
        let mut strings = Vec::new();
        for array in keys {
            let cell = Cell::new(array)?;
            let values = (0..array.len()).map(|row| text(&cell, array, row));
            let values = values.map(|value| Ok(value?.unwrap_or_default()));
            strings.push(values.collect::<Result<Vec<String>>>()?);
        }
        let table = Arc::clone(&self.connection.table);
        let select = &self.select;
        let (mut rows, numbers) = self.connection.run(|client| {
            // The rows of a failed attempt are dropped.
            let mut rows = TextRows::new(&table.schema, &select.columns);
            let mut numbers: Vec<u32> = Vec::new();
            let mut is_all = true;
            client.look_up(select, &strings, &mut |key, row| {
                rows.push(row);
                numbers.push(key);
                is_all = rows.rows() <= ROWS_MAX && rows.bytes() <= BYTES_MAX;
                is_all
            })?;
            match is_all {
                true => Ok((rows, numbers)),
                false => Err(Failure::new(format!(
                    "the keys of one chunk have more than {ROWS_MAX} rows, or 256 MiB"
                ))
                .hint("join by more columns, or SET 'chunk_rows' to a smaller number")),
            }
        })?;
        let decoded = rows.take()?;
        let failed = decoded.refused.into_iter();
        let failed = failed.map(|(row, reason, record)| {
            let reason = format!("{}: {reason} in {record}", self.connection.table.place);
            (numbers[row], reason)
        });
        let failed = failed.collect();
        let keys = match &decoded.kept {
            None => numbers,
            Some(kept) => {
                let numbers = arrow_array::UInt32Array::from(numbers);
                let kept = filter(&numbers, kept)?;
                arrow_array::cast::AsArray::as_primitive::<arrow_array::types::UInt32Type>(&kept)
                    .values()
                    .to_vec()
            }
        };
        Ok(Found {
            rows: decoded.batch,
            keys,
            failed,
        })
    }
}
