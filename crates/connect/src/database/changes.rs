//! The changes that are written to a table at once.

use serde::{Deserialize, Serialize};

use super::cells::RowText;

/// The changes that are written to a table at once. No key occurs twice.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changes {
    /// Rows that are inserted, or that replace those of their keys.
    pub(crate) rows: Vec<RowText>,
    /// Keys whose rows are deleted.
    pub(crate) deleted: Vec<RowText>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.deleted.is_empty()
    }
}
