//! The two sides of a hop: blocks one way, acknowledgements the other way.
//!
//! Invariants:
//! - A block leaves for a consumer only within its window, and lanes have room for a window and
//!   more, so no lane is ever full for long.
//! - A consumer acknowledges a block when it starts on it. Acknowledgements of a step leave
//!   together at its end.
//! - Nothing here waits. Before a stage sleeps it pushes whatever may be moved on, and settles what
//!   it left unread.

use slackwater_link::{Frame, FrameReceiver, FrameSender, SendError};

use super::demand::Demand;
use super::ends::{Ends, Kept};
use super::frame::{Piece, acknowledged};
use super::order::{COPIES, LANES};

/// Steps between two pushes of everything that may be moved on, in a stage that never sleeps: a
/// socket that was full takes more by then. Each push of a TCP link is a system call.
const STEPS_PER_PUSH: u32 = 16;

/// A socket often takes only a part of such a block, and the rest is waited for: from here on
/// everything is pushed at each step.
const IN_PARTS_BYTES_MIN: usize = 64 << 10;

/// The producers' side.
pub struct Outputs {
    /// From each producer to each consumer: `producer * COPIES + consumer`.
    lanes: Vec<FrameSender<Piece>>,
    /// Lanes with a block that was not pushed.
    fresh: [bool; LANES],
    /// Since everything was pushed, and after how many it is to be again.
    steps: u32,
    steps_max: u32,
    acks: FrameReceiver,
    /// Of each producer.
    demands: [Demand; COPIES],
    _kept: Kept,
}

impl Outputs {
    /// Of the ends towards the next stage.
    pub fn new(ends: Ends, block_bytes: usize) -> Result<Outputs, String> {
        let mut receivers = ends.receivers;
        let acks = receivers.pop().ok_or("no lane for acknowledgements")?;
        assert_eq!(
            ends.senders.len(),
            LANES,
            "a lane from each copy to each copy"
        );
        Ok(Outputs {
            lanes: ends.senders,
            fresh: [false; LANES],
            steps: 0,
            steps_max: if block_bytes >= IN_PARTS_BYTES_MIN {
                1
            } else {
                STEPS_PER_PUSH
            },
            acks,
            demands: Default::default(),
            _kept: ends.kept,
        })
    }

    /// Takes the acknowledgements that have come; whether there were some.
    pub fn take_acks(&mut self) -> Result<bool, String> {
        let mut some = false;
        while let Some(frame) = self.acks.receive().map_err(|error| error.to_string())? {
            for &byte in &*frame {
                let (producer, consumer) = acknowledged(byte)?;
                if !self.demands[producer].acknowledged(consumer) {
                    return Err("an acknowledgement of a block that was not sent arrived".into());
                }
            }
            some = true;
        }
        match self.acks.is_closed() {
            true => Err("the next stage has left".to_string()),
            false => Ok(some),
        }
    }

    /// Whether this producer may send a block.
    pub fn has_room(&self, producer: usize) -> bool {
        self.demands[producer].choose().is_some()
    }

    /// Sends a block of this producer to whichever consumer has the fewest; hands it back when all
    /// have enough.
    pub fn send(
        &mut self,
        producer: usize,
        block: Vec<Piece>,
    ) -> Result<Option<Vec<Piece>>, String> {
        let Some(consumer) = self.demands[producer].choose() else {
            return Ok(Some(block));
        };
        let lane = producer * COPIES + consumer;
        match self.lanes[lane].post(block) {
            Ok(()) => {
                self.demands[producer].sent(consumer);
                self.fresh[lane] = true;
                Ok(None)
            }
            Err(SendError::Full(block)) => {
                self.fresh[lane] = true;
                Ok(Some(block))
            }
            Err(SendError::Closed(_)) => {
                let error = self.lanes[lane].error();
                Err(error.map_or("the next stage has left".to_string(), |e| e.to_string()))
            }
        }
    }

    /// Moves on what was sent, and rings the next stage. All lanes that could have something left
    /// are looked at before a sleep, and now and then.
    pub fn push(&mut self, before_sleep: bool) {
        self.steps += 1;
        let all = before_sleep || self.steps >= self.steps_max;
        if all {
            self.steps = 0;
        }
        for (lane, fresh) in self.lanes.iter_mut().zip(&mut self.fresh) {
            if std::mem::take(fresh) || (all && lane.needs_push()) {
                lane.push(false);
            }
        }
    }

    /// When to look again though nobody rings.
    pub fn due_ns(&self) -> Option<u64> {
        let dues = self.lanes.iter().filter_map(FrameSender::due_ns);
        dues.chain(self.acks.due_ns()).min()
    }
}

/// The consumers' side.
pub struct Inputs {
    /// From each producer to each consumer: `producer * COPIES + consumer`.
    lanes: Vec<FrameReceiver>,
    acks: FrameSender<Piece>,
    /// Blocks that were started on, to be acknowledged: a lane each.
    started: Vec<u8>,
    /// The producer whose block each consumer looks for next.
    next: [usize; COPIES],
    _kept: Kept,
}

impl Inputs {
    /// Of the ends towards the stage before.
    pub fn new(ends: Ends) -> Result<Inputs, String> {
        let mut senders = ends.senders;
        let acks = senders.pop().ok_or("no lane for acknowledgements")?;
        assert_eq!(
            ends.receivers.len(),
            LANES,
            "a lane from each copy to each copy"
        );
        Ok(Inputs {
            lanes: ends.receivers,
            acks,
            started: Vec::new(),
            next: [0; COPIES],
            _kept: ends.kept,
        })
    }

    /// The next block for this consumer, which starts on it.
    pub fn receive(&mut self, consumer: usize) -> Result<Option<Frame>, String> {
        for _ in 0..COPIES {
            let producer = self.next[consumer];
            self.next[consumer] = (producer + 1) % COPIES;
            let lane = producer * COPIES + consumer;
            let receiver = &mut self.lanes[lane];
            if let Some(frame) = receiver.receive().map_err(|error| error.to_string())? {
                self.started.push(lane as u8);
                return Ok(Some(frame));
            }
            if receiver.is_closed() {
                return Err("the stage before has left".to_string());
            }
        }
        Ok(None)
    }

    /// Sends the acknowledgements of this step.
    pub fn push(&mut self, before_sleep: bool) -> Result<(), String> {
        let mut stale = before_sleep && self.acks.needs_push();
        if !self.started.is_empty() {
            stale = true;
            let note = Piece::Note(std::mem::take(&mut self.started));
            match self.acks.post(vec![note]) {
                Ok(()) => {}
                Err(SendError::Full(note)) => {
                    // The stage before reads them at every step, and rings when there is room.
                    let bytes = note.iter().flat_map(|piece| piece.iter().copied());
                    self.started = bytes.collect();
                }
                Err(SendError::Closed(_)) => return Err("the stage before has left".to_string()),
            }
        }
        if stale {
            self.acks.push(false);
        }
        Ok(())
    }

    /// Before a sleep with blocks left unread: producers are told of all that was read.
    pub fn settle(&mut self) {
        self.lanes.iter_mut().for_each(FrameReceiver::settle);
    }

    /// When to look again though nobody rings.
    pub fn due_ns(&self) -> Option<u64> {
        let dues = self.lanes.iter().filter_map(FrameReceiver::due_ns);
        dues.chain(self.acks.due_ns()).min()
    }
}
