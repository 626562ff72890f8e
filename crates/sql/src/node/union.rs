//! UNION ALL: several streams as one.

use arrow_schema::{DataType, SchemaRef, TimeUnit};
use datafusion_expr::logical_plan::Union;
use slackwater_engine::operator::window::timestamp_unit;

use super::{Role, Stream, Translator};
use crate::error::{Result, SqlError};
use crate::expression::{Physical, column};
use crate::specs::NodeSpec;

impl Translator<'_> {
    pub(super) fn union(&mut self, union: &Union) -> Result<Stream> {
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
        let keep_time = self.orders_by_time && streams.iter().all(|stream| stream.time.is_some());
        // The planner has cast the columns to common types, but doesn't know of this one.
        let units = streams.iter().map(|stream| {
            let time = stream.time.as_ref().filter(|_| keep_time);
            time.map(|time| Ok(time.data_type(&self.schemas[stream.node])?))
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
            schema.get_or_insert_with(|| self.schemas[node].clone());
        }
        let schema = schema.ok_or_else(|| SqlError::new("a UNION without inputs"))?;
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
        let spec = NodeSpec::Union {
            schema: schema.clone(),
            changes: streams.iter().any(|stream| stream.updates),
        };
        let detail = format!("{} inputs", inputs.len());
        let node = self.node("union", detail, &inputs, spec, schema.clone(), "union");
        let columns = (0..names.len())
            .map(|index| column(index, &schema))
            .collect();
        Ok(Stream {
            node,
            columns,
            roles,
            time,
            // The same key may come from several inputs: only whole rows tell.
            updates: streams.iter().any(|stream| stream.updates),
            key: None,
            deletes: streams.iter().any(|stream| stream.deletes),
        })
    }

    /// A time of a stream in a unit that is not coarser.
    fn in_unit(&self, time: Physical, unit: TimeUnit, stream: &Stream) -> Result<Physical> {
        let to = DataType::Timestamp(unit, None);
        let schema = &self.schemas[stream.node];
        match time.data_type(schema)? == to {
            true => Ok(time),
            false => Ok(datafusion_physical_expr::expressions::cast(
                time, schema, to,
            )?),
        }
    }
}
