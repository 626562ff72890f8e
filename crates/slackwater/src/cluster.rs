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
//! The layers: messages and their transport (`messages`, `traffic`, `session`), a host that has joined
//! (`joined`), all of them (`members`, `admission`, `membership`), what a query asks of them
//! (`orchestrator`), how many hosts it wants (`wanted`), and the agent on the other side (`pulse`, `agent`).
//! Beside them: which of several orchestrators leads (`election`, `standby`, `standing`, `leadership`), and
//! what it is asked (`asking`).

mod messages;
mod traffic;

mod session;

mod greeting;
mod joined;
mod members;

mod admission;
mod membership;

mod pulse;

mod election;
mod standby;

mod standing;

mod leadership;

mod asking;
mod files;
mod wanted;

mod orchestrator;
mod sameness;

mod lobby;
mod stopping;

mod agent;

#[cfg(test)]
mod mutations;

pub use agent::{AgentOptions, Ending, run as run_agent};
pub use asking::{drain, leader, status};
pub use election::Candidate;
pub use files::find_elsewhere;
pub use greeting::strangers;
pub use leadership::{Leadership, Stood, stand};
pub use lobby::Lobby;
pub use messages::Status;
pub use orchestrator::{ClusterOptions, Gathered, Judged, Led, Orchestrator};
pub use sameness::{check_state, check_tables};
pub use stopping::Stopping;
pub use wanted::{HostsKnown, HostsReading, Used};
