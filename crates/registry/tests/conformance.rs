//! What each kind of registry has to do, in one suite: alone, with threads, and with real processes that are
//! killed and stopped.
//!
//! The test binary starts itself again as the other process; see `child.rs`.

#![cfg(any(feature = "sqlite", feature = "zookeeper"))]

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use slackwater_registry::{
    Candidacy, Entry, Error, Expect, Kind, Life, Registry, Stage, Term, open,
};

#[path = "conformance/cases.rs"]
mod cases;
#[path = "conformance/child.rs"]
mod child;
#[cfg(feature = "zookeeper")]
#[path = "conformance/cuts.rs"]
mod cuts;
#[path = "conformance/elections.rs"]
mod elections;
#[path = "conformance/measured.rs"]
mod measured;
#[path = "conformance/model.rs"]
mod model;
#[path = "conformance/processes.rs"]
mod processes;
#[cfg(feature = "zookeeper")]
#[path = "conformance/servers.rs"]
mod servers;
#[cfg(feature = "sqlite")]
#[path = "conformance/sqlite.rs"]
mod sqlite;
#[cfg(feature = "sqlite")]
#[path = "conformance/sqlite_faults.rs"]
mod sqlite_faults;
#[cfg(feature = "zookeeper")]
#[path = "conformance/zookeeper.rs"]
mod zookeeper;

/// Nothing in these tests takes this long on any machine.
const TOO_LONG: Duration = Duration::from_secs(60);
/// What doesn't happen in this time is taken for not happening.
const QUIET: Duration = Duration::from_millis(300);

fn registry(url: &str) -> Box<dyn Registry> {
    open(url).unwrap_or_else(|error| panic!("{error}"))
}

/// Puts a value that is kept, whatever is there.
fn put(registry: &dyn Registry, key: &str, value: &str) -> u64 {
    let put = registry.put(key, Some(value.as_bytes()), Expect::Any, None, Life::Kept);
    put.unwrap_or_else(|error| panic!("{error}"))
}

fn get(registry: &dyn Registry, key: &str) -> Option<String> {
    let entry = registry.get(key).unwrap_or_else(|error| panic!("{error}"));
    entry.map(text)
}

fn text(entry: Entry) -> String {
    String::from_utf8(entry.value).expect("what a test has put")
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.expect_err("an error").kind
}

/// A candidate, and what it is told.
struct Candidate {
    /// None when it was given up.
    candidacy: Option<Candidacy>,
    stages: Receiver<Stage>,
}

impl Candidate {
    fn stand(registry: &dyn Registry, name: &str) -> Candidate {
        let (told, stages) = channel();
        let candidacy = registry.elect(
            name.as_bytes(),
            Box::new(move |stage| {
                // A test that is over hears no more.
                let _ = told.send(stage);
            }),
        );
        Candidate {
            candidacy: Some(candidacy.unwrap_or_else(|error| panic!("{error}"))),
            stages,
        }
    }

    fn elected(&self) -> Term {
        match self.stages.recv_timeout(TOO_LONG) {
            Ok(Stage::Elected(term)) => term,
            other => panic!("not elected: {other:?}"),
        }
    }

    fn over(&self) -> Error {
        match self.stages.recv_timeout(TOO_LONG) {
            Ok(Stage::Over(error)) => error,
            other => panic!("not over: {other:?}"),
        }
    }

    fn is_told_nothing(&self) -> bool {
        self.stages.recv_timeout(QUIET).is_err()
    }
}

/// The body of a process that a test has started; nothing when the suite itself runs.
#[test]
fn other_process() {
    child::main();
}
