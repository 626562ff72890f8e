//! Deployments: what the control path hands down, as plain data, and how it becomes instances.

use std::sync::Arc;

use slackwater_link::{Receiver, Sender, Waker, channel};

use crate::balancer::{BalancerPlan, Route};
use crate::chunk::Message;
use crate::counters::InstanceCounters;
use crate::error::Result;
use crate::instance::{Instance, InstanceInput, SinkStep, Step};
use crate::intake::{Intake, IntakeSpec};
use crate::operator::Operator;
use crate::ports::Ports;
use crate::sink::Sink;
use crate::source::{DeadLetters, Source};

/// Messages that an in-process link holds at most. With chunks of 8,192 rows of 100 bytes that is
/// 13 MB a link; fewer would wake sender and receiver more often.
pub const LINK_MESSAGES_MAX: usize = 16;

/// A query as instances on workers, connected by links.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// Tells deployments of one runtime apart.
    pub id: u32,
    /// The instances.
    pub instances: Vec<InstancePlan>,
    /// The links; an index into this list is a link's number.
    pub links: Vec<LinkPlan>,
    /// Rows per chunk at most.
    pub chunk_rows: usize,
}

/// One instance.
#[derive(Debug, Clone)]
pub struct InstancePlan {
    /// For messages: `aggregate 3 [1/2]`.
    pub name: String,
    /// The worker that runs it.
    pub worker: usize,
    /// Its number among the instances of its subquery.
    pub index: usize,
    /// How many instances its subquery has.
    pub of: usize,
    /// Where its rows come from.
    pub input: InputPlan,
    /// What happens to them; with links as input, step 0 is the head operator.
    pub steps: Vec<StepPlan>,
    /// Where the input goes.
    pub roots: Vec<usize>,
}

/// Where an instance's rows come from.
#[derive(Debug, Clone)]
pub enum InputPlan {
    /// A source.
    Source {
        /// Node of the query graph.
        node: usize,
    },
    /// Links, grouped by input of the head operator.
    Ports(Vec<Vec<usize>>),
}

/// One step of an instance.
#[derive(Debug, Clone)]
pub struct StepPlan {
    /// Node of the query graph; for a route the node whose output it carries.
    pub node: usize,
    /// What it does.
    pub kind: StepKind,
    /// The steps that get its output.
    pub next: Vec<usize>,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum StepKind {
    /// Runs an operator.
    Operator,
    /// Writes to a sink.
    Sink,
    /// Sends over links.
    Route {
        /// How chunks are spread.
        balancer: BalancerPlan,
        /// The links.
        links: Vec<usize>,
    },
}

/// A link between two instances.
#[derive(Debug, Clone, Copy)]
pub struct LinkPlan {
    /// Sending instance.
    pub from: usize,
    /// Receiving instance.
    pub to: usize,
}

/// Makes what the nodes of a query graph stand for.
pub trait Catalog {
    /// The source at `node` for instance `instance` of `instances`.
    fn source(&self, node: usize, instance: usize, instances: usize) -> Result<SourceParts>;

    /// The operator at `node`.
    fn operator(&self, node: usize) -> Result<Box<dyn Operator>>;

    /// The sink at `node` for instance `instance` of `instances`.
    fn sink(&self, node: usize, instance: usize, instances: usize) -> Result<Box<dyn Sink>>;

    /// Where rows go that the operator at `node` refuses.
    fn dead_letters(&self, node: usize) -> Arc<dyn DeadLetters>;
}

/// A source and how its rows become chunks.
pub struct SourceParts {
    /// The source.
    pub source: Box<dyn Source>,
    /// How its rows become chunks.
    pub intake: IntakeSpec,
    /// Where its bad records go.
    pub dead_letters: Arc<dyn DeadLetters>,
}

/// The instances of a deployment with their counters, in the order of the plan.
pub fn build(
    deployment: &Deployment,
    catalog: &dyn Catalog,
    wakers: &[Waker],
) -> Result<Vec<(Instance, Arc<InstanceCounters>)>> {
    let mut senders: Vec<Option<Sender<Message>>> = Vec::new();
    let mut receivers: Vec<Option<Receiver<Message>>> = Vec::new();
    for link in &deployment.links {
        let waker_of = |instance: usize| wakers[deployment.instances[instance].worker].clone();
        let (sender, receiver) = channel(LINK_MESSAGES_MAX, waker_of(link.to), waker_of(link.from));
        senders.push(Some(sender));
        receivers.push(Some(receiver));
    }
    let mut built = Vec::with_capacity(deployment.instances.len());
    for plan in &deployment.instances {
        let input = match &plan.input {
            InputPlan::Source { node } => {
                let parts = catalog.source(*node, plan.index, plan.of)?;
                InstanceInput::Source(Intake::new(parts.source, parts.intake, parts.dead_letters))
            }
            InputPlan::Ports(ports) => {
                let mut take =
                    |link: &usize| receivers[*link].take().expect("a link has one reader");
                let ports = ports
                    .iter()
                    .map(|links| links.iter().map(&mut take).collect());
                InstanceInput::Ports(Ports::new(ports.collect()))
            }
        };
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let made = match &step.kind {
                StepKind::Operator => Step::Operator {
                    operator: catalog.operator(step.node)?,
                    dead_letters: catalog.dead_letters(step.node),
                },
                StepKind::Sink => {
                    Step::Sink(SinkStep::new(catalog.sink(step.node, plan.index, plan.of)?))
                }
                StepKind::Route { balancer, links } => {
                    let mut take =
                        |link: &usize| senders[*link].take().expect("a link has one writer");
                    Step::Route(Route::new(
                        balancer.clone(),
                        links.iter().map(&mut take).collect(),
                    ))
                }
            };
            steps.push((made, step.next.clone()));
        }
        let counters = Arc::new(InstanceCounters::default());
        let nodes = plan.steps.iter().map(|step| step.node).collect();
        built.push((
            Instance::new(
                plan.name.clone(),
                input,
                steps,
                nodes,
                plan.roots.clone(),
                deployment.chunk_rows,
                counters.clone(),
            ),
            counters,
        ));
    }
    Ok(built)
}
