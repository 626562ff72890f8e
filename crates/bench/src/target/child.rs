//! The process that runs the query: the engine with its settings, or the hand-written program.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;

use super::order::{Own, Spec};
use super::query::Addresses;
use super::setting::Setting;
use crate::programs;

/// How long the query may take to end after its last row.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The paths of the programs, and the core that the hand-written one is pinned to: the core of the
/// engine's first worker.
pub struct Programs {
    engine: PathBuf,
    hand: PathBuf,
    hand_core: usize,
}

impl Programs {
    /// The engine, and the hand-written program if it is needed.
    pub fn find(needs_hand: bool) -> Result<Programs, String> {
        let hand = needs_hand.then(programs::by_hand).transpose();
        Ok(Programs {
            engine: programs::engine()?,
            hand: hand
                .map_err(|error| format!("{error}; select other --settings to run without it"))?
                .unwrap_or_default(),
            hand_core: slackwater_link::allowed_cores()[0],
        })
    }

    /// Starts the query of a point.
    pub fn start(&self, spec: &Spec, addresses: &Addresses) -> Result<Running, String> {
        let mut command = match spec.setting {
            Setting::Hand => {
                let mut command = Command::new(&self.hand);
                command.args([
                    spec.query.name(),
                    "--connect",
                    &addresses.records.to_string(),
                ]);
                command.args(["--to", &addresses.rows.to_string()]);
                command.args(["--core", &self.hand_core.to_string()]);
                command
            }
            setting => {
                let mut command = Command::new(&self.engine);
                // A report that goes to a pipe needs no folder.
                command.args(["run", "-", "--quiet", "--report", "/dev/stdout"]);
                for setting in setting.settings() {
                    command.args(["--set", &setting]);
                }
                command
            }
        };
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let name = pipes.get_program().display().to_string();
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let child = pipes.spawn().map_err(failed)?;
        let mut running = Running {
            child,
            is_engine: spec.setting != Setting::Hand,
        };
        if let Some(mut text) = running.child.stdin.take()
            && running.is_engine
        {
            // A process that has ended before reading it reports the reason on its standard error.
            let _ = text.write_all(spec.query.sql(addresses).as_bytes());
        }
        Ok(running)
    }
}

/// A running query, which is killed when this is dropped.
pub struct Running {
    child: Child,
    is_engine: bool,
}

/// The fields of the report that are read here. A missing field is not an error: the figures that count
/// are measured outside the engine.
#[derive(Deserialize)]
struct Report {
    latency_ms: OwnLatency,
    target_met: Option<bool>,
    #[serde(default)]
    plan: serde_json::Value,
}

#[derive(Deserialize)]
struct OwnLatency {
    p50: Option<f64>,
    p99: Option<f64>,
}

impl Running {
    /// The query's process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Waits until the query ends, which must be without an error; returns the engine's own measurements.
    pub fn finish(mut self) -> Result<Option<Own>, String> {
        let (status, out, said) = self.end(END_TIMEOUT)?;
        if !status.success() {
            return Err(format!("the query failed: {status}\n{said}"));
        }
        if !self.is_engine {
            return Ok(None);
        }
        let report = serde_json::from_slice::<Report>(&out)
            .map_err(|error| format!("the engine's report: {error}\n{said}"))?;
        let us = |ms: Option<f64>| ms.map(|ms| ms * 1e3);
        Ok(Some(Own {
            p99_us: us(report.latency_ms.p99),
            p50_us: us(report.latency_ms.p50),
            target_met: report.target_met,
            plan: report.plan,
            said,
        }))
    }

    /// For a query that failed, or whose generator did: how it ended, and its standard error.
    pub fn failure(mut self) -> String {
        match self.end(Duration::from_secs(1)) {
            Ok((status, _, said)) => format!("the query ended: {status}\n{said}"),
            Err(error) => error,
        }
    }

    fn end(&mut self, patience: Duration) -> Result<(ExitStatus, Vec<u8>, String), String> {
        let failed = |error: std::io::Error| format!("the process of the query: {error}");
        let pid = rustix::process::Pid::from_child(&self.child);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let process = process.map_err(|error| failed(error.into()))?;
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: 0,
        };
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience));
        let ended = ended.map_err(|error| failed(error.into()))?;
        if ended == 0 {
            let _ = self.child.kill();
        }
        // The process has ended, so both pipes have an end.
        let (mut out, mut said) = (Vec::new(), Vec::new());
        if let Some(pipe) = &mut self.child.stdout {
            pipe.read_to_end(&mut out).map_err(failed)?;
        }
        if let Some(pipe) = &mut self.child.stderr {
            pipe.read_to_end(&mut said).map_err(failed)?;
        }
        let status = self.child.wait().map_err(failed)?;
        let said = String::from_utf8_lossy(&said).trim_end().to_string();
        if ended == 0 {
            let seconds = patience.tv_sec;
            return Err(format!(
                "the query did not end within {seconds} s and was killed\n{said}"
            ));
        }
        Ok((status, out, said))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has ended, or it or its generator has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
