//! Tables of PostgreSQL.

#[cfg(feature = "postgres")]
mod client;
#[cfg(feature = "postgres")]
mod statements;

#[cfg(not(feature = "postgres"))]
use self::{not_built as look_up, not_built as read, not_built as write};
use crate::connector::{AtHome, ConnectorKind, Exclusive};
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
    path: None,
    exclusive: Exclusive::Name("sink.name"),
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Never,
    options: &[
        option(
            "url",
            "required",
            "`postgresql://user@host:port/database`, libpq's `host=… dbname=…`, or \
             `jdbc:postgresql://…` (Flink). Several hosts are tried in turn",
        ),
        option(
            "username",
            "from the URL, or the user who runs the program",
            "the user name",
        ),
        option(
            "password",
            "from the URL, or the environment variable `PGPASSWORD`",
            "the password. It is never shown",
        ),
        option(
            "table-name",
            "the declared name",
            "the table's name, with its schema if needed: `'sales.orders'`. A view can be read and used \
             for lookups",
        ),
        option(
            "max-retries",
            "`5`",
            "how often to retry after a temporary error: after 0.1 s, then twice as long each time, at \
             most 5 s; by default 3.1 s in total",
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
