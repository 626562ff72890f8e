//! Sinks under checkpoints: what a reader of committed rows sees, whoever dies when.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use slackwater_engine::sink::Recovered;

use super::broker::Broker;
use super::driver::{Writing, assert_committed, committed, connector, lines};
use crate::support::{Seeded, run_text};

const AT_LEAST_ONCE: (&str, &str) = ("delivery", "at_least_once");

pub fn sinks_deliver_once(broker: &Broker) {
    rows_are_there_with_their_commit(broker);
    killed_before_the_commit(broker);
    killed_after_the_commit(broker);
    killed_while_it_writes(broker);
    a_zombie_commits_nothing(broker);
    a_query_without_checkpoints_takes_nothing_over(broker);
    an_earlier_checkpoint_is_refused(broker);
    what_nobody_knows_is_said(broker);
    a_failed_query_aborts(broker);
    several_checkpoints_that_were_not_stored(broker);
    a_transaction_whose_time_is_up(broker);
    rows_are_delivered_before_a_checkpoint_at_least_once(broker);
    rows_keep_their_order(broker);
    whatever_dies_when(broker);
}

/// Dead between prepare and commit, and back on what it had.
pub fn a_broker_that_restarts(broker: &mut Broker) {
    broker.create_topic("restarts", 1);
    let mut writing = Writing::begin(broker, "restarts", &[]);
    writing.write(0..1_000).unwrap();
    let first = prepare(&mut writing);
    broker.kill();
    writing.write(1_000..1_010).unwrap();
    let connector = Arc::clone(&writing.connector);
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| connector.commit(&first));
        broker.restart();
        commit.join().unwrap().unwrap();
    });
    assert_committed(broker, "restarts", &lines(0..1_000));
    let second = prepare(&mut writing);
    connector.commit(&second).unwrap();
    assert_committed(broker, "restarts", &lines(0..1_010));
    assert_eq!(
        recover(broker, "restarts", &[&second]),
        Recovered::Committed
    );
}

/// Prepares what must have rows.
fn prepare(writing: &mut Writing) -> String {
    writing.prepare().unwrap().expect("it has rows")
}

/// The incarnation that recovers: transactions are fenced by their names, and not by it.
const EPOCH: u64 = u64::MAX;

fn recover(broker: &Broker, topic: &str, prepared: &[&String]) -> Recovered {
    let prepared = prepared.iter().map(|token| token.to_string());
    let prepared = prepared.collect::<Vec<_>>();
    connector(broker, topic, &[])
        .recover(EPOCH, Some(&prepared))
        .unwrap()
}

fn rows_are_there_with_their_commit(broker: &Broker) {
    broker.create_topic("tx", 1);
    let mut writing = Writing::begin(broker, "tx", &[]);
    assert_eq!(writing.prepare().unwrap(), None);
    writing.write(0..100).unwrap();
    let first = prepare(&mut writing);
    assert!(committed(broker, "tx").is_empty());
    // What comes before the commit belongs to the next transaction.
    writing.write(100..150).unwrap();
    writing.connector.commit(&first).unwrap();
    writing.connector.commit(&first).unwrap();
    assert_committed(broker, "tx", &lines(0..100));
    writing.write(150..200).unwrap();
    let second = prepare(&mut writing);
    writing.write(200..210).unwrap();
    let third = prepare(&mut writing);
    // The third takes the second along.
    writing.connector.commit(&third).unwrap();
    writing.connector.commit(&second).unwrap();
    assert_committed(broker, "tx", &lines(0..210));
    // The end: prepared, finished, and committed at last.
    writing.write(210..220).unwrap();
    let last = prepare(&mut writing);
    writing.sink.finish(true).unwrap();
    let Writing { connector, .. } = writing;
    assert_committed(broker, "tx", &lines(0..210));
    connector.commit(&last).unwrap();
    assert_committed(broker, "tx", &lines(0..220));
    let error = connector.commit("1-99").unwrap_err().to_string();
    assert!(error.contains("1-99 was not prepared"), "{error}");
    connector.commit("nonsense").unwrap_err();
}

fn killed_before_the_commit(broker: &Broker) {
    broker.create_topic("before", 1);
    let mut writing = Writing::begin(broker, "before", &[]);
    writing.write(0..10).unwrap();
    let first = prepare(&mut writing);
    writing.connector.commit(&first).unwrap();
    writing.write(10..20).unwrap();
    let second = prepare(&mut writing);
    writing.write(20..30).unwrap();
    drop(writing);
    assert_eq!(recover(broker, "before", &[&second]), Recovered::Lost);
    // It stays so, and the checkpoint before is good.
    assert_eq!(
        recover(broker, "before", &[&first, &second]),
        Recovered::Lost
    );
    assert_eq!(recover(broker, "before", &[&first]), Recovered::Committed);
    assert_committed(broker, "before", &lines(0..10));
    let connector = connector(broker, "before", &[]);
    let mut writing = Writing::open(&connector, 2).unwrap();
    writing.write(10..30).unwrap();
    let third = prepare(&mut writing);
    connector.commit(&third).unwrap();
    assert_committed(broker, "before", &lines(0..30));
}

fn killed_after_the_commit(broker: &Broker) {
    broker.create_topic("after", 1);
    let mut writing = Writing::begin(broker, "after", &[]);
    writing.write(0..10).unwrap();
    let first = prepare(&mut writing);
    writing.write(10..20).unwrap();
    writing.connector.commit(&first).unwrap();
    writing.write(20..30).unwrap();
    drop(writing);
    assert_eq!(recover(broker, "after", &[&first]), Recovered::Committed);
    assert_committed(broker, "after", &lines(0..10));
    let connector = connector(broker, "after", &[]);
    let mut writing = Writing::open(&connector, 2).unwrap();
    writing.write(10..30).unwrap();
    connector.commit(&prepare(&mut writing)).unwrap();
    assert_committed(broker, "after", &lines(0..30));
}

fn killed_while_it_writes(broker: &Broker) {
    broker.create_topic("midst", 1);
    let mut writing = Writing::begin(broker, "midst", &[]);
    writing.write(0..1_000).unwrap();
    drop(writing);
    assert_eq!(recover(broker, "midst", &[]), Recovered::Committed);
    let connector = connector(broker, "midst", &[]);
    let mut writing = Writing::open(&connector, 2).unwrap();
    writing.write(0..1_000).unwrap();
    connector.commit(&prepare(&mut writing)).unwrap();
    assert_committed(broker, "midst", &lines(0..1_000));
}

/// One that goes on after somebody else has taken over.
fn a_zombie_commits_nothing(broker: &Broker) {
    broker.create_topic("zombie", 1);
    let mut old = Writing::begin(broker, "zombie", &[]);
    old.write(0..10).unwrap();
    let first = prepare(&mut old);
    old.write(10..20).unwrap();
    assert_eq!(recover(broker, "zombie", &[&first]), Recovered::Lost);
    let error = old.connector.commit(&first).unwrap_err().to_string();
    assert!(error.contains("started again elsewhere"), "{error}");
    let connector = connector(broker, "zombie", &[]);
    let mut new = Writing::open(&connector, 2).unwrap();
    new.write(0..5).unwrap();
    // It may hear of it while it writes, at the latest when it commits.
    let goes_on = old
        .write(20..30)
        .and_then(|()| old.prepare())
        .and_then(|token| old.connector.commit(&token.unwrap()));
    goes_on.unwrap_err();
    new.write(5..20).unwrap();
    connector.commit(&prepare(&mut new)).unwrap();
    assert_committed(broker, "zombie", &lines(0..20));
    // One that opens late finds out at once.
    let late = Writing::open(&old.connector, 1).err().unwrap().to_string();
    assert!(late.contains("this is epoch 1"), "{late}");
}

fn a_query_without_checkpoints_takes_nothing_over(broker: &Broker) {
    broker.create_topic("plain", 1);
    let mut writing = Writing::begin(broker, "plain", &[]);
    writing.write(0..10).unwrap();
    let first = prepare(&mut writing);
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("one.csv");
    std::fs::write(&input, "one\n").unwrap();
    let text = format!(
        "CREATE TABLE i (line STRING) WITH ('connector' = 'file', 'path' = '{}');\n\
         {} INSERT INTO t SELECT line FROM i;",
        input.display(),
        super::table(broker, "t", "line STRING", "plain", "")
    );
    run_text(&text, &[]).unwrap();
    writing.connector.commit(&first).unwrap();
    drop(writing);
    assert_eq!(recover(broker, "plain", &[&first]), Recovered::Committed);
}

fn an_earlier_checkpoint_is_refused(broker: &Broker) {
    broker.create_topic("earlier", 1);
    let mut writing = Writing::begin(broker, "earlier", &[]);
    let mut tokens = vec![];
    for first in [0, 10] {
        writing.write(first..first + 10).unwrap();
        tokens.push(prepare(&mut writing));
        writing.connector.commit(&tokens[tokens.len() - 1]).unwrap();
    }
    drop(writing);
    let error = connector(broker, "earlier", &[]).recover(EPOCH, Some(&tokens[..1]));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("1-2 was committed"), "{error}");
    // Rows twice are allowed here, and that says nothing is missing.
    let twice = connector(broker, "earlier", &[AT_LEAST_ONCE]);
    assert_eq!(
        twice.recover(EPOCH, Some(&tokens[..1])),
        Ok(Recovered::Committed)
    );
    // A query that begins from nothing has nothing to do with it.
    let mut anew = Writing::begin(broker, "earlier", &[]);
    anew.write(20..30).unwrap();
    let first = prepare(&mut anew);
    assert_eq!(first, tokens[0]);
    drop(anew);
    assert_eq!(recover(broker, "earlier", &[&first]), Recovered::Lost);
}

fn what_nobody_knows_is_said(broker: &Broker) {
    broker.create_topic("forgotten", 1);
    let named = [("transactional.id.prefix", "forgotten group")];
    let mut writing = Writing::begin(broker, "forgotten", &named);
    writing.write(0..10).unwrap();
    let first = prepare(&mut writing);
    writing.connector.commit(&first).unwrap();
    drop(writing);
    broker.delete_group("forgotten group");
    let prepared = [first];
    let error = connector(broker, "forgotten", &named).recover(EPOCH, Some(&prepared));
    let error = error.unwrap_err().to_string();
    for part in ["no longer known", "1-1", "offsets.retention.minutes"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let twice = connector(broker, "forgotten", &[named[0], AT_LEAST_ONCE]);
    assert_eq!(twice.recover(EPOCH, Some(&prepared)), Ok(Recovered::Lost));
    let none = connector(broker, "forgotten", &named).recover(EPOCH, Some(&[]));
    assert_eq!(none, Ok(Recovered::Committed));
}

/// Readers needn't wait for the next incarnation.
fn a_failed_query_aborts(broker: &Broker) {
    broker.create_topic("fails", 1);
    let mut writing = Writing::begin(broker, "fails", &[]);
    writing.write(0..10).unwrap();
    writing.sink.finish(false).unwrap();
    broker.produce("fails", 0, [&b"behind"[..]]);
    assert_committed(broker, "fails", &["behind".to_string()]);
}

fn several_checkpoints_that_were_not_stored(broker: &Broker) {
    broker.create_topic("given-up", 1);
    let mut writing = Writing::begin(broker, "given-up", &[]);
    for first in [0, 10] {
        writing.write(first..first + 10).unwrap();
        prepare(&mut writing);
    }
    writing.write(20..30).unwrap();
    let error = writing.prepare().unwrap_err().to_string();
    assert!(error.contains("1-1 waits"), "{error}");
}

fn a_transaction_whose_time_is_up(broker: &Broker) {
    broker.create_topic("slow", 1);
    let short = [("properties.transaction.timeout.ms", "1000")];
    let mut writing = Writing::begin(broker, "slow", &short);
    writing.write(0..10).unwrap();
    let first = prepare(&mut writing);
    // The broker looks once a second.
    std::thread::sleep(Duration::from_secs(4));
    let error = writing.connector.commit(&first).unwrap_err().to_string();
    assert!(error.contains("the broker has aborted it"), "{error}");
    drop(writing);
    assert_eq!(recover(broker, "slow", &[&first]), Recovered::Lost);
    assert!(committed(broker, "slow").is_empty());
    let long = [("properties.transaction.timeout.ms", "1000000")];
    let error = connector(broker, "slow", &long).begin(true).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("transaction.max.timeout.ms"), "{error}");
}

fn rows_are_delivered_before_a_checkpoint_at_least_once(broker: &Broker) {
    broker.create_topic("twice", 1);
    let connector = connector(broker, "twice", &[AT_LEAST_ONCE]);
    connector.begin(true).unwrap();
    let mut writing = Writing::open(&connector, 1).unwrap();
    writing.write(0..1_000).unwrap();
    assert_eq!(writing.prepare().unwrap(), None);
    assert_committed(broker, "twice", &lines(0..1_000));
    assert_eq!(
        connector.recover(EPOCH, Some(&[])),
        Ok(Recovered::Committed)
    );
    writing.write(1_000..1_010).unwrap();
    writing.sink.finish(true).unwrap();
    assert_committed(broker, "twice", &lines(0..1_010));
}

/// Over many transactions, which another thread commits while the next one is written.
fn rows_keep_their_order(broker: &Broker) {
    const CHECKPOINTS: usize = 40;
    broker.create_topic("order", 1);
    let mut writing = Writing::begin(broker, "order", &[]);
    let connector = Arc::clone(&writing.connector);
    let (tokens, prepared) = sync_channel::<String>(0);
    std::thread::scope(|scope| {
        let commits = scope.spawn(move || {
            for token in prepared {
                connector.commit(&token).unwrap();
            }
        });
        for checkpoint in 0..CHECKPOINTS {
            writing
                .write(checkpoint * 500..(checkpoint + 1) * 500)
                .unwrap();
            tokens.send(prepare(&mut writing)).unwrap();
        }
        drop(tokens);
        commits.join().unwrap();
    });
    assert_committed(broker, "order", &lines(0..CHECKPOINTS * 500));
}

/// A checkpoint, as far as a sink is concerned.
#[derive(Clone, Default)]
struct Manifest {
    written: usize,
    pending: Vec<String>,
}

/// Incarnations that die anywhere, from a seed: each number is there once, and in its place.
fn whatever_dies_when(broker: &Broker) {
    const INCARNATIONS: u64 = 16;
    broker.create_topic("chaos", 1);
    let mut seeded = Seeded(5);
    let mut manifests = vec![Manifest::default()];
    connector(broker, "chaos", &[]).begin(true).unwrap();
    let mut lost = 0;
    for epoch in 1..=INCARNATIONS {
        let connector = connector(broker, "chaos", &[]);
        while connector.recover(epoch, Some(&manifests.last().unwrap().pending))
            == Ok(Recovered::Lost)
        {
            manifests.pop();
            lost += 1;
        }
        let written = manifests.last().unwrap().written;
        let mut writing = Writing::open(&connector, epoch).unwrap();
        live(&mut writing, written, &mut seeded, &mut manifests);
    }
    assert!(
        lost > 0,
        "only {lost} died between a checkpoint and its commit"
    );
    let connector = connector(broker, "chaos", &[]);
    while connector.recover(EPOCH, Some(&manifests.last().unwrap().pending)) == Ok(Recovered::Lost)
    {
        manifests.pop();
    }
    let written = manifests.last().unwrap().written;
    assert!(written > 200, "only {written} rows");
    assert_committed(broker, "chaos", &lines(0..written));
}

/// Writes and takes checkpoints, until it dies.
fn live(
    writing: &mut Writing,
    mut written: usize,
    seeded: &mut Seeded,
    manifests: &mut Vec<Manifest>,
) {
    let mut write = |writing: &mut Writing, rows: u64| {
        writing.write(written..written + rows as usize).unwrap();
        written += rows as usize;
        written
    };
    let mut dies = || seeded.below(9) == 0;
    let mut waiting = vec![];
    for rows in [5, 40, 0, 17, 60, 3] {
        write(writing, rows);
        if dies() {
            return;
        }
        let was_stored = waiting.is_empty();
        waiting.extend(writing.prepare().unwrap());
        let cut = write(writing, 0);
        write(writing, rows / 2);
        if dies() {
            return;
        }
        // One that can't be stored: what it would have committed is in the next one.
        if was_stored && dies() {
            continue;
        }
        let pending = std::mem::take(&mut waiting);
        manifests.push(Manifest {
            written: cut,
            pending: pending.clone(),
        });
        // The worst moment, so it has a chance more.
        if dies() || dies() {
            return;
        }
        for pending in &pending {
            // (Dying in between is the one thing that ends in an error.)
            writing.connector.commit(pending).unwrap();
        }
        if dies() {
            return;
        }
    }
}
