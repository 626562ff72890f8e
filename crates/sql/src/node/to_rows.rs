//! A changelog as plain rows: the option `'changelog' = 'op'` of a table that is written.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::changelog::to_rows::ToRows;

use super::facts::{
    Behind, Changelog, Cost, Emission, Emits, Facts, Growth, NeedsBefore, Node, Order, Sorted,
    State,
};
use super::translator::Translator;

/// Turns a changelog into plain rows.
pub struct ToRowsNode {
    /// The column with the kind of each change, followed by the columns of the input.
    pub schema: SchemaRef,
}

impl Node for ToRowsNode {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        Exchange::Forward
    }

    fn state(&self) -> Option<State> {
        None
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog {
            needs_before: NeedsBefore::Always,
            emits: Emits::Appends,
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
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(2_000.0, 20.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateless(ToRows::new(self.schema.clone())))
    }
}

impl Translator<'_> {
    /// Adds a node whose column `name` contains the kind of each change.
    pub(super) fn changes_as_rows(&mut self, node: usize, name: &str) -> usize {
        let before = self.schema(node);
        let own = Arc::new(Field::new(name, DataType::Utf8View, true));
        let fields = [own].into_iter().chain(before.fields().iter().cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let detail = format!("kind of each change in {name}");
        let key = format!("changelog {name}");
        self.operator("changelog", detail, &[node], ToRowsNode { schema }, &key)
    }
}
