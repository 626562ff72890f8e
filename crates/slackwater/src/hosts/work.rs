//! What a host is given to run, and who hears of it.

use std::path::Path;
use std::sync::Arc;

use slackwater_engine::deploy::Deployment;
use slackwater_engine::runtime::Costs;
use slackwater_sql::program::Program;

use super::protocol::HostEvent;
use crate::checkpoints::{Incarnation, Members};
use crate::costs::Learned;
use crate::machine::Machine;
use crate::notices::Notices;
use crate::plan::Plan;

/// What a host is given to run.
pub struct Work<'a> {
    /// The text's name.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
    /// Settings of the command line.
    pub settings: &'a [(String, String)],
    /// What the text says.
    pub program: &'a Program,
    /// The machine that it is planned on.
    pub machine: &'a Machine,
    /// What earlier runs have learned of its costs.
    pub learned: &'a Learned,
    /// The plan.
    pub plan: &'a Plan,
    /// The plan as the engine has it.
    pub deployment: &'a Deployment,
    /// What waiting costs on this host.
    pub costs: Costs,
    /// The program that worker processes run; `None` for this one.
    pub worker_program: Option<&'a Path>,
    /// Where checkpoints are kept, if the query takes any.
    pub incarnation: Option<&'a Incarnation>,
    /// The instances that take part in them.
    pub members: &'a Arc<Members>,
    /// Tells the user what processes notice of what they read.
    pub notices: &'a Arc<Notices>,
}

/// Hears what a host reports; may block.
pub type Report = Arc<dyn Fn(HostEvent) + Send + Sync>;
