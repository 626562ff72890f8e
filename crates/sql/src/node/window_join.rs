//! Joins of two inputs over the same window.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_common::NullEquality;
use datafusion_expr::logical_plan::Join;
use slackwater_engine::operator::join::{JoinKind, JoinSide, JoinSpec};
use slackwater_engine::operator::window::Windows;

use super::{Role, Stream, Translator, semi_join};
use crate::as_of;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{Physical, PhysicalExpression, column, physical, replace_columns};
use crate::specs::NodeSpec;

impl Translator<'_> {
    pub(super) fn join(&mut self, join: &Join) -> Result<Stream> {
        if let Some(join) = semi_join::in_order(join) {
            return self.join(&join);
        }
        let kind = semi_join::kind(join)?;
        if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty() {
            return Err(SqlError::new(
                "a join in which NULL equals NULL is not known here",
            ));
        }
        if let Some((times, filter)) = as_of::split(join.filter.as_ref()) {
            return self.temporal_join(join, kind, times.each_ref(), filter.as_ref());
        }
        if let Some((time, filter)) = as_of::now::split(join.filter.as_ref()) {
            return self.lookup_join(join, kind, time.as_ref(), filter);
        }
        let plans = [join.left.as_ref(), join.right.as_ref()];
        let reasons = [self.no_table(plans[0])?, self.no_table(plans[1])?];
        let may_be_table = reasons.map(|reason| reason.is_none());
        if let Some(table_side) = Self::table_side(kind, may_be_table) {
            return self.table_join(join, kind, table_side);
        }
        semi_join::check_not_in(join)?;
        let streams = [self.translate(plans[0])?, self.translate(plans[1])?];
        let mut window: Option<(bool, Windows)> = None;
        let mut window_pair: Option<[Physical; 2]> = None;
        let mut key_pairs: Vec<[Physical; 2]> = Vec::new();
        let mut all_pairs: Vec<[Physical; 2]> = Vec::new();
        for (left, right) in &join.on {
            let bound = [
                self.bind(left, &streams[0], plans[0])?,
                self.bind(right, &streams[1], plans[1])?,
            ];
            all_pairs.push(bound.clone());
            let roles = [
                self.role(left, &streams[0], plans[0])?,
                self.role(right, &streams[1], plans[1])?,
            ];
            match roles {
                [Role::WindowStart(one), Role::WindowStart(other)]
                    if one == other && one.is_named_by_start() =>
                {
                    if window.is_none() {
                        (window, window_pair) = (Some((true, one)), Some(bound));
                    }
                }
                [Role::WindowEnd(one), Role::WindowEnd(other)] if one == other => {
                    (window, window_pair) = (Some((false, one)), Some(bound));
                }
                _ => key_pairs.push(bound),
            }
        }
        let updates = streams.iter().any(|stream| stream.updates);
        if window.is_some() && !updates && self.session.settings.allowed_lateness_us > 0 {
            return Err(SqlError::new(
                "'allowed_lateness' is not known for joins in windows: what they have emitted stays",
            )
            .near("JOIN")
            .mend("leave the setting out, or make the delay in WATERMARK FOR longer"));
        }
        let (Some((is_start, windows)), Some(window_pair), false) = (window, window_pair, updates)
        else {
            if !updates && let Some(joined) = self.interval_join(join, kind, &streams)? {
                return Ok(joined);
            }
            return self.changelog_join(join, kind, streams, all_pairs);
        };
        let mut sides = Vec::new();
        let mut nodes = Vec::new();
        for side in 0..2 {
            let stream = &streams[side];
            let names = plans[side]
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().clone());
            let mut names = names.collect::<Vec<String>>();
            let mut columns = stream.columns.clone();
            let mut place = |expression: &Physical, name: String| {
                columns
                    .iter()
                    .position(|known| known == expression)
                    .unwrap_or_else(|| {
                        columns.push(expression.clone());
                        names.push(name);
                        columns.len() - 1
                    })
            };
            let window_column = place(&window_pair[side], "window".to_string());
            let keys = key_pairs.iter().enumerate();
            let keys = keys.map(|(index, pair)| place(&pair[side], format!("key{index}")));
            let keys = keys.collect::<Vec<usize>>();
            let node = self.materialise(stream, &columns, &names, None)?;
            let schema = self.schemas[node].clone();
            nodes.push(node);
            sides.push(JoinSide {
                window_column,
                keys,
                schema,
            });
        }
        let widths = [0, 1].map(|side: usize| sides[side].schema.fields().len());
        let fields = sides
            .iter()
            .flat_map(|side| side.schema.fields().iter().cloned());
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let logical = [0, 1].map(|side: usize| plans[side].schema().fields().len());
        let mut columns = (0..logical[0])
            .chain((0..logical[1]).map(|index| widths[0] + index))
            .map(|index| column(index, &schema))
            .collect::<Vec<Physical>>();
        let condition = match &join.filter {
            None => None,
            Some(filter) => {
                super::refuse_subqueries(filter)?;
                let both = join.left.schema().join(join.right.schema())?;
                let over_plan = physical(filter, &both)?;
                let bound = replace_columns(&over_plan, &columns)?;
                Some(PhysicalExpression::over(bound, &schema)?)
            }
        };
        let sides: [JoinSide; 2] = sides.try_into().expect("two sides");
        let spec = JoinSpec {
            sides,
            windows,
            is_start,
            kind,
            condition,
            schema,
        };
        let schema = spec.output().clone();
        let detail = explain::join(&spec);
        let key = format!("join {spec:?}");
        let node = self.node("join", detail, &nodes, NodeSpec::Join(spec), schema, &key);
        // A side that is padded with NULL has no window of its own any more.
        let padded = [
            matches!(kind, JoinKind::Right | JoinKind::Full),
            matches!(kind, JoinKind::Left | JoinKind::Full),
        ];
        let roles = streams.iter().zip(padded).flat_map(|(stream, padded)| {
            stream
                .roles
                .iter()
                .map(move |role| if padded { Role::Plain } else { *role })
        });
        let mut roles = roles.collect::<Vec<Role>>();
        if kind.is_of_left() {
            columns.truncate(logical[0]);
            roles.truncate(logical[0]);
        }
        Ok(Stream {
            node,
            columns,
            roles,
            time: None,
            updates: false,
            key: None,
            deletes: false,
        })
    }
}
