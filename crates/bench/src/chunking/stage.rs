//! The stages, and the loop that runs them: a worker's loop, with one thread for the three copies.
//!
//! ```text
//! viewer ── requests ──► source ══ blocks ══► filter ══► filter ══► viewer
//!                          ◄── acknowledgements ──┘  ◄────┘  ◄───────┘
//! ```
//!
//! A stage processes one block at a time for each of its copies, in turn, and waits by interrupt:
//! announce, look, sleep. It reads the clock before each look at its links, so a due query waits for one
//! block at most.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use slackwater_engine::time::now_ns;
use slackwater_link::{FrameReceiver, FrameSender, Listen, SendError, Sources, Waiter};

use super::ends::Kept;
use super::frame::{Head, Piece, Request};
use super::hop::{Inputs, Outputs};
use super::image::{Cut, Image, LINE, check};
use super::order::{COPIES, Seen};
use super::queries::Schedule;
use super::tally::Tally;
use super::work::burn;

/// Queries that the source serves at once; the viewer does not send more.
const SERVED_MAX: usize = 2048;

/// A stage of the pipeline.
pub enum Stage {
    /// The source holds the image.
    Source(Source),
    /// A filter computes.
    Filter(Filter),
    /// The viewer sends queries and receives their answers.
    Viewer(Box<Viewer>),
}

impl Stage {
    /// Does the available work, at most a block for each copy; returns whether there was any.
    /// `before_sleep` makes it look at everything that could wake it.
    pub fn step(&mut self, now_ns: u64, before_sleep: bool) -> Result<bool, String> {
        match self {
            Stage::Source(source) => source.step(before_sleep),
            Stage::Filter(filter) => filter.step(before_sleep),
            Stage::Viewer(viewer) => viewer.step(now_ns, before_sleep),
        }
    }

    /// When to look again without being woken.
    fn due_ns(&self) -> Option<u64> {
        match self {
            Stage::Source(source) => source
                .outputs
                .due_ns()
                .into_iter()
                .chain(source.requests.due_ns())
                .min(),
            Stage::Filter(filter) => {
                let dues = [filter.inputs.due_ns(), filter.outputs.due_ns()];
                dues.into_iter().flatten().min()
            }
            Stage::Viewer(viewer) => {
                let dues = [
                    viewer.inputs.due_ns(),
                    viewer.requests.due_ns(),
                    viewer.schedule.due_ns(),
                ];
                dues.into_iter().flatten().min()
            }
        }
    }
}

/// Runs a stage until it fails. `turn` is called with the time before each step, and returns the latest
/// time at which it must be called again.
pub fn run(
    stage: &mut Stage,
    waiter: &Waiter,
    mut turn: impl FnMut(&Stage, u64) -> Result<u64, String>,
) -> Result<(), String> {
    loop {
        let now_ns = now_ns();
        let wanted_ns = turn(stage, now_ns)?;
        if stage.step(now_ns, false)? {
            continue;
        }
        waiter.announce(Listen::Everything);
        if stage.step(self::now_ns(), true)? {
            waiter.retract();
            continue;
        }
        let due_ns = stage
            .due_ns()
            .map_or(wanted_ns, |due_ns| due_ns.min(wanted_ns));
        let timeout = Duration::from_nanos(due_ns.saturating_sub(self::now_ns()));
        let woken = waiter.wait(Some(timeout), Sources::All);
        woken.map_err(|error| error.to_string())?;
    }
}

/// A query that a copy of the source is serving.
struct Served {
    query: u64,
    /// Blocks that are left to send; every third of them belongs to this copy.
    blocks: Range<usize>,
}

/// The data source: each copy holds every third block, and serves its queries in turn, a block each.
pub struct Source {
    image: Arc<Image>,
    cut: Cut,
    requests: FrameReceiver,
    _kept: Kept,
    outputs: Outputs,
    served: [VecDeque<Served>; COPIES],
}

impl Source {
    /// A source that receives queries through `requests`.
    pub fn new(
        cut: Cut,
        image_bytes: usize,
        requests: FrameReceiver,
        kept: Kept,
        outputs: Outputs,
    ) -> Source {
        Source {
            image: Arc::new(Image::new(image_bytes)),
            cut,
            requests,
            _kept: kept,
            outputs,
            served: Default::default(),
        }
    }

    fn step(&mut self, before_sleep: bool) -> Result<bool, String> {
        let mut worked = self.outputs.take_acks()?;
        while let Some(frame) = self.requests.receive().map_err(|error| error.to_string())? {
            let request = Request::decode(&frame, self.cut.blocks())?;
            for (copy, served) in self.served.iter_mut().enumerate() {
                let first = first_of_copy(request.blocks.start, copy);
                if first < request.blocks.end {
                    served.push_back(Served {
                        query: request.query,
                        blocks: first..request.blocks.end,
                    });
                }
                if served.len() > SERVED_MAX {
                    return Err(format!(
                        "the source has more than {SERVED_MAX} queries to serve"
                    ));
                }
            }
            worked = true;
        }
        if self.requests.is_closed() {
            return Err("the viewer has disconnected".to_string());
        }
        for copy in 0..COPIES {
            worked |= self.serve(copy)?;
        }
        self.outputs.push(before_sleep);
        Ok(worked)
    }

    fn serve(&mut self, copy: usize) -> Result<bool, String> {
        if !self.outputs.has_room(copy) {
            return Ok(false);
        }
        let Some(mut served) = self.served[copy].pop_front() else {
            return Ok(false);
        };
        let pixels = self.cut.bytes_of(served.blocks.start);
        let head = Head {
            query: served.query,
            offset: pixels.start as u64,
        };
        let block = vec![
            Piece::Head(head.encode()),
            Piece::Pixels(Arc::clone(&self.image), pixels),
        ];
        if self.outputs.send(copy, block)?.is_some() {
            // Created again when there is room: no pixels were copied.
            self.served[copy].push_front(served);
            return Ok(false);
        }
        served.blocks.start += COPIES;
        if served.blocks.start < served.blocks.end {
            self.served[copy].push_back(served);
        }
        Ok(true)
    }
}

/// The first block from here on that belongs to a copy of the source.
fn first_of_copy(block: usize, copy: usize) -> usize {
    block + (copy + COPIES - block % COPIES) % COPIES
}

/// A filter: computes on each block, and sends it on.
pub struct Filter {
    inputs: Inputs,
    outputs: Outputs,
    rounds_per_byte: f64,
    /// A block of each copy that waits for room in its output.
    waiting: [Option<Vec<Piece>>; COPIES],
}

impl Filter {
    /// A filter between two stages.
    pub fn new(inputs: Inputs, outputs: Outputs, rounds_per_byte: f64) -> Filter {
        Filter {
            inputs,
            outputs,
            rounds_per_byte,
            waiting: Default::default(),
        }
    }

    fn step(&mut self, before_sleep: bool) -> Result<bool, String> {
        let mut worked = self.outputs.take_acks()?;
        for copy in 0..COPIES {
            worked |= self.step_copy(copy)?;
        }
        self.outputs.push(before_sleep);
        self.inputs.push(before_sleep)?;
        if before_sleep && !worked && self.waiting.iter().any(Option::is_some) {
            self.inputs.settle();
        }
        Ok(worked)
    }

    fn step_copy(&mut self, copy: usize) -> Result<bool, String> {
        if let Some(block) = self.waiting[copy].take() {
            self.waiting[copy] = self.outputs.send(copy, block)?;
            // While a block waits for room the copy takes no input: this is the whole back-pressure.
            return Ok(self.waiting[copy].is_none());
        }
        let Some(frame) = self.inputs.receive(copy)? else {
            return Ok(false);
        };
        if self.rounds_per_byte > 0.0 {
            let pixels = frame.len().saturating_sub(LINE);
            burn((pixels as f64 * self.rounds_per_byte) as u64);
        }
        self.waiting[copy] = self.outputs.send(copy, vec![Piece::Block(frame)])?;
        Ok(true)
    }
}

/// The viewer: sends queries when they are due, and receives their answers.
pub struct Viewer {
    inputs: Inputs,
    requests: FrameSender<Piece>,
    _kept: Kept,
    schedule: Schedule,
    tally: Tally,
    /// A request that waits for room in its output.
    waiting: Option<Vec<Piece>>,
}

impl Viewer {
    /// A viewer at the end of the pipeline.
    pub fn new(
        inputs: Inputs,
        requests: FrameSender<Piece>,
        kept: Kept,
        schedule: Schedule,
        tally: Tally,
    ) -> Viewer {
        Viewer {
            inputs,
            requests,
            _kept: kept,
            schedule,
            tally,
            waiting: None,
        }
    }

    /// The measurements, once no more answers are waited for.
    pub fn seen(&self, now_ns: u64) -> Option<Seen> {
        self.tally.seen(now_ns)
    }

    fn step(&mut self, now_ns: u64, before_sleep: bool) -> Result<bool, String> {
        let mut worked = false;
        for copy in 0..COPIES {
            let Some(frame) = self.inputs.receive(copy)? else {
                continue;
            };
            worked = true;
            let (head, pixels) = Head::split(&frame)?;
            if !check(pixels, head.offset as usize) {
                return Err(format!(
                    "received other pixels than those from offset {} on",
                    head.offset
                ));
            }
            if !self.tally.came(head.query, pixels.len(), self::now_ns()) {
                return Err(format!(
                    "received a block that query {} did not request",
                    head.query
                ));
            }
        }
        worked |= self.ask(now_ns)?;
        self.inputs.push(before_sleep)?;
        if before_sleep && self.requests.needs_push() {
            self.requests.push(false);
        }
        Ok(worked)
    }

    fn ask(&mut self, now_ns: u64) -> Result<bool, String> {
        let mut asked = false;
        loop {
            let request = match self.waiting.take() {
                Some(request) => request,
                None => {
                    let Some(query) = self.schedule.next(now_ns, self.tally.under_way()) else {
                        break;
                    };
                    let id = self.tally.ask(&query);
                    if query.left_out {
                        continue;
                    }
                    let request = Request {
                        query: id,
                        blocks: query.blocks,
                    };
                    vec![Piece::Note(request.encode())]
                }
            };
            match self.requests.post(request) {
                Ok(()) => asked = true,
                Err(SendError::Full(request)) => {
                    self.waiting = Some(request);
                    break;
                }
                Err(SendError::Closed(_)) => return Err("the source has disconnected".to_string()),
            }
        }
        if asked {
            self.requests.push(false);
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_held_by_one_copy() {
        for start in 0..7 {
            let mut firsts = (0..COPIES).map(|copy| first_of_copy(start, copy));
            let mut all = firsts.clone().collect::<Vec<_>>();
            all.sort_unstable();
            assert_eq!(all, [start, start + 1, start + 2]);
            assert!(firsts.all(|first| first >= start));
        }
        assert_eq!(first_of_copy(4, 1), 4);
        assert_eq!(first_of_copy(4, 0), 6);
    }
}
