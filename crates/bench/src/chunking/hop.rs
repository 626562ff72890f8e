//! The two sides of a hop: blocks in one direction, acknowledgements in the other.
//!
//! Invariants:
//! - A producer sends a block to a consumer only within the consumer's window, and lanes have room for a
//!   window and more, so no lane stays full for long.
//! - A consumer acknowledges a block when it starts to process it. The acknowledgements of a step are
//!   sent together at its end.
//! - Nothing here waits. Before a stage sleeps it pushes whatever could not be sent before, and settles
//!   what it left unread.

use slackwater_link::{Frame, FrameReceiver, FrameSender, SendError};

use super::demand::Demand;
use super::ends::{Ends, Kept};
use super::frame::{Piece, acknowledged};
use super::order::{COPIES, LANES};

/// Steps between two pushes of everything that could not be sent before, in a stage that never sleeps: by
/// then a socket that was full has room again. Each push of a TCP link is a system call.
const STEPS_PER_PUSH: u32 = 16;

/// A socket often takes only a part of a block of this size, and the rest has to wait: from this size on
/// everything is pushed at each step.
const IN_PARTS_BYTES_MIN: usize = 64 << 10;

/// The producers' side.
pub struct Outputs {
    /// Lanes from each producer to each consumer: `producer * COPIES + consumer`.
    lanes: Vec<FrameSender<Piece>>,
    /// Lanes with a block that was not pushed.
    fresh: [bool; LANES],
    /// Steps since everything was pushed, and after how many it is pushed again.
    steps: u32,
    steps_max: u32,
    acks: FrameReceiver,
    /// The state of each producer's consumers.
    demands: [Demand; COPIES],
    _kept: Kept,
}

impl Outputs {
    /// The outputs for the ends to the next stage.
    pub fn new(ends: Ends, block_bytes: usize) -> Result<Outputs, String> {
        let mut receivers = ends.receivers;
        let acks = receivers
            .pop()
            .ok_or("there is no lane for acknowledgements")?;
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

    /// Receives acknowledgements; returns whether there were any.
    pub fn take_acks(&mut self) -> Result<bool, String> {
        let mut some = false;
        while let Some(frame) = self.acks.receive().map_err(|error| error.to_string())? {
            for &byte in &*frame {
                let (producer, consumer) = acknowledged(byte)?;
                if !self.demands[producer].acknowledged(consumer) {
                    return Err("received an acknowledgement of a block that was not sent".into());
                }
            }
            some = true;
        }
        match self.acks.is_closed() {
            true => Err("the next stage has disconnected".to_string()),
            false => Ok(some),
        }
    }

    /// Whether this producer may send a block.
    pub fn has_room(&self, producer: usize) -> bool {
        self.demands[producer].choose().is_some()
    }

    /// Sends a block of this producer to the consumer with the fewest unacknowledged ones; returns the
    /// block if all windows are used up.
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
                Err(
                    error.map_or("the next stage has disconnected".to_string(), |e| {
                        e.to_string()
                    }),
                )
            }
        }
    }

    /// Pushes what was sent, and wakes the next stage. Before a sleep, and now and then, this looks at
    /// all lanes that could have something left.
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

    /// When to look again without being woken.
    pub fn due_ns(&self) -> Option<u64> {
        let dues = self.lanes.iter().filter_map(FrameSender::due_ns);
        dues.chain(self.acks.due_ns()).min()
    }
}

/// The consumers' side.
pub struct Inputs {
    /// Lanes from each producer to each consumer: `producer * COPIES + consumer`.
    lanes: Vec<FrameReceiver>,
    acks: FrameSender<Piece>,
    /// Lanes of the blocks that were started and are not acknowledged yet.
    started: Vec<u8>,
    /// The producer whose block each consumer looks for next.
    next: [usize; COPIES],
    _kept: Kept,
}

impl Inputs {
    /// The inputs for the ends to the previous stage.
    pub fn new(ends: Ends) -> Result<Inputs, String> {
        let mut senders = ends.senders;
        let acks = senders
            .pop()
            .ok_or("there is no lane for acknowledgements")?;
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

    /// The next block for this consumer, which starts to process it.
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
                return Err("the previous stage has disconnected".to_string());
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
                    // The previous stage reads them at every step, and wakes this one when there is room.
                    let bytes = note.iter().flat_map(|piece| piece.iter().copied());
                    self.started = bytes.collect();
                }
                Err(SendError::Closed(_)) => {
                    return Err("the previous stage has disconnected".to_string());
                }
            }
        }
        if stale {
            self.acks.push(false);
        }
        Ok(())
    }

    /// Before a sleep with unread blocks: tells producers about everything that was read.
    pub fn settle(&mut self) {
        self.lanes.iter_mut().for_each(FrameReceiver::settle);
    }

    /// When to look again without being woken.
    pub fn due_ns(&self) -> Option<u64> {
        let dues = self.lanes.iter().filter_map(FrameReceiver::due_ns);
        dues.chain(self.acks.due_ns()).min()
    }
}
