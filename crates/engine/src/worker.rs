//! Workers: pinned threads that run instances.
//!
//! The duty cycle: drain commands → step the instances → if nothing was done, do what the idle strategy
//! says: look again, or announce, look once more, and wait.
//!
//! - A worker without input makes no system call at all (I7): unless it was told to poll, it waits
//!   without a time-out after a few empty sleeps, or until a time that some instance named.
//! - A worker without instances waits for a command, in every mode.
//! - Commands end every wait, since their sender wakes the worker urgently.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use slackwater_link::{Idle, IdleStrategy, Sources, Wait, Waiter};

use crate::barrier::Handover;
use crate::counters::WorkerCounters;
use crate::error::{Error, Result};
use crate::instance::{Descriptors, Instance, Notice, Stepped};
use crate::protocol::{Attached, COMMANDS_MAX, Command, WorkerEvent};
use crate::time::{Laps, now_ns};

/// How soon a worker tries again to report events that the listener had no room for.
const REPORT_AGAIN: Duration = Duration::from_millis(1);

/// A worker looks at its descriptors before a sleep if it has worked for longer than the sleep, divided by
/// this: about the work of one in three cores. A look is a system call, the sleep two.
const LOOK_AGAIN_SHARE: u128 = 32;

/// Commands to a worker, with their attachments.
pub type Commands = mpsc::Receiver<(Command, Attached)>;

/// Receives what workers report.
pub trait Listener: Send {
    /// Takes an event, without blocking.
    ///
    /// # Errors
    ///
    /// The event, if there is no room for it now.
    fn hear(&self, event: WorkerEvent, attached: Attached) -> std::result::Result<(), Unheard>;
}

/// An event that the listener had no room for.
pub type Unheard = Box<(WorkerEvent, Attached)>;

/// A bounded queue as a listener.
impl Listener for mpsc::SyncSender<(WorkerEvent, Attached)> {
    fn hear(&self, event: WorkerEvent, attached: Attached) -> std::result::Result<(), Unheard> {
        match self.try_send((event, attached)) {
            Err(mpsc::TrySendError::Full(event)) => Err(Box::new(event)),
            // Nobody listens only while the process is ending.
            Err(mpsc::TrySendError::Disconnected(_)) | Ok(()) => Ok(()),
        }
    }
}

/// One worker, on its own thread.
pub struct Worker {
    waiter: Waiter,
    idle: IdleStrategy,
    commands: Commands,
    listener: Box<dyn Listener>,
    /// Events that the listener had no room for.
    unreported: VecDeque<(WorkerEvent, Attached)>,
    /// Instances, with their numbers.
    instances: Vec<(usize, Instance)>,
    exit: bool,
    counters: Arc<WorkerCounters>,
    /// Whether somebody waits for the end of a silence.
    silence: Arc<AtomicBool>,
    /// When the last wait ended.
    awake_ns: u64,
    /// The last reading of the clock.
    laps: Laps,
    /// Whether something was done since.
    worked: bool,
}

impl Worker {
    /// A worker without instances.
    pub fn new(
        waiter: Waiter,
        idle: IdleStrategy,
        commands: Commands,
        listener: Box<dyn Listener>,
        counters: Arc<WorkerCounters>,
        silence: Arc<AtomicBool>,
    ) -> Worker {
        Worker {
            counters,
            silence,
            awake_ns: now_ns(),
            laps: Laps::now(),
            worked: false,
            waiter,
            idle,
            commands,
            listener,
            unreported: VecDeque::new(),
            instances: Vec::new(),
            exit: false,
        }
    }

    /// Runs until told to exit.
    pub fn run(mut self) {
        while !self.exit {
            let cycle = self.cycle();
            if !cycle.worked || cycle.copied {
                self.flush();
            }
            if cycle.worked || cycle.copied {
                // The cycle after a wait had the descriptors that were ready then.
                if std::mem::replace(&mut self.worked, true) {
                    self.waiter.look();
                }
                self.idle.worked();
                continue;
            }
            match self.idle() {
                Idle::Spin => {
                    self.laps.forget();
                    self.waiter.look();
                    std::hint::spin_loop();
                }
                Idle::Wait(wait) if self.has_worked_for_long(wait) && self.waiter.look() => {}
                Idle::Wait(wait) => {
                    self.waiter.announce(wait.listen);
                    let cycle = self.cycle();
                    if cycle.worked || cycle.copied || self.exit {
                        self.worked = true;
                        self.waiter.retract();
                        self.idle.worked();
                    } else {
                        self.wait(wait, cycle);
                    }
                }
            }
        }
        // Instances that still run are not complete: sources are released, sinks discard what they wrote.
        while !self.instances.is_empty() {
            self.end(0, None);
        }
    }

    fn cycle(&mut self) -> Cycle {
        let mut cycle = Cycle {
            worked: self.drain_commands(),
            ..Cycle::default()
        };
        if !self.unreported.is_empty() {
            self.report_rest();
        }
        let mut index = 0;
        while index < self.instances.len() {
            let laps = &mut self.laps;
            match guard(&mut self.instances[index].1, |runs| runs.step(laps)) {
                Ok(Stepped::Worked) => {
                    cycle.worked = true;
                    self.report_notices(index);
                }
                Ok(Stepped::Copied) => {
                    cycle.copied = true;
                    self.report_notices(index);
                }
                Ok(Stepped::Waits {
                    until_ns,
                    descriptors,
                }) => cycle.wait_for(until_ns, descriptors),
                Ok(Stepped::Ended) => {
                    // The instance may have handed something over just before.
                    self.report_notices(index);
                    self.end(index, None);
                    cycle.worked = true;
                    continue;
                }
                Err(error) => {
                    self.end(index, Some(error));
                    cycle.worked = true;
                    continue;
                }
            }
            index += 1;
        }
        if !self.unreported.is_empty() {
            cycle.until_no_later_than(now_ns() + REPORT_AGAIN.as_nanos() as u64);
        }
        cycle
    }

    fn report_notices(&mut self, index: usize) {
        let (instance, runs) = &mut self.instances[index];
        let instance = *instance;
        for notice in runs.take_notices() {
            let (event, attached) = match notice {
                Notice::Handover(handover, state) => {
                    (WorkerEvent::Handover(handover), Attached::State(state))
                }
                Notice::Moved { barrier } => {
                    (WorkerEvent::Moved { instance, barrier }, Attached::Nothing)
                }
                Notice::Snapshot(snapshot) => (
                    WorkerEvent::Snapshot { instance },
                    Attached::Snapshot(snapshot),
                ),
                Notice::Changed => (WorkerEvent::Changed, Attached::Nothing),
                Notice::OverBudget { held, limit } => {
                    (WorkerEvent::OverBudget { held, limit }, Attached::Nothing)
                }
            };
            self.report(event, attached);
        }
    }

    /// Reports an event, now or in a later cycle: a worker never blocks on its listener, which at that
    /// moment may be blocked on the worker.
    fn report(&mut self, event: WorkerEvent, attached: Attached) {
        self.unreported.push_back((event, attached));
        self.report_rest();
    }

    fn report_rest(&mut self) {
        while let Some((event, attached)) = self.unreported.pop_front() {
            if let Err(unheard) = self.listener.hear(event, attached) {
                self.unreported.push_front(*unheard);
                return;
            }
        }
    }

    fn idle(&mut self) -> Idle {
        if self.instances.is_empty() {
            self.laps = Laps::now();
            return Idle::Wait(Wait::FOR_EVERYTHING);
        }
        let laps = &mut self.laps;
        self.idle.idle(|| {
            laps.lap();
            laps.last_ns()
        })
    }

    /// Whether so much may have come while the worker was busy that a sleep must not come first: more than
    /// [`LOOK_AGAIN_SHARE`] of what comes during the sleep.
    fn has_worked_for_long(&self, wait: Wait) -> bool {
        let (Sources::Doorbell, Some(timeout), true) = (wait.sources, wait.timeout, self.worked)
        else {
            return false;
        };
        let busy_ns = self.laps.last_ns().saturating_sub(self.awake_ns);
        u128::from(busy_ns) * LOOK_AGAIN_SHARE > timeout.as_nanos()
    }

    fn wait(&mut self, wait: Wait, cycle: Cycle) {
        // Read when the worker found nothing to do; what it looked at since is little.
        let asleep_ns = self.laps.last_ns();
        let busy_ns = asleep_ns.saturating_sub(self.awake_ns);
        let worked = std::mem::take(&mut self.worked);
        self.counters.waited(busy_ns, worked, self.idle.counters());
        // The load first: the flag is set only in a silence.
        if worked
            && self.silence.load(Ordering::Relaxed)
            && self.silence.swap(false, Ordering::Relaxed)
        {
            self.report(WorkerEvent::Active, Attached::Nothing);
        }
        let deadline = cycle.until_ns.map(|time| time.saturating_sub(asleep_ns));
        let wait = wait.bounded(deadline.map(Duration::from_nanos), cycle.descriptors());
        let woken = self.waiter.wait(wait.timeout, wait.sources);
        self.laps = Laps::now();
        self.awake_ns = self.laps.last_ns();
        match woken {
            Ok(woken) => {
                if wait.sources == Sources::All {
                    self.waiter.note_watched(self.awake_ns);
                }
                self.idle.woke(self.awake_ns, woken);
            }
            // Not seen on Linux; retrying at a bounded rate is better than ending the query.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }

    fn drain_commands(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..COMMANDS_MAX {
            match self.commands.try_recv() {
                Ok((command, attached)) => self.obey(command, attached),
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.exit = true;
                    break;
                }
            }
            worked = true;
        }
        worked
    }

    fn obey(&mut self, command: Command, attached: Attached) {
        match command {
            Command::Deploy => {
                for (number, instance) in instances_in(attached) {
                    self.instances.push((number, instance));
                    let last = self.instances.len() - 1;
                    let waiter = &mut self.waiter;
                    let opened = guard(&mut self.instances[last].1, |instance| {
                        instance.open(waiter)
                    });
                    if let Err(error) = opened {
                        self.end(last, Some(error));
                    }
                }
            }
            Command::Stop => self.instances.iter_mut().for_each(|(_, runs)| runs.stop()),
            Command::Remove => {
                while !self.instances.is_empty() {
                    self.end(0, None);
                }
            }
            Command::Wait { mode, found_ns, .. } => self.idle.change(mode, found_ns),
            Command::Detach { instance } => {
                if let Some(place) = self.place(instance) {
                    let detached = Attached::Instances(vec![self.instances.remove(place)]);
                    self.report(WorkerEvent::Detached { instance }, detached);
                }
            }
            Command::Adopt { .. } => self.instances.extend(instances_in(attached)),
            Command::Barrier(barrier) => {
                let instances = self.instances.iter_mut();
                instances.for_each(|(_, runs)| runs.request(barrier.clone()));
            }
            Command::TakeOver { instance, handover } => {
                self.take_over(instance, handover, attached)
            }
            Command::Examine => (0..self.instances.len()).for_each(|place| self.examine(place)),
            // The runtime has set the flag that all workers read.
            Command::ReportActivity => {}
        }
    }

    fn take_over(&mut self, instance: usize, handover: Handover, attached: Attached) {
        // Without the instance, the query has failed and is about to be removed.
        let (Some(place), Attached::State(state)) = (self.place(instance), attached) else {
            return;
        };
        let taken = guard(&mut self.instances[place].1, |instance| {
            instance.take_over(handover, state)
        });
        match taken {
            Ok(()) => self.report_notices(place),
            Err(error) => self.end(place, Some(error)),
        }
    }

    /// The place of an instance among those that this worker runs.
    fn place(&self, instance: usize) -> Option<usize> {
        let mut numbers = self.instances.iter().map(|(number, _)| *number);
        numbers.position(|number| number == instance)
    }

    /// Flushes the instances, at each look that finds nothing, also on a worker that polls: a sink whose
    /// peer took only part of its data gets no other reminder.
    fn flush(&mut self) {
        let mut index = 0;
        while index < self.instances.len() {
            let laps = &mut self.laps;
            match guard(&mut self.instances[index].1, |runs| runs.flush(laps)) {
                Ok(()) => index += 1,
                Err(error) => self.end(index, Some(error)),
            }
        }
    }

    /// Reports what is known of the partitions of an instance, if it reads a source.
    fn examine(&mut self, place: usize) {
        let (instance, runs) = &self.instances[place];
        if let Some(partitions) = runs.examine() {
            let instance = *instance;
            let event = WorkerEvent::Examined {
                instance,
                partitions,
            };
            self.report(event, Attached::Nothing);
        }
    }

    fn end(&mut self, index: usize, error: Option<Error>) {
        self.examine(index);
        let (number, mut instance) = self.instances.remove(index);
        let name = instance.name().to_string();
        let is_whole = error.is_none() && instance.is_whole();
        let last = is_whole.then(|| guard(&mut instance, Instance::last_snapshot));
        let (last, failed) = match last.transpose() {
            Ok(last) => (last.flatten(), None),
            Err(error) => (None, Some(error)),
        };
        let error = error.or(failed);
        let sinks = guard(&mut instance, |instance| Ok(instance.close())).unwrap_or_default();
        let event = match error {
            None => WorkerEvent::Ended {
                instance: number,
                sinks,
            },
            Some(error) => WorkerEvent::Failed {
                instance: number,
                sinks,
                error: match error.place.is_empty() {
                    true => error.at(&name),
                    false => error,
                },
            },
        };
        self.report(event, last.map_or(Attached::Nothing, Attached::Snapshot));
    }
}

fn instances_in(attached: Attached) -> Vec<(usize, Instance)> {
    match attached {
        Attached::Instances(instances) => instances,
        _ => Vec::new(),
    }
}

#[derive(Default)]
struct Cycle {
    worked: bool,
    /// Whether an instance copied a slice of its state.
    copied: bool,
    until_ns: Option<u64>,
    wanted: bool,
    unwanted: bool,
}

impl Cycle {
    /// Whether descriptors end the wait.
    fn descriptors(&self) -> bool {
        self.wanted || !self.unwanted
    }

    fn until_no_later_than(&mut self, at_ns: u64) {
        self.until_ns = Some(self.until_ns.map_or(at_ns, |until_ns| until_ns.min(at_ns)));
    }

    fn wait_for(&mut self, until_ns: Option<u64>, descriptors: Descriptors) {
        if let Some(at_ns) = until_ns {
            self.until_no_later_than(at_ns);
        }
        self.wanted |= descriptors == Descriptors::Wanted;
        self.unwanted |= descriptors == Descriptors::Unwanted;
    }
}

/// Runs work on an instance. A panic in an operator, source or sink ends the query with an error that
/// names the instance, and does not end the process.
pub(crate) fn guard<T>(
    instance: &mut Instance,
    work: impl FnOnce(&mut Instance) -> Result<T>,
) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| work(&mut *instance))).unwrap_or_else(|panic| {
        Err(Error::of_panic(instance.name(), panic.as_ref()).hint(
            "this is a bug in the operator, source or sink of that name; RUST_BACKTRACE=1 shows where",
        ))
    })
}
