//! The connector of a table, whose entry states the facts that the program acts on.

use slackwater_connect::ConnectorKind;
use slackwater_sql::table::Table;

/// The entry of the table's connector; `None` if the table names none.
pub fn connector_of(table: &Table) -> Option<&'static ConnectorKind> {
    ConnectorKind::named(table.options.get("connector")?)
}
