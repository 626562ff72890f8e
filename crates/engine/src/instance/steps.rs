//! The way of rows and control messages through an instance: from its input to the head, if it has one,
//! and from there by plain calls to the leaves.

use super::{Control, Head, Instance, InstanceInput, Step, Unfinished, isolate};
use crate::chunk::{Chunk, Message, Origin};
use crate::counters::InstanceCounters;
use crate::error::Result;
use crate::operator::{Output, Progress};
use crate::source::DeadLetters;
use crate::time::{MAX_WATERMARK, now_ns};

/// The step number that the head's counters have; each step's counters are at its own number.
const HEAD: usize = 0;

impl Instance {
    /// Takes a chunk that has come in by input `port`.
    pub(super) fn chunk(&mut self, port: usize, chunk: Chunk) -> Result<()> {
        let Instance {
            input: InstanceInput::Head(_, head),
            output,
            counters,
            laps,
            ..
        } = self
        else {
            // What a link brings took time before this.
            if self.input.ports().is_some() {
                self.laps.lap();
            }
            return self.feed_roots([chunk]);
        };
        output.ingest_ns = chunk.ingest_ns;
        let source = chunk.origin.as_ref().and_then(Origin::source);
        let rows = chunk.rows() as u64;
        laps.lap();
        head.between_units = false;
        head.operator.process(port, chunk, output)?;
        counters.steps[HEAD].add(laps.lap(), rows);
        count_late(counters, source, output.rows_late);
        self.emitted_by_head()?;
        self.rest()
    }

    /// Lets the head emit what its last `process` left.
    pub(super) fn rest(&mut self) -> Result<()> {
        self.let_head(Unfinished::Rest, |head, output| head.operator.rest(output))
    }

    /// When the head next has something to emit by the clock.
    pub(super) fn head_due_ns(&mut self) -> Option<u64> {
        self.head()?.operator.timer()?.due_ns()
    }

    /// Lets the head emit what is due.
    pub(super) fn on_time(&mut self) -> Result<()> {
        // Rows that waited for this time were not delayed by the engine before it.
        self.output.ingest_ns = now_ns();
        self.let_head(Unfinished::OnTime, |head, output| {
            match head.operator.timer() {
                Some(timer) => timer.on_time(output),
                None => Ok(Progress::Done),
            }
        })
    }

    /// Lets the head emit something; if more remains, `left` is what is left to do.
    fn let_head(
        &mut self,
        left: Unfinished,
        emit: impl FnOnce(&mut Head, &mut Output) -> Result<Progress>,
    ) -> Result<()> {
        let Instance {
            input: InstanceInput::Head(_, head),
            output,
            counters,
            unfinished,
            laps,
            ..
        } = self
        else {
            return Ok(());
        };
        laps.lap();
        if emit(head, output)? == Progress::More {
            *unfinished = Some(left);
        }
        counters.steps[HEAD].add_busy(laps.lap());
        self.emitted_by_head()
    }

    /// Forwards what the head has put into the output.
    fn emitted_by_head(&mut self) -> Result<()> {
        let InstanceInput::Head(_, head) = &self.input else {
            return Ok(());
        };
        let chunks = take_output(&mut self.output, &self.counters, &*head.dead_letters)?;
        self.feed_roots(chunks)
    }

    /// Hands chunks to the steps that get the instance's input, or the output of its head.
    fn feed_roots(&mut self, chunks: impl IntoIterator<Item = Chunk>) -> Result<()> {
        let roots = std::mem::take(&mut self.roots);
        let mut chunks = chunks.into_iter();
        let fed = chunks.try_for_each(|chunk| self.fan_out(&roots, chunk));
        self.roots = roots;
        fed
    }

    fn fan_out(&mut self, steps: &[usize], chunk: Chunk) -> Result<()> {
        let Some((last, others)) = steps.split_last() else {
            return Ok(());
        };
        for &step in others {
            self.deliver(step, chunk.clone())?;
        }
        self.deliver(*last, chunk)
    }

    fn deliver(&mut self, index: usize, chunk: Chunk) -> Result<()> {
        let placed = &mut self.steps[index];
        let number = placed.number;
        match &mut placed.step {
            Step::Route(route) => {
                let rows = chunk.rows() as u64;
                route.chunk(chunk, &self.counters.steps[number])?;
                self.counters.steps[number].add(self.laps.lap(), rows);
                Ok(())
            }
            Step::Sink(sink) => sink.write(&chunk, number, &self.counters, &mut self.laps),
            Step::Operator {
                operator,
                dead_letters,
            } => {
                self.output.ingest_ns = chunk.ingest_ns;
                let source = chunk.origin.as_ref().and_then(Origin::source);
                let rows = chunk.rows() as u64;
                isolate::process(operator.as_mut(), chunk, &mut self.output)?;
                self.counters.steps[number].add(self.laps.lap(), rows);
                count_late(&self.counters, source, self.output.rows_late);
                let chunks = take_output(&mut self.output, &self.counters, &**dead_letters)?;
                self.deliver_next(index, chunks)
            }
            Step::FirstPhase(first_phase) => {
                let rows = chunk.rows() as u64;
                first_phase.process(chunk, &mut self.output)?;
                self.counters.steps[number].add(self.laps.lap(), rows);
                let chunks = std::mem::take(&mut self.output.chunks);
                self.deliver_next(index, chunks)
            }
        }
    }

    /// Hands chunks to the steps after the one at `index`.
    fn deliver_next(&mut self, index: usize, chunks: Vec<Chunk>) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let next = std::mem::take(&mut self.steps[index].next);
        let mut chunks = chunks.into_iter();
        let delivered = chunks.try_for_each(|chunk| self.fan_out(&next, chunk));
        self.steps[index].next = next;
        delivered
    }

    /// Gives a control message to the head and, once the head is done with it, to the steps after it.
    pub(super) fn control(&mut self, control: Control) -> Result<()> {
        match control {
            Control::Watermark { time, .. } => self.counters.set_watermark(time),
            Control::Idle | Control::End { .. } => self.counters.set_silent(true),
            Control::Active => self.counters.set_silent(false),
            Control::Barrier(_) | Control::EndOfWork { .. } => {}
        }
        if self.advance(&control)? == Progress::More {
            self.unfinished = Some(Unfinished::Control(control));
            return Ok(());
        }
        if self.let_go(&control)? == Progress::More {
            self.unfinished = Some(Unfinished::Control(control));
            return Ok(());
        }
        let delayed = self.leave_head(&control)?;
        let passed_on = delayed.as_ref().unwrap_or(&control);
        let roots = std::mem::take(&mut self.roots);
        let passed = roots
            .iter()
            .try_for_each(|&root| self.pass(root, passed_on));
        self.roots = roots;
        passed?;
        if let Control::End { stopped, .. } = control {
            (self.ended, self.is_whole) = (true, !stopped);
            for placed in &mut self.steps {
                if let Step::Route(route) = &mut placed.step {
                    route.close();
                }
            }
            if let Some(ports) = self.input.ports() {
                ports.close_relays();
            }
        }
        Ok(())
    }

    /// Lets first phases emit what must not be behind the control message.
    fn let_go(&mut self, control: &Control) -> Result<Progress> {
        let watermark = match *control {
            Control::Watermark { time, .. } => Some(time),
            Control::Active => return Ok(Progress::Done),
            Control::Idle
            | Control::Barrier(_)
            | Control::EndOfWork { .. }
            | Control::End { .. } => None,
        };
        for index in 0..self.steps.len() {
            let placed = &mut self.steps[index];
            let Step::FirstPhase(first_phase) = &mut placed.step else {
                continue;
            };
            self.laps.lap();
            let progress = first_phase.let_go(watermark, &mut self.output)?;
            self.counters.steps[placed.number].add_busy(self.laps.lap());
            let chunks = std::mem::take(&mut self.output.chunks);
            self.deliver_next(index, chunks)?;
            if progress == Progress::More {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    /// Lets the head emit what the control message completes.
    fn advance(&mut self, control: &Control) -> Result<Progress> {
        let Instance {
            input: InstanceInput::Head(_, head),
            output,
            counters,
            laps,
            ..
        } = self
        else {
            return Ok(Progress::Done);
        };
        let (time, ingest_ns) = match *control {
            Control::Watermark { time, ingest_ns } => (time, ingest_ns),
            Control::End { stopped: false, .. } if head.between_units => return Ok(Progress::Done),
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
        output.ingest_ns = ingest_ns;
        laps.lap();
        let progress = head.operator.advance(time, output)?;
        counters.steps[HEAD].add_busy(laps.lap());
        self.emitted_by_head()?;
        Ok(progress)
    }

    /// Ends the head's unit of work if the control message does that; returns a different message for the
    /// steps after the head, if they get one.
    fn leave_head(&mut self, control: &Control) -> Result<Option<Control>> {
        if control.ends_unit() {
            self.copy_all_slices()?;
        }
        let InstanceInput::Head(_, head) = &mut self.input else {
            return Ok(None);
        };
        let delayed = control.delayed(head.delay_us);
        let is_unit = matches!(control, Control::EndOfWork { .. });
        if matches!(control, Control::End { .. })
            && let Some(state) = head.operator.state()
        {
            // No barrier comes after the end.
            self.member.keeps_state = state.publish(u64::MAX);
        }
        if is_unit || control.ends_unit() && !head.between_units {
            head.operator.end_unit(&mut self.output)?;
            head.between_units = is_unit;
            self.emitted_by_head()?;
        }
        Ok(delayed)
    }

    /// Passes a control message through the step at `index` and on.
    fn pass(&mut self, index: usize, control: &Control) -> Result<()> {
        let placed = &mut self.steps[index];
        match &mut placed.step {
            Step::Route(route) => {
                let message = match *control {
                    Control::Watermark { time, ingest_ns } => {
                        Message::Watermark { time, ingest_ns }
                    }
                    Control::Idle => Message::Idle,
                    Control::Active => Message::Active,
                    Control::Barrier(ref barrier) => Message::Barrier(barrier.clone()),
                    Control::EndOfWork { ingest_ns } => Message::EndOfWork { ingest_ns },
                    Control::End { ingest_ns, stopped } => {
                        Message::EndOfStream { ingest_ns, stopped }
                    }
                };
                route.control(&message, &self.counters.steps[placed.number])?;
            }
            Step::Sink(sink) => {
                if let Control::End { stopped, .. } = *control {
                    let (number, node) = (placed.number, placed.node);
                    let prepared = sink.finish(number, node, stopped, &self.counters)?;
                    self.member.prepared.extend(prepared);
                }
            }
            Step::Operator { operator, .. } => {
                if let Control::EndOfWork { .. } = control {
                    operator.begin_unit()?;
                }
            }
            Step::FirstPhase(_) => {}
        }
        let next = std::mem::take(&mut placed.next);
        let passed = next.iter().try_for_each(|&step| self.pass(step, control));
        self.steps[index].next = next;
        passed
    }
}

/// Counts rows that were late at an operator for the source that they came from, if it is known.
fn count_late(counters: &InstanceCounters, source: Option<usize>, rows: u64) {
    if rows == 0 {
        return;
    }
    if let Some(late_of) = source.and_then(|source| counters.late_by_source.get(source)) {
        InstanceCounters::add(late_of, rows);
    }
}

/// Takes the chunks that an operator has emitted, and counts and stores those that it has rejected.
fn take_output(
    output: &mut Output,
    counters: &InstanceCounters,
    dead_letters: &dyn DeadLetters,
) -> Result<Vec<Chunk>> {
    if output.rows_late > 0 {
        InstanceCounters::add(&counters.rows_late, std::mem::take(&mut output.rows_late));
    }
    if !output.rejected.is_empty() {
        let rejected = std::mem::take(&mut output.rejected);
        InstanceCounters::add(&counters.rows_bad, rejected.len() as u64);
        rejected
            .iter()
            .try_for_each(|rejected| dead_letters.reject(rejected))?;
    }
    Ok(std::mem::take(&mut output.chunks))
}

#[cfg(test)]
mod tests;
