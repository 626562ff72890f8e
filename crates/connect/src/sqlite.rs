//! Tables of SQLite: a file, read and written in this process.

#[cfg(feature = "sqlite")]
mod client;

#[cfg(not(feature = "sqlite"))]
use self::{not_built as look_up, not_built as read, not_built as write};
use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::database_options as described;
use crate::file_format::Formats;
use crate::options::option;
#[cfg(feature = "sqlite")]
use client::{look_up, read, write};

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "sqlite",
    aliases: &[],
    source: Some(read),
    sink: Some(write),
    lookup: Some(look_up),
    formats: Formats::None,
    has_metadata: false,
    path: Some("path"),
    exclusive: Exclusive::Name("sink.name"),
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Always,
    options: &[
        option("path", "required", "the file"),
        option(
            "table-name",
            "the declared name",
            "the table's name in the database. A view can be read and used for lookups",
        ),
        option(
            "max-retries",
            "`5`",
            "how often to retry after a temporary error (another program holds the file's lock): after \
             0.1 s, then twice as long each time, at most 5 s",
        ),
        described::RETRIES[0],
        described::RETRIES[1],
    ],
    source_options: &[],
    sink_options: described::SINK_OPTIONS,
    lookup_options: described::LOOKUP_OPTIONS,
};

#[cfg(not(feature = "sqlite"))]
fn not_built<T: ?Sized>(
    _table: &crate::table::TableDefinition,
    _options: &crate::options::Options<'_>,
) -> Result<std::sync::Arc<T>, crate::options::OptionError> {
    Err(crate::options::needs_feature("connector", "sqlite"))
}
