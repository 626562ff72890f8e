//! The thread of an orchestrator that stands for leader.
//!
//! It stands again whenever its candidacy ends for want of the registry. One that has led goes on leading
//! meanwhile, and loses only to another that leads. One that stands by lets it stand first: it waits until it
//! leads again, or its connection ends.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use slackwater_registry::{Candidacy, Error, Expect, Kind, LEADER, Life, Stage, Watch};

use super::election::{Candidate, Election};
use super::standby::Standby;
use crate::terminal::say;

/// The pause between attempts to stand while the registry can't be used.
const PAUSE: Duration = Duration::from_millis(500);

/// The most events that wait: stages come one by one, and changes are as rare as elections. Dropping a
/// candidacy waits for whoever is just sending, so there is room.
const EVENTS_MAX: usize = 64;

/// What an orchestrator that stands hears.
pub enum Event {
    /// Its candidacy goes on.
    Stage(Stage),
    /// The registry has changed.
    Changed,
    /// The leader that has this entry is gone, as a connection to it says.
    Gone {
        /// The version of its entry.
        version: u64,
    },
    /// The leader does not let this one in.
    Stranger {
        /// Why.
        reason: String,
    },
    /// Nobody needs it any more.
    End,
}

/// An orchestrator that stands for leader, on a thread of its own.
pub struct Standing {
    election: Arc<Election>,
    sender: mpsc::SyncSender<Event>,
    candidacy: Option<Candidacy>,
    watch: Option<Watch>,
    /// The connection to the leader, if that is another one.
    standby: Option<Standby>,
    /// The entry of the leader whose candidacy goes before this one's.
    waits_for: Option<u64>,
    /// What was last said of the registry.
    told: Option<String>,
}

impl Standing {
    /// Begins to stand. What is sent into the queue is handled on the thread.
    ///
    /// # Errors
    ///
    /// If there is no thread left.
    pub fn start(election: &Arc<Election>) -> io::Result<mpsc::SyncSender<Event>> {
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let standing = Standing {
            election: Arc::clone(election),
            sender: sender.clone(),
            candidacy: None,
            watch: None,
            standby: None,
            waits_for: None,
            told: None,
        };
        std::thread::Builder::new()
            .name("leadership".to_string())
            .spawn(move || standing.run(events))?;
        Ok(sender)
    }

    fn run(mut self, events: mpsc::Receiver<Event>) {
        loop {
            if self.candidacy.is_none()
                && let Err(error) = self.stand()
            {
                if is_final(&error) {
                    return self.end(&error);
                }
                self.say_once(&error);
            }
            let event = match self.candidacy {
                Some(_) => events.recv().ok(),
                None => events.recv_timeout(PAUSE).ok().or(Some(Event::Changed)),
            };
            match event {
                None | Some(Event::End) => return,
                Some(Event::Changed) => self.look(),
                Some(Event::Gone { version }) => self.remove(version),
                Some(Event::Stranger { reason }) => self.election.fail(format!(
                    "the orchestrator that leads does not let this one in: {reason}\n  = all need the same \
                     --secret, or none"
                )),
                Some(Event::Stage(Stage::Elected(term))) => {
                    self.standby = None;
                    if !self.election.has_led() {
                        // The last leader may have ended with the query just now.
                        self.election.look_for_the_end();
                    }
                    if !self.election.leads(term) {
                        return self.election.lose("another one led meanwhile".to_string());
                    }
                }
                Some(Event::Stage(Stage::Over(error))) => {
                    self.candidacy = None;
                    if is_final(&error) {
                        return self.end(&error);
                    }
                    self.waits_for = self.standby.as_ref().map(Standby::version);
                    if error.kind != Kind::Fenced {
                        self.say_once(&error);
                    }
                }
            }
        }
    }

    /// Stands, unless the leader goes first.
    fn stand(&mut self) -> Result<(), Error> {
        let is_alive = self.standby.as_ref().is_some_and(Standby::is_connected);
        if self.waits_for.is_some() && is_alive {
            return Ok(());
        }
        self.waits_for = None;
        let registry = &self.election.registry;
        if self.watch.is_none() {
            let changed = self.sender.clone();
            let tell = Box::new(move || {
                // If there is no room, it looks soon.
                let _ = changed.try_send(Event::Changed);
            });
            self.watch = Some(registry.watch("", tell)?);
            let _ = self.sender.try_send(Event::Changed);
        }
        let stages = self.sender.clone();
        // A number, addresses and names.
        let me = serde_json::to_vec(&self.election.me).expect("plain data");
        let tell = Box::new(move |stage| {
            let _ = stages.send(Event::Stage(stage));
        });
        self.candidacy = Some(registry.elect(&me, tell)?);
        if self.told.take().is_some() {
            say("the registry is back\n");
        }
        Ok(())
    }

    /// Looks who leads, and whether the query is over.
    fn look(&mut self) {
        let Ok(entry) = self.election.registry.get(LEADER) else {
            return;
        };
        let leader = entry.as_ref().and_then(Candidate::read);
        let other = leader.filter(|leader| leader.id != self.election.me.id);
        let (Some(entry), Some(leader)) = (entry, other) else {
            self.election.look_for_the_end();
            return;
        };
        if self.election.has_led() {
            return self.election.lose(format!("{} leads", leader.place()));
        }
        if self
            .waits_for
            .is_some_and(|version| version != entry.version)
        {
            self.waits_for = None;
        }
        let known = self.standby.as_ref().map(Standby::version);
        if known != Some(entry.version) {
            say(&format!("{} leads: standing by\n", leader.place()));
            let (gone, stranger) = (self.sender.clone(), self.sender.clone());
            let version = entry.version;
            let gone = move || {
                let _ = gone.send(Event::Gone { version });
            };
            let stranger = move |reason| {
                let _ = stranger.send(Event::Stranger { reason });
            };
            let standby = Standby::start(&self.election, &leader, version, gone, stranger);
            self.standby = standby.ok();
        }
    }

    /// Ends the term of a leader that is gone. Another one may have done so.
    fn remove(&self, version: u64) {
        let expect = Expect::Version(version);
        let _ = (self.election.registry).put(LEADER, None, expect, None, Life::Kept);
    }

    /// The registry can't be used any more. A query that runs goes on, as long as it needs no other leader.
    fn end(&self, error: &Error) {
        match self.election.has_led() {
            true => say(&format!(
                "warning: --registry {error}: the query goes on, but no other orchestrator can take over\n"
            )),
            false => self.election.fail(format!("--registry {error}")),
        }
    }

    fn say_once(&mut self, error: &Error) {
        let text = error.to_string();
        if self.told.as_ref() != Some(&text) {
            let role = match self.election.has_led() {
                true => "the query goes on",
                false => "trying again",
            };
            say(&format!("warning: --registry {text}: {role}\n"));
            self.told = Some(text);
        }
    }
}

/// Whether trying again won't help.
pub fn is_final(error: &Error) -> bool {
    matches!(
        error.kind,
        Kind::Damaged | Kind::Later | Kind::Removed | Kind::Invalid
    )
}
