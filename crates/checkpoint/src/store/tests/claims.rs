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

/// Another incarnation stores checkpoints and removes older ones, after this many requests of one that starts
/// and again after so many more. `None` once that needs fewer.
fn begin_between(first: usize, second: usize) -> Option<(u64, Result<CheckpointWriter>)> {
    let disk = Disk::new();
    let store = Store::new(Arc::new(disk.clone()), "memory");
    let undisturbed = Store::new(disk.objects(), "memory");
    let mut begun = pin!(store.begin(None));
    let mut answered = 0;
    let mut other: Option<(CheckpointWriter, u64)> = None;
    loop {
        let rounds = other.as_ref().map_or(0, |(_, rounds)| *rounds);
        if (rounds == 0 && answered == first) || (rounds == 1 && answered == first + second) {
            let (mut writer, rounds) = other.take().unwrap_or_else(|| {
                let begun = undisturbed.begin(None).now_or_never().unwrap();
                (begun.unwrap().0, 0)
            });
            for barrier in 4 * rounds + 1..=4 * rounds + 4 {
                let stored = writer.put_manifest(manifest(barrier)).now_or_never();
                // It is fenced by the other one.
                if stored.unwrap().is_err() {
                    break;
                }
            }
            drop(writer.sweep(1).now_or_never().unwrap());
            other = Some((writer, rounds + 1));
        }
        let polled = begun.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(begun) = polled {
            let (writer, rounds) = other?;
            let begun = begun.map(|(incarnation, _)| incarnation);
            return (rounds == 2).then_some((writer.epoch(), begun));
        }
        let mut waiting = disk.requests.lock().unwrap();
        for request in std::mem::take(&mut waiting.new) {
            waiting.answered.insert(request, Fate::Done);
            answered += 1;
        }
    }
}

/// Found by the simulation: all later records that it listed were removed before it had read them, and it
/// took that for none.
#[test]
fn nobody_reuses_a_number_because_later_records_are_removed_while_they_are_read() {
    let mut refused = 0;
    for first in 0..20 {
        for second in 1.. {
            let Some((epoch, incarnation)) = begin_between(first, second) else {
                break;
            };
            match incarnation {
                Ok(incarnation) => {
                    let place = format!("after {first} and {second} requests");
                    assert_ne!(incarnation.epoch(), epoch, "{place}");
                }
                Err(error) => {
                    assert_eq!(error.kind, Kind::Fenced, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0);
}

/// An incarnation that has started before stores checkpoints and removes older ones, after this many requests
/// of one that starts. `None` once that needs fewer.
fn begin_after(requests: usize) -> Option<(CheckpointWriter, Result<(CheckpointWriter, Found)>)> {
    let disk = Disk::new();
    let store = Store::new(Arc::new(disk.clone()), "memory");
    let undisturbed = Store::new(disk.objects(), "memory");
    let begun = undisturbed.begin(None).now_or_never().unwrap();
    let mut other = begun.unwrap().0;
    let mut begun = pin!(store.begin(None));
    let (mut answered, mut has_stored) = (0, false);
    loop {
        if answered == requests && !has_stored {
            for barrier in 1..=4 {
                // It is fenced if the claim is there already.
                if other
                    .put_manifest(manifest(barrier))
                    .now_or_never()
                    .unwrap()
                    .is_err()
                {
                    break;
                }
            }
            drop(other.sweep(1).now_or_never().unwrap());
            has_stored = true;
        }
        let polled = begun.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(begun) = polled {
            return has_stored.then_some((other, begun));
        }
        let mut waiting = disk.requests.lock().unwrap();
        for request in std::mem::take(&mut waiting.new) {
            waiting.answered.insert(request, Fate::Done);
            answered += 1;
        }
    }
}

/// Found by the simulation: the claim got a number that an incarnation which still ran had used and removed
/// meanwhile. So both ran, and the later one did not resume from what the other had committed.
#[test]
fn a_claim_with_the_number_of_a_removed_checkpoint_does_not_count() {
    let mut stored = 0;
    for requests in 0.. {
        let Some((mut other, begun)) = begin_after(requests) else {
            break;
        };
        let (incarnation, found) = begun.unwrap();
        let newest = found.manifest.map_or(0, |manifest| manifest.barrier);
        stored += u64::from(newest > 0);
        assert!(newest == 0 || newest == 4, "after {requests} requests");
        assert!(
            incarnation.epoch() > other.last,
            "after {requests} requests"
        );
        let late = other.put_manifest(manifest(5)).now_or_never().unwrap();
        assert_eq!(late.unwrap_err().kind, Kind::Fenced);
    }
    assert!(stored > 0);
}
