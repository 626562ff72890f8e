//! GROUP BY: windowed when a window column is among the keys, running otherwise.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use datafusion_expr::Expr;
use datafusion_expr::logical_plan::Aggregate;
use slackwater_engine::operator::aggregate::{
    AggregateCall, AggregateSpec, Emit, Refires, WindowKey, output_types,
};
use slackwater_engine::operator::session::SessionSpec;
use slackwater_engine::operator::window::{WindowKind, Windows};

use super::{Role, Stream, Translator};
use crate::aggregates;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::{Physical, column};
use crate::specs::NodeSpec;

/// Columns of an aggregation's input: each expression once.
#[derive(Default)]
struct Inputs {
    columns: Vec<Physical>,
    names: Vec<String>,
}

impl Inputs {
    fn add(&mut self, expression: Physical, name: String) -> usize {
        if let Some(index) = self.columns.iter().position(|known| known == &expression) {
            return index;
        }
        self.columns.push(expression);
        self.names.push(name);
        self.columns.len() - 1
    }
}

impl Translator<'_> {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate) -> Result<Stream> {
        let plan = &aggregate.input;
        // What it asks for need not be kept row by row.
        let merges = self.can_merge_sessions(&aggregate.group_expr, &aggregate.aggr_expr, plan);
        self.merges_sessions = merges;
        let input = self.translate(plan)?;
        let mut inputs = Inputs::default();
        let mut window: Option<(Role, Physical, String)> = None;
        let mut keys = Vec::new();
        // What each group expression is in the output: a key, or an edge of the window.
        let mut places = Vec::new();
        for expression in &aggregate.group_expr {
            if let Expr::GroupingSet(_) = expression {
                return Err(
                    SqlError::new("GROUPING SETS, CUBE and ROLLUP are not known here")
                        .mend("write one statement per grouping"),
                );
            }
            let bound = self.bind(expression, &input, plan)?;
            // A window of rows that may be taken back never closes: its edges are keys like others.
            let role = match input.updates {
                true => Role::Plain,
                false => self.role(expression, &input, plan)?,
            };
            let name = expression.schema_name().to_string();
            match role {
                // Of several sessions with one end, say, each has its own.
                Role::WindowStart(windows) if !windows.is_fixed() && !merges => {
                    keys.push((inputs.add(bound, name.clone()), name));
                    places.push((Some(keys.len() - 1), role));
                }
                Role::WindowStart(windows) | Role::WindowEnd(windows) => {
                    match window {
                        Some((Role::WindowStart(other) | Role::WindowEnd(other), ..))
                            if other != windows =>
                        {
                            if !is_same_window(other, windows) {
                                let error = "GROUP BY names two different windows";
                                return Err(SqlError::new(error));
                            }
                            // The other edge in another unit, which is a key like others.
                            keys.push((inputs.add(bound, name.clone()), name));
                            places.push((Some(keys.len() - 1), Role::Plain));
                            continue;
                        }
                        _ => {}
                    }
                    // Either edge names the window, so only one is carried along; the end is
                    // what it is closed by.
                    if window.is_none() || matches!(role, Role::WindowEnd(_)) {
                        window = Some((role, bound, name));
                    }
                    places.push((None, role));
                }
                Role::Plain | Role::Time | Role::WindowNumber => {
                    keys.push((inputs.add(bound, name.clone()), name));
                    places.push((Some(keys.len() - 1), role));
                }
            }
        }
        check_edges(&places, merges)?;
        let refires = self.refires(window.as_ref().map(|(role, ..)| *role))?;
        let window = window.map(|(role, bound, name)| (role, inputs.add(bound, name)));
        let mut calls = Vec::new();
        let mut call_names = Vec::new();
        for expression in &aggregate.aggr_expr {
            let mut inner = expression;
            while let Expr::Alias(alias) = inner {
                inner = &alias.expr;
            }
            let Expr::AggregateFunction(call) = inner else {
                return Err(SqlError::new(format!(
                    "'{expression}' is no aggregate that is known here"
                )));
            };
            let planned = aggregates::plan(call, plan.schema())?;
            let mut arguments = Vec::new();
            for argument in &planned.arguments {
                let bound = self.bind(argument, &input, plan)?;
                arguments.push(inputs.add(bound, argument.schema_name().to_string()));
            }
            let filter = match &call.params.filter {
                None => None,
                Some(filter) => {
                    let bound = self.bind(filter, &input, plan)?;
                    Some(inputs.add(bound, filter.schema_name().to_string()))
                }
            };
            calls.push(AggregateCall {
                function: planned.function,
                arguments,
                filter,
            });
            call_names.push(expression.schema_name().to_string());
        }
        let orders = calls.iter().any(|call| call.function.needs_order());
        if orders && input.updates {
            return Err(SqlError::new(
                "FIRST_VALUE and LAST_VALUE go by the order of rows that stay, and these are taken back or \
                 replaced",
            )
            .near("VALUE")
            .mend("ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= 1 gives the first row by a column"));
        }
        let time_column = match &input.time {
            Some(time) if orders || merges => {
                Some(inputs.add(time.clone(), "event_time".to_string()))
            }
            _ => None,
        };
        let node = self.materialise(&input, &inputs.columns, &inputs.names, None)?;
        let before = self.schemas[node].clone();

        let window = window.map(|(role, column)| match role {
            Role::WindowStart(windows) => WindowKey {
                column,
                is_start: true,
                windows,
            },
            Role::WindowEnd(windows) => WindowKey {
                column,
                is_start: false,
                windows,
            },
            Role::Plain | Role::Time | Role::WindowNumber => {
                unreachable!("only window columns get here")
            }
        });
        let key_columns = keys
            .iter()
            .map(|(column, _)| *column)
            .collect::<Vec<usize>>();
        let key_types = key_columns
            .iter()
            .map(|&key| before.field(key).data_type().clone());
        let types = output_types(window, &key_types.collect::<Vec<_>>(), &calls);
        let edges = match window {
            None => [].as_slice(),
            // The start is one of the keys.
            Some(window) if !window.windows.is_fixed() && !merges => &["window_end"],
            Some(_) => &["window_start", "window_end"],
        };
        let start = window.filter(|_| merges);
        let start = start.map(|window| window.windows.data_type());
        let types = start.into_iter().chain(types);
        let names = edges.iter().map(|name| name.to_string());
        let names = names
            .chain(keys.iter().map(|(_, name)| name.clone()))
            .chain(call_names);
        let fields = names
            .zip(types)
            .map(|(name, of)| Field::new(name, of, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let at_end = self.at_end > 0 && window.is_none();
        let emit = match self.session.settings.emit_every_row {
            _ if at_end => Emit::AtEnd,
            true => Emit::EveryRow,
            false => Emit::Changes,
        };
        let spec = AggregateSpec {
            window,
            keys: key_columns,
            calls,
            time_column,
            emit,
            refires,
            takes_back: input.updates,
            starts_empty: false,
            emits_before: false,
            retention_us: self
                .session
                .settings
                .state_ttl_us
                .filter(|_| window.is_none() && !at_end),
            schema: schema.clone(),
        };
        let updates = !spec.is_final();
        let spec = AggregateSpec {
            starts_empty: spec.is_total() && input.deletes && !at_end,
            ..spec
        };
        let detail = explain::aggregate(&spec, &before);
        let key = format!("aggregate {merges} {spec:?}");
        let spec = match (window, spec.time_column) {
            (Some(window), Some(time_column)) if merges => NodeSpec::Sessions {
                sessions: SessionSpec {
                    keys: spec.keys.clone(),
                    time_column,
                    reach_column: window.column,
                    windows: window.windows,
                },
                spec,
                input: before,
            },
            _ => NodeSpec::Aggregate {
                spec,
                input: before,
            },
        };
        let node = self.node("aggregate", detail, &[node], spec, schema.clone(), &key);

        let first_key = edges.len();
        let mut columns = Vec::new();
        let mut roles = Vec::new();
        for (key, role) in &places {
            let index = match (key, role) {
                (Some(key), _) => first_key + key,
                (None, Role::WindowStart(_)) => 0,
                (None, _) => edges.len() - 1,
            };
            columns.push(column(index, &schema));
            roles.push(match role {
                Role::Time => Role::Plain,
                role => *role,
            });
        }
        for call in 0..aggregate.aggr_expr.len() {
            columns.push(column(first_key + keys.len() + call, &schema));
            roles.push(Role::Plain);
        }
        // window_time among the keys is the event time of what comes out.
        for (expression, role) in aggregate.group_expr.iter().zip(&mut roles) {
            if window.is_some() && self.role(expression, &input, plan)? == Role::Time {
                *role = Role::Time;
            }
        }
        let time = window.map(|_| column(edges.len() - 1, &schema));
        // Where both edges are asked for either will do: the first one does.
        let of_window = places.iter().position(|(key, _)| key.is_none());
        let of_window = of_window.filter(|_| refires.is_some());
        let of_window = of_window.map(|place| columns[place].clone());
        let key = (0..keys.len()).map(|index| column(first_key + index, &schema));
        let key = of_window.into_iter().chain(key).collect::<Vec<Physical>>();
        if window.is_none() || updates {
            // Windows of rows that are replaced never close.
            roles.fill(Role::Plain);
        }
        Ok(Stream {
            node,
            columns,
            roles,
            time: time.filter(|_| !updates),
            updates,
            deletes: updates && window.is_none() && input.updates && !keys.is_empty(),
            key: updates.then_some(key),
        })
    }

    /// When windows are emitted beside at their end.
    fn refires(&self, window: Option<Role>) -> Result<Option<Refires>> {
        let settings = &self.session.settings;
        let refires = Refires {
            every_ns: settings.emit_every_ns,
            lateness_us: settings.allowed_lateness_us,
        };
        let Some(Role::WindowStart(windows) | Role::WindowEnd(windows)) = window else {
            return Ok(None);
        };
        if refires.every_ns.is_none() && refires.lateness_us == 0 {
            return Ok(None);
        }
        if !windows.is_fixed() {
            let kind = explain::windows(&windows);
            let error = format!("'emit' = 'every …' is not known for {kind}: their edges change");
            return Err(SqlError::new(error)
                .near("GROUP")
                .mend("leave the setting out, or take TUMBLE, HOP or CUMULATE"));
        }
        Ok(Some(refires))
    }
}

/// Whether windows differ in the unit of their edges at most.
fn is_same_window(one: Windows, other: Windows) -> bool {
    let unit = one.unit.max(other.unit);
    one.in_unit(unit) == other.in_unit(unit)
}

/// Whether the edges that a GROUP BY names are enough.
fn check_edges(places: &[(Option<usize>, Role)], merges: bool) -> Result<()> {
    let roles = || places.iter().map(|(_, role)| role);
    let has_end = roles().any(|role| matches!(role, Role::WindowEnd(_)));
    let start = roles().find_map(|role| match role {
        Role::WindowStart(windows) if !windows.is_named_by_start() => Some(windows),
        _ => None,
    });
    if let (Some(windows), false, false) = (start, has_end, merges) {
        let kind = explain::windows(windows);
        let error = format!("window_start alone does not say which window it is ({kind})");
        let mend = match windows.kind {
            WindowKind::Count => {
                "GROUP BY window_start, window_end, window_number, and the columns of PARTITION BY"
            }
            _ => "GROUP BY window_start, window_end",
        };
        return Err(SqlError::new(error).near("GROUP").mend(mend));
    }
    let counts = |role: &Role| match role {
        Role::WindowEnd(windows) => windows.kind == WindowKind::Count,
        _ => false,
    };
    let has_number = roles().any(|role| *role == Role::WindowNumber);
    if roles().any(counts) && !has_number {
        return Err(SqlError::new(
            "two count windows of a key can have the same edges, and would be taken for one",
        )
        .near("GROUP")
        .mend(
            "GROUP BY window_start, window_end, window_number, and the columns of PARTITION BY",
        ));
    }
    Ok(())
}
