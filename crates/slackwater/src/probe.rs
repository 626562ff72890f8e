//! Measures the activity of a process: what its workers, instances and sinks counted between two looks.
//!
//! A look costs tens of microseconds and happens only on request, so an idle process runs no timer (I7).

mod pin;
mod seen;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slackwater_engine::counters::{InstanceCounters, LinkCounters, WorkerCounters};
use slackwater_engine::deploy::{Deployment, LinkSide, StepKind};
use slackwater_engine::latency::{SLOTS, upper_ns};
use slackwater_engine::source::Tuning;
use slackwater_engine::time::now_ns;

use crate::machine::{Stolen, ThreadTimes};
use pin::Pin;

pub use seen::{InstanceSeen, LinkSeen, Seen, SinkSeen, WorkerSeen};

/// Measures the activity of one process.
pub struct Probe {
    process: usize,
    workers: Vec<WorkerProbe>,
    instances: Vec<InstanceProbe>,
    /// Instances of sinks.
    sinks: Vec<SinkProbe>,
    /// The links to other processes.
    links: Vec<LinkProbe>,
    /// How full the buffers of sources are, by node.
    sources: Vec<(usize, Arc<Tuning>)>,
    stolen: Stolen,
    looked_ns: u64,
}

struct WorkerProbe {
    worker: usize,
    counters: Arc<WorkerCounters>,
    last: [u64; 4],
    times: ThreadTimes,
    /// The thread's CPU time, and how long it waited for its core.
    times_ns: Option<(u64, u64)>,
    pin: Pin,
}

struct InstanceProbe {
    instance: usize,
    counters: Arc<InstanceCounters>,
    last: [u64; 4],
}

struct LinkProbe {
    link: usize,
    counters: Arc<LinkCounters>,
    last: [u64; 2],
}

struct SinkProbe {
    node: usize,
    counters: Arc<InstanceCounters>,
    step: usize,
    last: Box<[u64; SLOTS]>,
}

impl Probe {
    /// A probe of `process`. `workers` has the counters of its workers in order, `counters` those of all
    /// instances, and `sources` tells how full their buffers are. The first look covers the time from now on.
    pub fn new(
        deployment: &Deployment,
        process: usize,
        counters: &[Arc<InstanceCounters>],
        workers: &[Arc<WorkerCounters>],
        sources: Vec<(usize, Arc<Tuning>)>,
    ) -> Probe {
        let of_process = deployment.process_of.iter().enumerate();
        let own = of_process.filter(|(_, owner)| **owner == process);
        let workers = own.zip(workers).map(|((worker, _), counters)| WorkerProbe {
            worker,
            counters: Arc::clone(counters),
            last: [0; 4],
            times: ThreadTimes::default(),
            times_ns: None,
            pin: Pin::default(),
        });
        let (mut instances, mut sinks) = (Vec::new(), Vec::new());
        for (instance, (plan, counters)) in deployment.instances.iter().zip(counters).enumerate() {
            if deployment.process(instance) != process {
                continue;
            }
            instances.push(InstanceProbe {
                instance,
                counters: Arc::clone(counters),
                last: [0; 4],
            });
            for (step, plan) in plan.steps.iter().enumerate() {
                // Also those without a target: they may get one while the query runs.
                if let StepKind::Sink { .. } = plan.kind {
                    sinks.push(SinkProbe {
                        node: plan.node,
                        counters: Arc::clone(counters),
                        step,
                        last: Box::new([0; SLOTS]),
                    });
                }
            }
        }
        let looked_ns = now_ns();
        Probe {
            process,
            workers: workers.collect(),
            instances,
            sinks,
            links: Vec::new(),
            sources,
            stolen: Stolen::since(looked_ns),
            looked_ns,
        }
    }

    /// Also measures what this process's links to other processes carry.
    pub fn watch(&mut self, links: &[LinkSide]) {
        let sending = links.iter().filter(|side| side.sends);
        let probes = sending.map(|side| LinkProbe {
            link: side.link,
            counters: Arc::clone(&side.counters),
            last: [0; 2],
        });
        self.links = probes.collect();
    }

    /// Returns the activity since the last look.
    pub fn look(&mut self) -> Seen {
        let now_ns = now_ns();
        let last_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        let instances = self.instances.iter_mut().map(InstanceProbe::look);
        let interval_ns = now_ns.saturating_sub(last_ns);
        let workers = self.workers.iter_mut();
        let workers = workers.map(|worker| worker.look(interval_ns));
        let fills = self.sources.iter();
        let fills = fills.map(|(node, tuning)| (*node, tuning.take_fill()));
        Seen {
            process: self.process,
            interval_ns,
            stolen_ns: self.stolen.take(now_ns),
            workers: workers.collect(),
            instances: instances
                .filter(|seen| *seen != InstanceSeen::nothing(seen))
                .collect(),
            sinks: self.sinks.iter_mut().filter_map(SinkProbe::look).collect(),
            links: self.links.iter_mut().filter_map(LinkProbe::look).collect(),
            fills: fills.filter(|(_, fill)| *fill > 0.0).collect(),
        }
    }

    /// How long workers have been busy since the last look, without those that have not waited since.
    pub fn busy_ns(&self) -> u64 {
        let workers = self.workers.iter().map(|worker| {
            let now_ns = InstanceCounters::read(&worker.counters.busy_ns);
            now_ns.wrapping_sub(worker.last[0])
        });
        workers.sum()
    }

    /// Ignores the activity until now: it was an idle time, which says nothing about what follows.
    pub fn skip(&mut self) {
        let now_ns = now_ns();
        let interval_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        self.stolen.take(now_ns);
        for worker in &mut self.workers {
            worker.look(interval_ns);
        }
    }
}

impl WorkerProbe {
    fn look(&mut self, interval_ns: u64) -> WorkerSeen {
        let read = InstanceCounters::read;
        let counters = &self.counters;
        let now = [
            &counters.busy_ns,
            &counters.activations,
            &counters.sleeps,
            &counters.overslept_ns,
        ];
        let [busy_ns, activations, sleeps, overslept_ns] = since(&mut self.last, now.map(read));
        let thread = read(&counters.thread);
        let now = self.times.read_ns(thread);
        let times = now.zip(std::mem::replace(&mut self.times_ns, now));
        let times =
            times.map(|(now, last)| (now.0.saturating_sub(last.0), now.1.saturating_sub(last.1)));
        let queued_ns = times.map_or(0, |(_, queued_ns)| queued_ns);
        self.pin.look(thread, queued_ns, interval_ns);
        WorkerSeen {
            worker: self.worker,
            busy_ns,
            activations,
            sleeps,
            overslept_ns,
            overslept_longest_ns: counters.overslept_longest_ns.swap(0, Ordering::Relaxed),
            cpu_ns: times.map(|(cpu_ns, _)| cpu_ns),
            queued_ns,
        }
    }
}

impl InstanceProbe {
    fn look(&mut self) -> InstanceSeen {
        let read = InstanceCounters::read;
        let counters = &self.counters;
        let from_source = read(&counters.source.rows);
        let first = counters.steps.first();
        let from_links = first.map_or(0, |step| read(&step.rows));
        let steps = counters.steps.iter().map(|step| read(&step.busy_ns));
        let now = [
            read(&counters.rows_in),
            read(&counters.chunks),
            from_source.max(from_links),
            read(&counters.source.busy_ns) + steps.sum::<u64>(),
        ];
        let [rows_in, chunks, rows_taken, busy_ns] = since(&mut self.last, now);
        InstanceSeen {
            instance: self.instance,
            rows_in,
            chunks,
            rows_taken,
            reads: from_source > 0,
            busy_ns,
        }
    }
}

impl LinkProbe {
    fn look(&mut self) -> Option<LinkSeen> {
        let now = [&self.counters.rows, &self.counters.bytes].map(InstanceCounters::read);
        let [rows, bytes] = since(&mut self.last, now);
        (rows > 0).then_some(LinkSeen {
            link: self.link,
            rows,
            bytes,
        })
    }
}

impl SinkProbe {
    fn look(&mut self) -> Option<SinkSeen> {
        let latency = self.counters.steps[self.step].latency.as_ref()?;
        let new = latency.new_since(&mut self.last).into_iter();
        let latencies = new.map(|(slot, rows)| (upper_ns(slot), rows));
        let latencies = latencies.collect::<Vec<(u64, u64)>>();
        (!latencies.is_empty()).then_some(SinkSeen {
            node: self.node,
            latencies,
        })
    }
}

/// What was counted since the last look.
fn since<const N: usize>(last: &mut [u64; N], now: [u64; N]) -> [u64; N] {
    let last = std::mem::replace(last, now);
    std::array::from_fn(|slot| now[slot].wrapping_sub(last[slot]))
}
