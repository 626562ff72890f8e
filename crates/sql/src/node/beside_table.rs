//! Code that joins with a table and joins with the versions of a table share.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::logical_plan::Join;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_engine::operator::drop_late::Late;
use slackwater_engine::operator::table_join::{Only, STREAM, TABLE, TableJoinSpec};

use super::columns::Columns;
use super::facts::Node;
use super::pair::{all_of, plans, shown};
use super::stream::{Role, Stream};
use super::translator::{Translator, refuse_subqueries};
use crate::error::{Result, SqlError};
use crate::expression::{Physical, column, column_index, physical, replace_columns};

/// The two sides of a join with a table.
pub struct Sides<'a> {
    pub join: &'a Join,
    /// The side of the join that is the stream: 0 is the left one, 1 the right one.
    pub stream_side: usize,
    /// The stream, then the table.
    pub streams: [Stream; 2],
}

impl<'a> Sides<'a> {
    /// The side and plan of the stream, then those of the table.
    pub fn in_order(&self) -> [(usize, &'a LogicalPlan); 2] {
        let plans = plans(self.join);
        [self.stream_side, 1 - self.stream_side].map(|side| (side, plans[side]))
    }

    /// The columns of the join in SQL's order: the left side's, then the right side's; the stream has `width`
    /// columns.
    fn columns(&self, width: usize, schema: &SchemaRef) -> Vec<Physical> {
        let plans = plans(self.join);
        let columns = [0, 1].into_iter().flat_map(|side| {
            let start = if side == self.stream_side { 0 } else { width };
            (0..plans[side].schema().fields().len()).map(move |index| start + index)
        });
        columns.map(|index| column(index, schema)).collect()
    }
}

/// The versions of a table that are joined.
pub struct Versions {
    /// The event times by which a version is looked up: the stream's, and the table's.
    pub times: [Physical; 2],
    /// Conditions on the table that are evaluated after the join.
    pub conditions: Vec<Physical>,
}

/// One side of the join, with all columns that the join needs.
struct Placed {
    node: usize,
    keys: Vec<usize>,
    /// The index of the event time by which a version is looked up.
    as_of: usize,
    /// The index of the stream's event time.
    time: Option<usize>,
    /// The indices of the columns that conditions on versions read.
    looked_at: HashMap<usize, usize>,
}

/// The inputs of a join with a table.
pub struct Beside {
    /// The nodes of the stream and the table.
    pub nodes: [usize; 2],
    pub spec: TableJoinSpec,
    /// The columns of the stream.
    pub stream: SchemaRef,
    /// The columns of the join in SQL's order.
    columns: Vec<Physical>,
    /// The indices of the event times by which a version is looked up.
    pub times: [usize; 2],
    time: Option<Physical>,
}

impl Translator<'_> {
    /// The nodes of both sides, and the indices of their columns that the join needs.
    pub(super) fn beside(
        &mut self,
        sides: &Sides<'_>,
        keeps_unmatched: bool,
        filter: Option<&Expr>,
        versions: Option<&Versions>,
    ) -> Result<Beside> {
        check_stays(sides, versions.is_some())?;
        let pairs = self.equal(sides)?;
        let stream = self.placed(sides, STREAM, &pairs, versions)?;
        let table = self.placed(sides, TABLE, &pairs, versions)?;
        let nodes = [stream.node, table.node];
        let [of_stream, of_table] = nodes.map(|node| self.schema(node));
        let width = of_stream.fields().len();
        let fields = of_stream.fields().iter().chain(of_table.fields());
        let schema: SchemaRef = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let columns = sides.columns(width, &schema);
        let mut conditions = Vec::new();
        if let Some(filter) = filter {
            refuse_subqueries(filter)?;
            let both = sides.join.left.schema().join(sides.join.right.schema())?;
            conditions.push(replace_columns(&physical(filter, &both)?, &columns)?);
        }
        for condition in versions.iter().flat_map(|versions| &versions.conditions) {
            let before = self.specs[sides.streams[TABLE].node].schema();
            let at = 0..before.fields().len();
            let at = at.map(|index| table.looked_at.get(&index).copied().unwrap_or(0));
            let at = at.map(|index| column(width + index, &schema));
            conditions.push(replace_columns(condition, &at.collect::<Vec<Physical>>())?);
        }
        Ok(Beside {
            nodes,
            times: [stream.as_of, table.as_of],
            time: stream.time.map(|time| column(time, &schema)),
            spec: TableJoinSpec {
                keys: [stream.keys, table.keys],
                table: of_table,
                keeps_unmatched,
                only: None,
                condition: all_of(conditions, &schema)?,
                schema,
            },
            stream: of_stream,
            columns,
        })
    }

    /// The equal expressions of both sides: of each pair the stream's, then the table's.
    fn equal(&self, sides: &Sides<'_>) -> Result<Vec<[Physical; 2]>> {
        let mut pairs = Vec::new();
        for (left, right) in &sides.join.on {
            let expressions = [left, right];
            let bind = |input: usize| {
                let (side, plan) = sides.in_order()[input];
                self.bind(expressions[side], &sides.streams[input], plan)
            };
            pairs.push([bind(STREAM)?, bind(TABLE)?]);
        }
        Ok(pairs)
    }

    /// The stream or the table, with everything that the join needs as columns.
    fn placed(
        &mut self,
        sides: &Sides<'_>,
        input: usize,
        pairs: &[[Physical; 2]],
        versions: Option<&Versions>,
    ) -> Result<Placed> {
        let stream = &sides.streams[input];
        let mut columns = Columns::of(stream, sides.in_order()[input].1);
        let keys = columns.place_keys(pairs.iter().map(|pair| &pair[input]));
        let as_of = versions.map(|versions| columns.place(&versions.times[input], "as_of"));
        let mut looked_at = HashMap::new();
        let node = self.schema(stream.node);
        let conditions = versions.iter().flat_map(|versions| &versions.conditions);
        for condition in conditions.filter(|_| input == TABLE) {
            condition.apply(|part| {
                if let Some(index) = column_index(part) {
                    let name = node.field(index).name();
                    looked_at.insert(index, columns.place(&column(index, &node), name));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let time = stream.time.as_ref();
        let time = time.filter(|_| input == STREAM && self.needs.event_time);
        let time = time.map(|time| columns.place(time, "event_time"));
        let mut node = columns.node(self, stream)?;
        if let Some(as_of) = as_of {
            node = self.drop_late(node, as_of, Late::Before);
        }
        Ok(Placed {
            node,
            keys,
            as_of: as_of.unwrap_or(0),
            time,
            looked_at,
        })
    }

    /// Adds the node of a join, and returns its stream.
    pub(super) fn joined(
        &mut self,
        name: &str,
        detail: String,
        operator: impl Node + 'static,
        key: &str,
        sides: Sides<'_>,
        beside: Beside,
    ) -> Stream {
        let is_alone = beside.spec.only.is_some();
        let node = self.operator(name, detail, &beside.nodes, operator, key);
        let schema = self.schema(node);
        let plans = plans(sides.join);
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
            // The stream's columns keep their indices.
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
            // Each row of the stream is looked up on its own, also a retraction.
            updates: sides.streams[STREAM].updates,
            key,
            deletes: sides.streams[STREAM].updates,
            unique: Vec::new(),
        }
    }
}

/// Rejects updated rows where the join needs rows that never change.
fn check_stays(sides: &Sides<'_>, has_versions: bool) -> Result<()> {
    let changing = match has_versions {
        true => &sides.streams[..],
        false => &sides.streams[TABLE..],
    };
    if changing.iter().any(|stream| stream.updates) {
        return Err(SqlError::new(
            "FOR SYSTEM_TIME AS OF needs rows that never change, and these are updated or retracted",
        )
        .near("JOIN")
        .hint("aggregate after the join, or join without FOR SYSTEM_TIME AS OF"));
    }
    Ok(())
}

/// The node's description in EXPLAIN.
pub fn detail(spec: &TableJoinSpec, stream: &Schema) -> String {
    let keys = [spec.keys[STREAM].as_slice(), &spec.keys[TABLE]];
    let on = shown(keys, [stream, &spec.table], spec.condition.as_ref());
    let kind = match spec.only {
        Some(Only::WithPartner) => "semi",
        Some(Only::WithoutPartner) => "anti",
        Some(Only::NotAmong) => "not in",
        None if spec.keeps_unmatched => "left",
        None => "inner",
    };
    match on.is_empty() {
        true => format!("{kind}: every pair"),
        false => format!("{kind}: {}", on.join(" and ")),
    }
}
