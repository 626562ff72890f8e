//! What a program needs of the connectors: who compiles a text hands them in.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::error::Result;
use crate::statement::CreateTable;
use crate::table::Table;

/// Makes sources and sinks from tables; checks their options.
pub trait Connectors {
    /// What reads the table.
    fn source(&self, table: &Table) -> Result<Arc<dyn SourceConnector>>;

    /// What writes rows with the columns of `schema` to the table, or to the terminal.
    fn sink(&self, table: Option<&Table>, schema: &SchemaRef) -> Result<Arc<dyn SinkConnector>>;

    /// Where rows of the table can be looked up by key; `None` for one that is only read or written.
    fn lookup(&self, table: &Table) -> Result<Option<Arc<dyn LookupConnector>>>;

    /// Puts our names of connectors and options in the place of other engines', where they mean the same.
    fn translate(&self, create: &mut CreateTable) -> Result<()>;

    /// Checks a table's options when it is declared, before it is known what it is used for.
    fn check(&self, table: &Table) -> Result<()>;

    /// Options that belong into a table's WITH.
    fn table_options(&self) -> Vec<String>;
}
