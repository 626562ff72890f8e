//! The engine on one host, and on several: an orchestrator that is one of the hosts, and agents.

use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::figures::Run;
use super::process::{PATIENCE, Process};
use super::{HOSTS, Way};
use crate::hibench::workload::Workload;
use crate::lab::write;
use crate::programs::{self, parse};

/// The name of the host of the orchestrator.
const HOME: &str = "h1";

/// Why they are set: see the module `hosts`.
const SETTINGS: [&str; 2] = ["placement=os", "wait=interrupt"];

/// The engine's program, and files for its runs.
pub struct Engine {
    program: PathBuf,
    folder: PathBuf,
}

/// An orchestrator and its agents.
pub struct Cluster {
    /// The orchestrator, which is one of the hosts.
    pub orchestrator: Process,
    /// The other hosts.
    pub agents: Vec<Process>,
}

/// The parts of the report that are read here.
#[derive(Deserialize)]
struct Report {
    rows_in: u64,
    rows_out: u64,
    rows_late: u64,
    rows_bad: u64,
    rows_per_s: f64,
    plan: PlanReport,
    #[serde(default)]
    hosts: Vec<HostReport>,
}

#[derive(Deserialize)]
struct PlanReport {
    processes: Vec<ProcessReport>,
    remote_links: Vec<LinkReport>,
}

#[derive(Deserialize)]
struct ProcessReport {
    process: usize,
    cpu_s: f64,
}

#[derive(Deserialize)]
struct LinkReport {
    send: SideReport,
}

#[derive(Deserialize)]
struct SideReport {
    rows: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct HostReport {
    name: String,
    processes: Vec<usize>,
}

impl Engine {
    /// The engine, with files in this folder.
    ///
    /// # Errors
    ///
    /// If there is none, or it makes no key.
    pub fn new(folder: &Path) -> Result<Engine, String> {
        let engine = Engine {
            program: programs::engine()?,
            folder: folder.to_path_buf(),
        };
        let mut command = Command::new(&engine.program);
        command.arg("key");
        let key = programs::finish(command, "", None)?.stdout;
        let path = engine.key();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        file.and_then(|mut file| std::io::Write::write_all(&mut file, &key))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(engine)
    }

    fn key(&self) -> PathBuf {
        self.folder.join("cluster.key")
    }

    fn report(&self) -> PathBuf {
        self.folder.join("report.json")
    }

    /// Starts a query on one host, as `run --processes`, or on several.
    ///
    /// # Errors
    ///
    /// If a program can't be started.
    pub fn start(&self, way: Way, text: &str) -> Result<Cluster, String> {
        let query = self.folder.join("query.sql");
        write(&query, text)?;
        let number = HOSTS.to_string();
        let mut command = Command::new(&self.program);
        command.arg("run").arg(query).arg("--quiet");
        command.args(["--parallelism", &number, "--workers", &number]);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.arg("--report").arg(self.report());
        if way == Way::OneHost {
            command.args(["--processes", &number, "--link", "tcp"]);
            return Ok(Cluster {
                orchestrator: Process::start(command, &self.folder, "run")?,
                agents: Vec::new(),
            });
        }
        let address = format!("127.0.0.1:{}", free_port()?);
        command.args(["--listen", &address, "--name", HOME, "--here"]);
        command.args(["--hosts", &number]);
        self.secret(way, &mut command);
        let mut cluster = Cluster {
            orchestrator: Process::start(command, &self.folder, HOME)?,
            agents: Vec::new(),
        };
        for host in 2..=HOSTS {
            let name = format!("h{host}");
            let mut command = Command::new(&self.program);
            command.args(["worker", "--join", &address, "--name", &name]);
            self.secret(way, &mut command);
            let agent = Process::start(command, &self.folder, &name)?;
            cluster.agents.push(agent);
        }
        Ok(cluster)
    }

    fn secret(&self, way: Way, command: &mut Command) {
        if way == Way::HostsTls {
            command.arg("--secret").arg(self.key());
        }
    }

    /// Runs a query to its end.
    ///
    /// # Errors
    ///
    /// If a program fails, or rows are missing.
    pub fn run(&self, workload: Workload, way: Way, text: &str, rows: u64) -> Result<Run, String> {
        // A report that is left from the run before must not be taken for this one's.
        let path = self.report();
        let _ = std::fs::remove_file(&path);
        let by = Instant::now() + PATIENCE;
        let cluster = self.start(way, text)?;
        let mut used = cluster.orchestrator.finish(by)?;
        let mut by_agents_s = 0.0;
        for agent in cluster.agents {
            let of_agent = agent.finish(by)?;
            by_agents_s += of_agent.cpu_s;
            used = used + of_agent;
        }
        let json = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let report = parse::<Report>(&json, "the report")?;
        report.check(workload.name(), way, rows)?;
        let in_workers_s = report.cpu_s(|_| true);
        let joined = report.hosts.iter().filter(|host| host.name != HOME);
        let joined = joined.flat_map(|host| &host.processes).collect::<Vec<_>>();
        let in_joined_s = report.cpu_s(|process| joined.contains(&&process));
        let sides = || report.plan.remote_links.iter().map(|link| &link.send);
        Ok(Run {
            workload: workload.name(),
            way,
            rows,
            cpu_s: used.cpu_s,
            wake_ups: used.wake_ups,
            beside_workers_s: Some((used.cpu_s - in_workers_s).max(0.0)),
            agents_s: (way != Way::OneHost).then(|| (by_agents_s - in_joined_s).max(0.0)),
            rows_per_s: Some(report.rows_per_s),
            rows_out: Some(report.rows_out),
            wire_rows: Some(sides().map(|side| side.rows).sum()),
            wire_bytes: Some(sides().map(|side| side.bytes).sum()),
        })
    }
}

impl Report {
    /// CPU time of some of the worker processes, by their own count.
    fn cpu_s(&self, is_meant: impl Fn(usize) -> bool) -> f64 {
        let processes = self.plan.processes.iter();
        let meant = processes.filter(|report| is_meant(report.process));
        meant.map(|report| report.cpu_s).sum()
    }

    fn check(&self, workload: &str, way: Way, rows: u64) -> Result<(), String> {
        let place = format!("{workload}, {}", way.name());
        if (self.rows_in, self.rows_bad, self.rows_late) != (rows, 0, 0) {
            return Err(format!(
                "{place}: {} of {rows} rows read, {} rejected, {} late",
                self.rows_in, self.rows_bad, self.rows_late
            ));
        }
        let hosts = self.hosts.iter();
        let hosts = hosts.filter(|host| !host.processes.is_empty()).count();
        if way != Way::OneHost && hosts != HOSTS {
            return Err(format!("{place}: it ran on {hosts} of {HOSTS} hosts"));
        }
        Ok(())
    }
}

/// A port of the loopback address at which nobody listens.
///
/// # Errors
///
/// If there is none.
pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|error| format!("127.0.0.1: {error}"))
}

/// Waits until something is so.
///
/// # Errors
///
/// If it is not in time.
pub fn wait_until(
    what: &str,
    patience: Duration,
    mut is_so: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let by = Instant::now() + patience;
    while !is_so()? {
        if Instant::now() > by {
            return Err(format!("{what}: not within {} s", patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
