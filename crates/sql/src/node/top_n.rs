//! `ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= N`: the first rows of each partition (Flink's Top-N,
//! with N = 1 deduplication, with a window in the partition window Top-N).

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, SortOptions};
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::expr::{Sort, WindowFunction};
use datafusion_expr::logical_plan::{Filter, Projection, Window};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, LogicalPlan, Operator, WindowFunctionDefinition};
use slackwater_engine::operator::aggregate::WindowKey;
use slackwater_engine::operator::changelog::top_n::TopNSpec;

use super::{Role, Stream, Translator};
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{Physical, column};
use crate::specs::NodeSpec;

/// More first rows than this are no top: state holds as many rows of each partition.
const LIMIT_MAX: u64 = 1_000_000;

/// A condition of the form ROW_NUMBER() <= N.
struct Top<'f> {
    limit: usize,
    /// What else has to hold.
    rest: Vec<&'f Expr>,
}

impl Translator<'_> {
    /// The first rows of each partition, where `filter` asks for these; `None` where it is another
    /// condition. `above` are the expressions over it: if none wants the rank, it is not computed.
    pub(super) fn top_n(
        &mut self,
        filter: &Filter,
        above: Option<&[Expr]>,
    ) -> Result<Option<Stream>> {
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
                "{name}() <= N is not known here: how many rows it lets through has no limit"
            );
            return Err(SqlError::new(error)
                .near(name)
                .mend("ROW_NUMBER() OVER (…) <= N"));
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
        if call.params.order_by.is_empty() {
            return Err(
                SqlError::new("ROW_NUMBER() without ORDER BY numbers rows by chance")
                    .near("ROW_NUMBER")
                    .mend("OVER (PARTITION BY … ORDER BY …)"),
            );
        }
        let names = plan.schema().fields().iter();
        let mut names = names.map(|field| field.name().clone()).collect::<Vec<_>>();
        let mut columns = input.columns.clone();
        let mut place = |expression: Physical, name: String| {
            let known = columns.iter().position(|known| known == &expression);
            known.unwrap_or_else(|| {
                columns.push(expression);
                names.push(name);
                columns.len() - 1
            })
        };
        let (mut partition, mut of_window) = (Vec::new(), None);
        for expression in &call.params.partition_by {
            let at = place(
                self.bind(expression, &input, plan)?,
                expression.schema_name().to_string(),
            );
            let role = self.role(expression, &input, plan)?;
            if let Role::WindowStart(windows) | Role::WindowEnd(windows) = role {
                let is_start = matches!(role, Role::WindowStart(_));
                // Either edge names the window; the end is what it is closed by.
                if of_window.is_none() || !is_start {
                    of_window = Some(WindowKey {
                        column: at,
                        is_start,
                        windows,
                    });
                }
            }
            if !partition.contains(&at) {
                partition.push(at);
            }
        }
        let mut order = Vec::new();
        for Sort {
            expr,
            asc,
            nulls_first,
        } in &call.params.order_by
        {
            let at = place(
                self.bind(expr, &input, plan)?,
                expr.schema_name().to_string(),
            );
            let options = SortOptions {
                descending: !asc,
                nulls_first: *nulls_first,
            };
            order.push((at, options));
        }
        let node = self.materialise(&input, &columns, &names, None)?;
        let before = self.schemas[node].clone();
        let mut fields = before.fields().to_vec();
        if has_rank {
            fields.push(Arc::new(Field::new("row_number", DataType::UInt64, true)));
        }
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let spec = TopNSpec {
            window: of_window.filter(|_| !input.updates),
            partition: partition.clone(),
            order,
            limit,
            has_rank,
            takes_back: input.updates,
            emits_before: false,
            retention_us: self.session.settings.state_ttl_us,
            input: before.clone(),
            schema: schema.clone(),
        };
        let (is_windowed, is_by_key, deletes) =
            (spec.window.is_some(), spec.is_by_key(), spec.deletes());
        let key = format!("top {spec:?}");
        let detail = explain::top_n(&spec);
        let node = self.node(
            "top",
            detail,
            &[node],
            NodeSpec::TopN(spec),
            schema.clone(),
            &key,
        );
        // The columns of the plan, then the rank; where nobody wants it anything stands for it.
        let rank = if has_rank {
            schema.fields().len() - 1
        } else {
            0
        };
        let of_input = 0..input.columns.len();
        let columns = of_input.chain([rank]).map(|at| column(at, &schema));
        let columns = columns.collect::<Vec<Physical>>();
        // In a window rows come out when it closes, as those of an aggregate do. Else at any time.
        let mut roles = match is_windowed {
            true => input.roles.clone(),
            false => vec![Role::Plain; input.roles.len()],
        };
        roles.push(Role::Plain);
        let time = input.time.filter(|_| is_windowed);
        let key = partition.iter().copied().chain(has_rank.then_some(rank));
        let key = key.map(|at| column(at, &schema)).collect();
        Ok(Stream {
            node,
            columns,
            roles,
            time,
            updates: !is_windowed,
            key: (!is_windowed && is_by_key).then_some(key),
            deletes,
        })
    }
}

/// Rows with their numbers.
struct Numbered<'p> {
    window: &'p Window,
    call: &'p WindowFunction,
    /// What stands between the window and the condition, from below; the optimiser leaves out columns
    /// that nobody wants.
    projections: Vec<&'p Projection>,
    /// The column of the number, above the projections.
    rank: usize,
}

/// The numbered rows that a plan is about, if it is about any.
fn numbered(plan: &LogicalPlan) -> Result<Option<Numbered<'_>>> {
    match plan {
        LogicalPlan::Window(window) => {
            let [expression] = window.window_expr.as_slice() else {
                return Ok(None);
            };
            let call = rank_call(expression);
            Ok(call.map(|call| Numbered {
                window,
                call,
                projections: Vec::new(),
                rank: window.schema.fields().len() - 1,
            }))
        }
        LogicalPlan::SubqueryAlias(alias) => numbered(&alias.input),
        LogicalPlan::Projection(projection) => {
            let Some(mut numbered) = numbered(&projection.input)? else {
                return Ok(None);
            };
            let below = projection.input.schema();
            let is_rank = |expression: &Expr| {
                let column = expression.clone().unalias();
                let column = column
                    .try_as_col()
                    .and_then(|c| below.maybe_index_of_column(c));
                column == Some(numbered.rank)
            };
            let Some(rank) = projection.expr.iter().position(is_rank) else {
                return Ok(None);
            };
            numbered.rank = rank;
            numbered.projections.push(projection);
            Ok(Some(numbered))
        }
        _ => Ok(None),
    }
}

/// The call of a function that numbers rows.
fn rank_call(mut expression: &Expr) -> Option<&WindowFunction> {
    while let Expr::Alias(alias) = expression {
        expression = &alias.expr;
    }
    let Expr::WindowFunction(call) = expression else {
        return None;
    };
    let WindowFunctionDefinition::WindowUDF(function) = &call.fun else {
        return None;
    };
    ["row_number", "rank", "dense_rank"]
        .contains(&function.name())
        .then_some(call)
}

/// Reads `rank <= N` out of a condition; `None` where it says nothing of the kind.
fn top<'f>(predicate: &'f Expr, is_rank: &impl Fn(&Column) -> bool) -> Result<Option<Top<'f>>> {
    let (mut limit, mut rest) = (None::<u64>, Vec::new());
    for part in split_conjunction(predicate) {
        match limit_of(part, is_rank) {
            Some(of_part) => limit = Some(limit.map_or(of_part, |limit| limit.min(of_part))),
            // Every rank is at least 1.
            None if is_always(part, is_rank) => {}
            None => rest.push(part),
        }
    }
    let Some(limit) = limit else {
        return Ok(None);
    };
    if limit == 0 || limit > LIMIT_MAX {
        let error =
            format!("ROW_NUMBER() <= {limit}: between 1 and {LIMIT_MAX} rows can be the first");
        return Err(SqlError::new(error).near("ROW_NUMBER"));
    }
    let limit = limit as usize;
    Ok(Some(Top { limit, rest }))
}

/// The comparison of the rank with a number, the rank on the left.
fn comparison(part: &Expr, is_rank: &impl Fn(&Column) -> bool) -> Option<(Operator, i128)> {
    let Expr::BinaryExpr(binary) = part else {
        return None;
    };
    let is_rank = |side: &Expr| uncast(side).try_as_col().is_some_and(is_rank);
    let (operator, number) = if is_rank(&binary.left) {
        (binary.op, &binary.right)
    } else if is_rank(&binary.right) {
        (binary.op.swap()?, &binary.left)
    } else {
        return None;
    };
    let Expr::Literal(value, _) = uncast(number) else {
        return None;
    };
    Some((operator, whole(value)?))
}

fn limit_of(part: &Expr, is_rank: &impl Fn(&Column) -> bool) -> Option<u64> {
    let (operator, number) = comparison(part, is_rank)?;
    let limit = match operator {
        Operator::LtEq => number,
        Operator::Lt => number - 1,
        Operator::Eq if number == 1 => 1,
        _ => return None,
    };
    Some(u64::try_from(limit).unwrap_or(0))
}

fn is_always(part: &Expr, is_rank: &impl Fn(&Column) -> bool) -> bool {
    matches!(
        comparison(part, is_rank),
        Some((Operator::GtEq, ..=1) | (Operator::Gt, ..=0))
    )
}

fn uncast(expression: &Expr) -> &Expr {
    match expression {
        Expr::Cast(cast) => uncast(&cast.expr),
        other => other,
    }
}

fn whole(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Int8(Some(n)) => i128::from(*n),
        ScalarValue::Int16(Some(n)) => i128::from(*n),
        ScalarValue::Int32(Some(n)) => i128::from(*n),
        ScalarValue::Int64(Some(n)) => i128::from(*n),
        ScalarValue::UInt64(Some(n)) => i128::from(*n),
        _ => return None,
    })
}
