//! Links between instances, and waiting for them.
//!
//! A **link** carries messages from one writer to one reader. A **waiter** puts a worker thread to sleep
//! until one of its links, one of its descriptors or another thread has something for it. The two are
//! separate: a link only knows whom to wake, and a worker can wait for links, sockets and other threads
//! at once.
//!
//! ```text
//! Sender ──► spsc ring ──► Receiver          (spsc: owned messages, inside a process)
//! FrameSender ──► shared memory or TCP ──► FrameReceiver     (frame, shm, tcp: bytes, beyond it)
//!    └─ Waker of the reader ─► doorbell ─► Waiter of the reader's worker   (doorbell, waiter)
//! Receiver ─ Waker of the writer ─► doorbell ─► Waiter of the writer's worker
//! ```
//!
//! # The contract of a link
//!
//! Every kind of link keeps this contract; `tests/conformance.rs` runs on each of them.
//!
//! - **First in, first out.** Messages arrive in the order in which they were sent. Control messages
//!   travel among the data, in the same order.
//! - **Nothing lost, nothing duplicated.** A message that `send` took is received once, or dropped once
//!   with the link.
//! - **Bounded.** A link holds at most its capacity. A full link hands the message back
//!   ([`SendError::Full`]) and wakes the writer later, once there is room.
//! - **The end is seen once, after the last message.** The reader sees a dropped sender when the link is
//!   drained; the writer sees a dropped receiver at its next `send`, which hands the message back
//!   ([`SendError::Closed`]). Either drop wakes the other side.
//! - **No wake-up is lost.** A thread that follows the rule below never sleeps while there is a message,
//!   room that it was refused, or an end.
//!
//! # Announce, look, sleep
//!
//! A sender wakes only a reader that has announced its sleep: waking costs a system call, and waking a
//! thread that sleeps on another core costs the sender tens of microseconds, so a busy reader must cost
//! the sender no more than one look. The side that goes to sleep must therefore keep this order:
//!
//! 1. **Announce** ([`Waiter::announce`]).
//! 2. **Look once more** at *everything* that may wake it: receivers for messages and for the end,
//!    senders that were full for room ([`Sender::send`] again, or [`Sender::free`]) and for the reader's
//!    end, queues of other threads.
//! 3. **Sleep** ([`Waiter::wait`]), or [`Waiter::retract`] if the look found something.
//!
//! A message sent before the look is seen by the look; one sent after it finds the announcement and wakes
//! the thread. Registered descriptors need no look: the kernel remembers their events, and a wait names them
//! ([`Watch`]).
//!
//! # Shutdown
//!
//! Drop one end. The other side is woken, sees the end, and drops its own. Messages that nobody received
//! are dropped once, on the thread that drops the second end. A waiter may be dropped before its wakers,
//! which then have no effect.
//!
//! Sources: the choice between polling, interrupts and sleeping is Akram and Bilas' "A Sleep-based
//! Communication Mechanism to Save Processor Utilization in Distributed Streaming Systems"; the order
//! announce, look again, sleep is that of Seastar's reactor (`internal/poll.hh`).
//! `docs/internals/waiting.md` explains why the fences are where they are.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
// Loom has no kernel, so no waiter: only the models use a doorbell's own side then.
#![cfg_attr(all(loom, not(test)), allow(dead_code))]

// Tests of whole links share code with those beside the modules.
#[cfg(all(test, not(loom)))]
extern crate self as slackwater_link;

mod error;
mod sync;

pub mod spsc;

// Loom has no processes: its models run the lane, without the code around it.
#[cfg(not(loom))]
pub mod frame;
#[cfg(not(loom))]
pub mod kinds;
#[cfg_attr(loom, allow(dead_code))]
mod lane;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub mod shm;
#[cfg(not(loom))]
pub mod tcp;

mod bell;
mod doorbell;
#[cfg(not(loom))]
pub mod waiter;

#[cfg(not(loom))]
pub mod idle;

#[cfg(not(loom))]
pub mod affinity;
#[cfg(not(loom))]
pub mod numa;

#[cfg(all(test, loom))]
mod loom_models;

#[doc(hidden)]
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzz;

#[cfg(not(loom))]
pub use affinity::{allow_cores, allowed_cores, pin_to_core, pinned_core};
pub use doorbell::{Listen, Waker, WakerSwitch};
pub use error::{LinkError, SendError};
#[cfg(not(loom))]
pub use frame::Frame;
#[cfg(not(loom))]
pub use idle::{Costs, Idle, IdleCounters, IdleStrategy, Wait, WaitMode};
#[cfg(not(loom))]
pub use kinds::{FrameReceiver, FrameSender};
#[cfg(not(loom))]
pub use numa::prefer_node;
pub use spsc::{Receiver, Sender, channel};
#[cfg(not(loom))]
pub use waiter::{
    Interest, Registrar, Sources, Waiter, WaiterHandle, Watch, Watched, Woken, set_timer_slack_ns,
};
