//! From logical plans to the query graph.
//!
//! A [`Stream`] is the output of a plan: a node of the graph, and for each column of the plan an expression
//! over the node's columns. So projections that only rename or pick columns need no operator. Equal nodes
//! over the same inputs are one node, so that the statements of a file, and all uses of a view, share what
//! they have in common.
//!
//! The translator does not know the operators: it applies their [`Translation`]s one after the other.

use std::collections::{BTreeSet, HashMap};
use std::ops::BitOr;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan};
use slackwater_control::query::{Edge, Exchange, Node as GraphNode, NodeKind, QueryGraph};
use slackwater_engine::operator::changelog::view::Cuts;

use super::facts::Node;
use super::fields;
use super::spec::NodeSpec;
use super::stream::{Role, Stream};
use crate::connectors::Connectors;
use crate::error::{Result, SqlError};
use crate::expression::{Physical, physical, replace_columns};
use crate::session::Session;
use crate::settings::Balancer;
use crate::table::{Table, TableHandle};

/// How a part of a logical plan becomes nodes of the query graph.
pub struct Translation {
    /// What the part needs from the streams below it, anywhere in the plan.
    pub needs: fn(&LogicalPlan) -> Needs,
    /// The stream of the part; `None` if this operator does not translate it.
    pub translate: fn(&mut Translator<'_>, &LogicalPlan) -> Result<Option<Stream>>,
}

/// What the parts of all plans of a program need from their streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Whether rows must keep their event time, also if the plan has no such column, because something orders
    /// by it.
    pub event_time: bool,
    /// Whether a row at its partition's watermark is late.
    pub late_at_watermark: bool,
}

impl Needs {
    /// No needs.
    pub const NOTHING: Needs = Needs {
        event_time: false,
        late_at_watermark: false,
    };
}

impl BitOr for Needs {
    type Output = Needs;

    fn bitor(self, other: Needs) -> Needs {
        Needs {
            event_time: self.event_time | other.event_time,
            late_at_watermark: self.late_at_watermark | other.late_at_watermark,
        }
    }
}

/// A table for late rows, and the nodes whose output it gets.
pub(super) struct LateRowsOf {
    pub table: Arc<Table>,
    pub nodes: Vec<usize>,
}

/// Builds a query graph from logical plans.
pub struct Translator<'a> {
    pub(super) session: &'a Session,
    pub(super) connectors: &'a dyn Connectors,
    translations: &'a [Translation],
    /// The graph so far.
    pub graph: QueryGraph,
    /// The specification of each node.
    pub specs: Vec<NodeSpec>,
    /// The nodes by their keys: nodes with equal keys are one node.
    known: HashMap<String, usize>,
    /// The columns of each table that some plan reads.
    pub(super) used: HashMap<String, BTreeSet<usize>>,
    /// The fields of ROW columns that some plan reads.
    pub(super) fields: fields::UsedFields,
    /// What the parts of all plans need.
    pub(super) needs: Needs,
    /// Whether the aggregation above the next window function merges its sessions itself.
    pub(super) merges_sessions: bool,
    /// The tables for late rows, and their nodes.
    pub(super) late: Vec<LateRowsOf>,
    /// The number of joined tables that contain the current plan. A table is read to its end before the
    /// stream that it is joined with, so the two must not share a source: the source would wait for itself.
    pub(super) depth: usize,
    /// The number of ORDER BY, LIMIT and `'emit' = 'final'` that contain the current plan: inside of them,
    /// aggregates only emit at the end of their input.
    pub(super) at_end: usize,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The cuts of all materialized views.
    pub cuts: Arc<Cuts>,
}

impl<'a> Translator<'a> {
    /// A translator for all `plans` of one program.
    ///
    /// # Errors
    ///
    /// When an expression of a plan can't be visited.
    pub fn new(
        session: &'a Session,
        connectors: &'a dyn Connectors,
        translations: &'a [Translation],
        plans: &[&LogicalPlan],
    ) -> Result<Translator<'a>> {
        let mut translator = Translator {
            session,
            connectors,
            translations,
            graph: QueryGraph::default(),
            specs: Vec::new(),
            known: HashMap::new(),
            used: HashMap::new(),
            fields: fields::UsedFields::default(),
            needs: Needs::NOTHING,
            merges_sessions: false,
            late: Vec::new(),
            depth: 0,
            at_end: 0,
            warnings: Vec::new(),
            cuts: Arc::default(),
        };
        for plan in plans {
            translator.collect(plan)?;
        }
        Ok(translator)
    }

    /// Notes which columns of which tables a plan reads, and what its parts need.
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
            for translation in self.translations {
                self.needs = self.needs | (translation.needs)(part);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// The stream of a plan.
    pub(super) fn translate(&mut self, plan: &LogicalPlan) -> Result<Stream> {
        for translation in self.translations {
            if let Some(stream) = (translation.translate)(self, plan)? {
                return Ok(stream);
            }
        }
        Err(not_supported(plan))
    }

    /// The columns of a node's output.
    pub(super) fn schema(&self, node: usize) -> SchemaRef {
        self.specs[node].schema().clone()
    }

    /// Turns an expression over the columns of a plan into one over the stream's node.
    pub(super) fn bind(
        &self,
        expression: &Expr,
        stream: &Stream,
        plan: &LogicalPlan,
    ) -> Result<Physical> {
        refuse_subqueries(expression)?;
        let over_plan = physical(expression, plan.schema())?;
        replace_columns(&over_plan, &stream.columns)
    }

    /// The special meaning of an expression's values.
    pub(super) fn role(
        &self,
        expression: &Expr,
        stream: &Stream,
        plan: &LogicalPlan,
    ) -> Result<Role> {
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

    /// The edge from a node to another that gets its rows by `exchange`.
    pub(super) fn edge(&self, from: usize, exchange: Exchange) -> Edge {
        let is_dealt =
            exchange == Exchange::Forward && self.graph.nodes[from].kind == NodeKind::Source;
        let exchange = match self.session.settings.balancer {
            Balancer::RoundRobin if is_dealt => Exchange::RoundRobin,
            Balancer::Demand if is_dealt => Exchange::Demand,
            _ => exchange,
        };
        Edge { from, exchange }
    }

    /// Adds an operator over the output of others, unless there is an equal one: `key` is everything that
    /// identifies it besides its inputs.
    pub(super) fn operator(
        &mut self,
        name: &str,
        detail: String,
        inputs: &[usize],
        operator: impl Node + 'static,
        key: &str,
    ) -> usize {
        let inputs = inputs.iter().enumerate();
        let inputs = inputs.map(|(input, &from)| self.edge(from, operator.exchange(input)));
        let inputs = inputs.collect::<Vec<Edge>>();
        let key = format!("{key} {inputs:?}");
        if let Some(node) = self.known(&key) {
            return node;
        }
        let spec = NodeSpec::Operator(Box::new(operator));
        let node = GraphNode {
            name: name.to_string(),
            detail,
            kind: spec.kind(),
            inputs,
            instances_max: usize::MAX,
        };
        let node = self.add(node, spec);
        self.known.insert(key, node);
        node
    }

    /// The node with this key.
    pub(super) fn known(&self, key: &str) -> Option<usize> {
        self.known.get(key).copied()
    }

    /// Adds a node with a key.
    pub(super) fn add_known(&mut self, node: GraphNode, spec: NodeSpec, key: String) -> usize {
        let node = self.add(node, spec);
        self.known.insert(key, node);
        node
    }

    /// Adds a node.
    pub(super) fn add(&mut self, node: GraphNode, spec: NodeSpec) -> usize {
        let node = self.graph.add(node);
        self.specs.push(spec);
        debug_assert_eq!(node + 1, self.specs.len());
        node
    }
}

/// Rejects an expression with a subquery.
pub(super) fn refuse_subqueries(expression: &Expr) -> Result<()> {
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

/// The error for a part of a plan that no operator translates.
fn not_supported(plan: &LogicalPlan) -> SqlError {
    match plan {
        LogicalPlan::Extension(extension) => {
            SqlError::new(format!("{} is not supported", extension.node.name()))
        }
        LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => {
            SqlError::new("the query has no FROM").hint("add the table to read: … FROM table")
        }
        LogicalPlan::Distinct(_) => SqlError::new("DISTINCT ON is not supported"),
        LogicalPlan::Subquery(_) => SqlError::new("this subquery is not supported")
            .hint("join with it over the same window"),
        other => {
            let shown = other.display().to_string();
            let name = shown.split_once(':').map_or("?", |(name, _)| name);
            SqlError::new(format!("{name} is not supported in a query"))
        }
    }
}
