//! Tests of whole deployments on real workers: source → keyed → aggregate → sink.

mod broadcast;
mod pipeline;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pipeline::{After, Events, Numbers, Pipeline, errors, naive};
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::LINK_MESSAGES_MAX;
use slackwater_engine::protocol::{Attached, Command, EVENTS_MAX, WorkerEvent};
use slackwater_engine::runtime::{Runtime, RuntimeOptions, WaitMode};

/// How long a test waits for something that must happen at once.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(workers: usize) -> (Runtime, Events) {
    let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
    (
        Runtime::start(&RuntimeOptions::on(&vec![None; workers]), sender).unwrap(),
        events,
    )
}

/// Waits until so many instances have ended; returns the errors of those that failed, in words.
fn ended(events: &Events, instances: usize, patience: Duration) -> Vec<String> {
    let errors = errors(events, instances, patience).into_iter();
    errors.map(|error| error.to_string()).collect()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Records that all sources have read.
fn rows_in(counters: &[Arc<InstanceCounters>]) -> u64 {
    let rows = counters
        .iter()
        .map(|counters| InstanceCounters::read(&counters.rows_in));
    rows.sum()
}

#[test]
fn the_answer_does_not_depend_on_workers_instances_or_chunks() {
    let expected = naive(0..5_000);
    for (workers, instances, chunk_rows) in
        [(1, 1, 64), (1, 3, 7), (2, 2, 64), (2, 3, 1000), (2, 4, 1)]
    {
        let (runtime, events) = start(workers);
        let pipeline = Pipeline {
            numbers: Numbers {
                rows: 5_000,
                chunk_rows,
                after: After::End,
            },
            ..Pipeline::new(workers, instances)
        };
        let counters = pipeline.start(&runtime);
        let failed = ended(&events, pipeline.instance_count(), PATIENCE);
        assert_eq!(failed, Vec::<String>::new());
        let written = pipeline.written.lock().unwrap();
        assert_eq!(
            written.sorted(),
            expected,
            "{workers} workers, {instances} instances, chunks of {chunk_rows}"
        );
        assert!(written.finished.iter().all(|complete| *complete) && !written.finished.is_empty());
        assert_eq!(rows_in(&counters), 5_000);
        let rows_out = counters
            .iter()
            .map(|counters| InstanceCounters::read(&counters.rows_out));
        assert_eq!(rows_out.sum::<u64>(), expected.len() as u64);
    }
}

/// Instances move between workers as fast as they can while rows flow, and no row is lost, duplicated or
/// left behind (I1): senders wake the worker that has the instance.
#[test]
fn the_answer_does_not_depend_on_instances_that_move() {
    let rows = 9_000;
    let expected = naive(0..rows);
    for wait in [
        WaitMode::Interrupt,
        WaitMode::Auto {
            delay: Duration::from_micros(200),
        },
        WaitMode::Sleep(Duration::from_millis(1)),
    ] {
        let options = RuntimeOptions {
            wait,
            ..RuntimeOptions::on(&[None; 3])
        };
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let runtime = Runtime::start(&options, sender).unwrap();
        let pipeline = Pipeline {
            numbers: Numbers {
                rows,
                chunk_rows: 3,
                after: After::End,
            },
            ..Pipeline::new(3, 2)
        };
        pipeline.deploy(&runtime);
        let detach = |instance| runtime.tell(Command::Detach { instance }, Attached::Nothing);
        pipeline.movable().into_iter().for_each(detach);
        let (mut left, mut moves) = (pipeline.instance_count(), 0);
        while left > 0 {
            match events
                .recv_timeout(PATIENCE)
                .expect("nobody sleeps for ever")
            {
                (WorkerEvent::Detached { instance }, detached) => {
                    moves += 1;
                    let worker = (instance + moves) % 3;
                    runtime.tell(Command::Adopt { instance, worker }, detached);
                    detach(instance);
                }
                (WorkerEvent::Ended { .. }, _) => left -= 1,
                // What a source has counted, at its end.
                (WorkerEvent::Examined { .. }, _) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(moves > 10, "{moves} moves");
        assert_eq!(
            pipeline.written.lock().unwrap().sorted(),
            expected,
            "{wait:?}"
        );
    }
}

#[test]
fn a_slow_sink_holds_the_source_back() {
    // Rows go straight to the sink, which takes nothing until the gate opens.
    let (runtime, events) = start(2);
    let pipeline = Pipeline {
        numbers: Numbers {
            rows: 2_000,
            chunk_rows: 1,
            after: After::End,
        },
        through: true,
        ..Pipeline::new(2, 1)
    };
    pipeline.gate.close();
    let counters = pipeline.start(&runtime);
    let rows_in = || rows_in(&counters);
    // One or two messages a row: its chunk and the watermark that it moves.
    wait_until("the link to fill", || {
        rows_in() >= LINK_MESSAGES_MAX as u64 / 2
    });
    std::thread::sleep(Duration::from_millis(100));
    // A full link, and what one more input has left in the balancer's queue.
    assert!(
        rows_in() <= LINK_MESSAGES_MAX as u64 + 1,
        "{} rows are under way",
        rows_in()
    );
    assert!(pipeline.written.lock().unwrap().rows.is_empty());
    pipeline.gate.open();
    assert_eq!(
        ended(&events, pipeline.instance_count(), PATIENCE),
        Vec::<String>::new()
    );
    assert_eq!(pipeline.written.lock().unwrap().rows.len(), 2_000);
}

#[test]
fn a_panic_ends_the_query_and_names_the_instance() {
    let (runtime, events) = start(2);
    let pipeline = Pipeline {
        numbers: Numbers {
            rows: 5_000,
            chunk_rows: 100,
            after: After::End,
        },
        panics: true,
        ..Pipeline::new(2, 1)
    };
    pipeline.start(&runtime);
    let first = events.recv_timeout(PATIENCE).unwrap().0;
    let mut others = pipeline.instance_count() - 1;
    // The source may have ended before.
    let failed = if let WorkerEvent::Ended { instance: 0, .. } = first {
        others -= 1;
        events.recv_timeout(PATIENCE).unwrap().0
    } else {
        first
    };
    let WorkerEvent::Failed {
        instance: 1, error, ..
    } = failed
    else {
        panic!("{failed:?}")
    };
    let text = error.to_string();
    assert!(
        text.contains("aggregate [1/1]") && text.contains("seven is not my number"),
        "{text}"
    );
    // Instances that depended on it end as incomplete, even without a command.
    runtime.tell(Command::Remove, Attached::Nothing);
    ended(&events, others, PATIENCE);
    let written = pipeline.written.lock().unwrap();
    assert_eq!(written.finished, [false]);
}

#[test]
fn regression_a_sink_behind_a_failed_instance_does_not_finish_as_complete() {
    // Nobody removes the deployment: the loss of the link alone must be enough.
    let (runtime, events) = start(2);
    let pipeline = Pipeline {
        numbers: Numbers {
            rows: 5_000,
            chunk_rows: 100,
            after: After::Silence,
        },
        panics: true,
        ..Pipeline::new(2, 1)
    };
    pipeline.start(&runtime);
    wait_until("the sink's end", || {
        !pipeline.written.lock().unwrap().finished.is_empty()
    });
    assert_eq!(pipeline.written.lock().unwrap().finished, [false]);
    drop(runtime);
    let failed = events
        .iter()
        .filter(|(event, _)| matches!(event, WorkerEvent::Failed { .. }));
    assert_eq!(failed.count(), 1, "only the instance that failed says so");
}

#[test]
fn a_stop_ends_the_query_and_leaves_windows_open() {
    let (runtime, events) = start(2);
    let pipeline = Pipeline {
        numbers: Numbers {
            rows: 1_000,
            chunk_rows: 10,
            after: After::Silence,
        },
        ..Pipeline::new(2, 2)
    };
    let counters = pipeline.start(&runtime);
    wait_until("all rows", || rows_in(&counters) == 1_000);
    runtime.tell(Command::Stop, Attached::Nothing);
    assert_eq!(
        ended(&events, pipeline.instance_count(), PATIENCE),
        Vec::<String>::new()
    );
    let written = pipeline.written.lock().unwrap();
    // The rows of time 0..999 have moved the watermark to 999: the last window is open.
    assert_eq!(written.sorted(), naive(0..990));
    assert_eq!(
        written.finished,
        [true],
        "what was written is complete as far as it goes"
    );
}

#[test]
fn a_deployment_is_removed_while_another_runs() {
    // One runtime for each.
    let ((first, _first_events), (second, events)) = (start(2), start(2));
    let one = Pipeline {
        numbers: Numbers {
            rows: 1_000,
            chunk_rows: 10,
            after: After::Silence,
        },
        ..Pipeline::new(2, 2)
    };
    let two = Pipeline {
        numbers: Numbers {
            rows: 20_000,
            chunk_rows: 10,
            after: After::End,
        },
        ..Pipeline::new(2, 2)
    };
    two.gate.close();
    let counters = one.start(&first);
    two.start(&second);
    wait_until("all rows", || rows_in(&counters) == 1_000);
    first.tell(Command::Remove, Attached::Nothing);
    wait_until("the removal", || {
        one.written.lock().unwrap().finished == [false]
    });
    two.gate.open();
    let failed = ended(&events, two.instance_count(), PATIENCE);
    assert_eq!(failed, Vec::<String>::new());
    assert_eq!(two.written.lock().unwrap().sorted(), naive(0..20_000));
    assert!(one.sources_closed() && two.sources_closed());
}

#[test]
fn regression_a_runtime_that_is_dropped_releases_sources_and_discards_what_sinks_wrote() {
    let (runtime, _events) = start(2);
    let pipeline = Pipeline {
        numbers: Numbers {
            rows: 1_000,
            chunk_rows: 10,
            after: After::Silence,
        },
        ..Pipeline::new(2, 2)
    };
    let counters = pipeline.start(&runtime);
    wait_until("all rows", || rows_in(&counters) == 1_000);
    drop(runtime);
    assert!(pipeline.sources_closed());
    assert_eq!(pipeline.written.lock().unwrap().finished, [false]);
}

#[test]
fn a_pipeline_without_input_makes_no_wake_ups() {
    let (runtime, _events) = start(2);
    let pipeline = Pipeline {
        numbers: Numbers {
            rows: 1_000,
            chunk_rows: 10,
            after: After::Silence,
        },
        ..Pipeline::new(2, 2)
    };
    let counters = pipeline.start(&runtime);
    wait_until("all rows", || rows_in(&counters) == 1_000);
    // 99 windows of 10 rows and 7 keys are closed; wait until all of them have been written.
    let closed = naive(0..990).len();
    wait_until("the closed windows", || {
        pipeline.written.lock().unwrap().rows.len() == closed
    });
    std::thread::sleep(Duration::from_millis(100));
    let threads = pipeline.written.lock().unwrap().threads.clone();
    assert_eq!(threads.len(), 2, "source and sink have told their threads");
    let before = threads
        .iter()
        .map(|&thread| switches(thread))
        .collect::<Vec<_>>();
    std::thread::sleep(Duration::from_secs(2));
    let after = threads
        .iter()
        .map(|&thread| switches(thread))
        .collect::<Vec<_>>();
    assert_eq!(before, after);
    drop(runtime);
}

/// Voluntary context switches of a thread of this process.
fn switches(thread: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}
