//! Links between instances, and waiting for them.
//!
//! A **link** carries messages from one writer to one reader. A **waiter** puts a worker thread to
//! sleep until one of its links, one of its descriptors or a foreign thread has something for it.
//! The two are kept apart: a link only knows whom to ring, and a worker can wait for rings,
//! sockets and foreign threads at once.
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
//! Every kind of link keeps it; `tests/conformance.rs` is run on each of them.
//!
//! - **First in, first out.** Messages arrive in the order in which they were sent. Control
//!   messages travel among the data, in the same order.
//! - **Nothing lost, nothing doubled.** A message that `send` took is received once, or dropped
//!   once with the link.
//! - **Bounded.** A link holds at most its capacity. A full link hands the message back
//!   ([`SendError::Full`]) and later rings the writer, once there is room.
//! - **The end is seen once, after the last message.** A dropped sender is seen by the reader when
//!   the link is drained; a dropped receiver is seen by the writer at its next `send`, which hands
//!   the message back ([`SendError::Closed`]). Either drop rings the other side.
//! - **No wake-up is lost.** Whoever keeps the rule below never sleeps beside a message, beside
//!   room that it was refused, or beside an end.
//!
//! # Announce, look, sleep
//!
//! A sender rings only a reader that has announced its sleep: a doorbell costs a system call, and
//! ringing a sleeping thread on another core costs the ringing side tens of microseconds, so a
//! busy reader must cost it no more than one look. This makes the order of things on the side that
//! goes to sleep a rule:
//!
//! 1. **Announce** ([`Waiter::announce`]).
//! 2. **Look once more** at *everything* that may ring: receivers for messages and for the end,
//!    senders that were full for room ([`Sender::send`] again, or [`Sender::free`]) and for the
//!    reader's end, queues of foreign threads.
//! 3. **Sleep** ([`Waiter::wait`]), or [`Waiter::retract`] if the look found something.
//!
//! A message sent before the look is seen by the look; one sent after it finds the announcement
//! and rings. Registered descriptors need no look: the kernel remembers their edges.
//!
//! # Shutdown
//!
//! Drop one end. The other side is rung, sees the end, and drops its own. Messages that nobody
//! received are dropped once, on whichever thread lets go of the link last. A waiter may go before
//! its wakers: they then ring a bell that nobody hears.
//!
//! Sources: the choice between polling, interrupts and sleeping is Akram and Bilas' "A Sleep-based
//! Communication Mechanism to Save Processor Utilization in Distributed Streaming Systems"; the
//! order announce, look again, sleep is the reactor's of Seastar (`internal/poll.hh`).
//! `docs/internals/waiting.md` tells why the fences are where they are.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
// Loom has no kernel, hence no waiter; only the models then use a doorbell's own side.
#![cfg_attr(all(loom, not(test)), allow(dead_code))]

mod error;
mod sync;

pub mod spsc;

// Loom has no processes: its models run the lane, not what is around it.
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
pub use affinity::{allowed_cores, pin_to_core};
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
pub use waiter::{Registrar, Sources, Waiter, WaiterHandle, Watched, Woken, set_timer_slack_ns};
