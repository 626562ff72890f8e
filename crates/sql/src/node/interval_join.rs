//! Joins of two streams whose conditions bound the distance of the event times of both sides ([`intervals`]).

use arrow_schema::SchemaRef;
use datafusion_expr::logical_plan::Join;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::drop_late::Late;
use slackwater_engine::operator::interval_join::{IntervalJoin, IntervalJoinSpec, IntervalSide};
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::time::EventTime;

use super::columns::Columns;
use super::facts::{
    Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::intervals;
use super::pair::{Pair, padded, plans, shown};
use super::saved::Saved;
use super::stream::Stream;
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::explain::duration;
use crate::expression::{Physical, column};
use crate::names::INTERVAL_JOIN;

pub use super::intervals::compares_times;

/// A join of two streams whose event times have a bounded distance.
pub struct IntervalJoinNode {
    /// The interval, keys and condition of the join.
    pub spec: IntervalJoinSpec,
    /// Whether rows of the side that is not broadcast may change instances: nothing depends on their order.
    pub is_dealt: bool,
}

impl Node for IntervalJoinNode {
    fn schema(&self) -> &SchemaRef {
        self.spec.output()
    }

    fn exchange(&self, input: usize) -> Exchange {
        match self.spec.broadcast {
            None => by_key(&self.spec.sides[input].keys),
            Some(side) if side == input => Exchange::Broadcast,
            Some(_) if self.is_dealt => Exchange::Spread,
            Some(_) => Exchange::Forward,
        }
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::IntervalJoin,
            identity: identity::interval_join(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::Seen,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::Never,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(10_000.0, 200.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(IntervalJoin::new(self.spec.clone())?))
    }
}

impl Translator<'_> {
    /// The join as an interval join; `None` if its conditions don't bound the distance of the event times
    /// from both sides. `broadcast` is the side that every instance gets.
    pub(super) fn interval_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        streams: &[Stream; 2],
        broadcast: Option<usize>,
    ) -> Result<Option<Stream>> {
        let Some(found) = intervals::find(join, streams) else {
            return Ok(None);
        };
        let mut nodes = [0; 2];
        let sides = [0, 1].map(|side: usize| {
            let (stream, plan) = (&streams[side], plans(join)[side]);
            let mut columns = Columns::of(stream, plan);
            let time = &stream.columns[found.columns[side]];
            let time_column = columns.place(time, "event_time");
            let on = join.on.iter();
            let keys = on.map(|(left, right)| self.bind([left, right][side], stream, plan));
            let keys = keys.collect::<Result<Vec<Physical>>>()?;
            let keys = columns.place_keys(keys.iter());
            let node = columns.node(self, stream)?;
            nodes[side] = self.drop_late(node, time_column, Late::At);
            Ok::<IntervalSide, SqlError>(IntervalSide {
                time_column,
                keys,
                schema: self.schema(node),
            })
        });
        let [left, right] = sides;
        let sides = [left?, right?];
        let pair = Pair::new(join, [&sides[0].schema, &sides[1].schema]);
        let times = [0, 1].map(|side| pair.starts[side] + sides[side].time_column);
        let spec = IntervalJoinSpec {
            sides,
            bounds: found.bounds,
            kind,
            broadcast,
            condition: pair.condition(found.filter.as_ref())?,
            behind_us: self.behind_us(nodes[0]).max(self.behind_us(nodes[1])),
            schema: pair.schema.clone(),
        };
        let schema = spec.output().clone();
        let detail = detail(&spec);
        let key = format!("interval join {spec:?}");
        let is_dealt = !self.session.settings.keep_order;
        let interval_join = IntervalJoinNode { spec, is_dealt };
        let node = self.operator(INTERVAL_JOIN, detail, &nodes, interval_join, &key);
        let (columns, roles) = pair.output(kind, streams);
        let time = (0..2).find(|&side| !padded(kind)[side]);
        Ok(Some(Stream {
            node,
            columns,
            roles,
            time: time.map(|side| column(times[side], &schema)),
            updates: false,
            key: None,
            deletes: false,
            unique: Vec::new(),
        }))
    }

    /// How far behind the watermark rows of a node may be without being late.
    pub(super) fn behind_us(&self, node: usize) -> EventTime {
        match self.specs[node].facts().behind {
            Behind::Never => 0,
            Behind::ByWindow => Behind::WINDOW_US,
            Behind::AsInput => {
                let inputs = self.graph.nodes[node].inputs.iter();
                let behind = inputs.map(|edge| self.behind_us(edge.from));
                behind.max().unwrap_or(0)
            }
        }
    }
}

/// The node's description in EXPLAIN.
fn detail(spec: &IntervalJoinSpec) -> String {
    let [left, right] = &spec.sides;
    let keys = [left.keys.as_slice(), &right.keys];
    let on = shown(keys, [&left.schema, &right.schema], spec.condition.as_ref());
    let on = on.iter().map(|on| format!(" and {on}")).collect::<String>();
    let [left, right] = [left, right].map(|side| side.schema.field(side.time_column).name());
    let [least, most] = spec.bounds.map(|bound| duration(i128::from(bound) * 1000));
    let kind = format!("{:?}", spec.kind).to_lowercase();
    format!("{kind}: {right} - {left} from {least} to {most}{on}")
}
