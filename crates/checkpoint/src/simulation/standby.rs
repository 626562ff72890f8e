//! Standbys: they follow a deployment, store what changes for it, and go on when they believe it is gone.

use std::collections::VecDeque;

use super::mutation::Mutation;
use super::replica::{Kept, Replica};
use super::supervisor::CHAIN;
use super::world::{After, Event, Owner, World};
use crate::chain::ChainRule;
use crate::manifest::{Manifest, Part};
use crate::{Kind, Result};

/// A run that stands by.
pub struct Standby {
    over: bool,
    /// The deployment that it follows.
    follows: Option<usize>,
    /// Whether it goes on as soon as its replica is at rest.
    goes: bool,
    /// Until when it stands still.
    stopped_until: u64,
    /// Until when it hears of no checkpoint.
    deaf_until: u64,
    /// `None` while it is at work.
    replica: Option<Box<Replica>>,
    kept: Kept,
    jobs: VecDeque<Job>,
}

enum Job {
    /// Come to the newest checkpoint.
    Newest,
    /// Come to this one.
    Sync(u64),
    /// The parts of a relay are stored: make a base, if one is due.
    Base(usize),
}

/// A step in the life of a standby, or of those that deal with it.
pub enum Step {
    Come {
        standby: usize,
    },
    /// It hears that a checkpoint is stored.
    Told {
        standby: usize,
        number: u64,
    },
    /// An agent asks it to store parts.
    Store {
        standby: usize,
        relay: usize,
    },
    /// Its connection to the active has ended.
    Gone {
        standby: usize,
    },
    /// An agent hears what it has stored, or that it failed.
    Answered {
        relay: usize,
        parts: Option<Vec<Part>>,
    },
    /// A supervisor looks whether it has a standby.
    Look {
        deployment: usize,
    },
    /// An agent hears who stores.
    Follow {
        run: usize,
        process: usize,
        standby: Option<usize>,
    },
}

/// What a standby has done.
pub enum Done {
    Stored {
        standby: usize,
        relay: usize,
        result: Result<()>,
    },
    Synced {
        standby: usize,
        replica: Box<Replica>,
        result: Result<Option<Manifest>>,
    },
    Based {
        standby: usize,
        relay: usize,
        replica: Box<Replica>,
        result: Result<Vec<Part>>,
    },
}

impl World {
    /// Most queries have a standby before long.
    pub fn begin_standby(&mut self) {
        if self.random.permille(850) {
            let delay = self.random.between(0, 300);
            self.add_standby(delay);
        }
    }

    pub fn add_standby(&mut self, delay: u64) {
        let standby = self.standbys.len();
        let small_bytes = [0, 1_000, 2_000][self.random.below(3) as usize];
        let rule = ChainRule {
            small_bytes,
            ..CHAIN
        };
        let replica = Replica::new(rule, self.mutation);
        let kept = Kept::clone(&replica.kept);
        self.standbys.push(Standby {
            over: false,
            follows: None,
            goes: false,
            stopped_until: 0,
            deaf_until: 0,
            replica: Some(Box::new(replica)),
            kept,
            jobs: VecDeque::new(),
        });
        self.at(delay, Event::Standby(Step::Come { standby }));
    }

    pub fn standby(&mut self, step: Step) {
        // One that was stopped continues later, with everything that it was sent meanwhile.
        if let Step::Come { standby }
        | Step::Told { standby, .. }
        | Step::Store { standby, .. }
        | Step::Gone { standby } = step
        {
            let one = &self.standbys[standby];
            if one.over {
                return;
            }
            if one.stopped_until > self.now {
                let delay = one.stopped_until - self.now;
                return self.at(delay, Event::Standby(step));
            }
        }
        match step {
            Step::Come { standby } => self.come(standby),
            Step::Told { standby, number } => {
                self.standbys[standby].jobs.push_back(Job::Sync(number));
                self.work_standby(standby);
            }
            Step::Store { standby, relay } => self.store_for(standby, relay),
            Step::Gone { standby } => self.take_over(standby),
            Step::Answered { relay, parts } => self.answered(relay, parts),
            Step::Look { deployment } => self.look_at_standby(deployment),
            Step::Follow {
                run,
                process,
                standby,
            } => {
                let agent = &mut self.runs[run].agents[process];
                (agent.follows, agent.shelf) = (standby.is_some(), standby);
            }
        }
    }

    fn come(&mut self, standby: usize) {
        let chaos = self.chaos();
        let mut deployments = self.deployments.iter_mut();
        let followed = deployments.find(|one| !one.over && one.standby.is_none());
        match followed {
            Some(deployment) => {
                deployment.standby = Some(standby);
                let deployment = deployment.index;
                let one = &mut self.standbys[standby];
                one.follows = Some(deployment);
                one.jobs.push_back(Job::Newest);
                self.soon(Event::Standby(Step::Look { deployment }));
                self.work_standby(standby);
            }
            None if chaos => {
                let delay = self.random.between(50, 300);
                self.at(delay, Event::Standby(Step::Come { standby }));
            }
            None => self.standbys[standby].over = true,
        }
    }

    /// A message of a standby or to one: it may be very late, or lost, in so many cases of a thousand.
    fn uncertain(&mut self, lost: u64, step: Step) {
        let (lost, late) = match self.chaos() {
            true => (lost * self.badness, 50 * self.badness),
            false => (0, 0),
        };
        if self.random.permille(lost) {
            return;
        }
        match self.random.permille(late) {
            true => {
                let delay = self.random.between(100, 3_000);
                self.at(delay, Event::Standby(step));
            }
            false => self.soon(Event::Standby(step)),
        }
    }

    /// A deployment has stored a checkpoint.
    pub fn tell_standby(&mut self, deployment: usize, number: u64) {
        if let Some(standby) = self.deployments[deployment].standby
            && self.standbys[standby].deaf_until <= self.now
        {
            self.uncertain(100, Step::Told { standby, number });
        }
    }

    /// A deployment is over, which its standby notices.
    pub fn leave_standby(&mut self, deployment: usize) {
        if let Some(standby) = self.deployments[deployment].standby.take() {
            self.soon(Event::Standby(Step::Gone { standby }));
        }
    }

    /// One standby that follows, if there is one.
    fn some_standby(&mut self) -> Option<usize> {
        let following = self.standbys.iter().enumerate();
        let following = following.filter(|(_, one)| !one.over && one.follows.is_some());
        let following = following.map(|(index, _)| index).collect::<Vec<usize>>();
        let chosen = self.random.below(following.len() as u64) as usize;
        following.get(chosen).copied()
    }

    pub fn kill_standby(&mut self) {
        if let Some(standby) = self.some_standby() {
            self.standbys[standby].over = true;
            self.abandon(Owner::Standby(standby));
            self.forget_standby(standby);
        }
    }

    /// A standby stands still for a while, or hears of no checkpoint.
    pub fn stall_standby(&mut self) {
        if let Some(standby) = self.some_standby() {
            let until = self.now + self.random.between(100, 3_000);
            let one = &mut self.standbys[standby];
            match self.random.permille(500) {
                true => one.stopped_until = until,
                false => one.deaf_until = until,
            }
        }
    }

    /// A standby believes that the active is gone.
    pub fn mislead_standby(&mut self) {
        if let Some(standby) = self.some_standby() {
            self.soon(Event::Standby(Step::Gone { standby }));
        }
    }

    /// The deployment that a standby followed notices that the standby is gone.
    fn forget_standby(&mut self, standby: usize) {
        if let Some(deployment) = self.standbys[standby].follows.take()
            && self.deployments[deployment].standby == Some(standby)
        {
            self.deployments[deployment].standby = None;
            self.soon(Event::Standby(Step::Look { deployment }));
        }
    }

    /// It goes on. What its replica does is finished before.
    fn take_over(&mut self, standby: usize) {
        let one = &mut self.standbys[standby];
        one.goes = true;
        if let Some(replica) = one.replica.take() {
            one.over = true;
            self.forget_standby(standby);
            self.seen.takeovers += 1;
            self.deploy(Some(replica));
        }
    }

    /// Parts have come to be stored. Nothing is answered before they are.
    fn store_for(&mut self, standby: usize, relay: usize) {
        let (parts, store) = (self.relays[relay].parts.clone(), self.store.clone());
        if self.mutation == Some(Mutation::AnswersBeforeItIsStored) {
            let parts = Some(self.relays[relay].parts());
            self.uncertain(20, Step::Answered { relay, parts });
        }
        self.start(Owner::Standby(standby), async move {
            let mut result = Ok(());
            for (part, bytes) in parts.into_iter().rev() {
                result = store.put_part(&part, &bytes, || true).await;
                if result.is_err() {
                    break;
                }
            }
            After::Standby(Done::Stored {
                standby,
                relay,
                result,
            })
        });
    }

    pub fn standby_done(&mut self, done: Done) {
        match done {
            Done::Stored {
                standby,
                relay,
                result,
            } => {
                let one = &mut self.standbys[standby];
                let parts = self.relays[relay].parts.iter().cloned();
                let kept = parts.map(|(part, bytes)| (part.object, bytes));
                match result {
                    // It has gone on, and its connections have ended.
                    _ if one.over => {}
                    Ok(()) => {
                        one.kept.borrow_mut().extend(kept);
                        one.jobs.push_back(Job::Base(relay));
                        self.work_standby(standby);
                    }
                    Err(_) => self.uncertain(20, Step::Answered { relay, parts: None }),
                }
            }
            Done::Synced {
                standby,
                replica,
                result,
            } => {
                if let Ok(Some(manifest)) = &result {
                    self.seen.synced += 1;
                    self.check_held(manifest, &replica.sums());
                }
                self.rest(standby, replica);
            }
            Done::Based {
                standby,
                relay,
                replica,
                result,
            } => {
                let stored = self.relays[relay].parts();
                let parts = match result {
                    Ok(base) => {
                        self.seen.bases += u64::from(!base.is_empty());
                        Some([base, stored].concat())
                    }
                    Err(error) if error.kind != Kind::Fenced => Some(stored),
                    Err(_) => None,
                };
                self.uncertain(20, Step::Answered { relay, parts });
                self.rest(standby, replica);
            }
        }
    }

    fn rest(&mut self, standby: usize, replica: Box<Replica>) {
        let one = &mut self.standbys[standby];
        one.replica = Some(replica);
        match one.goes {
            true => self.take_over(standby),
            false => self.work_standby(standby),
        }
    }

    /// What concerns the replica is done one after the other.
    fn work_standby(&mut self, standby: usize) {
        let one = &mut self.standbys[standby];
        if one.over || one.replica.is_none() {
            return;
        }
        let Some(job) = one.jobs.pop_front() else {
            return;
        };
        let mut replica = one.replica.take().expect("it is there");
        let store = self.store.clone();
        match job {
            Job::Newest => self.start(Owner::Standby(standby), async move {
                let mut result = store.newest(None).await.map(|found| found.manifest);
                if let Ok(Some(manifest)) = &result
                    && let Err(error) = replica.sync(&store, manifest).await
                {
                    result = Err(error);
                }
                After::Standby(Done::Synced {
                    standby,
                    replica,
                    result,
                })
            }),
            Job::Sync(number) => self.start(Owner::Standby(standby), async move {
                let mut result = store.checkpoint(number).await.map(Some);
                if let Ok(Some(manifest)) = &result
                    && let Err(error) = replica.sync(&store, manifest).await
                {
                    result = Err(error);
                }
                After::Standby(Done::Synced {
                    standby,
                    replica,
                    result,
                })
            }),
            Job::Base(relay) => {
                let parts = self.relays[relay].parts();
                let epoch = self.runs[self.relays[relay].run].epoch;
                let confused = self.mutation == Some(Mutation::TakesAnyBase)
                    || self.chaos() && self.random.permille(5 * self.badness);
                self.start(Owner::Standby(standby), async move {
                    let result = replica.base(&store, epoch, &parts, confused).await;
                    After::Standby(Done::Based {
                        standby,
                        relay,
                        replica,
                        result,
                    })
                });
            }
        }
    }

    /// Resumes from what the run has held while it stood by, if it did. That may be behind the checkpoint:
    /// then it gets what was added since.
    pub fn adopt(&mut self, run: usize) {
        let one = &self.runs[run];
        let held = self.deployments[one.deployment].replica.take();
        let Some((mut replica, manifest)) = held.zip(one.restored.clone()) else {
            return self.restore(run);
        };
        replica.read = 0;
        let store = self.store.clone();
        let is_wrong = self.mutation == Some(Mutation::ResumesFromWhatItHolds);
        self.start(Owner::Run(run), async move {
            let result = match replica.number {
                Some(_) if is_wrong => Ok(()),
                _ => replica.sync(&store, &manifest).await,
            };
            After::Adopted {
                run,
                replica,
                result,
            }
        });
    }

    /// What the run has held is as of its checkpoint, or can't be used.
    pub fn adopted(&mut self, run: usize, replica: &Replica, result: crate::Result<()>) {
        if result.is_err() {
            return self.restore(run);
        }
        let manifest = self.runs[run].restored.clone();
        let manifest = manifest.expect("it was compared with one");
        self.check_held(&manifest, &replica.sums());
        self.seen.adopted += 1;
        self.seen.from_memory += u64::from(replica.read == 0);
        let result = Ok(replica.sums());
        self.after(After::Restored { run, result });
    }
}
