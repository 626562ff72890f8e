//! Joins of a stream with the current rows of a table: `FOR SYSTEM_TIME AS OF PROCTIME()`.
//!
//! A table of a database is looked up by the key of each row. A table that is read and ends becomes the table
//! of a table join, which is read to its end before the first row.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::DFSchema;
use datafusion_expr::logical_plan::{Join, TableScan};
use datafusion_expr::{Expr, LogicalPlan, Operator};
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, try_cast};
use slackwater_control::query::Exchange;
use slackwater_engine::expression::Expression;
use slackwater_engine::operator;
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::operator::lookup_join::{
    LookupConnector, LookupJoin, LookupJoinSpec, LookupRequest,
};

use super::columns::Columns;
use super::facts::{Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State};
use super::pair::{all_of, shown};
use super::stream::{Role, Stream};
use super::translator::{Translator, refuse_subqueries};
use crate::as_of::now::is_now;
use crate::error::{Result, SqlError};
use crate::expression::{Physical, column, column_index, physical, replace_columns};
use crate::table::{Table, TableColumn, TableHandle};

/// A join of a stream with the current rows of an external table.
pub struct LookupJoinNode {
    /// The keys and the condition of the join.
    pub spec: LookupJoinSpec,
}

impl Node for LookupJoinNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        Exchange::Forward
    }

    fn state(&self) -> Option<State> {
        // The table is looked up again.
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
            may_be_dealt: true,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: true,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(5_000.0, 60.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<operator::Operator> {
        Ok(operator::Operator::stateless(LookupJoin::new(
            self.spec.clone(),
        )?))
    }
}

/// The table that is looked up.
struct LookedUp {
    table: Arc<Table>,
    /// The physical columns that are read, and their fields.
    read: Vec<usize>,
    schema: SchemaRef,
    /// The columns of the table's plan, over the physical columns.
    columns: Vec<Physical>,
    /// The conditions of the table's plan, over the physical columns.
    conditions: Vec<Physical>,
}

fn near(error: SqlError) -> SqlError {
    error.near("SYSTEM_TIME")
}

impl Translator<'_> {
    /// A join with the current rows of a table. `time` must be `PROCTIME()`; without it the query said so.
    pub(super) fn lookup_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        time: Option<&Expr>,
        filter: Option<Expr>,
    ) -> Result<Stream> {
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            let error = "FOR SYSTEM_TIME AS OF is only supported on the right side of an INNER or LEFT JOIN";
            return Err(near(SqlError::new(error)));
        }
        let table = &table_of(&join.right)?;
        if let Some(time) = time {
            let stream = self.translate(&join.left)?;
            check_time(
                time,
                self.role(time, &stream, &join.left)?,
                table,
                &join.left,
            )?;
        }
        if let Some(connector) = self.connectors.lookup(table)? {
            let found = looked_up(&join.right)?;
            return self.look_up(join, kind, filter, found, connector);
        }
        if let Some(reason) = self.no_table(&join.right)? {
            let error = format!("the table can't be looked up: {reason}");
            return Err(near(SqlError::new(error)).hint(
                "use a table of a database (sqlite, postgres) or a table that ends; or declare a WATERMARK \
                for the table, and use the event time of the stream",
            ));
        }
        let join = Join {
            filter,
            ..join.clone()
        };
        self.table_join(&join, kind, 1)
    }

    fn look_up(
        &mut self,
        join: &Join,
        kind: JoinKind,
        filter: Option<Expr>,
        found: LookedUp,
        connector: Arc<dyn LookupConnector>,
    ) -> Result<Stream> {
        let stream = self.translate(&join.left)?;
        if stream.updates {
            let error = SqlError::new(
                "the stream updates or retracts rows, and a second lookup of a row may return something else",
            );
            return Err(near(error).hint("aggregate after the join, or in windows"));
        }
        let Asked {
            mut columns,
            request,
            keys,
            others,
        } = self.asked(join, &stream, &found)?;
        let time = stream.time.as_ref().filter(|_| self.needs.event_time);
        let time = time.map(|time| columns.place(time, "event_time"));
        let node = columns.node(self, &stream)?;
        let of_stream = self.schema(node);
        let fields = of_stream.fields().iter().chain(found.schema.fields());
        let schema: SchemaRef = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let both = both(join, &found, of_stream.fields().len(), &schema)?;
        let condition = both.condition(join, filter.as_ref(), &found, others, &schema)?;
        let spec = LookupJoinSpec {
            connector,
            request,
            keys,
            table: found.schema.clone(),
            keeps_unmatched: kind == JoinKind::Left,
            condition,
            schema: schema.clone(),
        };
        let detail = detail(&spec, &of_stream, &found.table.physical);
        // The name is part of the key: two tables may have the same place.
        let key = format!("lookup join {} {spec:?}", found.table.name);
        let lookup_join = LookupJoinNode { spec };
        let node = self.operator("lookup join", detail, &[node], lookup_join, &key);
        let mut roles = stream.roles.clone();
        roles.resize(both.columns.len(), Role::Plain);
        Ok(Stream {
            node,
            columns: both.columns,
            roles,
            time: time.map(|time| column(time, &schema)),
            updates: false,
            key: None,
            deletes: false,
            unique: Vec::new(),
        })
    }

    /// The lookup for each row of a stream.
    fn asked(&self, join: &Join, stream: &Stream, found: &LookedUp) -> Result<Asked> {
        let mut columns = Columns::of(stream, &join.left);
        let mut keys = Vec::new();
        let mut request = LookupRequest {
            keys: Vec::new(),
            columns: found.read.clone(),
        };
        let mut others = Vec::new();
        let of_stream = self.specs[stream.node].schema();
        for (left, right) in &join.on {
            let left = self.bind(left, stream, &join.left)?;
            let right = physical(right, join.right.schema())?;
            let right = replace_columns(&right, &found.columns)?;
            match key(&left, of_stream, &right, &found.schema)? {
                Some((key, at)) if !request.keys.contains(&found.read[at]) => {
                    keys.push(columns.place(&key, format!("key{}", keys.len())));
                    request.keys.push(found.read[at]);
                }
                _ => others.push((left, right)),
            }
        }
        if keys.is_empty() {
            let error =
                "FOR SYSTEM_TIME AS OF needs an equality between a key of the table and the stream";
            let hint = "compare a column of the table with an expression of the same type over the stream, \
            for example ON s.customer = c.id";
            return Err(near(SqlError::new(error)).hint(hint));
        }
        let others = others.into_iter().enumerate();
        let others = others
            .map(|(number, (left, right))| (columns.place(&left, format!("other{number}")), right));
        let others = others.collect();
        Ok(Asked {
            columns,
            request,
            keys,
            others,
        })
    }
}

/// The lookup for each row of a stream.
struct Asked {
    /// The columns of the stream, with the keys.
    columns: Columns,
    request: LookupRequest,
    keys: Vec<usize>,
    /// Equalities that can't be keys: a column of the stream, and an expression over the columns that are
    /// read.
    others: Vec<(usize, Physical)>,
}

/// The columns of a join with a table that is looked up, in SQL's order; and the columns that are read.
struct Both {
    columns: Vec<Physical>,
    of_table: Vec<Physical>,
}

/// The columns of both sides over a node that has `width` columns of the stream, followed by the columns that
/// are read from the table.
fn both(join: &Join, found: &LookedUp, width: usize, schema: &SchemaRef) -> Result<Both> {
    let of_table = (0..found.read.len()).map(|at| column(width + at, schema));
    let of_table = of_table.collect::<Vec<Physical>>();
    let columns = (0..join.left.schema().fields().len()).map(|at| Ok(column(at, schema)));
    // Expressions over the columns that are read become expressions over the node's columns.
    let looked_up = found.columns.iter();
    let looked_up = looked_up.map(|expression| replace_columns(expression, &of_table));
    let columns = columns.chain(looked_up);
    Ok(Both {
        columns: columns.collect::<Result<Vec<Physical>>>()?,
        of_table,
    })
}

impl Both {
    /// The condition on the rows that were found, besides the keys.
    fn condition(
        &self,
        join: &Join,
        filter: Option<&Expr>,
        found: &LookedUp,
        others: Vec<(usize, Physical)>,
        schema: &SchemaRef,
    ) -> Result<Option<Arc<dyn Expression>>> {
        let mut conditions = Vec::new();
        for condition in &found.conditions {
            conditions.push(replace_columns(condition, &self.of_table)?);
        }
        for (left, right) in others {
            let right = replace_columns(&right, &self.of_table)?;
            let left = column(left, schema);
            conditions.push(Arc::new(BinaryExpr::new(left, Operator::Eq, right)));
        }
        if let Some(filter) = filter {
            refuse_subqueries(filter)?;
            let both: DFSchema = join.left.schema().join(join.right.schema())?;
            conditions.push(replace_columns(&physical(filter, &both)?, &self.columns)?);
        }
        all_of(conditions, schema)
    }
}

/// The node's description in EXPLAIN; `table` has the physical columns of the table.
fn detail(spec: &LookupJoinSpec, stream: &SchemaRef, table: &SchemaRef) -> String {
    let keys = [spec.keys.as_slice(), &spec.request.keys];
    let on = shown(keys, [stream, table], spec.condition.as_ref());
    let kind = match spec.keeps_unmatched {
        true => "left",
        false => "inner",
    };
    let place = spec.connector.describe();
    format!("{kind}: {}, in {place}", on.join(" and "))
}

/// Checks whether rows can be joined with the table's rows at this time.
fn check_time(time: &Expr, role: Role, table: &Table, stream: &LogicalPlan) -> Result<()> {
    if is_now(time, stream) {
        return Ok(());
    }
    let name = &table.name;
    if role == Role::Time {
        let error = format!("table '{name}' has no event time, so it has no versions");
        return Err(near(SqlError::new(error)).hint(
            "declare a WATERMARK for the table, or join with its current rows: FOR SYSTEM_TIME AS OF \
            PROCTIME(), or a column that is PROCTIME()",
        ));
    }
    let error = format!("'{time}' is neither an event time nor PROCTIME()");
    Err(near(SqlError::new(error)).hint(format!(
        "FOR SYSTEM_TIME AS OF PROCTIME() joins with the rows of '{name}' at the time of processing"
    )))
}

/// The table below the nodes that the planner has added.
fn table_of(plan: &LogicalPlan) -> Result<Arc<Table>> {
    match plan {
        LogicalPlan::TableScan(scan) => match scan.source.downcast_ref::<TableHandle>() {
            Some(handle) => Ok(handle.0.clone()),
            None => Err(near(SqlError::new(
                "FOR SYSTEM_TIME AS OF can only be applied to a table",
            ))),
        },
        other => match other.inputs().first() {
            Some(input) => table_of(input),
            None => Err(near(SqlError::new(
                "FOR SYSTEM_TIME AS OF can only be applied to a table",
            ))),
        },
    }
}

/// The table below the conditions and aliases that the planner has added.
fn looked_up(plan: &LogicalPlan) -> Result<LookedUp> {
    match plan {
        LogicalPlan::TableScan(scan) => scanned(scan),
        LogicalPlan::SubqueryAlias(alias) => looked_up(&alias.input),
        LogicalPlan::Extension(extension) => looked_up(extension.node.inputs()[0]),
        LogicalPlan::Filter(filter) => {
            let mut found = looked_up(&filter.input)?;
            refuse_subqueries(&filter.predicate)?;
            let condition = physical(&filter.predicate, filter.input.schema())?;
            let condition = replace_columns(&condition, &found.columns)?;
            found.conditions.push(condition);
            Ok(found)
        }
        LogicalPlan::Projection(projection) => {
            let found = looked_up(&projection.input)?;
            let schema = projection.input.schema();
            let columns = projection.expr.iter().map(|expression| {
                let expression = physical(expression, schema)?;
                replace_columns(&expression, &found.columns)
            });
            Ok(LookedUp {
                columns: columns.collect::<Result<Vec<Physical>>>()?,
                ..found
            })
        }
        _ => Err(near(SqlError::new(
            "FOR SYSTEM_TIME AS OF can only be applied to a table",
        ))),
    }
}

fn scanned(scan: &TableScan) -> Result<LookedUp> {
    let table = table_of(&LogicalPlan::TableScan(scan.clone()))?;
    let wanted = match &scan.projection {
        Some(projection) => projection.clone(),
        None => (0..table.schema.fields().len()).collect(),
    };
    let mut read = Vec::new();
    for index in wanted {
        match &table.columns[index] {
            TableColumn::Physical(physical) => read.push(*physical),
            TableColumn::Computed(_) => {
                let name = table.schema.field(index).name();
                let error = format!(
                    "column '{name}' of '{}' is computed, so it can't be looked up",
                    table.name
                );
                let hint = "compute it in the SELECT from the table's other columns";
                return Err(SqlError::new(error).near(name).hint(hint));
            }
        }
    }
    let fields = read.iter().map(|&at| table.physical.field(at));
    let fields = fields.map(|field| Field::new(field.name(), field.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = (0..read.len()).map(|at| column(at, &schema)).collect();
    Ok(LookedUp {
        table,
        read,
        schema,
        columns,
        conditions: Vec::new(),
    })
}

/// The key of an equality: an expression over the stream with the column's type, and the index of the column;
/// `None` if the table can't be looked up by it.
fn key(
    left: &Physical,
    of_stream: &SchemaRef,
    right: &Physical,
    of_table: &SchemaRef,
) -> Result<Option<(Physical, usize)>> {
    // If the types differ, the planner has cast one side.
    let inner = match right.downcast_ref::<CastExpr>() {
        Some(cast) => cast.expr(),
        None => right,
    };
    let Some(at) = column_index(inner) else {
        return Ok(None);
    };
    let (from, to) = (left.data_type(of_stream)?, of_table.field(at).data_type());
    if &from == to {
        return Ok(Some((left.clone(), at)));
    }
    // A number out of the column's range becomes NULL, which equals nothing.
    let are_whole = from.is_integer() && to.is_integer();
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::Utf8View);
    match are_whole || (is_text(&from) && is_text(to)) {
        true => Ok(Some((try_cast(left.clone(), of_stream, to.clone())?, at))),
        false => Ok(None),
    }
}
