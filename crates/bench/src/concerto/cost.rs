//! `--part cost`: CPU time per SET, of a master with no, one and two replicas, and of a replica (figure 3 of
//! the paper). Each server is alone with a stand-in for the other side, so it has a core to itself.

use std::net::Ipv4Addr;

use serde::Serialize;

use super::batch::{Batch, Round, Way};
use super::dilation::Dilation;
use super::load::{Load, Pace};
use super::replicas::Replica;
use super::server::{Server, Setup};
use super::workload::{Mix, Workload};
use crate::common::Latency;
use crate::lab::{self, Table, number, time};
use crate::usage::Reading;

/// Connections of clients: memtier's four threads with 50 each.
pub const CONNECTIONS: usize = 200;

/// Records of SETs.
pub const RECORDS: u64 = 10_000;

/// The paper's costs at full speed, and of a replica on a slow core, in microseconds.
const PAPER_MASTER_US: f64 = 77.69;
const PAPER_REPLICA_US: f64 = 10.98;
const PAPER_REPLICA_SLOW_US: f64 = 22.28;

/// A server whose cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A saturated master with so many stand-in replicas.
    Master(u32),
    /// A replica of a stand-in master.
    Replica,
}

impl Role {
    fn name(self) -> String {
        match self {
            Role::Master(0) => "master alone".to_string(),
            Role::Master(1) => "master, 1 replica".to_string(),
            Role::Master(count) => format!("master, {count} replicas"),
            Role::Replica => "replica".to_string(),
        }
    }

    fn paper_us(self, is_slow: bool) -> Option<f64> {
        match (self, is_slow) {
            (Role::Master(1), false) => Some(PAPER_MASTER_US),
            (Role::Replica, false) => Some(PAPER_REPLICA_US),
            (Role::Replica, true) => Some(PAPER_REPLICA_SLOW_US),
            (Role::Master(_), _) => None,
        }
    }
}

/// A measured cost.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The kind of server.
    pub server: String,
    /// The server.
    pub role: Role,
    /// How many times as much each instruction was to cost.
    pub slow: f64,
    /// CPU time per SET.
    pub cpu_us: f64,
    /// SETs per second.
    pub per_s: f64,
    /// Latency that clients saw; visible lag of a replica.
    pub latency: Latency,
    /// The share of time in which the server's core was taken.
    pub disturbed: f64,
}

/// Measures a master and a replica, at full speed and slow.
///
/// # Errors
///
/// If a server can't be started, or fails.
pub fn measure(
    batch: &Batch<'_>,
    slow: Option<&Dilation>,
    seed: u64,
) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for dilation in [None].into_iter().chain(slow.map(Some)) {
        for replicas in 0..=2 {
            points.push(master(batch, replicas, dilation)?);
        }
        let replica = Batch {
            dilation,
            ways: &[Way::Default],
            ..batch.clone()
        };
        let round = Round {
            network: None,
            is_backwards: false,
            seed,
        };
        let measured = replica.measure(&round)?;
        points.extend(measured.into_iter().map(|point| Point {
            server: point.server,
            role: Role::Replica,
            slow: point.slow,
            cpu_us: point.cpu_us,
            per_s: point.writes_per_s,
            latency: point.lag,
            disturbed: point.disturbed,
        }));
    }
    Ok(points)
}

fn master(batch: &Batch<'_>, replicas: u32, dilation: Option<&Dilation>) -> Result<Point, String> {
    let setup = Setup {
        kind: batch.kind,
        folder: batch.folder,
        address: Ipv4Addr::LOCALHOST,
        namespace: None,
        master: None,
        dilation,
        core: batch.core,
    };
    let server = Server::start(&setup, &[])?;
    let mut workload = Workload::new(Mix::Set, RECORDS, batch.value_bytes, 1);
    let load = Load {
        address: server.address,
        connections: CONNECTIONS,
        pace: Pace::Closed,
        seconds: batch.seconds,
        count: u64::MAX,
    };
    load.fill(&mut workload)?;
    let followers = (0..replicas).map(|_| Replica::start(server.address));
    let _followers = followers.collect::<Result<Vec<Replica>, String>>()?;
    let begin = Reading::of_process(server.pid())?;
    let done = load.run(&mut workload)?;
    let used = begin.until(&Reading::of_process(server.pid())?);
    Ok(Point {
        server: batch.kind.name.clone(),
        role: Role::Master(replicas),
        slow: dilation.map_or(1.0, |dilation| dilation.factor),
        cpu_us: used.cpu_s * 1e6 / done.operations.max(1) as f64,
        per_s: done.per_s(),
        latency: Latency::of(&done.latency),
        disturbed: used.disturbed(),
    })
}

/// The medians as text.
pub fn text(points: &[Point], rate_per_s: f64) -> String {
    let mut table = Table::new([
        "server",
        "role",
        "slow",
        "us/SET",
        "lowest to highest",
        "slow-down measured",
        "SET/s",
        "p50",
        "disturbed %",
        "paper us",
    ]);
    let case = |point: &Point| (point.server.clone(), point.role, point.slow);
    for one in lab::distinct(points.iter().map(case)) {
        let own = points.iter().filter(|point| case(point) == one);
        let own = own.collect::<Vec<&Point>>();
        let fast = points.iter().filter(|point| {
            let (server, role, slow) = case(point);
            (server, role) == (one.0.clone(), one.1) && slow == 1.0
        });
        let ratio = lab::spread(own.iter().zip(fast), |(own, fast)| own.cpu_us / fast.cpu_us);
        let cpu_us = lab::spread(&own, |point| point.cpu_us);
        let paper = one.1.paper_us(one.2 > 1.0);
        table.line([
            one.0,
            one.1.name(),
            number(one.2),
            number(cpu_us.median),
            format!("{} to {}", number(cpu_us.min), number(cpu_us.max)),
            number(ratio.median),
            format!("{:.0}", lab::median(&own, |point| point.per_s)),
            time(lab::median(&own, |point| point.latency.p50_us)),
            format!("{:.1}", lab::median(&own, |point| point.disturbed) * 100.0),
            paper.map_or_else(|| "-".to_string(), number),
        ]);
    }
    format!(
        "CPU time per SET (measured): masters saturated by {CONNECTIONS} connections, replicas at \
         {rate_per_s} SET/s, p50 is\nthe visible lag of a replica and else the clients' latency\n\n{}",
        table.columns()
    )
}
