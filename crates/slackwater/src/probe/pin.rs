//! Lets a worker leave its core while others use that core.
//!
//! A worker is pinned so that it stays near the memory and the workers that it was placed next to. But the
//! system's scheduler may not move it then, even if another program keeps the core for seconds and the next
//! core is idle. So a worker that waits for its core may use the other cores of its NUMA node, until the
//! waiting has stopped.

use slackwater_engine::link::{allow_cores, pinned_core};

use crate::machine;

/// A worker that waits longer than this share of the time, and longer than that, shares its core.
const QUEUED_SHARE_MAX: f64 = 0.05;
const QUEUED_NS_MAX: u64 = 5_000_000;

/// A worker that may use other cores gets its own again after this time without waiting.
const QUIET_NS: u64 = 10_000_000_000;

/// Whether a worker is kept on its core.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Pin {
    /// As it was started: on one core, if the placement says so.
    #[default]
    AsPlaced,
    /// On any core of the node.
    Released {
        /// The worker's own core.
        core: usize,
        /// For how long it has hardly waited.
        quiet_ns: u64,
    },
}

impl Pin {
    /// Takes note that a worker waited for a core for `queued_ns` of the last `interval_ns`, and moves the
    /// limits of its thread if necessary.
    pub fn look(&mut self, thread: u64, queued_ns: u64, interval_ns: u64) {
        match self {
            Pin::AsPlaced if shares_core(queued_ns, interval_ns) => {
                if let Some(core) = pinned_core(thread)
                    && allow_cores(thread, &cores_near(core)).is_ok()
                {
                    *self = Pin::Released { core, quiet_ns: 0 };
                }
            }
            Pin::AsPlaced => {}
            Pin::Released { quiet_ns, .. } if shares_core(queued_ns, interval_ns) => *quiet_ns = 0,
            Pin::Released { core, quiet_ns } => {
                *quiet_ns += interval_ns;
                // If its core was taken away meanwhile, it stays released.
                if *quiet_ns >= QUIET_NS && allow_cores(thread, &[*core]).is_ok() {
                    *self = Pin::AsPlaced;
                }
            }
        }
    }
}

fn shares_core(queued_ns: u64, interval_ns: u64) -> bool {
    let share = queued_ns as f64 / interval_ns.max(1) as f64;
    queued_ns > QUEUED_NS_MAX && share > QUEUED_SHARE_MAX
}

/// The cores of a core's NUMA node that this process may use.
fn cores_near(core: usize) -> Vec<usize> {
    let topology = machine::topology();
    let node = topology.node_of(core);
    let mut cores = topology.allowed();
    cores.retain(|&other| topology.node_of(other) == node);
    cores
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rustix::thread::gettid;
    use slackwater_engine::link::{allowed_cores, pin_to_core};

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_worker_that_waits_for_its_core_may_leave_it_until_it_no_longer_waits() {
        let near = cores_near(allowed_cores()[0]);
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let worker = std::thread::spawn(move || {
            pin_to_core(near[0]).unwrap();
            tell.send(gettid().as_raw_nonzero().get() as u64).unwrap();
            let _ = ended.recv();
        });
        let thread = told.recv().unwrap();
        let core = pinned_core(thread);
        assert!(core.is_some());
        let mut pin = Pin::default();
        pin.look(thread, 4 * MS, 50 * MS);
        pin.look(thread, 20 * MS, 500 * MS);
        assert_eq!((&pin, pinned_core(thread)), (&Pin::AsPlaced, core));
        pin.look(thread, 30 * MS, 500 * MS);
        assert!(matches!(pin, Pin::Released { .. }));
        let is_alone = cores_near(allowed_cores()[0]).len() == 1;
        assert_eq!(pinned_core(thread).is_some(), is_alone);
        pin.look(thread, 0, QUIET_NS - MS);
        pin.look(thread, 100 * MS, 500 * MS);
        pin.look(thread, 0, QUIET_NS - MS);
        assert!(matches!(pin, Pin::Released { .. }), "it waited meanwhile");
        pin.look(thread, 0, MS);
        assert_eq!((&pin, pinned_core(thread)), (&Pin::AsPlaced, core));
        drop(end);
        worker.join().unwrap();
    }

    #[test]
    fn a_worker_without_a_core_of_its_own_is_left_alone() {
        let thread = gettid().as_raw_nonzero().get() as u64;
        let before = allowed_cores();
        let mut pin = Pin::default();
        if before.len() > 1 {
            pin.look(thread, 400 * MS, 500 * MS);
            assert_eq!((pin, allowed_cores()), (Pin::AsPlaced, before));
        }
    }
}
