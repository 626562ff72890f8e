//! The parts of an instance: its input, its head, and the steps after it.

use std::sync::Arc;

use crate::balancer::Route;
use crate::intake::Intake;
use crate::operator::aggregate::FirstPhase;
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
    /// Links from other instances into an operator that keeps state; its output feeds the roots.
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
    /// The operator's node in the query graph.
    pub(super) node: usize,
    /// The [`crate::operator::Facts::delay_us`] of the operator.
    pub(super) delay_us: EventTime,
    pub(super) dead_letters: Arc<dyn DeadLetters>,
    /// Whether a unit of work has ended and no row has come since: the end of the input then ends no
    /// unit.
    pub(super) between_units: bool,
}

impl Head {
    /// The head for `node` of the query graph; rows that it rejects go to `dead_letters`.
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
    /// The step's node in the query graph.
    pub node: usize,
    /// The step's number in the plan; its counters have the same number.
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
        /// Where rows that it rejects go.
        dead_letters: Arc<dyn DeadLetters>,
    },
    /// Rows of an aggregation are held back in groups; these go to the steps `next`.
    FirstPhase(Box<FirstPhase>),
    /// Rows leave over links.
    Route(Route),
    /// Rows leave the engine.
    Sink(SinkStep),
}
