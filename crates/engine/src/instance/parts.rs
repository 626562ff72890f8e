//! What an instance is made of: its input, its head, and the steps after it.

use std::sync::Arc;

use crate::balancer::Route;
use crate::intake::Intake;
use crate::operator::{Stateful, Stateless};
use crate::ports::Ports;
use crate::sink_step::SinkStep;
use crate::source::DeadLetters;
use crate::time::EventTime;

/// Where an instance's rows come from.
pub enum InstanceInput {
    /// A source, which feeds the roots.
    Source(Box<Intake>),
    /// Links from other instances, which feed the roots.
    Links(Ports),
    /// Links from other instances into an operator that keeps state; what it emits feeds the roots.
    Head(Ports, Head),
}

impl InstanceInput {
    pub(super) fn ports(&mut self) -> Option<&mut Ports> {
        match self {
            InstanceInput::Source(_) => None,
            InstanceInput::Links(ports) | InstanceInput::Head(ports, _) => Some(ports),
        }
    }
}

/// The operator that the links of an instance lead to.
pub struct Head {
    pub(super) operator: Box<dyn Stateful>,
    /// The node of the query graph that it is.
    pub(super) node: usize,
    /// [`crate::operator::Facts::delay_us`].
    pub(super) delay_us: EventTime,
    pub(super) dead_letters: Arc<dyn DeadLetters>,
    /// A unit of work has ended, and no row has come since: the end of the input ends nothing more.
    pub(super) between_units: bool,
}

impl Head {
    /// The head that is `node` of the query graph; rows that it rejects go to `dead_letters`.
    pub fn new(
        operator: Box<dyn Stateful>,
        node: usize,
        dead_letters: Arc<dyn DeadLetters>,
    ) -> Head {
        Head {
            delay_us: operator.facts().delay_us,
            operator,
            node,
            dead_letters,
            between_units: false,
        }
    }
}

/// A step at its place in an instance.
pub struct PlacedStep {
    /// What happens there.
    pub step: Step,
    /// The node of the query graph that the step is.
    pub node: usize,
    /// The step's number in the plan, by which it is counted.
    pub number: usize,
    /// The steps that get its output, by their place in the instance.
    pub next: Vec<usize>,
}

/// What happens to rows at one place of an instance, after its head.
pub enum Step {
    /// An operator; its output goes to the steps `next`.
    Operator {
        /// The operator.
        operator: Box<dyn Stateless>,
        /// Where rows go that it rejects.
        dead_letters: Arc<dyn DeadLetters>,
    },
    /// Rows leave over links.
    Route(Route),
    /// Rows leave the engine.
    Sink(SinkStep),
}
