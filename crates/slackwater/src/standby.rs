//! Standbys: another run of a query that holds its state, and goes on when the one that runs it is gone.
//!
//! ```text
//! active                                                standby: run --standby
//! Coordinator ─ manifests ─► DIR/checkpoints ◄──────┐   Replica: operators with the state of a checkpoint
//!      │                     DIR/parts ◄─ stores ───┤      ▲ increments
//!      └─ Door, DIR/active.sock ─ "stored 17" ──────┴─► Following
//! agents, one a process ── parts, DIR/standby.sock ───► Shelf
//! ```
//!
//! - [`Door`]: where the active is reached. It tells the standby of each checkpoint; the end of that
//!   connection says that the active is gone.
//! - [`Replica`]: what a standby holds. It follows by what a checkpoint adds to the one before, and by all of
//!   a checkpoint where it can't.
//! - [`Following`]: the standby's side of the connection.
//! - [`promote`]: a planned switch.
//!
//! Whether a standby may go on is decided by the store alone: it claims, as any run that resumes does, and
//! resumes from the newest checkpoint; what it holds only spares it reading that. So nothing here can make an
//! answer wrong, and a standby that is mistaken costs the active its incarnation and nothing else. The idea
//! of a replica that needs only a bounded lag is Concerto's (Lee and Lee, Appl. Sci. 2021, 11, 5731, section
//! 3).

mod door;
mod following;
mod kept;
mod messages;
mod promotion;
mod replica;
mod serving;
mod shelf;
mod wire;

pub use door::Door;
pub use following::{Following, Heard};
pub use kept::Kept;
pub use promotion::promote;
pub use replica::{Added, Replica};
pub use serving::{Known, Readers, Serving};
pub use shelf::Shelf;
pub use wire::{Place, Remote};
