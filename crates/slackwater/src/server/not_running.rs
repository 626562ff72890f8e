//! Why a job can't be asked.

use slackwater_serve::backend::{Kind, Refusal, Status};

/// The refusal for a job that doesn't run.
pub fn not_running(name: &str, status: &Status) -> Refusal {
    let (why, hint) = match status {
        Status::Starting => (
            "has not started yet".to_string(),
            "try again in a moment".to_string(),
        ),
        Status::Stopped => (
            "is stopped".to_string(),
            format!("START JOB {name} continues it"),
        ),
        Status::Finished => (
            "has finished".to_string(),
            "its inputs have ended".to_string(),
        ),
        Status::Failed { reason } => (
            format!("has failed: {reason}"),
            format!("START JOB {name} tries again, from its last checkpoint"),
        ),
        Status::Running => (
            "is being started again".to_string(),
            "try again".to_string(),
        ),
    };
    let kind = match status {
        Status::Starting | Status::Running => Kind::Starting,
        _ => Kind::NotRunning,
    };
    Refusal::new(kind, format!("job '{name}' {why}")).hint(hint)
}
