//! Functions with OVER: aggregates over the rows before each row, ordered by event time.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use datafusion_expr::expr::{Sort, WindowFunction};
use datafusion_expr::logical_plan::Window;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::drop_late::Late;
use slackwater_engine::operator::over::{Over, OverCall, OverFunction, OverSpec};

use super::columns::Columns;
use super::facts::{
    Behind, Bound, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::over_functions::{Planned, call_of, error, planned};
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::aggregates::keeps_values;
use crate::error::Result;
use crate::explain::{self, names, readable};
use crate::expression::{Physical, column};

/// Functions with OVER.
pub const TRANSLATION: Translation = Translation {
    needs: |plan| Needs {
        late_at_watermark: matches!(plan, LogicalPlan::Window(_)),
        ..Needs::NOTHING
    },
    translate: |translator, plan| match plan {
        LogicalPlan::Window(window) => translator.over(window).map(Some),
        _ => Ok(None),
    },
};

/// Computes functions over the rows before each row.
pub struct OverNode {
    /// The functions, keys and order.
    pub spec: OverSpec,
}

impl Node for OverNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.spec.keys)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::Over,
            identity: identity::over(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, detail: &str) -> Vec<Growth> {
        growth(&self.spec, detail).into_iter().collect()
    }

    fn facts(&self) -> Facts<'_> {
        // The node sorts its rows itself.
        Facts {
            order: Order::Unseen,
            sorted: Sorted::No,
            orders_by_origin: true,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(10_000.0, 200.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(Over::new(self.spec.clone())?))
    }
}

/// The state that an OVER keeps for each key, also for keys that never occur again.
fn growth(spec: &OverSpec, detail: &str) -> Option<Growth> {
    let any =
        |keeps: fn(&OverFunction) -> bool| spec.calls.iter().any(|call| keeps(&call.function));
    let values = any(|function| {
        matches!(function, OverFunction::Aggregate { function: aggregate, .. }
            if function.runs_on() && keeps_values(aggregate))
    });
    let what = match (
        values,
        any(OverFunction::runs_on),
        any(OverFunction::keeps_rows),
    ) {
        (true, ..) => "every value",
        (_, true, true) => "a value and the last rows",
        (_, true, false) => "a value",
        (_, false, true) => "the last rows",
        (_, false, false) => return None,
    };
    let keeps = match (spec.keys.is_empty(), values) {
        (true, true) => format!("OVER keeps {what} forever ({detail})"),
        (true, false) => return None,
        (false, _) => {
            let keys = names(&spec.keys, &spec.input);
            format!("OVER (PARTITION BY {keys}) keeps {what} of every key forever ({detail})")
        }
    };
    Some(Growth {
        input: None,
        keeps,
        bound: Bound::Other(
            "'state_ttl' does not apply to it; RANGE BETWEEN INTERVAL … PRECEDING AND CURRENT ROW \
            keeps only the rows of that time",
        ),
    })
}

impl Translator<'_> {
    fn over(&mut self, window: &Window) -> Result<Stream> {
        let plan = window.input.as_ref();
        let input = self.translate(plan)?;
        let calls = window.window_expr.iter().map(call_of);
        let calls = calls.collect::<Result<Vec<&WindowFunction>>>()?;
        let [first, ..] = calls.as_slice() else {
            return Ok(input);
        };
        if input.updates {
            return Err(error(
                first,
                "it needs rows that never change, and a running aggregate updates its rows",
            )
            .hint(
                "aggregate in windows first: FROM TUMBLE(…) GROUP BY window_start, window_end, …",
            ));
        }
        let time = self.event_time_of_order(first, &input, plan)?;
        let mut columns = Columns::of(&input, plan);
        let time_column = columns.place(&time, "event_time");
        // The planner makes a separate plan node for each PARTITION BY and ORDER BY.
        let keys = first.params.partition_by.iter();
        let keys = keys.map(|key| self.bind(key, &input, plan));
        let keys = columns.place_keys(keys.collect::<Result<Vec<Physical>>>()?.iter());
        let mut over_calls = Vec::new();
        for call in &calls {
            over_calls.push(self.over_call(planned(call, plan)?, &input, plan, &mut columns)?);
        }
        let node = columns.node(self, &input)?;
        let node = self.drop_late(node, time_column, Late::At);
        let before = self.schema(node);
        let schema = output(&before, window, &over_calls);
        let spec = OverSpec {
            keys,
            time_column,
            calls: over_calls,
            behind_us: self.behind_us(node),
            input: before.clone(),
            schema: schema.clone(),
        };
        let detail = detail(&spec);
        let key = format!("over {spec:?}");
        let node = self.operator("over", detail, &[node], OverNode { spec }, &key);
        let of_input = 0..input.columns.len();
        let results = before.fields().len()..schema.fields().len();
        let shown = of_input.chain(results.clone());
        let columns = shown.map(|index| column(index, &schema));
        let mut roles = input.roles;
        roles.extend(results.map(|_| Role::Plain));
        Ok(Stream {
            node,
            columns: columns.collect(),
            roles,
            time: Some(column(time_column, &schema)),
            updates: false,
            key: None,
            deletes: false,
            unique: Vec::new(),
        })
    }

    /// A call with columns instead of expressions.
    fn over_call(
        &self,
        planned: Planned,
        input: &Stream,
        plan: &LogicalPlan,
        columns: &mut Columns,
    ) -> Result<OverCall> {
        let mut add = |expression: &Expr| {
            let bound = self.bind(expression, input, plan)?;
            Ok(columns.place(&bound, expression.schema_name().to_string()))
        };
        let arguments = planned.arguments.iter().map(&mut add);
        let arguments = arguments.collect::<Result<Vec<usize>>>()?;
        Ok(OverCall {
            function: planned.function,
            arguments,
            filter: planned.filter.as_ref().map(&mut add).transpose()?,
        })
    }

    /// The event time by which rows are ordered.
    fn event_time_of_order(
        &self,
        call: &WindowFunction,
        input: &Stream,
        plan: &LogicalPlan,
    ) -> Result<Physical> {
        const FORM: &str =
            "use … OVER (PARTITION BY k ORDER BY ts), with the column of WATERMARK FOR";
        let [Sort { expr, asc, .. }] = call.params.order_by.as_slice() else {
            let text = match call.params.order_by.is_empty() {
                true => "ORDER BY is missing",
                false => "rows can only be ordered by event time",
            };
            return Err(error(call, text).hint(FORM));
        };
        if self.role(expr, input, plan)? != Role::Time {
            let text = format!(
                "'{}' is not an event time",
                explain::readable(&expr.to_string())
            );
            return Err(error(call, &text).hint(FORM));
        }
        if !asc {
            let text =
                "rows can't be ordered in descending order, because a stream has no last row";
            return Err(error(call, text).hint("remove DESC"));
        }
        self.bind(expr, input, plan)
    }
}

/// The columns of the input, followed by the result of each call.
fn output(input: &Schema, window: &Window, calls: &[OverCall]) -> SchemaRef {
    let results = window.window_expr.iter().zip(calls);
    let results = results.map(|(expression, call)| {
        let name = result_name(&expression.schema_name().to_string(), &call.function);
        Arc::new(Field::new(name, call.function.data_type(), true))
    });
    let fields = input.fields().iter().cloned().chain(results);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The node's description in EXPLAIN.
fn detail(spec: &OverSpec) -> String {
    let name = |index: &usize| readable(spec.input.field(*index).name());
    let calls = &spec.schema.fields()[spec.input.fields().len()..];
    let calls = calls.iter().map(|field| field.name().as_str());
    let calls = calls.collect::<Vec<&str>>().join(", ");
    let keys = spec.keys.iter().map(name).collect::<Vec<_>>();
    let by = match keys.is_empty() {
        true => String::new(),
        false => format!(" by {}", keys.join(", ")),
    };
    format!("{calls}{by} in the order of {}", name(&spec.time_column))
}

/// The name of a call's result: the planner's name without the parts of OVER that the description already
/// has.
fn result_name(name: &str, function: &OverFunction) -> String {
    let name = readable(name);
    let starts = [" PARTITION BY ", " ORDER BY ", " ROWS ", " RANGE "];
    let call = starts.iter().filter_map(|start| name.find(start)).min();
    let frame = [" ROWS BETWEEN ", " RANGE BETWEEN "];
    let frame = frame.iter().filter_map(|start| name.rfind(start)).max();
    match (call, frame, function) {
        (Some(call), Some(frame), OverFunction::Aggregate { .. }) => {
            format!("{}{}", &name[..call], &name[frame..])
        }
        (Some(call), ..) => name[..call].to_string(),
        _ => name,
    }
}
