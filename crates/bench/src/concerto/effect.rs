//! What a beat at the replica does to the master: the throughput of a saturated master with a real replica,
//! with and without it, in turns. Compared are neighboring
//! runs.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::batch::Way;
use super::beat::Beat;
use super::cost::{CONNECTIONS, RECORDS};
use super::load::{Load, Pace};
use super::pair::{Servers, Wanted};
use super::server::Kind;
use super::workload::{Mix, Workload};
use crate::lab::{self, Table, number};

/// The two that are compared.
const WAYS: [Way; 2] = [Way::Default, Way::Beat(20)];

/// How often a round goes through both, every other time backwards: throughput on a machine with fewer cores
/// than programs varies more than what is measured.
const TURNS: usize = 4;

/// A measured run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The kind of server.
    pub server: String,
    /// How the replica learns of writes.
    pub way: Way,
    /// SETs per second of the master.
    pub per_s: f64,
    /// CPU time of the master per SET,
    pub master_us: f64,
    /// and of the replica.
    pub replica_us: f64,
}

/// Measures both ways on one pair of servers.
///
/// # Errors
///
/// If a server fails.
pub fn measure(
    kind: &Kind,
    folder: &Path,
    seconds: f64,
    value_bytes: usize,
    is_backwards: bool,
) -> Result<Vec<Point>, String> {
    let servers = Servers::start(&Wanted {
        kind,
        folder,
        replicas: 1,
        slow_master: None,
        slow_replicas: None,
    })?;
    let mut workload = Workload::new(Mix::Set, RECORDS, value_bytes, 1);
    let load = Load {
        address: servers.master.address,
        connections: CONNECTIONS,
        pace: Pace::Closed,
        seconds,
        count: u64::MAX,
    };
    load.fill(&mut workload)?;
    servers.settle()?;
    let turns = (0..TURNS).flat_map(|turn| match turn.is_multiple_of(2) == is_backwards {
        true => [WAYS[1], WAYS[0]],
        false => WAYS,
    });
    let points = turns.map(|way| {
        let _beat = match way {
            Way::Beat(interval_ms) => {
                let interval = Duration::from_millis(u64::from(interval_ms));
                let pid = servers.replicas[0].pid();
                Some(Beat::start(pid, servers.master.address, interval)?)
            }
            Way::Default | Way::Nagle => None,
        };
        let used = servers.run(&load, &mut workload)?;
        Ok(Point {
            server: kind.name.clone(),
            way,
            per_s: used.done.per_s(),
            master_us: used.master_us(),
            replica_us: used.replica_us(),
        })
    });
    points.collect()
}

/// Throughput with a beat compared with the default of the same round, by server.
pub fn ratios(points: &[Point], server: &str) -> Vec<f64> {
    let of = |way: Way| {
        let own = points
            .iter()
            .filter(move |point| (point.way, point.server.as_str()) == (way, server));
        own.map(|point| point.per_s)
    };
    let pairs = of(WAYS[1]).zip(of(WAYS[0]));
    pairs.map(|(beat, plain)| beat / plain).collect()
}

/// The medians as text.
pub fn text(points: &[Point]) -> String {
    let mut table = Table::new([
        "server",
        "replica",
        "SET/s",
        "lowest to highest",
        "master us",
        "replica us",
    ]);
    for one in lab::distinct(points.iter().map(|point| (point.server.clone(), point.way))) {
        let own = points.iter();
        let own = own.filter(|point| (point.server.as_str(), point.way) == (one.0.as_str(), one.1));
        let own = own.collect::<Vec<&Point>>();
        let per_s = lab::spread(&own, |point| point.per_s);
        table.line([
            one.0.clone(),
            one.1.name(),
            format!("{:.0}", per_s.median),
            format!("{:.0} to {:.0}", per_s.min, per_s.max),
            number(lab::median(&own, |point| point.master_us)),
            number(lab::median(&own, |point| point.replica_us)),
        ]);
    }
    format!(
        "A saturated master and its replica (measured: master, replica and clients on this machine's \
         cores)\n\n{}",
        table.columns()
    )
}
