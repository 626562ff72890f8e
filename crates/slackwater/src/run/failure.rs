//! Why a run failed.

use super::Finished;
use crate::report::Report;
use crate::supervisor::Refused;

/// Why a run failed.
#[derive(Debug)]
pub enum Failure {
    /// The SQL or the settings are wrong (exit code 2).
    Usage(String),
    /// The query failed (exit code 1), with the costs until then.
    Query(String, Option<Box<Finished>>),
}

impl Failure {
    /// What the query cost until it failed.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Failure::Query(_, Some(finished)) => Some(&finished.report),
            Failure::Usage(_) | Failure::Query(_, None) => None,
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        match refused {
            Refused::Usage(reason) => Failure::Usage(reason),
            Refused::Query(reason) => Failure::Query(reason, None),
        }
    }
}
