//! A checkpoint changes no value of any aggregate, neither DataFusion's nor the engine's own.

use std::collections::BTreeSet;

use arrow_array::{Float64Array, RecordBatch};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{EmptyRelation, LogicalPlan};
use slackwater_engine::accumulator::{Accumulator, Retract};

use super::*;

/// Rows of three groups: the group of each row, and the columns x, y, n and b.
fn rows(seed: u64, count: usize) -> (Vec<u32>, RecordBatch) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let groups = (0..count).map(|_| (next() % 3) as u32).collect();
    let double = |number: u64| {
        let value = (number % 8000) as f64 / 7.0 - 400.0;
        (!number.is_multiple_of(11)).then_some(value)
    };
    let x = (0..count).map(|_| double(next())).collect::<Float64Array>();
    let y = (0..count).map(|_| double(next())).collect::<Float64Array>();
    let n = (0..count).map(|_| (next() % 9 > 0).then_some((next() % 50) as i64));
    let n = n.collect::<arrow_array::Int64Array>();
    let b = (0..count).map(|_| (next() % 9 > 0).then_some(next() % 2 == 0));
    let b = b.collect::<arrow_array::BooleanArray>();
    let schema = Arc::new(Schema::new(
        [
            ("x", DataType::Float64),
            ("y", DataType::Float64),
            ("n", DataType::Int64),
            ("b", DataType::Boolean),
        ]
        .map(|(name, data_type)| Field::new(name, data_type, true))
        .to_vec(),
    ));
    let columns: Vec<ArrayRef> = vec![Arc::new(x), Arc::new(y), Arc::new(n), Arc::new(b)];
    (groups, RecordBatch::try_new(schema, columns).unwrap())
}

/// Calls of all supported functions, over these columns.
const CALLS: &[&str] = &[
    "COUNT(x)",
    "COUNT(DISTINCT x)",
    "SUM(n)",
    "SUM(x)",
    "SUM(DISTINCT x)",
    "SUM(CAST(x AS FLOAT))",
    "SUM(CAST(x AS DECIMAL(12, 3)))",
    "AVG(n)",
    "AVG(x)",
    "AVG(DISTINCT x)",
    "AVG(CAST(x AS DECIMAL(12, 3)))",
    "MIN(x)",
    "MAX(n)",
    "median(x)",
    "median(n)",
    "median(DISTINCT x)",
    "var_samp(x)",
    "var_pop(x)",
    "var_pop(DISTINCT x)",
    "stddev(x)",
    "stddev_pop(x)",
    "covar_samp(x, y)",
    "covar_pop(x, y)",
    "corr(x, y)",
    "corr(DISTINCT x, y)",
    "regr_slope(y, x)",
    "regr_intercept(y, x)",
    "regr_count(y, x)",
    "regr_r2(y, x)",
    "regr_avgx(y, x)",
    "regr_avgy(y, x)",
    "regr_sxx(y, x)",
    "regr_syy(y, x)",
    "regr_sxy(y, x)",
    "approx_median(x)",
    "approx_distinct(n)",
    "approx_percentile_cont(0.9) WITHIN GROUP (ORDER BY x)",
    "approx_percentile_cont(0.9, 20) WITHIN GROUP (ORDER BY x DESC)",
    "approx_percentile_cont_with_weight(n + 1, 0.3) WITHIN GROUP (ORDER BY x)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY x)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC)",
    "bit_and(n)",
    "bit_or(n)",
    "bit_xor(n)",
    "bit_xor(DISTINCT n)",
    "bool_and(b)",
    "bool_or(b)",
];

/// Functions that are rejected, and names that are not functions of their own.
const OTHERS: &[&str] = &[
    "any_value",
    "array_agg",
    "string_agg",
    "nth_value",
    "grouping",
];

/// The engine's own functions that need order keys.
const ORDERED: &[&str] = &["FIRST_VALUE(x)", "LAST_VALUE(x)"];

/// A planned call, and its argument columns, evaluated over `batch`.
fn planned(call: &str, batch: &RecordBatch) -> (AggregateFunction, Vec<ArrayRef>) {
    let text = format!("SELECT {call} AS value FROM t GROUP BY x, y, n, b");
    let mut session = crate::session::Session::new();
    let empty = EmptyRelation {
        produce_one_row: false,
        schema: Arc::new(DFSchema::try_from(batch.schema().as_ref().clone()).unwrap()),
    };
    session
        .add_view("t", LogicalPlan::EmptyRelation(empty))
        .unwrap();
    let statement = crate::statement::parse(&text).unwrap().remove(0).statement;
    let crate::statement::Statement::Select(query) = statement else {
        panic!("{call}: no query");
    };
    let logical = session.analyse(session.plan(*query).unwrap()).unwrap();
    let mut found = None;
    logical
        .apply(|part| {
            if let LogicalPlan::Aggregate(aggregate) = part {
                let mut inner = &aggregate.aggr_expr[0];
                while let Expr::Alias(alias) = inner {
                    inner = &alias.expr;
                }
                let Expr::AggregateFunction(expression) = inner else {
                    panic!("{call}: no aggregate");
                };
                let schema = aggregate.input.schema();
                let planned = plan(expression, schema).unwrap();
                let arguments = planned.arguments.iter().map(|argument| {
                    let bound = crate::expression::physical(argument, schema).unwrap();
                    let value = bound.evaluate(batch).unwrap();
                    value.into_array(batch.num_rows()).unwrap()
                });
                found = Some((planned.function.clone(), arguments.collect()));
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
    found.unwrap_or_else(|| panic!("{call}: no aggregation"))
}

/// What happens to an accumulator between two chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Disturb {
    Nothing,
    /// Its state is read, and the same accumulator continues.
    Snapshot,
    /// Its state is restored into a new accumulator.
    Restore,
    /// Its state replaces, group by group, that of another one, which is a chunk behind.
    Replace,
}

const GROUPS: [u32; 3] = [0, 1, 2];

/// An accumulator in one of its forms.
enum Form {
    Growing(Box<dyn Accumulator>),
    Retractable(Box<dyn Retract>),
}

impl Form {
    fn accumulator(&mut self) -> &mut dyn Accumulator {
        match self {
            Form::Growing(accumulator) => accumulator.as_mut(),
            Form::Retractable(accumulator) => accumulator.as_mut(),
        }
    }
}

/// The values of all groups after each chunk.
fn values(
    make: &dyn Fn() -> Form,
    (groups, columns): (&[u32], &[ArrayRef]),
    disturb: Disturb,
) -> Vec<String> {
    let (mut form, mut behind) = (make(), make());
    form.accumulator().resize(3);
    behind.accumulator().resize(3);
    let mut shown = Vec::new();
    let chunk = 7;
    for from in (0..groups.len()).step_by(chunk) {
        let length = chunk.min(groups.len() - from);
        let cut = |from: usize| {
            let columns = columns.iter().map(|column| column.slice(from, length));
            (&groups[from..from + length], columns.collect::<Vec<_>>())
        };
        let (of_rows, rows) = cut(from);
        let order = (from..from + length).map(|row| (row as i64 % 5, 0, row as u64));
        form.accumulator()
            .update(of_rows, &rows, &order.collect::<Vec<_>>())
            .unwrap();
        if let Form::Retractable(accumulator) = &mut form
            && from >= 3 * chunk
            && from % 2 == 0
        {
            let (of_rows, rows) = cut(from - 2 * chunk);
            accumulator.retract(of_rows, &rows).unwrap();
        }
        if disturb != Disturb::Nothing {
            let states = form.accumulator().state(&GROUPS).unwrap();
            if disturb == Disturb::Restore {
                form = make();
                form.accumulator().resize(3);
                form.accumulator().merge(&GROUPS, &states).unwrap();
            }
            if disturb == Disturb::Replace {
                std::mem::swap(&mut form, &mut behind);
                for group in GROUPS {
                    form.accumulator().reset(&[group]);
                    let only = states.iter().map(|column| column.slice(group as usize, 1));
                    let only = only.collect::<Vec<ArrayRef>>();
                    form.accumulator().merge(&[group], &only).unwrap();
                }
            }
        }
        let values = form.accumulator().evaluate(&GROUPS).unwrap();
        // Compared to the last bit.
        shown.push(format!("{:?} {:?}", values.column, values.failed));
    }
    shown
}

#[test]
#[allow(clippy::type_complexity)]
fn saving_and_restoring_an_aggregate_changes_no_value() {
    let (groups, batch) = rows(17, 600);
    for call in CALLS.iter().chain(ORDERED) {
        let (function, columns) = planned(call, &batch);
        let types = columns.iter().map(|column| column.data_type().clone());
        let types = types.collect::<Vec<DataType>>();
        let plain = || Form::Growing(function.accumulator().unwrap());
        let retractable = || Form::Retractable(function.retractable(&types).unwrap());
        let mut forms: Vec<(&dyn Fn() -> Form, bool)> = vec![(&plain, false)];
        if !ORDERED.contains(call) {
            forms.push((&retractable, true));
        }
        for (make, retracts) in forms {
            let data = (&groups[..], &columns[..]);
            let expected = values(make, data, Disturb::Nothing);
            for disturb in [Disturb::Snapshot, Disturb::Restore, Disturb::Replace] {
                let found = values(make, data, disturb);
                let differs = expected
                    .iter()
                    .zip(&found)
                    .position(|(one, other)| one != other);
                if let Some(chunk) = differs {
                    panic!(
                        "{call}, retracts rows: {retracts}, {disturb:?}: {} instead of {}",
                        found[chunk], expected[chunk]
                    );
                }
            }
        }
    }
}

#[test]
fn every_datafusion_aggregate_is_tested() {
    let word = |call: &&str| {
        let name = call.split('(').next().unwrap_or_default();
        name.to_lowercase()
    };
    let tried = CALLS.iter().chain(ORDERED).map(word);
    let known = tried.chain(OTHERS.iter().map(|name| name.to_string()));
    let known = known.collect::<BTreeSet<String>>();
    for function in datafusion_functions_aggregate::all_default_aggregate_functions() {
        let names = [function.name()].into_iter();
        let mut names = names.chain(function.aliases().iter().map(String::as_str));
        let is_known = names.any(|name| known.contains(name));
        assert!(
            is_known,
            "{} is missing from the lists above",
            function.name()
        );
    }
}

#[test]
fn moments_agree_with_datafusion() {
    let (groups, batch) = rows(5, 400);
    let calls = CALLS.iter().filter(|call| {
        let name = call.split('(').next().unwrap_or_default();
        !call.contains("DISTINCT")
            && (name.starts_with("regr_")
                || name.starts_with("var")
                || name.starts_with("stddev")
                || name.starts_with("co"))
            && !call.starts_with("COUNT")
    });
    let mut tried = 0;
    for call in calls {
        let (function, columns) = planned(call, &batch);
        let types = columns.iter().map(|column| column.data_type().clone());
        let fields = types.enumerate();
        let fields =
            fields.map(|(index, data_type)| Field::new(format!("a{index}"), data_type, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let name = call.split('(').next().unwrap_or_default();
        let all = datafusion_functions_aggregate::all_default_aggregate_functions();
        let theirs = all.into_iter().find(|function| {
            let aliases = function.aliases();
            function.name() == name || aliases.iter().any(|alias| alias == name)
        });
        let arguments = (0..columns.len())
            .map(|index| Arc::new(Column::new(&format!("a{index}"), index)) as Physical);
        let theirs = AggregateExprBuilder::new(theirs.unwrap(), arguments.collect())
            .schema(schema)
            .alias("aggregate")
            .build()
            .unwrap();
        let mut ours = function.accumulator().unwrap();
        ours.resize(3);
        ours.update(&groups, &columns, &[]).unwrap();
        let ours = ours.evaluate(&GROUPS).unwrap().column;
        for group in GROUPS {
            let of_group = groups.iter().map(|&other| Some(other == group));
            let of_group = of_group.collect::<arrow_array::BooleanArray>();
            let rows = columns
                .iter()
                .map(|column| arrow_select::filter::filter(column, &of_group).unwrap());
            let mut accumulator = theirs.create_accumulator().unwrap();
            accumulator.update_batch(&rows.collect::<Vec<_>>()).unwrap();
            let expected = accumulator.evaluate().unwrap();
            let found = ScalarValue::try_from_array(&ours, group as usize).unwrap();
            assert_eq!(found, expected, "{call}");
            tried += 1;
        }
    }
    assert_eq!(tried, 3 * 16);
}
