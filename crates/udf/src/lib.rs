//! Functions that run in processes of their own.
//!
//! ```text
//! Function ── pool.rs ──► Worker ── start.rs, process.rs ──► python3, one function each
//!   call(columns)           │ arguments: layout/write.rs ──► shared memory ──► worker_py/
//!                           │ results:   layout/read.rs  ◄── shared memory ◄──
//!                           └ message.rs: 32 bytes over a socket in each direction
//! ```
//!
//! Functions in WebAssembly are interpreted in this process ([`WasmFunction`]).
//!
//! Invariants: nothing of a function in Python runs in this process. A worker has one call at a time. The
//! engine writes one memory and the worker the other, and each reads only between the messages that hand it
//! over; what is read is copied and checked, so that a worker can't make this process fail, whatever it
//! writes. A worker that does nothing waits in `recv`, and costs nothing.
//!
//! Shutdown: a worker ends when its socket does. It is waited for, and killed if it does not end; if this
//! process is killed, the kernel kills its workers.

mod definition;
mod layout;
mod memory;
mod message;
mod output;
mod pool;
mod process;
mod spawner;
#[cfg(feature = "wasm")]
mod wasm;
#[cfg(not(feature = "wasm"))]
#[path = "wasm/absent.rs"]
mod wasm;
mod worker;

mod aggregate;
mod operator;

pub use aggregate::Added;
pub use definition::{
    Constant, Definition, Failure, Mode, Problem, Table, WasmDefinition, unsupported,
};
pub use operator::{KeyedBatch, KeyedRan, StepFailure, TableRows};
pub use pool::Function;
pub use process::{OPERATORS, running};
pub use wasm::{WasmFunction, module_text, wasm_unsupported};
