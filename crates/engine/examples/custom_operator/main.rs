//! A custom operator, written from scratch: it emits a row when the value of a key changes.
//!
//! ```text
//! cargo run -p slackwater-engine --example custom_operator
//! ```
//!
//! The file has the operator, then its state, then a plan that connects a source, the operator and a sink
//! by hand, as the planner does for SQL.

mod wiring;

use std::collections::HashMap;
use std::sync::mpsc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch, UInt32Array};
use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::deploy::{
    Deployment, InputPlan, InstancePlan, LinkPlan, StepKind, StepPlan,
};
use slackwater_engine::hash::bucket;
use slackwater_engine::key::KeyColumns;
use slackwater_engine::operator::{Facts, Output, Progress, Stateful, Timer};
use slackwater_engine::protocol::{EVENTS_MAX, WorkerEvent};
use slackwater_engine::runtime::{Runtime, RuntimeOptions};
use slackwater_engine::state::{BucketSet, Clock, KeyedState, Mark, Sliced};
use slackwater_engine::time::EventTime;
use slackwater_engine::{Error, Result};
use wiring::{Example, readings, schema};

/// Emits a row when a sensor's value changes. Input and output have the columns `sensor` and `value`.
#[derive(Default)]
struct ChangeDetector {
    last: HashMap<String, Last>,
    /// The clock: it says which mark a change gets, and checkpoints move it.
    clock: Clock,
}

/// The last value of a key, the key's hash (which says its bucket), and when it changed.
struct Last {
    value: i64,
    hash: u64,
    changed: Mark,
}

impl Stateful for ChangeDetector {
    fn facts(&self) -> Facts {
        Facts {
            // Each row reaches the instance that holds its sensor's state.
            placed_by: vec![Some(vec![0])],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            // The emitted rows are copies of rows of the chunk.
            shares_input: false,
        }
    }

    /// Decides row by row, then takes all chosen rows at once: a chunk is a set of Arrow columns. `take`
    /// also keeps where the rows came from and when.
    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let keys = KeyColumns::of_chunk(&chunk, &[0])?;
        let hashes = keys.hashes();
        let keys = chunk.batch.column(0).clone();
        let (keys, values) = (keys.as_string_view(), chunk.batch.column(1));
        let values = values.as_primitive::<Int64Type>();
        let mut changed = Vec::new();
        for row in (0..chunk.rows()).filter(|&row| keys.is_valid(row) && values.is_valid(row)) {
            let (key, value) = (keys.value(row), values.value(row));
            if self.last.get(key).is_none_or(|last| last.value != value) {
                let (hash, changed_at) = (hashes[row], self.clock.mark());
                let last = Last {
                    value,
                    hash,
                    changed: changed_at,
                };
                self.last.insert(key.to_string(), last);
                changed.push(row as u32);
            }
        }
        output.emit(chunk.take(&UInt32Array::from(changed))?);
        Ok(())
    }

    /// Continues an unfinished `process`. This operator emits at most as many rows as it takes in, so
    /// nothing is ever left.
    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    /// Reacts to a new watermark. Operators that wait for it (windows) emit here; this one never does.
    fn advance(&mut self, watermark: EventTime, _output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    /// Clears the state: the next unit of work starts from nothing.
    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.last.clear();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.last
            .keys()
            .map(|key| key.len() + size_of::<(String, Last)>())
            .sum()
    }
}

impl KeyedState for ChangeDetector {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Copies the state, in any layout that `restore` understands. The state stays in place, because the
    /// query continues.
    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        let wanted = |last: &Last| buckets.contains_hash(last.hash) && last.changed > since;
        let entries = self.last.iter().filter(|(_, last)| wanted(last));
        let (keys, values): (Vec<&str>, Vec<i64>) = entries
            .map(|(key, last)| (key.as_str(), last.value))
            .unzip();
        Ok(vec![readings(keys, values)?])
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    /// Takes in a snapshot. A snapshot may come from a file, so data that does not fit is an error, not a
    /// panic.
    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.schema() != schema() {
            return Err(Error::new(
                "snapshot of a change detector",
                "its columns differ",
            ));
        }
        self.process(
            0,
            Chunk::new(batch.clone(), 0),
            &mut Output::new(batch.num_rows()),
        )
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        self.last
            .retain(|_, last| !buckets.contains(bucket(last.hash)));
        Ok(())
    }

    /// Drops what the watermark has made unnecessary: nothing here, since the last value of a sensor
    /// stays.
    fn drop_emitted(&mut self, _watermark: EventTime) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}

fn main() -> Result<()> {
    // Two instances: the source, and the operator followed by the sink. A stateful operator is the head
    // of its instance and receives its rows over links, here keyed by `sensor`.
    let step = |node, kind, next| StepPlan { node, kind, next };
    let instance = |name: &str, input, steps| InstancePlan {
        movable: false,
        checkpointed: false,
        name: name.to_string(),
        worker: 0,
        index: 0,
        instances: 1,
        input,
        steps,
        roots: vec![0],
    };
    let balancer = BalancerPlan::Keyed {
        columns: vec![0],
        keep_origin: true,
        to: 1,
    };
    let route = step(
        0,
        StepKind::Route {
            balancer,
            links: vec![0],
        },
        vec![],
    );
    let detect = vec![
        step(1, StepKind::Operator, vec![1]),
        step(
            2,
            StepKind::Sink {
                latency_target_ns: None,
                leaves_out: Vec::new(),
            },
            vec![],
        ),
    ];
    let deployment = Deployment {
        instances: vec![
            instance("readings", InputPlan::source(0), vec![route]),
            instance("changes", InputPlan::Ports(vec![vec![0]]), detect),
        ],
        links: vec![LinkPlan::new(0, 1)],
        chunk_rows: 1024,
        process_of: Vec::new(),
        host_of: Vec::new(),
        relays: Vec::new(),
    };
    let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
    let runtime = Runtime::start(&RuntimeOptions::on(&[None]), sender)?;
    runtime.deploy(&deployment, &Example)?;
    for (event, _) in events.iter().take(deployment.instances.len()) {
        if let WorkerEvent::Failed { error, .. } = event {
            return Err(error);
        }
    }
    Ok(())
}
