//! Sinks: checks whether a sink supports the changes of its query.

use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use slackwater_control::query::{Exchange, Node, NodeKind};
use slackwater_engine::expression::{Column, Expression};
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::sink::{Accepts, SinkConnector};

use super::facts::Sorted;
use super::map::MapNode;
use super::spec::{NodeSpec, SinkSpec};
use super::stream::Stream;
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::expression::{NotNull, column};
use crate::table::{CHANGELOG, Table};

impl Translator<'_> {
    /// Adds a statement: the rows of `plan` are written to a table or, without one, to the terminal.
    pub fn sink(
        &mut self,
        plan: &LogicalPlan,
        table: Option<Arc<Table>>,
        latency_target_ns: Option<u64>,
    ) -> Result<()> {
        let (mut stream, names) = self.result(plan)?;
        if stream.updates && self.takes_only_last_rows(&stream, table.as_deref())? {
            stream = self.last_rows(stream, &names)?;
        }
        self.write(stream, &names, table, latency_target_ns)
    }

    /// The stream of a statement's query, and the names of its columns.
    pub(super) fn result(&mut self, plan: &LogicalPlan) -> Result<(Stream, Vec<String>)> {
        let is_final = self.session.settings.emit_final;
        self.at_end += usize::from(is_final);
        let stream = self.translate(plan);
        self.at_end -= usize::from(is_final);
        let mut stream = stream?;
        let fields = plan.schema().fields().iter();
        let names = fields.map(|field| field.name().clone());
        let names = names.collect::<Vec<_>>();
        if is_final {
            self.check_final(stream.node)?;
            if stream.updates {
                stream = self.last_rows(stream, &names)?;
            }
        }
        Ok((stream, names))
    }

    /// Whether a table only accepts the final result of a stream, and not the changes before it.
    fn takes_only_last_rows(&mut self, stream: &Stream, table: Option<&Table>) -> Result<bool> {
        let Some(table) = table.filter(|table| table.changelog().is_none()) else {
            return Ok(false);
        };
        let connector = self.connectors.sink(Some(table), &table.physical)?;
        let is_refused = check_updates(stream, table, connector.as_ref()).is_err();
        let is_keyed = !table.primary_key.is_empty();
        let is_final = is_refused && !is_keyed && self.check_final(stream.node).is_ok();
        if is_final {
            self.warnings.push(format!(
                "'{0}' can only add rows, and the query retracts rows: '{0}' gets the result once, when \
                the inputs have ended; to get all changes, use the table option 'changelog' = 'op'; to \
                turn off this warning, SET 'emit' = 'final'",
                table.name
            ));
        }
        Ok(is_final)
    }

    /// Adds the sink of a stream.
    pub(super) fn write(
        &mut self,
        mut stream: Stream,
        names: &[String],
        table: Option<Arc<Table>>,
        latency_target_ns: Option<u64>,
    ) -> Result<()> {
        let mut node = self.materialise(&stream, &stream.columns, names, None)?;
        if let Some(table) = &table {
            node = self.not_null(node, table);
        }
        let changelog = table.as_deref().and_then(Table::changelog);
        if let Some(name) = changelog {
            node = self.changes_as_rows(node, name);
        }
        let schema = self.schema(node);
        let connector = self.connectors.sink(table.as_deref(), &schema)?;
        if let (Some(name), Some(table)) = (changelog, &table) {
            check_changelog(name, table)?;
        }
        if let (Some(table), None) = (&table, changelog) {
            check_updates(&stream, table, connector.as_ref())?;
            if connector.capabilities().accepts == Accepts::Changes
                && !is_by_primary_key(&stream, table)
            {
                node = self.by_primary_key(node, &table.primary_key);
                let key = table.primary_key.iter();
                stream = Stream {
                    node,
                    columns: (0..names.len()).map(|at| column(at, &schema)).collect(),
                    key: Some(key.map(|&at| column(at, &schema)).collect()),
                    deletes: true,
                    ..stream
                };
            }
        }
        // One instance writes all rows of a key, in order. All rows of a changelog come from one instance.
        let key = table.as_deref().map_or(&[][..], |table| &table.primary_key);
        let is_upsert = connector.capabilities().accepts == Accepts::Changes && changelog.is_none();
        let exchange = match is_upsert && !stream.updates && !key.is_empty() {
            true => Exchange::Key(key.to_vec()),
            false => Exchange::Forward,
        };
        // A reader that ignores the key needs the deletion of the previous row.
        let wants_before = changelog.is_some() || stream.key.is_none();
        let spec = SinkSpec {
            connector,
            schema,
            latency_target_ns,
            changes: stream.changes(),
            order: self.order_of(node),
            wants_before,
            gets_before: wants_before,
            table,
        };
        self.add_sink(spec, node, exchange);
        Ok(())
    }

    /// Adds a sink. Two statements that write the same rows to the same table remain two statements.
    pub(super) fn add_sink(&mut self, spec: SinkSpec, input: usize, exchange: Exchange) {
        let capabilities = spec.connector.capabilities();
        let node = Node {
            name: "sink".to_string(),
            detail: spec.connector.describe().to_string(),
            kind: NodeKind::Sink,
            inputs: vec![self.edge(input, exchange)],
            instances_max: match self.session.settings.state {
                Some(_) => capabilities.max_instances_saved,
                None => capabilities.max_instances,
            },
        };
        self.add(node, NodeSpec::Sink(spec));
    }

    /// The columns by which the rows of a node are ordered.
    fn order_of(&self, node: usize) -> RowOrder {
        let below = || self.order_of(self.graph.nodes[node].inputs[0].from);
        match self.specs[node].facts().sorted {
            Sorted::No => RowOrder::new(),
            Sorted::By(order) => order,
            Sorted::AsInput => below(),
            Sorted::Moved(columns) => {
                let above = below().into_iter().map_while(|(column, options)| {
                    let is_it = |moved: &Option<usize>| *moved == Some(column);
                    Some((columns.iter().position(is_it)?, options))
                });
                above.collect()
            }
        }
    }

    /// A node that rejects rows with a NULL in a column that the table declares NOT NULL.
    fn not_null(&mut self, node: usize, table: &Table) -> usize {
        if table.not_null.is_empty() {
            return node;
        }
        let schema = self.schema(node);
        let names = table.not_null.iter().map(|&index| {
            let name = table.physical.field(index).name();
            (index, name.clone())
        });
        let names = names.collect::<Vec<(usize, String)>>();
        let shown = names.iter().map(|(_, name)| name.as_str());
        let detail = format!("{} of {}", shown.collect::<Vec<_>>().join(", "), table.name);
        let mut checked = names;
        let columns = schema.fields().iter().enumerate();
        let expressions = columns.map(|(index, field)| {
            let column = Arc::new(Column::new(index, field.data_type().clone()));
            // One expression checks all columns.
            NotNull::around(column, std::mem::take(&mut checked))
        });
        let expressions = expressions.collect::<Vec<Arc<dyn Expression>>>();
        let key = format!("not null {detail}");
        let map = MapNode {
            expressions,
            schema,
        };
        self.operator("not null", detail, &[node], map, &key)
    }
}

fn check_changelog(name: &str, table: &Table) -> Result<()> {
    let place = table.option_places.get(CHANGELOG).copied();
    let wrong = |error: String, hint: &str| {
        Err(SqlError::new(error)
            .at(place.unwrap_or(table.span))
            .hint(hint))
    };
    if name.is_empty() {
        return wrong(
            "'changelog' needs the name of a column".to_string(),
            "for example 'changelog' = 'op'",
        );
    }
    if table.physical.index_of(name).is_ok() {
        let error = format!("'changelog' = '{name}': the table already has a column of that name");
        return wrong(
            error,
            "choose another name for the column that contains the kind of each change",
        );
    }
    Ok(())
}

/// Checks whether the table supports the changes of the stream.
fn check_updates(stream: &Stream, table: &Table, connector: &dyn SinkConnector) -> Result<()> {
    let name = &table.name;
    if connector.capabilities().accepts == Accepts::Rows && !table.primary_key.is_empty() {
        let error = format!("'{name}' has a PRIMARY KEY, but its connector can only add rows");
        return Err(SqlError::new(error)
            .at(table.span)
            .hint("remove the key; only tables of databases can update rows"));
    }
    if !stream.updates {
        return Ok(());
    }
    match (connector.capabilities().accepts, &stream.key) {
        (Accepts::Rows, Some(_)) if !stream.deletes => Ok(()),
        (Accepts::Rows, _) => Err(SqlError::new(format!(
            "the query retracts rows, and '{name}' can only add rows"
        ))
        .at(table.span)
        .hint(
            "use WITH (…, 'changelog' = 'op'), which adds a column with the kind of each change, or a \
            database table with a PRIMARY KEY, whose rows can be updated",
        )),
        (Accepts::Changes, _) => Ok(()),
    }
}

/// Whether the stream replaces rows by the primary key of the table, if it has one.
fn is_by_primary_key(stream: &Stream, table: &Table) -> bool {
    if !stream.updates || table.primary_key.is_empty() {
        return true;
    }
    let wanted = table.primary_key.iter();
    let wanted = wanted.map(|&of_key| &stream.columns[of_key]);
    let wanted = wanted.collect::<Vec<_>>();
    let key = stream.key.as_ref();
    key.is_some_and(|key| {
        key.iter().all(|of_key| wanted.contains(&of_key))
            && wanted.iter().all(|of_key| key.contains(of_key))
    })
}
