//! Joins of two streams that have neither the same window nor an interval between their times.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::Join;
use slackwater_engine::operator::changelog::join::{ChangelogJoinSide, ChangelogJoinSpec};
use slackwater_engine::operator::join::JoinKind;

use super::{Role, Stream, Translator};
use crate::error::Result;
use crate::explain;
use crate::expression::{Physical, PhysicalExpression, column, physical, replace_columns};
use crate::specs::NodeSpec;

impl Translator<'_> {
    /// A join of `streams` by the pairs of `keys` and the condition of `join`.
    pub(super) fn changelog_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        streams: [Stream; 2],
        keys: Vec<[Physical; 2]>,
    ) -> Result<Stream> {
        let plans = [join.left.as_ref(), join.right.as_ref()];
        let mut nodes = Vec::new();
        let mut sides = Vec::new();
        for side in 0..2 {
            let keys = keys.iter().map(|pair| &pair[side]);
            let (node, keys) = self.side(&streams[side], plans[side], keys)?;
            nodes.push(node);
            sides.push(ChangelogJoinSide {
                keys,
                schema: self.schemas[node].clone(),
                takes_back: streams[side].updates,
            });
        }
        let fields = sides
            .iter()
            .flat_map(|side| side.schema.fields().iter().cloned());
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let starts = [0, sides[0].schema.fields().len()];
        // The columns of the join as SQL has them: those of both plans, without what was added.
        let columns = [0, 1].into_iter().flat_map(|side| {
            let of_plan = 0..plans[side].schema().fields().len();
            of_plan.map(move |at| starts[side] + at)
        });
        let mut columns = columns
            .map(|at| column(at, &schema))
            .collect::<Vec<Physical>>();
        let condition = match &join.filter {
            None => None,
            Some(filter) => {
                super::refuse_subqueries(filter)?;
                let both = join.left.schema().join(join.right.schema())?;
                let bound = replace_columns(&physical(filter, &both)?, &columns)?;
                Some(PhysicalExpression::over(bound, &schema)? as _)
            }
        };
        let sides: [ChangelogJoinSide; 2] = sides.try_into().expect("two sides");
        let key = match kind {
            JoinKind::Inner => self.joined_key(&streams, &sides, starts, &schema),
            JoinKind::Semi | JoinKind::Anti => self.left_key(&streams[0], &sides[0]),
            _ => None,
        };
        let spec = ChangelogJoinSpec {
            sides,
            kind,
            condition,
            retention_us: self.session.settings.state_ttl_us,
            schema,
        };
        if kind.is_of_left() {
            columns.truncate(plans[0].schema().fields().len());
        }
        let schema = spec.output().clone();
        let updates = spec.makes_updates();
        let detail = explain::changelog_join(&spec);
        let known = format!("changelog join {spec:?}");
        let node = self.node(
            "join",
            detail,
            &nodes,
            NodeSpec::ChangelogJoin(spec),
            schema,
            &known,
        );
        Ok(Stream {
            node,
            // Rows come out when their partner comes, however late that is.
            roles: vec![Role::Plain; columns.len()],
            columns,
            time: None,
            updates,
            key: key.filter(|_| updates),
            deletes: updates,
        })
    }

    /// A side's node with its keys as columns.
    fn side<'k>(
        &mut self,
        stream: &Stream,
        plan: &LogicalPlan,
        keys: impl Iterator<Item = &'k Physical>,
    ) -> Result<(usize, Vec<usize>)> {
        let names = plan.schema().fields().iter();
        let mut names = names.map(|field| field.name().clone()).collect::<Vec<_>>();
        let mut columns = stream.columns.clone();
        let mut places = Vec::new();
        for key in keys {
            let known = columns.iter().position(|known| known == key);
            places.push(known.unwrap_or_else(|| {
                columns.push(key.clone());
                names.push(format!("key{}", places.len()));
                columns.len() - 1
            }));
        }
        let node = self.materialise(stream, &columns, &names, None)?;
        Ok((node, places))
    }

    /// What tells the rows of a semi or anti join apart: the key of the left side, if rows of one key always
    /// come from one instance.
    fn left_key(&self, stream: &Stream, side: &ChangelogJoinSide) -> Option<Vec<Physical>> {
        let key = stream.key.as_ref()?.iter();
        let places = key.map(|of_key| stream.columns.iter().position(|known| known == of_key));
        let places = places.collect::<Option<Vec<usize>>>()?;
        let is_together = side.keys.iter().all(|joined| places.contains(joined));
        let key = places.iter().map(|&at| column(at, &side.schema));
        is_together.then(|| key.collect())
    }

    /// What tells the rows of an inner join apart: the key of one side, where that of the other is among
    /// what they are joined by; else both. `None` where a side has none, or where rows of one key may come
    /// from several instances: a row that takes another's place would overtake it.
    fn joined_key(
        &self,
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
}
