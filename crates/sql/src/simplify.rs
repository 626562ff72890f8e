//! Expressions that are rewritten when a query is planned: constants, functions that stand for another
//! expression, and comparisons that need no cast.
//!
//! DataFusion has a rule for this (`SimplifyExpressions`), which is not used, because several of its rewrites
//! change answers. `k NOT IN (1) OR k NOT IN (2)` becomes TRUE and `k IN (1) AND k IN (2)` FALSE also if `k`
//! is NULL; `k ^ k` becomes 0, `s ~ '.*'` TRUE. Casts are removed from comparisons although they round
//! (`CAST(d AS BIGINT) = 0` becomes `d = 0`), return NULL (`TRY_CAST`) or fail (`CAST(b AS INT) > 6`).
//! `SUM(x + 1)` becomes `SUM(x) + COUNT(x)`, which overflows at other values. Constants are computed with
//! wrapping arithmetic. These rewrites can't be turned off one by one. (DataFusion 55.2; upstream:
//! apache/datafusion issues 23095 and 24702 for casts, 24246 for NULL.)
//!
//! So only the rewrites in [`step`] are applied. Each keeps the value of every row, NULL included, and its
//! error: an expression that fails rejects its row. `tests.rs` compares random expressions with and without
//! the rewrites.

mod casts;
mod conditions;
mod ordered;

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion_common::{DFSchema, DFSchemaRef, Result, ScalarValue};
use datafusion_expr::expr::{Between, InList, ScalarFunction};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Volatility, cast, lit,
};
use datafusion_optimizer::optimizer::ApplyOrder;
use datafusion_optimizer::{OptimizerConfig, OptimizerRule};

use crate::error;
use crate::expression::constant;
use crate::functions;

pub use ordered::PushDown;

/// Functions whose own simplification is not used: they can be computed as they are, and some simplifications
/// ignore NULL (`power(x, 0)` becomes 1).
const COMPUTED: [&str; 7] = [
    "array_has",
    "concat",
    "concat_ws",
    "log",
    "power",
    "regexp_like",
    "starts_with",
];

/// How many times a function may be replaced by an expression that contains such functions itself.
const REPLACED_MAX: usize = 8;

/// The optimizer rule.
#[derive(Debug, Default)]
pub struct Simplify;

impl OptimizerRule for Simplify {
    fn name(&self) -> &str {
        "simplify"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let schema = match &plan {
            // A condition that was pushed down may use columns that the scan doesn't return.
            LogicalPlan::TableScan(scan) => {
                let schema = scan.source.schema();
                DFSchema::try_from_qualified_schema(scan.table_name.clone(), &schema)?
            }
            _ => merge_schema(&plan.inputs()),
        };
        let simplifier = Simplifier::new(Arc::new(schema), config);
        let names = NamePreserver::new(&plan);
        let mut one = |expression: Expr| {
            let name = names.save(&expression);
            let simple = simplifier.simplify(expression)?;
            Ok(simple.update_data(|expression| name.restore(expression)))
        };
        plan.map_expressions(|expression| match expression {
            // The parts of a grouping set are the keys.
            Expr::GroupingSet(_) => expression.map_children(&mut one),
            _ => one(expression),
        })
    }
}

/// The expression in a form that can be computed: some functions must be replaced first (COALESCE becomes a
/// CASE). The optimizer rule does that in queries, but not in computed columns of tables.
pub fn computable(expression: &Expr, schema: &DFSchema) -> error::Result<Expr> {
    let is_rewritten = |part: &Expr| {
        let function = match part {
            Expr::ScalarFunction(function) => function.name(),
            _ => "",
        };
        let is_other_form = matches!(function, "coalesce" | "nvl" | "ifnull" | "nvl2");
        Ok(is_other_form || functions::is_rewritten(function))
    };
    if !expression.exists(is_rewritten)? {
        return Ok(expression.clone());
    }
    Ok(simplified(expression.clone(), schema)?)
}

/// An expression over `schema`, simplified.
fn simplified(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let schema = Arc::new(schema.clone());
    let context = SimplifyContext::builder().with_schema(schema.clone());
    let simplifier = Simplifier {
        schema,
        context: context.build(),
    };
    Ok(simplifier.simplify(expression)?.data)
}

struct Simplifier {
    schema: DFSchemaRef,
    context: SimplifyContext,
}

impl Simplifier {
    fn new(schema: DFSchemaRef, config: &dyn OptimizerConfig) -> Simplifier {
        let context = SimplifyContext::builder()
            .with_schema(schema.clone())
            .with_config_options(config.options())
            .with_query_execution_start_time(config.query_execution_start_time());
        Simplifier {
            schema,
            context: context.build(),
        }
    }

    fn simplify(&self, expression: Expr) -> Result<Transformed<Expr>> {
        self.nested(expression, 0)
    }

    fn nested(&self, expression: Expr, replaced: usize) -> Result<Transformed<Expr>> {
        expression.rewrite(&mut Walk {
            simplifier: self,
            replaced,
            declared: Vec::new(),
        })
    }

    /// Rewrites an expression whose parts are already rewritten.
    fn step(&self, part: Expr, replaced: usize) -> Result<Transformed<Expr>> {
        match part {
            Expr::ScalarFunction(function) => self.function(function, replaced),
            part if is_constant(&part)? => compute(part),
            Expr::Between(between) if !between.expr.is_volatile() => {
                self.again(bounds(between), replaced)
            }
            Expr::InList(InList {
                expr,
                list,
                negated,
            }) if list.len() == 1 && !matches!(list[0], Expr::ScalarSubquery(_)) => {
                let op = if negated {
                    Operator::NotEq
                } else {
                    Operator::Eq
                };
                let value = list.into_iter().next().expect("one value");
                self.again(binary(*expr, op, value), replaced)
            }
            Expr::InList(list) => Ok(casts::remove_from_list(list, &self.schema)),
            Expr::BinaryExpr(binary) => match binary.op {
                Operator::And | Operator::Or => conditions::simplify(binary, &self.schema),
                op if is_comparison(op) => self.comparison(binary),
                _ => Ok(Transformed::no(Expr::BinaryExpr(binary))),
            },
            _ => Ok(Transformed::no(part)),
        }
    }

    /// Rewrites the expression that has replaced another one.
    fn again(&self, expression: Expr, replaced: usize) -> Result<Transformed<Expr>> {
        if replaced == REPLACED_MAX {
            return Ok(Transformed::yes(expression));
        }
        let simple = self.nested(expression, replaced + 1)?;
        Ok(Transformed::yes(simple.data))
    }

    /// Replaces functions that can't be computed as they are: COALESCE becomes a CASE.
    fn function(&self, function: ScalarFunction, replaced: usize) -> Result<Transformed<Expr>> {
        let ScalarFunction { func, mut args } = function;
        if !COMPUTED.contains(&func.name()) {
            match func.simplify(args, &self.context)? {
                ExprSimplifyResult::Simplified(other) => return self.again(other, replaced),
                ExprSimplifyResult::Original(same) => args = same,
            }
        }
        let call = Expr::ScalarFunction(ScalarFunction { func, args });
        match is_constant(&call)? {
            true => compute(call),
            false => Ok(Transformed::no(call)),
        }
    }

    fn comparison(&self, comparison: BinaryExpr) -> Result<Transformed<Expr>> {
        let BinaryExpr { left, op, right } = comparison;
        // A constant is moved to the right side.
        let swapped = match (left.as_ref(), op.swap()) {
            (Expr::Literal(..), Some(swapped)) => Some(swapped),
            _ => None,
        };
        let (left, op, right) = match swapped {
            Some(op) => (right, op, left),
            None => (left, op, right),
        };
        if let Expr::Literal(value, _) = right.as_ref() {
            let is_known = op.returns_null_on_null();
            if value.is_null() && is_known && conditions::cannot_fail(&left, &self.schema) {
                return Ok(Transformed::yes(lit(ScalarValue::Boolean(None))));
            }
            if let Some((inner, value)) = casts::remove(&left, value, &self.schema) {
                return Ok(Transformed::yes(binary(inner, op, lit(value))));
            }
        }
        let comparison = Expr::BinaryExpr(BinaryExpr { left, op, right });
        Ok(Transformed::new_transformed(comparison, swapped.is_some()))
    }
}

/// Visits an expression, its parts first.
struct Walk<'a> {
    simplifier: &'a Simplifier,
    replaced: usize,
    /// The types of the enclosing functions, and `None` for other expressions. The type of some functions
    /// depends on whether an argument is a constant, and type coercion has added casts around them for that
    /// type.
    declared: Vec<Option<DataType>>,
}

impl TreeNodeRewriter for Walk<'_> {
    type Node = Expr;

    fn f_down(&mut self, part: Expr) -> Result<Transformed<Expr>> {
        let declared = match part {
            Expr::ScalarFunction(_) => Some(part.get_type(self.simplifier.schema.as_ref())?),
            _ => None,
        };
        self.declared.push(declared);
        Ok(Transformed::no(part))
    }

    fn f_up(&mut self, part: Expr) -> Result<Transformed<Expr>> {
        let declared = self.declared.pop().flatten();
        let simple = self.simplifier.step(part, self.replaced)?;
        let Some(declared) = declared else {
            return Ok(simple);
        };
        if simple.data.get_type(self.simplifier.schema.as_ref())? == declared {
            return Ok(simple);
        }
        let cast = cast(simple.data, declared);
        match is_constant(&cast)? {
            true => compute(cast),
            false => Ok(Transformed::yes(cast)),
        }
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// Whether an operator is a comparison.
pub fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// `x BETWEEN a AND b` as two comparisons.
fn bounds(between: Between) -> Expr {
    let Between {
        expr,
        negated,
        low,
        high,
    } = between;
    let (at_low, at_high, both) = match negated {
        false => (Operator::GtEq, Operator::LtEq, Operator::And),
        true => (Operator::Lt, Operator::Gt, Operator::Or),
    };
    let low = binary(expr.as_ref().clone(), at_low, *low);
    binary(low, both, binary(*expr, at_high, *high))
}

/// Whether an expression consists only of constants.
fn is_constant(part: &Expr) -> Result<bool> {
    match part {
        Expr::ScalarFunction(function) => {
            if function.func.signature().volatility == Volatility::Volatile {
                return Ok(false);
            }
        }
        Expr::BinaryExpr(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::InList(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotNull(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsUnknown(_)
        | Expr::Like(_)
        | Expr::Negative(_)
        | Expr::Not(_)
        | Expr::SimilarTo(_)
        | Expr::TryCast(_) => {}
        _ => return Ok(false),
    }
    let mut is_constant = true;
    part.apply_children(|child| {
        is_constant &= matches!(child, Expr::Literal(..));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_constant)
}

/// The value of a constant expression, computed as for a row. One that fails stays as it is, and rejects the
/// rows that need it; only a CAST that fails is rejected at once.
fn compute(part: Expr) -> Result<Transformed<Expr>> {
    let empty = DFSchema::empty();
    let declared = part.get_type(&empty)?;
    match constant(&part) {
        Ok(value) if value.data_type() == declared => Ok(Transformed::yes(lit(value))),
        // The type would change.
        Ok(_) => Ok(Transformed::no(part)),
        Err(error) if matches!(part, Expr::Cast(_)) => Err(error),
        Err(_) => Ok(Transformed::no(part)),
    }
}

#[cfg(test)]
mod tests;
