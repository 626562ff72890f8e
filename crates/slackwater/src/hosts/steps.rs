//! What steps and buckets have counted, as changes.
//!
//! The rebalancer looks five times a second, and a route by
//! key counts 4,096 buckets. So only what has changed since the last look crosses the control socket, as
//! varints:
//!
//! ```text
//! changes  = { instance + 1, { step + 1, time, chunks, rows, late, buckets, { gap, rows } }, 0 }, 0
//! ```
//!
//! Step 0 is the instance's source, and its steps follow; `gap` is the number of buckets that were passed
//! over since the last one. In the worst case every bucket of a route has changed, by more rows than a look
//! can bring: [`CHANGES_BYTES_MAX`] for each of an instance's routes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slackwater_engine::counters::{InstanceCounters, StepCounters};
use slackwater_engine::hash::BUCKETS;

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// Bytes of what one step may say, whose instance's number comes with the first: six counts, and a gap of
/// two bytes and a count for each bucket; 48 KiB.
pub const CHANGES_BYTES_MAX: usize = 6 * VARINT_BYTES_MAX + BUCKETS * (2 + VARINT_BYTES_MAX);

/// The last reported counts, from which the changes are computed.
#[derive(Default)]
pub struct StepChanges {
    told: HashMap<(usize, usize), Told>,
}

#[derive(Default)]
struct Told {
    counts: [u64; 4],
    buckets: Vec<u64>,
}

impl StepChanges {
    /// Encodes what instances have counted since the last call.
    pub fn encode<'a>(
        &mut self,
        instances: impl Iterator<Item = (usize, &'a InstanceCounters)>,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, counters) in instances {
            let before = bytes.len();
            put(&mut bytes, number as u64 + 1);
            let begin = bytes.len();
            for (step, slots) in steps(counters).enumerate() {
                let told = self.told.entry((number, step)).or_default();
                told.encode(step, slots, &mut bytes);
            }
            match bytes.len() == begin {
                true => bytes.truncate(before),
                false => put(&mut bytes, 0),
            }
        }
        put(&mut bytes, 0);
        bytes
    }
}

impl Told {
    fn encode(&mut self, step: usize, slots: &StepCounters, bytes: &mut Vec<u8>) {
        let now = counts(slots).map(InstanceCounters::read);
        let mut changed = Vec::new();
        if let Some(buckets) = &slots.buckets {
            self.buckets.resize(buckets.len(), 0);
            for (bucket, (slot, told)) in buckets.iter().zip(&mut self.buckets).enumerate() {
                let now = InstanceCounters::read(slot);
                let new = now.wrapping_sub(std::mem::replace(told, now));
                if new > 0 {
                    changed.push((bucket, new));
                }
            }
        }
        if now == self.counts && changed.is_empty() {
            return;
        }
        put(bytes, step as u64 + 1);
        for (told, now) in self.counts.iter_mut().zip(now) {
            put(bytes, now.wrapping_sub(std::mem::replace(told, now)));
        }
        put(bytes, changed.len() as u64);
        let mut next = 0;
        for (bucket, new) in changed {
            put(bytes, (bucket - next) as u64);
            put(bytes, new);
            next = bucket + 1;
        }
    }
}

/// Adds changes to the counters `all` of all instances, which no other thread writes.
///
/// # Errors
///
/// If the bytes are not changes of such instances.
pub fn add(mut changes: &[u8], all: &[Arc<InstanceCounters>]) -> Result<(), String> {
    let steps = all.iter().map(|counters| steps(counters).count());
    let is_bounded = changes.len() <= (steps.sum::<usize>() + 1) * CHANGES_BYTES_MAX;
    let added = is_bounded.then(|| add_all(&mut changes, all)).flatten();
    added.ok_or_else(|| "sent counts that can't be read".to_string())
}

fn add_all(bytes: &mut &[u8], all: &[Arc<InstanceCounters>]) -> Option<()> {
    while let Some(instance) = take(bytes)?.checked_sub(1) {
        let counters = all.get(usize::try_from(instance).ok()?)?;
        while let Some(step) = take(bytes)?.checked_sub(1) {
            let slots = steps(counters).nth(usize::try_from(step).ok()?)?;
            for slot in counts(slots) {
                slot.fetch_add(take(bytes)?, Ordering::Relaxed);
            }
            let buckets = slots.buckets.as_deref().unwrap_or_default();
            let mut next = 0usize;
            for _ in 0..take(bytes)? {
                let bucket = next.checked_add(usize::try_from(take(bytes)?).ok()?)?;
                buckets
                    .get(bucket)?
                    .fetch_add(take(bytes)?, Ordering::Relaxed);
                next = bucket + 1;
            }
        }
    }
    bytes.is_empty().then_some(())
}

/// The source's slots, and those of the steps.
fn steps(counters: &InstanceCounters) -> impl Iterator<Item = &StepCounters> {
    std::iter::once(&counters.source).chain(&counters.steps)
}

fn counts(slots: &StepCounters) -> [&AtomicU64; 4] {
    [
        &slots.busy_ns,
        &slots.chunks,
        &slots.rows,
        &slots.violated_ns,
    ]
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..).step_by(7).take(VARINT_BYTES_MAX) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slots() -> Vec<Arc<InstanceCounters>> {
        let instances = (0..3).map(|_| Arc::new(InstanceCounters::new(2, &[], &[1])));
        instances.collect()
    }

    fn read(all: &[Arc<InstanceCounters>]) -> Vec<Vec<u64>> {
        let steps = all.iter().flat_map(|counters| steps(counters));
        let read = steps.map(|slots| {
            let buckets = slots.buckets.iter().flatten();
            let slots = counts(slots).into_iter().chain(buckets);
            slots.map(InstanceCounters::read).collect()
        });
        read.collect()
    }

    fn encode(changes: &mut StepChanges, all: &[Arc<InstanceCounters>]) -> Vec<u8> {
        let all = all.iter().enumerate();
        changes.encode(all.map(|(number, counters)| (number, &**counters)))
    }

    proptest! {
        #[test]
        fn what_is_added_up_is_what_was_counted(
            rounds in prop::collection::vec(
                prop::collection::vec((0..3usize, 0..4096usize, 0..u64::from(u32::MAX)), 0..40),
                1..5,
            ),
        ) {
            let (theirs, ours) = (slots(), slots());
            let mut changes = StepChanges::default();
            for round in rounds {
                for (instance, bucket, count) in round {
                    let step = &theirs[instance].steps[1];
                    step.rows.fetch_add(count, Ordering::Relaxed);
                    step.buckets.as_ref().unwrap()[bucket].fetch_add(count, Ordering::Relaxed);
                    theirs[instance].source.busy_ns.fetch_add(count, Ordering::Relaxed);
                }
                let bytes = encode(&mut changes, &theirs);
                prop_assert_eq!(add(&bytes, &ours), Ok(()));
                prop_assert_eq!(read(&ours), read(&theirs));
            }
            prop_assert_eq!(encode(&mut changes, &theirs), vec![0u8], "nothing is new");
        }

        #[test]
        fn bytes_of_any_kind_are_added_or_refused(bytes: Vec<u8>) {
            let _ = add(&bytes, &slots());
        }
    }

    #[test]
    fn changes_are_bounded() {
        let theirs = slots();
        for slot in theirs[0].steps[1].buckets.iter().flatten() {
            slot.store(u64::MAX, Ordering::Relaxed);
        }
        let bytes = encode(&mut StepChanges::default(), &theirs);
        assert!(bytes.len() <= CHANGES_BYTES_MAX + 4, "{}", bytes.len());
        assert!(
            add(&bytes[..bytes.len() - 1], &slots()).is_err(),
            "cut short"
        );
    }
}
