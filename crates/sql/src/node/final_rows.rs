//! Results that are emitted once, when the inputs have ended: ORDER BY, LIMIT, OFFSET and
//! `SET 'emit' = 'final'`.

use arrow_schema::{SchemaRef, SortOptions};
use datafusion_expr::expr::Sort;
use datafusion_expr::logical_plan::{FetchType, Limit, SkipType};
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::changelog::final_rows::{FinalRows, FinalSpec};

use super::columns::Columns;
use super::facts::{
    Behind, Changelog, Cost, Emission, Emits, Facts, Growth, NeedsBefore, Node, Order, Sorted,
    State,
};
use super::identity;
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{Physical, column};

/// ORDER BY, LIMIT and OFFSET.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate: |translator, plan| match plan {
        LogicalPlan::Sort(sort) => translator.sort(sort).map(Some),
        LogicalPlan::Limit(limit) => translator.limit(limit).map(Some),
        _ => Ok(None),
    },
};

/// Emits the final rows when the inputs have ended.
pub struct FinalRowsNode {
    /// Which rows are emitted, and in which order.
    pub spec: FinalSpec,
}

impl Node for FinalRowsNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        Exchange::Single
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::FinalRows,
            identity: identity::final_rows(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog {
            needs_before: NeedsBefore::ByInput(vec![self.spec.takes_back]),
            emits: Emits::Appends,
        }
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        // The node sorts its rows itself.
        Facts {
            order: Order::Unseen,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::AtEnd,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(10_000.0, 500.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(FinalRows::new(self.spec.clone())?))
    }
}

/// The part of a result that is emitted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part {
    skip: usize,
    limit: Option<usize>,
}

impl Translator<'_> {
    /// The stream of ORDER BY.
    fn sort(&mut self, sort: &datafusion_expr::logical_plan::Sort) -> Result<Stream> {
        let part = Part {
            limit: sort.fetch,
            ..Part::default()
        };
        self.sorted(&sort.input, &sort.expr, part, "ORDER")
    }

    /// The stream of LIMIT and OFFSET.
    fn limit(&mut self, limit: &Limit) -> Result<Stream> {
        let skip = match limit.get_skip_type()? {
            SkipType::Literal(skip) => skip,
            SkipType::UnsupportedExpr => return Err(not_a_number("OFFSET")),
        };
        let fetch = match limit.get_fetch_type()? {
            FetchType::Literal(fetch) => fetch,
            FetchType::UnsupportedExpr => return Err(not_a_number("LIMIT")),
        };
        self.part(&limit.input, Part { skip, limit: fetch })
    }

    /// A part of the rows of `plan`, in the order of its last ORDER BY.
    fn part(&mut self, plan: &LogicalPlan, part: Part) -> Result<Stream> {
        match plan {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                self.sorted(&sort.input, &sort.expr, part, "ORDER")
            }
            LogicalPlan::SubqueryAlias(alias) if is_sorted(&alias.input) => {
                self.part(&alias.input, part)
            }
            LogicalPlan::Projection(projection) if is_sorted(&projection.input) => {
                let input = self.part(&projection.input, part)?;
                self.project(input, &projection.expr, &projection.input)
            }
            other => self.sorted(other, &[], part, "LIMIT"),
        }
    }

    fn sorted(
        &mut self,
        plan: &LogicalPlan,
        order: &[Sort],
        part: Part,
        clause: &str,
    ) -> Result<Stream> {
        // Only final results are read from here on.
        self.at_end += 1;
        let input = self.translate(plan);
        self.at_end -= 1;
        let input = input?;
        if let Some(table) = self.endless(input.node)? {
            let error =
                format!("{clause} needs an input that ends, and table '{table}' may never end");
            let error = error.replace("ORDER needs", "ORDER BY needs");
            return Err(SqlError::new(error).near(clause).hint(
                "remove it, read tables that end, or use ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) \
                <= n, which keeps the first n rows so far",
            ));
        }
        let mut by = Vec::new();
        for Sort {
            expr,
            asc,
            nulls_first,
        } in order
        {
            let options = SortOptions {
                descending: !asc,
                nulls_first: *nulls_first,
            };
            by.push((self.bind(expr, &input, plan)?, expr, options));
        }
        let names = plan.schema().fields().iter();
        let names = names.map(|field| field.name().clone());
        self.keep_until_end(input, names.collect(), &by, part)
    }

    /// The rows of a stream when its inputs have ended; `names` are the names of its columns.
    pub(super) fn last_rows(&mut self, stream: Stream, names: &[String]) -> Result<Stream> {
        self.keep_until_end(stream, names.to_vec(), &[], Part::default())
    }

    fn keep_until_end(
        &mut self,
        input: Stream,
        names: Vec<String>,
        by: &[(Physical, &Expr, SortOptions)],
        part: Part,
    ) -> Result<Stream> {
        let mut columns = Columns::named(&input, names);
        let order = by.iter().map(|(expression, written, options)| {
            let at = columns.place(expression, written.schema_name().to_string());
            (at, *options)
        });
        let order = order.collect();
        let node = columns.node(self, &input)?;
        let schema = self.schema(node);
        let spec = FinalSpec {
            order,
            skip: part.skip,
            limit: part.limit,
            takes_back: input.updates,
            schema: schema.clone(),
        };
        let detail = detail(&spec);
        let key = format!("final {spec:?}");
        let node = self.operator("final", detail, &[node], FinalRowsNode { spec }, &key);
        let width = input.columns.len();
        let unique = input.identified_by();
        let unique = unique.map(|key| key.into_iter().map(|at| column(at, &schema)).collect());
        Ok(Stream {
            node,
            columns: (0..width).map(|at| column(at, &schema)).collect(),
            roles: vec![Role::Plain; width],
            time: None,
            updates: false,
            key: None,
            deletes: false,
            unique: unique.into_iter().collect(),
        })
    }

    /// A table that the node reads and that may never end, if there is one.
    pub(super) fn endless(&self, node: usize) -> Result<Option<String>> {
        for node in self.graph.upstream(node) {
            let Some(source) = self.specs[node].as_source() else {
                continue;
            };
            if !source.connector.describe().bounded {
                return Ok(Some(source.table.name.clone()));
            }
        }
        Ok(None)
    }

    /// Rejects `SET 'emit' = 'final'` for a stream that never ends, or that ends several times.
    pub(super) fn check_final(&self, node: usize) -> Result<()> {
        if let Some(table) = self.endless(node)? {
            return Err(SqlError::new(format!(
                "'emit' = 'final' needs inputs that end, and table '{table}' may never end"
            ))
            .hint("use SET 'emit' = 'changes', or read tables that end"));
        }
        for node in self.graph.upstream(node) {
            if let Some(source) = self.specs[node].as_source()
                && let Some(unit) = source.table.options.get("unit_of_work")
            {
                let name = &source.table.name;
                return Err(SqlError::new(format!(
                    "'emit' = 'final' can't be combined with 'unit_of_work' = '{unit}' of table '{name}', \
                    because it returns one result for all units"
                ))
                .hint("remove one of the two"));
            }
        }
        Ok(())
    }
}

/// Whether a plan ends with ORDER BY.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(sort) => sort.fetch.is_none(),
        LogicalPlan::SubqueryAlias(alias) => is_sorted(&alias.input),
        LogicalPlan::Projection(projection) => {
            !projection.expr.iter().any(Expr::is_volatile) && is_sorted(&projection.input)
        }
        _ => false,
    }
}

fn not_a_number(clause: &str) -> SqlError {
    SqlError::new(format!("{clause} must be a constant number"))
        .near(clause)
        .hint(format!("for example {clause} 10"))
}

/// The node's description in EXPLAIN.
fn detail(spec: &FinalSpec) -> String {
    let order = explain::order(&spec.order, &spec.schema);
    let mut text = match (spec.skip, spec.limit) {
        (0, None) => "all rows".to_string(),
        (0, Some(limit)) => format!("first {limit}"),
        (skip, None) => format!("all rows after the first {skip}"),
        (skip, Some(limit)) => format!("{limit} after the first {skip}"),
    };
    if !order.is_empty() {
        text.push_str(&format!(" in order of {order}"));
    }
    text + ", when the input has ended"
}
