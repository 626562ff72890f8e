//! rtrb: a ring between two threads, which the link inside a process is compared with.

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::measure::queues::{CAPACITY, Ends, Large, QueueSide, Receiving, Sending, Small};

pub struct Out<M>(Producer<M>);
pub struct In<M>(Consumer<M>);

impl<M> Sending<M> for Out<M> {
    #[inline]
    fn put(&mut self, message: M) -> Result<(), M> {
        let pushed = self.0.push(message);
        pushed.map_err(|PushError::Full(message)| message)
    }
}

impl<M> Receiving<M> for In<M> {
    #[inline]
    fn take(&mut self) -> Option<M> {
        self.0.pop().ok()
    }
}

pub type Side = QueueSide<Out<Small>, In<Small>, Out<Large>, In<Large>>;

fn ring<M>() -> (Out<M>, In<M>) {
    let (out, input) = RingBuffer::new(CAPACITY);
    (Out(out), In(input))
}

/// The leader's side and the follower's. A ring has no way to wake its reader.
pub fn pair() -> (Side, Side) {
    let (small_out, their_small_in) = ring();
    let (their_small_out, small_in) = ring();
    let (large_out, their_large_in) = ring();
    let (their_large_out, large_in) = ring();
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
    (
        QueueSide::new(leader, None, true),
        QueueSide::new(follower, None, false),
    )
}
