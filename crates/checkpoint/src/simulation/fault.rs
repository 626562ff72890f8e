//! What goes wrong, and what users do.

use super::supervisor::Deployment;
use super::world::{Event, World};
use crate::coordinator;

impl World {
    pub fn fault(&mut self) {
        if !self.chaos() {
            return;
        }
        let next = self.random.between(20, 3_000 / self.badness);
        self.at(next, Event::Fault);
        let jump = self.random.between(1, 5_000);
        match self.random.below(20) {
            0 => self.clock_offset += jump,
            1 => self.clock_offset -= jump,
            2 => self.clock_offset += jump << 30,
            // The machine with the supervisor is lost, or cut off and believed lost; the query is started
            // elsewhere.
            3 | 4 => {
                let alive = |deployment: &&Deployment| !deployment.over;
                let Some(deployment) = self.deployments.iter().find(alive) else {
                    return;
                };
                let deployment = deployment.index;
                let dies = match self.random.permille(500) {
                    true => 0,
                    false => self.random.between(100, 3_000),
                };
                self.at(dies, Event::Die { deployment });
                let delay = self.random.between(1, 300);
                self.at(delay, Event::Deploy);
            }
            // The user stops the query.
            5..=7 => {
                if let Some(run) = self.runs.iter().rposition(|run| !run.over) {
                    let input = coordinator::Input::Stop;
                    self.soon(Event::ToCoordinator { run, input });
                }
            }
            8 | 9 => self.add_standby(0),
            10 => self.kill_standby(),
            11 | 14 => self.stall_standby(),
            12 | 13 => self.mislead_standby(),
            _ => {
                if let Some(run) = self.runs.iter().rposition(|run| !run.over) {
                    let process = self.random.below(4) as usize;
                    self.lose_process(run, process);
                }
            }
        }
    }
}
