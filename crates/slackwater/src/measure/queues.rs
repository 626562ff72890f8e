//! Links inside a process: queues of owned messages between two threads.
//!
//! Messages of 64 bytes go by value. Larger ones are buffers: whoever sends fills one, whoever
//! receives reads it and, in a stream, gives it back through the queue of the other direction, so
//! that nothing is allocated while it is measured.

use slackwater_link::{Receiver, Sender, Waiter, channel};

use super::RING_BYTES;
use super::order::{Order, Pattern, Waiting};
use super::side::{Aligned, LINE, Side, poll_only, read_lines};

/// The number of messages that a queue holds.
pub const CAPACITY: usize = 1024;

/// A message that travels by value, alone in its cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Small(pub [u8; LINE]);

/// A message that travels by its address.
pub type Large = Box<Aligned>;

/// The writing end of a queue.
pub trait Sending<M> {
    /// Puts a message in, or hands it back.
    fn put(&mut self, message: M) -> Result<(), M>;
    /// Wakes the reader if it sleeps.
    fn ring(&self) {}
}

/// The reading end of a queue.
pub trait Receiving<M> {
    /// Takes the oldest message out.
    fn take(&mut self) -> Option<M>;
}

impl<M: Send> Sending<M> for Sender<M> {
    #[inline]
    fn put(&mut self, message: M) -> Result<(), M> {
        self.post(message).map_err(|error| error.into_message())
    }

    #[inline]
    fn ring(&self) {
        Sender::ring(self);
    }
}

impl<M: Send> Receiving<M> for Receiver<M> {
    #[inline]
    fn take(&mut self) -> Option<M> {
        self.receive()
    }
}

/// The four ends of one side.
pub struct Ends<SS, SR, LS, LR> {
    /// Small messages out.
    pub small_out: SS,
    /// Small messages in.
    pub small_in: SR,
    /// Large messages out.
    pub large_out: LS,
    /// Large messages in.
    pub large_in: LR,
}

/// One side of queues to and fro.
pub struct QueueSide<SS, SR, LS, LR> {
    ends: Ends<SS, SR, LS, LR>,
    /// Where this side sleeps; without it, it can only poll.
    waiter: Option<Waiter>,
    is_small: bool,
    gives_back: bool,
    leads: bool,
    source: Aligned,
    /// Buffers that can be filled.
    spare: Vec<Large>,
}

/// A side of this program's own link.
pub type LinkSide = QueueSide<Sender<Small>, Receiver<Small>, Sender<Large>, Receiver<Large>>;

impl LinkSide {
    /// Creates both sides: the leader's and the follower's.
    pub fn pair() -> Result<(LinkSide, LinkSide), String> {
        let waiter = || Waiter::new().map_err(|error| error.to_string());
        let (ours, theirs) = (waiter()?, waiter()?);
        let (our_waker, their_waker) = (ours.waker(), theirs.waker());
        let out = || (their_waker.clone(), our_waker.clone());
        let home = || (our_waker.clone(), their_waker.clone());
        let (small_out, their_small_in) = channel_of(out());
        let (their_small_out, small_in) = channel_of(home());
        let (large_out, their_large_in) = channel_of(out());
        let (their_large_out, large_in) = channel_of(home());
        let leader = Ends {
            small_out,
            small_in,
            large_out,
            large_in,
        };
        let follower = Ends {
            small_out: their_small_out,
            small_in: their_small_in,
            large_out: their_large_out,
            large_in: their_large_in,
        };
        Ok((
            QueueSide::new(leader, Some(ours), true),
            QueueSide::new(follower, Some(theirs), false),
        ))
    }
}

fn channel_of<M: Send>(
    (reader, writer): (slackwater_link::Waker, slackwater_link::Waker),
) -> (Sender<M>, Receiver<M>) {
    channel(CAPACITY, reader, writer)
}

impl<SS, SR, LS, LR> QueueSide<SS, SR, LS, LR> {
    /// Creates the leader's side or the follower's.
    pub fn new(
        ends: Ends<SS, SR, LS, LR>,
        waiter: Option<Waiter>,
        leads: bool,
    ) -> QueueSide<SS, SR, LS, LR> {
        QueueSide {
            ends,
            waiter,
            is_small: true,
            gives_back: false,
            leads,
            source: Aligned::new(LINE),
            spare: Vec::new(),
        }
    }
}

impl<SS, SR, LS, LR> Side for QueueSide<SS, SR, LS, LR>
where
    SS: Sending<Small>,
    SR: Receiving<Small>,
    LS: Sending<Large>,
    LR: Receiving<Large>,
{
    fn supports(&self, order: &Order) -> Result<(), String> {
        match (order.waiting, &self.waiter) {
            (Waiting::Interrupt, None) => poll_only(order),
            _ => Ok(()),
        }
    }

    fn prepare(&mut self, order: &Order) -> Result<(), String> {
        self.is_small = order.size_bytes == LINE;
        self.gives_back = !self.leads && order.pattern == Pattern::Stream;
        if self.is_small {
            return Ok(());
        }
        // Buffers that were given back too late for the previous order.
        while self.ends.large_in.take().is_some() {}
        self.source = Aligned::new(order.size_bytes);
        // Together as large as a ring of bytes. The follower only sends back what it has received.
        let buffers = match self.leads {
            true => (RING_BYTES / order.size_bytes).clamp(2, CAPACITY / 2),
            false => 0,
        };
        self.spare.clear();
        self.spare
            .extend((0..buffers).map(|_| Box::new(Aligned::new(order.size_bytes))));
        Ok(())
    }

    #[inline]
    fn send(&mut self, number: u64) -> Result<bool, String> {
        if self.is_small {
            let mut message = Small([0x5a; LINE]);
            message.0[..8].copy_from_slice(&number.to_le_bytes());
            return Ok(self.ends.small_out.put(message).is_ok());
        }
        let spare = self.spare.pop().or_else(|| self.ends.large_in.take());
        let Some(mut message) = spare else {
            return Ok(false);
        };
        message.copy_from_slice(&self.source);
        message[..8].copy_from_slice(&number.to_le_bytes());
        match self.ends.large_out.put(message) {
            Ok(()) => Ok(true),
            Err(message) => {
                self.spare.push(message);
                Ok(false)
            }
        }
    }

    #[inline]
    fn push(&mut self) -> Result<(), String> {
        if self.is_small {
            self.ends.small_out.ring();
        } else {
            self.ends.large_out.ring();
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<u64>, String> {
        if self.is_small {
            let message = self.ends.small_in.take();
            return message.map(|message| read_lines(&message.0)).transpose();
        }
        let Some(message) = self.ends.large_in.take() else {
            return Ok(None);
        };
        let number = read_lines(&message)?;
        if self.gives_back && number != u64::MAX {
            if self.ends.large_out.put(message).is_err() {
                return Err("more buffers come back than were sent".to_string());
            }
            self.ends.large_out.ring();
        } else {
            self.spare.push(message);
        }
        Ok(Some(number))
    }

    fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_ref()
    }
}
