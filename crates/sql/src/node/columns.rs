//! The columns that an operator reads, without duplicates.

use datafusion_expr::LogicalPlan;

use super::stream::Stream;
use super::translator::Translator;
use crate::error::Result;
use crate::expression::Physical;

/// Expressions over the node of a stream, with their names.
#[derive(Default)]
pub struct Columns {
    expressions: Vec<Physical>,
    names: Vec<String>,
}

impl Columns {
    /// The columns of a plan and its stream.
    pub fn of(stream: &Stream, plan: &LogicalPlan) -> Columns {
        let names = plan.schema().fields().iter();
        Columns::named(stream, names.map(|field| field.name().clone()).collect())
    }

    /// The columns of a stream under these names.
    pub fn named(stream: &Stream, names: Vec<String>) -> Columns {
        Columns {
            expressions: stream.columns.clone(),
            names,
        }
    }

    /// The index of an expression among the columns; it is added as `name` if it is missing.
    pub fn place(&mut self, expression: &Physical, name: impl Into<String>) -> usize {
        let known = self.expressions.iter().position(|own| own == expression);
        known.unwrap_or_else(|| {
            self.expressions.push(expression.clone());
            self.names.push(name.into());
            self.expressions.len() - 1
        })
    }

    /// The indices of the keys of a join.
    pub fn place_keys<'k>(&mut self, keys: impl Iterator<Item = &'k Physical>) -> Vec<usize> {
        let keys = keys.enumerate();
        keys.map(|(number, key)| self.place(key, format!("key{number}")))
            .collect()
    }

    /// The node that computes the columns.
    pub fn node(&self, translator: &mut Translator<'_>, stream: &Stream) -> Result<usize> {
        translator.materialise(stream, &self.expressions, &self.names, None)
    }
}
