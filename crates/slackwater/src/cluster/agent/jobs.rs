//! An agent of a server, which serves one job after the other.

use std::net::SocketAddr;

use slackwater_secure::Stream;

use super::super::messages::ToAgent;
use super::super::session::{Receiver, Session};
use super::super::stopping::Stopping;
use super::{AgentOptions, Attempt, attempt};
use crate::terminal::say;

/// Joins the orchestrator of the job that a server names, while its session with the server goes on: that
/// tells the server whether the agent is there.
pub fn serve_jobs(
    options: &AgentOptions,
    address: &str,
    session: &Session,
    receiver: &mut Receiver<&Stream>,
    stopping: &Stopping,
) -> Attempt {
    let (job, port) = match receiver.receive() {
        Ok(Some((ToAgent::Serve { job, port }, _))) => (job, port),
        Ok(Some(_)) => return Attempt::Failed("did not name a job".to_string()),
        Ok(None) => return Attempt::Served("the server has ended".to_string()),
        Err(error) => return Attempt::Served(error.to_string()),
    };
    let server = session.stream().peer_address().ip();
    let at = SocketAddr::new(server, port).to_string();
    // Each job counts its own terms.
    let attempt = attempt(options, &at, &mut 0, stopping);
    session.end("free again");
    match attempt {
        Attempt::Over { .. } => {
            say(&format!("{}: job '{job}' is over\n", options.name));
            Attempt::Freed
        }
        Attempt::Refused(reason) => Attempt::Failed(format!("job '{job}' ({at}) {reason}")),
        Attempt::Failed(reason) | Attempt::Away(reason) => {
            Attempt::Failed(format!("job '{job}' ({at}): {reason}"))
        }
        Attempt::Served(reason) => Attempt::Served(format!("job '{job}' of {address}: {reason}")),
        Attempt::Freed => Attempt::Freed,
    }
}
