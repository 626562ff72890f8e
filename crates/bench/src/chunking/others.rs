//! CPU time of other processes on the host during a measurement: the disturbance.

use std::time::Instant;

use crate::lab::processes::{busy_s, cpu_s};

/// A reading of the host's clocks, to be compared with a later one.
pub struct Others {
    begin: Instant,
    busy_s: f64,
    own_s: f64,
}

impl Others {
    /// Starts now.
    pub fn start() -> Others {
        Others {
            begin: Instant::now(),
            busy_s: busy_s(),
            own_s: own_s(),
        }
    }

    /// CPU time of other processes since the start, in cores: all CPU time less that of this process and
    /// its children. The kernel counts in hundredths of a second.
    pub fn cores(&self) -> f64 {
        let wall_s = self.begin.elapsed().as_secs_f64().max(1e-3);
        let busy_s = busy_s() - self.busy_s;
        let own_s = own_s() - self.own_s;
        ((busy_s - own_s) / wall_s).max(0.0)
    }
}

/// CPU time of this process and its children.
fn own_s() -> f64 {
    cpu_s(std::process::id()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_counted_as_others() {
        let others = Others::start();
        crate::chunking::work::burn(1_000_000);
        assert!(others.cores() >= 0.0);
    }
}
