//! What has to hold.

use super::{KILL_NS, TERMS, TICK_NS, World};

impl World {
    /// Processes that a later claim has replaced end a lease after their orchestrator's next look at the
    /// store, at the latest.
    pub fn check(&mut self) -> Result<(), String> {
        let lease_ns = TERMS.host_timeout_ns * 100 / 99 + KILL_NS;
        let limit_ns = TICK_NS * 100 / 99 + self.delay_max_ns + lease_ns;
        let mut living = Vec::new();
        for agent in &self.agents {
            living.extend(agent.processes.keys().copied());
        }
        living.sort_unstable();
        living.dedup();
        for epoch in &living {
            if let Some(replaced_ns) = self.claimed_ns.get(&(epoch + 1))
                && self.now_ns > replaced_ns + limit_ns
            {
                let late_ns = self.now_ns - replaced_ns;
                return Err(format!("{epoch} lives {late_ns} ns after {}", epoch + 1));
            }
        }
        self.see("two incarnations live", living.len() > 1);
        Ok(())
    }

    pub fn check_end(&self) -> Result<(), String> {
        let last = self.claimed_ns.keys().next_back().copied();
        for (by, orchestrator) in self.orchestrators.iter().enumerate() {
            let leads = self.leader == Some(by);
            let is_well = match leads {
                true => orchestrator.epoch == last && orchestrator.term == Some(self.term),
                false => orchestrator.term.is_none(),
            };
            if !is_well {
                return Err(format!(
                    "orchestrator {by} leads: {leads}, term {:?}",
                    orchestrator.term
                ));
            }
        }
        for agent in &self.agents {
            let living: Vec<u64> = agent.processes.keys().copied().collect();
            if living != Vec::from_iter(last) {
                return Err(format!("{living:?} live, and {last:?} was claimed last"));
            }
        }
        Ok(())
    }
}
