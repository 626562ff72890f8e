//! GROUPING SETS, ROLLUP and CUBE: one aggregation for each set of keys, and a UNION ALL of their results.
//! Keys that are not in the set are NULL; an extra column has a bit for each of them, from which `GROUPING()`
//! is computed.

use std::sync::Arc;

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DataFusionError, ScalarValue};
use datafusion_expr::logical_plan::{Aggregate, Union};
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, lit};

use crate::error::{Result, SqlError};

/// The maximum number of sets of a GROUP BY: each is an aggregation with its own state.
const SETS_MAX: usize = 64;

/// The plan with one aggregation for each set, and each key once.
pub fn expand(plan: LogicalPlan) -> Result<LogicalPlan> {
    let expanded = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.as_slice() {
            [Expr::GroupingSet(sets)] => {
                let sets =
                    sets_of(sets).map_err(|error| DataFusionError::External(Box::new(error)))?;
                Ok(Transformed::yes(union_of(&aggregate, sets)?))
            }
            keys => match grouping_set_to_exprlist(keys)? {
                // The planner lists a key as often as GROUP BY names it, but gives it one column.
                unique if unique.len() < keys.len() => {
                    let unique = unique.into_iter().cloned().collect();
                    let once = Aggregate::try_new(aggregate.input, unique, aggregate.aggr_expr)?;
                    Ok(Transformed::yes(LogicalPlan::Aggregate(once)))
                }
                _ => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
            },
        },
        node => Ok(Transformed::no(node)),
    })?;
    Ok(expanded.data)
}

/// The keys of each set.
fn sets_of(sets: &GroupingSet) -> Result<Vec<Vec<Expr>>> {
    let count = match sets {
        GroupingSet::GroupingSets(sets) => sets.len(),
        GroupingSet::Rollup(keys) => keys.len() + 1,
        GroupingSet::Cube(keys) => 1_usize.checked_shl(keys.len() as u32).unwrap_or(usize::MAX),
    };
    if count > SETS_MAX {
        let error =
            format!("GROUP BY has {count} grouping sets, and at most {SETS_MAX} are supported");
        return Err(SqlError::new(error)
            .near("GROUP")
            .hint("list the sets that you need: GROUPING SETS ((a, b), (a), ())"));
    }
    Ok(match sets {
        GroupingSet::GroupingSets(sets) => sets.clone(),
        GroupingSet::Rollup(keys) => {
            let lengths = (0..=keys.len()).rev();
            lengths.map(|length| keys[..length].to_vec()).collect()
        }
        GroupingSet::Cube(keys) => {
            let of_set = |set: usize| {
                let keys = keys.iter().enumerate();
                let keys = keys.filter(|(at, _)| set & (1 << at) == 0);
                keys.map(|(_, key)| key.clone()).collect()
            };
            (0..count).map(of_set).collect()
        }
    })
}

fn union_of(aggregate: &Aggregate, sets: Vec<Vec<Expr>>) -> datafusion_common::Result<LogicalPlan> {
    let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
    let keys = keys.into_iter().cloned().collect::<Vec<Expr>>();
    let mut inputs = Vec::<LogicalPlan>::new();
    let mut masks = Vec::new();
    for set in sets {
        // The first key's bit is the highest.
        let bits = keys.iter().map(|key| u64::from(!set.contains(key)));
        let mask = bits.fold(0, |mask, bit| mask << 1 | bit);
        let before = masks.iter().filter(|known| **known == mask).count() as u64;
        masks.push(mask);
        let id = mask | before << keys.len();
        inputs.push(one(aggregate, &keys, set, id)?);
    }
    let union = match inputs.len() {
        1 => inputs.remove(0),
        _ => LogicalPlan::Union(Union::try_new(inputs.into_iter().map(Arc::new).collect())?),
    };
    // The columns get the names that they had in the original aggregation.
    let fields = aggregate.schema.iter().enumerate();
    let renamed = fields.map(|(at, (qualifier, field))| {
        let column = Expr::Column(Column::from_name(inner_name(at)));
        column.alias_qualified(qualifier.cloned(), field.name())
    });
    LogicalPlanBuilder::from(union)
        .project(renamed.collect::<Vec<_>>())?
        .build()
}

/// Columns of several tables may have the same name; inside the union they are numbered.
fn inner_name(at: usize) -> String {
    format!("__set_{at}")
}

/// The aggregation by one set, with the columns of all sets.
fn one(
    aggregate: &Aggregate,
    keys: &[Expr],
    set: Vec<Expr>,
    id: u64,
) -> datafusion_common::Result<LogicalPlan> {
    // A key that the set names twice is used once.
    let set = keys.iter().filter(|key| set.contains(key)).cloned();
    let set = set.collect::<Vec<Expr>>();
    if set.is_empty() && aggregate.aggr_expr.is_empty() {
        let error = SqlError::new("the empty grouping set () has a single row without any column");
        let error = error
            .near("GROUP")
            .hint("select an aggregate, such as COUNT(*)");
        return Err(DataFusionError::External(Box::new(error)));
    }
    let fields = aggregate.schema.fields();
    let grouped = Aggregate::try_new(
        Arc::clone(&aggregate.input),
        set.clone(),
        aggregate.aggr_expr.clone(),
    )?;
    let of_set = grouped.schema.columns();
    let mut columns = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let place = set.iter().position(|known| known == key);
        columns.push(match place {
            Some(place) => Expr::Column(of_set[place].clone()),
            None => lit(ScalarValue::try_from(fields[at].data_type())?),
        });
    }
    let id = ScalarValue::UInt64(Some(id)).cast_to(fields[keys.len()].data_type())?;
    columns.push(lit(id));
    let calls = of_set.len() - aggregate.aggr_expr.len();
    columns.extend(of_set[calls..].iter().cloned().map(Expr::Column));
    let named = columns.into_iter().enumerate();
    let named = named.map(|(at, column)| column.alias(inner_name(at)));
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(grouped))
        .project(named.collect::<Vec<_>>())?
        .build()
}
