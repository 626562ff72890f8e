//! `--part reads`: GETs at a replica on a slow core, with the read path split as the paper splits it (section
//! 4.3, figure 9), and without.
//!
//! ```text
//! query ─► active ─ checkpoints ─► standby: main thread ─► ReadHandler ─► clients
//! clients ─► Redis ─► replica ─► clients
//! ```
//!
//! The replica is a standby of a query, which answers with what it holds while it follows. What is slow are
//! its threads: the main thread alone (*split*), or both (*whole*, as if there were no fast core to split
//! to). Redis beside it has one thread, so there is nothing to split.
//!
//! Measured are throughput of a closed loop, with all programs on this machine's cores, and CPU time per GET
//! of each thread. Computed is the throughput with a core for each thread, or one for both.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::Client;
use super::dilation::Dilation;
use super::load::{Load, Pace};
use super::resp::Reply;
use super::server::{Kind, Server, Setup, free_port};
use super::workload::{Mix, VIEW, Workload};
use crate::common::Latency;
use crate::lab::{self, Table, number, time};
use crate::programs;
use crate::usage::Reading;

/// Connections of clients.
const CONNECTIONS: usize = 50;

/// Records, and rows per second that change them.
const RECORDS: u64 = 10_000;
const RATE_PER_S: u64 = 5_000;

/// The lag that the standby may have.
const LAG: &str = "200 ms";

/// The threads of the read path.
const MAIN: &str = "redis-main";
const HANDLER: &str = "redis-handler";

/// How long the standby may take until it has all records.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// What is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Nothing.
    Fast,
    /// The main thread.
    Split,
    /// The whole read path.
    Whole,
}

impl Way {
    const ALL: [Way; 3] = [Way::Fast, Way::Split, Way::Whole];

    /// What is slow, in words.
    pub fn name(self) -> &'static str {
        match self {
            Way::Fast => "nothing is slow",
            Way::Split => "main thread slow",
            Way::Whole => "all of it slow",
        }
    }
}

/// A measured point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// `slackwater`, or the kind of server.
    pub server: String,
    /// What is slow.
    pub way: Way,
    /// GETs per second of a closed loop.
    pub per_s: f64,
    /// CPU time per GET of the main thread, in microseconds; of all of a server with one thread.
    pub main_us: f64,
    /// And of the ReadHandler.
    pub handler_us: f64,
    /// Latency that clients saw.
    pub latency: Latency,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Point {
    /// CPU time per GET.
    pub fn cpu_us(&self) -> f64 {
        self.main_us + self.handler_us
    }

    /// GETs per second if the read path had one core, or one for each of its threads; computed.
    pub fn capacity_per_s(&self) -> f64 {
        1e6 / match self.way {
            Way::Fast | Way::Whole => self.cpu_us(),
            Way::Split => self.main_us.max(self.handler_us),
        }
    }
}

/// What is measured.
pub struct Reads<'a> {
    /// The kind of server beside it.
    pub kind: &'a Kind,
    /// A folder for files.
    pub folder: &'a Path,
    /// What makes threads slow.
    pub slow: Option<&'a Dilation>,
    /// Seconds a point.
    pub seconds: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Reads<'_> {
    /// Measures all ways, or backwards.
    ///
    /// # Errors
    ///
    /// If a program fails.
    pub fn measure(&self, is_backwards: bool) -> Result<Vec<Point>, String> {
        let ways = Way::ALL.into_iter();
        let mut ways = ways
            .filter(|way| *way == Way::Fast || self.slow.is_some())
            .collect::<Vec<Way>>();
        if is_backwards {
            ways.reverse();
        }
        let mut points = Vec::new();
        for way in ways {
            points.push(self.of_standby(way)?);
            if way != Way::Split {
                points.push(self.of_server(way)?);
            }
        }
        Ok(points)
    }

    /// GETs at a replica of an unmodified server.
    fn of_server(&self, way: Way) -> Result<Point, String> {
        let setup = |master, dilation| Setup {
            kind: self.kind,
            folder: self.folder,
            address: Ipv4Addr::LOCALHOST,
            namespace: None,
            master,
            dilation,
            core: None,
        };
        let master = Server::start(&setup(None, None), &[])?;
        let mut workload = Workload::new(Mix::Get, RECORDS, self.value_bytes, 1);
        self.load(master.address).fill(&mut workload)?;
        let slow = self.slow.filter(|_| way != Way::Fast);
        let replica = Server::start(&setup(Some(master.address), slow), &[])?;
        replica.wait_for_link()?;
        let begin = Reading::of_process(replica.pid())?;
        let done = self.load(replica.address).run(&mut workload)?;
        let used = begin.until(&Reading::of_process(replica.pid())?);
        Ok(Point {
            server: self.kind.name.clone(),
            way,
            per_s: done.per_s(),
            main_us: used.cpu_s * 1e6 / done.operations.max(1) as f64,
            handler_us: 0.0,
            latency: Latency::of(&done.latency),
            value_bytes: self.value_bytes,
        })
    }

    /// GETs at a standby.
    fn of_standby(&self, way: Way) -> Result<Point, String> {
        let folder = self.folder.join("reads");
        let (query, state) = (folder.join("query.sql"), folder.join("state"));
        let prepared = match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => std::fs::create_dir(&folder),
        };
        prepared
            .and_then(|()| std::fs::write(&query, query_of(self.value_bytes)))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let port = free_port().map_err(|error| error.to_string())?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let start = |more: &[&str], threads: Option<&str>| -> Result<Running, String> {
            let program = programs::engine()?;
            let mut command = Command::new(&program);
            command.arg("run").arg(&query).arg("--state");
            command.arg(&state).args(["--quiet"]);
            command.args(more).stdin(Stdio::null());
            if let (Some(slow), Some(threads)) = (self.slow, threads) {
                slow.apply_to(&mut command, threads);
                if let Some((slow, fast)) = slow.slow_and_fast_core() {
                    let handler = if threads == MAIN { fast } else { slow };
                    command.arg(format!("--set=serve_cores={slow},{handler}"));
                }
            }
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let child = child.map_err(|error| format!("{}: {error}", program.display()))?;
            Ok(Running(child))
        };
        // A limit, in case this process can't end them.
        let duration = format!("{:.0}s", self.seconds + 2.0 * PATIENCE.as_secs_f64());
        let common = ["--duration", &duration, &format!("--set=standby_lag={LAG}")];
        let active = start(&common, None)?;
        let both = format!("{MAIN},{HANDLER}");
        let threads = match way {
            Way::Fast => None,
            Way::Split => Some(MAIN),
            Way::Whole => Some(both.as_str()),
        };
        let serve = format!("--set=serve=redis://{address}");
        let beside = ["--standby", "--duration", &duration, common[2], &serve];
        let standby = start(&beside, threads)?;
        wait_for_rows(address)?;
        let tasks = [MAIN, HANDLER].map(|name| Reading::of_thread(standby.0.id(), name));
        let mut workload = Workload::new(Mix::GetView, RECORDS, self.value_bytes, 1);
        let done = self.load(address).run(&mut workload)?;
        let used = |number: usize, name: &str| -> Result<f64, String> {
            let end = Reading::of_thread(standby.0.id(), name)?;
            let cpu_s = tasks[number].clone()?.until(&end).cpu_s;
            Ok(cpu_s * 1e6 / done.operations.max(1) as f64)
        };
        let point = Point {
            server: "slackwater".to_string(),
            way,
            per_s: done.per_s(),
            main_us: used(0, MAIN)?,
            handler_us: used(1, HANDLER)?,
            latency: Latency::of(&done.latency),
            value_bytes: self.value_bytes,
        };
        drop((standby, active));
        Ok(point)
    }

    fn load(&self, address: SocketAddr) -> Load {
        Load {
            address,
            connections: CONNECTIONS,
            pace: Pace::Closed,
            seconds: self.seconds,
            count: u64::MAX,
        }
    }
}

/// Rows of a key, a count, and so many bytes in all.
fn query_of(value_bytes: usize) -> String {
    let padding = "x".repeat(value_bytes.saturating_sub(r#"{"k":"1234","n":1234,"pad":""}"#.len()));
    format!(
        "CREATE TABLE visits (ts_ms BIGINT, k AS CAST(ts_ms % {RECORDS} AS STRING))
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'start' = '1000000000000',
           'events_per_second' = '1000', 'rate' = '{RATE_PER_S}/s');
         CREATE MATERIALIZED VIEW {VIEW} AS
         SELECT k, COUNT(*) AS n, '{padding}' AS pad FROM visits GROUP BY k;"
    )
}

/// Waits until the standby has all records.
fn wait_for_rows(address: SocketAddr) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let size = Client::connect(address).and_then(|mut client| client.call(&["DBSIZE"]));
        match size {
            Ok(Reply::Number(rows)) if rows == RECORDS as i64 => return Ok(()),
            size if Instant::now() > until => {
                return Err(format!(
                    "the standby at {address} has not all of {RECORDS} rows: {size:?}"
                ));
            }
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// A process, which is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or it has to be.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The share of the throughput at full speed that is lost, with one core for each thread; computed from
/// medians. Below zero, it is higher.
pub fn lost(points: &[Point], server: &str, way: Way) -> Option<f64> {
    let capacity = |way: Way| {
        let of = |point: &&Point| (point.server.as_str(), point.way) == (server, way);
        let own = points.iter().filter(of).collect::<Vec<&Point>>();
        (!own.is_empty()).then(|| lab::median(&own, |point| point.capacity_per_s()))
    };
    Some(1.0 - capacity(way)? / capacity(Way::Fast)?)
}

/// The medians as text.
pub fn text(points: &[Point]) -> String {
    let mut table = Table::new([
        "server",
        "replica",
        "GET/s",
        "lowest to highest",
        "p99",
        "main us",
        "handler us",
        "us/GET",
        "GET/s with a core each",
        "lost %",
    ]);
    let case = |point: &Point| (point.server.clone(), point.way);
    for one in lab::distinct(points.iter().map(case)) {
        let own = points.iter().filter(|point| case(point) == one);
        let own = own.collect::<Vec<&Point>>();
        let per_s = lab::spread(&own, |point| point.per_s);
        let lost = lost(points, &one.0, one.1).unwrap_or_default();
        table.line([
            one.0,
            one.1.name().to_string(),
            format!("{:.0}", per_s.median),
            format!("{:.0} to {:.0}", per_s.min, per_s.max),
            time(lab::median(&own, |point| point.latency.p99_us)),
            number(lab::median(&own, |point| point.main_us)),
            number(lab::median(&own, |point| point.handler_us)),
            number(lab::median(&own, |point| point.cpu_us())),
            format!("{:.0}", lab::median(&own, |point| point.capacity_per_s())),
            format!("{:.0}", lost * 100.0),
        ]);
    }
    let bytes = points.first().map_or(0, |point| point.value_bytes);
    format!(
        "GET of {bytes} B at a replica (measured: {CONNECTIONS} connections, {RECORDS} records; the standby \
         of a query of\n{RATE_PER_S} rows/s beside a replica of an unmodified server). With a core each \
         (computed from CPU time): the threads\nof a split read path have a core each, all others have \
         one\n\n{}",
        table.columns()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(way: Way, main_us: f64, handler_us: f64) -> Point {
        Point {
            server: "slackwater".to_string(),
            way,
            per_s: 1.0,
            main_us,
            handler_us,
            latency: Latency::of(&crate::common::histogram()),
            value_bytes: 1,
        }
    }

    #[test]
    fn what_is_lost_is_computed_from_the_busiest_core() {
        let points = [
            point(Way::Fast, 4.0, 6.0),
            point(Way::Split, 8.0, 6.0),
            point(Way::Whole, 8.0, 12.0),
        ];
        let lost = |way| lost(&points, "slackwater", way).unwrap();
        assert!((lost(Way::Whole) - 0.5).abs() < 1e-9);
        assert!((lost(Way::Split) + 0.25).abs() < 1e-9);
        assert_eq!(super::lost(&points, "redis", Way::Fast), None);
    }
}
