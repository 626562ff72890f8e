//! `ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= N`: the first rows of each partition (Flink's Top-N,
//! with N = 1 deduplication, with a window in the partition window Top-N).

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, SortOptions};
use datafusion_common::Column;
use datafusion_expr::expr::{Sort, WindowFunction};
use datafusion_expr::logical_plan::{Filter, Window};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::aggregate::WindowKey;
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::operator::changelog::top_n::{TopN, TopNSpec, WindowTopN};

use super::columns::Columns;
use super::facts::{
    Behind, Bound, Changelog, ChangelogMode, Cost, Emission, Emits, Facts, Growth, NeedsBefore,
    Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::ranks::{numbered, top};
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{Physical, column};

/// Conditions on ROW_NUMBER(), and projections above them.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate: |translator, plan| match plan {
        LogicalPlan::Filter(filter) => translator.top_n(filter, None),
        LogicalPlan::Projection(projection) => {
            let LogicalPlan::Filter(filter) = projection.input.as_ref() else {
                return Ok(None);
            };
            match translator.top_n(filter, Some(&projection.expr))? {
                Some(first) => translator.projection(first, projection, plan).map(Some),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    },
};

/// Keeps the first rows of each partition.
pub struct TopNNode {
    /// The partition, order and number of rows.
    pub spec: TopNSpec,
}

impl Node for TopNNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.spec.partition)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: match self.spec.window {
                Some(_) => Saved::WindowTopN,
                None => Saved::TopN,
            },
            identity: identity::first_rows(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, wants_before: bool) -> Changelog {
        Changelog {
            needs_before: NeedsBefore::ByInput(vec![self.spec.takes_back]),
            emits: match self.spec.window {
                Some(_) => Emits::Appends,
                None => Emits::Changes(ChangelogMode {
                    updates: self.spec.is_by_key(),
                    befores: wants_before,
                    deletes: self.spec.deletes(),
                }),
            },
        }
    }

    fn settle(&mut self, wants_before: bool) {
        self.spec.emits_before = wants_before && self.spec.window.is_none();
    }

    fn growth(&self, detail: &str) -> Vec<Growth> {
        let spec = &self.spec;
        if spec.window.is_some() || spec.retention_us.is_some() {
            return Vec::new();
        }
        let names = explain::names(&spec.partition, &spec.input);
        let keeps = match (spec.takes_back, spec.partition.is_empty()) {
            (false, true) => return Vec::new(),
            (false, false) => format!("PARTITION BY {names} keeps every key forever"),
            (true, _) => format!(
                "ROW_NUMBER() over rows that may be retracted keeps all of them forever ({detail})"
            ),
        };
        vec![Growth {
            input: None,
            keeps,
            bound: Bound::StateTtl,
        }]
    }

    fn facts(&self) -> Facts<'_> {
        let spec = &self.spec;
        let partition = spec.partition.iter();
        let partition = partition.map(|&column| (column, SortOptions::default()));
        Facts {
            order: match spec.window {
                // The first rows of a window don't depend on the order of the input.
                Some(_) => Order::Unseen,
                None => Order::Seen,
            },
            sorted: Sorted::By(partition.chain(spec.order.iter().copied()).collect()),
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: spec.retention_us.filter(|_| spec.window.is_none()),
            combines: None,
            cost: Cost::of(10_000.0, 500.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let spec = self.spec.clone();
        Ok(match spec.window {
            Some(_) => Operator::stateful(WindowTopN::new(spec)?),
            None => Operator::stateful(TopN::new(spec)?),
        })
    }
}

/// PARTITION BY and ORDER BY of the first rows.
struct Partition {
    columns: Vec<usize>,
    window: Option<WindowKey>,
    order: RowOrder,
}

impl Translator<'_> {
    /// The first rows of each partition, if `filter` limits the rank; `None` for other conditions. `above`
    /// are the expressions over the filter: if none of them uses the rank, it is not computed.
    fn top_n(&mut self, filter: &Filter, above: Option<&[Expr]>) -> Result<Option<Stream>> {
        let Some(numbered) = numbered(&filter.input)? else {
            return Ok(None);
        };
        let schema = filter.input.schema();
        let is_rank = |column: &Column| schema.maybe_index_of_column(column) == Some(numbered.rank);
        let Some(top) = top(&filter.predicate, &is_rank)? else {
            return Ok(None);
        };
        let name = numbered.call.fun.name().to_uppercase();
        if name != "ROW_NUMBER" {
            let error = format!(
                "{name}() <= N is not supported, because it returns an unlimited number of rows"
            );
            return Err(SqlError::new(error)
                .near(name)
                .hint("use ROW_NUMBER() OVER (…) <= N"));
        }
        let is_wanted = |expression: &Expr| expression.column_refs().into_iter().any(is_rank);
        let has_rank = match above {
            Some(above) => above.iter().any(is_wanted) || top.rest.iter().any(|e| is_wanted(e)),
            None => true,
        };
        let mut first = self.first_rows(numbered.window, numbered.call, top.limit, has_rank)?;
        for projection in numbered.projections {
            first = self.project(first, &projection.expr, &projection.input)?;
        }
        match conjunction(top.rest.into_iter().cloned()) {
            Some(rest) => self.filter(first, &rest, &filter.input).map(Some),
            None => Ok(Some(first)),
        }
    }

    /// The first `limit` rows of each partition of `window`.
    fn first_rows(
        &mut self,
        window: &Window,
        call: &WindowFunction,
        limit: usize,
        has_rank: bool,
    ) -> Result<Stream> {
        let plan = window.input.as_ref();
        let input = self.translate(plan)?;
        let mut columns = Columns::of(&input, plan);
        let partition = self.partition(call, &input, plan, &mut columns)?;
        let node = columns.node(self, &input)?;
        let before = self.schema(node);
        let mut fields = before.fields().to_vec();
        if has_rank {
            fields.push(Arc::new(Field::new("row_number", DataType::UInt64, true)));
        }
        let spec = TopNSpec {
            window: partition.window.filter(|_| !input.updates),
            partition: partition.columns,
            order: partition.order,
            limit,
            has_rank,
            takes_back: input.updates,
            emits_before: false,
            retention_us: self.session.settings.state_ttl_us,
            input: before,
            schema: Arc::new(Schema::new(fields)),
        };
        let key = format!("top {spec:?}");
        let detail = detail(&spec);
        let inputs = [node];
        let node = TopNNode { spec: spec.clone() };
        let node = self.operator("top", detail, &inputs, node, &key);
        Ok(first(node, &spec, input))
    }

    /// PARTITION BY and ORDER BY of a call, as columns.
    fn partition(
        &self,
        call: &WindowFunction,
        input: &Stream,
        plan: &LogicalPlan,
        columns: &mut Columns,
    ) -> Result<Partition> {
        if call.params.order_by.is_empty() {
            return Err(SqlError::new("ROW_NUMBER() needs ORDER BY")
                .near("ROW_NUMBER")
                .hint("use OVER (PARTITION BY … ORDER BY …)"));
        }
        let mut place = |expression: &Expr| {
            let bound = self.bind(expression, input, plan)?;
            Ok::<usize, SqlError>(columns.place(&bound, expression.schema_name().to_string()))
        };
        let (mut partition, mut window) = (Vec::new(), None);
        for expression in &call.params.partition_by {
            let column = place(expression)?;
            let role = self.role(expression, input, plan)?;
            if let Role::WindowStart(windows) | Role::WindowEnd(windows) = role {
                let is_start = matches!(role, Role::WindowStart(_));
                // One edge identifies the window. The end is preferred, because windows close by it.
                if window.is_none() || !is_start {
                    window = Some(WindowKey {
                        column,
                        is_start,
                        windows,
                    });
                }
            }
            if !partition.contains(&column) {
                partition.push(column);
            }
        }
        let mut order = Vec::new();
        for Sort {
            expr,
            asc,
            nulls_first,
        } in &call.params.order_by
        {
            let options = SortOptions {
                descending: !asc,
                nulls_first: *nulls_first,
            };
            order.push((place(expr)?, options));
        }
        Ok(Partition {
            columns: partition,
            window,
            order,
        })
    }
}

/// The stream of the first rows: the columns of the plan, followed by the rank.
fn first(node: usize, spec: &TopNSpec, input: Stream) -> Stream {
    let schema = &spec.schema;
    // If the rank is not used, any column stands for it.
    let rank = match spec.has_rank {
        true => schema.fields().len() - 1,
        false => 0,
    };
    let columns = (0..input.columns.len()).chain([rank]);
    let columns = columns.map(|at| column(at, schema)).collect();
    // In a window, rows are emitted when the window closes; otherwise at any time.
    let is_windowed = spec.window.is_some();
    let mut roles = match is_windowed {
        true => input.roles,
        false => vec![Role::Plain; input.roles.len()],
    };
    roles.push(Role::Plain);
    let key = spec.partition.iter().copied();
    let key = key.chain(spec.has_rank.then_some(rank));
    let key = key.map(|at| column(at, schema)).collect::<Vec<Physical>>();
    Stream {
        node,
        columns,
        roles,
        time: input.time.filter(|_| is_windowed),
        updates: !is_windowed,
        key: (!is_windowed && spec.is_by_key()).then(|| key.clone()),
        deletes: spec.deletes(),
        unique: (is_windowed && spec.is_by_key())
            .then_some(key)
            .into_iter()
            .collect(),
    }
}

/// The node's description in EXPLAIN.
fn detail(spec: &TopNSpec) -> String {
    let order = explain::order(&spec.order, &spec.input);
    let partition = explain::names(&spec.partition, &spec.input);
    let by = if partition.is_empty() {
        String::new()
    } else {
        format!(" by {partition}")
    };
    let kind = if spec.window.is_some() {
        ", at the end of the window"
    } else {
        ""
    };
    format!("first {}{by} in order of {order}{kind}", spec.limit)
}
