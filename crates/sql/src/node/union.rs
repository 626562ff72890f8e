//! UNION ALL: several streams as one.

use arrow_schema::{DataType, SchemaRef, TimeUnit};
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::Union;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::window::timestamp_unit;
use slackwater_engine::operator::{Operator, union};

use super::facts::{Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State};
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError};
use crate::expression::{Physical, column};

/// UNION ALL.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate: |translator, plan| match plan {
        LogicalPlan::Union(union) => translator.union(union).map(Some),
        _ => Ok(None),
    },
};

/// Merges several streams with the same columns.
pub struct UnionNode {
    /// The columns of all inputs.
    pub schema: SchemaRef,
    /// Whether some input updates or retracts rows.
    pub changes: bool,
}

impl Node for UnionNode {
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
        Changelog::as_input()
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
            may_be_dealt: true,
            first_input: None,
            behind: Behind::AsInput,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(500.0, 0.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let schema = self.schema.clone();
        Ok(Operator::stateless(match self.changes {
            true => union::Union::of_changes(schema),
            false => union::Union::new(schema),
        }))
    }
}

impl Translator<'_> {
    fn union(&mut self, union: &Union) -> Result<Stream> {
        let mut streams = Vec::new();
        for input in &union.inputs {
            let stream = self.translate(input)?;
            streams.push(stream);
        }
        let names = union
            .schema
            .fields()
            .iter()
            .map(|field| field.name().clone());
        let names = names.collect::<Vec<_>>();
        let keep_time = self.needs.event_time && streams.iter().all(|stream| stream.time.is_some());
        // The planner has cast the columns to common types, but not the event time outside of them.
        let units = streams.iter().map(|stream| {
            let time = stream.time.as_ref().filter(|_| keep_time);
            time.map(|time| Ok(time.data_type(self.specs[stream.node].schema())?))
        });
        let units = units.flatten().collect::<Result<Vec<DataType>>>()?;
        // Finer units are greater.
        let unit = units.iter().filter_map(timestamp_unit).max();
        let mut inputs = Vec::new();
        let mut schema: Option<SchemaRef> = None;
        for stream in &streams {
            let time = stream.time.clone().filter(|_| keep_time);
            let time = match (time, unit) {
                (Some(time), Some(unit)) => Some(self.in_unit(time, unit, stream)?),
                (time, _) => time,
            };
            let node = self.materialise(stream, &stream.columns, &names, time.as_ref())?;
            inputs.push(node);
            schema.get_or_insert_with(|| self.schema(node));
        }
        let schema = schema.ok_or_else(|| SqlError::new("a UNION has no inputs"))?;
        let roles = (0..names.len()).map(|index| {
            let role = streams[0].roles[index];
            if streams.iter().all(|stream| stream.roles[index] == role) {
                role
            } else {
                Role::Plain
            }
        });
        let roles = roles.collect();
        let time = keep_time.then(|| column(schema.fields().len() - 1, &schema));
        let changes = streams.iter().any(|stream| stream.updates);
        let node = self.union_of(&inputs, schema.clone(), changes);
        let columns = (0..names.len())
            .map(|index| column(index, &schema))
            .collect();
        Ok(Stream {
            node,
            columns,
            roles,
            time,
            // Several inputs may have the same key: only the whole row identifies the row to replace.
            updates: changes,
            key: None,
            deletes: streams.iter().any(|stream| stream.deletes),
            unique: Vec::new(),
        })
    }

    /// Several nodes with the same columns as one.
    pub(super) fn union_of(&mut self, nodes: &[usize], schema: SchemaRef, changes: bool) -> usize {
        let detail = format!("{} inputs", nodes.len());
        let union = UnionNode { schema, changes };
        self.operator("union", detail, nodes, union, "union")
    }

    /// The time of a stream in a unit that is at least as fine.
    fn in_unit(&self, time: Physical, unit: TimeUnit, stream: &Stream) -> Result<Physical> {
        let to = DataType::Timestamp(unit, None);
        let schema = self.specs[stream.node].schema();
        match time.data_type(schema)? == to {
            true => Ok(time),
            false => Ok(datafusion_physical_expr::expressions::cast(
                time, schema, to,
            )?),
        }
    }
}
