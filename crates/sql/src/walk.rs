//! Visits the syntax tree, compiled once for all visitors.
//!
//! The parser's `Visit::visit` is generic over its visitor: each visitor compiles a walk over every type of
//! the tree again, some 400 functions. Here one visitor for reading and one for changing call a `dyn`
//! reference. `clippy.toml` forbids calling the parser's functions elsewhere.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Query, Select, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::error::{Result, SqlError};

/// What a walk does next: an error ends it.
pub type Next = ControlFlow<SqlError>;

/// Continues the walk.
pub const ON: Next = ControlFlow::Continue(());

/// A visitor that reads a tree. It implements only the methods for the nodes that it needs.
pub trait Look {
    /// Called before the parts of a query, also of a subquery.
    fn enter_query(&mut self, _: &Query) -> Next {
        ON
    }

    /// Called after the parts of a query.
    fn leave_query(&mut self, _: &Query) -> Next {
        ON
    }

    /// Called before the parts of a SELECT.
    fn select(&mut self, _: &Select) -> Next {
        ON
    }

    /// Called before the parts of a table in FROM.
    fn table_factor(&mut self, _: &TableFactor) -> Next {
        ON
    }

    /// Called before the parts of an expression.
    fn expression(&mut self, _: &Expr) -> Next {
        ON
    }

    /// Called for a literal.
    fn value(&mut self, _: &ValueWithSpan) -> Next {
        ON
    }
}

/// A visitor that changes a tree. Each method is called before the parts of the node.
pub trait Change {
    /// Changes a query or a subquery.
    fn query(&mut self, _: &mut Query) -> Next {
        ON
    }

    /// Changes a SELECT.
    fn select(&mut self, _: &mut Select) -> Next {
        ON
    }

    /// Changes a table in FROM.
    fn table_factor(&mut self, _: &mut TableFactor) -> Next {
        ON
    }
}

/// Visits a tree, node by node.
pub fn look(tree: &impl Visit, who: &mut dyn Look) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the only place that calls it")]
    result(tree.visit(&mut Looking(who)))
}

/// Changes a tree, node by node.
pub fn change(tree: &mut impl VisitMut, who: &mut dyn Change) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the only place that calls it")]
    result(tree.visit(&mut Changing(who)))
}

fn result(flow: Next) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Looking<'a>(&'a mut dyn Look);

impl Visitor for Looking<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> Next {
        self.0.enter_query(query)
    }

    fn post_visit_query(&mut self, query: &Query) -> Next {
        self.0.leave_query(query)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Next {
        self.0.select(select)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Next {
        self.0.table_factor(factor)
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> Next {
        self.0.expression(expression)
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> Next {
        self.0.value(value)
    }
}

struct Changing<'a>(&'a mut dyn Change);

impl VisitorMut for Changing<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> Next {
        self.0.query(query)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Next {
        self.0.select(select)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Next {
        self.0.table_factor(factor)
    }
}
