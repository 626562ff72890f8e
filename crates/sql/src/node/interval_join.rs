//! Joins of two streams whose conditions keep the event times of both sides together:
//! `b.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts + INTERVAL '1' MINUTE`, and what says the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};
use datafusion_common::Column;
use datafusion_expr::expr::Between;
use datafusion_expr::logical_plan::Join;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use slackwater_engine::operator::drop_late::Late;
use slackwater_engine::operator::interval_join::{IntervalJoinSpec, IntervalSide};
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::operator::window::timestamp_unit;
use slackwater_engine::time::EventTime;

use super::table_join::place;
use super::{Role, Stream, Translator};
use crate::error::Result;
use crate::explain;
use crate::expression::{Physical, PhysicalExpression, column, physical, replace_columns};
use crate::names::WINDOW_COLUMNS;
use crate::specs::NodeSpec;
use crate::window::interval_ns;

/// How far a row that a window has made may come behind the watermark: its event time is the last
/// millisecond (of finer times: microsecond) inside the window, and it comes when the watermark has
/// reached the window's end.
const BEHIND_WINDOW_US: EventTime = 1_000;

/// Whether the conditions of a join compare times other than the edges of windows.
pub(super) fn compares_times(join: &Join) -> bool {
    let is_time = |column: &Column| {
        let schema = join.schema.as_ref();
        let is_edge = WINDOW_COLUMNS[..2].contains(&column.name.as_str());
        let of = Expr::Column(column.clone()).get_type(schema);
        !is_edge && matches!(of, Ok(DataType::Timestamp(_, _)))
    };
    let on = join.on.iter().flat_map(|(left, right)| [left, right]);
    let conditions = on.chain(&join.filter);
    let mut columns = conditions.flat_map(Expr::column_refs);
    columns.any(is_time)
}

/// What a condition compares: an event time moved by a constant.
struct Moved {
    side: usize,
    /// The column's number on its side.
    column: usize,
    by_ns: i128,
    /// Finer than microseconds.
    is_fine: bool,
}

/// A bound of the right time less the left one, and the columns that these are.
struct Bound {
    columns: [usize; 2],
    is_least: bool,
    us: EventTime,
    /// It says all that the condition says.
    is_exact: bool,
}

/// The bounds of one pair of event times, and which conditions they replace.
#[derive(Default)]
struct Interval {
    least: Option<EventTime>,
    most: Option<EventTime>,
    replaced: Vec<usize>,
}

/// An interval between two columns.
struct Found {
    /// Their numbers on the left and on the right.
    columns: [usize; 2],
    bounds: [EventTime; 2],
    /// The conditions that are left.
    filter: Option<Expr>,
}

impl Moved {
    fn of(expression: &Expr, plans: [&LogicalPlan; 2], streams: &[Stream; 2]) -> Option<Moved> {
        match expression {
            Expr::Alias(alias) => Moved::of(&alias.expr, plans, streams),
            Expr::Column(name) => {
                let numbers = [0, 1].map(|side| plans[side].schema().index_of_column(name).ok());
                let (side, column) = match numbers {
                    [Some(column), None] => (0, column),
                    [None, Some(column)] => (1, column),
                    _ => return None,
                };
                let of = plans[side].schema().field(column).data_type();
                let is_time = streams[side].roles[column] == Role::Time;
                is_time.then_some(Moved {
                    side,
                    column,
                    by_ns: 0,
                    is_fine: matches!(of, DataType::Timestamp(TimeUnit::Nanosecond, _)),
                })
            }
            // The planner makes both sides of a comparison times of one unit, the finer one. A cast to a
            // coarser one gives another time.
            Expr::Cast(cast) => {
                let DataType::Timestamp(to, None) = cast.field.data_type() else {
                    return None;
                };
                let moved = Moved::of(&cast.expr, plans, streams)?;
                let of = plans[moved.side].schema().field(moved.column).data_type();
                let from = timestamp_unit(of)?;
                (*to >= from).then_some(moved)
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (of, by_ns) = match (op, interval_ns(left), interval_ns(right)) {
                    (Operator::Plus, None, Some(by_ns)) => (left, by_ns),
                    (Operator::Plus, Some(by_ns), None) => (right, by_ns),
                    (Operator::Minus, None, Some(by_ns)) => (left, -by_ns),
                    _ => return None,
                };
                let of = Moved::of(of, plans, streams)?;
                let by_ns = of.by_ns + by_ns;
                Some(Moved { by_ns, ..of })
            }
            _ => None,
        }
    }
}

impl Bound {
    /// What `one op other` says of the right time less the left one.
    fn of(one: Moved, op: Operator, other: Moved) -> Option<Bound> {
        // right + by (op) left + by', hence right - left (op) by' - by.
        let (right, op, left) = match (one.side, other.side) {
            (1, 0) => (one, op, other),
            (0, 1) => (other, op.swap()?, one),
            _ => return None,
        };
        let ns = left.by_ns - right.by_ns;
        let (is_least, is_strict) = match op {
            Operator::Gt => (true, true),
            Operator::GtEq => (true, false),
            Operator::Lt => (false, true),
            Operator::LtEq => (false, false),
            _ => return None,
        };
        // Times are compared in microseconds. Of finer ones that is too much by less than one, and the
        // condition itself decides.
        let is_exact = !left.is_fine && !right.is_fine && ns % 1_000 == 0;
        let strict_us = i128::from(is_strict && is_exact);
        let us = match is_least {
            true => ns.div_euclid(1_000) + strict_us,
            false => -((-ns).div_euclid(1_000)) - strict_us,
        };
        Some(Bound {
            columns: [left.column, right.column],
            is_least,
            us: EventTime::try_from(us).ok()?,
            is_exact,
        })
    }
}

/// What `one op other` says where one side is a difference of times and the other one a constant:
/// `b.ts - a.ts <= INTERVAL '1' DAY` is `b.ts <= a.ts + INTERVAL '1' DAY`.
fn of_difference(
    one: &Expr,
    op: Operator,
    other: &Expr,
    moved: &dyn Fn(&Expr) -> Option<Moved>,
) -> Option<Bound> {
    let (difference, op, by_ns) = match (interval_ns(one), interval_ns(other)) {
        (None, Some(by_ns)) => (one, op, by_ns),
        (Some(by_ns), None) => (other, op.swap()?, by_ns),
        _ => return None,
    };
    let mut difference = difference;
    // The planner makes an interval of it.
    while let Expr::Cast(cast) = difference {
        difference = &cast.expr;
    }
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Minus,
        right,
    }) = difference
    else {
        return None;
    };
    let (left, right) = (moved(left)?, moved(right)?);
    let by_ns = right.by_ns + by_ns;
    Bound::of(left, op, Moved { by_ns, ..right })
}

/// The bounds that a condition sets, where it is one of event times.
fn bounds(condition: &Expr, plans: [&LogicalPlan; 2], streams: &[Stream; 2]) -> Vec<Bound> {
    let moved = |of: &Expr| Moved::of(of, plans, streams);
    let bound = |one: &Expr, op: Operator, other: &Expr| match (moved(one), moved(other)) {
        (Some(one), Some(other)) => Bound::of(one, op, other),
        _ => of_difference(one, op, other, &moved),
    };
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Eq => {
            let both = [Operator::GtEq, Operator::LtEq].map(|op| bound(left, op, right));
            both.into_iter().flatten().collect()
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            bound(left, *op, right).into_iter().collect()
        }
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            let both = [
                bound(expr, Operator::GtEq, low),
                bound(expr, Operator::LtEq, high),
            ];
            // Half of it would replace the whole condition.
            both.into_iter()
                .collect::<Option<Vec<_>>>()
                .unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// The interval that the conditions of a join keep two event times in, if they do from both ends.
fn find(join: &Join, streams: &[Stream; 2]) -> Option<Found> {
    let plans = [join.left.as_ref(), join.right.as_ref()];
    let conditions = join.filter.as_ref().map(split_conjunction);
    let conditions = conditions.unwrap_or_default();
    let mut intervals = BTreeMap::<[usize; 2], Interval>::new();
    let mut note = |bound: &Bound, replaced: Option<usize>| {
        let interval = intervals.entry(bound.columns).or_default();
        if bound.is_least {
            interval.least = interval.least.max(Some(bound.us));
        } else {
            let most = interval.most.map_or(bound.us, |most| most.min(bound.us));
            interval.most = Some(most);
        }
        interval.replaced.extend(replaced);
    };
    for (number, condition) in conditions.iter().enumerate() {
        let all = bounds(condition, plans, streams);
        // One that also compares other times, or finer ones, stays a condition.
        let of_one = all.iter().all(|bound| bound.columns == all[0].columns);
        let is_replaced = of_one && all.iter().all(|bound| bound.is_exact);
        for bound in &all {
            note(bound, is_replaced.then_some(number));
        }
    }
    // Equal times are keys, too.
    for (left, right) in &join.on {
        let equal = left.clone().eq(right.clone());
        for bound in bounds(&equal, plans, streams) {
            note(&bound, None);
        }
    }
    intervals.into_iter().find_map(|(columns, interval)| {
        let bounds = [interval.least?, interval.most?];
        let left = conditions.iter().enumerate();
        let left = left.filter(|(number, _)| !interval.replaced.contains(number));
        Some(Found {
            columns,
            bounds,
            filter: conjunction(left.map(|(_, condition)| (*condition).clone())),
        })
    })
}

impl Translator<'_> {
    /// The join as one of an interval; `None` if its conditions don't keep the event times of both sides
    /// together.
    pub(super) fn interval_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        streams: &[Stream; 2],
    ) -> Result<Option<Stream>> {
        let Some(found) = find(join, streams) else {
            return Ok(None);
        };
        let plans = [join.left.as_ref(), join.right.as_ref()];
        let mut sides = Vec::new();
        let mut nodes = Vec::new();
        for side in 0..2 {
            let stream = &streams[side];
            let names = plans[side].schema().fields().iter();
            let mut names = names.map(|field| field.name().clone()).collect::<Vec<_>>();
            let mut columns = stream.columns.clone();
            let time = columns[found.columns[side]].clone();
            let time_column = place(&time, "event_time".to_string(), &mut columns, &mut names);
            let mut keys = Vec::new();
            for (number, (left, right)) in join.on.iter().enumerate() {
                let key = self.bind([left, right][side], stream, plans[side])?;
                keys.push(place(
                    &key,
                    format!("key{number}"),
                    &mut columns,
                    &mut names,
                ));
            }
            let node = self.materialise(stream, &columns, &names, None)?;
            nodes.push(self.drop_late(node, time_column, Late::At));
            sides.push(IntervalSide {
                time_column,
                keys,
                schema: self.schemas[node].clone(),
            });
        }
        let fields = sides.iter().flat_map(|side| side.schema.fields().iter());
        let schema: SchemaRef = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let width = sides[0].schema.fields().len();
        let logical = plans.map(|plan| plan.schema().fields().len());
        let of_left = 0..logical[0];
        let of_right = width..width + logical[1];
        let columns = of_left.chain(of_right).map(|index| column(index, &schema));
        let mut columns = columns.collect::<Vec<Physical>>();
        let condition = match &found.filter {
            None => None,
            Some(filter) => {
                super::refuse_subqueries(filter)?;
                let both = join.left.schema().join(join.right.schema())?;
                let bound = replace_columns(&physical(filter, &both)?, &columns)?;
                Some(PhysicalExpression::over(bound, &schema)? as _)
            }
        };
        let sides: [IntervalSide; 2] = sides.try_into().expect("two sides");
        let times = [0, 1].map(|side| sides[side].time_column + side * width);
        let behind_us = nodes.iter().map(|&node| self.behind_us(node)).max();
        let spec = IntervalJoinSpec {
            sides,
            bounds: found.bounds,
            kind,
            condition,
            behind_us: behind_us.unwrap_or(0),
            schema,
        };
        let schema = spec.output().clone();
        let detail = explain::interval_join(&spec);
        let key = format!("interval join {spec:?}");
        let node = self.node(
            "interval join",
            detail,
            &nodes,
            NodeSpec::IntervalJoin(spec),
            schema.clone(),
            &key,
        );
        // A side that is padded with NULL has no event time, and no window, any more.
        let padded = [
            matches!(kind, JoinKind::Right | JoinKind::Full),
            matches!(kind, JoinKind::Left | JoinKind::Full),
        ];
        let roles = streams.iter().zip(padded).flat_map(|(stream, padded)| {
            let roles = stream.roles.iter();
            roles.map(move |role| if padded { Role::Plain } else { *role })
        });
        let mut roles = roles.collect::<Vec<Role>>();
        if kind.is_of_left() {
            columns.truncate(logical[0]);
            roles.truncate(logical[0]);
        }
        let time = (0..2).find(|&side| !padded[side]);
        Ok(Some(Stream {
            node,
            columns,
            roles,
            time: time.map(|side| column(times[side], &schema)),
            updates: false,
            key: None,
            deletes: false,
        }))
    }

    /// How far behind the watermark rows of a node may come that are in time.
    pub(super) fn behind_us(&self, node: usize) -> EventTime {
        match &self.specs[node] {
            NodeSpec::Source(_) | NodeSpec::IntervalJoin(_) => 0,
            NodeSpec::Map { .. }
            | NodeSpec::Filter { .. }
            | NodeSpec::DropLate { .. }
            | NodeSpec::TableJoin(_)
            | NodeSpec::Union { .. } => {
                let inputs = self.graph.nodes[node].inputs.iter();
                let behind = inputs.map(|edge| self.behind_us(edge.from));
                behind.max().unwrap_or(0)
            }
            _ => BEHIND_WINDOW_US,
        }
    }
}
