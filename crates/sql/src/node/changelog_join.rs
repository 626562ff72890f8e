//! Joins of two streams without a common window and without an interval between their times.

use arrow_schema::SchemaRef;
use datafusion_expr::logical_plan::Join;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::changelog::join::{
    ChangelogJoin, ChangelogJoinSide, ChangelogJoinSpec,
};
use slackwater_engine::operator::join::JoinKind;

use super::columns::Columns;
use super::facts::{
    Behind, Bound, Changelog, ChangelogMode, Cost, Emission, Emits, Facts, Growth, NeedsBefore,
    Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::pair::{Pair, plans, shown};
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::expression::{Physical, column};

/// A join of two streams.
pub struct ChangelogJoinNode {
    /// The keys, condition and sides of the join.
    pub spec: ChangelogJoinSpec,
}

impl Node for ChangelogJoinNode {
    fn schema(&self) -> &SchemaRef {
        self.spec.output()
    }

    fn exchange(&self, input: usize) -> Exchange {
        by_key(&self.spec.sides[input].keys)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::ChangelogJoin,
            identity: identity::stream_join(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        let sides = self.spec.sides.iter();
        Changelog {
            needs_before: NeedsBefore::ByInput(sides.map(|side| side.takes_back).collect()),
            emits: Emits::Changes(ChangelogMode {
                deletes: self.spec.makes_updates(),
                ..ChangelogMode::default()
            }),
        }
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, detail: &str) -> Vec<Growth> {
        if self.spec.retention_us.is_some() {
            return Vec::new();
        }
        let (clause, kept) = match (self.spec.kind.is_of_left(), self.spec.settles()) {
            (false, _) => ("JOIN", "all rows of both sides"),
            (true, false) => (
                "IN, EXISTS or a semi or anti join",
                "all rows of both sides",
            ),
            (true, true) => (
                "IN, EXISTS or a semi or anti join",
                "rows without a partner, and all different rows of the right side,",
            ),
        };
        vec![Growth {
            input: None,
            keeps: format!("{clause} without a window keeps {kept} forever ({detail})"),
            bound: Bound::StateTtl,
        }]
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::Seen,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: self.spec.retention_us,
            combines: None,
            cost: Cost::of(10_000.0, 500.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(ChangelogJoin::new(self.spec.clone())?))
    }
}

impl Translator<'_> {
    /// A join of `streams` by the equations and the condition of `join`.
    pub(super) fn changelog_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        streams: [Stream; 2],
    ) -> Result<Stream> {
        let mut nodes = [0; 2];
        let sides = [0, 1].map(|side: usize| {
            let (stream, plan) = (&streams[side], plans(join)[side]);
            let mut columns = Columns::of(stream, plan);
            let on = join.on.iter();
            let keys = on.map(|(left, right)| self.bind([left, right][side], stream, plan));
            let keys = keys.collect::<Result<Vec<Physical>>>()?;
            let keys = columns.place_keys(keys.iter());
            nodes[side] = columns.node(self, stream)?;
            Ok::<ChangelogJoinSide, SqlError>(ChangelogJoinSide {
                keys,
                schema: self.schema(nodes[side]),
                takes_back: stream.updates,
            })
        });
        let [left, right] = sides;
        let sides = [left?, right?];
        let pair = Pair::new(join, [&sides[0].schema, &sides[1].schema]);
        let key = match kind {
            JoinKind::Inner => joined_key(&streams, &sides, pair.starts, &pair.schema),
            JoinKind::Semi | JoinKind::Anti => left_key(&streams[0], &sides[0]),
            _ => None,
        };
        let spec = ChangelogJoinSpec {
            sides,
            kind,
            condition: pair.condition(join.filter.as_ref())?,
            retention_us: self.session.settings.state_ttl_us,
            schema: pair.schema.clone(),
        };
        let updates = spec.makes_updates();
        let detail = detail(&spec);
        let known = format!("changelog join {spec:?}");
        let node = self.operator("join", detail, &nodes, ChangelogJoinNode { spec }, &known);
        let (columns, _) = pair.output(kind, &streams);
        Ok(Stream {
            node,
            // A row is emitted when its partner arrives, however late that is.
            roles: vec![Role::Plain; columns.len()],
            columns,
            time: None,
            updates,
            key: key.filter(|_| updates),
            deletes: updates,
            unique: Vec::new(),
        })
    }
}

/// The node's description in EXPLAIN.
fn detail(spec: &ChangelogJoinSpec) -> String {
    let [left, right] = &spec.sides;
    let keys = [left.keys.as_slice(), &right.keys];
    let on = shown(keys, [&left.schema, &right.schema], spec.condition.as_ref());
    let kind = format!("{:?}", spec.kind).to_lowercase();
    match on.is_empty() {
        true => format!("{kind}: every pair"),
        false => format!("{kind}: {}", on.join(" and ")),
    }
}

/// The key of a semi or anti join's rows: that of the left side, if rows with one key always come from one
/// instance.
fn left_key(stream: &Stream, side: &ChangelogJoinSide) -> Option<Vec<Physical>> {
    let key = stream.key.as_ref()?.iter();
    let places = key.map(|of_key| stream.columns.iter().position(|known| known == of_key));
    let places = places.collect::<Option<Vec<usize>>>()?;
    let is_together = side.keys.iter().all(|joined| places.contains(joined));
    let key = places.iter().map(|&at| column(at, &side.schema));
    is_together.then(|| key.collect())
}

/// The key of an inner join's rows: that of one side, if the join's keys contain that of the other; else
/// both. `None` if a side has no key, or if rows with one key may come from several instances: a row could
/// then overtake the one that it replaces.
fn joined_key(
    streams: &[Stream; 2],
    sides: &[ChangelogJoinSide; 2],
    starts: [usize; 2],
    schema: &SchemaRef,
) -> Option<Vec<Physical>> {
    let places = [0, 1].map(|side: usize| {
        let key = streams[side].key.as_ref()?;
        let of_stream = &streams[side].columns;
        let places = key.iter();
        let places = places.map(|of_key| of_stream.iter().position(|known| known == of_key));
        places.collect::<Option<Vec<usize>>>()
    });
    let is_unique = [0, 1].map(|side: usize| {
        let joined = &sides[side].keys;
        let key = places[side].as_ref();
        key.is_some_and(|key| key.iter().all(|at| joined.contains(at)))
    });
    let of_side = |side: usize| -> Option<Vec<Physical>> {
        let key = places[side].as_ref()?.iter();
        Some(key.map(|at| column(starts[side] + at, schema)).collect())
    };
    let is_together = [0, 1].map(|side: usize| {
        let mut joined = sides[side].keys.iter();
        let key = places[side].as_ref();
        key.is_some_and(|key| joined.all(|at| key.contains(at)))
    });
    if is_unique[1] && is_together[0] {
        return of_side(0);
    }
    if is_unique[0] && is_together[1] {
        return of_side(1);
    }
    if !is_together.contains(&true) {
        return None;
    }
    Some([of_side(0)?, of_side(1)?].concat())
}
