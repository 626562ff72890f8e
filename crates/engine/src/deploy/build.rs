//! Turns a deployment into instances: links get their ends, and each instance its source, head and steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use slackwater_link::{Waker, channel};

use super::{
    Adopted, Built, Catalog, Deployment, FirstPhases, InputPlan, InstancePlan, LINK_MESSAGES_MAX,
    LinkSide, RemoteEnds, SourcePart, StepKind,
};
use crate::balancer::{BalancerPlan, Route, first_owners};
use crate::checkpoint;
use crate::counters::{InstanceCounters, LinkCounters};
use crate::error::{Error, Result};
use crate::exchange::fan::Fan;
use crate::exchange::relay::Relay;
use crate::exchange::{LinkReceiver, LinkSender};
use crate::instance::{Head, Instance, InstanceInput, PlacedStep, SinkStep, Step};
use crate::intake::Intake;
use crate::operator::{Facts, Operator};
use crate::ports::{Port, Ports};
use crate::state::{BucketSet, KeyedState};
use crate::time::EventTime;

/// Builds the part of a deployment that `process` runs. `waker_of` makes the waker of an instance, given
/// by number.
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

/// What receivers need to know about their links.
struct Traits<'d> {
    /// The links on which receivers acknowledge the chunks that they take.
    acknowledged: HashSet<usize>,
    /// The key columns of links that belong to a keyed route.
    keyed: HashMap<usize, &'d [usize]>,
    /// The result of [`Deployment::hearing`].
    hearing: Vec<usize>,
}

impl Traits<'_> {
    /// Whether the senders of these links receive from the same sources.
    fn are_in_step(&self, deployment: &Deployment, links: &[usize]) -> bool {
        let mut heard = links
            .iter()
            .map(|&link| self.hearing[deployment.links[link].from]);
        let first = heard.next();
        heard.all(|number| Some(number) == first)
    }

    /// Checks that rows reach the instance that holds their state; otherwise state that moves or is
    /// restored would be lost to them.
    fn check_routes(&self, plan: &InstancePlan, ports: &[Vec<usize>], facts: &Facts) {
        for (input, links) in ports.iter().enumerate() {
            let placed_by = facts.placed_by.get(input).and_then(Option::as_deref);
            for link in links {
                let routed_by = self.keyed.get(link).copied();
                assert!(
                    routed_by.is_none() && (plan.instances == 1 || placed_by.is_none())
                        || routed_by == placed_by,
                    "{}: input {input} is routed by {routed_by:?}, but its state is placed by {placed_by:?}",
                    plan.name
                );
            }
        }
    }
}

/// The ends of links that have not been taken yet.
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
        // The readers of a feed after its first one.
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
                    counters.resize(link.message_bytes);
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

    /// The relay that forwards what comes by a link, if there is one.
    fn relay(&mut self, deployment: &Deployment, link: usize) -> Option<Relay> {
        let mut relays = deployment.relays.iter();
        let plan = relays.find(|relay| relay.link == link)?;
        Some(Relay::new(self.fan(&plan.links)))
    }

    /// The receiving ends of `links`, by input; `first` is the input that is read before all others.
    /// `keeps_rows` says whether rows that come by a link may stay in this process, in the instance's
    /// state or in a queue that it passes them to, which would keep the link's ring from moving on. It is
    /// told whether the link is relayed to other instances of this process: these are of the same
    /// subquery and keep rows if this one does. A relay to other processes may also keep rows inside this
    /// one.
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
    let mut adopted = adopted(plan, catalog);
    let has_state = adopted.is_some();
    let mut restored = adopted.as_ref().and_then(|adopted| adopted.watermark);
    for (number, planned) in plan.steps.iter().enumerate() {
        let node = planned.node;
        let of_step = adopted.take_if(|_| number == 0);
        let step = match &planned.kind {
            StepKind::Operator => match operator(node, of_step, catalog)? {
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
            kind @ (StepKind::Combine | StepKind::FirstPhase) => {
                let holds = matches!(kind, StepKind::FirstPhase);
                match catalog.first_phase(node, holds)? {
                    FirstPhases::OfChunk(operator) => Step::Operator {
                        operator,
                        dead_letters: catalog.dead_letters(node),
                    },
                    FirstPhases::Held(first_phase) => {
                        // What it keeps must not stay in a ring.
                        passes_on = true;
                        Step::FirstPhase(first_phase)
                    }
                }
            }
            StepKind::Sink { leaves_out, .. } => {
                let sink = catalog.sink(node, plan.index, plan.instances)?;
                Step::Sink(SinkStep::new(sink, leaves_out))
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
    assert!(
        head.is_none()
            || !steps
                .iter()
                .any(|placed| matches!(placed.step, Step::FirstPhase(_))),
        "{}: what holds rows back has no operator with state before it",
        plan.name
    );
    if head.is_some() {
        // The plan counts the head as step 0.
        roots = plan.steps[0].next.iter().map(|&step| step - 1).collect();
        let next = steps.iter_mut().flat_map(|placed| &mut placed.next);
        next.for_each(|step| *step -= 1);
    }
    let input = match (&plan.input, head) {
        (&InputPlan::Source { node, parsers }, _) => {
            let part = SourcePart {
                instance: plan.index,
                instances: plan.instances,
                here: deployment.instances_beside(node, plan.worker),
                parsers,
            };
            let parts = catalog.source(node, part)?;
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
                if !has_state {
                    restored = restore(plan, state, &facts, catalog)?;
                }
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

/// The head of an instance, if it is there with its state.
fn adopted(plan: &InstancePlan, catalog: &dyn Catalog) -> Option<Adopted> {
    let head = plan.steps.first().filter(|_| plan.checkpointed)?;
    let is_head = matches!(
        (&head.kind, &plan.input),
        (StepKind::Operator, InputPlan::Ports(_))
    );
    is_head
        .then(|| catalog.adopted(head.node, plan.index, plan.instances))
        .flatten()
}

/// The operator of a step: the one that was adopted for it, or a new one.
fn operator(node: usize, adopted: Option<Adopted>, catalog: &dyn Catalog) -> Result<Operator> {
    match adopted {
        Some(adopted) => Ok(Operator::Stateful(adopted.operator)),
        None => catalog.operator(node),
    }
}

/// Restores the head's state from a checkpoint; returns the watermark there.
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
    let share = (!facts.is_replicated).then_some((plan.index, plan.instances));
    let chains = catalog.restored(node, share)?;
    let owners = first_owners(plan.instances);
    let own = BucketSet::of(|bucket| usize::from(owners[bucket]) == plan.index);
    let make = || match catalog.operator(node)? {
        Operator::Stateful(operator) => Ok(operator),
        Operator::Stateless(_) => Err(Error::new(
            &plan.name,
            "is stateful as a plan and stateless as an operator",
        )),
    };
    let watermark = checkpoint::restore(state, &make, chains, &own);
    watermark.map_err(|error| error.at(&plan.name))
}
