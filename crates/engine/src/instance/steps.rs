//! The way of rows and control messages through the steps of an instance: plain calls, from the head to the
//! leaves.

use super::{Control, Instance, InstanceInput, Step, Unfinished, isolate};
use crate::chunk::{Chunk, Message, Origin};
use crate::counters::InstanceCounters;
use crate::error::{Error, Result};
use crate::operator::Progress;
use crate::time::{MAX_WATERMARK, now_ns};

impl Instance {
    pub(super) fn chunk(&mut self, port: usize, chunk: Chunk) -> Result<()> {
        match &mut self.input {
            InstanceInput::Ports(_) => {
                self.deliver(0, port, chunk)?;
                self.rest()
            }
            InstanceInput::Source(_) => self.fan_out(&self.roots.clone(), chunk),
        }
    }

    /// Lets the head operator emit what its last `process` left.
    pub(super) fn rest(&mut self) -> Result<()> {
        let Step::Operator { operator, .. } = &mut self.steps[0].0 else {
            return Ok(());
        };
        let begin_ns = now_ns();
        if operator.rest(&mut self.output)? == Progress::More {
            self.unfinished = Some(Unfinished::Rest);
        }
        self.counters.steps[0].add_busy(now_ns() - begin_ns);
        self.emitted(0)
    }

    /// When its head operator wants to emit something.
    pub(super) fn head_due_ns(&self) -> Option<u64> {
        match (&self.input, self.steps.first()) {
            (InstanceInput::Ports(_), Some((Step::Operator { operator, .. }, _))) => {
                operator.due_ns()
            }
            _ => None,
        }
    }

    /// Lets the head operator emit what it wanted to emit at this time.
    pub(super) fn on_time(&mut self) -> Result<()> {
        let Step::Operator { operator, .. } = &mut self.steps[0].0 else {
            return Ok(());
        };
        let begin_ns = now_ns();
        // What waited for this time was not late before.
        self.output.ingest_ns = begin_ns;
        if operator.on_time(&mut self.output)? == Progress::More {
            self.unfinished = Some(Unfinished::OnTime);
        }
        self.counters.steps[0].add_busy(now_ns() - begin_ns);
        self.emitted(0)
    }

    pub(super) fn fan_out(&mut self, steps: &[usize], chunk: Chunk) -> Result<()> {
        let Some((last, others)) = steps.split_last() else {
            return Ok(());
        };
        for &step in others {
            self.deliver(step, 0, chunk.clone())?;
        }
        self.deliver(*last, 0, chunk)
    }

    pub(super) fn deliver(&mut self, index: usize, port: usize, chunk: Chunk) -> Result<()> {
        match &mut self.steps[index].0 {
            Step::Route(route) => {
                let (rows, begin_ns) = (chunk.rows() as u64, now_ns());
                route.chunk(chunk, &self.counters.steps[index])?;
                self.counters.steps[index].add(now_ns() - begin_ns, rows);
                Ok(())
            }
            Step::Sink(sink) => sink.write(&chunk, index, &self.counters),
            Step::Operator { operator, .. } => {
                self.output.ingest_ns = chunk.ingest_ns;
                let source = chunk.origin.as_ref().and_then(Origin::source);
                let (rows, begin_ns) = (chunk.rows() as u64, now_ns());
                let is_head = index == 0 && matches!(self.input, InstanceInput::Ports(_));
                match is_head && !operator.is_stateless() {
                    true => operator.process(port, chunk, &mut self.output)?,
                    false => isolate::process(operator.as_mut(), port, chunk, &mut self.output)?,
                }
                self.counters.steps[index].add(now_ns() - begin_ns, rows);
                let late_of = source.and_then(|source| self.counters.late_by_source.get(source));
                if let Some(late_of) = late_of {
                    InstanceCounters::add(late_of, self.output.rows_late);
                }
                self.emitted(index)
            }
        }
    }

    /// Hands on what the operator at `index` has put into the output.
    pub(super) fn emitted(&mut self, index: usize) -> Result<()> {
        InstanceCounters::add(
            &self.counters.rows_late,
            std::mem::take(&mut self.output.rows_late),
        );
        if !self.output.rejected.is_empty() {
            let rejected = std::mem::take(&mut self.output.rejected);
            InstanceCounters::add(&self.counters.rows_bad, rejected.len() as u64);
            let Step::Operator { dead_letters, .. } = &self.steps[index].0 else {
                unreachable!("only operators have an output")
            };
            rejected
                .iter()
                .try_for_each(|rejected| dead_letters.reject(rejected))?;
        }
        if self.output.chunks.is_empty() {
            return Ok(());
        }
        let chunks = std::mem::take(&mut self.output.chunks);
        let next = std::mem::take(&mut self.steps[index].1);
        let delivered = chunks
            .into_iter()
            .try_for_each(|chunk| self.fan_out(&next, chunk));
        self.steps[index].1 = next;
        delivered
    }

    /// A control message reaches the head and, once that is done with it, the steps behind it.
    pub(super) fn control(&mut self, control: Control) -> Result<()> {
        let roots = self.roots.clone();
        for &root in &roots {
            if self.advance(root, &control)? == Progress::More {
                assert!(
                    matches!(self.input, InstanceInput::Ports(_)),
                    "only the head of an instance with links may emit in pieces"
                );
                self.unfinished = Some(Unfinished::Control(control));
                return Ok(());
            }
        }
        roots
            .iter()
            .try_for_each(|&root| self.pass(root, &control))?;
        if let Control::End { stopped, .. } = control {
            (self.ended, self.is_whole) = (true, !stopped);
            for (step, _) in &mut self.steps {
                if let Step::Route(route) = step {
                    route.close();
                }
            }
            if let InstanceInput::Ports(ports) = &mut self.input {
                ports.close_relays();
            }
        }
        Ok(())
    }

    /// Lets the operator at `index` emit what the control message completes.
    fn advance(&mut self, index: usize, control: &Control) -> Result<Progress> {
        let Step::Operator { operator, .. } = &mut self.steps[index].0 else {
            return Ok(Progress::Done);
        };
        let (time, ingest_ns) = match *control {
            Control::Watermark { time, ingest_ns } => (time, ingest_ns),
            Control::EndOfWork { ingest_ns }
            | Control::End {
                ingest_ns,
                stopped: false,
            } => (MAX_WATERMARK, ingest_ns),
            Control::Idle
            | Control::Active
            | Control::Barrier(_)
            | Control::End { stopped: true, .. } => return Ok(Progress::Done),
        };
        self.output.ingest_ns = ingest_ns;
        let begin_ns = now_ns();
        let progress = operator.advance(time, &mut self.output)?;
        self.counters.steps[index].add_busy(now_ns() - begin_ns);
        self.emitted(index)?;
        Ok(progress)
    }

    /// Passes a control message through the step at `index` and on.
    fn pass(&mut self, index: usize, control: &Control) -> Result<()> {
        let is_root = self.roots.contains(&index);
        if !is_root && self.advance(index, control)? == Progress::More {
            return Err(Error::new(
                self.name.clone(),
                "a stateless operator asked to be called again",
            )
            .mend("an operator that answers More must be declared stateful"));
        }
        let mut delayed = None;
        match &mut self.steps[index].0 {
            Step::Route(route) => route.control(&match *control {
                Control::Watermark { time, ingest_ns } => Message::Watermark { time, ingest_ns },
                Control::Idle => Message::Idle,
                Control::Active => Message::Active,
                Control::Barrier(ref barrier) => Message::Barrier(barrier.clone()),
                Control::EndOfWork { ingest_ns } => Message::EndOfWork { ingest_ns },
                Control::End { ingest_ns, stopped } => Message::EndOfStream { ingest_ns, stopped },
            })?,
            Step::Sink(sink) => {
                if let Control::End { stopped, .. } = *control {
                    let node = self.nodes[index];
                    let prepared = sink.finish(index, node, stopped, &self.counters)?;
                    self.member.prepared.extend(prepared);
                }
            }
            Step::Operator { operator, .. } => {
                let end = matches!(
                    control,
                    Control::EndOfWork { .. } | Control::End { stopped: false, .. }
                );
                if end {
                    operator.finalise(&mut self.output)?;
                    self.emitted(index)?;
                }
                if let Step::Operator { operator, .. } = &mut self.steps[index].0 {
                    if let Control::EndOfWork { .. } = control {
                        operator.initialise()?;
                    }
                    delayed = control.delayed(operator.delay_us());
                }
            }
        }
        let control = delayed.as_ref().unwrap_or(control);
        let next = std::mem::take(&mut self.steps[index].1);
        let passed = next.iter().try_for_each(|&step| self.pass(step, control));
        self.steps[index].1 = next;
        passed
    }
}
