//! The processes that an agent has started.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_control::lease::Standing;
use slackwater_engine::time::now_ns;

use super::{END_PATIENCE, JoinedHost};
use crate::cluster::messages::ToAgent;
use crate::cluster::session::Beside;
use crate::hosts::{Ended, HostProcesses, ProcessCommand};

/// A host whose agent has been asked to start processes.
pub(super) struct JoinedProcesses {
    pub(super) host: Arc<JoinedHost>,
    pub(super) epoch: u64,
    pub(super) pids: Vec<u32>,
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
