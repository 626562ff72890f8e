//! Deployments: what the control path hands down, as plain data, and how it becomes instances.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow_buffer::Buffer;
use slackwater_link::{FrameReceiver, FrameSender, Waker, channel};

use crate::balancer::{BalancerPlan, Route, first_owners};
use crate::budget::Budget;
use crate::checkpoint::{self, Chain, PartitionState};
use crate::chunk::RowKind;
use crate::counters::{InstanceCounters, LinkCounters};
use crate::error::{Error, Result};
use crate::exchange::{LinkReceiver, LinkSender};
use crate::fan::Fan;
use crate::instance::{Head, Instance, InstanceInput, PlacedStep, SinkStep, Step};
use crate::intake::{Intake, IntakeSpec, Notices};
use crate::operator::{Facts, Operator, Stateless};
use crate::ports::{Port, Ports};
use crate::recorder::{Recorder, Suspect};
use crate::relay::Relay;
use crate::sink::Sink;
use crate::source::{DeadLetters, Source};
use crate::state::{BucketSet, KeyedState};
use crate::time::EventTime;

/// Messages that an in-process link holds at most. With chunks of 8,192 rows of 100 bytes that is
/// 13 MB a link; fewer would wake sender and receiver more often.
pub const LINK_MESSAGES_MAX: usize = 16;

/// A query as instances on workers, connected by links.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The instances.
    pub instances: Vec<InstancePlan>,
    /// The links; an index into this list is a link's number.
    pub links: Vec<LinkPlan>,
    /// Rows per chunk at most.
    pub chunk_rows: usize,
    /// The process of each worker; empty when there is one process, which is number 0.
    pub process_of: Vec<usize>,
    /// What receivers of broadcasts hand on.
    pub relays: Vec<RelayPlan>,
}

impl Deployment {
    /// The process of an instance.
    pub fn process(&self, instance: usize) -> usize {
        let worker = self.instances[instance].worker;
        self.process_of.get(worker).copied().unwrap_or(0)
    }

    /// The links whose receivers acknowledge what they take.
    fn acknowledged(&self) -> HashSet<usize> {
        let steps = self.instances.iter().flat_map(|instance| &instance.steps);
        let links = steps.filter_map(|step| match &step.kind {
            StepKind::Route { balancer, links } if balancer.is_acknowledged() => Some(links),
            _ => None,
        });
        links.flatten().copied().collect()
    }

    /// The links of routes by key, with the columns that these go by.
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

    /// A number for each instance, the same for those that hear the same sources.
    fn hearing(&self) -> Vec<usize> {
        let mut numbers: HashMap<BTreeSet<usize>, usize> = HashMap::new();
        // Most instances of a subquery have the same senders.
        let mut known: HashMap<BTreeSet<usize>, usize> = HashMap::new();
        let instances = 0..self.instances.len();
        let number = |instance: usize| {
            let senders = self.senders(instance);
            // Sources have none, and hear themselves.
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

    /// The instances with sources that an instance hears, by way of others or by itself.
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

    /// Links from one instance to other processes, two or more, that carry the same: through shared
    /// memory they are one feed. The feed's writer goes by the first of them.
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
            let LinkPlan { from, to } = self.links[*link];
            self.process(from) != self.process(to)
        };
        let feeds = broadcasts
            .chain(relays)
            .map(|links| links.iter().copied().filter(leaves).collect());
        feeds.filter(|links: &Vec<usize>| links.len() > 1).collect()
    }
}

/// What comes over a link is handed on by its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayPlan {
    /// The link that it comes by.
    pub link: usize,
    /// The links that it goes on by.
    pub links: Vec<usize>,
}

/// One instance.
#[derive(Debug, Clone)]
pub struct InstancePlan {
    /// For messages: `aggregate 3 [1/2]`.
    pub name: String,
    /// The worker that runs it.
    pub worker: usize,
    /// It may go on on another worker: it has no source, and no sink that waits for anything.
    pub movable: bool,
    /// It takes part in checkpoints.
    pub checkpointed: bool,
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

impl InstancePlan {
    /// The node of its source, if it has one.
    pub fn source(&self) -> Option<usize> {
        match self.input {
            InputPlan::Source { node } => Some(node),
            InputPlan::Ports(_) => None,
        }
    }

    /// Slots for what it counts.
    pub fn counters(&self) -> InstanceCounters {
        let steps = self.steps.iter().enumerate();
        let watched = steps.filter(|(_, step)| {
            matches!(
                step.kind,
                StepKind::Sink {
                    latency_target_ns: Some(_),
                    ..
                }
            )
        });
        let watched = watched.map(|(index, _)| index).collect::<Vec<usize>>();
        let keyed = self.steps.iter().enumerate().filter(|(_, step)| {
            let StepKind::Route { balancer, links } = &step.kind else {
                return false;
            };
            matches!(balancer, BalancerPlan::Keyed { .. }) && links.len() > 1
        });
        let keyed = keyed.map(|(index, _)| index).collect::<Vec<usize>>();
        InstanceCounters::new(self.steps.len(), &watched, &keyed)
    }
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
    /// Does the first phase of the aggregation at the step's node, which gets its output by key.
    Combine,
    /// Writes to a sink.
    Sink {
        /// What the 99th percentile of its rows' latency is to be below, in nanoseconds.
        latency_target_ns: Option<u64>,
        /// Rows of these kinds are not for it.
        leaves_out: &'static [RowKind],
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
    fn operator(&self, node: usize) -> Result<Operator>;

    /// The first phase of the aggregation at `node`, for plans that ask for it.
    fn combiner(&self, node: usize) -> Result<Box<dyn Stateless>> {
        Err(Error::new(
            format!("node {node}"),
            "has no first phase of its own",
        ))
    }

    /// The sink at `node` for instance `instance` of `instances`.
    fn sink(&self, node: usize, instance: usize, instances: usize) -> Result<Box<dyn Sink>>;

    /// Where rows go that the operator at `node` refuses.
    fn dead_letters(&self, node: usize) -> Arc<dyn DeadLetters>;

    /// What the operators of this process may hold; by default as much as they like.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// What the stateful operator at `node` had in a checkpoint: for `Some((instance, instances))` as
    /// far as that instance needs it, else all of it.
    fn restored(&self, _node: usize, _share: Option<(usize, usize)>) -> Result<Vec<Chain>> {
        Ok(Vec::new())
    }
}

/// A source and how its rows become chunks.
pub struct SourceParts {
    /// The source.
    pub source: Box<dyn Source>,
    /// How its rows become chunks.
    pub intake: IntakeSpec,
    /// Where its bad records go.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// How far partitions were read in a checkpoint; those of all instances.
    pub restored: Vec<PartitionState>,
    /// Rows during which a process has died.
    pub suspects: Vec<Suspect>,
    /// Where the source notes what is being worked on, if somebody would read it.
    pub recorder: Option<Recorder>,
    /// Who hears what is noticed of the source's rows, if somebody does.
    pub notices: Option<Arc<dyn Notices>>,
}

/// The ends of links to other processes, by number of the link. Each is taken once.
#[derive(Default)]
pub struct RemoteEnds {
    /// Of the links that this process sends on; of a feed ([`Deployment::feeds`]) only the first link
    /// has one.
    pub senders: HashMap<usize, FrameSender<Buffer>>,
    /// Of those that it receives from.
    pub receivers: HashMap<usize, FrameReceiver>,
}

/// What one side of a link between processes has counted.
#[derive(Debug, Clone)]
pub struct LinkSide {
    /// The link's number.
    pub link: usize,
    /// The sending side, else the receiving one.
    pub sends: bool,
    /// Its counters.
    pub counters: Arc<LinkCounters>,
}

/// The part of a deployment that one process runs.
#[derive(Default)]
pub struct Built {
    /// The instances, with their numbers.
    pub instances: Vec<(usize, Instance)>,
    /// Counters of all instances of the deployment, by number; those of other processes stay zero.
    pub counters: Vec<Arc<InstanceCounters>>,
    /// This process's sides of links to others.
    pub links: Vec<LinkSide>,
}

/// Builds what `process` runs of a deployment. `waker_of` makes what wakes an instance of it, by
/// number of the instance.
pub fn build(
    deployment: &Deployment,
    process: usize,
    catalog: &dyn Catalog,
    waker_of: &dyn Fn(usize) -> Waker,
    remote: RemoteEnds,
) -> Result<Built> {
    let mut ends = Ends::new(deployment, process, waker_of, remote);
    let traits = Traits {
        acknowledged: deployment.acknowledged(),
        keyed: deployment.keyed(),
        hearing: deployment.hearing(),
    };
    let mut built = Built::default();
    let budget = Arc::new(catalog.budget());
    for (number, plan) in deployment.instances.iter().enumerate() {
        let counters = Arc::new(plan.counters());
        built.counters.push(counters.clone());
        if deployment.process(number) == process {
            let mut instance = instance(deployment, number, catalog, &mut ends, &traits, counters)?;
            instance.keep_to(&budget);
            if plan.checkpointed {
                instance.take_part(number as u32);
            }
            built.instances.push((number, instance));
        }
    }
    built.links = ends.sides;
    Ok(built)
}

/// What receivers want to know of their links.
struct Traits<'d> {
    /// Those on which they acknowledge what they take.
    acknowledged: HashSet<usize>,
    /// The columns that rows are routed by, of those that are links of a keyed route.
    keyed: HashMap<usize, &'d [usize]>,
    /// As [`Deployment::hearing`].
    hearing: Vec<usize>,
}

impl Traits<'_> {
    /// Whether the senders of these links hear the same sources.
    fn are_in_step(&self, deployment: &Deployment, links: &[usize]) -> bool {
        let mut heard = links
            .iter()
            .map(|&link| self.hearing[deployment.links[link].from]);
        let first = heard.next();
        heard.all(|number| Some(number) == first)
    }

    /// Rows come to where their state is: else what moves or is restored would be lost to them.
    fn check_routes(&self, plan: &InstancePlan, ports: &[Vec<usize>], facts: &Facts) {
        for (input, links) in ports.iter().enumerate() {
            let placed_by = facts.placed_by.get(input).and_then(Option::as_deref);
            for link in links {
                let routed_by = self.keyed.get(link).copied();
                assert!(
                    routed_by.is_none() && (plan.of == 1 || placed_by.is_none())
                        || routed_by == placed_by,
                    "{}: input {input} is routed by {routed_by:?}, and its state lies by {placed_by:?}",
                    plan.name
                );
            }
        }
    }
}

/// The ends of links that are not taken yet.
struct Ends {
    senders: HashMap<usize, LinkSender>,
    receivers: HashMap<usize, LinkReceiver>,
    sides: Vec<LinkSide>,
}

/// A route, and whether it leads to other instances of this process.
struct BuiltRoute {
    route: Route,
    has_local: bool,
}

impl Ends {
    fn new(
        deployment: &Deployment,
        process: usize,
        waker_of: &dyn Fn(usize) -> Waker,
        mut remote: RemoteEnds,
    ) -> Ends {
        let mut ends = Ends {
            senders: HashMap::new(),
            receivers: HashMap::new(),
            sides: Vec::new(),
        };
        // The readers of a feed beside its first one.
        let fed = deployment.feeds();
        let fed = fed.iter().flat_map(|links| &links[1..]).copied();
        let fed = fed.collect::<HashSet<usize>>();
        for (number, link) in deployment.links.iter().enumerate() {
            let here = [link.from, link.to].map(|end| deployment.process(end) == process);
            match here {
                [true, true] => {
                    let (sender, receiver) =
                        channel(LINK_MESSAGES_MAX, waker_of(link.to), waker_of(link.from));
                    ends.senders.insert(number, LinkSender::Local(sender));
                    ends.receivers.insert(number, LinkReceiver::Local(receiver));
                }
                [true, false] => {
                    let Some(frames) = remote.senders.remove(&number) else {
                        assert!(fed.contains(&number), "one end of each link");
                        continue;
                    };
                    let counters = ends.side(number, true);
                    ends.senders
                        .insert(number, LinkSender::remote(frames, counters));
                }
                [false, true] => {
                    let frames = remote.receivers.remove(&number);
                    let frames = frames.expect("one end of each link");
                    let counters = ends.side(number, false);
                    ends.receivers
                        .insert(number, LinkReceiver::remote(frames, counters));
                }
                [false, false] => {}
            }
        }
        ends
    }

    /// What hands on what comes by a link, where something does.
    fn relay(&mut self, deployment: &Deployment, link: usize) -> Option<Relay> {
        let mut relays = deployment.relays.iter();
        let plan = relays.find(|relay| relay.link == link)?;
        Some(Relay::new(self.fan(&plan.links)))
    }

    /// The receiving ends of `links`, by input, of which `first` is read before all others.
    /// `keeps_rows` says whether rows that come by a link may stay in this process, in the instance's
    /// state or in a queue that it passes them on to, so that the link's ring would stand still behind
    /// them; it is told whether the link is relayed to other instances of this process (they are of the
    /// same subquery and keep rows if this one does; but where it has links to other processes, they may
    /// have some inside this one).
    fn ports(
        &mut self,
        deployment: &Deployment,
        traits: &Traits,
        links: &[Vec<usize>],
        first: Option<usize>,
        keeps_rows: impl Fn(bool) -> bool,
    ) -> Ports {
        let mut take = |link: &usize| {
            let mut receiver = self.receivers.remove(link).expect("a link has one reader");
            let relay = self.relay(deployment, *link);
            if keeps_rows(relay.as_ref().is_some_and(Relay::has_local)) {
                receiver.copy_frames();
            }
            (receiver, relay)
        };
        let ports = links.iter().enumerate().map(|(number, links)| Port {
            first: first == Some(number),
            acknowledges: links.iter().any(|link| traits.acknowledged.contains(link)),
            in_step: traits.are_in_step(deployment, links),
            links: links.iter().map(&mut take).collect(),
        });
        Ports::new(ports.collect())
    }

    /// The sending ends of `links`.
    fn route(&mut self, balancer: &BalancerPlan, links: &[usize]) -> BuiltRoute {
        let senders = match balancer {
            BalancerPlan::Broadcast { .. } => {
                let fan = self.fan(links);
                let has_local = fan.has_local();
                return BuiltRoute {
                    route: Route::new(balancer.clone(), vec![LinkSender::Fan(Box::new(fan))]),
                    has_local,
                };
            }
            _ => links.iter().map(|link| {
                let sender = self.senders.remove(link);
                sender.expect("a link has one writer")
            }),
        };
        let senders = senders.collect::<Vec<LinkSender>>();
        let is_local = |sender: &LinkSender| matches!(sender, LinkSender::Local(_));
        BuiltRoute {
            has_local: senders.iter().any(is_local),
            route: Route::new(balancer.clone(), senders),
        }
    }

    fn fan(&mut self, links: &[usize]) -> Fan {
        let senders = links.iter().filter_map(|link| self.senders.remove(link));
        Fan::new(senders.collect())
    }

    fn side(&mut self, link: usize, sends: bool) -> Arc<LinkCounters> {
        let counters = Arc::new(LinkCounters::default());
        self.sides.push(LinkSide {
            link,
            sends,
            counters: counters.clone(),
        });
        counters
    }
}

fn instance(
    deployment: &Deployment,
    number: usize,
    catalog: &dyn Catalog,
    ends: &mut Ends,
    traits: &Traits,
    counters: Arc<InstanceCounters>,
) -> Result<Instance> {
    let plan = &deployment.instances[number];
    let (mut head, mut steps, mut passes_on) = (None, Vec::with_capacity(plan.steps.len()), false);
    for (number, planned) in plan.steps.iter().enumerate() {
        let node = planned.node;
        let step = match &planned.kind {
            StepKind::Operator => match catalog.operator(node)? {
                Operator::Stateless(operator) => Step::Operator {
                    operator,
                    dead_letters: catalog.dead_letters(node),
                },
                Operator::Stateful(operator) => {
                    assert!(
                        number == 0 && plan.roots == [0] && plan.source().is_none(),
                        "{}: node {node} keeps state, so it is the head of its instance",
                        plan.name
                    );
                    head = Some(operator);
                    continue;
                }
            },
            StepKind::Combine => Step::Operator {
                operator: catalog.combiner(node)?,
                dead_letters: catalog.dead_letters(node),
            },
            StepKind::Sink {
                latency_target_ns,
                leaves_out,
            } => {
                let sink = catalog.sink(node, plan.index, plan.of)?;
                Step::Sink(SinkStep::new(sink, *latency_target_ns, leaves_out))
            }
            StepKind::Route { balancer, links } => {
                let route = ends.route(balancer, links);
                passes_on |= route.has_local;
                Step::Route(route.route)
            }
        };
        steps.push(PlacedStep {
            step,
            node,
            number,
            next: planned.next.clone(),
        });
    }
    let mut roots = plan.roots.clone();
    if head.is_some() {
        // The plan counts the head as step 0.
        roots = plan.steps[0].next.iter().map(|&step| step - 1).collect();
        let next = steps.iter_mut().flat_map(|placed| &mut placed.next);
        next.for_each(|step| *step -= 1);
    }
    let mut restored = None;
    let input = match (&plan.input, head) {
        (InputPlan::Source { node }, _) => {
            let parts = catalog.source(*node, plan.index, plan.of)?;
            let mut intake = Intake::new(parts.source, parts.intake, parts.dead_letters);
            intake.resume(parts.restored);
            intake.watch_out(parts.recorder, number, parts.suspects);
            if let Some(notices) = parts.notices {
                intake.notice(notices);
            }
            InstanceInput::Source(Box::new(intake))
        }
        (InputPlan::Ports(links), None) => {
            InstanceInput::Links(ends.ports(deployment, traits, links, None, |has_local| {
                passes_on || (has_local && passes_over_links(&steps))
            }))
        }
        (InputPlan::Ports(links), Some(mut operator)) => {
            let facts = operator.facts();
            let keeps = match operator.state() {
                Some(_) => facts.shares_input,
                None => passes_on,
            };
            let first = facts.first_input;
            let ports = ends.ports(deployment, traits, links, first, |has_local| {
                keeps || (has_local && passes_over_links(&steps))
            });
            if let Some(state) = operator.state() {
                traits.check_routes(plan, links, &facts);
                restored = restore(plan, state, &facts, catalog)?;
            }
            let node = plan.steps[0].node;
            InstanceInput::Head(ports, Head::new(operator, node, catalog.dead_letters(node)))
        }
    };
    let mut instance = Instance::new(
        plan.name.clone(),
        plan.index,
        input,
        steps,
        roots,
        deployment.chunk_rows,
        counters,
    );
    instance.resume(restored);
    Ok(instance)
}

/// Whether rows leave the instance over links.
fn passes_over_links(steps: &[PlacedStep]) -> bool {
    let mut steps = steps.iter();
    steps.any(|placed| matches!(placed.step, Step::Route(_)))
}

/// Gives the head the state that it had in a checkpoint; returns the watermark there.
fn restore(
    plan: &InstancePlan,
    state: &mut dyn KeyedState,
    facts: &Facts,
    catalog: &dyn Catalog,
) -> Result<Option<EventTime>> {
    if !plan.checkpointed {
        return Ok(None);
    }
    let node = plan.steps[0].node;
    let share = (!facts.is_replicated).then_some((plan.index, plan.of));
    let chains = catalog.restored(node, share)?;
    let owners = first_owners(plan.of);
    let own = BucketSet::of(|bucket| usize::from(owners[bucket]) == plan.index);
    let make = || match catalog.operator(node)? {
        Operator::Stateful(operator) => Ok(operator),
        Operator::Stateless(_) => Err(Error::new(&plan.name, "keeps state once, and then none")),
    };
    let watermark = checkpoint::restore(state, &make, chains, &own);
    watermark.map_err(|error| error.at(&plan.name))
}
