//! Two incarnations that start in an object store, where only the objects that they write separate them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;

use super::*;
use crate::simulation::disk::{Disk, Fate};

/// An incarnation starts, stores checkpoints, and removes the old ones, including its claim.
fn come_and_go(disk: &Disk) -> (u64, BTreeSet<u64>) {
    let store = Store::new(disk.objects(), "memory");
    let (mut incarnation, _) = store.begin(None).now_or_never().unwrap().unwrap();
    for barrier in 1..=4 {
        let stored = incarnation.put_manifest(manifest(barrier));
        stored.now_or_never().unwrap().unwrap();
    }
    let swept = incarnation.sweep(1).now_or_never().unwrap();
    swept.unwrap();
    let numbers = store.numbers().now_or_never().unwrap().unwrap();
    (incarnation.epoch(), numbers)
}

/// As [`come_and_go`] while another one starts, after this many of its requests. `None` once it needs fewer.
fn begin_meanwhile(requests: usize) -> Option<(u64, BTreeSet<u64>, Result<CheckpointWriter>)> {
    let disk = Disk::new();
    let store = Store::new(Arc::new(disk.clone()), "memory");
    let mut begun = pin!(store.begin(None));
    let mut answered = 0;
    let mut other = None;
    loop {
        if answered == requests && other.is_none() {
            other = Some(come_and_go(&disk));
        }
        let polled = begun.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(begun) = polled {
            let (epoch, numbers) = other?;
            return Some((epoch, numbers, begun.map(|(incarnation, _)| incarnation)));
        }
        let mut waiting = disk.requests.lock().unwrap();
        for request in std::mem::take(&mut waiting.new) {
            waiting.answered.insert(request, Fate::Done);
            answered += 1;
        }
    }
}

#[test]
fn nobody_reuses_the_number_of_a_run_that_started_and_ended_meanwhile() {
    let mut refused = 0;
    let mut begun = 0;
    for requests in 0.. {
        let Some((epoch, numbers, incarnation)) = begin_meanwhile(requests) else {
            break;
        };
        match incarnation {
            Ok(incarnation) => {
                assert_ne!(incarnation.epoch(), epoch, "after {requests} requests");
                begun += 1;
            }
            Err(error) => {
                assert_eq!(
                    error.kind,
                    Kind::Fenced,
                    "after {requests} requests: {error}"
                );
                refused += 1;
            }
        }
        // Its claim is gone: otherwise this test would show nothing.
        assert!(!numbers.contains(&1) || epoch > 1, "{numbers:?}");
    }
    assert!(refused > 0 && begun > 0, "{refused} refused, {begun} begun");
}
