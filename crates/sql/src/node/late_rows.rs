//! Late rows on their way to a table of their own.
//!
//! What judges lateness and what keeps late rows are two nodes over the same input, so that each has one
//! output; a sink writes the rows like others, exactly once where it can.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_common::ExprSchema;
use datafusion_expr::{Expr, cast};
use slackwater_engine::operator::late_rows::Lateness;

use super::{Stream, Translator};
use crate::error::{Result, SqlError};
use crate::expression::column;
use crate::specs::NodeSpec;
use crate::table::Table;
use crate::window::{LateTable, WindowNode};

/// A table for late rows, and the nodes that have them.
pub struct LateRowsOf {
    table: Arc<Table>,
    nodes: Vec<usize>,
}

impl Translator<'_> {
    /// The late rows among those of `stream`, with the columns of the table.
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
        let schema = self.schemas[stream.node].clone();
        let detail = format!("by {}", schema.field(time_column).name());
        let key = format!("late rows {time_column} {lateness:?}");
        let spec = NodeSpec::LateRows {
            time_column,
            lateness,
        };
        let node = self.node("late rows", detail, &[stream.node], spec, schema, &key);
        let of_late = Stream {
            node,
            ..stream.clone()
        };
        let plan = &window.input;
        let fields = table.physical.fields().iter();
        let values = late.columns.iter().zip(fields.clone()).map(|(of, field)| {
            let value = Expr::Column(of.clone());
            let is_same = plan.schema().field_from_column(of)?.data_type() == field.data_type();
            let value = match is_same {
                true => value,
                false => cast(value, field.data_type().clone()),
            };
            self.bind(&value, &of_late, plan)
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let names = fields.map(|field| field.name().clone()).collect::<Vec<_>>();
        let node = self.materialise(&of_late, &values, &names, None)?;
        let known = self.late.iter_mut().find(|of| of.table.name == table.name);
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

    /// Adds the sinks of late rows; says how many.
    pub fn late_sinks(&mut self) -> Result<usize> {
        let late = std::mem::take(&mut self.late);
        let sinks = late.len();
        for LateRowsOf { table, nodes } in late {
            let schema = self.schemas[nodes[0]].clone();
            let node = match nodes.as_slice() {
                [node] => *node,
                several => self.one_of(several, &schema),
            };
            let fields = schema.fields().iter();
            let names = fields.map(|field| field.name().clone()).collect::<Vec<_>>();
            let columns = (0..names.len()).map(|index| column(index, &schema));
            let stream = Stream {
                node,
                columns: columns.collect(),
                roles: vec![super::Role::Plain; names.len()],
                time: None,
                updates: false,
                key: None,
                deletes: false,
            };
            self.write(stream, &names, Some(table), None)?;
        }
        Ok(sinks)
    }

    /// Several nodes of the same columns as one.
    fn one_of(&mut self, nodes: &[usize], schema: &SchemaRef) -> usize {
        let schema: SchemaRef = Arc::new(Schema::new(schema.fields().clone()));
        let spec = NodeSpec::Union {
            schema: schema.clone(),
            changes: false,
        };
        let detail = format!("{} inputs", nodes.len());
        self.node("union", detail, nodes, spec, schema, "union")
    }
}
