//! CREATE MATERIALIZED VIEW: the rows of a query, kept to be read.

use std::sync::Arc;

use arrow_schema::{DataType, SchemaRef};
use datafusion_expr::LogicalPlan;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::changelog::view::{
    View, ViewCuts, ViewRetention, ViewSink, ViewSpec,
};
use slackwater_engine::time::EventTime;
use sqlparser::tokenizer::Span;

use super::facts::{
    Behind, Bound, Changelog, Cost, Emission, Emits, Facts, Growth, NeedsBefore, Node, Order,
    Sorted, State, by_key,
};
use super::identity;
use super::saved::Saved;
use super::spec::SinkSpec;
use super::stream::{Role, Stream};
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::explain::{duration, names};
use crate::expression::column;
use crate::table::{Table, TableColumn};

/// What a statement CREATE MATERIALIZED VIEW asks for, besides its query.
pub struct Materialized {
    /// The name of the view.
    pub name: String,
    /// The place of the name.
    pub span: Span,
    /// The columns of the PRIMARY KEY; `None` if the query's own key is used.
    pub primary_key: Option<Vec<usize>>,
    /// How long rows are kept, in microseconds, and the place of the option.
    pub retention: Option<(EventTime, Span)>,
    /// The column with the time that counts, and the place of the option; `None` for the end of the window,
    /// or the event time.
    pub retention_column: Option<(usize, Span)>,
}

/// A view that is kept, as its readers see it.
#[derive(Clone)]
pub struct MaterializedView {
    /// The name.
    pub name: String,
    /// The node that keeps the rows.
    pub node: usize,
    /// The columns.
    pub schema: SchemaRef,
    /// The columns by which a row replaces another; `None` if the view keeps every row.
    pub key: Option<Vec<usize>>,
    /// The rows.
    pub cuts: ViewCuts,
}

/// Keeps the rows of a view.
pub struct MaterializedViewNode {
    name: String,
    /// What is kept.
    spec: ViewSpec,
    /// Where the rows are published.
    cuts: ViewCuts,
    /// Whether the query replaces its rows, so that another node has as many of them.
    is_replaced: bool,
    /// Whether the view could discard old rows.
    may_expire: bool,
}

impl MaterializedViewNode {
    /// The columns that say where a row is kept.
    fn places(&self) -> Vec<usize> {
        let all = || (0..self.spec.schema.fields().len()).collect();
        self.spec.key.clone().unwrap_or_else(all)
    }
}

impl Node for MaterializedViewNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.places())
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::MaterializedView,
            identity: identity::materialized_view(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, wants_before: bool) -> Changelog {
        // Without a key, a row is found by all of its values.
        Changelog {
            needs_before: NeedsBefore::ByInput(vec![wants_before || self.spec.key.is_none()]),
            emits: match self.spec.retention {
                None => Emits::AsInput,
                Some(_) => Emits::Filtered,
            },
        }
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        // What the query replaces, it keeps itself, and says so.
        if self.spec.retention.is_some() || self.is_replaced {
            return Vec::new();
        }
        let what = match &self.spec.key {
            None => "every row".to_string(),
            Some(key) => format!("every {}", names(key, &self.spec.schema)),
        };
        vec![Growth {
            input: None,
            keeps: format!("materialized view '{}' keeps {what} forever", self.name),
            bound: Bound::Other(match self.may_expire {
                true => "WITH ('retention' = '1 d') discards rows that are older than that",
                false => {
                    "aggregate with GROUP BY, or select the end of the window or the event time, by \
                    which WITH ('retention' = '1 d') can discard old rows"
                }
            }),
        }]
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            // The last row of a key remains.
            order: match self.spec.key {
                Some(_) => Order::Seen,
                None => Order::Unseen,
            },
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::AsInput,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(5_000.0, 150.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let view = View::new(self.spec.clone(), self.cuts.clone())?;
        Ok(Operator::stateful(view))
    }
}

impl Translator<'_> {
    /// Adds a statement CREATE MATERIALIZED VIEW with the query `plan`.
    pub fn materialized_view(
        &mut self,
        plan: &LogicalPlan,
        view: &Materialized,
        latency_target_ns: Option<u64>,
    ) -> Result<MaterializedView> {
        let (stream, names) = self.result(plan)?;
        let retention = retention(&stream, plan, view)?;
        let may_expire = stream.roles.iter().any(is_time);
        let mut node = self.materialise(&stream, &stream.columns, &names, None)?;
        let own = stream.identified_by();
        let key = view.primary_key.clone().or_else(|| own.clone());
        let is_own = match (&key, &own) {
            (Some(key), Some(own)) => {
                key.len() == own.len() && key.iter().all(|column| own.contains(column))
            }
            _ => false,
        };
        if let Some(key) = key.as_ref().filter(|_| stream.updates && !is_own) {
            node = self.by_primary_key(node, key);
        }
        let spec = ViewSpec {
            schema: self.schema(node),
            key,
            retention,
        };
        let detail = detail(view, &spec);
        let kept = MaterializedView {
            name: view.name.clone(),
            node: self.graph.nodes.len(),
            schema: spec.schema.clone(),
            key: spec.key.clone(),
            cuts: self.cuts.add(),
        };
        let operator = MaterializedViewNode {
            name: view.name.clone(),
            spec,
            cuts: kept.cuts.clone(),
            is_replaced: stream.updates,
            may_expire,
        };
        // The name is part of the key: two views with the same rows are two views.
        let known = format!("view {}", view.name);
        let node = self.operator("view", detail, &[node], operator, &known);
        let table = table_of(view, &kept);
        let spec = SinkSpec {
            connector: Arc::new(ViewSink),
            schema: kept.schema.clone(),
            latency_target_ns,
            changes: Stream {
                node,
                columns: (0..names.len())
                    .map(|at| column(at, &kept.schema))
                    .collect(),
                ..stream
            }
            .changes(),
            order: Vec::new(),
            wants_before: false,
            gets_before: false,
            table: Some(Arc::new(table)),
        };
        self.add_sink(spec, node, Exchange::Forward);
        Ok(kept)
    }
}

fn is_time(role: &Role) -> bool {
    matches!(role, Role::WindowEnd(_) | Role::Time)
}

/// How long the rows of a view are kept.
fn retention(
    stream: &Stream,
    plan: &LogicalPlan,
    view: &Materialized,
) -> Result<Option<ViewRetention>> {
    let Some((us, span)) = view.retention else {
        return match view.retention_column {
            None => Ok(None),
            Some((_, span)) => Err(SqlError::new("'retention_column' needs 'retention'")
                .at(span)
                .hint("for example WITH ('retention' = '1 d', 'retention_column' = 'ts')")),
        };
    };
    let fields = plan.schema().fields();
    let of_window = |role: &Role| matches!(role, Role::WindowEnd(_));
    let roles = stream.roles.iter();
    let by_role = || {
        let end = roles.clone().position(of_window);
        end.or_else(|| roles.clone().position(is_time))
    };
    let column = match view.retention_column {
        Some((column, span)) => match fields[column].data_type() {
            DataType::Timestamp(..) => column,
            _ => {
                let name = fields[column].name();
                return Err(SqlError::new(format!("column '{name}' is not a TIMESTAMP"))
                    .at(span)
                    .hint("'retention_column' needs a column of type TIMESTAMP"));
            }
        },
        None => by_role().ok_or_else(|| {
            let times = fields.iter();
            let mut times =
                times.filter(|field| matches!(field.data_type(), DataType::Timestamp(..)));
            let hint = match times.next() {
                Some(time) => format!(
                    "name the column: 'retention_column' = '{}'",
                    time.name()
                ),
                None => "select window_end, the event time, or another TIMESTAMP".to_string(),
            };
            SqlError::new(format!(
                "'retention' needs a time, and no column of view '{}' is the end of a window or the event \
                time",
                view.name
            ))
            .at(span)
            .hint(hint)
        })?,
    };
    Ok(Some(ViewRetention { column, us }))
}

/// The description of the node in EXPLAIN.
fn detail(view: &Materialized, spec: &ViewSpec) -> String {
    let mut detail = match &spec.key {
        None => format!("{}: all rows", view.name),
        Some(key) if key.is_empty() => format!("{}: one row", view.name),
        Some(key) => format!("{} by {}", view.name, names(key, &spec.schema)),
    };
    if let Some(ViewRetention { column, us }) = spec.retention {
        detail.push_str(&format!(
            ", for {} after {}",
            duration(i128::from(us) * 1000),
            names(&[column], &spec.schema)
        ));
    }
    detail
}

/// The view as a table that is written: reports and targets name it.
fn table_of(view: &Materialized, kept: &MaterializedView) -> Table {
    let fields = kept.schema.fields().len();
    Table {
        name: view.name.clone(),
        physical: kept.schema.clone(),
        metadata: Default::default(),
        schema: kept.schema.clone(),
        columns: (0..fields).map(TableColumn::Physical).collect(),
        event_time: None,
        primary_key: kept.key.clone().unwrap_or_default(),
        not_null: Default::default(),
        comment: None,
        column_comments: Default::default(),
        options: Default::default(),
        option_places: Default::default(),
        span: view.span,
    }
}
