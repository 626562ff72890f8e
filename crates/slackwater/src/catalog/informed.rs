//! The connectors of a process that is told what another has found.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;
use slackwater_sql::connectors::Connectors;
use slackwater_sql::error::Result;
use slackwater_sql::statement::CreateTable;
use slackwater_sql::table::Table;

use super::tables::{BuiltIn, definition, option_error};

/// The connectors of this build, for a process that is told what another has found
/// ([`SourceConnector::findings`]), by table.
pub struct Informed<'a>(pub &'a BTreeMap<String, String>);

impl Connectors for Informed<'_> {
    fn source(&self, table: &Table) -> Result<Arc<dyn SourceConnector>> {
        let mut definition = definition(table);
        definition.findings = self.0.get(&table.name).cloned();
        let connector = slackwater_connect::source(&definition);
        connector.map_err(|error| option_error(table, error))
    }

    fn sink(&self, table: Option<&Table>, schema: &SchemaRef) -> Result<Arc<dyn SinkConnector>> {
        BuiltIn.sink(table, schema)
    }

    fn lookup(&self, table: &Table) -> Result<Option<Arc<dyn LookupConnector>>> {
        BuiltIn.lookup(table)
    }

    fn translate(&self, create: &mut CreateTable) -> Result<()> {
        BuiltIn.translate(create)
    }

    fn check(&self, table: &Table) -> Result<()> {
        BuiltIn.check(table)
    }

    fn table_options(&self) -> Vec<String> {
        BuiltIn.table_options()
    }
}
