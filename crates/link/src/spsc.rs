//! The link inside a process: a bounded ring of owned messages, one writer, one reader, no copy.
//!
//! Positions count messages from the start and wrap with `usize`; a slot is `position & mask`. `tail` is
//! the writer's (messages committed), `head` the reader's (messages taken out), and `tail - head` is
//! between 0 and the capacity. A slot holds a message exactly when its position is in `head..tail`.
//!
//! Invariants:
//! - The writer alone writes slots outside `head..tail`, the reader alone moves messages out of slots
//!   inside it. Each moves its own position only after it is done with the slot (Release), and touches a
//!   slot only after it has seen the other's position (Acquire). So both never touch a slot at once.
//! - Each side keeps a copy of the other's position and loads the shared one only when the copy says
//!   "full" or "empty": the two cores then share a cache line once a lap and not once a message. The two
//!   positions are 128 bytes apart, because cores fetch lines in pairs.
//! - Back-pressure: a writer that finds the ring full notes in `wanted` the head that it waits for, looks
//!   once more, and hands the message back. The reader that gets there clears the note and wakes the
//!   writer. This is announce, look, sleep again, and needs the same fences
//!   (`docs/internals/waiting.md`). The reader's fence comes once after everything that it takes, not
//!   with each message: when it finds nothing left, or [settles](Receiver::settle) because it stops
//!   earlier. The note is a position and not a flag, so that a reader that saw one refusal can't clear
//!   the note of the next.
//!
//! Shutdown: dropping the sender or the receiver marks it as gone and wakes the other side. A dropped
//! receiver drops what is left in the ring at once; what a sender commits at the same time is dropped
//! with the ring, by the side that goes last.
//!
//! The ideas are those of the index queue of iceoryx2 and of Agrona's ring buffers.

use std::fmt;
use std::mem::MaybeUninit;

use crate::doorbell::Waker;
use crate::error::SendError;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, UnsafeCell, fence};

/// The most messages that a link may hold: 2^20 slots of a 64-byte message are 64 MiB, more than
/// any plan wants between two instances. A larger number is a bug in the planner.
pub const CAPACITY_MAX: usize = 1 << 20;

/// A value in its own pair of cache lines, so that one core's stores don't take the line from the other.
#[repr(align(128))]
struct Padded<T>(T);

struct Ring<T> {
    /// The number of messages committed. Written by the sender.
    tail: Padded<AtomicUsize>,
    /// The number of messages taken out. Written by the receiver.
    head: Padded<AtomicUsize>,
    /// The head at which a refused sender wants to be woken, as a [`note`]; [`NOTHING`] if it wants no
    /// wake-up. In a line of its own: the receiver reads it with each message, and it changes only when
    /// the ring is full.
    wanted: Padded<AtomicUsize>,
    sender_gone: AtomicBool,
    receiver_gone: AtomicBool,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    reader: Waker,
    writer: Waker,
}

/// The value of `wanted` for a sender that was not refused.
const NOTHING: usize = 0;

/// A position as it is written in `wanted`: never [`NOTHING`]. The top bit is lost, but two notes are
/// compared by their distance, which is less than [`CAPACITY_MAX`].
fn note(position: usize) -> usize {
    position << 1 | 1
}

// SAFETY: messages go from the sender's thread to the receiver's (hence `T: Send`), never are two
// threads at one slot (the first invariant of this module), and no `&T` is shared, so `T: Sync`
// is not needed. All other fields are `Sync` themselves.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above; the ring owns its messages, which are `Send`.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // SAFETY: `channel` makes at least one slot, and a power of two of them, so the mask keeps the
        // index in bounds. The compiler doesn't know that, and a check here would cost a tenth of the
        // total cost of a message.
        unsafe {
            self.slots
                .get_unchecked(position & self.slots.len().wrapping_sub(1))
        }
    }

    /// Moves the message out of a slot.
    ///
    /// # Safety
    ///
    /// `position` is in `head..tail`, the caller is the reader (or the last owner) and has seen that
    /// `tail` with Acquire, and it moves `head` past the position before it reads again.
    unsafe fn take(&self, position: usize) -> T {
        self.slot(position).with(|slot| {
            // SAFETY: by the caller's contract, the slot holds a message and nobody else touches it.
            unsafe { (*slot).assume_init_read() }
        })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Both ends are gone, and the reference count's last decrement has acquired everything that they
        // did, so plain loads are enough.
        let mut head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: this is the last owner, and `head` moves on below. A message whose drop panics
            // leaks the ones after it, which is allowed, and drops none twice.
            drop(unsafe { self.take(head) });
            head = head.wrapping_add(1);
        }
    }
}

/// Makes a link that holds at least `capacity` messages (rounded up to a power of two).
///
/// `reader` is woken when a message or the sender's end arrives, `writer` when there is room again after
/// [`SendError::Full`], and when the receiver is gone.
///
/// # Panics
///
/// For a capacity of zero or above [`CAPACITY_MAX`], which is a bug in the caller.
pub fn channel<T: Send>(capacity: usize, reader: Waker, writer: Waker) -> (Sender<T>, Receiver<T>) {
    channel_from(0, capacity, reader, writer)
}

/// A link whose positions start at `start`: tests begin just before they wrap.
fn channel_from<T: Send>(
    start: usize,
    capacity: usize,
    reader: Waker,
    writer: Waker,
) -> (Sender<T>, Receiver<T>) {
    assert!(
        (1..=CAPACITY_MAX).contains(&capacity),
        "a link of {capacity} messages, not between 1 and {CAPACITY_MAX}"
    );
    let slots = (0..capacity.next_power_of_two())
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    let ring = Arc::new(Ring {
        tail: Padded(AtomicUsize::new(start)),
        head: Padded(AtomicUsize::new(start)),
        wanted: Padded(AtomicUsize::new(NOTHING)),
        sender_gone: AtomicBool::new(false),
        receiver_gone: AtomicBool::new(false),
        slots,
        reader,
        writer,
    });
    let sender = Sender {
        ring: Arc::clone(&ring),
        tail: start,
        head_seen: start,
    };
    let receiver = Receiver {
        ring,
        head: start,
        tail_seen: start,
    };
    (sender, receiver)
}

/// The writing end of a link. Dropping it is the end of the stream.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    /// The ring's `tail`, which only this end moves.
    tail: usize,
    /// The ring's `head` when last read: the real one is this or further.
    head_seen: usize,
}

impl<T> Sender<T> {
    /// Puts a message into the link and wakes the reader if it has announced its sleep.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] and [`SendError::Closed`] hand the message back.
    pub fn send(&mut self, message: T) -> Result<(), SendError<T>> {
        self.post(message)?;
        self.ring();
        Ok(())
    }

    /// Puts a message into the link without waking the reader, for a sender that has more to send and
    /// calls [`Sender::ring`] once after all of it, before it waits. A reader that is awake finds the
    /// message anyway; one that sleeps is woken once instead of once per message.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`]. After [`SendError::Full`] the caller must ring, too: the reader may be asleep
    /// while the messages fill the link.
    #[inline]
    pub fn post(&mut self, message: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError::Closed(message));
        }
        if self.is_full() && !self.look_for_room() {
            return Err(SendError::Full(message));
        }
        self.ring.slot(self.tail).with_mut(|slot| {
            // SAFETY: not full, so the position is outside `head..tail`, and `head_seen` was
            // loaded with Acquire: the reader has moved the slot's last message out.
            unsafe { (*slot).write(message) };
        });
        self.tail = self.tail.wrapping_add(1);
        // Commits the message. Release: the slot's content is visible to whoever loads this
        // `tail` with Acquire in `Receiver::tail`.
        self.ring.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Wakes the reader if it has announced its sleep; when the link is nearly full (three quarters),
    /// also a reader that listens for urgent things only.
    pub fn ring(&self) {
        // The fence between the store of `tail` and reading the doorbell is the one in `wake`.
        let filled = self.tail.wrapping_sub(self.head_seen);
        if filled > self.capacity() / 4 * 3 && self.free() < self.capacity().div_ceil(4) {
            self.ring.reader.wake_urgent();
        } else {
            self.ring.reader.wake();
        }
    }

    /// Wakes the reader after a message that can't wait (a barrier, the end), if it has announced any
    /// sleep.
    pub fn ring_urgent(&self) {
        self.ring.reader.wake_urgent();
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in the drop of `Receiver`.
        self.ring.receiver_gone.load(Ordering::Acquire)
    }

    /// At least how many messages fit; the reader may have made more room meanwhile.
    pub fn free(&self) -> usize {
        self.capacity() - self.tail.wrapping_sub(self.head())
    }

    /// How many messages fit into the empty link: a power of two.
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// The position in the stream after everything posted so far, for [`Sender::is_acknowledged`].
    pub fn position(&self) -> usize {
        self.tail
    }

    /// Whether the reader has received everything before a [position](Sender::position).
    pub fn is_acknowledged(&self, position: usize) -> bool {
        self.head().wrapping_sub(position) as isize >= 0
    }

    /// Like [`Sender::is_acknowledged`]. If the answer is no, the reader is woken, and wakes the writer
    /// once it has received everything, at the latest when it [settles](Receiver::settle).
    pub fn await_acknowledged(&mut self, position: usize) -> bool {
        let is_taken = |sender: &Sender<T>| sender.head_seen.wrapping_sub(position) as isize >= 0;
        self.look_at_head(position, is_taken)
    }

    fn is_full(&self) -> bool {
        self.tail.wrapping_sub(self.head_seen) == self.ring.slots.len()
    }

    fn head(&self) -> usize {
        // Acquire: pairs with the Release in `Receiver::receive`, so that the reader is done with
        // the slots before this position.
        self.ring.head.0.load(Ordering::Acquire)
    }

    /// Looks for room; if there is none, the writer will be woken. Returns whether there is.
    fn look_for_room(&mut self) -> bool {
        // Not at the first free slot but when a quarter is free: a writer that is woken for one
        // message would be refused the next.
        let room = self.capacity().div_ceil(4);
        let wanted = self.tail.wrapping_add(room).wrapping_sub(self.capacity());
        self.look_at_head(wanted, |sender| !sender.is_full())
    }

    /// Reads the reader's real position; if that is not `enough`, asks to be woken when it reaches
    /// `wanted`, and looks once more. Returns whether it is enough.
    #[cold]
    fn look_at_head(&mut self, wanted: usize, enough: impl Fn(&Sender<T>) -> bool) -> bool {
        self.head_seen = self.head();
        if enough(self) {
            return true;
        }
        // Relaxed, here and wherever `wanted` changes: it carries no data, and the fences order the
        // looks.
        let wanted = note(wanted);
        if self.ring.wanted.0.load(Ordering::Relaxed) == wanted {
            // Asked already after this very message, with everything that follows, and not answered yet.
            return false;
        }
        // An exchange instead of a store, because loom orders the stores of two threads only by what each
        // has read; this is the cold path.
        self.ring.wanted.0.swap(wanted, Ordering::Relaxed);
        // Pairs with the fence in `Receiver::settle`: here a write of `wanted` and a load of `head`,
        // there a store of `head` and a load of `wanted`. One of the two loads must see the other's
        // write, or a refused writer would wait for a wake-up that never comes.
        fence(Ordering::SeqCst);
        self.head_seen = self.head();
        if !enough(self) {
            // A reader in a timed sleep must not sleep on while the link refuses its writer.
            self.ring.reader.wake_urgent();
            return false;
        }
        // There is room after all, so nothing is owed. A reader that has cleared the note already wakes
        // the writer once too often, which is never wrong.
        self.ring.wanted.0.swap(NOTHING, Ordering::Relaxed);
        true
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Release: whoever sees the end in `Receiver::is_closed` also sees the last `tail`.
        self.ring.sender_gone.store(true, Ordering::Release);
        self.ring.reader.wake_urgent();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Sender")
            .field("free", &self.free())
            .field("capacity", &self.capacity())
            .field("closed", &self.is_closed())
            .finish()
    }
}

/// The reading end of a link. Dropping it tells the writer that nobody reads any more.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    /// The ring's `head`, which only this end moves.
    head: usize,
    /// The ring's `tail` when last read: the real one is this or further.
    tail_seen: usize,
}

impl<T> Receiver<T> {
    /// Takes the oldest message out of the link, and wakes the writer if it was refused since.
    ///
    /// `None` means that there is none now; [`is_closed`](Receiver::is_closed) says whether it means the
    /// end. A reader that stops before `None`, and may sleep, [settles](Receiver::settle).
    #[inline]
    pub fn receive(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.tail();
            if self.head == self.tail_seen {
                self.settle();
                return None;
            }
        }
        // SAFETY: `head` is before a `tail` that was loaded with Acquire, and moves on below.
        let message = unsafe { self.ring.take(self.head) };
        self.head = self.head.wrapping_add(1);
        // Release: hands the slot back; pairs with the Acquire in `Sender::head`.
        self.ring.head.0.store(self.head, Ordering::Release);
        // Without a fence, which would cost more than everything else here: this may miss the note, but
        // `settle` won't.
        self.tell_refused_writer();
        Some(message)
    }

    /// Makes sure that a refused writer knows about the room. [`Receiver::receive`] does this when there
    /// is nothing left; a reader that stops earlier and may sleep before it continues (because its own
    /// output is full, or to align a barrier) calls it first.
    pub fn settle(&mut self) {
        // Pairs with the fence in `Sender::look_for_room`.
        fence(Ordering::SeqCst);
        self.tell_refused_writer();
    }

    #[inline]
    fn tell_refused_writer(&self) {
        // The load first, because of the cache line, as in `Doorbell::wake`.
        let seen = self.ring.wanted.0.load(Ordering::Relaxed);
        if seen == NOTHING || (note(self.head).wrapping_sub(seen) as isize) < 0 {
            return;
        }
        self.answer(seen);
    }

    /// Clears the note that was seen, and only that one: the writer may have been refused again, further
    /// on.
    #[cold]
    fn answer(&self, seen: usize) {
        let taken = self.ring.wanted.0.compare_exchange(
            seen,
            NOTHING,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if taken.is_ok() {
            self.ring.writer.wake_urgent();
        }
    }

    /// Whether there is nothing to receive right now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the sender is gone and all its messages have been received: nothing will ever come.
    pub fn is_closed(&self) -> bool {
        // The order matters: first the end, then the position. The other way round, a message sent
        // between the two looks would be lost after the end. Acquire: pairs with the Release in the drop
        // of `Sender`.
        self.ring.sender_gone.load(Ordering::Acquire) && self.is_empty()
    }

    /// At least how many messages wait; the writer may have added more meanwhile.
    pub fn len(&self) -> usize {
        self.tail().wrapping_sub(self.head)
    }

    /// How many messages fit into the empty link: a power of two.
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    fn tail(&self) -> usize {
        // Acquire: pairs with the Release in `Sender::send`, so that the messages before this
        // position are whole.
        self.ring.tail.0.load(Ordering::Acquire)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Release: pairs with `Sender::is_closed`. The writer is woken before messages are dropped,
        // because a message whose drop panics must not leave the writer asleep.
        self.ring.receiver_gone.store(true, Ordering::Release);
        self.ring.writer.wake_urgent();
        // A slow writer's link would keep these alive. At most one lap: messages that a writer which has
        // not yet seen the end commits during this loop are dropped with the ring.
        for _ in 0..self.capacity() {
            if self.receive().is_none() {
                break;
            }
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Receiver")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("closed", &self.is_closed())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
