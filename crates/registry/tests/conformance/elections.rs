//! Elections among candidates of one process.

use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use slackwater_registry::{Expect, Kind, LEADER, Life, Stage, TERM};

use super::{Candidate, TOO_LONG, get, kind, put, registry};

const CANDIDATES: usize = 20;

pub fn one_of_twenty_leads_in_each_term(url: &str) {
    let looks = registry(url);
    let (told, stages) = channel();
    let mut random = fastrand::Rng::with_seed(7);
    let mut standing = Vec::new();
    for at in 0..CANDIDATES {
        let registry = registry(url);
        let told = told.clone();
        let candidacy = registry.elect(
            at.to_string().as_bytes(),
            Box::new(move |stage| {
                let _ = told.send((at, stage));
            }),
        );
        standing.push(Some((registry, candidacy.expect("a candidacy"))));
    }
    // Some don't wait for their turn.
    for at in [3, 4, 11, 19] {
        standing[at] = None;
    }
    let mut last = 0;
    for left in (1..=CANDIDATES - 4).rev() {
        let (at, stage) = stages.recv_timeout(TOO_LONG).expect("a leader");
        let Stage::Elected(term) = stage else {
            panic!("{at}: {stage:?}");
        };
        assert!(term.number() > last, "{term} after {last}");
        last = term.number();
        assert!(standing[at].is_some(), "{at} doesn't stand any longer");
        assert_eq!(get(&*looks, LEADER), Some(at.to_string()));
        assert_eq!(get(&*looks, TERM), Some(last.to_string()));
        // Nobody else leads while this one does.
        std::thread::sleep(Duration::from_millis(random.u64(0..20)));
        assert!(matches!(stages.try_recv(), Err(TryRecvError::Empty)));
        let (registry, candidacy) = standing[at].take().expect("a candidacy");
        let guarded = registry.put("job", Some(b"v"), Expect::Any, Some(&term), Life::Kept);
        guarded.unwrap_or_else(|error| panic!("{error}"));
        match left % 2 {
            0 => drop(candidacy),
            // The session ends with all that belongs to it.
            _ => drop((registry, candidacy)),
        }
        let late = looks.put("job", Some(b"late"), Expect::Any, Some(&term), Life::Kept);
        assert_eq!(kind(late), Kind::Fenced);
        assert_eq!(get(&*looks, "job").as_deref(), Some("v"));
    }
    assert_eq!(get(&*looks, LEADER), None);
    assert_eq!(get(&*looks, TERM), Some(last.to_string()));
}

pub fn candidates_lead_in_the_order_of_the_line(url: &str) {
    let registry = registry(url);
    let mut line: Vec<Candidate> = (0..4)
        .map(|at| Candidate::stand(&*registry, &at.to_string()))
        .collect();
    let mut last = 0;
    for candidate in &mut line {
        let term = candidate.elected();
        assert!(term.number() > last);
        last = term.number();
        candidate.candidacy = None;
        // Who gives up isn't told so.
        assert!(candidate.is_told_nothing());
    }
}

pub fn the_leader_is_removed_by_version(url: &str) {
    let (ours, theirs) = (registry(url), registry(url));
    let old = Candidate::stand(&*theirs, "old");
    let term = old.elected();
    let new = Candidate::stand(&*ours, "new");
    let third = Candidate::stand(&*ours, "third");
    assert!(new.is_told_nothing());
    let version = ours
        .get(LEADER)
        .expect("an entry")
        .expect("a leader")
        .version;
    let remove = |version| ours.put(LEADER, None, Expect::Version(version), None, Life::Kept);
    assert_eq!(kind(remove(version + 1)), Kind::Conflict);
    remove(version).unwrap_or_else(|error| panic!("{error}"));
    assert!(new.elected() > term);
    assert_eq!(old.over().kind, Kind::Fenced);
    assert!(old.stages.try_recv().is_err());
    let late = theirs.put("job", Some(b"late"), Expect::Any, Some(&term), Life::Kept);
    assert_eq!(kind(late), Kind::Fenced);
    // Two who suspect the same leader remove one.
    assert_eq!(kind(remove(version)), Kind::Conflict);
    assert_eq!(get(&*ours, LEADER).as_deref(), Some("new"));
    drop(old);
    assert!(new.is_told_nothing());
    assert!(third.is_told_nothing());
}

pub fn the_keys_of_the_leader_are_its_own(url: &str) {
    let registry = registry(url);
    let candidate = Candidate::stand(&*registry, "first");
    let term = candidate.elected();
    let own = |value: &str, guard| {
        registry.put(
            LEADER,
            Some(value.as_bytes()),
            Expect::Any,
            guard,
            Life::Session,
        )
    };
    assert_eq!(kind(own("stranger", None)), Kind::Invalid);
    own("moved", Some(&term)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(get(&*registry, LEADER).as_deref(), Some("moved"));
    // It leads all the same.
    put(&*registry, "job", "v");
    assert!(candidate.is_told_nothing());
    registry
        .put("job", None, Expect::Any, Some(&term), Life::Kept)
        .expect("a guarded write");
    for expect in [Expect::Any, Expect::Absent] {
        let remove = registry.put(LEADER, None, expect, None, Life::Kept);
        assert_eq!(kind(remove), Kind::Invalid);
        let term = registry.put(TERM, Some(b"77"), expect, Some(&term), Life::Kept);
        assert_eq!(kind(term), Kind::Invalid);
    }
    drop(candidate);
    assert_eq!(get(&*registry, LEADER), None);
    assert_eq!(kind(own("late", Some(&term))), Kind::Fenced);
    // Who stood once may stand again.
    assert!(Candidate::stand(&*registry, "again").elected() > term);
}
