//! A property test of a single client, against a map.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use slackwater_registry::{Entry, Expect, Kind, Life};

use super::registry;

const KEYS: [&str; 5] = ["job", "hosts/a", "hosts/b", "hosts/b.c", "wish"];

#[derive(Debug, Clone)]
struct Operation {
    key: usize,
    value: Option<Vec<u8>>,
    /// Absent, any, or the version of some earlier write.
    expect: (u8, usize),
    is_session: bool,
}

fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let value = proptest::option::weighted(0.7, proptest::collection::vec(any::<u8>(), 0..40));
    let operation = (0..KEYS.len(), value, (0..4u8, 0..40usize), any::<bool>());
    let operation = operation.prop_map(|(key, value, expect, is_session)| Operation {
        key,
        value,
        expect,
        is_session,
    });
    proptest::collection::vec(operation, 1..most)
}

/// Each case begins where the last one has ended.
pub fn a_client_sees_what_a_map_would_have(url: &str, cases: u32) {
    let registry = registry(url);
    let mut model: BTreeMap<&str, Entry> = BTreeMap::new();
    let mut versions = vec![0];
    let config = ProptestConfig {
        cases,
        // The registry remembers, so that a smaller case isn't the same case.
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let model = std::cell::RefCell::new((&mut model, &mut versions));
    let ran = TestRunner::new(config).run(&operations(25), |operations| {
        let (model, versions) = &mut *model.borrow_mut();
        for Operation {
            key,
            value,
            expect,
            is_session,
        } in operations
        {
            let key = KEYS[key];
            let found = model.get(key).map(|entry| entry.version);
            let expect = match expect {
                (0, _) => Expect::Absent,
                (1, _) => Expect::Any,
                // Most often the present one, or nothing would be written.
                (2, _) => found.map_or(Expect::Absent, Expect::Version),
                (_, at) => Expect::Version(versions[at % versions.len()]),
            };
            let fits = match expect {
                Expect::Any => true,
                Expect::Absent => found.is_none(),
                Expect::Version(version) => found == Some(version),
            };
            let life = match is_session {
                true => Life::Session,
                false => Life::Kept,
            };
            let put = registry.put(key, value.as_deref(), expect, None, life);
            match (put, fits) {
                (Ok(version), true) => {
                    prop_assert!(versions.iter().all(|earlier| *earlier < version));
                    versions.push(version);
                    match value {
                        Some(value) => model.insert(key, Entry { value, version }),
                        None => model.remove(key),
                    };
                }
                (Err(error), false) => prop_assert_eq!(error.kind, Kind::Conflict),
                (put, _) => prop_assert!(false, "{:?} of {} with {:?}", put, key, expect),
            }
            prop_assert_eq!(
                &registry.get(key).expect("a look"),
                &model.get(key).cloned()
            );
        }
        for prefix in ["", "hosts/", "hosts/b"] {
            let all = model.iter().filter(|(key, _)| key.starts_with(prefix));
            let all: Vec<(String, Entry)> = all
                .map(|(key, entry)| ((*key).to_owned(), entry.clone()))
                .collect();
            prop_assert_eq!(registry.list(prefix).expect("a look"), all);
        }
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}
