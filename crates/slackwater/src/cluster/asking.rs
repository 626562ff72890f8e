//! Questions to an orchestrator: how it stands, and to go on without a host.

use std::net::ToSocketAddrs;
use std::time::Duration;

use slackwater_registry::{LEADER, open_existing};
use slackwater_secure::{Secret, Stream};

use super::election::Candidate;
use super::messages::{Greeting, Question, Reply, Status};
use super::session::{Beside, Receiver, Session};

/// How long a connection may take, and an answer that is known at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a host may take to leave: the query is saved, begins without it, and the agent ends; an agent
/// that does not end is given up after half a minute.
const DRAIN_PATIENCE: Duration = Duration::from_secs(120);

/// The address of the orchestrator that leads, as a registry says.
///
/// # Errors
///
/// If the registry can't be used, or nobody leads.
pub fn leader(url: &str) -> Result<String, String> {
    let failed = |error: slackwater_registry::Error| format!("--registry {error}");
    let registry = open_existing(url).map_err(failed)?;
    let entry = registry.get(LEADER).map_err(failed)?;
    let leader = entry.as_ref().and_then(Candidate::read);
    let address = leader.map(|leader| leader.address.to_string());
    address.ok_or_else(|| format!("--registry {url}: no orchestrator leads now"))
}

/// How the orchestrator at one of these addresses stands.
///
/// # Errors
///
/// If none of them answers.
pub fn status(addresses: &[String], secret: Option<&Secret>) -> Result<Status, String> {
    match ask(addresses, secret, &Question::Status)? {
        Reply::Status(status) => Ok(status),
        Reply::Refused(reason) => Err(reason),
        Reply::Drained => Err("the answer is to another question".to_string()),
    }
}

/// Makes a query go on without a host; returns when the host has left.
///
/// # Errors
///
/// If no orchestrator answers, or the host can't leave.
pub fn drain(addresses: &[String], secret: Option<&Secret>, host: &str) -> Result<(), String> {
    let host = host.to_string();
    match ask(addresses, secret, &Question::Drain { host })? {
        Reply::Drained => Ok(()),
        Reply::Refused(reason) => Err(reason),
        Reply::Status(_) => Err("the answer is to another question".to_string()),
    }
}

/// Asks the first orchestrator that answers.
fn ask(
    addresses: &[String],
    secret: Option<&Secret>,
    question: &Question,
) -> Result<Reply, String> {
    let mut reasons = Vec::new();
    for address in addresses {
        match ask_one(address, secret, question) {
            Ok(reply) => return Ok(reply),
            Err(error) => reasons.push(of(address, &error.to_string())),
        }
    }
    Err(format!(
        "no orchestrator answers\n  {}",
        reasons.join("\n  ")
    ))
}

/// A reason with the address that it is about, unless that is part of it.
fn of(address: &str, reason: &str) -> String {
    match reason.starts_with(address) {
        true => reason.to_string(),
        false => format!("{address}: {reason}"),
    }
}

fn ask_one(address: &str, secret: Option<&Secret>, question: &Question) -> std::io::Result<Reply> {
    let mut found = address.to_socket_addrs()?;
    let none = || std::io::Error::other("the name has no address");
    let stream = Stream::connect(found.next().ok_or_else(none)?, secret, PATIENCE)?;
    let session = Session::new(stream, address)?;
    session.send(&Greeting::Ask(question.clone()), Beside::Nothing);
    let patience = match question {
        Question::Status => PATIENCE,
        Question::Drain { .. } => DRAIN_PATIENCE,
    };
    let answers = session.stream().await_answer(patience);
    let received = answers.and_then(|()| Receiver::new(session.stream()).receive());
    session.end("answered");
    match received? {
        Some((reply, _)) => Ok(reply),
        None => Err(std::io::Error::other("it has ended meanwhile")),
    }
}
