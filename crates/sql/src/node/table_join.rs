//! Joins of a stream with a table: one that ends and has no event time, or, `FOR SYSTEM_TIME AS OF`,
//! the versions of one that has.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::logical_plan::Join;
use datafusion_expr::{Expr, LogicalPlan, Operator};
use datafusion_physical_expr::expressions::BinaryExpr;
use slackwater_engine::operator::drop_late::Late;
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::operator::table_join::{STREAM, TABLE, TableJoinSpec};
use slackwater_engine::operator::temporal_join::TemporalJoinSpec;

use super::{Role, Stream, Translator, semi_join};
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{
    Physical, PhysicalExpression, column, column_index, physical, replace_columns,
};
use crate::specs::NodeSpec;
use crate::table::TableHandle;

impl Translator<'_> {
    /// Why a plan can't be the table of a join; `None` if it can.
    pub(super) fn no_table(&self, plan: &LogicalPlan) -> Result<Option<String>> {
        let mut tables = Vec::new();
        let mut is_aggregated = false;
        plan.apply(|part| {
            is_aggregated |= matches!(part, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
            if let LogicalPlan::TableScan(scan) = part
                && let Some(handle) = scan.source.downcast_ref::<TableHandle>()
            {
                tables.push(handle.0.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if is_aggregated {
            return Ok(Some("it is aggregated".to_string()));
        }
        for table in tables {
            let name = &table.name;
            if table.event_time.is_some() {
                return Ok(Some(format!("'{name}' has a WATERMARK")));
            }
            if !self.connectors.source(&table)?.describe().bounded {
                return Ok(Some(format!("'{name}' may never end")));
            }
        }
        Ok(None)
    }

    /// Which side of a join is the table, 0 the left one; `None` where rows of a table would be kept: they
    /// are never at their end, and such a join takes back what it has padded.
    pub(super) fn table_side(kind: JoinKind, may_be_table: [bool; 2]) -> Option<usize> {
        match (kind, may_be_table) {
            (JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti, [_, true]) => {
                Some(1)
            }
            (JoinKind::Inner | JoinKind::Right, [true, _]) => Some(0),
            _ => None,
        }
    }

    /// A join of which the side `table_side` is read to its end first.
    pub(super) fn table_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        table_side: usize,
    ) -> Result<Stream> {
        let plans = [join.left.as_ref(), join.right.as_ref()];
        let stream_side = 1 - table_side;
        let stream = self.translate(plans[stream_side])?;
        self.depth += 1;
        let table = self.translate(plans[table_side]);
        self.depth -= 1;
        let filter = join.filter.as_ref();
        let keeps_unmatched = matches!(kind, JoinKind::Left | JoinKind::Right);
        let only = semi_join::only(join, kind)?;
        let sides = Sides {
            join,
            stream_side,
            streams: [stream, table?],
        };
        let mut beside = self.beside(&sides, keeps_unmatched, filter, None)?;
        beside.spec.only = only;
        let detail = explain::table_join(&beside.spec, &beside.stream);
        let key = format!("table join {:?}", beside.spec);
        let spec = NodeSpec::TableJoin(beside.spec.clone());
        Ok(self.joined("table join", detail, spec, &key, sides, beside))
    }

    /// A join with a table `FOR SYSTEM_TIME AS OF` an event time: `times` are that and the table's.
    pub(super) fn temporal_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        times: [&Expr; 2],
        filter: Option<&Expr>,
    ) -> Result<Stream> {
        let near = |error: SqlError| error.near("SYSTEM_TIME");
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            let error = "FOR SYSTEM_TIME AS OF stands on the right of an INNER or LEFT JOIN";
            return Err(near(SqlError::new(error)));
        }
        if join.on.is_empty() {
            let error = "FOR SYSTEM_TIME AS OF needs a key that is equal on both sides";
            return Err(near(SqlError::new(error)).mend("… AS r ON s.currency = r.currency"));
        }
        let plans = [join.left.as_ref(), join.right.as_ref()];
        let stream = self.translate(plans[0])?;
        let (versions, conditions) = self.versions(plans[1])?;
        let streams = [stream, versions];
        let mut bound = Vec::new();
        for ((time, stream), plan) in times.into_iter().zip(&streams).zip(plans) {
            if self.role(time, stream, plan)? != Role::Time {
                let error = format!("'{time}' is not event time, so no version belongs to it");
                return Err(near(SqlError::new(error))
                    .mend("name the column that WATERMARK FOR names, or a window's window_time"));
            }
            bound.push(self.bind(time, stream, plan)?);
        }
        let sides = Sides {
            join,
            stream_side: 0,
            streams,
        };
        let times = [bound[0].clone(), bound[1].clone()];
        let versions = Some((times, conditions));
        let beside = self.beside(&sides, kind == JoinKind::Left, filter, versions)?;
        let detail = explain::table_join(&beside.spec, &beside.stream);
        let detail = format!("{detail}, as of {}", explain::expression(&bound[0]));
        let spec = TemporalJoinSpec {
            join: beside.spec.clone(),
            times: beside.times.expect("given just above"),
        };
        let key = format!("temporal join {spec:?}");
        let spec = NodeSpec::TemporalJoin(spec);
        Ok(self.joined("temporal join", detail, spec, &key, sides, beside))
    }

    /// The versions of a table, and the conditions that the planner has put upon them: they hold for
    /// what was joined.
    fn versions(&mut self, plan: &LogicalPlan) -> Result<(Stream, Vec<Physical>)> {
        match plan {
            LogicalPlan::Filter(filter) => {
                let (stream, mut conditions) = self.versions(&filter.input)?;
                conditions.push(self.bind(&filter.predicate, &stream, &filter.input)?);
                Ok((stream, conditions))
            }
            LogicalPlan::SubqueryAlias(alias) => self.versions(&alias.input),
            LogicalPlan::Projection(projection) => {
                let (stream, conditions) = self.versions(&projection.input)?;
                let node = stream.node;
                let stream = self.project(stream, &projection.expr, &projection.input)?;
                match stream.node == node {
                    true => Ok((stream, conditions)),
                    false => Err(
                        SqlError::new("versions of a computed table are not known here")
                            .near("SYSTEM_TIME"),
                    ),
                }
            }
            _ => Ok((self.translate(plan)?, Vec::new())),
        }
    }

    /// The nodes of both sides, and where in them what is needed stands.
    fn beside(
        &mut self,
        sides: &Sides,
        keeps_unmatched: bool,
        filter: Option<&Expr>,
        versions: Option<([Physical; 2], Vec<Physical>)>,
    ) -> Result<Beside> {
        let (times, conditions) = match versions {
            Some((times, conditions)) => (Some(times), conditions),
            None => (None, Vec::new()),
        };
        // Where the columns stand that conditions on versions look at.
        let mut looked_at = HashMap::new();

        let Sides { join, streams, .. } = sides;
        let sides_of = sides.in_order();
        let changing = if times.is_some() {
            &streams[..]
        } else {
            &streams[TABLE..]
        };
        if changing.iter().any(|stream| stream.updates) {
            return Err(SqlError::new(
                "FOR SYSTEM_TIME AS OF joins rows that stay, and these are taken back or replaced",
            )
            .near("JOIN")
            .mend("aggregate behind the join, or join without FOR SYSTEM_TIME AS OF"));
        }
        let mut pairs = Vec::new();
        for (left, right) in &join.on {
            let expressions = [left, right];
            let bind = |input: usize| {
                let (side, plan) = sides_of[input];
                self.bind(expressions[side], &streams[input], plan)
            };
            pairs.push([bind(STREAM)?, bind(TABLE)?]);
        }
        let mut nodes = [0; 2];
        let mut keys = [Vec::new(), Vec::new()];
        let mut time = None;
        let mut placed_times = [0; 2];
        for (input, (_, plan)) in sides_of.into_iter().enumerate() {
            let fields = plan.schema().fields().iter();
            let mut names = fields.map(|field| field.name().clone()).collect();
            let mut columns = streams[input].columns.clone();
            let mut place = |expression: &Physical, name: String| {
                place(expression, name, &mut columns, &mut names)
            };
            for (number, pair) in pairs.iter().enumerate() {
                keys[input].push(place(&pair[input], format!("key{number}")));
            }
            if let Some(times) = &times {
                placed_times[input] = place(&times[input], "as_of".to_string());
            }
            if input == TABLE {
                let node = self.schemas[streams[input].node].clone();
                for condition in &conditions {
                    condition.apply(|part| {
                        if let Some(index) = column_index(part) {
                            let of = column(index, &node);
                            let name = node.field(index).name().clone();
                            looked_at.insert(index, place(&of, name));
                        }
                        Ok(TreeNodeRecursion::Continue)
                    })?;
                }
            }
            if input == STREAM && self.orders_by_time {
                let event_time = streams[STREAM].time.as_ref();
                time = event_time.map(|time| place(time, "event_time".to_string()));
            }
            let node = self.materialise(&streams[input], &columns, &names, None)?;
            nodes[input] = match &times {
                Some(_) => self.drop_late(node, placed_times[input], Late::Before),
                None => node,
            };
        }
        let [stream, table] = nodes.map(|node| self.schemas[node].clone());
        let fields = stream.fields().iter().chain(table.fields());
        let schema: SchemaRef = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        // The columns of the join as SQL has them: the left side's, then the right one's.
        let plans = [&join.left, &join.right];
        let columns = [0, 1].into_iter().flat_map(|side| {
            let is_stream = side == sides.stream_side;
            let start = if is_stream { 0 } else { stream.fields().len() };
            (0..plans[side].schema().fields().len()).map(move |index| start + index)
        });
        let columns = columns.map(|index| column(index, &schema));
        let columns = columns.collect::<Vec<Physical>>();
        let mut bound = Vec::new();
        if let Some(filter) = filter {
            super::refuse_subqueries(filter)?;
            let both = join.left.schema().join(join.right.schema())?;
            bound.push(replace_columns(&physical(filter, &both)?, &columns)?);
        }
        for condition in &conditions {
            let node = self.schemas[streams[TABLE].node].fields().len();
            let at = (0..node).map(|index| looked_at.get(&index).copied().unwrap_or(0));
            let at = at.map(|index| column(stream.fields().len() + index, &schema));
            bound.push(replace_columns(condition, &at.collect::<Vec<Physical>>())?);
        }
        let and = |one, other| Arc::new(BinaryExpr::new(one, Operator::And, other)) as Physical;
        let condition = match bound.into_iter().reduce(and) {
            None => None,
            Some(bound) => Some(PhysicalExpression::over(bound, &schema)? as _),
        };
        Ok(Beside {
            nodes,
            spec: TableJoinSpec {
                keys,
                table,
                keeps_unmatched,
                only: None,
                condition,
                schema: schema.clone(),
            },
            stream,
            columns,
            times: times.map(|_| placed_times),
            time: time.map(|time| column(time, &schema)),
        })
    }

    /// A node without the late rows of `node`.
    pub(super) fn drop_late(&mut self, node: usize, time_column: usize, late: Late) -> usize {
        let schema = self.schemas[node].clone();
        let detail = format!("by {}", schema.field(time_column).name());
        let key = format!("drop late {time_column} {late:?}");
        let spec = NodeSpec::DropLate { time_column, late };
        self.node("drop late", detail, &[node], spec, schema, &key)
    }

    /// The node of a join, and what it makes.
    fn joined(
        &mut self,
        name: &str,
        detail: String,
        spec: NodeSpec,
        key: &str,
        sides: Sides,
        beside: Beside,
    ) -> Stream {
        let is_alone = beside.spec.only.is_some();
        let schema = match is_alone {
            true => beside.stream,
            false => beside.spec.schema,
        };
        let node = self.node(name, detail, &beside.nodes, spec, schema.clone(), key);
        let plans = [&sides.join.left, &sides.join.right];
        let roles = [0, 1].into_iter().flat_map(|side| {
            if side == sides.stream_side {
                sides.streams[STREAM].roles.clone()
            } else {
                vec![Role::Plain; plans[side].schema().fields().len()]
            }
        });
        let (mut columns, mut roles) = (beside.columns, roles.collect::<Vec<Role>>());
        let mut key = None;
        if is_alone {
            let of_plan = plans[sides.stream_side].schema().fields().len();
            columns.truncate(of_plan);
            roles.truncate(of_plan);
            // Its columns stand where they stood.
            let before = &sides.streams[STREAM];
            key = before.key.as_ref().and_then(|key| {
                let places = key.iter().map(|of_key| {
                    let place = before.columns.iter().position(|known| known == of_key);
                    place.map(|at| column(at, &schema))
                });
                places.collect::<Option<Vec<Physical>>>()
            });
        }
        Stream {
            node,
            columns,
            roles,
            time: beside.time,
            // Each row of the stream is looked up alone, whatever it does.
            updates: sides.streams[STREAM].updates,
            key,
            deletes: sides.streams[STREAM].updates,
        }
    }
}

/// The two sides of a join with a table.
struct Sides<'a> {
    join: &'a Join,
    /// Which side of the join is the stream: 0 the left one, 1 the right one.
    stream_side: usize,
    /// The stream, then the table.
    streams: [Stream; 2],
}

impl<'a> Sides<'a> {
    /// Which side the stream is, then which the table is; with their plans.
    fn in_order(&self) -> [(usize, &'a LogicalPlan); 2] {
        let join = self.join;
        let plans = [join.left.as_ref(), join.right.as_ref()];
        [self.stream_side, 1 - self.stream_side].map(|side| (side, plans[side]))
    }
}

/// What a join with a table is made from.
struct Beside {
    /// The stream's node and the table's.
    nodes: [usize; 2],
    spec: TableJoinSpec,
    /// Columns of the stream.
    stream: SchemaRef,
    /// The join's columns, as SQL has them.
    columns: Vec<Physical>,
    /// Where the event times stand that a version is looked up by.
    times: Option<[usize; 2]>,
    time: Option<Physical>,
}

/// Where an expression stands among the columns, added if it does not.
pub(super) fn place(
    expression: &Physical,
    name: String,
    columns: &mut Vec<Physical>,
    names: &mut Vec<String>,
) -> usize {
    let known = columns.iter().position(|known| known == expression);
    known.unwrap_or_else(|| {
        columns.push(expression.clone());
        names.push(name);
        columns.len() - 1
    })
}
