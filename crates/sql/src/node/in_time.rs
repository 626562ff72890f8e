//! Lateness of an OVER whose values nobody reads.

use datafusion_expr::Expr;
use slackwater_engine::operator::drop_late::Late;

use super::{Role, Stream, Translator};
use crate::error::{Result, SqlError};
use crate::expression::column_index;
use crate::prune::InTimeNode;

impl Translator<'_> {
    pub(super) fn in_time(&mut self, node: &InTimeNode) -> Result<Stream> {
        let plan = &node.input;
        let mut stream = self.translate(plan)?;
        let index = plan.schema().index_of_column(&node.time)?;
        // By another order no row is late.
        let time = Expr::Column(node.time.clone());
        if stream.updates || self.role(&time, &stream, plan)? != Role::Time {
            return Ok(stream);
        }
        if column_index(&stream.columns[index]).is_none() {
            stream = self.settle(stream, plan)?;
        }
        let place = column_index(&stream.columns[index]);
        let place = place
            .ok_or_else(|| SqlError::new(format!("'{}' is not computed yet", node.time.name)))?;
        stream.node = self.drop_late(stream.node, place, Late::At);
        Ok(stream)
    }
}
