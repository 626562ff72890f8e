//! Deployments: the plan that the control path hands down, as plain data, and how it becomes instances.

mod build;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow_buffer::Buffer;
use serde::{Deserialize, Serialize};
use slackwater_link::{FrameReceiver, FrameSender};

use crate::balancer::BalancerPlan;
use crate::budget::Budget;
use crate::checkpoint::{Chain, PartitionState};
use crate::chunk::RowKind;
use crate::counters::{InstanceCounters, LinkCounters};
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::intake::{IntakeSpec, Notices};
use crate::operator::aggregate::FirstPhase;
use crate::operator::{Operator, Stateful, Stateless};
use crate::recorder::{Recorder, Suspect};
use crate::sink::Sink;
use crate::source::{DeadLetters, Source};
use crate::time::EventTime;

pub use build::build;

/// The most messages that a link inside a process holds. With chunks of 8,192 rows of 100 bytes that is
/// 13 MB a link; fewer would wake sender and receiver more often.
pub const LINK_MESSAGES_MAX: usize = 16;

/// A query as instances on workers, connected by links.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Deployment {
    /// The instances.
    pub instances: Vec<InstancePlan>,
    /// The links; a link's number is its index here.
    pub links: Vec<LinkPlan>,
    /// The most rows per chunk.
    pub chunk_rows: usize,
    /// The process of each worker; empty when there is one process, which is number 0.
    pub process_of: Vec<usize>,
    /// The host of each process; empty when there is one host, which is number 0.
    pub host_of: Vec<usize>,
    /// Which receivers forward broadcasts, and where.
    pub relays: Vec<RelayPlan>,
}

impl Deployment {
    /// The process that runs an instance.
    pub fn process(&self, instance: usize) -> usize {
        let worker = self.instances[instance].worker;
        self.process_of.get(worker).copied().unwrap_or(0)
    }

    /// The instances of the source at `node` in the process of `worker`, by their numbers among all of them.
    pub fn instances_beside(&self, node: usize, worker: usize) -> Arc<[usize]> {
        let process = |worker: usize| self.process_of.get(worker).copied().unwrap_or(0);
        let own = self.instances.iter();
        let own = own.filter(|instance| instance.source() == Some(node));
        let own = own.filter(|instance| process(instance.worker) == process(worker));
        own.map(|instance| instance.index).collect()
    }

    /// The host that runs a process.
    pub fn host(&self, process: usize) -> usize {
        self.host_of.get(process).copied().unwrap_or(0)
    }

    /// Whether both ends of a link are on the same host.
    pub fn is_on_one_host(&self, link: &LinkPlan) -> bool {
        let [from, to] = [link.from, link.to].map(|end| self.host(self.process(end)));
        from == to
    }

    /// The links whose receivers acknowledge the chunks that they take.
    fn acknowledged(&self) -> HashSet<usize> {
        let steps = self.instances.iter().flat_map(|instance| &instance.steps);
        let links = steps.filter_map(|step| match &step.kind {
            StepKind::Route { balancer, links } if balancer.is_acknowledged() => Some(links),
            _ => None,
        });
        links.flatten().copied().collect()
    }

    /// The links of routes by key, with the key columns.
    fn keyed(&self) -> HashMap<usize, &[usize]> {
        let mut keyed = HashMap::new();
        for step in self.instances.iter().flat_map(|instance| &instance.steps) {
            if let StepKind::Route {
                balancer: BalancerPlan::Keyed { columns, .. },
                links,
            } = &step.kind
            {
                keyed.extend(links.iter().map(|&link| (link, &columns[..])));
            }
        }
        keyed
    }

    /// A number for each instance; instances that receive from the same sources have the same number.
    fn hearing(&self) -> Vec<usize> {
        let mut numbers: HashMap<BTreeSet<usize>, usize> = HashMap::new();
        // Most instances of a subquery have the same senders.
        let mut known: HashMap<BTreeSet<usize>, usize> = HashMap::new();
        let instances = 0..self.instances.len();
        let number = |instance: usize| {
            let senders = self.senders(instance);
            // Sources have no senders, and count as their own.
            if let Some(&number) = known.get(&senders).filter(|_| !senders.is_empty()) {
                return number;
            }
            let next = numbers.len();
            let number = *numbers.entry(self.heard(instance)).or_insert(next);
            known.insert(senders, number);
            number
        };
        instances.map(number).collect()
    }

    /// The source instances that an instance receives from, directly or through others; itself if it is
    /// one.
    fn heard(&self, instance: usize) -> BTreeSet<usize> {
        let (mut heard, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec![instance];
        while let Some(instance) = open.pop() {
            if !seen.insert(instance) {
                continue;
            }
            if let InputPlan::Source { .. } = self.instances[instance].input {
                heard.insert(instance);
            }
            open.extend(self.senders(instance));
        }
        heard
    }

    /// The instances that an instance has links from.
    fn senders(&self, instance: usize) -> BTreeSet<usize> {
        let links: &[Vec<usize>] = match &self.instances[instance].input {
            InputPlan::Source { .. } => &[],
            InputPlan::Ports(ports) => ports,
        };
        let links = links.iter().flatten();
        links.map(|&link| self.links[link].from).collect()
    }

    /// The links between processes, by number.
    pub fn remote_links(&self) -> impl Iterator<Item = (usize, &LinkPlan)> {
        let links = self.links.iter().enumerate();
        links.filter(|(_, link)| self.process(link.from) != self.process(link.to))
    }

    /// Groups of two or more links from one instance to other processes of its host that carry the same
    /// messages: through shared memory each group is one feed. The feed's writer goes by the first link of
    /// the group.
    pub fn feeds(&self) -> Vec<Vec<usize>> {
        let steps = self.instances.iter().flat_map(|instance| &instance.steps);
        let broadcasts = steps.filter_map(|step| match &step.kind {
            StepKind::Route {
                balancer: BalancerPlan::Broadcast { .. },
                links,
            } => Some(links),
            _ => None,
        });
        let relays = self.relays.iter().map(|relay| &relay.links);
        let leaves = |link: &usize| {
            let link = &self.links[*link];
            self.process(link.from) != self.process(link.to) && self.is_on_one_host(link)
        };
        let feeds = broadcasts
            .chain(relays)
            .map(|links| links.iter().copied().filter(leaves).collect());
        feeds.filter(|links: &Vec<usize>| links.len() > 1).collect()
    }
}

/// A receiver that forwards what comes over a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayPlan {
    /// The link that it receives by.
    pub link: usize,
    /// The links that it forwards on.
    pub links: Vec<usize>,
}

/// One instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InstancePlan {
    /// The instance's name for messages: `aggregate 3 [1/2]`.
    pub name: String,
    /// The worker that runs it.
    pub worker: usize,
    /// Whether it may move to another worker: it has no source, and no sink that waits for anything.
    pub movable: bool,
    /// Whether it is checkpointed.
    pub checkpointed: bool,
    /// The instance's number among the instances of its subquery.
    pub index: usize,
    /// How many instances its subquery has.
    pub instances: usize,
    /// Where its rows come from.
    pub input: InputPlan,
    /// What happens to the rows; with links as input, step 0 is the head operator.
    pub steps: Vec<StepPlan>,
    /// The steps that get the input.
    pub roots: Vec<usize>,
}

impl InstancePlan {
    /// The node of the instance's source, if it has one.
    pub fn source(&self) -> Option<usize> {
        match self.input {
            InputPlan::Source { node, .. } => Some(node),
            InputPlan::Ports(_) => None,
        }
    }

    /// New counters for the instance.
    pub fn counters(&self) -> InstanceCounters {
        let steps = self.steps.iter().enumerate();
        let watched = steps.filter(|(_, step)| matches!(step.kind, StepKind::Sink { .. }));
        let watched = watched.map(|(index, _)| index).collect::<Vec<usize>>();
        let keyed = self.steps.iter().enumerate().filter(|(_, step)| {
            let StepKind::Route { balancer, links } = &step.kind else {
                return false;
            };
            matches!(balancer, BalancerPlan::Keyed { .. }) && links.len() > 1
        });
        let keyed = keyed.map(|(index, _)| index).collect::<Vec<usize>>();
        let counters = InstanceCounters::new(self.steps.len(), &watched, &keyed);
        for (step, counters) in self.steps.iter().zip(&counters.steps) {
            if let StepKind::Sink {
                latency_target_ns, ..
            } = step.kind
            {
                counters.set_target(latency_target_ns);
            }
        }
        counters
    }
}

impl InputPlan {
    /// A source whose instances parse alone.
    pub fn source(node: usize) -> InputPlan {
        InputPlan::Source { node, parsers: 1 }
    }
}

/// Where an instance's rows come from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum InputPlan {
    /// A source.
    Source {
        /// The source's node in the query graph.
        node: usize,
        /// How many threads may parse for the instance, its own included.
        parsers: usize,
    },
    /// Links, grouped by input of the head operator.
    Ports(Vec<Vec<usize>>),
}

/// One step of an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepPlan {
    /// The step's node in the query graph; for a route, the node whose output it carries.
    pub node: usize,
    /// What the step does.
    pub kind: StepKind,
    /// The steps that get its output.
    pub next: Vec<usize>,
}

/// What a step does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum StepKind {
    /// Runs an operator.
    Operator,
    /// Does the first phase of the aggregation at the step's node, which gets its output by key.
    Combine,
    /// The same, and holds groups back until their window closes
    /// ([`FirstPhase`](crate::operator::aggregate::FirstPhase)). Only in an instance whose
    /// input does not lead into an operator that keeps state.
    FirstPhase,
    /// Writes to a sink.
    Sink {
        /// The latency, in nanoseconds, that the 99th percentile of rows is to stay below.
        latency_target_ns: Option<u64>,
        /// The kinds of rows that the sink doesn't get.
        leaves_out: Vec<RowKind>,
    },
    /// Sends over links.
    Route {
        /// How chunks are spread.
        balancer: BalancerPlan,
        /// The links.
        links: Vec<usize>,
    },
}

/// A link between two instances.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LinkPlan {
    /// The sending instance.
    pub from: usize,
    /// The receiving instance.
    pub to: usize,
    /// Between processes, the bytes of a message at most: larger chunks are sent in parts. `None` to send
    /// them whole.
    pub message_bytes: Option<usize>,
}

impl LinkPlan {
    /// A link whose chunks are sent whole.
    pub fn new(from: usize, to: usize) -> LinkPlan {
        LinkPlan {
            from,
            to,
            message_bytes: None,
        }
    }
}

/// The part of a source that an instance reads.
#[derive(Debug, Clone)]
pub struct SourcePart {
    /// The instance's number.
    pub instance: usize,
    /// Number of instances.
    pub instances: usize,
    /// The instances that run in this process.
    pub here: Arc<[usize]>,
    /// How many threads may parse for the instance, its own included.
    pub parsers: usize,
}

/// A first phase of an aggregation.
pub enum FirstPhases {
    /// Of each chunk on its own.
    OfChunk(Box<dyn Stateless>),
    /// Of all rows until their groups are let go of.
    Held(Box<FirstPhase>),
}

/// Makes the sources, operators and sinks that the nodes of a query graph stand for.
pub trait Catalog {
    /// The source at `node` for one instance.
    fn source(&self, node: usize, part: SourcePart) -> Result<SourceParts>;

    /// The operator at `node`.
    fn operator(&self, node: usize) -> Result<Operator>;

    /// The first phase of the aggregation at `node`, for plans that ask for it; `holds` says whether it holds
    /// groups back.
    fn first_phase(&self, node: usize, holds: bool) -> Result<FirstPhases> {
        let kind = if holds {
            "that holds groups back"
        } else {
            "to run separately"
        };
        Err(Error::new(
            format!("node {node}"),
            format!("has no first phase {kind}"),
        ))
    }

    /// The sink at `node` for instance `instance` of `instances`.
    fn sink(&self, node: usize, instance: usize, instances: usize) -> Result<Box<dyn Sink>>;

    /// Where rows that the operator at `node` rejects go.
    fn dead_letters(&self, node: usize) -> Arc<dyn DeadLetters>;

    /// How much memory the operators of this process may hold; no limit by default.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// The checkpointed state of the stateful operator at `node`: for `Some((instance, instances))` the
    /// part that this instance needs, else all of it.
    fn restored(&self, _node: usize, _share: Option<(usize, usize)>) -> Result<Vec<Chain>> {
        Ok(Vec::new())
    }

    /// The stateful operator at `node` for instance `instance` of `instances`, if it is there with its
    /// checkpointed state already; then [`Catalog::restored`] is not asked. It is given away once.
    fn adopted(&self, _node: usize, _instance: usize, _instances: usize) -> Option<Adopted> {
        None
    }
}

/// An operator that has its checkpointed state.
pub struct Adopted {
    /// The operator.
    pub operator: Box<dyn Stateful>,
    /// Its instance's watermark at the checkpoint.
    pub watermark: Option<EventTime>,
}

/// A source and how its rows become chunks.
pub struct SourceParts {
    /// The source.
    pub source: Box<dyn Source>,
    /// How its rows become chunks.
    pub intake: IntakeSpec,
    /// Where its bad records go.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// How far partitions had been read in a checkpoint; those of all instances.
    pub restored: Vec<PartitionState>,
    /// Rows that were being processed when a process died.
    pub suspects: Vec<Suspect>,
    /// Where the source records what is being processed, if anybody reads that.
    pub recorder: Option<Recorder>,
    /// Who is told what is noticed in the source's rows, if anybody.
    pub notices: Option<Arc<dyn Notices>>,
}

/// The ends of links to other processes, by link number. Each is taken once.
#[derive(Default)]
pub struct RemoteEnds {
    /// The ends of links that this process sends on. In a feed ([`Deployment::feeds`]) only the first
    /// link has one.
    pub senders: HashMap<usize, FrameSender<Buffer>>,
    /// The ends of links that this process receives on.
    pub receivers: HashMap<usize, FrameReceiver>,
}

/// The counters of one side of a link between processes.
#[derive(Debug, Clone)]
pub struct LinkSide {
    /// The link's number.
    pub link: usize,
    /// Whether this is the sending side.
    pub sends: bool,
    /// The side's counters.
    pub counters: Arc<LinkCounters>,
}

/// The part of a deployment that one process runs.
#[derive(Default)]
pub struct Built {
    /// The instances, with their numbers.
    pub instances: Vec<(usize, Instance)>,
    /// The counters of all instances of the deployment, by number; those of other processes stay zero.
    pub counters: Vec<Arc<InstanceCounters>>,
    /// This process's sides of links to other processes.
    pub links: Vec<LinkSide>,
}
