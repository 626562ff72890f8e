//! `--part batch`: what a replica's CPU time per write is, and how far behind it is seen to be, if it is
//! woken for each write, as its master's kernel collects writes (Nagle), and by a beat.
//!
//! ```text
//! stand-in master ── SET of 1 KB at a fixed rate, PUBLISH ──► replica ── PUBLISH ──► subscriber
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::beat::Beat;
use super::dilation::Dilation;
use super::master::{Link, Master, Stream};
use super::network::{self, Network};
use super::probe::{Listener, Probes};
use super::server::{Kind, Server, Setup};
use crate::common::Latency;
use crate::lab::{self, Table, number, rate, time};
use crate::usage::Reading;

/// How long a replica is left alone after its copy, before its idle CPU time is measured.
const SETTLE: Duration = Duration::from_millis(500);

/// How a replica learns of writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// It is woken for each.
    Default,
    /// The master's kernel collects them up to a segment (`repl-disable-tcp-nodelay yes`).
    Nagle,
    /// It is woken every so many milliseconds.
    Beat(u32),
}

impl Way {
    /// All ways; the lags that are allowed are 20 and 5 ms.
    pub const ALL: [Way; 4] = [Way::Default, Way::Nagle, Way::Beat(20), Way::Beat(5)];

    /// The name in tables.
    pub fn name(self) -> String {
        match self {
            Way::Default => "default".to_string(),
            Way::Nagle => "nagle".to_string(),
            Way::Beat(interval_ms) => format!("beat {interval_ms} ms"),
        }
    }
}

/// The network between master and replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Between {
    /// The loopback device, with segments of 64 KB.
    Loopback,
    /// A virtual cable with the MTU of Ethernet.
    Mtu1500,
}

impl Between {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Between::Loopback => "loopback",
            Between::Mtu1500 => "MTU 1500",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// The kind of server.
    pub kind: &'a Kind,
    /// The folder for logs.
    pub folder: &'a Path,
    /// The core of the replica.
    pub core: Option<usize>,
    /// What makes the replica slow, if anything.
    pub dilation: Option<&'a Dilation>,
    /// Writes per second.
    pub rates: &'a [f64],
    /// The ways that are compared.
    pub ways: &'a [Way],
    /// Seconds a point.
    pub seconds: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// A measured point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The kind of server.
    pub server: String,
    /// The network.
    pub between: Between,
    /// Writes per second that were wanted.
    pub rate_per_s: f64,
    /// The way.
    pub way: Way,
    /// How many times as much each instruction of the replica was to cost.
    pub slow: f64,
    /// Writes per second of the stand-in master.
    pub writes_per_s: f64,
    /// CPU time of the replica per write.
    pub cpu_us: f64,
    /// How often it was woken.
    pub wake_ups_per_s: f64,
    /// Visible lag.
    pub lag: Latency,
    /// Probes that were seen.
    pub probes: u64,
    /// CPU time of the beat itself, in percent of a core.
    pub beat_percent: f64,
    /// CPU time of the replica without any writes, in microseconds a second.
    pub idle_us_per_s: f64,
    /// Time in which the replica was ready to run and its core was taken, as a share.
    pub disturbed: f64,
}

impl Point {
    /// CPU time per write excluding what a silent replica uses in the same time.
    fn excluding_idle_us(&self) -> f64 {
        self.cpu_us - self.idle_us_per_s / self.writes_per_s
    }
}

/// A replica of a stand-in master.
struct Pair {
    master: Master,
    link: Link,
    replica: Server,
    idle_us_per_s: f64,
}

impl Batch<'_> {
    /// Measures all points of a round: over each network, at each rate, all ways in this order or backwards.
    ///
    /// # Errors
    ///
    /// If a server can't be started, or does not follow.
    pub fn measure(&self, round: &Round<'_>) -> Result<Vec<Point>, String> {
        let mut pair = self.pair(round.network)?;
        let between = match round.network {
            Some(_) => Between::Mtu1500,
            None => Between::Loopback,
        };
        let mut points = Vec::new();
        for &rate_per_s in self.rates {
            let mut ways = self.ways.to_vec();
            if round.is_backwards {
                ways.reverse();
            }
            for way in ways {
                let point = self.point(&mut pair, between, rate_per_s, way, round.seed)?;
                points.push(point);
            }
        }
        Ok(points)
    }

    fn pair(&self, network: Option<&Network>) -> Result<Pair, String> {
        let (near, far) = match network {
            Some(_) => (network::NEAR, network::FAR),
            None => (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
        };
        let master = Master::listen(near)?;
        let setup = Setup {
            kind: self.kind,
            folder: self.folder,
            address: far,
            namespace: network.map(|network| &network.namespace),
            master: Some(master.address),
            dilation: self.dilation,
            core: self.core,
        };
        let replica = Server::start(&setup, &[])?;
        let link = master.accept()?;
        replica.wait_for_link()?;
        std::thread::sleep(SETTLE);
        let begin = Reading::of_process(replica.pid())?;
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let idle = begin.until(&Reading::of_process(replica.pid())?);
        Ok(Pair {
            idle_us_per_s: idle.cpu_s * 1e6 / idle.wall_s,
            master,
            link,
            replica,
        })
    }

    fn point(
        &self,
        pair: &mut Pair,
        between: Between,
        rate_per_s: f64,
        way: Way,
        seed: u64,
    ) -> Result<Point, String> {
        let pid = pair.replica.pid();
        let beat = match way {
            Way::Beat(interval_ms) => {
                let interval = Duration::from_millis(u64::from(interval_ms));
                Some(Beat::start(pid, pair.master.address, interval)?)
            }
            Way::Default | Way::Nagle => None,
        };
        let stream = Stream {
            rate_per_s,
            seconds: self.seconds,
            value_bytes: self.value_bytes,
            nagle: way == Way::Nagle,
        };
        let listener = Listener::start(pair.replica.address)?;
        let begin = Reading::of_process(pid)?;
        let writes = pair.link.stream(&stream, &mut Probes::new(seed))?;
        pair.link.settle()?;
        let used = begin.until(&Reading::of_process(pid)?);
        let beat_ns = beat.map_or(0, Beat::end);
        let lags = listener.end()?;
        Ok(Point {
            server: self.kind.name.clone(),
            between,
            rate_per_s,
            way,
            slow: self.dilation.map_or(1.0, |dilation| dilation.factor),
            writes_per_s: writes as f64 / used.wall_s,
            cpu_us: used.cpu_s * 1e6 / writes as f64,
            wake_ups_per_s: used.voluntary_switches as f64 / used.wall_s,
            lag: Latency::of(&lags),
            probes: lags.len(),
            beat_percent: beat_ns as f64 / 1e9 / used.wall_s * 100.0,
            idle_us_per_s: pair.idle_us_per_s,
            disturbed: used.disturbed(),
        })
    }
}

/// How a round measures.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    /// The network; none for the loopback device.
    pub network: Option<&'a Network>,
    /// Whether the ways are measured in reverse.
    pub is_backwards: bool,
    /// The seed of the probes' times.
    pub seed: u64,
}

/// The points of all rounds of one case, medians.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The kind of server.
    pub server: String,
    /// The network.
    pub between: Between,
    /// Writes per second that were wanted.
    pub rate_per_s: f64,
    /// The way.
    pub way: Way,
    /// CPU time per write: median, lowest, highest.
    pub cpu_us: slackwater::measure::Spread,
    /// CPU time compared with the default of the same round.
    pub ratio: slackwater::measure::Spread,
    /// The same excluding what a silent replica uses.
    pub ratio_excluding_idle: f64,
    /// CPU time of a silent replica, in microseconds a second.
    pub idle_us_per_s: f64,
    /// Wake-ups per second.
    pub wake_ups_per_s: f64,
    /// Visible lag.
    pub lag: Latency,
    /// CPU time of the beat itself, in percent of a core.
    pub beat_percent: f64,
    /// The share of time in which the replica's core was taken.
    pub disturbed: f64,
    /// The share of the wanted rate that was reached.
    pub reached: f64,
}

/// Medians of each case, in the order in which the first round measured them.
pub fn summarize(points: &[Point]) -> Vec<Summary> {
    let case = |point: &Point| {
        (
            point.server.clone(),
            point.between,
            point.rate_per_s,
            point.way,
        )
    };
    let cases = lab::distinct(points.iter().map(case));
    let summaries = cases.into_iter().map(|one| {
        let own = points.iter().filter(|point| case(point) == one);
        let own = own.collect::<Vec<&Point>>();
        let plain = (one.0.clone(), one.1, one.2, Way::Default);
        let plain = points.iter().filter(|point| case(point) == plain);
        let pairs = own
            .iter()
            .copied()
            .zip(plain)
            .collect::<Vec<(&Point, &Point)>>();
        let lags = own.iter().map(|point| point.lag).collect::<Vec<Latency>>();
        let median = |pick: fn(&Point) -> f64| lab::median(&own, |point| pick(point));
        Summary {
            cpu_us: lab::spread(&own, |point| point.cpu_us),
            ratio: lab::spread(&pairs, |(own, plain)| own.cpu_us / plain.cpu_us),
            ratio_excluding_idle: lab::median(&pairs, |(own, plain)| {
                own.excluding_idle_us() / plain.excluding_idle_us()
            }),
            idle_us_per_s: median(|point| point.idle_us_per_s),
            wake_ups_per_s: median(|point| point.wake_ups_per_s),
            lag: Latency::medians(&lags),
            beat_percent: median(|point| point.beat_percent),
            disturbed: median(|point| point.disturbed),
            reached: median(|point| point.writes_per_s / point.rate_per_s),
            server: one.0,
            between: one.1,
            rate_per_s: one.2,
            way: one.3,
        }
    });
    summaries.collect()
}

/// The medians as text.
pub fn text(summaries: &[Summary], value_bytes: usize) -> String {
    let mut table = Table::new([
        "server",
        "network",
        "SET/s",
        "way",
        "us/write",
        "lowest to highest",
        "ratio",
        "- idle",
        "wake-ups/s",
        "lag p50",
        "lag p99",
        "beat %",
        "disturbed %",
    ]);
    let mut last = None;
    for one in summaries {
        let group = (one.between, one.rate_per_s);
        if last != Some(group) {
            table.gap();
        }
        last = Some(group);
        let missed = if one.reached < 0.98 { "!" } else { "" };
        table.line([
            one.server.clone(),
            one.between.name().to_string(),
            rate(one.rate_per_s) + missed,
            one.way.name(),
            number(one.cpu_us.median),
            format!("{} to {}", number(one.cpu_us.min), number(one.cpu_us.max)),
            format!("{:.2}", one.ratio.median),
            format!("{:.2}", one.ratio_excluding_idle),
            format!("{:.0}", one.wake_ups_per_s),
            time(one.lag.p50_us),
            time(one.lag.p99_us),
            format!("{:.2}", one.beat_percent),
            format!("{:.1}", one.disturbed * 100.0),
        ]);
    }
    format!(
        "Batches (measured): CPU time of a replica per SET of {value_bytes} B, one write to the socket \
         each\n\n{}\nratio: compared with the default of the same round; - idle: the same excluding what a \
         silent replica\nuses, {:.1} ms a second; beat: CPU time of the beat itself, percent of a core; \
         disturbed: the replica's\ncore was taken; !: less than 98 % of the rate was reached.\n",
        table.columns(),
        lab::median(summaries, |one| one.idle_us_per_s) / 1e3
    )
}
