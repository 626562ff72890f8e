//! Operators without state that a build adds.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::custom_rows::{CustomRows, CustomRowsSpec};

use super::columns::Columns;
use super::custom::{OUTPUT, cast, never_change, of};
use super::facts::{
    Behind, Changelog, Cost, Emission, Emits, Facts, Growth, NeedsBefore, Node, Order, Sorted,
    State,
};
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError};
use crate::expression::column;
use crate::functions::operator::Kind;
use crate::operators::{OperatorNode, kept};
use crate::settings::Balancer;

/// Operators without state.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate: |translator, plan| match of(plan) {
        Some(node) if !node.is_keyed() => translator.custom_rows(node).map(Some),
        _ => Ok(None),
    },
};

/// An operator without state.
pub struct CustomRowsNode {
    /// What it does.
    pub spec: CustomRowsSpec,
    /// The columns of the input.
    pub input: SchemaRef,
    /// Whether rows are updated or retracted.
    pub changes: bool,
    /// How rows are sent to the operator's instances.
    pub exchange: Exchange,
}

impl Node for CustomRowsNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        self.exchange.clone()
    }

    fn state(&self) -> Option<State> {
        None
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog {
            // An updated row may no longer be kept, or become other rows.
            needs_before: NeedsBefore::Always,
            emits: match self.changes {
                true => Emits::Filtered,
                false => Emits::Appends,
            },
        }
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::AsInput,
            rejects_input_rows: true,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(2_000.0, 5.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let rows = CustomRows::new(self.spec.clone(), &self.input);
        Ok(Operator::stateless(rows))
    }
}

impl Translator<'_> {
    /// How rows are sent to an operator: dealt among its instances, if it asks for that and their order need
    /// not be kept.
    fn dealing(&self, operator: &crate::functions::operator::Operator, updates: bool) -> Exchange {
        let settings = &self.session.settings;
        // An update must not overtake the row that it updates.
        match settings.balancer {
            _ if !operator.is_dealt() || settings.keep_order || updates => Exchange::Forward,
            Balancer::RoundRobin => Exchange::RoundRobin,
            // Also where each instance before the operator could have one of its own: all of a request's
            // blocks come from one of them.
            Balancer::Demand | Balancer::Auto => Exchange::Demand,
        }
    }

    fn custom_rows(&mut self, node: &OperatorNode) -> Result<Stream> {
        let operator = &node.operator.0;
        let Kind::Rows(function) = operator.kind() else {
            return Err(SqlError::new(format!(
                "operator '{}' has a state",
                node.name
            )));
        };
        let input = &node.inputs[0];
        let plan = &input.plan;
        let stream = self.translate(plan)?;
        if stream.updates && !operator.accepts_updates() {
            return Err(never_change(&node.name));
        }
        let mut columns = Columns::of(&stream, plan);
        let time = stream.time.as_ref().filter(|_| self.needs.event_time);
        let time = time.map(|time| columns.place(time, "event_time"));
        let mut gets = Vec::new();
        for (wanted, data_type) in &input.wanted {
            let bound = self.bind(&cast(wanted, data_type, plan)?, &stream, plan)?;
            gets.push(columns.place(&bound, wanted.name.clone()));
        }
        let from = columns.node(self, &stream)?;
        let before = self.schema(from);
        // The columns of the call come first; those that only other operators need follow.
        let shown = kept(operator, plan.schema());
        let mut keeps = shown.clone();
        let is_all = shown.len() == plan.schema().fields().len() && operator.own().is_empty();
        match is_all && node.output.is_none() {
            // The rows stay as they are.
            true => keeps = (0..before.fields().len()).collect(),
            false => keeps.extend(time.filter(|time| !shown.contains(time))),
        }
        let mut fields = keeps
            .iter()
            .map(|&index| Arc::clone(&before.fields()[index]))
            .collect::<Vec<Arc<Field>>>();
        let own_from = fields.len();
        for (name, data_type) in operator.own() {
            fields.push(Arc::new(Field::new(name, data_type.clone(), true)));
        }
        let own = own_from..fields.len();
        if node.output.is_some() {
            fields.push(Arc::new(Field::new(OUTPUT, DataType::Int32, true)));
        }
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let spec = CustomRowsSpec {
            name: node.name.clone(),
            gets,
            keeps: keeps.clone(),
            outputs: operator.output_names().len().max(1),
            together: operator.most_together(),
            schema: schema.clone(),
            function: Arc::clone(function),
        };
        let detail = format!("{}({})", node.name, node.arguments);
        let version = operator.version_number();
        let key = format!(
            "operator {} {version} {} {spec:?}",
            node.arguments, stream.updates
        );
        let custom = CustomRowsNode {
            spec,
            input: before,
            changes: stream.updates,
            exchange: self.dealing(operator, stream.updates),
        };
        let made = self.operator("operator", detail, &[from], custom, &key);
        let place = |index: usize| keeps.iter().position(|&kept| kept == index);
        let of_shown = shown.iter().filter_map(|&index| place(index));
        let columns = of_shown.chain(own.clone());
        let columns = columns.map(|index| column(index, &schema));
        let roles = shown.iter().map(|&index| stream.roles[index]);
        let roles = roles.chain(own.map(|_| Role::Plain)).collect();
        let time = time.or_else(|| {
            let time = stream.time.as_ref()?;
            stream.columns.iter().position(|column| column == time)
        });
        let time = time.and_then(place);
        let output = Stream {
            node: made,
            columns: columns.collect(),
            roles,
            time: time.map(|index| column(index, &schema)),
            updates: stream.updates,
            key: None,
            deletes: stream.updates,
            unique: Vec::new(),
        };
        self.output_of(node, output)
    }
}
