//! From logical plans to the query graph.
//!
//! A [`Stream`] is the output of a plan: a node of the graph, and for each column of the plan an
//! expression over the node's columns. Projections that only rename or pick columns thus cost no
//! operator. Nodes that say the same thing about the same input are one node, so that statements of
//! one file, and a view that is used twice, share what they have in common.

mod aggregate;
mod changelog_join;
mod fields;
mod final_rows;
mod in_time;
mod interval_join;
mod late_rows;
mod lookup_join;
mod over;
mod semi_join;
mod sink;
mod source;
mod table_join;
mod top_n;
mod union;
mod window;
mod window_join;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan};
use slackwater_control::query::{Edge, Exchange, Node, NodeKind, QueryGraph};
use slackwater_engine::expression::Expression;
use slackwater_engine::operator::window::{WindowKind, Windows};

use crate::as_of;
use crate::connectors::Connectors;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{
    Physical, PhysicalExpression, column, column_index, physical, replace_columns, uncast,
};
use crate::prune::InTimeNode;
use crate::session::Session;
use crate::settings::Balancer;
use crate::specs::{Changes, NodeSpec};
use crate::table::TableHandle;
use crate::window::WindowNode;

/// Builds a query graph from logical plans.
pub struct Translator<'a> {
    session: &'a Session,
    connectors: &'a dyn Connectors,
    /// The graph so far.
    pub graph: QueryGraph,
    /// What its nodes stand for.
    pub specs: Vec<NodeSpec>,
    /// Columns of each node's output.
    schemas: Vec<SchemaRef>,
    /// Nodes by what they say.
    known: HashMap<String, usize>,
    /// Columns of each table that some plan reads.
    used: HashMap<String, BTreeSet<usize>>,
    /// Fields of ROW columns that some plan reads.
    fields: fields::UsedFields,
    /// Some aggregate orders rows by event time.
    orders_by_time: bool,
    /// Some interval join or OVER takes a row at its own watermark for late.
    is_late_at_watermark: bool,
    /// The aggregation above the next window function merges its sessions itself.
    merges_sessions: bool,
    /// Late rows, and the tables that they go to.
    late: Vec<late_rows::LateRowsOf>,
    /// How many tables of joins the plan at hand lies in. A table is read to its end before the
    /// stream that it is joined with, so the two share no source: it would wait for itself.
    depth: usize,
    /// How many of ORDER BY, LIMIT and `'emit' = 'final'` the plan at hand lies in: aggregates then emit at
    /// the end of their input only.
    at_end: usize,
    /// What the user is to know of how it was done.
    pub warnings: Vec<String>,
}

/// What the columns of a plan are over a node of the graph.
#[derive(Clone)]
struct Stream {
    node: usize,
    columns: Vec<Physical>,
    roles: Vec<Role>,
    /// Event time, where the stream has it, also when the plan has no such column any more.
    time: Option<Physical>,
    /// Rows replace earlier rows, or take them back.
    updates: bool,
    /// Where `updates`: the columns that tell which row is replaced; `None` where only the whole row
    /// says it.
    key: Option<Vec<Physical>>,
    /// Where `updates`: rows may go for good.
    deletes: bool,
}

impl Stream {
    /// What its rows may do to those before them.
    fn changes(&self) -> Changes {
        let place = |part| self.columns.iter().position(|column| column == part);
        match &self.key {
            _ if !self.updates => Changes::None,
            None => Changes::ByRow,
            Some(key) => match key.iter().map(place).collect() {
                Some(columns) => Changes::ByKey(columns),
                None => Changes::HiddenKey,
            },
        }
    }
}

/// What is special about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Plain,
    /// Event time: windows can be made by it.
    Time,
    WindowStart(Windows),
    WindowEnd(Windows),
    /// Which of the count windows of its key it is.
    WindowNumber,
}

impl Role {
    /// The role of a column that is cast. Times of another unit are the same times if the unit is not
    /// coarser: the planner casts where two units meet.
    fn cast(self, from: &DataType, to: &DataType) -> Role {
        let (DataType::Timestamp(from, None), DataType::Timestamp(to, None)) = (from, to) else {
            return Role::Plain;
        };
        if to < from {
            return Role::Plain;
        }
        match self {
            Role::Time => Role::Time,
            Role::WindowStart(windows) => {
                windows.in_unit(*to).map_or(Role::Plain, Role::WindowStart)
            }
            Role::WindowEnd(windows) => windows.in_unit(*to).map_or(Role::Plain, Role::WindowEnd),
            Role::Plain | Role::WindowNumber => Role::Plain,
        }
    }
}

impl<'a> Translator<'a> {
    /// A translator for all `plans` of one program.
    pub fn new(
        session: &'a Session,
        connectors: &'a dyn Connectors,
        plans: &[&LogicalPlan],
    ) -> Result<Translator<'a>> {
        let mut translator = Translator {
            session,
            connectors,
            graph: QueryGraph::default(),
            specs: Vec::new(),
            schemas: Vec::new(),
            known: HashMap::new(),
            used: HashMap::new(),
            fields: fields::UsedFields::default(),
            orders_by_time: false,
            is_late_at_watermark: false,
            merges_sessions: false,
            late: Vec::new(),
            depth: 0,
            at_end: 0,
            warnings: Vec::new(),
        };
        for plan in plans {
            translator.collect(plan)?;
        }
        Ok(translator)
    }

    /// Notes which columns of which tables a plan reads.
    fn collect(&mut self, plan: &LogicalPlan) -> Result<()> {
        let pass_on = |fields: &mut fields::UsedFields, plan: &LogicalPlan| {
            let columns = plan.schema().fields().iter();
            columns.for_each(|column| fields.read_whole(column.name()));
        };
        pass_on(&mut self.fields, plan);
        plan.apply(|part| {
            part.apply_expressions(|expression| {
                self.fields.read(expression);
                Ok(TreeNodeRecursion::Continue)
            })?;
            if let LogicalPlan::Union(union) = part {
                let inputs = union.inputs.iter();
                inputs.for_each(|input| pass_on(&mut self.fields, input));
            }
            if let LogicalPlan::TableScan(scan) = part
                && let Some(handle) = scan.source.downcast_ref::<TableHandle>()
            {
                let used = self.used.entry(handle.0.name.clone()).or_default();
                match &scan.projection {
                    Some(projection) => used.extend(projection),
                    None => used.extend(0..handle.0.schema.fields().len()),
                }
            }
            self.is_late_at_watermark |= match part {
                LogicalPlan::Window(_) => true,
                LogicalPlan::Extension(extension) => InTimeNode::of(extension).is_some(),
                LogicalPlan::Join(join) => interval_join::compares_times(join),
                _ => false,
            };
            // Sessions that an aggregation merges need the event time of rows.
            if let LogicalPlan::Extension(extension) = part
                && let Some(window) = extension.node.as_any().downcast_ref::<WindowNode>()
            {
                self.orders_by_time |= window.windows.kind == WindowKind::Session;
            }
            if let LogicalPlan::Aggregate(aggregate) = part {
                let text = format!("{:?}", aggregate.aggr_expr).to_lowercase();
                self.orders_by_time |= text.contains("first_value") || text.contains("last_value");
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    fn translate(&mut self, plan: &LogicalPlan) -> Result<Stream> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.translate(&alias.input),
            LogicalPlan::Projection(projection) => {
                let input = match projection.input.as_ref() {
                    LogicalPlan::Filter(filter) => self.top_n(filter, Some(&projection.expr))?,
                    _ => None,
                };
                let input = match input {
                    Some(input) => input,
                    None => self.translate(&projection.input)?,
                };
                let stream = self.project(input, &projection.expr, &projection.input)?;
                // What is another value each time is computed once, however often it is read.
                match projection.expr.iter().any(Expr::is_volatile) {
                    true => self.settle(stream, plan),
                    false => Ok(stream),
                }
            }
            // What a rule has left of the condition of a join.
            LogicalPlan::Filter(filter) if semi_join::is_true(&filter.predicate) => {
                self.translate(&filter.input)
            }
            LogicalPlan::Filter(filter) => {
                if let Some(first) = self.top_n(filter, None)? {
                    return Ok(first);
                }
                let input = self.translate(&filter.input)?;
                self.filter(input, &filter.predicate, &filter.input)
            }
            LogicalPlan::Extension(extension) => {
                if let Some(node) = InTimeNode::of(extension) {
                    return self.in_time(node);
                }
                match extension.node.as_any().downcast_ref::<WindowNode>() {
                    Some(window) => self.window(window),
                    None if as_of::VersionsNode::is(extension) => {
                        self.translate(extension.node.inputs()[0])
                    }
                    None => Err(SqlError::new(format!(
                        "{} is not known here",
                        extension.node.name()
                    ))),
                }
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Window(window) => self.over(window),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => Err(SqlError::new(
                "a query without a table has no stream to read",
            )
            .mend("read one: … FROM table")),
            LogicalPlan::Distinct(_) => Err(SqlError::new("DISTINCT ON is not known here")),
            LogicalPlan::Subquery(_) => Err(SqlError::new("this subquery is not known here")
                .mend("join with it over equal windows")),
            other => Err(SqlError::new(format!(
                "this is not known in a query here: {}",
                other
                    .display()
                    .to_string()
                    .split_once(':')
                    .map_or("?".to_string(), |(n, _)| n.to_string())
            ))),
        }
    }

    /// A logical expression over the columns of a plan, as one over the stream's node.
    fn bind(&self, expression: &Expr, stream: &Stream, plan: &LogicalPlan) -> Result<Physical> {
        refuse_subqueries(expression)?;
        let over_plan = physical(expression, plan.schema())?;
        replace_columns(&over_plan, &stream.columns)
    }

    fn role(&self, expression: &Expr, stream: &Stream, plan: &LogicalPlan) -> Result<Role> {
        match expression {
            Expr::Alias(alias) => self.role(&alias.expr, stream, plan),
            Expr::Column(column) => Ok(stream.roles[plan.schema().index_of_column(column)?]),
            Expr::Cast(cast) => {
                let role = self.role(&cast.expr, stream, plan)?;
                Ok(role.cast(&cast.expr.get_type(plan.schema())?, cast.field.data_type()))
            }
            _ => Ok(Role::Plain),
        }
    }

    /// A projection costs no operator of its own: its expressions are evaluated where their values
    /// are needed. Only a computed column that is used more than once is computed before.
    fn project(
        &mut self,
        mut input: Stream,
        expressions: &[Expr],
        plan: &LogicalPlan,
    ) -> Result<Stream> {
        let mut uses = vec![0; input.columns.len()];
        for expression in expressions {
            expression.apply(|part| {
                if let Expr::Column(column) = part {
                    uses[plan.schema().index_of_column(column)?] += 1;
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let mut used = uses.iter().zip(&input.columns);
        if used.any(|(&uses, column)| uses > 1 && column_index(column).is_none()) {
            input = self.settle(input, plan)?;
        }
        let mut columns = Vec::new();
        let mut roles = Vec::new();
        for expression in expressions {
            columns.push(self.bind(expression, &input, plan)?);
            roles.push(self.role(expression, &input, plan)?);
        }
        // A key that is cast to a wider type is a key.
        let key = input.key.as_ref().and_then(|key| {
            let places = key.iter().map(|of_key| {
                let mut columns = columns.iter();
                columns.find(|column| uncast(column, &self.schemas[input.node]) == of_key)
            });
            Some(
                places
                    .collect::<Option<Vec<&Physical>>>()?
                    .into_iter()
                    .cloned()
                    .collect(),
            )
        });
        Ok(Stream {
            columns,
            roles,
            key,
            ..input
        })
    }

    /// The stream with every column computed, and nothing else kept.
    fn settle(&mut self, stream: Stream, plan: &LogicalPlan) -> Result<Stream> {
        let names = plan.schema().fields().iter();
        let names = names.map(|field| field.name().clone()).collect::<Vec<_>>();
        let time = stream.time.as_ref().filter(|_| self.orders_by_time);
        let time_index =
            time.and_then(|time| stream.columns.iter().position(|column| column == time));
        let extra = time.filter(|_| time_index.is_none());
        let node = self.materialise(&stream, &stream.columns, &names, extra)?;
        let schema = self.schemas[node].clone();
        let time = time.map(|_| column(time_index.unwrap_or(names.len()), &schema));
        let key = stream.key.as_ref().and_then(|key| {
            let places = key
                .iter()
                .map(|of_key| stream.columns.iter().position(|c| c == of_key));
            let places = places.collect::<Option<Vec<usize>>>()?;
            Some(places.into_iter().map(|at| column(at, &schema)).collect())
        });
        let columns = (0..names.len())
            .map(|index| column(index, &schema))
            .collect();
        Ok(Stream {
            node,
            columns,
            time,
            key,
            ..stream
        })
    }

    /// A node whose columns are the given expressions over the stream, then `extra`.
    fn materialise(
        &mut self,
        stream: &Stream,
        columns: &[Physical],
        names: &[String],
        extra: Option<&Physical>,
    ) -> Result<usize> {
        let input = self.schemas[stream.node].clone();
        let mut fields = Vec::new();
        let mut expressions = Vec::new();
        let named = columns.iter().zip(names.iter().map(String::as_str));
        for (expression, name) in named.chain(extra.map(|extra| (extra, "event_time"))) {
            fields.push(Field::new(name, expression.data_type(&input)?, true));
            expressions.push(expression.clone());
        }
        let identical = fields.len() == input.fields().len()
            && expressions
                .iter()
                .enumerate()
                .all(|(i, e)| column_index(e) == Some(i))
            && fields
                .iter()
                .zip(input.fields())
                .all(|(field, before)| field.name() == before.name());
        if identical {
            return Ok(stream.node);
        }
        let detail = expressions.iter().zip(&fields).map(|(expression, field)| {
            let (shown, name) = (
                explain::expression(expression),
                explain::readable(field.name()),
            );
            if name.ends_with(&shown) {
                name
            } else {
                format!("{shown} AS {name}")
            }
        });
        let detail = detail.collect::<Vec<_>>().join(", ");
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let expressions = expressions
            .into_iter()
            .map(|expression| PhysicalExpression::over(expression, &input))
            .collect::<Result<Vec<Arc<dyn Expression>>>>()?;
        let key = format!("map {expressions:?} {:?}", schema.fields());
        let spec = NodeSpec::Map {
            expressions,
            schema: schema.clone(),
        };
        Ok(self.node("map", detail, &[stream.node], spec, schema, &key))
    }

    fn filter(&mut self, input: Stream, predicate: &Expr, plan: &LogicalPlan) -> Result<Stream> {
        let schema = self.schemas[input.node].clone();
        let condition = self.bind(predicate, &input, plan)?;
        let detail = explain::expression(&condition);
        let condition = PhysicalExpression::over(condition, &schema)?;
        let key = format!("filter {condition:?}");
        let spec = NodeSpec::Filter { condition };
        let node = self.node("filter", detail, &[input.node], spec, schema, &key);
        // A row that meets the condition no more goes.
        let deletes = input.updates;
        Ok(Stream {
            node,
            deletes,
            ..input
        })
    }

    /// The inputs of a node.
    fn edges(&self, spec: &NodeSpec, inputs: &[usize]) -> Vec<Edge> {
        let inputs = inputs.iter().enumerate();
        let edges = inputs.map(|(input, &from)| self.edge(from, spec.exchange(input)));
        edges.collect()
    }

    fn edge(&self, from: usize, exchange: Exchange) -> Edge {
        let is_dealt =
            exchange == Exchange::Forward && self.graph.nodes[from].kind == NodeKind::Source;
        let exchange = match self.session.settings.balancer {
            Balancer::RoundRobin if is_dealt => Exchange::RoundRobin,
            Balancer::Demand if is_dealt => Exchange::Demand,
            _ => exchange,
        };
        Edge { from, exchange }
    }

    /// Adds a node over the output of others, unless there is one that says the same.
    fn node(
        &mut self,
        name: &str,
        detail: String,
        inputs: &[usize],
        spec: NodeSpec,
        schema: SchemaRef,
        key: &str,
    ) -> usize {
        let inputs = self.edges(&spec, inputs);
        let key = format!("{key} {inputs:?}");
        if let Some(&node) = self.known.get(&key) {
            return node;
        }
        let node = self.graph.add(Node {
            name: name.to_string(),
            detail,
            kind: spec.kind(),
            inputs,
            instances_max: usize::MAX,
        });
        self.specs.push(spec);
        self.schemas.push(schema);
        self.known.insert(key, node);
        node
    }
}

fn refuse_subqueries(expression: &Expr) -> Result<()> {
    let mut found = false;
    expression.apply(|part| {
        found |= matches!(
            part,
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)
        );
        Ok(TreeNodeRecursion::Continue)
    })?;
    if found {
        return Err(crate::check::subquery());
    }
    Ok(())
}
