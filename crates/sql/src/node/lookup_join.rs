//! Joins of a stream with what a table has at the moment: `FOR SYSTEM_TIME AS OF PROCTIME()`.
//!
//! A table of a database is asked for each row's key. One that is read and ends becomes the table of a
//! table join, which has it all before the first row comes.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::DFSchema;
use datafusion_expr::logical_plan::{Join, TableScan};
use datafusion_expr::{Expr, LogicalPlan, Operator};
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, try_cast};
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::operator::lookup_join::{LookupConnector, LookupJoinSpec, LookupRequest};

use super::{Role, Stream, Translator};
use crate::as_of::now::is_now;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{
    Physical, PhysicalExpression, column, column_index, physical, replace_columns,
};
use crate::specs::NodeSpec;
use crate::table::{Table, TableColumn, TableHandle};

/// The table that is looked up.
struct LookedUp {
    table: Arc<Table>,
    /// Its physical columns that are read, and their fields.
    read: Vec<usize>,
    schema: SchemaRef,
    /// The columns of its plan, over those.
    columns: Vec<Physical>,
    /// What the planner wants to hold for its rows, over those.
    conditions: Vec<Physical>,
}

fn near(error: SqlError) -> SqlError {
    error.near("SYSTEM_TIME")
}

impl Translator<'_> {
    /// A join with what a table has now. `time` is to be `PROCTIME()`; without one it was said.
    pub(super) fn lookup_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        time: Option<&Expr>,
        filter: Option<Expr>,
    ) -> Result<Stream> {
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            let error = "FOR SYSTEM_TIME AS OF stands on the right of an INNER or LEFT JOIN";
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
            let error = format!("this table can't be looked up: {reason}");
            return Err(near(SqlError::new(error)).mend(
                "look up in a table of a database (sqlite, postgres) or in one that ends; or name the \
                 stream's event time, for a table with WATERMARK",
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
                "a row that is replaced or taken back would be looked up again, and may find something else",
            );
            return Err(near(error).mend("aggregate behind the join, or in windows"));
        }
        let mut names = Vec::new();
        names.extend(join.left.schema().fields().iter().map(|f| f.name().clone()));
        let mut columns = stream.columns.clone();
        let mut keys = Vec::new();
        let mut request = LookupRequest {
            keys: Vec::new(),
            columns: found.read.clone(),
        };
        // Equations that no key comes of.
        let mut others: Vec<(Physical, Physical)> = Vec::new();
        for (left, right) in &join.on {
            let left = self.bind(left, &stream, &join.left)?;
            let right = physical(right, join.right.schema())?;
            let right = replace_columns(&right, &found.columns)?;
            let of_stream = self.schemas[stream.node].clone();
            match key(&left, &of_stream, &right, &found.schema)? {
                Some((key, at)) if !request.keys.contains(&found.read[at]) => {
                    let name = format!("key{}", keys.len());
                    keys.push(place(&key, name, &mut columns, &mut names));
                    request.keys.push(found.read[at]);
                }
                _ => others.push((left, right)),
            }
        }
        if keys.is_empty() {
            let error = "FOR SYSTEM_TIME AS OF needs a key that is equal on both sides";
            let mend = "one column of the table on one side, and on the other an expression of its type over the \
                        stream: … AS c ON s.customer = c.id";
            return Err(near(SqlError::new(error)).mend(mend));
        }
        let others = others
            .into_iter()
            .enumerate()
            .map(|(number, (left, right))| {
                let name = format!("other{number}");
                (place(&left, name, &mut columns, &mut names), right)
            });
        let others = others.collect::<Vec<(usize, Physical)>>();
        let time = stream.time.as_ref().filter(|_| self.orders_by_time);
        let time = time.map(|time| place(time, "event_time".to_string(), &mut columns, &mut names));
        let node = self.materialise(&stream, &columns, &names, None)?;
        let of_stream = self.schemas[node].clone();
        let fields = of_stream.fields().iter().chain(found.schema.fields());
        let schema: SchemaRef = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        // What is an expression over what is read, as one over the join's columns.
        let of_table =
            (0..found.read.len()).map(|at| column(of_stream.fields().len() + at, &schema));
        let of_table = of_table.collect::<Vec<Physical>>();
        let columns = (0..join.left.schema().fields().len()).map(|at| Ok(column(at, &schema)));
        let looked_up = found.columns.iter();
        let looked_up = looked_up.map(|of| replace_columns(of, &of_table));
        let columns = columns
            .chain(looked_up)
            .collect::<Result<Vec<Physical>>>()?;
        let mut conditions = Vec::new();
        for condition in &found.conditions {
            conditions.push(replace_columns(condition, &of_table)?);
        }
        for (left, right) in others {
            let right = replace_columns(&right, &of_table)?;
            let left = column(left, &schema);
            conditions.push(Arc::new(BinaryExpr::new(left, Operator::Eq, right)));
        }
        if let Some(filter) = &filter {
            super::refuse_subqueries(filter)?;
            let both: DFSchema = join.left.schema().join(join.right.schema())?;
            conditions.push(replace_columns(&physical(filter, &both)?, &columns)?);
        }
        let and = |one, other| Arc::new(BinaryExpr::new(one, Operator::And, other)) as Physical;
        let condition = match conditions.into_iter().reduce(and) {
            None => None,
            Some(all) => Some(PhysicalExpression::over(all, &schema)? as _),
        };
        let spec = LookupJoinSpec {
            connector,
            request,
            keys,
            table: found.schema.clone(),
            keeps_unmatched: kind == JoinKind::Left,
            condition,
            schema: schema.clone(),
        };
        let detail = explain::lookup_join(&spec, &of_stream, &found.table.physical);
        // Tables are told apart by their names: two may be in places that look the same.
        let key = format!("lookup join {} {spec:?}", found.table.name);
        let spec = NodeSpec::LookupJoin(spec);
        let node = self.node("lookup join", detail, &[node], spec, schema.clone(), &key);
        let mut roles = stream.roles.clone();
        roles.resize(columns.len(), Role::Plain);
        Ok(Stream {
            node,
            columns,
            roles,
            time: time.map(|time| column(time, &schema)),
            updates: false,
            key: None,
            deletes: false,
        })
    }
}

/// Whether rows can be joined with what a table has at this time.
fn check_time(time: &Expr, role: Role, table: &Table, stream: &LogicalPlan) -> Result<()> {
    if is_now(time, stream) {
        return Ok(());
    }
    let name = &table.name;
    if role == Role::Time {
        let error = format!("'{name}' has no event time, so no version of it is valid at a time");
        return Err(near(SqlError::new(error)).mend(
            "declare it with the table (WATERMARK FOR …); or join with what is there now: FOR \
             SYSTEM_TIME AS OF PROCTIME(), or a column that is PROCTIME()",
        ));
    }
    let error = format!("'{time}' is neither event time nor PROCTIME()");
    Err(near(SqlError::new(error)).mend(format!(
        "FOR SYSTEM_TIME AS OF PROCTIME() joins with what '{name}' has when the row is worked on"
    )))
}

/// The table, whatever the planner has put upon it.
fn table_of(plan: &LogicalPlan) -> Result<Arc<Table>> {
    match plan {
        LogicalPlan::TableScan(scan) => match scan.source.downcast_ref::<TableHandle>() {
            Some(handle) => Ok(handle.0.clone()),
            None => Err(near(SqlError::new("FOR SYSTEM_TIME AS OF needs a table"))),
        },
        other => match other.inputs().first() {
            Some(input) => table_of(input),
            None => Err(near(SqlError::new("FOR SYSTEM_TIME AS OF needs a table"))),
        },
    }
}

/// The table below the conditions and names that the planner has put upon it.
fn looked_up(plan: &LogicalPlan) -> Result<LookedUp> {
    match plan {
        LogicalPlan::TableScan(scan) => scanned(scan),
        LogicalPlan::SubqueryAlias(alias) => looked_up(&alias.input),
        LogicalPlan::Extension(extension) => looked_up(extension.node.inputs()[0]),
        LogicalPlan::Filter(filter) => {
            let mut found = looked_up(&filter.input)?;
            super::refuse_subqueries(&filter.predicate)?;
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
        _ => Err(near(SqlError::new("FOR SYSTEM_TIME AS OF needs a table"))),
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
                    "column '{name}' of '{}' is computed, and is not looked up",
                    table.name
                );
                let mend = "compute it in the SELECT from the columns that are";
                return Err(SqlError::new(error).near(name).mend(mend));
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

/// The key of an equation: an expression over the stream of the column's type, and which column it is; `None`
/// where the table can't be asked for it.
fn key(
    left: &Physical,
    of_stream: &SchemaRef,
    right: &Physical,
    of_table: &SchemaRef,
) -> Result<Option<(Physical, usize)>> {
    // Where the types differ the planner casts one side.
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
    // A number that the column can't hold becomes NULL, which equals nothing.
    let are_whole = from.is_integer() && to.is_integer();
    let is_text = |of: &DataType| matches!(of, DataType::Utf8 | DataType::Utf8View);
    match are_whole || (is_text(&from) && is_text(to)) {
        true => Ok(Some((try_cast(left.clone(), of_stream, to.clone())?, at))),
        false => Ok(None),
    }
}

/// Where an expression stands among the columns, added if it does not.
fn place(
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
