//! The processes: the parent starts one for each stage, and they connect with their neighbors.
//!
//! ```text
//! bench chunking ── control ──┬── source ══ filter ══ filter ══ viewer      a process each,
//!                             └───── └────────── requests ────────┘         three copies in it
//! ```
//!
//! Shutdown: each process answers at the end of the interval and continues, so that the others' figures
//! are not affected; when all have answered, the parent kills all of them. A process that fails reports
//! the reason on standard error and ends, which ends its neighbors. Dropping a [`PartProcess`] ends its
//! process, the kernel ends the processes with their parent, and a process that is not ended gives up a
//! while after its interval.

use std::os::fd::{AsFd, RawFd};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use slackwater_engine::time::now_ns;
use slackwater_link::{Waiter, set_timer_slack_ns};

use super::demand::WINDOW;
use super::ends::{Ends, Lanes, NOTES_BYTES, Offer, waiter};
use super::hop::{Inputs, Outputs};
use super::image::{Cut, LINE};
use super::order::{Answer, Interval, LANES, Order, Part, Point, STAGES, Seen};
use super::others::Others;
use super::queries::Schedule;
use super::stage::{self, Filter, Source, Stage, Viewer};
use super::tally::Tally;
use crate::part_process::{PartProcess, pair};
use slackwater::machine;
use slackwater::measure;
use slackwater::measure::control::Control;
use slackwater::measure::program::inherit;

/// Time between the stages' agreement and the first query.
const LEAD_NS: u64 = 2_000_000;

/// How long after its interval a stage waits to be ended.
const ORPHAN_NS: u64 = 20_000_000_000;

/// Bytes of a lane in addition to the pixels of a block: head, header and padding.
const BLOCK_EXTRA_BYTES: usize = 4 * LINE;

/// What a stage sends when it is connected.
const READY: &str = "ready";

const NAMES: [&str; STAGES] = [
    "the source",
    "the first filter",
    "the second filter",
    "the viewer",
];

/// Runs one stage in this process.
pub fn run(descriptor: RawFd) -> Result<(), String> {
    let control = inherit(descriptor)?;
    // The stages end with their parent: otherwise a full load would continue for a while.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("can't arrange to end with the parent process: {error}"))?;
    let (part, neighbors) = control.expect::<Part>()?;
    let mut neighbors = neighbors.into_iter().map(Control::of);
    let (Some(before), Some(after)) = (neighbors.next(), neighbors.next()) else {
        return Err("a stage received no sockets to its neighbors".to_string());
    };
    let name = NAMES.get(part.stage).ok_or("there is no such stage")?;
    measure::pin(part.core)?;
    set_timer_slack_ns(1);
    let failed = |error: String| format!("{name}: {error}");
    let waiter = waiter(part.order.transport)?;
    let (to, fro) = connect(&part, &waiter, &before, &after).map_err(failed)?;
    control.send(&READY, &[])?;
    let (interval, _) = control.expect::<Interval>()?;
    let mut stage = build(&part, interval, to, fro).map_err(failed)?;
    let mut meter = Meter::default();
    let mut answered = false;
    let ran = stage::run(&mut stage, &waiter, |stage, now_ns| {
        let next_ns = meter.at(now_ns, interval);
        if let (Some(cores), false) = (meter.cores, answered) {
            let seen = match stage {
                Stage::Viewer(viewer) => viewer.seen(now_ns),
                _ => Some(Seen::default()),
            };
            if let Some(seen) = seen {
                control.send(&Answer { cores, seen }, &[])?;
                answered = true;
            }
        }
        let give_up_ns = interval.end_ns + interval.grace_ns + ORPHAN_NS;
        if now_ns >= give_up_ns {
            return Err("this stage was not ended in time".to_string());
        }
        let grace_ns = interval.end_ns + interval.grace_ns;
        let grace_ns = Some(grace_ns).filter(|&time_ns| time_ns > now_ns);
        Ok(next_ns.or(grace_ns).unwrap_or(give_up_ns))
    });
    match ran {
        // The parent ends the stages one by one, and their neighbors notice.
        Err(_) if answered => Ok(()),
        ran => ran.map_err(failed),
    }
}

/// The links to the previous stage and to the next one. The viewer's next stage is the source, to which
/// it sends requests.
fn connect(
    part: &Part,
    waiter: &Waiter,
    before: &Control,
    after: &Control,
) -> Result<(Ends, Ends), String> {
    let Part { stage, order, .. } = part;
    let blocks = Lanes {
        count: LANES,
        bytes: lane_bytes(order),
    };
    let notes = |count| Lanes {
        count,
        bytes: NOTES_BYTES,
    };
    let (is_source, is_viewer) = (*stage == 0, *stage == STAGES - 1);
    let name_before = NAMES[(stage + STAGES - 1) % STAGES];
    let name_after = NAMES[(stage + 1) % STAGES];
    let offer = |control, name, lanes| Offer::make(order.transport, control, waiter, name, lanes);
    // What this stage reads: requests or blocks from the previous stage, acknowledgements or nothing from
    // the next one.
    let from_before = if is_source { notes(1) } else { blocks };
    let from_after = notes(usize::from(!is_viewer));
    let to = offer(before, name_before, from_before)?;
    let fro = offer(after, name_after, from_after)?;
    // What this stage sends: acknowledgements, and blocks or requests.
    let to = to.meet(before, waiter, name_before, usize::from(!is_source))?;
    let fro = fro.meet(after, waiter, name_after, if is_viewer { 1 } else { LANES })?;
    Ok((to, fro))
}

/// Room for a window, for the block that is being processed, for one that waits to be sent on, and for
/// the padding at the ring's end. That is more than four blocks, because anything larger than a quarter
/// of its lane is sent in pieces.
fn lane_bytes(order: &Order) -> usize {
    (order.block_bytes + BLOCK_EXTRA_BYTES) * (WINDOW + 3)
}

fn build(part: &Part, interval: Interval, before: Ends, after: Ends) -> Result<Stage, String> {
    let order = &part.order;
    let cut = Cut::new(order.image_bytes, order.partitions, order.block_bytes)?;
    let outputs = |ends| Outputs::new(ends, order.block_bytes);
    let nothing = || "a link has no such end".to_string();
    Ok(match part.stage {
        0 => {
            let mut receivers = before.receivers;
            let requests = receivers.pop().ok_or_else(nothing)?;
            let kept = before.kept;
            let image_bytes = order.image_bytes;
            Stage::Source(Source::new(
                cut,
                image_bytes,
                requests,
                kept,
                outputs(after)?,
            ))
        }
        stage if stage == STAGES - 1 => {
            let mut senders = after.senders;
            let requests = senders.pop().ok_or_else(nothing)?;
            let schedule = Schedule::new(order, cut, interval.start_ns);
            let tally = Tally::new(interval, order.image_bytes, order.load);
            let inputs = Inputs::new(before)?;
            let viewer = Viewer::new(inputs, requests, after.kept, schedule, tally);
            Stage::Viewer(Box::new(viewer))
        }
        _ => Stage::Filter(Filter::new(
            Inputs::new(before)?,
            outputs(after)?,
            order.rounds_per_byte,
        )),
    })
}

/// CPU time of this process between the start of the interval and its end.
#[derive(Default)]
struct Meter {
    begin: Option<(u64, f64)>,
    cores: Option<f64>,
}

impl Meter {
    /// Notes the present time; returns when to call this again.
    fn at(&mut self, now_ns: u64, interval: Interval) -> Option<u64> {
        if now_ns < interval.begin_ns {
            return Some(interval.begin_ns);
        }
        let (begin_ns, begin_cpu_s) = *self
            .begin
            .get_or_insert_with(|| (now_ns, machine::process_cpu_s()));
        if now_ns < interval.end_ns {
            return Some(interval.end_ns);
        }
        self.cores.get_or_insert_with(|| {
            let cpu_s = machine::process_cpu_s() - begin_cpu_s;
            cpu_s / ((now_ns - begin_ns).max(1_000_000) as f64 / 1e9)
        });
        None
    }
}

/// Durations of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// How long queries are sent before they count.
    pub warm_up: Duration,
    /// How long they count.
    pub time: Duration,
    /// How long answers are waited for.
    pub grace: Duration,
}

/// Measures a point, with each stage on its core.
pub fn measure(order: &Order, cores: [usize; STAGES], times: Times) -> Result<Point, String> {
    let order = *order;
    // Starts all of them before the first receives an order: if one can't be started, the others end.
    let mut children = Vec::new();
    for _ in 0..STAGES {
        children.push(PartProcess::start("chunking-part")?);
    }
    {
        let mut pairs = Vec::new();
        for _ in 0..STAGES {
            pairs.push(pair()?);
        }
        // One end of each pair goes to a stage and the other end to the next stage.
        for (stage, child) in children.iter().enumerate() {
            let core = cores[stage];
            let part = Part { stage, core, order };
            let (_, before) = &pairs[(stage + STAGES - 1) % STAGES];
            let (after, _) = &pairs[stage];
            child.send(&part, &[before.as_fd(), after.as_fd()])?;
        }
    }
    for (stage, child) in children.iter_mut().enumerate() {
        expect::<String>(child, stage)?;
    }
    let others = Others::start();
    let start_ns = now_ns() + LEAD_NS;
    let begin_ns = start_ns + times.warm_up.as_nanos() as u64;
    let interval = Interval {
        start_ns,
        begin_ns,
        end_ns: begin_ns + times.time.as_nanos() as u64,
        grace_ns: times.grace.as_nanos() as u64,
    };
    for child in &children {
        child.send(&interval, &[])?;
    }
    let mut cores_used = 0.0;
    let mut seen = Seen::default();
    // The viewer comes last: it waits for answers, and the others have theirs by then.
    for (stage, child) in children.iter_mut().enumerate() {
        let answer = expect::<Answer>(child, stage)?;
        cores_used += answer.cores;
        seen = answer.seen;
    }
    Ok(Point {
        order,
        seen,
        cores_used,
        cores_of_others: others.cores(),
    })
}

fn expect<T: serde::de::DeserializeOwned>(
    child: &mut PartProcess,
    stage: usize,
) -> Result<T, String> {
    match child.receive::<T>()? {
        Some(answer) => Ok(answer),
        // Its end of the socket is closed, so it has ended.
        None => Err(format!(
            "{} failed ({}); see above for the reason, if it reported one",
            NAMES[stage],
            child.ending()
        )),
    }
}
