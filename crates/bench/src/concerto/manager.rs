//! `--manager PROGRAM`: the power manager beside a real master and a real replica at a fixed rate, compared
//! with the default and with the experiment's own beat.
//!
//! The manager is given the master's address and the lag that is allowed, as users give them. Lag is seen
//! as in the other parts: by probes, published at the master.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use slackwater_engine::time::now_ns;

use super::beat::Beat;
use super::client::Client;
use super::cost::RECORDS;
use super::load::{Load, Pace};
use super::pair::{Servers, Wanted};
use super::probe::{self, Listener, Probes};
use super::server::Kind;
use super::workload::{Mix, Workload};
use crate::common::{Latency, Usage, sleep_until};
use crate::lab::processes::{cpu_s, with_descendants};
use crate::lab::{self, Table, number, rate, time};

/// The lag that is allowed, in milliseconds.
const LAG_MS: u64 = 20;

/// For how long there is load before the measurement: the manager makes no replica slow before its role has
/// been the same for ten seconds, and a beat becomes longer in steps.
const SETTLE_S: f64 = 25.0;

/// Connections of clients.
const CONNECTIONS: usize = 50;

/// How often it is looked whether a probe is due.
const TICK_NS: u64 = 2_000_000;

/// By what a replica is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// By each write.
    Default,
    /// By the experiment's own beat.
    Beat,
    /// By the manager.
    Manager,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Default => "default",
            Way::Beat => "own beat of 20 ms",
            Way::Manager => "manager, lag 20 ms",
        }
    }
}

/// A measured run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The kind of server.
    pub server: String,
    /// SETs per second.
    pub rate_per_s: f64,
    /// By what the replica is woken.
    pub way: Way,
    /// CPU time of the replica per SET,
    pub replica_us: f64,
    /// and of the master.
    pub master_us: f64,
    /// How often the replica was woken.
    pub wake_ups_per_s: f64,
    /// Visible lag.
    pub lag: Latency,
    /// CPU time of all processes of the manager, in percent of a core.
    pub manager_percent: f64,
}

/// A running manager, which is asked to end when this is dropped, so that it restores what it found.
struct Manager(Child);

impl Manager {
    fn start(program: &Path, folder: &Path, servers: &Servers) -> Result<Manager, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", program.display());
        let log = File::create(folder.join("manager.log")).map_err(failed)?;
        let child = Command::new(program)
            .arg(format!("redis://{}", servers.master.address))
            .args(["--lag", &format!("{LAG_MS}ms"), "--journal"])
            .arg(folder.join("manager.journal"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn();
        child.map(Manager).map_err(failed)
    }

    fn cpu_s(&self) -> f64 {
        let all = with_descendants(self.0.id());
        // `cpu_s` of the first counts those that it has started.
        all.first().and_then(|pid| cpu_s(*pid).ok()).unwrap_or(0.0)
    }

    /// An error with what it said if it has ended.
    fn check(&mut self, folder: &Path) -> Result<(), String> {
        match self.0.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => {
                let said = std::fs::read_to_string(folder.join("manager.log")).unwrap_or_default();
                Err(format!("the manager has ended: {}", said.trim()))
            }
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.0.try_wait(), pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Probes that are published at the master until this is dropped.
struct Publisher {
    is_over: Arc<Mutex<bool>>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    fn start(servers: &Servers, seed: u64) -> Result<Publisher, String> {
        let mut client = servers.master.client()?;
        let is_over = Arc::new(Mutex::new(false));
        let told = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut probes = Probes::new(seed);
            while !*told.lock().unwrap_or_else(PoisonError::into_inner) {
                let now_ns = sleep_until(now_ns() + TICK_NS);
                if probes.is_due(now_ns) && publish(&mut client).is_err() {
                    break;
                }
            }
        });
        Ok(Publisher {
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn publish(client: &mut Client) -> Result<(), String> {
    let mut bytes = Vec::new();
    probe::command(&mut bytes, now_ns());
    client.send(&bytes)?;
    client.receive().map(drop)
}

/// Measures all ways at each rate.
///
/// # Errors
///
/// If a server fails, or the manager ends.
pub fn measure(
    program: &Path,
    kind: &Kind,
    folder: &Path,
    rates: &[f64],
    seconds: f64,
    seed: u64,
) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for &rate_per_s in rates {
        for way in [Way::Default, Way::Beat, Way::Manager] {
            let servers = Servers::start(&Wanted {
                kind,
                folder,
                replicas: 1,
                slow_master: None,
                slow_replicas: None,
            })?;
            let mut workload = Workload::new(Mix::Set, RECORDS, 1_024, 1);
            let load = |seconds: f64| Load {
                address: servers.master.address,
                connections: CONNECTIONS,
                pace: Pace::Open(rate_per_s),
                seconds,
                count: u64::MAX,
            };
            load(seconds).fill(&mut workload)?;
            servers.settle()?;
            let (master, replica) = (servers.master.address, &servers.replicas[0]);
            let beat = || Beat::start(replica.pid(), master, Duration::from_millis(LAG_MS));
            let _beat = (way == Way::Beat).then(beat).transpose()?;
            let manager = || Manager::start(program, folder, &servers);
            let mut manager = (way == Way::Manager).then(manager).transpose()?;
            if let Some(manager) = &mut manager {
                load(SETTLE_S).run(&mut workload)?;
                manager.check(folder)?;
            }
            let listener = Listener::start(replica.address)?;
            let publisher = Publisher::start(&servers, seed)?;
            let begin_s = manager.as_ref().map_or(0.0, Manager::cpu_s);
            let used = servers.run(&load(seconds), &mut workload)?;
            let manager_s = manager.as_ref().map_or(0.0, Manager::cpu_s) - begin_s;
            drop(publisher);
            let replica: &Usage = &used.replicas[0];
            points.push(Point {
                server: kind.name.clone(),
                rate_per_s,
                way,
                replica_us: used.replica_us(),
                master_us: used.master_us(),
                wake_ups_per_s: replica.voluntary_switches as f64 / replica.wall_s,
                lag: Latency::of(&listener.end()?),
                manager_percent: manager_s / replica.wall_s * 100.0,
            });
        }
    }
    Ok(points)
}

/// The medians as text.
pub fn text(points: &[Point]) -> String {
    let mut table = Table::new([
        "server",
        "SET/s",
        "replica is woken by",
        "replica us",
        "master us",
        "wake-ups/s",
        "lag p50",
        "lag p99",
        "manager %",
    ]);
    let case = |point: &Point| (point.server.clone(), point.rate_per_s, point.way);
    for one in lab::distinct(points.iter().map(case)) {
        let own = points.iter().filter(|point| case(point) == one);
        let own = own.collect::<Vec<&Point>>();
        let median = |pick: fn(&Point) -> f64| lab::median(&own, |point| pick(point));
        table.line([
            one.0.clone(),
            rate(one.1),
            one.2.name().to_string(),
            number(median(|point| point.replica_us)),
            number(median(|point| point.master_us)),
            format!("{:.0}", median(|point| point.wake_ups_per_s)),
            time(median(|point| point.lag.p50_us)),
            time(median(|point| point.lag.p99_us)),
            format!("{:.2}", median(|point| point.manager_percent)),
        ]);
    }
    format!(
        "The power manager (measured): a real master and replica, SETs of 1 KB by {CONNECTIONS} \
         connections\n\n{}",
        table.columns()
    )
}
