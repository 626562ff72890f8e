//! A server as a process, and its clients.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::Usage;
use crate::lab::folder::Folder;
use crate::lab::processes::with_descendants;
use crate::programs;
use crate::usage::Reading;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, which is killed when this is dropped.
pub struct Server {
    process: Child,
    /// The port of PostgreSQL's protocol.
    port: u16,
    /// The address of HTTP.
    pub http: String,
}

impl Server {
    /// Starts a server in a folder of its own.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn start(folder: &Folder, name: &str) -> Result<Server, String> {
        let program = programs::engine()?;
        let failed = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut process = Command::new(&program)
            .args([
                "serve",
                "--pg",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--dir",
            ])
            .arg(folder.file(name))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let errors = process.stderr.take().map(BufReader::new);
        let mut server = Server {
            process,
            port: 0,
            http: String::new(),
        };
        let mut log = String::new();
        let mut lines = errors.into_iter().flat_map(BufRead::lines);
        while server.port == 0 {
            let Some(Ok(line)) = lines.next() else {
                return Err(format!("{} serve ended: {log}", program.display()));
            };
            if let Some((_, url)) = line.split_once("ready for a browser at http://") {
                server.http = url.trim_end_matches('/').to_string();
            }
            if let Some((_, port)) = line.split_once("ready for psql -h 127.0.0.1 -p ") {
                server.port = port.trim().parse().unwrap_or(0);
            }
            log = log + &line + "\n";
        }
        // Its log is read, so that it can go on writing.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(server)
    }

    /// A client.
    ///
    /// # Errors
    ///
    /// If the server does not let it in.
    pub fn client(&self) -> Result<Client, String> {
        let to = format!(
            "host=127.0.0.1 port={} user=bench dbname=slackwater",
            self.port
        );
        Client::connect(&to, NoTls).map_err(|error| format!("the server: {error}"))
    }

    /// Runs statements.
    ///
    /// # Errors
    ///
    /// If the server refuses one of them; the message contains it.
    pub fn run(&self, statements: &[&str]) -> Result<(), String> {
        let mut client = self.client()?;
        for statement in statements {
            client
                .batch_execute(statement)
                .map_err(|error| refused(statement, &error))?;
        }
        Ok(())
    }

    /// Kills it. Its jobs end with it.
    pub fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.process.id() as i32) {
            // It may have ended before.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// The server's process and those of its jobs.
    pub fn processes(&self) -> Vec<u32> {
        with_descendants(self.process.id())
    }

    /// What the server and its jobs have used so far.
    ///
    /// # Errors
    ///
    /// If one of them has ended.
    pub fn used(&self) -> Result<Vec<Reading>, String> {
        self.processes()
            .into_iter()
            .map(Reading::of_process)
            .collect()
    }

    /// What the server and its jobs use in this time. Jobs may not be started meanwhile.
    ///
    /// # Errors
    ///
    /// If one of them ends.
    pub fn usage_over(&self, time: Duration) -> Result<Usage, String> {
        let begin = self.used()?;
        std::thread::sleep(time);
        let end = self.used()?;
        let mut sum = Usage::default();
        for (begin, end) in begin.iter().zip(&end) {
            let usage = begin.until(end);
            sum.cpu_s += usage.cpu_s;
            sum.waited_s += usage.waited_s;
            sum.voluntary_switches += usage.voluntary_switches;
            sum.wall_s = usage.wall_s;
        }
        Ok(sum)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let jobs = self.processes();
        self.kill();
        let _ = self.process.wait();
        let by = Instant::now() + PATIENCE;
        let runs = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}/exe")).exists();
        while jobs.iter().skip(1).any(runs) && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What the server says against a statement.
pub fn refused(statement: &str, error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{statement}: {}", said.message()),
        None => format!("{statement}: {error}"),
    }
}

/// Quantiles of times, in milliseconds.
pub fn quantile(times_ms: &mut [f64], quantile: f64) -> f64 {
    times_ms.sort_by(f64::total_cmp);
    let last = times_ms.len().saturating_sub(1);
    let at = (last as f64 * quantile).round() as usize;
    times_ms.get(at).copied().unwrap_or_default()
}
