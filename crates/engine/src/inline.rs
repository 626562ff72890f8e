//! A deployment on the thread of whoever takes its rows: no worker, no queue between, no wake-up.
//!
//! For a bounded amount of rows that somebody waits for, as in a read of a view. Its sources have all rows at
//! hand or block until they have them, and its sinks are full until their rows are taken.
//!
//! Shutdown: dropping it closes what has not ended; sinks discard what they have.

use slackwater_link::Waiter;

use crate::deploy::{Catalog, Deployment, RemoteEnds, build};
use crate::error::{Error, Result};
use crate::instance::{Instance, Notice, Stepped};
use crate::time::Laps;
use crate::worker::guard;

/// A deployment that runs as far as it is stepped.
pub struct Inline {
    instances: Vec<Instance>,
    laps: Laps,
    /// What instances are opened with; nobody waits for it.
    _waiter: Waiter,
}

/// What [`Inline::step`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// Something was done, and there may be more to do.
    On,
    /// Nothing can be done before rows are taken from a sink.
    Full,
    /// All instances have ended.
    Ended,
}

impl Inline {
    /// A deployment that has done nothing yet. It has one process.
    ///
    /// # Errors
    ///
    /// If a source, operator or sink can't be made or opened.
    pub fn new(deployment: &Deployment, catalog: &dyn Catalog) -> Result<Inline> {
        let failed = |error: std::io::Error| Error::new("read", error.to_string());
        let waiter = Waiter::new().map_err(failed)?;
        let waker = waiter.waker();
        let built = build(
            deployment,
            0,
            catalog,
            &|_| waker.clone(),
            RemoteEnds::default(),
        )?;
        let mut inline = Inline {
            instances: Vec::new(),
            laps: Laps::now(),
            _waiter: waiter,
        };
        for (_, mut instance) in built.instances {
            let opened = guard(&mut instance, |instance| instance.open(&mut inline._waiter));
            // Also one that is only half open is closed.
            inline.instances.push(instance);
            opened?;
        }
        Ok(inline)
    }

    /// Steps each instance once: a bounded amount of work, except that an operator may sort all of its rows.
    ///
    /// # Errors
    ///
    /// If an instance fails, or the operators together hold more than their budget
    /// ([`Catalog::budget`]).
    pub fn step(&mut self) -> Result<Went> {
        let mut went = Went::Full;
        let mut index = 0;
        while index < self.instances.len() {
            let laps = &mut self.laps;
            let instance = &mut self.instances[index];
            let stepped = guard(instance, |instance| instance.step(laps))?;
            for notice in instance.take_notices() {
                if let Notice::OverBudget { limit, .. } = notice {
                    let reason = format!("operators hold more than {limit} bytes");
                    return Err(Error::new(OVER_BUDGET, reason).final_one());
                }
            }
            match stepped {
                Stepped::Worked | Stepped::Copied => went = Went::On,
                Stepped::Waits { .. } => {}
                Stepped::Ended => {
                    let mut ended = self.instances.remove(index);
                    guard(&mut ended, |instance| Ok(instance.close()))?;
                    went = Went::On;
                    continue;
                }
            }
            index += 1;
        }
        Ok(match self.instances.is_empty() {
            true => Went::Ended,
            false => went,
        })
    }
}

/// The place of the error of operators that hold too much.
pub const OVER_BUDGET: &str = "'memory_limit'";

impl Drop for Inline {
    fn drop(&mut self) {
        for instance in &mut self.instances {
            // A panic while closing is the same bug as before, or leaves nothing that others use.
            let _ = guard(instance, |instance| Ok(instance.close()));
        }
    }
}
