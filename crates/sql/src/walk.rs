//! Walks over the syntax tree, compiled once for all who walk.
//!
//! `Visit::visit` of the parser is generic over its visitor: each visitor compiles a walk over every type of
//! the tree again, some 400 functions. Here one visitor each, for trees that are only read and for those that are
//! changed, calls whoever looks through a `dyn` reference. `clippy.toml` forbids calls of the parser's.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Query, Select, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::error::{Result, SqlError};

/// What a walk does next: an error ends it.
pub type Next = ControlFlow<SqlError>;

/// Goes on with the walk.
pub const ON: Next = ControlFlow::Continue(());

/// Who looks at the nodes of a tree; what it does not ask for it does not see.
pub trait Look {
    /// Before the parts of a query, subqueries too.
    fn enter_query(&mut self, _: &Query) -> Next {
        ON
    }

    /// After the parts of a query.
    fn leave_query(&mut self, _: &Query) -> Next {
        ON
    }

    /// Before the parts of a SELECT.
    fn select(&mut self, _: &Select) -> Next {
        ON
    }

    /// Before the parts of what stands in FROM.
    fn table_factor(&mut self, _: &TableFactor) -> Next {
        ON
    }

    /// Before the parts of an expression.
    fn expression(&mut self, _: &Expr) -> Next {
        ON
    }

    /// A literal.
    fn value(&mut self, _: &ValueWithSpan) -> Next {
        ON
    }
}

/// Who changes the nodes of a tree, each before its parts are visited.
pub trait Change {
    /// A query, subqueries too.
    fn query(&mut self, _: &mut Query) -> Next {
        ON
    }

    /// A SELECT.
    fn select(&mut self, _: &mut Select) -> Next {
        ON
    }

    /// What stands in FROM.
    fn table_factor(&mut self, _: &mut TableFactor) -> Next {
        ON
    }
}

/// Shows a tree to somebody, node by node.
pub fn look(tree: &impl Visit, who: &mut dyn Look) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the one place that calls it")]
    result(tree.visit(&mut Looking(who)))
}

/// Lets somebody change a tree, node by node.
pub fn change(tree: &mut impl VisitMut, who: &mut dyn Change) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the one place that calls it")]
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
