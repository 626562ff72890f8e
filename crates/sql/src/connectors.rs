//! What the compiler of a program needs to know about connectors; its caller provides it.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::error::Result;
use crate::functions::DeclaredFunction;
use crate::statement::{CreateFunction, CreateTable};
use crate::table::Table;

/// Makes sources and sinks from tables, and checks their options.
pub trait Connectors {
    /// The source that reads the table.
    fn source(&self, table: &Table) -> Result<Arc<dyn SourceConnector>>;

    /// The sink that writes rows with the columns of `schema` to the table, or to the terminal without one.
    fn sink(&self, table: Option<&Table>, schema: &SchemaRef) -> Result<Arc<dyn SinkConnector>>;

    /// The connector that looks up rows of the table by key; `None` if it doesn't support lookups.
    fn lookup(&self, table: &Table) -> Result<Option<Arc<dyn LookupConnector>>>;

    /// Replaces other engines' names of connectors and options by ours, where they mean the same.
    fn translate(&self, create: &mut CreateTable) -> Result<()>;

    /// The function that CREATE FUNCTION declares. It is not started.
    fn function(&self, create: &CreateFunction) -> Result<Arc<dyn DeclaredFunction>>;

    /// Checks the options of a table when it is declared, before its use is known.
    fn check(&self, table: &Table) -> Result<()>;

    /// The names of the options that are allowed in a table's WITH.
    fn table_options(&self) -> Vec<String>;
}
