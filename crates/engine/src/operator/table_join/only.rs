//! Semi and anti joins with a table: each row of the stream is emitted at once, or never.

use arrow_array::{Array, BooleanArray};

use super::index::Index;
use super::{Only, Rest, TABLE, TableJoin};
use crate::error::Result;
use crate::operator::{Output, Progress};

impl TableJoin {
    /// Looks for partners of the chunk's rows, about a chunk of pairs a call; the selected rows are
    /// emitted together, when all have been searched.
    pub(super) fn step_only(
        &mut self,
        only: Only,
        mut rest: Rest,
        output: &mut Output,
    ) -> Result<Progress> {
        if self.spec.condition.is_some() {
            let index = self.whole()?;
            let pairs = index.pairs(&rest.search, &mut rest.cursor, output.chunk_rows);
            let (pairs, mut found) = self.holding(pairs, &rest.chunk, output)?;
            if only == Only::WithPartner {
                // A rejected pair is no reason to emit its row.
                found.clear();
            }
            found.extend(pairs.stream);
            found
                .iter()
                .for_each(|&row| rest.found[row as usize] = true);
            if rest.cursor.row < rest.chunk.rows() {
                self.rest = Some(rest);
                return Ok(Progress::More);
            }
        } else {
            let index = self.whole()?;
            let found = rest.found.iter_mut().enumerate();
            found.for_each(|(row, found)| *found = index.has_partner(&rest.search, row));
        }
        let keys = self.spec.keys[TABLE].clone();
        let wanted = wanted(only, &rest, self.whole()?, &keys);
        output.emit(rest.chunk.filter(&BooleanArray::from(wanted))?);
        Ok(Progress::Done)
    }
}

/// Which rows of the chunk are emitted.
fn wanted(only: Only, rest: &Rest, table: &Index, keys: &[usize]) -> Vec<bool> {
    let found = rest.found.iter();
    match only {
        Only::WithPartner => rest.found.clone(),
        Only::WithoutPartner => found.map(|found| !found).collect(),
        Only::NotAmong if table.rows().num_rows() == 0 => vec![true; rest.found.len()],
        Only::NotAmong => {
            let mut keys = keys.iter().map(|&key| table.rows().column(key));
            let has_null = keys.any(|key| key.null_count() > 0);
            let rows = found.enumerate();
            rows.map(|(row, found)| !found && !rest.search.is_null(row) && !has_null)
                .collect()
        }
    }
}
