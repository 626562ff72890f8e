//! Agents of the processes: they store what members give them, or have a standby store it.

use super::pipeline::{Said, Snapshot};
use super::standby::Step;
use super::supervisor::{SUMS, failed};
use super::world::{After, Event, Owner, World};
use crate::coordinator::{self, Report};
use crate::manifest::Part;
use crate::store::{PartRequest, PartWriter};

/// How long a standby may take to store the parts of an instance.
const PATIENCE: u64 = 300;

/// What an agent knows of the standby.
#[derive(Debug, Clone, Copy, Default)]
pub struct Agent {
    /// Whether reports wait until their parts are stored, because a standby may add some.
    pub follows: bool,
    /// The standby that stores, until it fails.
    pub shelf: Option<usize>,
}

/// Parts that an agent has sent to a standby.
pub struct Relay {
    pub run: usize,
    pub member: usize,
    pub barrier: u64,
    pub parts: Vec<(Part, Vec<u8>)>,
    report: Report,
    /// Whether the agent waits for an answer no more.
    settled: bool,
}

impl Relay {
    pub fn parts(&self) -> Vec<Part> {
        self.parts.iter().map(|(part, _)| part.clone()).collect()
    }
}

impl World {
    /// A supervisor has another standby than before, or a new incarnation.
    pub fn look_at_standby(&mut self, deployment: usize) {
        let (run, standby) = {
            let one = &self.deployments[deployment];
            (one.run, one.standby)
        };
        let is_running = |run: &usize| self.runs[*run].running && !self.runs[*run].over;
        let Some(run) = run.filter(is_running) else {
            return;
        };
        if self.runs[run].standby == standby {
            return;
        }
        let lag = self.random.between(20, 100);
        let one = &mut self.runs[run];
        one.standby = standby;
        one.coordinator.set_relayed(standby.is_some());
        let interval_ns = match standby {
            Some(_) => lag.min(one.interval_ns),
            None => one.interval_ns,
        };
        one.coordinator.set_interval(interval_ns);
        for process in 0..self.runs[run].shape.processes {
            self.soon(Event::Standby(Step::Follow {
                run,
                process,
                standby,
            }));
        }
        self.tick_coordinator(run);
    }

    pub fn said(&mut self, run: usize, member: usize, said: Vec<Said>) {
        for said in said {
            match said {
                Said::Sent((to, input), message) => {
                    self.runs[run].members[to].receive(input, message);
                    self.wake(run, to);
                }
                Said::Changed => {
                    let input = coordinator::Input::Changed;
                    self.soon(Event::ToCoordinator { run, input });
                }
                Said::Ended(last_barrier, report) => {
                    let input = coordinator::Input::Ended {
                        member,
                        last_barrier,
                        report,
                    };
                    self.soon(Event::ToCoordinator { run, input });
                }
                Said::Done(barrier, report, snapshots) => {
                    let process = self.runs[run].members[member].process;
                    let agent = self.runs[run].agents[process];
                    let is_increment = snapshots.iter().any(|part| part.since.is_some());
                    if agent.follows && is_increment {
                        self.relay(run, member, barrier, report, snapshots);
                    } else {
                        self.tell_done(run, member, barrier, report);
                        self.store(run, member, barrier, snapshots);
                    }
                }
            }
        }
    }

    fn tell_done(&mut self, run: usize, member: usize, barrier: u64, report: Report) {
        let input = coordinator::Input::Done {
            barrier,
            member,
            report,
        };
        self.soon(Event::ToCoordinator { run, input });
    }

    fn store(&mut self, run: usize, member: usize, barrier: u64, snapshots: Vec<Snapshot>) {
        for (piece, snapshot) in snapshots.into_iter().enumerate() {
            let (store, epoch) = (self.store.clone(), self.runs[run].epoch);
            let instance = self.runs[run].members[member].instance;
            self.start(Owner::Run(run), async move {
                let request = request(barrier, instance, piece, &snapshot);
                let parts = PartWriter::new(store, epoch);
                let result = parts.put(&request, &[snapshot.rows]).await;
                After::Part {
                    run,
                    member,
                    barrier,
                    result,
                }
            });
        }
    }

    /// Has the standby store the parts of an increment; the agent stores them itself if there is none, or it
    /// doesn't answer.
    fn relay(
        &mut self,
        run: usize,
        member: usize,
        barrier: u64,
        report: Report,
        snapshots: Vec<Snapshot>,
    ) {
        let one = &self.runs[run];
        let (writer, instance) = (
            PartWriter::new(self.store.clone(), one.epoch),
            one.members[member].instance,
        );
        let shelf = one.agents[one.members[member].process].shelf;
        let parts = snapshots.iter().enumerate().map(|(piece, snapshot)| {
            let mut open =
                writer.open_in_memory(&request(barrier, instance, piece, snapshot), Vec::new());
            open.write(&snapshot.rows).expect("rows can be encoded");
            open.encode().expect("it is in memory")
        });
        let relay = self.relays.len();
        self.relays.push(Relay {
            run,
            member,
            barrier,
            parts: parts.collect(),
            report,
            settled: false,
        });
        match shelf {
            Some(standby) => {
                self.soon(Event::Standby(Step::Store { standby, relay }));
                self.at(
                    PATIENCE,
                    Event::Standby(Step::Answered { relay, parts: None }),
                );
            }
            None => self.store_relayed(relay),
        }
    }

    /// The standby has answered with all parts that the checkpoint gets, or has failed.
    pub fn answered(&mut self, relay: usize, parts: Option<Vec<Part>>) {
        let one = &self.relays[relay];
        let run = &mut self.runs[one.run];
        let place = &run.members[one.member];
        if one.settled || !place.alive {
            return;
        }
        match parts {
            Some(parts) => {
                self.seen.relayed += 1;
                self.report(relay, parts);
            }
            None => {
                run.agents[place.process].shelf = None;
                self.store_relayed(relay);
            }
        }
    }

    fn store_relayed(&mut self, relay: usize) {
        let one = &mut self.relays[relay];
        one.settled = true;
        let (run, parts, store) = (one.run, one.parts.clone(), self.store.clone());
        self.start(Owner::Run(run), async move {
            for (part, bytes) in parts {
                if let Err(error) = store.put_part(&part, &bytes, || true).await {
                    let result = Err(error);
                    return After::Relayed { relay, result };
                }
            }
            let result = Ok(());
            After::Relayed { relay, result }
        });
    }

    /// The agent has stored what it wanted a standby to store.
    pub fn relayed(&mut self, relay: usize, result: crate::Result<()>) {
        match result {
            Ok(()) => self.report(relay, self.relays[relay].parts()),
            Err(error) => {
                let (run, barrier) = (self.relays[relay].run, self.relays[relay].barrier);
                let input = failed(barrier, &error);
                self.soon(Event::ToCoordinator { run, input });
            }
        }
    }

    fn report(&mut self, relay: usize, parts: Vec<Part>) {
        let one = &mut self.relays[relay];
        one.settled = true;
        let (run, member, barrier) = (one.run, one.member, one.barrier);
        let mut report = one.report.clone();
        report.parts = parts.len();
        self.tell_done(run, member, barrier, report);
        for part in parts {
            let input = coordinator::Input::PartStored {
                barrier,
                member,
                part,
            };
            self.soon(Event::ToCoordinator { run, input });
        }
    }
}

fn request(barrier: u64, instance: u32, piece: usize, snapshot: &Snapshot) -> PartRequest<'static> {
    PartRequest {
        barrier,
        since: snapshot.since,
        node: SUMS,
        instance,
        piece: piece as u32,
        buckets: snapshot.buckets,
        owners: None,
        watermark: None,
    }
}
