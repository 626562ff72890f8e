//! Who directs a query: one of several orchestrators, by election in a registry.
//!
//! ```text
//! stand ─► wait (standby.rs watches the leader) ─► lead ─► the query is over
//!   ▲                                               │
//!   └──────────── another has taken over ◄──────────┘
//! ```
//!
//! Invariants:
//! - Who leads has a term, and each term is larger than all before it. Agents refuse earlier ones.
//! - A leader that another one has replaced ends its incarnation. What it writes until it knows is fenced: by
//!   the store's log, by links and by sinks.
//! - A registry that can't be reached restarts nothing: the leader goes on, stands again, and leads another
//!   term if nobody has led meanwhile.
//!
//! Shutdown: dropping a [`Leadership`] gives it up, and the next in the line leads.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use slackwater_registry::{Error, Expect, Kind, LEADER, Life, Registry, TERM, open};
use slackwater_secure::Secret;

use super::election::{Candidate, Conclusion, ENDED, Election};
use super::standing::{Event, Standing, is_final};
use crate::terminal::say;

/// The key that a leader writes before it claims the store.
const CLAIMS: &str = "claims";

/// The pause between attempts to reach the registry before the store is claimed for the first time.
const CLAIM_PAUSE: Duration = Duration::from_millis(200);

/// How standing for leader has ended.
pub enum Stood {
    /// This orchestrator leads.
    Leads(Arc<Leadership>),
    /// The query is over, and why it failed if it did.
    Over(Option<String>),
    /// It was stopped while it waited.
    Stopped,
    /// The registry can't be reached, for now.
    Away(String),
}

/// An orchestrator that leads.
pub struct Leadership {
    election: Arc<Election>,
    events: mpsc::SyncSender<Event>,
}

/// Stands for leader of a query, and waits until this orchestrator leads, or the query is over. `told` is
/// called whenever something has changed, also later, with whether another one has taken over; it makes
/// `wait` return, which returns false if the orchestrator is to stop.
///
/// # Errors
///
/// If the registry can't be used, or another query uses it.
pub fn stand(
    url: &str,
    me: Candidate,
    secret: Option<&Secret>,
    told: impl Fn(bool) + Send + Sync + 'static,
    wait: &dyn Fn() -> bool,
) -> Result<Stood, String> {
    let opened = open(url).and_then(|registry| {
        let leader = registry.get(LEADER)?;
        let last = term_of(&*registry)?;
        Ok((registry, leader, last))
    });
    let (registry, leader, last) = match opened {
        Ok(opened) => opened,
        Err(error) if is_final(&error) => return Err(format!("--registry {error}")),
        Err(error) => return Ok(Stood::Away(format!("--registry {error}"))),
    };
    let before = match leader.as_ref().and_then(Candidate::read) {
        Some(leader) if leader.job != me.job => {
            return Err(format!(
                "--registry {url}: {} directs another query there, {}\n  = give each query a registry of \
                 its own, and start all its orchestrators with the same text, settings and --state",
                leader.place(),
                leader.query
            ));
        }
        // The last term is not over yet.
        Some(_) => last.saturating_sub(1),
        None => last,
    };
    let election = Arc::new(Election {
        registry,
        me,
        secret: secret.cloned(),
        state: Mutex::default(),
        told: Box::new(told),
        before,
    });
    let events =
        Standing::start(&election).map_err(|error| format!("--registry {url}: {error}"))?;
    let leadership = Leadership { election, events };
    loop {
        {
            let state = leadership.election.state();
            if let Some(reason) = &state.failed {
                return Err(reason.clone());
            }
            if let Some(error) = &state.over {
                return Ok(Stood::Over(error.clone()));
            }
            if state.term.is_some() {
                break;
            }
        }
        if !wait() {
            return Ok(Stood::Stopped);
        }
    }
    Ok(Stood::Leads(Arc::new(leadership)))
}

/// The last term of a registry.
fn term_of(registry: &dyn Registry) -> Result<u64, Error> {
    let entry = registry.get(TERM)?;
    let text = entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

impl Leadership {
    /// The number of the term that it leads. It grows when the registry was lost for a while.
    pub fn term(&self) -> u64 {
        self.election.state().term.map_or(0, |term| term.number())
    }

    /// Why it does not lead any more.
    pub fn lost(&self) -> Option<String> {
        self.election.state().lost.clone()
    }

    /// Makes sure that this orchestrator leads before it claims the store. The first time it waits for a
    /// registry that can't be reached: another one may have claimed the store, and would be fenced by a
    /// leader of an earlier term. Later the store itself says whether another one has claimed it.
    ///
    /// # Errors
    ///
    /// If another one leads, or it is stopped while it waits.
    pub fn check(&self, is_first: bool, is_stopped: &dyn Fn() -> bool) -> Result<(), String> {
        let mut told = false;
        loop {
            match self.write(CLAIMS, b"claimed") {
                Ok(()) => return Ok(()),
                Err(error) if error.kind == Kind::Fenced => {
                    let reason = || "another orchestrator has taken over".to_string();
                    return Err(self.lost().unwrap_or_else(reason));
                }
                Err(_) if !is_first => return Ok(()),
                Err(error) => {
                    if let Some(reason) = self.lost() {
                        return Err(reason);
                    }
                    if is_stopped() {
                        return Err(format!("stopped while waiting for the registry: {error}"));
                    }
                    if !std::mem::replace(&mut told, true) {
                        say(&format!(
                            "--registry {error}: waiting for it before the query starts\n"
                        ));
                    }
                    std::thread::sleep(CLAIM_PAUSE);
                }
            }
        }
    }

    /// Another incarnation has taken over, as the store of checkpoints says. The registry may not have said
    /// so yet, or can't be reached. If it says that this orchestrator leads, the other incarnation is of
    /// another registry, and this one does not take the store back.
    pub fn replaced(&self, reason: &str) {
        if self.write(CLAIMS, b"claimed").is_err() {
            self.election.lose(reason.to_string());
        }
    }

    /// Says that the query is over: no other orchestrator goes on with it. Returns false if another one
    /// leads, and decides that.
    pub fn conclude(&self, error: Option<&str>) -> bool {
        let conclusion = Conclusion {
            term: self.term(),
            error: error.map(str::to_string),
        };
        // A number and a text.
        let json = serde_json::to_vec(&conclusion).expect("plain data");
        match self.write(ENDED, &json) {
            Ok(()) => true,
            Err(error) if error.kind == Kind::Fenced => false,
            Err(error) => {
                say(&format!(
                    "warning: --registry {error}: orchestrators that stand by don't hear that the query is \
                     over: the next one resumes it where it has ended\n"
                ));
                true
            }
        }
    }

    /// Writes while this orchestrator leads.
    fn write(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let term = self.election.state().term;
        let registry = &self.election.registry;
        registry.put(key, Some(value), Expect::Any, term.as_ref(), Life::Kept)?;
        Ok(())
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        // A thread that has ended needs no telling.
        let _ = self.events.send(Event::End);
    }
}
