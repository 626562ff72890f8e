//! What a host runs, and the callback for its events.

use std::io;
use std::sync::Arc;

use slackwater_engine::deploy::Deployment;
use slackwater_engine::runtime::Costs;
use slackwater_sql::program::Program;

use super::host::Host;
use super::protocol::HostEvent;
use crate::checkpoints::{Incarnation, Members};
use crate::notices::Notices;
use crate::plan::Plan;

/// What a host runs.
pub struct Work<'a> {
    /// The name of the SQL file.
    pub file: &'a str,
    /// The SQL.
    pub text: &'a str,
    /// Settings of the command line.
    pub settings: &'a [(String, String)],
    /// The compiled program.
    pub program: &'a Program,
    /// The plan.
    pub plan: &'a Plan,
    /// The engine's form of the plan.
    pub deployment: &'a Deployment,
    /// What waiting costs on this host.
    pub costs: Costs,
    /// What links of this query show each other.
    pub token: [u8; 16],
    /// The hosts that worker processes run on.
    pub hosts: &'a [Arc<dyn Host>],
    /// Where checkpoints are stored, if the query takes any.
    pub incarnation: Option<&'a Incarnation>,
    /// The instances that are checkpointed.
    pub members: &'a Arc<Members>,
    /// The notices for the user about the input.
    pub notices: &'a Arc<Notices>,
}

/// The callback for a host's events; may block.
pub type Report = Arc<dyn Fn(HostEvent) + Send + Sync>;

/// A random token.
///
/// # Errors
///
/// If the system has no randomness.
pub fn token() -> io::Result<[u8; 16]> {
    let mut token = [0; 16];
    let filled = rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
    assert_eq!(
        filled,
        token.len(),
        "the kernel gives up to 256 bytes at once"
    );
    Ok(token)
}
