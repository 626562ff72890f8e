//! Tables of PostgreSQL.

#[cfg(feature = "postgres")]
mod client;
#[cfg(feature = "postgres")]
mod statements;

#[cfg(not(feature = "postgres"))]
use self::{not_built as look_up, not_built as read, not_built as write};
use crate::connector::ConnectorKind;
use crate::database_options as described;
use crate::file_format::Formats;
use crate::options::option;
#[cfg(feature = "postgres")]
use client::{look_up, read, write};

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "postgres",
    aliases: &[],
    source: Some(read),
    sink: Some(write),
    lookup: Some(look_up),
    formats: Formats::None,
    has_metadata: false,
    options: &[
        option(
            "url",
            "required",
            "`postgresql://user@host:port/database`, or libpq's `host=… dbname=…`; `jdbc:postgresql://…` \
             (Flink) too. Several hosts are tried in turn",
        ),
        option(
            "username",
            "from the URL, or who runs the program",
            "the user",
        ),
        option(
            "password",
            "from the URL, or the variable `PGPASSWORD`",
            "the password; no message shows it",
        ),
        option(
            "table-name",
            "the declared name",
            "the table's name, with its schema in front where that is needed: `'sales.orders'`; a view \
             can be read and looked up",
        ),
        option(
            "max-retries",
            "`5`",
            "how often an attempt is repeated that failed in a way that may pass: after 0.1 s, then twice \
             as long each time, 5 s at most, so 3.1 s in all",
        ),
        described::RETRIES[0],
        described::RETRIES[1],
    ],
    source_options: &[],
    sink_options: described::SINK_OPTIONS,
    lookup_options: described::LOOKUP_OPTIONS,
};

#[cfg(not(feature = "postgres"))]
fn not_built<T: ?Sized>(
    _table: &crate::table::TableDefinition,
    _options: &crate::options::Options<'_>,
) -> Result<std::sync::Arc<T>, crate::options::OptionError> {
    Err(crate::options::needs_feature("connector", "postgres"))
}
