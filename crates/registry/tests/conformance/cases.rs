//! Reading, writing and watching, in one process.

use std::sync::mpsc::{Receiver, channel};

use slackwater_registry::{
    Entry, Expect, KEY_MAX, Kind, Life, Registry, VALUE_MAX, Watch, open_existing,
};

use super::{QUIET, TOO_LONG, child, get, kind, put, registry};

pub fn writes_expect_what_is_there(url: &str) {
    let registry = registry(url);
    let write = |value: Option<&str>, expect| {
        registry.put(
            "hosts/h1",
            value.map(str::as_bytes),
            expect,
            None,
            Life::Kept,
        )
    };
    assert_eq!(registry.get("hosts/h1"), Ok(None));
    assert_eq!(kind(write(Some("a"), Expect::Version(1))), Kind::Conflict);
    let first = write(Some("a"), Expect::Absent).expect("a write");
    let entry = Entry {
        value: b"a".to_vec(),
        version: first,
    };
    assert_eq!(registry.get("hosts/h1"), Ok(Some(entry)));
    assert_eq!(kind(write(Some("b"), Expect::Absent)), Kind::Conflict);
    assert_eq!(
        kind(write(Some("b"), Expect::Version(first + 1))),
        Kind::Conflict
    );
    let second = write(Some("b"), Expect::Version(first)).expect("a write");
    assert!(second > first);
    assert_eq!(kind(write(None, Expect::Version(first))), Kind::Conflict);
    write(None, Expect::Version(second)).expect("a write");
    assert_eq!(registry.get("hosts/h1"), Ok(None));
    // A version is never given twice, so what was made again isn't taken for what was there before.
    let again = write(Some("a"), Expect::Absent).expect("a write");
    assert!(again > second);
    assert_eq!(
        kind(write(Some("c"), Expect::Version(first))),
        Kind::Conflict
    );
    write(None, Expect::Any).expect("a write");
    write(None, Expect::Any).expect("a write of nothing");
    write(None, Expect::Absent).expect("a write of nothing");
    assert_eq!(get(&*registry, "hosts/h1"), None);
}

pub fn lists_have_what_starts_with_the_prefix(url: &str) {
    let registry = registry(url);
    for key in [
        "hosts/b",
        "hosts/a",
        "host",
        "hosts-2",
        "drain/a",
        "hosts/a.b/c",
    ] {
        put(&*registry, key, key);
    }
    let names = |prefix: &str| -> Vec<String> {
        let entries = registry
            .list(prefix)
            .unwrap_or_else(|error| panic!("{error}"));
        entries
            .into_iter()
            .map(|(key, entry)| {
                assert_eq!(key.as_bytes(), entry.value);
                key
            })
            .collect()
    };
    assert_eq!(names("hosts/"), ["hosts/a", "hosts/a.b/c", "hosts/b"]);
    assert_eq!(names("hosts/a"), ["hosts/a", "hosts/a.b/c"]);
    assert_eq!(
        names("host"),
        ["host", "hosts-2", "hosts/a", "hosts/a.b/c", "hosts/b"]
    );
    assert_eq!(names("").len(), 6);
    assert_eq!(names("wish"), [""; 0]);
    assert_eq!(kind(registry.list("h*")), Kind::Invalid);
}

pub fn odd_keys_and_long_values_are_refused(url: &str) {
    let registry = registry(url);
    let long = "k".repeat(KEY_MAX + 1);
    for key in [
        "", "/", "a//b", "a/", "../a", "a b", "a\0", "ä", "a:b", &long,
    ] {
        assert_eq!(kind(registry.get(key)), Kind::Invalid, "{key}");
        let written = registry.put(key, Some(b"v"), Expect::Any, None, Life::Kept);
        assert_eq!(kind(written), Kind::Invalid, "{key}");
    }
    let longest = "k".repeat(KEY_MAX);
    put(&*registry, &longest, "v");
    assert_eq!(get(&*registry, &longest).as_deref(), Some("v"));

    let value: Vec<u8> = (0..VALUE_MAX).map(|at| (at % 251) as u8).collect();
    let version = registry.put("job", Some(&value), Expect::Any, None, Life::Kept);
    let entry = Entry {
        version: version.expect("a write"),
        value,
    };
    assert_eq!(registry.get("job"), Ok(Some(entry.clone())));
    for length in [VALUE_MAX + 1, 1 << 20] {
        let refused = registry.put("job", Some(&vec![0; length]), Expect::Any, None, Life::Kept);
        let error = refused.expect_err("too long");
        assert_eq!(error.kind, Kind::Invalid);
        assert!(
            error.to_string().contains(&VALUE_MAX.to_string()),
            "{error}"
        );
    }
    assert_eq!(registry.get("job"), Ok(Some(entry)));
    put(&*registry, "empty", "");
    assert_eq!(get(&*registry, "empty").as_deref(), Some(""));
}

pub fn threads_count_by_compare_and_set(url: &str) {
    let shared = registry(url);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| child::count(&*shared, "count", 10));
            scope.spawn(|| child::count(&*registry(url), "count", 10));
        }
    });
    assert_eq!(get(&*shared, "count").as_deref(), Some("40"));
}

pub fn a_session_ends_with_its_registry(url: &str) {
    let (ours, theirs) = (registry(url), registry(url));
    for life in [Life::Session, Life::Kept, Life::Session] {
        theirs
            .put("turns", Some(b"v"), Expect::Any, None, life)
            .expect("a write");
    }
    theirs
        .put("stays", Some(b"v"), Expect::Any, None, Life::Session)
        .expect("a write");
    put(&*theirs, "stays", "kept");
    let (watch, changes) = watch(&*ours, "turns");
    assert_eq!(get(&*ours, "turns").as_deref(), Some("v"));
    drop(theirs);
    changes.recv_timeout(TOO_LONG).expect("a change");
    assert_eq!(get(&*ours, "turns"), None);
    assert_eq!(get(&*ours, "stays").as_deref(), Some("kept"));
    // What is gone doesn't stand in the way.
    ours.put("turns", Some(b"v"), Expect::Absent, None, Life::Kept)
        .expect("a write");
    drop(watch);
}

fn watch(registry: &dyn Registry, prefix: &str) -> (Watch, Receiver<()>) {
    let (changed, changes) = channel();
    let watch = registry.watch(
        prefix,
        Box::new(move || {
            // A test that is over hears no more.
            let _ = changed.send(());
        }),
    );
    (watch.unwrap_or_else(|error| panic!("{error}")), changes)
}

pub fn watches_see_every_change(url: &str) {
    let (ours, theirs) = (registry(url), registry(url));
    let (watch, changes) = watch(&*ours, "hosts/");
    for round in 0..20 {
        let key = format!("hosts/h{}", round % 3);
        match round % 7 {
            6 => {
                put(&*theirs, &key, "v");
                let removed = theirs.put(&key, None, Expect::Any, None, Life::Kept);
                removed.expect("a write");
            }
            _ => {
                put(&*theirs, &key, &round.to_string());
            }
        }
        let expected = theirs.list("hosts/").expect("entries");
        // Called at least once after the change, when it can be seen.
        loop {
            changes.recv_timeout(TOO_LONG).expect("a change");
            if ours.list("hosts/").expect("entries") == expected {
                break;
            }
        }
        while changes
            .recv_timeout(std::time::Duration::from_millis(20))
            .is_ok()
        {}
    }
    // In the same process too.
    put(&*ours, "hosts/own", "v");
    changes.recv_timeout(TOO_LONG).expect("a change");
    while changes.recv_timeout(QUIET).is_ok() {}
    drop(watch);
    put(&*theirs, "hosts/h1", "after");
    assert!(changes.recv_timeout(QUIET).is_err());
}

/// Whoever is told may use the registry, and may be the one who ends the watch.
pub fn a_watch_may_write_and_end_itself(url: &str) {
    let ours = std::sync::Arc::new(registry(url));
    let slot = std::sync::Arc::new(std::sync::Mutex::new(None::<Watch>));
    let (done, is_done) = channel();
    let (inner, held) = (std::sync::Arc::clone(&ours), std::sync::Arc::clone(&slot));
    let watch = ours.watch(
        "asked",
        Box::new(move || {
            put(&**inner, "answered", "yes");
            let watch = held.lock().expect("no panic").take();
            let _ = done.send(watch.is_some());
            drop(watch);
        }),
    );
    *slot.lock().expect("no panic") = Some(watch.expect("a watch"));
    put(&**ours, "asked", "now");
    assert_eq!(is_done.recv_timeout(TOO_LONG), Ok(true));
    assert_eq!(get(&**ours, "answered").as_deref(), Some("yes"));
}

pub fn who_only_looks_makes_nothing(url: &str) {
    let error = open_existing(url).err().expect("nothing there");
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    let made = registry(url);
    put(&*made, "job", "v");
    let looks = open_existing(url).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(get(&*looks, "job").as_deref(), Some("v"));
}
