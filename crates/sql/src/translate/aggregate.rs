//! GROUP BY: windowed when a window column is among the keys, running otherwise.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use datafusion_expr::Expr;
use datafusion_expr::logical_plan::Aggregate;
use slackwater_control::query::{Exchange, NodeKind};
use slackwater_engine::operator::aggregate::{
    AggregateCall, AggregateSpec, Emit, WindowKey, output_types,
};

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
        let input = self.translate(plan)?;
        let mut inputs = Inputs::default();
        let mut window: Option<(Role, Physical, String)> = None;
        let mut keys = Vec::new();
        // What each group expression is in the output: an edge of the window, or a key.
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
                Role::WindowStart(windows) | Role::WindowEnd(windows) => {
                    match window {
                        Some((Role::WindowStart(other) | Role::WindowEnd(other), ..))
                            if other != windows =>
                        {
                            return Err(SqlError::new("GROUP BY names two different windows"));
                        }
                        _ => {}
                    }
                    // Either edge names the window, so only one is carried along; the end is
                    // what it is closed by.
                    if window.is_none() || matches!(role, Role::WindowEnd(_)) {
                        window = Some((role, bound, name));
                    }
                    places.push(Err(role));
                }
                Role::Plain | Role::Time => {
                    keys.push((inputs.add(bound, name.clone()), name));
                    places.push(Ok(keys.len() - 1));
                }
            }
        }
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
            Some(time) if orders => Some(inputs.add(time.clone(), "event_time".to_string())),
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
            Role::Plain | Role::Time => unreachable!("only window columns get here"),
        });
        let key_columns = keys
            .iter()
            .map(|(column, _)| *column)
            .collect::<Vec<usize>>();
        let key_types = key_columns
            .iter()
            .map(|&key| before.field(key).data_type().clone());
        let types = output_types(window, &key_types.collect::<Vec<_>>(), &calls);
        let edges = if window.is_some() {
            ["window_start", "window_end"].as_slice()
        } else {
            &[]
        };
        let names = edges.iter().map(|name| name.to_string());
        let names = names
            .chain(keys.iter().map(|(_, name)| name.clone()))
            .chain(call_names);
        let fields = names
            .zip(types)
            .map(|(name, of)| Field::new(name, of, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let emit = if self.session.settings.emit_every_row {
            Emit::EveryRow
        } else {
            Emit::Changes
        };
        let spec = AggregateSpec {
            window,
            keys: key_columns.clone(),
            calls,
            time_column,
            emit,
            takes_back: input.updates,
            emits_before: false,
            retention_us: self
                .session
                .settings
                .state_ttl_us
                .filter(|_| window.is_none()),
            schema: schema.clone(),
        };
        let exchange = if key_columns.is_empty() {
            Exchange::Single
        } else {
            Exchange::Key(key_columns)
        };
        let detail = explain::aggregate(&spec, &before);
        let key = format!("aggregate {spec:?}");
        let edge = self.edge(node, exchange);
        let spec = NodeSpec::Aggregate {
            spec,
            input: before,
        };
        let node = self.node(
            "aggregate",
            detail,
            NodeKind::Stateful,
            vec![edge],
            spec,
            schema.clone(),
            &key,
        );

        let first_key = edges.len();
        let mut columns = Vec::new();
        let mut roles = Vec::new();
        for place in places {
            let (index, role) = match place {
                Ok(key) => (first_key + key, Role::Plain),
                Err(role @ Role::WindowStart(_)) => (0, role),
                Err(role) => (1, role),
            };
            columns.push(column(index, &schema));
            roles.push(role);
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
        let time = window.map(|_| column(1, &schema));
        let key = (0..keys.len()).map(|index| column(first_key + index, &schema));
        let key = key.collect::<Vec<Physical>>();
        Ok(Stream {
            node,
            columns,
            roles,
            time,
            updates: window.is_none(),
            deletes: window.is_none() && input.updates && !keys.is_empty(),
            key: window.is_none().then_some(key),
        })
    }
}
