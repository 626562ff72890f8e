//! Disturbs the query: threads that take its cores in bursts, or stops of its process.
//!
//! Bursts run with real-time priority where that is permitted: other threads of normal priority hardly
//! disturb one that sleeps most of the time, because the kernel lets it run as soon as it is woken. Without
//! the permission they run with normal priority, which the table says.
//!
//! Shutdown: dropping a [`Disturber`] ends its threads within a burst, and the process is continued.

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;

/// The shortest and the longest burst.
const BURST_MS: (f64, f64) = (1.0, 50.0);

/// How long a process is stopped, and how long it runs on average before that.
const STOP: Duration = Duration::from_millis(30);
const STOPS_APART: Duration = Duration::from_secs(1);

/// The real-time priority of bursts: above that of no other program that is likely to run.
const PRIORITY: i32 = 10;

/// The largest share of the time that bursts may take: real-time threads must leave the kernel a part.
const PERCENT_MAX: f64 = 90.0;

/// What disturbs the query.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// Nothing.
    None,
    /// Bursts of 1 to 50 ms take the query's cores for this share of the time, in percent.
    Bursts(f64),
    /// The query's process is stopped for 30 ms, about once a second.
    Stops,
}

impl fmt::Display for Disturbance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disturbance::None => formatter.write_str("none"),
            Disturbance::Bursts(percent) => write!(formatter, "{percent}%"),
            Disturbance::Stops => formatter.write_str("stop"),
        }
    }
}

impl FromStr for Disturbance {
    type Err = String;

    fn from_str(text: &str) -> Result<Disturbance, String> {
        if text == "stop" {
            return Ok(Disturbance::Stops);
        }
        let percent = text
            .strip_suffix('%')
            .and_then(|number| number.parse().ok());
        percent
            .filter(|percent| (0.1..=PERCENT_MAX).contains(percent))
            .map(Disturbance::Bursts)
            .ok_or_else(|| format!("expected a share of the time up to {PERCENT_MAX}%, or stop"))
    }
}

/// Threads that disturb until this is dropped.
pub struct Disturber {
    /// Its end tells the threads to end.
    stop: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Disturber {
    /// Disturbs a process whose threads run on these cores.
    pub fn start(disturbance: Disturbance, pid: u32, cores: &[usize]) -> Disturber {
        let (mut stops, mut threads) = (None, Vec::new());
        match disturbance {
            Disturbance::None => {}
            Disturbance::Bursts(percent) => {
                // Bursts come to all cores at once, as when a hypervisor runs another machine.
                let (stop, stopped) = channel();
                stops = Some(stop);
                let cores = cores.to_vec();
                threads.push(std::thread::spawn(move || {
                    bursts(percent / 100.0, &cores, &stopped);
                }));
            }
            Disturbance::Stops => {
                let (stop, stopped) = channel();
                stops = Some(stop);
                threads.push(std::thread::spawn(move || stop_often(pid, &stopped)));
            }
        }
        Disturber {
            stop: stops,
            threads,
        }
    }
}

impl Drop for Disturber {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Waits for a random time with this mean; returns whether to go on.
fn wait(random: &mut fastrand::Rng, mean: Duration, stopped: &Receiver<()>) -> bool {
    let time = mean.mul_f64(-(1.0 - random.f64()).ln());
    stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

/// Takes the cores for this share of the time: one thread for each core.
fn bursts(share: f64, cores: &[usize], stopped: &Receiver<()>) {
    let mean_ms = (BURST_MS.0 + BURST_MS.1) / 2.0;
    let apart = Duration::from_secs_f64(mean_ms / 1e3 * (1.0 - share) / share);
    let mut random = fastrand::Rng::with_seed(7);
    while wait(&mut random, apart, stopped) {
        let ms = BURST_MS.0 + random.f64() * (BURST_MS.1 - BURST_MS.0);
        let until = Instant::now() + Duration::from_secs_f64(ms / 1e3);
        std::thread::scope(|scope| {
            for &core in cores {
                scope.spawn(move || {
                    let mut set = CpuSet::new();
                    set.set(core);
                    // Without the core or the priority it disturbs less; the figures show how much.
                    let _ = sched_setaffinity(None, &set);
                    let _ = prefer();
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                });
            }
        });
    }
}

/// Stops the process again and again.
fn stop_often(pid: u32, stopped: &Receiver<()>) {
    let mut random = fastrand::Rng::with_seed(7);
    let Some(pid) = Pid::from_raw(pid as i32) else {
        return;
    };
    while wait(&mut random, STOPS_APART, stopped) {
        // A process that has ended is not stopped.
        let _ = kill_process(pid, Signal::STOP);
        std::thread::sleep(STOP);
        let _ = kill_process(pid, Signal::CONT);
    }
}

/// Whether bursts run with real-time priority.
pub fn is_preferred() -> bool {
    std::thread::spawn(|| prefer().is_ok())
        .join()
        .unwrap_or(false)
}

/// Gives the calling thread real-time priority.
fn prefer() -> std::io::Result<()> {
    let parameter = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: 0 is the calling thread, and the parameter lives until the call returns.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbances_are_shares_of_the_time_or_stops() {
        for text in ["1%", "5%", "20%", "0.5%", "stop"] {
            assert_eq!(text.parse::<Disturbance>().unwrap().to_string(), text);
        }
        for text in ["", "5", "0%", "95%", "often", "none"] {
            assert!(text.parse::<Disturbance>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_stopped_process_continues() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        drop(Disturber::start(Disturbance::Stops, child.id(), &[]));
        let status = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert!(!status.contains(") T "), "{status}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
