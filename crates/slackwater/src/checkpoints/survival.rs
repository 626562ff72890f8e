//! What a version of a query finds in a checkpoint of another version.
//!
//! A run that resumes and `slackwater check` ask the same [`Survival`], so they give the same answer.

use std::fmt::{self, Display, Formatter};

use arrow_array::temporal_conversions::timestamp_ms_to_datetime;
use serde::Serialize;
use slackwater_checkpoint::compatible::{self, Comparison, compare};
use slackwater_checkpoint::manifest::{Manifest, Node, NodeKind};
use slackwater_engine::hash::BUCKETS;
use slackwater_sql::node::SourceSpec;
use slackwater_sql::program::Program;

use super::members::{Members, differs};
use crate::report::count;
use crate::terminal::aligned;

/// The most partitions of a source that are shown: a screen. Programs get all.
const PARTITIONS_SHOWN: usize = 20;

/// What becomes of a checkpoint if a version of a query resumes from it.
#[derive(Debug, Clone, Serialize)]
pub struct Survival {
    /// The place of the checkpoints.
    pub place: String,
    /// The checkpoint's number.
    pub checkpoint: u64,
    /// When the checkpoint was stored (UTC).
    pub taken: String,
    /// Whether the query had finished, so that nothing is left to be read.
    pub finished: bool,
    /// Whether a run resumes from the checkpoint. Otherwise it refuses to start, and changes nothing.
    pub resumes: bool,
    /// Why it refuses, apart from single nodes.
    pub refusals: Vec<String>,
    /// What there is to say about damaged checkpoints that are skipped.
    pub warnings: Vec<String>,
    /// The tables and stateful operators of the query, then those that are no longer in it.
    pub nodes: Vec<NodeSurvival>,
    /// A table without an end in a query that has finished, with its connector.
    #[serde(skip)]
    endless: Option<(String, String)>,
}

/// What becomes of a table or a stateful operator.
#[derive(Debug, Clone, Serialize)]
pub struct NodeSurvival {
    /// The name under which the state is found again (`source bids`).
    pub key: String,
    /// Whether it is a source, a stateful operator or a sink.
    pub kind: NodeKind,
    /// What becomes of it.
    pub fate: Fate,
    /// Why a run refuses to resume; `None` if this node is no reason.
    pub reason: Option<String>,
    /// What can be done about it.
    pub hint: Option<String>,
    /// The bytes that are stored of its state.
    pub state_bytes: u64,
    /// The rows that are stored of its state.
    pub state_rows: u64,
    /// For a source: whether it resumes from its positions. Others only deliver new rows.
    pub replayable: bool,
    /// How far the partitions of a source were read, and whether they continue there.
    pub partitions: Vec<PartitionSurvival>,
}

/// What becomes of a partition of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionSurvival {
    /// The partition's name, under which its position is found again.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
    /// The position of the first row that was not read, as the connector counts; `None` if none was.
    pub position: Option<u64>,
    /// Whether it was read to its end.
    pub ended: bool,
}

/// What becomes of a node or a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It continues with its state, at its position.
    Continues,
    /// It is new and has missed nothing: it begins empty, or with its first row.
    Begins,
    /// It is no longer there, and nothing is lost.
    Dropped,
    /// Its state has another meaning: it would be dropped, and the operator would begin empty. A run refuses.
    Changed,
    /// It is new, and rows that belong to it were read: it would begin empty, without them. A run refuses.
    Missed,
    /// It is no longer there: its state or positions would be dropped. A run refuses.
    Lost,
}

impl Survival {
    /// What the query finds in the checkpoint `manifest` of the store at `place`.
    pub fn of(program: &Program, members: &Members, manifest: &Manifest, place: &str) -> Survival {
        let wanted = members.wanted(program);
        let compared = compare(manifest, BUCKETS as u32, &wanted, &[], &differs);
        let endless = endless(program, members).filter(|_| manifest.finished);
        let own = compared.nodes.iter().zip(&wanted).zip(&members.graph_nodes);
        let own = own.map(|((fate, wanted), &node)| {
            let old = match fate {
                compatible::Fate::Continues(old) | compatible::Fate::Changed(old, _) => Some(*old),
                _ => None,
            };
            let old = old.map(|old| &manifest.nodes[old]);
            let source = program.nodes[node].as_source();
            NodeSurvival {
                key: wanted.identity.key.clone(),
                kind: wanted.identity.kind,
                replayable: source.is_some_and(|source| source.connector.describe().replayable),
                partitions: source.map_or(Vec::new(), |source| partitions(source, old)),
                ..NodeSurvival::of(fate, old)
            }
        });
        let gone = compared.gone.iter();
        let gone = gone.map(|(old, fate)| NodeSurvival::of(fate, Some(&manifest.nodes[*old])));
        let taken = i64::try_from(manifest.time_ms).ok();
        let taken = taken.and_then(timestamp_ms_to_datetime);
        Survival {
            place: place.to_string(),
            checkpoint: manifest.number,
            taken: taken.map_or(String::new(), |at| {
                at.format("%Y-%m-%d %H:%M:%S").to_string()
            }),
            finished: manifest.finished,
            resumes: compared.reasons().next().is_none() && endless.is_none(),
            refusals: refusals(&compared, endless.as_ref()),
            warnings: Vec::new(),
            nodes: own.chain(gone).collect(),
            endless,
        }
    }

    /// Adds a reason for which a run does not resume.
    pub fn refuse(&mut self, reason: String) {
        self.resumes = false;
        self.refusals.push(reason);
    }

    /// Why a run of the program `name` refuses to start; `None` if it resumes.
    pub fn refusal(&self, name: &str) -> Option<String> {
        let (place, number) = (&self.place, self.checkpoint);
        if let Some((table, connector)) = &self.endless {
            return Some(format!(
                "{name}: the query in {place} has finished, at checkpoint {number}, but table '{table}' \
                 ({connector}) now has no end\n  \
                 = --from-scratch starts over, and so does another --state; \
                 docs/connectors/{connector}.md says what ends a table"
            ));
        }
        let reasons = self.reasons().map(|reason| format!("\n  {reason}"));
        (!self.resumes).then(|| {
            format!(
                "{name}: the query can't resume from checkpoint {number} in {place}:{}\n  = {AGAIN}",
                reasons.collect::<String>()
            )
        })
    }

    /// Each reason for which a run does not resume, with its hint.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        let of_nodes = self.nodes.iter().filter_map(NodeSurvival::refusal);
        self.refusals.iter().cloned().chain(of_nodes)
    }

    /// The answer as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// The hint that always helps.
const AGAIN: &str = "--from-scratch starts over, which reads and writes everything again";

fn refusals(compared: &Comparison, endless: Option<&(String, String)>) -> Vec<String> {
    let endless = endless.map(|(table, connector)| {
        format!("the query has finished, but table '{table}' ({connector}) now has no end")
    });
    let general = compared.refusals.iter().map(ToString::to_string);
    general.chain(endless).collect()
}

/// A table that is read until the query is stopped, with its connector.
fn endless(program: &Program, members: &Members) -> Option<(String, String)> {
    let nodes = members.graph_nodes.iter();
    let mut sources = nodes.filter_map(|&node| program.nodes[node].as_source());
    sources.find_map(|source| {
        let described = source.connector.describe();
        let is_endless = !described.bounded && !described.ends_with_peer;
        is_endless.then(|| (source.table.name.clone(), described.connector))
    })
}

/// The partitions of a source that were read, and those that it has now as far as they are known.
fn partitions(source: &SourceSpec, old: Option<&Node>) -> Vec<PartitionSurvival> {
    let described = source.connector.describe();
    let known = old.map_or(&[][..], |old| &old.partitions);
    if !described.replayable {
        return Vec::new();
    }
    let of = |known: &slackwater_checkpoint::manifest::Partition, fate| PartitionSurvival {
        name: known.name.clone(),
        fate,
        position: (known.position > 0).then_some(known.position),
        ended: known.ended,
    };
    let Some(names) = described.partitions else {
        return known
            .iter()
            .map(|known| of(known, Fate::Continues))
            .collect();
    };
    let now = names.iter().map(|name| {
        let known = known.iter().find(|known| known.name == *name);
        known.map_or_else(
            || PartitionSurvival {
                name: name.clone(),
                fate: Fate::Begins,
                position: None,
                ended: false,
            },
            |known| of(known, Fate::Continues),
        )
    });
    let gone = known.iter().filter(|known| !names.contains(&known.name));
    now.chain(gone.map(|known| of(known, Fate::Dropped)))
        .collect()
}

impl NodeSurvival {
    fn of(fate: &compatible::Fate, old: Option<&Node>) -> NodeSurvival {
        let parts = || old.into_iter().flat_map(|old| &old.parts);
        let refusal = fate.refusal();
        let hint = refusal.map(|error| error.hint.clone());
        NodeSurvival {
            key: old.map_or(String::new(), |old| old.identity.key.clone()),
            kind: old.map_or(NodeKind::Stateful, |old| old.identity.kind),
            fate: match fate {
                compatible::Fate::Continues(_) => Fate::Continues,
                compatible::Fate::Begins => Fate::Begins,
                compatible::Fate::Dropped => Fate::Dropped,
                compatible::Fate::Changed(..) => Fate::Changed,
                compatible::Fate::Missed(_) => Fate::Missed,
                compatible::Fate::Lost(_) => Fate::Lost,
            },
            reason: refusal.map(|error| error.reason.clone()),
            hint: hint.filter(|hint| !hint.is_empty()),
            state_bytes: parts().map(|part| part.bytes).sum(),
            state_rows: parts().map(|part| part.rows).sum(),
            replayable: false,
            partitions: Vec::new(),
        }
    }

    fn refusal(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        let hint = self.hint.iter().map(|hint| format!(" ({hint})"));
        Some(format!(
            "'{}': {reason}{}",
            self.key,
            hint.collect::<String>()
        ))
    }

    /// What becomes of it, in words.
    pub fn words(&self) -> String {
        let is_source = self.kind == NodeKind::Source;
        let rows = match self.state_rows {
            1 => "1 stored row".to_string(),
            rows => format!("{} stored rows", count(rows)),
        };
        match (self.fate, self.kind) {
            (Fate::Continues, NodeKind::Stateful) => format!("continues with {rows}"),
            (Fate::Continues, NodeKind::Sink) => "continues".to_string(),
            (Fate::Continues | Fate::Begins, NodeKind::Source) if !self.replayable => {
                "continues with the rows that come next".to_string()
            }
            (Fate::Continues, NodeKind::Source) => self.positions(),
            (Fate::Begins, _) if is_source => "is new: it is read from its beginning".to_string(),
            (Fate::Begins, NodeKind::Sink) => "is new: it gets the rows that come next".to_string(),
            (Fate::Begins, _) => "is new, and begins empty: it has missed no row".to_string(),
            (Fate::Dropped, _) => "is no longer in the query: nothing of it is saved".to_string(),
            (Fate::Changed, NodeKind::Source | NodeKind::Sink) => {
                "is another table now".to_string()
            }
            (Fate::Changed, NodeKind::Stateful) => {
                format!("would begin empty: {rows} of another meaning would be dropped")
            }
            (Fate::Missed, _) => "would begin empty, without rows that were read".to_string(),
            (Fate::Lost, NodeKind::Stateful) => format!("would be dropped, with {rows}"),
            (Fate::Lost, _) => "would be dropped".to_string(),
        }
    }

    fn positions(&self) -> String {
        match &self.partitions[..] {
            [only] if only.fate != Fate::Dropped => only.words(),
            all => {
                let with = |fate| all.iter().filter(|one| one.fate == fate).count();
                let number = |number: usize| match number {
                    1 => "1 partition".to_string(),
                    _ => format!("{} partitions", count(number as u64)),
                };
                let mut parts = vec![format!("continues in {}", number(with(Fate::Continues)))];
                for (fate, what) in [(Fate::Begins, "new"), (Fate::Dropped, "no longer there")] {
                    let found = with(fate);
                    parts.extend((found > 0).then(|| format!("{} {what}", count(found as u64))));
                }
                parts.join(", ")
            }
        }
    }
}

impl PartitionSurvival {
    /// What becomes of it, in words.
    fn words(&self) -> String {
        match (self.fate, self.ended, self.position) {
            (Fate::Continues, true, _) => "continues: it was read to its end".to_string(),
            (Fate::Continues, false, Some(position)) => format!("continues at {}", count(position)),
            (Fate::Continues | Fate::Begins, ..) => "is read from its beginning".to_string(),
            (_, true, _) => "is no longer there, and was read to its end".to_string(),
            (_, false, Some(position)) => {
                format!(
                    "is no longer there, and was read up to {}",
                    count(position - 1)
                )
            }
            (_, false, None) => "is no longer there, and was not read".to_string(),
        }
    }
}

impl Display for Survival {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (place, number) = (&self.place, self.checkpoint);
        let answer = match (self.resumes, self.finished) {
            (false, _) => "a run refuses to resume from it",
            (true, true) => "the query has finished, and a run has nothing left to do",
            (true, false) => "a run resumes from it",
        };
        writeln!(
            f,
            "checkpoint {number} in {place}, taken {} (UTC): {answer}",
            self.taken
        )?;
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let rows = self.nodes.iter();
        let rows = rows.map(|node| vec![node.key.clone(), node.words()]);
        f.write_str(&aligned(
            &["table or operator", "what becomes of it"],
            &rows.collect::<Vec<_>>(),
        ))?;
        for node in self.nodes.iter().filter(|node| node.partitions.len() > 1) {
            let rows = node.partitions.iter().take(PARTITIONS_SHOWN);
            let rows = rows.map(|partition| vec![partition.name.clone(), partition.words()]);
            writeln!(f, "\n{}", node.key)?;
            f.write_str(&aligned(
                &["partition", "what becomes of it"],
                &rows.collect::<Vec<_>>(),
            ))?;
            if node.partitions.len() > PARTITIONS_SHOWN {
                let more = node.partitions.len() - PARTITIONS_SHOWN;
                writeln!(f, "  and {more} more partitions")?;
            }
        }
        if !self.resumes {
            writeln!(f)?;
        }
        self.reasons()
            .try_for_each(|reason| writeln!(f, "{reason}"))?;
        match self.resumes {
            true => Ok(()),
            false => writeln!(
                f,
                "  = undo the change, or start over with run --from-scratch, which reads and writes \
                 everything again"
            ),
        }
    }
}
