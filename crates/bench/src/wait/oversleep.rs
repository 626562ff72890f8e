//! How late the host's sleeps end.

use std::time::{Duration, Instant};

use serde::Serialize;
use slackwater_link::{Listen, Sources, Waiter, set_timer_slack_ns};

use super::order::{Latency, histogram};
use slackwater::measure;

/// How long sleeps of one length are measured in each round, and their largest number.
const OVERSLEEP_TIME: Duration = Duration::from_millis(700);
const OVERSLEEPS_MAX: u32 = 1_000;

/// How late sleeps end.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Oversleep {
    /// The requested length.
    pub sleep_us: f64,
    /// How much longer the sleeps lasted.
    pub late: Latency,
}

/// Measures sleeps of these lengths, in the same way as a worker sleeps.
pub fn oversleeps(core: usize, sleeps: &[Duration]) -> Result<Vec<Oversleep>, String> {
    let sleeps = sleeps.to_vec();
    let measuring = std::thread::spawn(move || -> Result<Vec<Oversleep>, String> {
        measure::pin(core)?;
        set_timer_slack_ns(1);
        let failed = |error: std::io::Error| error.to_string();
        let waiter = Waiter::new().map_err(failed)?;
        let measure = |sleep: Duration| -> Result<Oversleep, String> {
            let mut late = histogram();
            let begin = Instant::now();
            let mut count = 0;
            while count < OVERSLEEPS_MAX && begin.elapsed() < OVERSLEEP_TIME {
                let fell_asleep = Instant::now();
                waiter.announce(Listen::Urgent);
                let woken = waiter.wait(Some(sleep), Sources::Doorbell);
                woken.map_err(failed)?;
                let took = fell_asleep.elapsed();
                late.saturating_record(took.saturating_sub(sleep).as_nanos() as u64);
                count += 1;
            }
            Ok(Oversleep {
                sleep_us: sleep.as_nanos() as f64 / 1e3,
                late: Latency::of(&late),
            })
        };
        sleeps.into_iter().map(measure).collect()
    });
    measuring
        .join()
        .map_err(|_| "a measuring thread panicked")?
}
