//! Joins of a stream with the versions of a table that changes: `FOR SYSTEM_TIME AS OF` an event time.

use arrow_schema::SchemaRef;
use datafusion_expr::logical_plan::Join;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::operator::table_join::{STREAM, TABLE};
use slackwater_engine::operator::temporal_join::{TemporalJoin, TemporalJoinSpec};

use super::beside_table::{Sides, Versions, detail};
use super::facts::{
    Behind, Bound, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State,
};
use super::identity;
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::Physical;

/// A join of a stream with the versions of a table that changes.
pub struct TemporalJoinNode {
    /// The keys, times and condition of the join.
    pub spec: TemporalJoinSpec,
}

impl Node for TemporalJoinNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.join.schema
    }

    fn exchange(&self, input: usize) -> Exchange {
        match input == STREAM {
            true => Exchange::Forward,
            false => Exchange::Broadcast,
        }
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::TemporalJoin,
            identity: identity::temporal_join(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, detail: &str) -> Vec<Growth> {
        vec![Growth {
            // Rows of the stream wait for the watermark; only the versions are kept.
            input: Some(TABLE),
            keeps: format!(
                "FOR SYSTEM_TIME AS OF keeps the last version of every key forever ({detail})"
            ),
            bound: Bound::Other(
                "a version is valid until the next one arrives, so 'state_ttl' does not apply to it",
            ),
        }]
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: true,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(5_000.0, 60.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(TemporalJoin::new(self.spec.clone())?))
    }
}

impl Translator<'_> {
    /// A join `FOR SYSTEM_TIME AS OF` an event time: `times` are the stream's and the table's event time.
    pub(super) fn temporal_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        times: [&Expr; 2],
        filter: Option<&Expr>,
    ) -> Result<Stream> {
        let near = |error: SqlError| error.near("SYSTEM_TIME");
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            let error = "FOR SYSTEM_TIME AS OF is only supported on the right side of an INNER or LEFT JOIN";
            return Err(near(SqlError::new(error)));
        }
        if join.on.is_empty() {
            let error =
                "FOR SYSTEM_TIME AS OF needs an equality between a key of the table and the stream";
            return Err(near(SqlError::new(error)).hint("for example ON s.currency = r.currency"));
        }
        let plans = [join.left.as_ref(), join.right.as_ref()];
        let stream = self.translate(plans[0])?;
        let (versions, conditions) = self.versions(plans[1])?;
        let streams = [stream, versions];
        let mut bound = Vec::new();
        for ((time, stream), plan) in times.into_iter().zip(&streams).zip(plans) {
            if self.role(time, stream, plan)? != Role::Time {
                let error =
                    format!("'{time}' is not an event time, so it does not select a version");
                return Err(near(SqlError::new(error))
                    .hint("use the column of WATERMARK FOR, or window_time of a window"));
            }
            bound.push(self.bind(time, stream, plan)?);
        }
        let sides = Sides {
            join,
            stream_side: 0,
            streams,
        };
        let times = [bound[0].clone(), bound[1].clone()];
        let versions = Versions { times, conditions };
        let beside = self.beside(&sides, kind == JoinKind::Left, filter, Some(&versions))?;
        let detail = detail(&beside.spec, &beside.stream);
        let detail = format!(
            "{detail}, as of {}",
            explain::expression(&versions.times[0])
        );
        let spec = TemporalJoinSpec {
            join: beside.spec.clone(),
            times: beside.times,
        };
        let key = format!("temporal join {spec:?}");
        let temporal_join = TemporalJoinNode { spec };
        Ok(self.joined("temporal join", detail, temporal_join, &key, sides, beside))
    }

    /// The versions of a table, and the conditions that the planner has put above them, which are evaluated
    /// after the join.
    fn versions(&mut self, plan: &LogicalPlan) -> Result<(Stream, Vec<Physical>)> {
        match plan {
            LogicalPlan::Filter(filter) => {
                let (stream, mut conditions) = self.versions(&filter.input)?;
                conditions.push(self.bind(&filter.predicate, &stream, &filter.input)?);
                Ok((stream, conditions))
            }
            LogicalPlan::SubqueryAlias(alias) => self.versions(&alias.input),
            LogicalPlan::Projection(projection) => {
                let (stream, conditions) = self.versions(&projection.input)?;
                let node = stream.node;
                let stream = self.project(stream, &projection.expr, &projection.input)?;
                match stream.node == node {
                    true => Ok((stream, conditions)),
                    false => Err(SqlError::new(
                        "FOR SYSTEM_TIME AS OF a subquery is not supported",
                    )
                    .near("SYSTEM_TIME")),
                }
            }
            _ => Ok((self.translate(plan)?, Vec::new())),
        }
    }
}
