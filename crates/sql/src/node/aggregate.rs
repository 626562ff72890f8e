//! GROUP BY: windowed if a window column is among the keys, running otherwise.

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::logical_plan::Aggregate;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::aggregate::{
    self, AggregateCall, AggregateSpec, Emit, Refires, WindowKey, output_types,
};
use slackwater_engine::operator::changelog::aggregate::UpdatingAggregate;
use slackwater_engine::operator::session::SessionSpec;
use slackwater_engine::operator::window::{WindowKind, Windows};

use super::columns::Columns;
use super::facts::{
    Behind, Bound, Changelog, ChangelogMode, Combines, Cost, Emission, Emits, Facts, Growth,
    NeedsBefore, Node, Order, Sorted, State, by_key,
};
use super::groups::Groups;
use super::identity;
use super::saved::Saved;
use super::session_aggregate::{SessionAggregateNode, can_merge_sessions};
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::aggregates::{self, keeps_values};
use crate::error::{Result, SqlError};
use crate::explain::{self, names, readable};
use crate::expression::{Physical, column};

mod shown;

/// GROUP BY and DISTINCT.
pub const TRANSLATION: Translation = Translation {
    needs: |plan| Needs {
        event_time: match plan {
            LogicalPlan::Aggregate(aggregate) => {
                aggregate.aggr_expr.iter().any(aggregates::orders_rows)
            }
            _ => false,
        },
        ..Needs::NOTHING
    },
    translate: |translator, plan| match plan {
        LogicalPlan::Aggregate(aggregate) => translator.aggregate(aggregate).map(Some),
        _ => Ok(None),
    },
};

/// Aggregation by keys.
pub struct AggregateNode {
    /// The keys, aggregates and windows.
    pub spec: AggregateSpec,
    /// The columns of the input.
    pub input: SchemaRef,
}

impl AggregateNode {
    /// Whether the result is the same to the last bit for any order of the input.
    fn is_exact(&self) -> bool {
        let mut calls = self.spec.calls.iter();
        calls.all(|call| call.is_exact(&self.input))
    }
}

impl Node for AggregateNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.spec.keys)
    }

    fn state(&self) -> Option<State> {
        let spec = &self.spec;
        let kind = match (&spec.window, &spec.refires) {
            _ if spec.is_updating() => Saved::UpdatingAggregate,
            (None, _) if spec.is_final() => Saved::FinalAggregate,
            (None, _) => Saved::RunningAggregate,
            (Some(_), None) => Saved::WindowAggregate,
            (Some(_), Some(_)) => Saved::RefiringAggregate,
        };
        Some(State {
            kind,
            identity: identity::aggregate(spec, &self.input),
            is_read_whole: false,
        })
    }

    fn changelog(&self, wants_before: bool) -> Changelog {
        let spec = &self.spec;
        let emits = match spec.window {
            _ if spec.is_final() => Emits::Appends,
            None => Emits::Changes(ChangelogMode {
                // The rows of a DISTINCT are never replaced.
                updates: !spec.calls.is_empty(),
                befores: wants_before,
                deletes: spec.takes_back && !spec.keys.is_empty(),
            }),
            Some(_) => Emits::Changes(ChangelogMode {
                updates: true,
                befores: wants_before,
                deletes: false,
            }),
        };
        Changelog {
            needs_before: NeedsBefore::ByInput(vec![spec.takes_back]),
            emits,
        }
    }

    fn settle(&mut self, wants_before: bool) {
        if !self.spec.is_final() {
            self.spec.emits_before = wants_before;
        }
    }

    fn growth(&self, _: &str) -> Vec<Growth> {
        match self.spec.window {
            Some(_) => Vec::new(),
            None => growth(&self.spec, &self.input),
        }
    }

    fn facts(&self) -> Facts<'_> {
        let spec = &self.spec;
        let every_ns = spec.refires.as_ref().and_then(|refires| refires.every_ns);
        Facts {
            order: match spec.is_final() && self.is_exact() {
                true => Order::Unseen,
                false => Order::Seen,
            },
            sorted: Sorted::No,
            orders_by_origin: spec.calls.iter().any(|call| call.function.needs_order()),
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: match (spec.window, every_ns) {
                (None, _) if spec.is_final() => Emission::AtEnd,
                (_, Some(_)) => Emission::OnTimer,
                (_, None) => Emission::OnInput,
            },
            judges: None,
            assigns: None,
            retention_us: spec.retention_us,
            combines: spec.can_combine().then(|| Combines {
                is_exact: self.is_exact(),
                spec,
                input: &self.input,
            }),
            cost: Cost::of(5_000.0, 60.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let spec = self.spec.clone();
        Ok(match spec.is_updating() {
            true => Operator::stateful(UpdatingAggregate::new(spec, &self.input)?),
            false => Operator::stateful(aggregate::Aggregate::new(spec, &self.input)?),
        })
    }
}

/// The state of an aggregation without windows.
fn growth(spec: &AggregateSpec, input: &Schema) -> Vec<Growth> {
    let mut growth = Vec::new();
    if spec.retention_us.is_none() && !spec.keys.is_empty() {
        let clause = match spec.calls.is_empty() {
            true => "DISTINCT",
            false => "GROUP BY",
        };
        let names = names(&spec.keys, input);
        growth.push(Growth {
            input: None,
            keeps: format!("{clause} {names} keeps every key forever"),
            bound: Bound::StateTtl,
        });
    }
    // Retractable values are as many as the rows of the input: they are bounded with it.
    let values = spec.calls.iter().enumerate();
    let values = values.filter(|(_, call)| !spec.takes_back && keeps_values(&call.function));
    let first = spec.schema.fields().len() - spec.calls.len();
    growth.extend(values.map(|(number, _)| {
        let call = readable(spec.schema.field(first + number).name());
        Growth {
            input: None,
            keeps: format!("{call} keeps every value forever"),
            bound: Bound::Other(
                "'state_ttl' only discards whole groups; aggregate in windows, or use approx_distinct or \
                approx_percentile_cont",
            ),
        }
    }));
    growth
}

impl Translator<'_> {
    fn aggregate(&mut self, aggregate: &Aggregate) -> Result<Stream> {
        let plan = &aggregate.input;
        // The aggregation merges sessions itself, so the window function below needs not keep rows.
        let merges = can_merge_sessions(&aggregate.group_expr, &aggregate.aggr_expr, plan);
        self.merges_sessions = merges;
        let input = self.translate(plan)?;
        let mut columns = Columns::default();
        let groups = Groups::of(aggregate, self, &input, merges, &mut columns)?;
        let window = groups.edge.as_ref().map(|edge| WindowKey {
            column: columns.place(&edge.value, edge.name.as_str()),
            is_start: edge.is_start,
            windows: edge.windows,
        });
        let refires = self.refires(window.map(|window| window.windows))?;
        let (calls, call_names) = self.calls(aggregate, &input, &mut columns)?;
        let orders = calls.iter().any(|call| call.function.needs_order());
        check_stays(orders, &input)?;
        let time = input.time.as_ref().filter(|_| orders || merges);
        let time_column = time.map(|time| columns.place(time, "event_time"));
        let node = columns.node(self, &input)?;
        let before = self.schema(node);
        let output = Output::new(&groups, window, merges, &calls, call_names, &before);
        let at_end = self.at_end > 0 && window.is_none();
        let retention_us = self.session.settings.state_ttl_us;
        let spec = AggregateSpec {
            window,
            keys: groups.keys.iter().map(|(column, _)| *column).collect(),
            calls,
            time_column,
            emit: match self.session.settings.emit_every_row {
                _ if at_end => Emit::AtEnd,
                true => Emit::EveryRow,
                false => Emit::Changes,
            },
            refires,
            takes_back: input.updates,
            starts_empty: false,
            emits_before: false,
            retention_us: retention_us.filter(|_| window.is_none() && !at_end),
            schema: output.schema.clone(),
        };
        let spec = AggregateSpec {
            starts_empty: spec.is_total() && input.deletes && !at_end,
            ..spec
        };
        let node = self.aggregate_node(&spec, before, merges, node);
        self.aggregated(aggregate, &groups, &output, &spec, node, &input)
    }

    /// The aggregates, over columns instead of expressions, and their names.
    fn calls(
        &self,
        aggregate: &Aggregate,
        input: &Stream,
        columns: &mut Columns,
    ) -> Result<(Vec<AggregateCall>, Vec<String>)> {
        let plan = &aggregate.input;
        let (mut calls, mut names) = (Vec::new(), Vec::new());
        for expression in &aggregate.aggr_expr {
            let mut inner = expression;
            while let Expr::Alias(alias) = inner {
                inner = &alias.expr;
            }
            let Expr::AggregateFunction(call) = inner else {
                return Err(SqlError::new(format!(
                    "'{expression}' is not a supported aggregate"
                )));
            };
            let planned = aggregates::plan(call, plan.schema())?;
            let mut add = |argument: &Expr| {
                let bound = self.bind(argument, input, plan)?;
                Ok(columns.place(&bound, argument.schema_name().to_string()))
            };
            let arguments = planned.arguments.iter().map(&mut add);
            let arguments = arguments.collect::<Result<Vec<usize>>>()?;
            let filter = call.params.filter.as_deref().map(&mut add);
            calls.push(AggregateCall {
                function: planned.function,
                arguments,
                filter: filter.transpose()?,
            });
            names.push(expression.schema_name().to_string());
        }
        Ok((calls, names))
    }

    /// Adds the node of an aggregation.
    fn aggregate_node(
        &mut self,
        spec: &AggregateSpec,
        input: SchemaRef,
        merges: bool,
        node: usize,
    ) -> usize {
        let detail = shown::detail(spec, &input);
        let key = format!("aggregate {merges} {spec:?}");
        let spec = spec.clone();
        match (spec.window, spec.time_column) {
            (Some(window), Some(time_column)) if merges => {
                let sessions = SessionSpec {
                    keys: spec.keys.clone(),
                    time_column,
                    reach_column: window.column,
                    windows: window.windows,
                };
                let aggregate = SessionAggregateNode {
                    sessions,
                    spec,
                    input,
                };
                self.operator("aggregate", detail, &[node], aggregate, &key)
            }
            _ => {
                let aggregate = AggregateNode { spec, input };
                self.operator("aggregate", detail, &[node], aggregate, &key)
            }
        }
    }

    /// The stream of an aggregation.
    fn aggregated(
        &self,
        aggregate: &Aggregate,
        groups: &Groups,
        output: &Output,
        spec: &AggregateSpec,
        node: usize,
        input: &Stream,
    ) -> Result<Stream> {
        let schema = &output.schema;
        let (edges, first_key) = (output.edges, output.edges);
        let keys = groups.keys.len();
        let mut columns = Vec::new();
        let mut roles = Vec::new();
        for (key, role) in &groups.places {
            let index = match (key, role) {
                (Some(key), _) => first_key + key,
                (None, Role::WindowStart(_)) => 0,
                (None, _) => edges - 1,
            };
            columns.push(column(index, schema));
            roles.push(match role {
                Role::Time => Role::Plain,
                role => *role,
            });
        }
        for call in 0..spec.calls.len() {
            columns.push(column(first_key + keys + call, schema));
            roles.push(Role::Plain);
        }
        // window_time among the keys is the event time of the result.
        for (expression, role) in aggregate.group_expr.iter().zip(&mut roles) {
            if spec.window.is_some()
                && self.role(expression, input, &aggregate.input)? == Role::Time
            {
                *role = Role::Time;
            }
        }
        // Either edge identifies a window, but cumulating windows share their starts.
        let is_unique = |role: &Role| {
            let kind = spec.window.map(|window| window.windows.kind);
            kind != Some(WindowKind::Cumulating) || matches!(role, Role::WindowEnd(_))
        };
        let of_window = groups.places.iter().enumerate();
        let of_window = of_window.filter(|(_, (key, role))| key.is_none() && is_unique(role));
        let of_window = of_window.map(|(place, _)| columns[place].clone());
        let of_window = of_window.collect::<Vec<Physical>>();
        let key = (0..keys).map(|index| column(first_key + index, schema));
        let with_key = |edge: Option<&Physical>| {
            let all = edge.into_iter().cloned().chain(key.clone());
            all.collect::<Vec<Physical>>()
        };
        let unique = match spec.window {
            _ if !spec.is_final() => Vec::new(),
            None => vec![with_key(None)],
            Some(_) => of_window.iter().map(|edge| with_key(Some(edge))).collect(),
        };
        // If both edges are keys the first one is used.
        let of_window = of_window.first().filter(|_| spec.refires.is_some());
        let key = with_key(of_window);
        let updates = !spec.is_final();
        if spec.window.is_none() || updates {
            // Windows over rows that are replaced never close.
            roles.fill(Role::Plain);
        }
        let time = spec.window.filter(|_| !updates);
        Ok(Stream {
            node,
            columns,
            roles,
            time: time.map(|_| column(edges - 1, schema)),
            updates,
            deletes: updates && spec.window.is_none() && input.updates && keys > 0,
            unique,
            key: updates.then_some(key),
        })
    }

    /// When windows are emitted before or after their end.
    fn refires(&self, window: Option<Windows>) -> Result<Option<Refires>> {
        let settings = &self.session.settings;
        let refires = Refires {
            every_ns: settings.emit_every_ns,
            lateness_us: settings.allowed_lateness_us,
        };
        let Some(windows) = window else {
            return Ok(None);
        };
        if refires.every_ns.is_none() && refires.lateness_us == 0 {
            return Ok(None);
        }
        if !windows.is_fixed() {
            let kind = explain::windows(&windows);
            let error =
                format!("'emit' = 'every …' is not supported for {kind}, whose windows can change");
            return Err(SqlError::new(error)
                .near("GROUP")
                .hint("remove the setting, or use TUMBLE, HOP or CUMULATE"));
        }
        Ok(Some(refires))
    }
}

/// The columns of the output: the edges of the window, the keys, the aggregates.
struct Output {
    schema: SchemaRef,
    /// The number of window edges.
    edges: usize,
}

impl Output {
    fn new(
        groups: &Groups,
        window: Option<WindowKey>,
        merges: bool,
        calls: &[AggregateCall],
        call_names: Vec<String>,
        input: &Schema,
    ) -> Output {
        let keys = groups.keys.iter();
        let key_types = keys.map(|(column, _)| input.field(*column).data_type().clone());
        let types = output_types(window, &key_types.collect::<Vec<DataType>>(), calls);
        let edges = match window {
            None => [].as_slice(),
            // The window's start is one of the keys.
            Some(window) if !window.windows.is_fixed() && !merges => &["window_end"],
            Some(_) => &["window_start", "window_end"],
        };
        let start = window.filter(|_| merges);
        let start = start.map(|window| window.windows.data_type());
        let types = start.into_iter().chain(types);
        let names = edges.iter().map(|name| name.to_string());
        let names = names.chain(groups.keys.iter().map(|(_, name)| name.clone()));
        let fields = names.chain(call_names).zip(types);
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        Output {
            schema: Schema::new(fields.collect::<Vec<_>>()).into(),
            edges: edges.len(),
        }
    }
}

/// Rejects FIRST_VALUE and LAST_VALUE over rows that are updated or retracted.
fn check_stays(orders: bool, input: &Stream) -> Result<()> {
    if orders && input.updates {
        return Err(SqlError::new(
            "FIRST_VALUE and LAST_VALUE need rows that never change, and these are updated or \
             retracted",
        )
        .near("VALUE")
        .hint("use ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= 1 for the first row"));
    }
    Ok(())
}
