//! Late rows on their way to a table of their own.
//!
//! The node that drops late rows and the node that keeps them read the same input, so that each has one
//! output. A sink writes the late rows like others, exactly once if it can.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_common::ExprSchema;
use datafusion_expr::{Expr, cast};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::late_rows::{LateRows, Lateness};

use super::facts::{Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State};
use super::stream::{Role, Stream};
use super::translator::{LateRowsOf, Translator};
use crate::error::{Result, SqlError};
use crate::expression::column;
use crate::window::{LateTable, WindowNode};

/// Keeps late rows, and drops all others.
pub struct LateRowsNode {
    /// The index of the event-time column.
    pub time_column: usize,
    /// When a row is late.
    pub lateness: Lateness,
    /// The columns of the rows.
    pub schema: SchemaRef,
}

impl Node for LateRowsNode {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        Exchange::Forward
    }

    fn state(&self) -> Option<State> {
        None
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: true,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(500.0, 0.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateless(LateRows::new(
            self.time_column,
            self.lateness,
        )))
    }
}

impl Translator<'_> {
    /// Sends the late rows of `stream` to the table, with the table's columns.
    pub(super) fn keep_late(
        &mut self,
        window: &WindowNode,
        stream: &Stream,
        time_column: usize,
        late: &LateTable,
        lateness: Lateness,
    ) -> Result<()> {
        let table = self.session.tables.get(&late.name).cloned();
        let table =
            table.ok_or_else(|| SqlError::new(format!("there is no table '{}'", late.name)))?;
        let schema = self.schema(stream.node);
        let detail = format!("by {}", schema.field(time_column).name());
        let key = format!("late rows {time_column} {lateness:?}");
        let late_rows = LateRowsNode {
            time_column,
            lateness,
            schema,
        };
        let node = self.operator("late rows", detail, &[stream.node], late_rows, &key);
        let of_late = Stream {
            node,
            ..stream.clone()
        };
        let plan = &window.input;
        let fields = table.physical.fields().iter();
        let values = late
            .columns
            .iter()
            .zip(fields.clone())
            .map(|(column, field)| {
                let value = Expr::Column(column.clone());
                let is_same =
                    plan.schema().field_from_column(column)?.data_type() == field.data_type();
                let value = match is_same {
                    true => value,
                    false => cast(value, field.data_type().clone()),
                };
                self.bind(&value, &of_late, plan)
            });
        let values = values.collect::<Result<Vec<_>>>()?;
        let names = fields.map(|field| field.name().clone()).collect::<Vec<_>>();
        let node = self.materialise(&of_late, &values, &names, None)?;
        let known = self
            .late
            .iter_mut()
            .find(|known| known.table.name == table.name);
        match known {
            Some(known) if known.nodes.contains(&node) => {}
            Some(known) => known.nodes.push(node),
            None => self.late.push(LateRowsOf {
                table,
                nodes: vec![node],
            }),
        }
        Ok(())
    }

    /// Adds the sinks of late rows, and returns their number.
    pub fn late_sinks(&mut self) -> Result<usize> {
        let late = std::mem::take(&mut self.late);
        let sinks = late.len();
        for LateRowsOf { table, nodes } in late {
            let schema = self.schema(nodes[0]);
            let node = match nodes.as_slice() {
                [node] => *node,
                several => {
                    // Metadata of the schema is dropped.
                    let schema = Arc::new(Schema::new(schema.fields().clone()));
                    self.union_of(several, schema, false)
                }
            };
            let fields = schema.fields().iter();
            let names = fields.map(|field| field.name().clone()).collect::<Vec<_>>();
            let columns = (0..names.len()).map(|index| column(index, &schema));
            let stream = Stream {
                node,
                columns: columns.collect(),
                roles: vec![Role::Plain; names.len()],
                time: None,
                updates: false,
                key: None,
                deletes: false,
                unique: Vec::new(),
            };
            self.write(stream, &names, Some(table), None)?;
        }
        Ok(sinks)
    }
}
