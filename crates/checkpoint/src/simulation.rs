//! Both state machines, the real store, and a toy query, in simulated time and from a seed.
//!
//! Sources count through their rows, operators keep a sum for each key, and sinks pass rows to a ledger in
//! transactions. Messages are late and overtake each other; processes die at any moment, and some that are
//! believed dead continue; queries are stopped and started again; storage is slow, fails, reports failure for
//! requests that succeeded, or tears what it writes; clocks jump. Every request to storage is a separate
//! step, so that the requests of two incarnations interleave. At the end the ledger must have every row and
//! every sum exactly once.
//!
//! Standbys follow: they hear of checkpoints late or not at all, hold their state, store increments and make
//! bases for the agents, answer late or never, and take over when the active is gone or when they believe so.
//! What they hold must be what a restore gives, and what a checkpoint holds must be the sums of the rows
//! before its positions. [`mutation`] has mistakes that must be noticed.
//!
//! A seed is one run; `SLACKWATER_SEED=17` runs it alone, `SLACKWATER_SEEDS=10000` that many.

use std::env;

mod agent;
mod data;
pub mod disk;
mod fault;
mod ledger;
mod mutation;
mod pipeline;
pub mod random;
mod replica;
mod seen;
mod standby;
mod supervisor;
mod truth;
mod world;

use mutation::Mutation;
use seen::Seen;
use world::World;

/// Seeds of an ordinary test; about six seconds.
const SEEDS: u64 = 300;

fn run(seed: u64) -> Result<Seen, String> {
    World::new(seed, None).run()
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn run_all(seeds: impl Iterator<Item = u64>) {
    let mut seen = Seen::default();
    let mut failed = Vec::new();
    let mut count = 0;
    for seed in seeds {
        count += 1;
        match run(seed) {
            Ok(one) => seen.add(&one),
            Err(reason) => failed.push((seed, reason)),
        }
    }
    println!("{count} seeds: {seen:?}");
    for (seed, reason) in failed.iter().take(5) {
        println!("SLACKWATER_SEED={seed}: {reason}");
    }
    assert!(
        failed.is_empty(),
        "{} of {count} seeds failed, the first with SLACKWATER_SEED={}",
        failed.len(),
        failed[0].0
    );
    // Otherwise the simulation no longer simulates what it is for.
    let events = [
        seen.checkpoints,
        seen.increments,
        seen.restores,
        seen.fenced,
        2 * seen.saved,
        seen.relayed,
        seen.bases,
        seen.synced,
        seen.takeovers,
        2 * seen.from_memory,
    ];
    assert!(
        count < SEEDS || events.iter().all(|&event| event > count / 5),
        "{seen:?}"
    );
}

#[test]
fn every_row_is_committed_once_whatever_fails() {
    match number("SLACKWATER_SEED") {
        Some(seed) => run_all(seed..seed + 1),
        None => run_all(0..number("SLACKWATER_SEEDS").unwrap_or(SEEDS)),
    }
}

#[test]
#[ignore = "four minutes"]
fn every_row_is_committed_once_in_many_runs() {
    run_all(0..number("SLACKWATER_SEEDS").unwrap_or(10_000));
}

fn notice(mutations: &[Mutation], seeds: u64) {
    for &mutation in mutations {
        let failed = |seed| World::new(seed, Some(mutation)).run().err();
        let mut failed = (0..seeds).filter_map(|seed| Some((seed, failed(seed)?)));
        let Some((seed, reason)) = failed.next() else {
            panic!("{mutation:?} is not noticed");
        };
        println!("{mutation:?}: seed {seed}: {reason}");
    }
}

#[test]
fn mistakes_in_a_standby_are_noticed() {
    notice(&mutation::FREQUENT, SEEDS);
}

#[test]
#[ignore = "half a minute"]
fn rare_mistakes_in_a_standby_are_noticed() {
    notice(&mutation::RARE, 10_000);
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
