//! Operators with a state for each key that a build adds.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::{Cast, Expr, LogicalPlan, Operator as BinaryOperator};
use datafusion_physical_expr::expressions::{BinaryExpr, lit};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::custom::{Custom, CustomInput, CustomSpec};
use slackwater_engine::operator::drop_late::Late;
use sqlparser::tokenizer::Span;

use super::facts::{
    Behind, Bound, Changelog, ChangelogMode, Cost, Emission, Emits, Facts, Growth, NeedsBefore,
    Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError, to_span};
use crate::explain::names;
use crate::expression::{Physical, column};
use crate::functions::operator::Kind;
use crate::operators::{self, OperatorInput, OperatorNode};
use crate::state::{self, StateIdentity};

/// The column with the number of the output, for operators with several.
pub(super) const OUTPUT: &str = "output";

/// Operators with a state for each key.
pub const TRANSLATION: Translation = Translation {
    needs: |plan| Needs {
        late_at_watermark: of(plan).is_some_and(|node| node.inputs[0].time.is_some()),
        ..Needs::NOTHING
    },
    translate: |translator, plan| match of(plan) {
        Some(node) if node.is_keyed() => translator.custom(node).map(Some),
        _ => Ok(None),
    },
};

/// The call of an operator.
pub(super) fn of(plan: &LogicalPlan) -> Option<&OperatorNode> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

/// An operator with a state for each key.
pub struct CustomNode {
    /// What it does.
    pub spec: CustomSpec,
    /// What its state was computed from.
    identity: StateIdentity,
    /// Whether it forgets its keys.
    is_bounded: bool,
    /// For each input, whether its rows are updated or retracted.
    changing: Vec<bool>,
}

impl CustomNode {
    fn is_ordered(&self) -> bool {
        self.spec.inputs[0].time_column.is_some()
    }
}

impl Node for CustomNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, input: usize) -> Exchange {
        by_key(&self.spec.inputs[input].keys)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::Custom,
            identity: self.identity.clone(),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog {
            needs_before: NeedsBefore::ByInput(self.changing.clone()),
            emits: match self.spec.emits_updates {
                true => Emits::Changes(ChangelogMode {
                    deletes: true,
                    ..ChangelogMode::default()
                }),
                false => Emits::Appends,
            },
        }
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        let first = &self.spec.inputs[0];
        if self.is_bounded || first.keys.is_empty() {
            return Vec::new();
        }
        vec![Growth {
            input: None,
            keeps: format!(
                "{} keeps a state of every key ({}) until it forgets it",
                self.spec.name,
                names(&first.keys, &first.schema)
            ),
            bound: Bound::Other(
                "'state_ttl' does not apply to it; an operator that forgets its keys says so in its \
                declaration: 'forgets' = 'true', or forgets() in Rust",
            ),
        }]
    }

    fn facts(&self) -> Facts<'_> {
        let is_ordered = self.is_ordered();
        Facts {
            // With ORDER BY the node sorts its rows itself.
            order: match is_ordered {
                true => Order::Unseen,
                false => Order::Seen,
            },
            sorted: Sorted::No,
            orders_by_origin: is_ordered,
            may_be_dealt: false,
            first_input: None,
            behind: match is_ordered {
                true => Behind::ByWindow,
                false => Behind::AsInput,
            },
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(10_000.0, 300.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(Custom::new(self.spec.clone())?))
    }
}

impl Translator<'_> {
    fn custom(&mut self, node: &OperatorNode) -> Result<Stream> {
        let operator = &node.operator.0;
        let Kind::Keyed { factory, saved, .. } = operator.kind() else {
            return Err(SqlError::new(format!(
                "operator '{}' has no state",
                node.name
            )));
        };
        let (mut inputs, mut nodes, mut behind_us) = (Vec::new(), Vec::new(), 0);
        let mut changing = Vec::new();
        for input in &node.inputs {
            let stream = self.translate(&input.plan)?;
            changing.push(stream.updates);
            let (of_input, from) = self.custom_input(node, input, stream)?;
            behind_us = behind_us.max(self.behind_us(from));
            inputs.push(of_input);
            nodes.push(from);
        }
        let mut fields = node.schema_fields();
        let shown = fields.len();
        if node.output.is_some() {
            fields.push(Arc::new(Field::new(OUTPUT, DataType::Int32, true)));
        }
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let spec = CustomSpec {
            name: node.name.clone(),
            inputs,
            behind_us,
            schema: schema.clone(),
            emits_updates: operator.makes_updates(),
            factory: Arc::clone(factory),
        };
        let detail = detail(node, &spec);
        let version = operator.version_number();
        let stored = operators::shown(&node.given.0, state::literal);
        let custom = CustomNode {
            identity: identity::custom(&spec, version, &stored, saved),
            is_bounded: operator.is_bounded(),
            changing,
            spec,
        };
        let key = format!("operator {} {version} {:?}", node.arguments, custom.spec);
        let made = self.operator("operator", detail, &nodes, custom, &key);
        let columns = (0..shown).map(|index| column(index, &schema));
        let keys = node.inputs[0].keys.len();
        let updates = operator.makes_updates();
        let has_time = node.inputs[0].time.is_some() && !updates;
        let role = |index: usize| match has_time && index == keys {
            true => Role::Time,
            false => Role::Plain,
        };
        let stream = Stream {
            node: made,
            columns: columns.collect(),
            roles: (0..shown).map(role).collect(),
            time: has_time.then(|| column(keys, &schema)),
            updates,
            key: None,
            deletes: updates,
            unique: Vec::new(),
        };
        self.output_of(node, stream)
    }

    /// The rows of the output that a call reads.
    pub(super) fn output_of(&mut self, node: &OperatorNode, stream: Stream) -> Result<Stream> {
        let Some(output) = node.output else {
            return Ok(stream);
        };
        let schema = self.schema(stream.node);
        let number = column(schema.fields().len() - 1, &schema);
        let wanted = lit(ScalarValue::Int32(Some(output as i32)));
        let is_wanted = BinaryExpr::new(number, BinaryOperator::Eq, wanted);
        self.filter_by(stream, Arc::new(is_wanted))
    }

    /// An input of a call: its columns are the key, the event time, and what the operator asks for.
    fn custom_input(
        &mut self,
        node: &OperatorNode,
        input: &OperatorInput,
        stream: Stream,
    ) -> Result<(CustomInput, usize)> {
        let plan = &input.plan;
        if stream.updates && !node.operator.0.accepts_updates() {
            return Err(never_change(&node.name));
        }
        if let (Some(time), true) = (&input.time, stream.updates) {
            return Err(no_order(&node.name, time));
        }
        if let Some(time) = &input.time {
            let role = self.role(&Expr::Column(time.clone()), &stream, plan)?;
            if role != Role::Time {
                return Err(not_event_time(time));
            }
        }
        let (mut expressions, mut names) = (Vec::<Physical>::new(), Vec::new());
        for column in input.keys.iter().chain(&input.time) {
            expressions.push(self.bind(&Expr::Column(column.clone()), &stream, plan)?);
            names.push(column.name.clone());
        }
        for (column, data_type) in &input.wanted {
            expressions.push(self.bind(&cast(column, data_type, plan)?, &stream, plan)?);
            names.push(column.name.clone());
        }
        let keys = (0..input.keys.len()).collect::<Vec<usize>>();
        let mut from = self.materialise(&stream, &expressions, &names, None)?;
        let time_column = input.time.as_ref().map(|_| keys.len());
        if let Some(time_column) = time_column {
            from = self.drop_late(from, time_column, Late::At);
        }
        let of_input = CustomInput {
            keys,
            time_column,
            schema: self.schema(from),
        };
        Ok((of_input, from))
    }
}

/// A column as values of a type.
pub(super) fn cast(name: &Column, data_type: &DataType, plan: &LogicalPlan) -> Result<Expr> {
    let index = plan.schema().index_of_column(name)?;
    let column = Expr::Column(name.clone());
    Ok(match plan.schema().field(index).data_type() == data_type {
        true => column,
        false => Expr::Cast(Cast::new(Box::new(column), data_type.clone())),
    })
}

/// The error for an input that updates or retracts rows.
pub(super) fn never_change(name: &str) -> SqlError {
    let error = format!(
        "{} needs rows that never change, and these are updated or retracted",
        name
    );
    SqlError::new(error).near(name).hint(
        "apply it first, then aggregate or join; or aggregate in windows, whose rows never change; or \
         declare it with 'updates' = 'true', or takes_updates() in Rust",
    )
}

/// The error for ORDER BY over rows that are updated: a row may be taken back at any time, also long after
/// the watermark has passed its event time.
fn no_order(name: &str, time: &Column) -> SqlError {
    let place = time.spans.first().map_or(Span::empty(), to_span);
    SqlError::new(format!(
        "{} can't order rows that are updated or retracted: a row may be taken back long after its time",
        name
    ))
    .at(place)
    .hint("leave out ORDER BY: then it gets each change as it comes")
}

/// The error for a column of ORDER BY that is not an event time.
fn not_event_time(time: &Column) -> SqlError {
    let name = &time.name;
    let place = time.spans.first().map_or(Span::empty(), to_span);
    SqlError::new(format!(
        "ORDER BY needs the event time, and '{name}' is not one"
    ))
    .at(place)
    .hint(format!(
        "declare it for the table: WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND"
    ))
}

/// The node's description in EXPLAIN.
fn detail(node: &OperatorNode, spec: &CustomSpec) -> String {
    let first = &spec.inputs[0];
    let mut detail = format!("{}({})", node.name, node.arguments);
    if !first.keys.is_empty() {
        detail.push_str(&format!(" by {}", names(&first.keys, &first.schema)));
    }
    if let Some(time) = first.time_column {
        let time = first.schema.field(time).name();
        detail.push_str(&format!(" in the order of {time}"));
    }
    detail
}
