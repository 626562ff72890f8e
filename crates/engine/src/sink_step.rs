//! A sink within an instance: it writes rows and measures how late they leave.
//!
//! A row has left when the sink has written it out ([`Sink::flush`]): when the worker is about to wait,
//! or after [`LEAVING_CHUNKS_MAX`] chunks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use slackwater_link::Waiter;

use crate::checkpoint::Prepared;
use crate::chunk::{Chunk, RowKind};
use crate::counters::{InstanceCounters, clock};
use crate::error::Result;
use crate::latency::Seconds;
use crate::sink::Sink;
use crate::time::{Laps, now_ns};

/// Latencies are recorded from 1 µs to 1 hour with 3 significant digits: about 200 KiB a sink.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// The most chunks that may have been written and not flushed. A worker that always has something to do
/// flushes after this many; 64 chunks of 8,192 rows are some 50 ms of work.
const LEAVING_CHUNKS_MAX: usize = 64;

/// A sink and its measurements.
pub struct SinkStep {
    sink: Box<dyn Sink>,
    /// Rows of these kinds are not written.
    leaves_out: Vec<RowKind>,
    /// The latency of each row in microseconds.
    latencies_us: Histogram<u64>,
    seconds: Seconds,
    /// The ingest time and number of rows of each chunk that was written and not flushed yet.
    leaving: Vec<(u64, u64)>,
    /// The ingest time of the oldest row since the last checkpoint.
    oldest_ns: Option<u64>,
    /// Rows written.
    rows: u64,
    finished: bool,
}

/// What a sink has measured by its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SinkResult {
    /// The node of the query graph.
    pub node: usize,
    /// Rows written.
    pub rows: u64,
    /// The latency of each row in microseconds.
    #[serde(with = "recorded")]
    pub latencies_us: Histogram<u64>,
    /// How long rows left the sink, and for how much of that time the target was violated.
    pub seconds: Seconds,
    /// The number of connections that were lost and replaced.
    pub connections_lost: u64,
}

/// A histogram as the recorded values and their counts.
mod recorded {
    use hdrhistogram::Histogram;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(histogram: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
        let values = histogram.iter_recorded();
        to.collect_seq(values.map(|value| (value.value_iterated_to(), value.count_at_value())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Histogram<u64>, D::Error> {
        let mut histogram = Histogram::new(3).expect("3 digits are supported");
        for (value, count) in Vec::<(u64, u64)>::deserialize(from)? {
            // An auto-resizing histogram takes any value.
            let _ = histogram.record_n(value, count);
        }
        Ok(histogram)
    }
}

impl SinkStep {
    /// A step that writes to `sink` the rows that are not of the kinds `leaves_out`.
    pub fn new(sink: Box<dyn Sink>, leaves_out: &[RowKind]) -> SinkStep {
        let latencies_us = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3);
        SinkStep {
            sink,
            leaves_out: leaves_out.to_vec(),
            latencies_us: latencies_us.expect("the bounds are constants that it accepts"),
            seconds: Seconds::since(now_ns()),
            leaving: Vec::with_capacity(LEAVING_CHUNKS_MAX),
            oldest_ns: None,
            rows: 0,
            finished: false,
        }
    }

    pub(crate) fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        self.sink.open(waiter)
    }

    pub(crate) fn ready(&mut self) -> Result<bool> {
        self.sink.ready()
    }

    pub(crate) fn write(
        &mut self,
        chunk: &Chunk,
        step: usize,
        counters: &Arc<InstanceCounters>,
        laps: &mut Laps,
    ) -> Result<()> {
        let chunk = chunk.without(&self.leaves_out)?;
        let rows = chunk.rows() as u64;
        if rows == 0 {
            return Ok(());
        }
        self.sink.write(&chunk)?;
        counters.steps[step].add(laps.lap(), rows);
        self.rows += rows;
        self.leaving.push((chunk.ingest_ns, rows));
        self.oldest_ns.get_or_insert(chunk.ingest_ns);
        InstanceCounters::add(&counters.rows_out, rows);
        if self.leaving.len() >= LEAVING_CHUNKS_MAX {
            self.flush(step, counters, laps)?;
        }
        Ok(())
    }

    /// Flushes the sink; the rows leave the engine here.
    pub(crate) fn flush(
        &mut self,
        step: usize,
        counters: &Arc<InstanceCounters>,
        laps: &mut Laps,
    ) -> Result<()> {
        if self.finished {
            return Ok(());
        }
        if self.leaving.is_empty() {
            // Bytes that a peer did not take the last time.
            return self.sink.flush();
        }
        self.sink.flush()?;
        counters.steps[step].add_busy(laps.lap());
        let now_ns = laps.last_ns();
        // It may be changed at any time.
        let certain_ns = counters.steps[step].certain_ns();
        let left_ns = clock::stamp(now_ns);
        for (ingest_ns, rows) in self.leaving.drain(..) {
            let latency_ns = left_ns.saturating_sub(ingest_ns);
            self.latencies_us
                .saturating_record_n((latency_ns / 1000).max(1), rows);
            if let Some(certain_ns) = certain_ns {
                self.seconds.record(now_ns, rows, latency_ns > certain_ns);
            }
            if let Some(slots) = &counters.steps[step].latency {
                slots.record(latency_ns, rows);
            }
            counters
                .latency_recent_ns
                .store(latency_ns, Ordering::Relaxed);
        }
        let violated_ns = &counters.steps[step].violated_ns;
        violated_ns.store(self.seconds.violated_ns, Ordering::Relaxed);
        Ok(())
    }

    /// Prepares a checkpoint: what was written so far can be committed afterwards.
    pub(crate) fn prepare(
        &mut self,
        step: usize,
        node: usize,
        counters: &Arc<InstanceCounters>,
    ) -> Result<Option<Prepared>> {
        self.flush(step, counters, &mut Laps::now())?;
        self.prepared(node, false)
    }

    fn prepared(&mut self, node: usize, is_last: bool) -> Result<Option<Prepared>> {
        let ingest_ns = self.oldest_ns.take();
        let commit = self.sink.prepare(is_last)?;
        Ok(commit.map(|commit| Prepared {
            node,
            commit,
            ingest_ns,
        }))
    }

    /// Ends the sink at the end of the stream, or because the query was `stopped`.
    pub(crate) fn finish(
        &mut self,
        step: usize,
        node: usize,
        stopped: bool,
        counters: &Arc<InstanceCounters>,
    ) -> Result<Option<Prepared>> {
        self.flush(step, counters, &mut Laps::now())?;
        // A stopped query resumes from its last checkpoint, if it takes any.
        let prepared = match stopped {
            true => None,
            false => self.prepared(node, true)?,
        };
        self.finished = true;
        self.sink.finish(true)?;
        Ok(prepared)
    }

    /// Releases the sink, which discards what it wrote unless it has finished.
    pub(crate) fn close(&mut self, node: usize) -> SinkResult {
        if !std::mem::replace(&mut self.finished, true) {
            // The query has failed and says why; a second error would hide the first.
            let _ = self.sink.finish(false);
        }
        self.seconds.close(now_ns());
        SinkResult {
            node,
            rows: self.rows,
            latencies_us: self.latencies_us.clone(),
            seconds: self.seconds,
            connections_lost: self.sink.connections_lost(),
        }
    }
}
