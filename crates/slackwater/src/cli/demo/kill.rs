//! `slackwater demo --kill`: the query is killed twice and started again, and has the same answer.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::{Arguments, FILE, KILL_DURATION, program};
use crate::report::count;
use crate::run::open_browser;
use crate::terminal::say;

/// How often the query is killed.
const KILLS: u32 = 2;

/// How often to look whether a process has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Why the demo ended early.
enum Ended {
    /// By a signal.
    Stopped,
    Failed(String),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Ended {
        Ended::Failed(error.to_string())
    }
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match in_folder(arguments) {
        Ok(()) | Err(Ended::Stopped) => ExitCode::SUCCESS,
        Err(Ended::Failed(reason)) => super::super::complain(&reason, crate::terminal::FAILED),
    }
}

fn in_folder(arguments: &Arguments) -> Result<(), Ended> {
    let path = std::env::temp_dir().join(format!("slackwater-demo-{}", std::process::id()));
    std::fs::create_dir(&path)
        .map_err(|error| Ended::Failed(format!("{}: {error}", path.display())))?;
    let folder = Folder(path);
    let (sender, signals) = mpsc::sync_channel(1);
    let _watching = crate::signals::watch(move || {
        // One is enough.
        let _ = sender.try_send(());
    })?;
    let demo = Demo {
        folder: &folder.0,
        arguments,
        signals,
    };
    demo.undisturbed()?;
    demo.killed()?;
    demo.compare()
}

struct Demo<'a> {
    folder: &'a Path,
    arguments: &'a Arguments,
    signals: Receiver<()>,
}

impl Demo<'_> {
    /// A run as fast as possible: the rate does not change the answer.
    fn undisturbed(&self) -> Result<(), Ended> {
        self.write("undisturbed", "")?;
        let mut child = Running(self.command("undisturbed", &[]).spawn()?);
        match self.wait(&mut child, None)? {
            true => Ok(()),
            false => Err(Ended::Failed("the undisturbed run failed".to_string())),
        }
    }

    fn killed(&self) -> Result<(), Ended> {
        let rate = self.arguments.rate;
        self.write("killed", &format!(", 'rate' = '{rate}/s'"))?;
        let address = match self.arguments.page.strip_suffix(":0") {
            // One port for all starts, so that the page finds the query again.
            Some(host) => TcpListener::bind((host, 0))?.local_addr()?.to_string(),
            None => self.arguments.page.clone(),
        };
        if !self.arguments.no_browser {
            open_browser(&format!("http://{address}/"));
        }
        let part = self.duration() / (KILLS + 1);
        let page = format!("--page={address}");
        for kill in 1..=KILLS {
            let mut child = Running(
                self.command("killed", &["--state", "state", &page])
                    .spawn()?,
            );
            if self.wait(&mut child, Some(Instant::now() + part))? {
                let reason = "the query ended before it was killed\n  = use a longer --duration";
                return Err(Ended::Failed(reason.to_string()));
            }
            let process = child.0.id();
            drop(child);
            say(&format!(
                "kill -9 {process}, after {:.0} s. The same command again ({kill} of {KILLS}):\n",
                part.as_secs_f64()
            ));
        }
        let mut child = Running(
            self.command("killed", &["--state", "state", &page])
                .spawn()?,
        );
        match self.wait(&mut child, None)? {
            true => Ok(()),
            false => Err(Ended::Failed("the restarted query failed".to_string())),
        }
    }

    fn compare(&self) -> Result<(), Ended> {
        let rows = |name: &str| {
            let text = std::fs::read_to_string(self.folder.join(format!("{name}.csv")))?;
            let mut rows = text.lines().map(str::to_string).collect::<Vec<_>>();
            rows.sort_unstable();
            Ok::<Vec<String>, std::io::Error>(rows)
        };
        let (expected, found) = (rows("undisturbed")?, rows("killed")?);
        if expected != found || expected.is_empty() {
            let (expected, found) = (count(expected.len() as u64), count(found.len() as u64));
            return Err(Ended::Failed(format!(
                "the answers differ: {expected} rows undisturbed, {found} rows killed"
            )));
        }
        say(&format!(
            "The same answer as undisturbed: {} rows, none missing, none twice.\n",
            count(expected.len() as u64)
        ));
        Ok(())
    }

    fn duration(&self) -> Duration {
        self.arguments.duration.unwrap_or(KILL_DURATION)
    }

    /// Writes the program of a run into the run's folder.
    fn write(&self, name: &str, paced: &str) -> Result<(), Ended> {
        let rate = self.arguments.rate;
        let rows = (rate * self.duration().as_secs_f64()).ceil();
        let events = format!(", 'rows' = '{rows}'{paced}");
        let answer = format!("'connector' = 'file', 'path' = '../{name}.csv'");
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join(FILE), program(rate, &events, &answer))?;
        Ok(())
    }

    fn command(&self, name: &str, options: &[&str]) -> Command {
        // The program that runs, also if its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["run", FILE, "--quiet"])
            .args(options)
            .current_dir(self.folder.join(name))
            .stdin(Stdio::null());
        command
    }

    /// Waits until the process has ended, and returns whether it succeeded; `Ok(false)` also if it still runs
    /// at `until`.
    fn wait(&self, child: &mut Running, until: Option<Instant>) -> Result<bool, Ended> {
        loop {
            if let Some(status) = child.0.try_wait()? {
                return match (status.success(), until) {
                    (true, _) => Ok(true),
                    (false, None) => Ok(false),
                    (false, Some(_)) => Err(Ended::Failed("the query failed".to_string())),
                };
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            match self.signals.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Err(Ended::Stopped),
            }
        }
    }
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
