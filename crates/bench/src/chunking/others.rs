//! What other processes use of the host meanwhile: the disturbance of a measurement.

use std::time::Instant;

use crate::lab::processes::{busy_s, cpu_s};

/// A reading of the host's clocks, to be compared with a later one.
pub struct Others {
    begin: Instant,
    busy_s: f64,
    own_s: f64,
}

impl Others {
    /// From now on.
    pub fn start() -> Others {
        Others {
            begin: Instant::now(),
            busy_s: busy_s(),
            own_s: own_s(),
        }
    }

    /// What others used since, in cores: all that was used, less what this process and its children
    /// have used. The kernel counts in hundredths of a second.
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
    fn what_this_process_uses_is_not_of_others() {
        let others = Others::start();
        crate::chunking::work::burn(1_000_000);
        assert!(others.cores() >= 0.0);
    }
}
