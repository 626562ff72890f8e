//! Who comes in through the door of an orchestrator: agents that join, orchestrators that stand by, and
//! people who ask.

use std::cell::Cell;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use slackwater_link::LinkError;
use slackwater_secure::Stream;

use super::members::Members;
use super::messages::{Greeting, Hello, Question, Reply, ToAgent};
use super::session::{Beside, Receiver, Session};
use super::traffic::Counted;
use crate::terminal::say;

/// How often strangers are told of.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// How long a query may take to go on without a host: saving has a minute.
const DRAIN_PATIENCE: Duration = Duration::from_secs(90);

/// Tells of strangers: at once of the first, and then once a minute.
pub struct Strangers {
    members: Weak<Members>,
    told: Cell<Option<Instant>>,
    since: Cell<u64>,
}

impl Strangers {
    /// Those of an orchestrator, which counts them.
    pub fn new(members: Weak<Members>) -> Strangers {
        Strangers {
            members,
            told: Cell::default(),
            since: Cell::default(),
        }
    }

    /// Called for each of them.
    pub fn teller(self) -> impl Fn(&LinkError) {
        move |refusal| {
            if let Some(members) = self.members.upgrade() {
                members.turned_away();
            }
            self.since.set(self.since.get() + 1);
            let told = self.told.get();
            if told.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
                return;
            }
            let LinkError { peer, reason, hint } = refusal;
            let others = match self.since.take() {
                0 | 1 => String::new(),
                count => format!(" ({} more since the last one)", count - 1),
            };
            say(&format!(
                "warning: {peer} was turned away: it {reason}{others}\n  = {hint}\n"
            ));
            self.told.set(Some(Instant::now()));
        }
    }
}

/// Greets whoever has come in, on a thread of its own.
pub fn admit(members: &Arc<Members>, stream: Stream, peer: SocketAddr) {
    let members = Arc::clone(members);
    // If there is no thread left, an agent tries again.
    let _ = std::thread::Builder::new()
        .name("session".to_string())
        .spawn(move || greet(&members, stream, peer));
}

fn greet(members: &Arc<Members>, stream: Stream, peer: SocketAddr) {
    let Ok(session) = Session::new(stream, &peer.to_string()) else {
        return;
    };
    let mut receiver = Receiver::new(Counted {
        from: session.stream(),
        traffic: &session.traffic,
    });
    match receiver.receive() {
        Ok(Some((Greeting::Join(hello), _))) => {
            join(members, *hello, &session, &mut receiver, peer)
        }
        Ok(Some((Greeting::StandBy { name }, _))) => {
            let number = members.stands_by(name);
            // Until it leads, or is gone; it says nothing.
            let _ = receiver.receive::<serde_json::Value>();
            members.left(number);
            session.end("it stands by no more");
        }
        Ok(Some((Greeting::Ask(question), _))) => {
            let reply = answer(members, question);
            session.send(&reply, Beside::Nothing);
            finish(&session, &mut receiver);
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
            session.send(&refused, Beside::Nothing);
            return finish(session, receiver);
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

/// Ends a session once the other end has read what was sent.
fn finish<R: Read>(session: &Session, receiver: &mut Receiver<R>) {
    session.finish();
    let _ = receiver.receive::<serde_json::Value>();
}
