//! Exactly once from topics to topics, whatever is killed at whatever moment (I6): the reference queries,
//! with their inputs in topics, in runs whose processes and whose broker die.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::broker::{Broker, jars};
use super::driver::{assert_committed, committed, lines};
use crate::answers::{ANSWERS, expected};
use crate::crash::{Trial, compare, parts, rounds_long, seeds, start, unpacked};
use crate::support::{Seeded, data, last_per_key};

/// Rounds of the short test, and of `make test-crash`.
const ROUNDS: u64 = 4;
const ROUNDS_LONG: u64 = 20;

/// How long an undisturbed run takes at least: so many kills fit in it, and so many checkpoints.
const RUN_S: f64 = 2.5;

/// So many pieces are fetched of each partition in that time.
const PIECES: usize = 30;

/// What may be killed in one round.
const KILLS_MAX: u64 = 3;

/// One kill in so many is the broker's, in rounds in which it may die.
const BROKER_IN: u64 = 2;

/// How often checkpoints are taken.
const INTERVALS: [&str; 3] = ["50 ms", "120 ms", "300 ms"];

/// Nothing takes longer, restarts included.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a broker may take to show what it has acknowledged.
const SHOWN: Duration = Duration::from_secs(10);

#[test]
fn kafka_loses_and_doubles_no_row_whatever_is_killed() {
    rounds(ROUNDS);
}

#[test]
#[ignore = "takes long: make test-crash"]
fn kafka_loses_and_doubles_no_row_whatever_is_killed_in_many_rounds() {
    rounds(rounds_long(ROUNDS_LONG * ANSWERS.len() as u64));
}

/// What was prepared is lost with its process, and the query resumes from before it: also when that is all
/// that the newest checkpoints have, and when there is no checkpoint before it.
#[test]
fn kafka_goes_on_from_before_what_was_given_up() {
    let Some(jars) = jars() else {
        return;
    };
    let mut broker = Broker::start(jars);
    for round in 0..2 {
        let numbers = Numbers::new(&broker, &format!("first-{round}"), "300 ms");
        let mut run = numbers.start();
        // Stored, and hardly ever committed yet.
        numbers.wait_for_checkpoints(1, &mut run);
        run.kill().unwrap();
        run.wait().unwrap();
        numbers.finish(&broker);
    }
    let numbers = Numbers::new(&broker, "several", "100 ms");
    let mut run = numbers.start();
    numbers.wait_for_checkpoints(3, &mut run);
    broker.kill();
    // Its transactions wait for the broker, and then so do its rows.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(run.try_wait().unwrap(), None, "it waits for the broker");
    run.kill().unwrap();
    run.wait().unwrap();
    broker.restart();
    numbers.finish(&broker);
}

/// A file of numbers that is written to a topic and to files, slowly.
struct Numbers {
    topic: String,
    folder: tempfile::TempDir,
}

impl Numbers {
    const COUNT: usize = 150;

    fn new(broker: &Broker, topic: &str, interval: &str) -> Numbers {
        let folder = tempfile::tempdir().unwrap();
        broker.create_topic(topic, 1);
        let numbers = lines(0..Numbers::COUNT).join("\n") + "\n";
        std::fs::write(folder.path().join("numbers.csv"), numbers).unwrap();
        let text = format!(
            "SET 'checkpoint_interval' = '{interval}';\n\
             CREATE TABLE numbers (n STRING) WITH ('connector' = 'file', 'path' = 'numbers.csv', \
             'replay_rate' = '60');\n\
             CREATE TABLE answer (n STRING) WITH ('connector' = 'kafka', 'topic' = '{topic}', \
             'properties.bootstrap.servers' = '{}');\n\
             CREATE TABLE parts (n STRING) WITH ('connector' = 'file', 'path' = 'out');\n\
             INSERT INTO answer SELECT n FROM numbers;\n\
             INSERT INTO parts SELECT n FROM numbers;\n",
            broker.address()
        );
        std::fs::write(folder.path().join("query.sql"), text).unwrap();
        Numbers {
            topic: topic.to_string(),
            folder,
        }
    }

    fn start(&self) -> Child {
        Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args(["run", "query.sql", "--quiet", "--state", "state"])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Waits for so many records behind the claim.
    fn wait_for_checkpoints(&self, count: usize, run: &mut Child) {
        let begin = Instant::now();
        let records = self.folder.path().join("state/checkpoints");
        while std::fs::read_dir(&records).map_or(0, Iterator::count) < count + 1 {
            assert_eq!(run.try_wait().unwrap(), None, "it ended");
            assert!(begin.elapsed() < PATIENCE, "there are no checkpoints");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs it to its end: every number is there once.
    fn finish(&self, broker: &Broker) {
        let output = self.start().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", self.topic);
        println!("{}: {said}", self.topic);
        let expected = lines(0..Numbers::COUNT);
        assert_committed(broker, &self.topic, &expected);
        let parts = parts(&self.folder.path().join("out")).into_iter();
        let found = parts.map(|part| std::fs::read_to_string(part).unwrap());
        let found = found.collect::<String>();
        let mut found = found.lines().collect::<Vec<_>>();
        found.sort_unstable();
        assert!(found == expected, "{}, the file: {found:?}", self.topic);
    }
}

fn rounds(rounds: u64) {
    let (Some(jars), Some(data)) = (jars(), data()) else {
        return;
    };
    let mut inputs = Inputs {
        broker: Broker::start(jars),
        data,
        topics: BTreeSet::new(),
    };
    let (seeds, is_one) = seeds(rounds);
    let mut killed = (0, 0, 0);
    for seed in seeds {
        let ran = Round::new(&mut inputs, seed).run(&mut inputs.broker);
        killed = (killed.0 + ran.0, killed.1 + ran.1, killed.2 + ran.2);
    }
    let (parents, workers, brokers) = killed;
    assert!(
        is_one || parents + workers + brokers > 0,
        "nothing was ever killed"
    );
    println!("killed {parents} parents, {workers} workers and {brokers} brokers");
}

/// A broker with the reference data.
struct Inputs {
    broker: Broker,
    data: PathBuf,
    /// Those that are there.
    topics: BTreeSet<String>,
}

impl Inputs {
    /// The options of a table that reads a file of the reference data from a topic, slowly enough to be
    /// killed meanwhile. What is not late in the file is not late in a part of it.
    fn source(&mut self, file: &str, partitions: usize) -> String {
        let text = unpacked(&self.data.join(file));
        let rows = text.split(|&byte| byte == b'\n');
        let header = usize::from(file.ends_with(".csv"));
        let rows = rows.filter(|row| !row.is_empty()).skip(header);
        let rows = rows.collect::<Vec<_>>();
        let batch = (rows.len() / (partitions * PIECES)).clamp(1, 500);
        let topic = format!("{file}-{partitions}");
        if self.topics.insert(topic.clone()) {
            self.broker.create_topic(&topic, partitions as i32);
            for partition in 0..partitions {
                let rows = rows.iter().skip(partition).step_by(partitions).copied();
                self.broker
                    .produce_batches(&topic, partition as i32, batch, rows);
            }
        }
        let fetched = 2 * text.len() / (partitions * PIECES);
        let pause_ms = 2.0 * RUN_S * 1e3 / PIECES as f64;
        format!(
            "'connector' = 'kafka', 'topic' = '{topic}', 'scan.bounded.mode' = 'latest-offset', \
             'properties.bootstrap.servers' = '{}', 'properties.queued.min.messages' = '1', \
             'properties.fetch.message.max.bytes' = '{fetched}', \
             'properties.fetch.queue.backoff.ms' = '{pause_ms:.0}'",
            self.broker.address()
        )
    }
}

struct Round {
    seed: u64,
    name: &'static str,
    only_last: bool,
    seeded: Seeded,
    /// Where the answer goes.
    topic: String,
    folder: tempfile::TempDir,
    query: PathBuf,
    expected: Vec<String>,
    may_kill_broker: bool,
}

impl Round {
    fn new(inputs: &mut Inputs, seed: u64) -> Round {
        // Neighbours are of one kind, and the first rounds have small inputs.
        let (name, text, only_last) = ANSWERS[(seed as usize * 5 + 3) % ANSWERS.len()];
        let mut seeded = Seeded(seed * 7919 + 1);
        let folder = tempfile::tempdir().unwrap();
        let topic = format!("answer-{seed}");
        let partitions = 1 + seeded.below(3);
        inputs.broker.create_topic(&topic, partitions as i32);
        let sink = format!(
            "'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{}'",
            inputs.broker.address()
        );
        // The rows of a key keep their order within a partition.
        let key = text.split("CREATE TABLE answer (").nth(1);
        let key = key.and_then(|columns| columns.split_whitespace().next());
        let sink = match key {
            Some(key) if only_last => format!("{sink}, 'key.fields' = '{key}'"),
            _ => sink,
        };
        let mut text = text
            .replace("'connector' = 'file', 'path' = '${OUT}'", &sink)
            .replace(", 'csv.header' = 'true'", "");
        const FILE: &str = "'connector' = 'file', 'path' = '${DATA}/";
        while let Some((before, after)) = text.split_once(FILE) {
            let (file, after) = after.split_once('\'').unwrap();
            let source = inputs.source(file, 1 + seeded.below(3) as usize);
            text = format!("{before}{source}{after}");
        }
        let query = folder.path().join("query.sql");
        std::fs::write(&query, text).unwrap();
        Round {
            seed,
            name,
            only_last,
            topic,
            folder,
            query,
            expected: expected(&inputs.data, name),
            may_kill_broker: seeded.below(3) == 0,
            seeded,
        }
    }

    /// Returns how many parents, workers and brokers were killed.
    fn run(&mut self, broker: &mut Broker) -> (u64, u64, u64) {
        let (title, mut brokers) = (self.title(), 0);
        let trial = Trial {
            title: self.title(),
            kills_max: KILLS_MAX,
            run_s: RUN_S,
            patience: PATIENCE,
        };
        let (query, folder, only_last) = (&self.query, self.folder.path(), self.only_last);
        let may_kill_broker = self.may_kill_broker;
        let begun = Instant::now();
        let ran = trial.run(
            &mut self.seeded,
            |seeded| start(query, folder, &INTERVALS, only_last, seeded),
            |seeded, run| {
                let is_brokers = may_kill_broker && seeded.below(BROKER_IN) == 0;
                is_brokers.then(|| {
                    brokers += 1;
                    kill_broker(broker, seeded, run)
                })
            },
        );
        let ran_s = begun.elapsed().as_secs_f64();
        self.check(broker, &ran.log);
        let all_s = begun.elapsed().as_secs_f64();
        println!("{title}: {ran_s:.1} s, read in {all_s:.1} s{}", ran.log);
        (ran.parents, ran.workers, brokers)
    }

    fn title(&self) -> String {
        format!("{}, SLACKWATER_SEED={}", self.name, self.seed)
    }

    fn check(&self, broker: &Broker, log: &str) {
        let begin = Instant::now();
        loop {
            let mut found = committed(broker, &self.topic);
            if self.only_last {
                found = last_per_key(&found, '|');
            }
            found.sort();
            // A broker acknowledges a commit before readers see it.
            if found != self.expected && begin.elapsed() < SHOWN {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
            return compare(&self.title(), found, &self.expected, log);
        }
    }
}

/// Kills the broker, and while it is away the query, half of the time; and starts it again.
fn kill_broker(broker: &mut Broker, seeded: &mut Seeded, run: &mut Child) -> String {
    broker.kill();
    let pause = Duration::from_millis(seeded.below(1_000));
    std::thread::sleep(pause);
    let with_query = seeded.below(2) == 0;
    if with_query {
        run.kill().unwrap();
        run.wait().unwrap();
    }
    broker.restart();
    let what = if with_query { " with the query" } else { "" };
    format!("broker killed{what}")
}
