//! Workers: pinned threads that run instances.
//!
//! The duty cycle: drain commands → step the instances → when nothing was done, do what the idle
//! strategy says: look again, or announce, look once more, and wait.
//!
//! - A worker without input makes no system call at all (I7): unless it was told to poll, it waits
//!   without a time-out after a few empty sleeps, or until a time that some instance named.
//! - A worker without instances waits to be told something, whatever the mode.
//! - Commands end every wait, since whoever sends one rings urgently.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use slackwater_link::{Idle, IdleStrategy, Sources, Wait, Waiter};

use crate::barrier::{Barrier, Handover};
use crate::checkpoint::Snapshot;
use crate::counters::WorkerCounters;
use crate::error::{Error, Result};
use crate::instance::{Descriptors, Instance, Notice, SinkResult, Stepped};
use crate::runtime::WaitMode;
use crate::time::now_ns;

/// Commands that may wait for a worker: deploying and stopping are rare, a few suffice.
pub const COMMANDS_MAX: usize = 16;

/// What a worker is told, through a bounded queue that it drains once a duty cycle.
pub enum Command {
    /// Run these instances of a deployment.
    Deploy {
        /// The deployment.
        deployment: u32,
        /// Its instances for this worker, with their numbers.
        instances: Vec<(usize, Instance)>,
    },
    /// End the sources of a deployment; what is on its way still comes through.
    Stop {
        /// The deployment.
        deployment: u32,
    },
    /// Drop the instances of a deployment at once.
    Remove {
        /// The deployment.
        deployment: u32,
    },
    /// Wait like this from now on.
    Wait {
        /// How.
        mode: WaitMode,
        /// CPU time that finding something costs beside the waiting, for
        /// [`WaitMode::Auto`]: what each chunk costs, however few rows it has.
        found_ns: u64,
    },
    /// Hand an instance back, which is to move to another worker ([`Event::Detached`]). Nothing is
    /// done when it has ended.
    Detach {
        /// The deployment.
        deployment: u32,
        /// The instance's number.
        instance: usize,
    },
    /// Run an instance that another worker has handed back.
    Adopt {
        /// The deployment.
        deployment: u32,
        /// The instance's number.
        number: usize,
        /// The instance.
        instance: Box<Instance>,
    },
    /// Let the sources of a deployment send a barrier.
    Barrier {
        /// The deployment.
        deployment: u32,
        /// The barrier.
        barrier: Barrier,
    },
    /// State for an instance, from another one ([`Event::Handover`]).
    TakeOver {
        /// The deployment.
        deployment: u32,
        /// The number of the instance that gets it.
        number: usize,
        /// The state.
        handover: Handover,
    },
    /// End the thread.
    Exit,
}

/// What workers report, through one queue.
#[derive(Debug)]
pub enum Event {
    /// An instance has come to its end.
    Ended {
        /// The deployment.
        deployment: u32,
        /// The instance's number.
        instance: usize,
        /// What its sinks measured.
        sinks: Vec<SinkResult>,
        /// What it had at its end, where it takes part in checkpoints; none where the query was
        /// stopped, or a sender has gone: that is no end.
        last: Option<Box<Snapshot>>,
    },
    /// What an instance has at the barrier of a checkpoint.
    Snapshot {
        /// The deployment.
        deployment: u32,
        /// The instance's number.
        instance: usize,
        /// It.
        snapshot: Box<Snapshot>,
    },
    /// A source has read something behind the last barrier that it sent.
    Changed {
        /// The deployment.
        deployment: u32,
    },
    /// The operators of the process hold more than they may. Said once.
    OverBudget {
        /// The deployment.
        deployment: u32,
        /// What they hold, in bytes.
        held: u64,
        /// What they may.
        limit: u64,
    },
    /// Something was done after a silence that somebody wanted to hear the end of
    /// ([`crate::runtime::Runtime::tell_when_active`]).
    Active,
    /// An instance is on its way to another worker.
    Detached {
        /// The deployment.
        deployment: u32,
        /// The instance's number.
        number: usize,
        /// The instance.
        instance: Box<Instance>,
    },
    /// State for another instance: to be handed to it with [`Command::TakeOver`].
    Handover {
        /// The deployment.
        deployment: u32,
        /// The state.
        handover: Handover,
    },
    /// An instance has taken part in a move of buckets, and goes on.
    Moved {
        /// The deployment.
        deployment: u32,
        /// The instance's number.
        instance: usize,
        /// The barrier's number.
        barrier: u64,
    },
    /// An instance has failed; it has been closed.
    Failed {
        /// The deployment.
        deployment: u32,
        /// The instance's number.
        instance: usize,
        /// What its sinks measured until then.
        sinks: Vec<SinkResult>,
        /// Why.
        error: Error,
    },
}

/// One worker, on its own thread.
pub struct Worker {
    waiter: Waiter,
    idle: IdleStrategy,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<Event>,
    instances: Vec<(u32, usize, Instance)>,
    exit: bool,
    counters: Arc<WorkerCounters>,
    /// Somebody waits for the end of a silence.
    silence: Arc<AtomicBool>,
    /// When the last wait ended.
    awake_ns: u64,
    /// Something was done since.
    worked: bool,
}

impl Worker {
    /// A worker without instances.
    pub fn new(
        waiter: Waiter,
        idle: IdleStrategy,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<Event>,
        counters: Arc<WorkerCounters>,
        silence: Arc<AtomicBool>,
    ) -> Worker {
        Worker {
            counters,
            silence,
            awake_ns: now_ns(),
            worked: false,
            waiter,
            idle,
            commands,
            events,
            instances: Vec::new(),
            exit: false,
        }
    }

    /// Runs until told to exit.
    pub fn run(mut self) {
        while !self.exit {
            if self.cycle().worked {
                self.worked = true;
                self.idle.worked();
                continue;
            }
            self.flush();
            match self.idle() {
                Idle::Spin => std::hint::spin_loop(),
                Idle::Wait(wait) => {
                    self.waiter.announce(wait.listen);
                    let cycle = self.cycle();
                    if cycle.worked || self.exit {
                        self.worked = true;
                        self.waiter.retract();
                        self.idle.worked();
                    } else {
                        self.wait(wait, cycle);
                    }
                }
            }
        }
        // What still runs is not complete: sources are released, sinks discard what they wrote.
        while !self.instances.is_empty() {
            self.end(0, None);
        }
    }

    fn cycle(&mut self) -> Cycle {
        let mut cycle = Cycle {
            worked: self.drain_commands(),
            ..Cycle::default()
        };
        let mut index = 0;
        while index < self.instances.len() {
            match guard(&mut self.instances[index].2, Instance::step) {
                Ok(Stepped::Worked) => {
                    cycle.worked = true;
                    self.tell_notices(index);
                }
                Ok(Stepped::Waits {
                    until_ns,
                    descriptors,
                }) => cycle.wait_for(until_ns, descriptors),
                Ok(Stepped::Ended) => {
                    // It may have handed something over just before.
                    self.tell_notices(index);
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
        cycle
    }

    fn tell_notices(&mut self, index: usize) {
        let (deployment, instance, of) = &mut self.instances[index];
        let (deployment, instance) = (*deployment, *instance);
        for notice in of.take_notices() {
            let event = match notice {
                Notice::Handover(handover) => Event::Handover {
                    deployment,
                    handover,
                },
                Notice::Moved { barrier } => Event::Moved {
                    deployment,
                    instance,
                    barrier,
                },
                Notice::Snapshot(snapshot) => Event::Snapshot {
                    deployment,
                    instance,
                    snapshot,
                },
                Notice::Changed => Event::Changed { deployment },
                Notice::OverBudget { held, limit } => Event::OverBudget {
                    deployment,
                    held,
                    limit,
                },
            };
            // Nobody listens only when the process is ending.
            let _ = self.events.send(event);
        }
    }

    fn idle(&mut self) -> Idle {
        if self.instances.is_empty() {
            return Idle::Wait(Wait::FOR_EVERYTHING);
        }
        self.idle.idle(now_ns)
    }

    fn wait(&mut self, wait: Wait, cycle: Cycle) {
        let asleep_ns = now_ns();
        let busy_ns = asleep_ns.saturating_sub(self.awake_ns);
        let worked = std::mem::take(&mut self.worked);
        self.counters.waited(busy_ns, worked, self.idle.counters());
        // The load first: the flag is up in a silence only.
        if worked
            && self.silence.load(Ordering::Relaxed)
            && self.silence.swap(false, Ordering::Relaxed)
        {
            let _ = self.events.send(Event::Active);
        }
        let deadline = cycle.until_ns.map(|time| time.saturating_sub(asleep_ns));
        let wait = wait.bounded(deadline.map(Duration::from_nanos), cycle.descriptors());
        let woken = self.waiter.wait(wait.timeout, wait.sources);
        self.awake_ns = now_ns();
        match woken {
            Ok(woken) => {
                if wait.sources == Sources::All {
                    self.waiter.note_watched(self.awake_ns);
                }
                self.idle.woke(self.awake_ns, woken);
            }
            // Not seen on Linux; going round again at a bounded rate beats ending the query.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }

    fn drain_commands(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..COMMANDS_MAX {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
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

    fn obey(&mut self, command: Command) {
        match command {
            Command::Deploy {
                deployment,
                instances,
            } => {
                for (number, instance) in instances {
                    self.instances.push((deployment, number, instance));
                    let last = self.instances.len() - 1;
                    let waiter = &mut self.waiter;
                    let opened = guard(&mut self.instances[last].2, |instance| {
                        instance.open(waiter)
                    });
                    if let Err(error) = opened {
                        self.end(last, Some(error));
                    }
                }
            }
            Command::Stop { deployment } => {
                let instances = self
                    .instances
                    .iter_mut()
                    .filter(|(id, ..)| *id == deployment);
                instances.for_each(|(_, _, instance)| instance.stop());
            }
            Command::Remove { deployment } => {
                while let Some(index) = self.instances.iter().position(|(id, ..)| *id == deployment)
                {
                    self.end(index, None);
                }
            }
            Command::Wait { mode, found_ns } => self.idle.change(mode, found_ns),
            Command::Detach {
                deployment,
                instance,
            } => {
                let mut places = self.instances.iter();
                let place = places.position(|(id, of, _)| (*id, *of) == (deployment, instance));
                if let Some(place) = place {
                    let (deployment, number, instance) = self.instances.remove(place);
                    let _ = self.events.send(Event::Detached {
                        deployment,
                        number,
                        instance: Box::new(instance),
                    });
                }
            }
            Command::Adopt {
                deployment,
                number,
                instance,
            } => self.instances.push((deployment, number, *instance)),
            Command::Barrier {
                deployment,
                barrier,
            } => {
                let instances = self.instances.iter_mut();
                let meant = instances.filter(|(id, ..)| *id == deployment);
                meant.for_each(|(_, _, instance)| instance.request(barrier.clone()));
            }
            Command::TakeOver {
                deployment,
                number,
                handover,
            } => {
                let mut places = self.instances.iter();
                let place = places.position(|(id, of, _)| (*id, *of) == (deployment, number));
                // Without it the query has failed, and is about to be removed.
                if let Some(place) = place {
                    let taken = guard(&mut self.instances[place].2, |instance| {
                        instance.take_over(handover)
                    });
                    match taken {
                        Ok(()) => self.tell_notices(place),
                        Err(error) => self.end(place, Some(error)),
                    }
                }
            }
            Command::Exit => self.exit = true,
        }
    }

    /// With each look in vain, also of a worker that polls: a sink whose peer took only part of what
    /// it had needs no other reminder.
    fn flush(&mut self) {
        let mut index = 0;
        while index < self.instances.len() {
            match guard(&mut self.instances[index].2, Instance::flush) {
                Ok(()) => index += 1,
                Err(error) => self.end(index, Some(error)),
            }
        }
    }

    fn end(&mut self, index: usize, error: Option<Error>) {
        let (deployment, number, mut instance) = self.instances.remove(index);
        let name = instance.name().to_string();
        let is_whole = error.is_none() && instance.is_whole();
        let last = is_whole.then(|| instance.last_snapshot()).flatten();
        let sinks = guard(&mut instance, |instance| Ok(instance.close())).unwrap_or_default();
        let event = match error {
            None => Event::Ended {
                deployment,
                instance: number,
                sinks,
                last,
            },
            Some(error) => {
                let error = if error.place.is_empty() {
                    error.at(&name)
                } else {
                    error
                };
                Event::Failed {
                    deployment,
                    instance: number,
                    sinks,
                    error,
                }
            }
        };
        // Nobody listens only when the process is ending.
        let _ = self.events.send(event);
    }
}

#[derive(Default)]
struct Cycle {
    worked: bool,
    until_ns: Option<u64>,
    wanted: bool,
    unwanted: bool,
}

impl Cycle {
    /// Whether descriptors end the wait.
    fn descriptors(&self) -> bool {
        self.wanted || !self.unwanted
    }

    fn wait_for(&mut self, until_ns: Option<u64>, descriptors: Descriptors) {
        self.until_ns = match (self.until_ns, until_ns) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.wanted |= descriptors == Descriptors::Wanted;
        self.unwanted |= descriptors == Descriptors::Unwanted;
    }
}

/// A panic in an operator, source or sink that somebody else wrote ends the query with an error
/// that names the instance, not the process.
fn guard<T>(instance: &mut Instance, work: impl FnOnce(&mut Instance) -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| work(&mut *instance))).unwrap_or_else(|panic| {
        Err(Error::of_panic(instance.name(), panic.as_ref()).mend(
            "a bug of the operator, source or sink of that name; RUST_BACKTRACE=1 shows where",
        ))
    })
}
