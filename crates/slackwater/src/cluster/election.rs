//! An election in a registry: what an orchestrator that stands puts there, and what it has found out.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use slackwater_registry::{Entry, Registry, Term};
use slackwater_secure::Secret;

/// The key of what a leader says when the query is over.
pub const ENDED: &str = "ended";

/// What an orchestrator puts into the registry when it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The name of its host.
    pub name: String,
    /// Where agents join it.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
    /// Tells it from all others.
    pub id: u64,
    /// The query's name.
    pub query: String,
    /// Tells the query from others: a hash of its text and settings.
    pub job: u64,
}

impl Candidate {
    /// Reads what was put into the registry; `None` if it is something else.
    pub fn read(entry: &Entry) -> Option<Candidate> {
        serde_json::from_slice(&entry.value).ok()
    }

    /// Its name and address, for messages.
    pub fn place(&self) -> String {
        format!("{} ({})", self.name, self.address)
    }
}

/// What a leader says when the query is over.
#[derive(Debug, Serialize, Deserialize)]
pub struct Conclusion {
    /// The leader's term.
    pub term: u64,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// An election in which an orchestrator stands.
pub struct Election {
    /// Where.
    pub registry: Box<dyn Registry>,
    /// Who stands.
    pub me: Candidate,
    /// What all orchestrators of the query know.
    pub secret: Option<Secret>,
    /// What has been found out.
    pub state: Mutex<State>,
    /// Called when the state has changed; says whether another one leads.
    pub told: Box<dyn Fn(bool) + Send + Sync>,
    /// The last term that was over when this orchestrator began to stand.
    pub before: u64,
}

/// What an orchestrator that stands has found out.
#[derive(Default)]
pub struct State {
    /// The term that this orchestrator leads, as far as it knows.
    pub term: Option<Term>,
    /// Why it does not lead any more.
    pub lost: Option<String>,
    /// Why it can't stand.
    pub failed: Option<String>,
    /// What has become of the query, if it is over.
    pub over: Option<Option<String>>,
}

impl Election {
    /// This orchestrator leads a term. Returns false if another one has led between this term and the last
    /// one.
    pub fn leads(&self, term: Term) -> bool {
        let mut state = self.state();
        let is_next = |last: Term| last.number() + 1 == term.number();
        if !state.term.is_none_or(is_next) {
            return false;
        }
        state.term = Some(term);
        drop(state);
        (self.told)(false);
        true
    }

    /// Whether this orchestrator has led.
    pub fn has_led(&self) -> bool {
        self.state().term.is_some()
    }

    /// Another one leads. Only the first reason counts.
    pub fn lose(&self, reason: String) {
        if self.state().lost.is_none() {
            self.change(|state| state.lost = Some(reason));
        }
    }

    /// It can't stand.
    pub fn fail(&self, reason: String) {
        self.change(|state| state.failed = Some(reason));
    }

    /// Looks whether the query is over.
    pub fn look_for_the_end(&self) {
        let entry = self.registry.get(ENDED).ok().flatten();
        let conclusion = entry.and_then(|entry| serde_json::from_slice(&entry.value).ok());
        if let Some(Conclusion { term, error }) = conclusion
            && term > self.before
        {
            self.change(|state| state.over = Some(error));
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let is_lost = {
            let mut state = self.state();
            change(&mut state);
            state.lost.is_some()
        };
        (self.told)(is_lost);
    }

    /// What is known.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use slackwater_registry::{Expect, Life, open};

    use super::super::standing::Standing;
    use super::*;

    fn election(
        folder: &tempfile::TempDir,
        told: impl Fn(bool) + Send + Sync + 'static,
    ) -> Election {
        let path = folder.path().join("registry.db");
        let me = Candidate {
            name: "o1".to_string(),
            address: ([127, 0, 0, 1], 1).into(),
            pid: 1,
            id: 1,
            query: "query.sql".to_string(),
            job: 1,
        };
        Election {
            registry: open(&format!("sqlite:{}", path.display())).unwrap(),
            me,
            secret: None,
            state: Mutex::default(),
            told: Box::new(told),
            before: 0,
        }
    }

    #[test]
    fn an_orchestrator_is_told_once_that_another_one_leads() {
        let folder = tempfile::tempdir().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&count);
        let election = election(&folder, move |is_lost| {
            counts.fetch_add(usize::from(is_lost), Ordering::Relaxed);
        });
        election.lose("o2 leads".to_string());
        election.lose("o3 leads".to_string());
        assert_eq!(
            count.load(Ordering::Relaxed),
            1,
            "or a signal stops what comes next"
        );
        assert_eq!(election.state().lost.as_deref(), Some("o2 leads"));
    }

    #[test]
    fn who_is_elected_after_the_end_of_the_query_knows_of_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let leader = election(&folder, |_| {});
        let another = Candidate {
            id: 2,
            ..leader.me.clone()
        };
        let another = serde_json::to_vec(&another).unwrap();
        let other = leader.registry.elect(&another, Box::new(|_| {})).unwrap();
        let standing = Arc::new(election(&folder, |_| {}));
        let events = Standing::start(&standing).unwrap();
        let conclusion = serde_json::to_vec(&Conclusion {
            term: 1,
            error: None,
        })
        .unwrap();
        let ended = leader
            .registry
            .put(ENDED, Some(&conclusion), Expect::Any, None, Life::Kept);
        ended.unwrap();
        drop(other);
        let begun = Instant::now();
        while !standing.has_led() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let state = standing.state();
        assert!(state.term.is_some(), "{:?}", state.failed);
        assert_eq!(state.over, Some(None));
        drop(state);
        events.send(super::super::standing::Event::End).unwrap();
    }
}
