//! Instances: one copy of a subquery, run by one worker.
//!
//! An instance is an input (a source's intake, or the links of its ports, which may lead into a stateful
//! operator, its head), a tree of steps (stateless operators that call each other, with sinks and
//! outgoing links at the leaves), and one rule: it takes no further input while a link or a sink is full.
//! That rule is the back-pressure.
//!
//! `instance/steps.rs` has the way of rows and control messages through the steps; `instance/cut.rs` and
//! `instance/checkpoint.rs` what an instance does at a barrier.

mod checkpoint;
mod control;
mod cut;
mod isolate;
mod parts;
mod slices;
mod steps;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use slackwater_link::Waiter;

use crate::balancer::Route;
use crate::barrier::{Barrier, Handover};
use crate::budget::{Budget, Share};
use crate::counters::InstanceCounters;
use crate::error::Result;
use crate::intake::Waiting;
use crate::operator::Output;
use crate::ports::Input;
pub use crate::sink_step::{SinkResult, SinkStep};
use crate::time::{Laps, now_ns};
use checkpoint::Member;
use control::Control;
use cut::Cut;
pub use cut::Notice;
pub use parts::{Head, InstanceInput, PlacedStep, Step};

/// The most inputs that one step takes. Instances of a worker get their turn by time ([`STEP_NS_MAX`]); this
/// bounds what is sent before a reader is woken.
const INPUTS_PER_STEP: usize = 32;

/// A step that has worked for this long takes no further input: an instance that needs much time for a
/// chunk would otherwise delay one of the same worker that deals chunks to others, which then wait for it.
const STEP_NS_MAX: u64 = 2_000_000;

/// One copy of a subquery.
pub struct Instance {
    name: String,
    /// The instance's number among the instances of its subquery.
    index: usize,
    input: InstanceInput,
    steps: Vec<PlacedStep>,
    /// The steps that get the input, or the output of the head.
    roots: Vec<usize>,
    output: Output,
    /// Work that the head has not finished; it comes before any further input.
    unfinished: Option<Unfinished>,
    /// Barriers that the source is to send.
    requested: VecDeque<Barrier>,
    /// The barrier that the instance stands at until it has received all state for it.
    cut: Option<Cut>,
    /// State that arrived before its barrier: at most one for each other instance of the subquery.
    early: Vec<(Handover, Vec<RecordBatch>)>,
    notices: Vec<Notice>,
    /// The instance's checkpointing state.
    member: Member,
    /// How much the operators may hold, and this instance's share.
    budget: Arc<Budget>,
    share: Share,
    counters: Arc<InstanceCounters>,
    /// When the last step ended.
    laps: Laps,
    ended: bool,
    /// Whether it has ended normally, because its inputs ended: the query was not stopped, and no sender
    /// was lost.
    is_whole: bool,
}

/// Work that the head operator has not finished.
enum Unfinished {
    /// The rest of its last `process`.
    Rest,
    /// A control message.
    Control(Control),
    /// Rows that are due at a certain time.
    OnTime,
}

/// How an instance that waits treats its worker's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptors {
    /// A descriptor may be what the instance waits for.
    Wanted,
    /// The instance waits for links, which wake it. What a descriptor brings (a peer that takes bytes
    /// again, a link to another host) can wait as long as a source of the same worker lingers.
    Either,
    /// The instance lingers: what descriptors bring can wait until then.
    Unwanted,
}

/// The result of one step of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// The instance did something, or has more to do.
    Worked,
    /// The instance copied a slice of its state, and may have done more. What was written so far should
    /// leave before the next slice: until the last one, the worker always has something to do.
    Copied,
    /// There is nothing to do until a link, a descriptor or a waker wakes the instance, or until this
    /// time.
    Waits {
        /// The time, on the engine's clock.
        until_ns: Option<u64>,
        /// How it treats the worker's descriptors.
        descriptors: Descriptors,
    },
    /// The instance has ended.
    Ended,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Instance").field(&self.name).finish()
    }
}

impl Instance {
    /// An instance that is not open yet. `roots` are the steps that get the input, or the output of the
    /// head.
    pub fn new(
        name: String,
        index: usize,
        input: InstanceInput,
        steps: Vec<PlacedStep>,
        roots: Vec<usize>,
        chunk_rows: usize,
        counters: Arc<InstanceCounters>,
    ) -> Instance {
        Instance {
            name,
            index,
            input,
            steps,
            roots,
            output: Output::new(chunk_rows),
            unfinished: None,
            requested: VecDeque::new(),
            cut: None,
            early: Vec::new(),
            notices: Vec::new(),
            member: Member::default(),
            budget: Arc::default(),
            share: Share::default(),
            counters,
            laps: Laps::now(),
            ended: false,
            is_whole: false,
        }
    }

    /// The instance's name for messages: `aggregate 3 [1/2]`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens sinks and source and begins the first unit of work.
    pub fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        for placed in &mut self.steps {
            match &mut placed.step {
                Step::Operator { operator, .. } => operator.begin_unit()?,
                Step::Sink(sink) => sink.open(waiter)?,
                Step::FirstPhase(_) | Step::Route(_) => {}
            }
        }
        match &mut self.input {
            InstanceInput::Source(intake) => intake.open(waiter),
            InstanceInput::Links(_) | InstanceInput::Head(..) => Ok(()),
        }
    }

    /// Ends the source's input; rows that are already on their way are still processed.
    pub fn stop(&mut self) {
        if let InstanceInput::Source(intake) = &mut self.input {
            intake.stop();
        }
    }

    /// Does a bounded amount of work; `laps` are the worker's.
    pub fn step(&mut self, laps: &mut Laps) -> Result<Stepped> {
        laps.begin();
        self.laps = *laps;
        let has_copied = self.copy_slice()?;
        let stepped = self.take_inputs();
        let settled = self.settle_routes();
        let stepped = match stepped.and_then(|stepped| settled.map(|()| stepped)) {
            Ok(Stepped::Worked | Stepped::Waits { .. }) if has_copied => Ok(Stepped::Copied),
            stepped => stepped,
        };
        *laps = self.laps;
        for placed in &mut self.steps {
            if let Step::Route(route) = &mut placed.step {
                route.ring();
            }
        }
        if let Some(ports) = self.input.ports() {
            ports.ring_relays();
        }
        stepped
    }

    fn take_inputs(&mut self) -> Result<Stepped> {
        let mut worked = false;
        let begin_ns = self.laps.last_ns();
        for _ in 0..INPUTS_PER_STEP {
            if self.laps.last_ns().saturating_sub(begin_ns) > STEP_NS_MAX {
                break;
            }
            if self.is_blocked() {
                worked |= self.flush_routes()? > 0;
            }
            if self.ended {
                return if self.is_drained() {
                    Ok(Stepped::Ended)
                } else {
                    self.waits(worked)
                };
            }
            if self.cut.is_some() || self.is_blocked() || !self.sinks_ready()? {
                if let Some(ports) = self.input.ports()
                    && !worked
                {
                    ports.settle_links();
                }
                return self.waits(worked);
            }
            if let Some(unfinished) = self.unfinished.take() {
                match unfinished {
                    Unfinished::Rest => self.rest()?,
                    Unfinished::Control(control) => self.control(control)?,
                    Unfinished::OnTime => self.on_time()?,
                }
                worked = true;
                continue;
            }
            if let Some(barrier) = self.requested.pop_front() {
                self.reach(barrier)?;
                worked = true;
                continue;
            }
            let head_due_ns = self.head_due_ns();
            if head_due_ns.is_some_and(|due_ns| due_ns <= now_ns()) {
                self.on_time()?;
                worked = true;
                continue;
            }
            let input = match &mut self.input {
                InstanceInput::Links(ports) | InstanceInput::Head(ports, _) => {
                    match ports.next_input()? {
                        Some(input) => input,
                        None => return self.waits_until(worked, head_due_ns, Descriptors::Either),
                    }
                }
                InstanceInput::Source(intake) => {
                    let next = intake.next_input();
                    if let Ok(Ok(Input::Chunk { chunk, .. })) = &next {
                        let busy_ns = self.laps.lap();
                        self.counters.source.add(busy_ns, chunk.rows() as u64);
                    }
                    // Rows read before a failure count, and so does the one that failed.
                    if let Some(counts) = intake.take_counts() {
                        InstanceCounters::add(&self.counters.rows_in, counts.rows_in);
                        InstanceCounters::add(&self.counters.rows_bad, counts.rows_bad);
                        let helped = counts.helped;
                        self.counters.helped(helped.threads, helped.busy_ns);
                        let lost = counts.connections_lost;
                        InstanceCounters::add(&self.counters.connections_lost, lost);
                        if counts.rows_in > 0 {
                            self.has_read();
                        }
                    }
                    match next? {
                        Ok(input) => input,
                        Err(Waiting::ForSource(until_ns)) => {
                            return self.waits_until(worked, until_ns, Descriptors::Wanted);
                        }
                        Err(Waiting::Until(0)) => continue,
                        Err(Waiting::Until(time_ns)) => {
                            return self.waits_until(worked, Some(time_ns), Descriptors::Unwanted);
                        }
                    }
                }
            };
            worked = true;
            match input {
                Input::Chunk { port, chunk } => {
                    InstanceCounters::add(&self.counters.chunks, 1);
                    self.chunk(port, chunk)?;
                    self.look_at_memory();
                }
                Input::Watermark { time, ingest_ns } => {
                    self.control(Control::Watermark { time, ingest_ns })?;
                    self.look_at_memory();
                    self.laps.lap();
                }
                Input::Idle => self.control(Control::Idle)?,
                Input::Active => self.control(Control::Active)?,
                Input::Barrier(barrier) => self.reach(barrier)?,
                Input::EndOfWork { ingest_ns } => self.control(Control::EndOfWork { ingest_ns })?,
                Input::End { ingest_ns, stopped } => {
                    self.control(Control::End { ingest_ns, stopped })?;
                }
                // Ends without telling the steps after it: links close without an end message, so that
                // the loss travels on, and `close` discards what the sinks wrote.
                Input::Lost => self.ended = true,
            }
        }
        Ok(Stepped::Worked)
    }

    /// Makes its operators and its source keep to this budget.
    pub fn keep_to(&mut self, budget: &Arc<Budget>) {
        self.budget = Arc::clone(budget);
        if let InstanceInput::Source(intake) = &mut self.input {
            intake.keep_to(budget);
        }
    }

    /// Measures, now and then, how much the head operator holds.
    fn look_at_memory(&mut self) {
        // A source has no head.
        if matches!(self.input, InstanceInput::Source(_)) {
            return;
        }
        let begin_ns = now_ns();
        if !self.share.is_due(begin_ns) {
            return;
        }
        let bytes = match (&self.input, self.steps.first().map(|placed| &placed.step)) {
            (InstanceInput::Head(_, head), _) => head.operator.bytes(),
            (_, Some(Step::Operator { operator, .. })) => operator.bytes(),
            (_, Some(Step::FirstPhase(first_phase))) => first_phase.bytes(),
            _ => return,
        };
        let bytes = bytes as u64;
        self.counters.state_bytes.store(bytes, Ordering::Relaxed);
        let most = &self.counters.state_bytes_max;
        most.store(most.load(Ordering::Relaxed).max(bytes), Ordering::Relaxed);
        if self.share.note(&self.budget, bytes, begin_ns, now_ns()) {
            self.notices.push(Notice::OverBudget {
                held: self.budget.held(),
                limit: self.budget.limit(),
            });
        }
    }

    fn waits(&mut self, worked: bool) -> Result<Stepped> {
        self.waits_until(worked, None, Descriptors::Wanted)
    }

    fn waits_until(
        &mut self,
        worked: bool,
        until_ns: Option<u64>,
        descriptors: Descriptors,
    ) -> Result<Stepped> {
        // Messages that links have taken may have to be sent before the worker sleeps.
        if worked || self.flush_routes()? > 0 {
            return Ok(Stepped::Worked);
        }
        Ok(Stepped::Waits {
            until_ns: until_ns.into_iter().chain(self.due_ns()).min(),
            descriptors,
        })
    }

    fn routes(&self) -> impl Iterator<Item = &Route> {
        self.steps.iter().filter_map(|placed| match &placed.step {
            Step::Route(route) => Some(route),
            _ => None,
        })
    }

    /// When to look at the links even if nothing wakes the worker.
    fn due_ns(&self) -> Option<u64> {
        let inputs = match &self.input {
            InstanceInput::Links(ports) | InstanceInput::Head(ports, _) => ports.due_ns(),
            InstanceInput::Source(_) => None,
        };
        let outputs = self.routes().filter_map(Route::due_ns).min();
        let slices = self.member.open.as_ref().and_then(|open| open.due_ns);
        inputs.into_iter().chain(outputs).chain(slices).min()
    }

    /// Sends what routes keep to split it together.
    fn settle_routes(&mut self) -> Result<()> {
        for placed in &mut self.steps {
            if let Step::Route(route) = &mut placed.step {
                let counters = &self.counters.steps[placed.number];
                if route.settle(counters)? {
                    counters.add_busy(self.laps.lap());
                }
            }
        }
        Ok(())
    }

    fn flush_routes(&mut self) -> Result<usize> {
        let mut sent = 0;
        for placed in &mut self.steps {
            if let Step::Route(route) = &mut placed.step {
                sent += route.flush()?;
            }
        }
        if let Some(ports) = self.input.ports() {
            sent += ports.flush_relays()?;
        }
        Ok(sent)
    }

    fn is_drained(&self) -> bool {
        let handed_on = match &self.input {
            InstanceInput::Links(ports) | InstanceInput::Head(ports, _) => ports.is_drained(),
            InstanceInput::Source(_) => true,
        };
        handed_on && !self.has_open_snapshot() && self.routes().all(Route::is_drained)
    }

    fn is_blocked(&self) -> bool {
        self.routes().any(Route::is_blocked)
    }

    fn sinks_ready(&mut self) -> Result<bool> {
        for placed in &mut self.steps {
            if let Step::Sink(sink) = &mut placed.step
                && !sink.ready()?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Flushes what sinks have buffered; called before the worker waits, with its laps.
    pub fn flush(&mut self, laps: &mut Laps) -> Result<()> {
        for placed in &mut self.steps {
            if let Step::Sink(sink) = &mut placed.step {
                sink.flush(placed.number, &self.counters, laps)?;
            }
        }
        Ok(())
    }

    /// Whether it has ended normally, because its inputs ended: the query was not stopped with windows
    /// open, and no sender was lost.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Releases everything; sinks that have not ended discard what they wrote. Returns what the sinks
    /// measured.
    pub fn close(&mut self) -> Vec<SinkResult> {
        if let InstanceInput::Source(intake) = &mut self.input {
            intake.close();
        }
        let mut results = Vec::new();
        for placed in &mut self.steps {
            if let Step::Sink(sink) = &mut placed.step {
                results.push(sink.close(placed.node));
            }
        }
        results
    }
}
