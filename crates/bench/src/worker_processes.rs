//! Queries in several worker processes, as users run them: what each process uses, and what the report says.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::lab::processes::children;
use crate::programs;
use crate::usage::Reading;

/// How long the worker processes may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after the interval for which sources still produce rows, so that none of it is the query's end.
const TAIL: Duration = Duration::from_millis(400);

/// A query and how it is run.
pub struct Query {
    /// The SQL.
    pub sql: String,
    /// The number of worker processes, each with one worker.
    pub processes: usize,
    /// Settings of the command line: `name=value`.
    pub settings: Vec<String>,
}

/// The parts of the report that are read here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Records read.
    pub rows_in: u64,
    /// Records read per second.
    pub rows_per_s: f64,
    /// CPU time of all processes, their start included.
    pub cpu_s: f64,
    /// How it ran.
    pub plan: PlanReport,
    /// The sinks.
    pub sinks: Vec<SinkReport>,
}

/// How a query ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanReport {
    /// Links between processes.
    pub remote_links: Vec<LinkReport>,
}

/// A link between processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// The largest message.
    pub message_bytes: Option<usize>,
    /// The counts of the sending side.
    pub send: SideReport,
    /// The counts of the receiving side.
    pub receive: SideReport,
}

/// A side of a link.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SideReport {
    /// Number of messages.
    pub messages: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Seconds spent on the link.
    pub busy_s: f64,
}

/// A sink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SinkReport {
    /// The table.
    pub table: Option<String>,
    /// Rows written.
    pub rows_out: u64,
    /// Latency from the row's arrival.
    pub latency_ms: SinkLatency,
}

/// The latency of a sink's rows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SinkLatency {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// What a run used and measured.
#[derive(Clone, Debug, Serialize)]
pub struct Ran {
    /// CPU time of each worker process within the interval, in percent of a core.
    pub cpu_percent: Vec<f64>,
    /// How often threads went to sleep, per second, in all worker processes.
    pub sleeps_per_s: f64,
    /// The time in which threads of the worker processes were ready to run and waited for a core, as a
    /// share of the interval.
    pub waited: f64,
    /// The report, over the whole run.
    pub report: Report,
}

impl Ran {
    /// CPU time of all worker processes, in percent of a core.
    pub fn cpu(&self) -> f64 {
        self.cpu_percent.iter().sum()
    }

    /// The sink of a table.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn sink(&self, table: &str) -> Result<&SinkReport, String> {
        let mut sinks = self.report.sinks.iter();
        sinks
            .find(|sink| sink.table.as_deref() == Some(table))
            .ok_or_else(|| format!("the report has no sink '{table}'"))
    }
}

/// A running query, which is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or the experiment has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Query {
    fn start(&self, duration: Option<Duration>) -> Result<Running, String> {
        let program = programs::engine()?;
        let processes = self.processes.to_string();
        let mut command = Command::new(&program);
        command.args(["run", "-", "--quiet", "--report", "/dev/stdout"]);
        command.args(["--processes", &processes, "--workers", &processes]);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        if let Some(duration) = duration {
            command.args(["--duration", &format!("{}ms", duration.as_millis())]);
        }
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = pipes.stderr(Stdio::piped()).spawn();
        let mut running =
            Running(child.map_err(|error| format!("{}: {error}", program.display()))?);
        if let Some(mut text) = running.0.stdin.take() {
            // A process that has ended before reading it reports the reason on its standard error.
            let _ = text.write_all(self.sql.as_bytes());
        }
        Ok(running)
    }

    /// Runs the query to the end of its input.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub fn to_end(&self) -> Result<Report, String> {
        self.finish(self.start(None)?)
    }

    /// Runs the query for a time, and measures its processes after the warm-up.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub fn over(&self, warm_up: Duration, time: Duration) -> Result<Ran, String> {
        let begin = Instant::now();
        let running = self.start(Some(warm_up + time + TAIL))?;
        let workers = loop {
            let workers = workers(running.0.id());
            if workers.len() == self.processes {
                break workers;
            }
            if begin.elapsed() > START_TIMEOUT {
                let said = self.finish(running).err().unwrap_or_default();
                return Err(format!("the worker processes did not start\n{said}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        std::thread::sleep(warm_up.saturating_sub(begin.elapsed()));
        let look = || {
            let readings = workers.iter().map(|&pid| Reading::of_process(pid));
            readings.collect::<Result<Vec<Reading>, String>>()
        };
        let first = look()?;
        std::thread::sleep(time);
        let last = look()?;
        let usages = first.iter().zip(&last).map(|(begin, end)| begin.until(end));
        let usages = usages.collect::<Vec<_>>();
        let sleeps = usages.iter().map(|usage| usage.voluntary_switches);
        let sleeps = sleeps.sum::<u64>() as f64;
        Ok(Ran {
            cpu_percent: usages.iter().map(|usage| usage.percent()).collect(),
            sleeps_per_s: sleeps / time.as_secs_f64(),
            waited: usages.iter().map(|usage| usage.disturbed()).sum(),
            report: self.finish(running)?,
        })
    }

    fn finish(&self, mut running: Running) -> Result<Report, String> {
        let (mut out, mut said) = (Vec::new(), String::new());
        let failed = |error: std::io::Error| format!("the process of the query: {error}");
        if let Some(mut pipe) = running.0.stdout.take() {
            pipe.read_to_end(&mut out).map_err(failed)?;
        }
        if let Some(mut pipe) = running.0.stderr.take() {
            pipe.read_to_string(&mut said).map_err(failed)?;
        }
        let status = running.0.wait().map_err(failed)?;
        if !status.success() {
            return Err(format!(
                "{status}\n{}\nthe query was:\n{}",
                said.trim(),
                self.sql
            ));
        }
        programs::parse(&out, "the report")
    }
}

/// The worker processes of a query, by their numbers.
fn workers(pid: u32) -> Vec<u32> {
    let workers = children(pid).into_iter().filter_map(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = line.split('\0').skip_while(|word| *word != "--process");
        let number = words.nth(1)?.parse::<usize>().ok()?;
        Some((number, pid))
    });
    let mut workers = workers.collect::<Vec<_>>();
    workers.sort_unstable();
    workers.into_iter().map(|(_, pid)| pid).collect()
}
