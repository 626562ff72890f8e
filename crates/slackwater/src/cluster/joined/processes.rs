//! The processes of a host that has joined.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_control::lease::{Grantor, Standing};
use slackwater_engine::Error;
use slackwater_engine::time::now_ns;

use super::super::messages::ToAgent;
use super::super::session::Beside;
use super::{JoinedHost, Run};
use crate::hosts::{Ask, Ended, Facts, Found, Group, Hear, Host, HostProcesses, ProcessCommand};

/// How long an agent may take to start processes: a loaded host needs some 100 ms for each.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// How long an agent may take to kill processes: the kernel needs some milliseconds.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// A host whose agent has been asked to start processes.
struct JoinedProcesses {
    host: Arc<JoinedHost>,
    epoch: u64,
    pids: Vec<u32>,
}

/// A host that has joined, which can start processes.
#[derive(Debug, Clone)]
pub struct Joined(pub Arc<JoinedHost>);

impl Host for Joined {
    fn facts(&self) -> &Facts {
        &self.0.facts
    }

    fn is_there(&self) -> bool {
        self.0.is_there() && !self.0.leaves()
    }

    fn clock_error_ns(&self) -> u64 {
        self.0.clock().map_or(0, |clock| clock.error_ns)
    }

    fn look(&self, ask: &Ask) -> Result<Found, Error> {
        let host = &self.0;
        host.state().found = None;
        host.session
            .send(&ToAgent::Look(ask.clone()), Beside::Nothing);
        let mut state = host.wait_for(START_PATIENCE, |state| state.found.is_some());
        let found = state.found.take();
        found.ok_or_else(|| {
            let silent = || format!("did not answer within {} s", START_PATIENCE.as_secs());
            let reason = state.lost.clone();
            Error::new(&host.facts.name, reason.unwrap_or_else(silent))
        })
    }

    fn start(&self, group: &Group, hear: Hear) -> Result<Arc<dyn HostProcesses>, Error> {
        let host = &self.0;
        let name = &host.facts.name;
        let before = host.state().run.replace(Run {
            group: group.clone(),
            lease: Grantor::new(host.terms, group.epoch, now_ns()),
            hear,
            started: None,
            running: (group.first..group.first + group.count).collect(),
            has_ended: false,
        });
        // Without the lock: whoever hears may hold processes of this host, which are ended when dropped.
        drop(before);
        let mut processes = JoinedProcesses {
            host: Arc::clone(host),
            epoch: group.epoch,
            pids: Vec::new(),
        };
        host.session
            .send(&ToAgent::Start(group.clone()), Beside::Nothing);
        let started = {
            let mut state = host.wait(START_PATIENCE, |run| run.started.is_some());
            match &state.lost {
                Some(reason) => Err(reason.clone()),
                None => state
                    .run
                    .as_mut()
                    .and_then(|run| run.started.take())
                    .unwrap_or_else(|| {
                        let patience_s = START_PATIENCE.as_secs();
                        Err(format!("did not start its processes within {patience_s} s"))
                    }),
            }
        };
        let reason = match started {
            Ok(pids) if pids.len() == group.count => {
                processes.pids = pids;
                return Ok(Arc::new(processes));
            }
            Ok(_) => "started another number of processes".to_string(),
            Err(reason) => reason,
        };
        processes.end().wait();
        Err(Error::new(name, reason))
    }
}

impl HostProcesses for JoinedProcesses {
    fn pids(&self) -> &[u32] {
        &self.pids
    }

    fn tell(&self, process: usize, command: ProcessCommand, state: Option<OwnedFd>) {
        let command = ToAgent::Command {
            epoch: self.epoch,
            process,
            command,
        };
        let beside = state.map_or(Beside::Nothing, Beside::File);
        self.host.session.send(&command, beside);
    }

    fn kill(&self, process: usize) {
        let kill = ToAgent::Kill {
            epoch: self.epoch,
            process,
        };
        self.host.session.send(&kill, Beside::Nothing);
    }

    fn end(&self) -> Ended {
        if self.host.state().run_of(self.epoch).is_none() {
            return Ended::All;
        }
        let end = ToAgent::End { epoch: self.epoch };
        self.host.session.send(&end, Beside::Nothing);
        let run = {
            let mut state = self.host.wait(END_PATIENCE, |run| run.has_ended);
            let epoch = self.epoch;
            state.run.take_if(|run| run.group.epoch == epoch)
        };
        // Nobody hears of them any more.
        let Some(mut run) = run.filter(|run| !run.has_ended) else {
            return Ended::All;
        };
        self.host.give_up("it did not end its processes");
        run.lease.give_up();
        let now_ns = now_ns();
        match run.lease.look(now_ns) {
            Standing::Lost { over_ns } => Ended::Unknown {
                until: Instant::now() + Duration::from_nanos(over_ns.saturating_sub(now_ns)),
            },
            // Nothing to wait for: they have ended, or they do nothing; if they do anything, they end soon
            // after, and what they write is fenced.
            Standing::Over | Standing::Unknown | Standing::Held | Standing::Silent => Ended::All,
        }
    }
}

impl Drop for JoinedProcesses {
    fn drop(&mut self) {
        self.end();
    }
}
