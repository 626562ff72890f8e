//! Joins of two inputs over the same window.

use arrow_schema::SchemaRef;
use datafusion_expr::logical_plan::Join;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::join::{JoinKind, JoinSide, JoinSpec, WindowJoin};
use slackwater_engine::operator::window::Windows;

use super::columns::Columns;
use super::facts::{
    Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::pair::{Pair, plans, shown};
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::explain::windows;
use crate::expression::Physical;

/// A join of rows of the same window.
pub struct WindowJoinNode {
    /// The keys, window and condition of the join.
    pub spec: JoinSpec,
}

impl Node for WindowJoinNode {
    fn schema(&self) -> &SchemaRef {
        self.spec.output()
    }

    fn exchange(&self, input: usize) -> Exchange {
        by_key(self.spec.sides[input].placed_by())
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::WindowJoin,
            identity: identity::window_join(&self.spec),
            // Earlier versions restored the rows of a join without keys in arbitrary instances.
            is_read_whole: self.spec.sides.iter().any(|side| side.keys.is_empty()),
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
            behind: Behind::ByWindow,
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
        Ok(Operator::stateful(WindowJoin::new(self.spec.clone())))
    }
}

/// The columns by which two streams are joined.
#[derive(Default)]
struct On {
    /// The window, whether its start identifies it, and the edge on both sides.
    window: Option<(Windows, bool, [Physical; 2])>,
    /// The other equal columns.
    keys: Vec<[Physical; 2]>,
}

impl Translator<'_> {
    /// The join as a window join; `None` if its conditions contain no window.
    pub(super) fn window_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        streams: &[Stream; 2],
    ) -> Result<Option<Stream>> {
        let on = self.windows_joined(join, streams)?;
        let Some((windows, is_start, edges)) = on.window else {
            return Ok(None);
        };
        if self.session.settings.allowed_lateness_us > 0 {
            return Err(SqlError::new(
                "'allowed_lateness' is not supported for window joins, which never update their output",
            )
            .near("JOIN")
            .hint("remove the setting, or make the delay of WATERMARK FOR longer"));
        }
        let mut nodes = [0; 2];
        let sides = [0, 1].map(|side: usize| {
            let mut columns = Columns::of(&streams[side], plans(join)[side]);
            let window_column = columns.place(&edges[side], "window");
            let keys = columns.place_keys(on.keys.iter().map(|pair| &pair[side]));
            nodes[side] = columns.node(self, &streams[side])?;
            Ok::<JoinSide, SqlError>(JoinSide {
                window_column,
                keys,
                schema: self.schema(nodes[side]),
            })
        });
        let [left, right] = sides;
        let sides = [left?, right?];
        let pair = Pair::new(join, [&sides[0].schema, &sides[1].schema]);
        let spec = JoinSpec {
            sides,
            windows,
            is_start,
            kind,
            condition: pair.condition(join.filter.as_ref())?,
            schema: pair.schema.clone(),
        };
        let detail = detail(&spec);
        let key = format!("join {spec:?}");
        let node = self.operator("join", detail, &nodes, WindowJoinNode { spec }, &key);
        let (columns, roles) = pair.output(kind, streams);
        Ok(Some(Stream {
            node,
            columns,
            roles,
            time: None,
            updates: false,
            key: None,
            deletes: false,
            unique: Vec::new(),
        }))
    }

    /// The window in the equalities of a join, and the other equalities.
    fn windows_joined(&self, join: &Join, streams: &[Stream; 2]) -> Result<On> {
        let plans = plans(join);
        let mut on = On::default();
        for (left, right) in &join.on {
            let bound = [
                self.bind(left, &streams[0], plans[0])?,
                self.bind(right, &streams[1], plans[1])?,
            ];
            let roles = [
                self.role(left, &streams[0], plans[0])?,
                self.role(right, &streams[1], plans[1])?,
            ];
            match roles {
                [Role::WindowStart(one), Role::WindowStart(other)]
                    if one == other && one.is_named_by_start() =>
                {
                    on.window.get_or_insert((one, true, bound));
                }
                [Role::WindowEnd(one), Role::WindowEnd(other)] if one == other => {
                    on.window = Some((one, false, bound));
                }
                _ => on.keys.push(bound),
            }
        }
        Ok(on)
    }
}

/// The node's description in EXPLAIN.
fn detail(spec: &JoinSpec) -> String {
    let [left, right] = &spec.sides;
    let keys = [left.keys.as_slice(), &right.keys];
    let on = shown(keys, [&left.schema, &right.schema], spec.condition.as_ref());
    let kind = format!("{:?}", spec.kind).to_lowercase();
    let on = match on.is_empty() {
        true => "the same window".to_string(),
        false => on.join(" and "),
    };
    format!("{kind}, {}: {on}", windows(&spec.windows))
}
