//! Who comes in through the door of an orchestrator: agents that join, orchestrators that stand by, and
//! people who ask.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slackwater_secure::Stream;

use super::greeting::{answer_last, receive};
use super::members::Members;
use super::messages::{Greeting, Hello, Question, Reply, ToAgent};
use super::session::{Receiver, Session};
use super::traffic::Counted;
use crate::terminal::say;

/// How long a query may take to go on without a host: saving has a minute.
const DRAIN_PATIENCE: Duration = Duration::from_secs(90);

/// Greets whoever has come in, on a thread of its own.
pub fn admit(members: &Arc<Members>, stream: Stream, peer: SocketAddr) {
    let members = Arc::clone(members);
    receive(stream, peer, move |session| greet(&members, session, peer));
}

fn greet(members: &Arc<Members>, session: &Arc<Session>, peer: SocketAddr) {
    let mut receiver = Receiver::new(Counted {
        from: session.stream(),
        traffic: &session.traffic,
    });
    match receiver.receive() {
        Ok(Some((Greeting::Join(hello), _))) => join(members, *hello, session, &mut receiver, peer),
        Ok(Some((Greeting::StandBy { name }, _))) => {
            let number = members.stands_by(name);
            // Until it leads, or is gone; it says nothing.
            let _ = receiver.receive::<serde_json::Value>();
            members.left(number);
            session.end("it stands by no more");
        }
        Ok(Some((Greeting::Ask(question), _))) => {
            let reply = answer(members, question);
            answer_last(session, &mut receiver, &reply);
        }
        Ok(None) | Err(_) => session.end("no greeting"),
    }
}

/// Hears an agent until its session ends.
fn join<R: Read>(
    members: &Arc<Members>,
    hello: Hello,
    session: &Arc<Session>,
    receiver: &mut Receiver<R>,
    peer: SocketAddr,
) {
    let name = hello.facts.name.clone();
    let host = match members.join(hello, session) {
        Ok(host) => host,
        Err(refused) => {
            if let ToAgent::Refused {
                reason,
                try_again: false,
            } = &refused
            {
                say(&format!(
                    "warning: {name} ({peer}) was turned away: {reason}\n"
                ));
            }
            return answer_last(session, receiver, &refused);
        }
    };
    say(&format!("{name} ({peer}) has joined\n"));
    members.has_changed();
    (members.told)();
    let mut leaves = false;
    let reason = host.hear(receiver, || {
        members.has_changed();
        let leaves_now = host.leaves();
        if std::mem::replace(&mut leaves, leaves_now) != leaves_now {
            (members.told)();
        }
    });
    if !members.is_over() {
        match host.leaves() {
            true => say(&format!("{name} ({peer}) has left\n")),
            false => say(&format!("warning: {name} ({peer}) is lost: {reason}\n")),
        }
    }
    members.has_changed();
}

fn answer(members: &Arc<Members>, question: Question) -> Reply {
    let host = match question {
        Question::Status => return Reply::Status(members.status()),
        Question::Drain { host } => host,
    };
    let Some(joined) = members.host(&host) else {
        let status = members.status();
        let names = status.hosts.into_iter().map(|host| host.name);
        let names = names.collect::<Vec<String>>();
        return Reply::Refused(match host == status.name {
            true => format!("'{host}' directs the query: stop it, and one that stands by goes on"),
            false if status.standbys.contains(&host) => {
                format!("'{host}' stands by, and runs nothing: stop its process")
            }
            false if names.is_empty() => format!("'{host}' has not joined, and no other host has"),
            false => format!(
                "'{host}' has not joined\n  = there are {}",
                names.join(", ")
            ),
        });
    };
    let drained = joined.drain(DRAIN_PATIENCE, || {
        members.has_changed();
        (members.told)();
    });
    match drained {
        Ok(()) => Reply::Drained,
        Err(reason) => Reply::Refused(format!("'{host}' can't leave: {reason}")),
    }
}
