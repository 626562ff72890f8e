//! Several hosts: an orchestrator, and agents that join it.
//!
//! ```text
//! orchestrator                                   agent of h2
//! ┌──────────────────────────────┐   session    ┌─────────────────────────────┐
//! │ supervisor ─► Execution      │   commands   │ LocalHost ─► worker process │
//! │   ├─ LocalHost, if --here    │ ───────────► │          └─► worker process │
//! │   └─ JoinedHost, one an agent│ ◄─────────── └───────│─────────────────────┘
//! └──────────────────────────────┘ events, beats        └─ links over TCP ─► processes of other hosts
//! ```
//!
//! Rows never pass through agents or the orchestrator, but for state that moves with its keys to another
//! host, which passes unread.
//!
//! The layers: messages and their transport (`messages`, `session`), a host that has joined
//! (`joined`) all of them (`membership`) and what a
//! query asks of them (`orchestrator`), and the agent on the other side (`pulse`, `agent`).

mod messages;
mod session;

mod joined;
mod membership;

mod pulse;

mod files;
mod orchestrator;
mod sameness;

mod stopping;

mod agent;

#[cfg(test)]
mod mutations;

pub use agent::{AgentOptions, Ending, resolve, run as run_agent};
pub use files::find_elsewhere;
pub use orchestrator::{ClusterOptions, Gathered, Hosts, Judged, Orchestrator};
pub use sameness::{check_state, check_tables};
pub use stopping::Stopping;
