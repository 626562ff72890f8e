//! The suite with SQLite, and what only SQLite promises.

use rustix::process::Signal;
use slackwater_registry::LEADER;
use tempfile::TempDir;

use super::child::Child;
use super::{Candidate, QUIET, cases, elections, get, model, processes, put, registry};

macro_rules! conforms {
    ($($module:ident::$case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                let (_folder, url) = fresh();
                $module::$case(&url);
            }
        )*
    };
}

conforms!(
    cases::writes_expect_what_is_there,
    cases::lists_have_what_starts_with_the_prefix,
    cases::odd_keys_and_long_values_are_refused,
    cases::threads_count_by_compare_and_set,
    cases::a_session_ends_with_its_registry,
    cases::watches_see_every_change,
    cases::a_watch_may_write_and_end_itself,
    cases::who_only_looks_makes_nothing,
    elections::one_of_twenty_leads_in_each_term,
    elections::candidates_lead_in_the_order_of_the_line,
    elections::the_leader_is_removed_by_version,
    elections::the_keys_of_the_leader_are_its_own,
    processes::processes_count_by_compare_and_set,
    processes::entries_of_a_session_vanish_with_its_process,
    processes::the_next_one_leads_when_the_leader_is_killed,
    processes::a_gap_in_the_line_is_closed,
    processes::a_stopped_leader_can_be_removed,
    processes::writers_are_killed_at_any_moment,
);

#[test]
fn a_client_sees_what_a_map_would_have() {
    let (_folder, url) = fresh();
    model::a_client_sees_what_a_map_would_have(&url, 32);
}

/// A folder, and the URL of a registry in it that isn't there yet.
pub fn fresh() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("registry.db").display());
    (folder, url)
}

/// A stopped process holds its session as long as it is there.
#[test]
fn a_stopped_leader_leads() {
    let (_folder, url) = fresh();
    let ours = registry(&url);
    let mut child = Child::start(&url);
    assert_eq!(child.ask("elect stopped"), "elected 1");
    let standby = Candidate::stand(&*ours, "standby");
    child.signal(Signal::STOP);
    assert!(standby.stages.recv_timeout(QUIET * 5).is_err());
    assert_eq!(get(&*ours, LEADER).as_deref(), Some("stopped"));
    child.signal(Signal::CONT);
    assert_eq!(child.ask("guarded job v"), "done");
    child.kill();
    assert_eq!(standby.elected().number(), 2);
}

/// Nobody polls: threads that wait don't run at all while nothing is written.
#[test]
fn waiting_makes_no_wake_up() {
    let (_folder, url) = fresh();
    let ours = registry(&url);
    let leader = Candidate::stand(&*ours, "leader");
    leader.elected();
    let mut child = Child::start(&url);
    child.send("elect waits");
    assert_eq!(child.ask("watch hosts/"), "watching");
    let version = put(&*ours, "hosts/h1", "v");
    assert!(version > 0);
    assert_eq!(child.line(), "changed");
    let switches = || child.switches();
    // Until everything has gone to sleep.
    let mut before = switches();
    for _ in 0..20 {
        std::thread::sleep(QUIET);
        let now = switches();
        if now == before {
            break;
        }
        before = now;
    }
    std::thread::sleep(QUIET * 10);
    assert_eq!(switches(), before);
    // Nor did it sleep too deeply.
    drop(leader);
    assert_eq!(child.line(), "elected 2");
}
