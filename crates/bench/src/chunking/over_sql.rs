//! `slackwater bench chunking --query`: the three experiments as a query in two processes.
//!
//! ```text
//! tiles of 2 KiB, at a rate ══ link ══► numbered by key ─┬─► complete updates
//!                                                        └─► partial updates: some of the tiles
//! ```
//!
//! What the figures contain:
//! - **A fixed block** is what users set without a latency target: as many rows per chunk as the block
//!   holds, collected for at most the default linger of 10 ms. The best one is the smallest that comes
//!   within 5 % of TCP's highest throughput.
//! - **Planned** is the same query with a latency target for the sink of partial updates, and nothing else:
//!   how long rows are collected, the rows of a chunk and the bytes of a message follow from it.
//! - **Latency** is the engine's own, from the time at which a tile was due to its sink, over the whole run;
//!   **CPU time** is the kernel's count of both worker processes after a warm-up.
//! - A tile is numbered once the next one has come, whose time moves the watermark: a chunk's last tile
//!   waits for the next chunk, in all ways.
//! - A rate is *kept* if 95 % of the rows that were due were read.
//! - **Rounds are interleaved**, every other one goes backwards; figures are medians.

mod table;
mod verdict;

use std::time::Duration;

use serde::Serialize;

use super::plan::Arguments;
use crate::common::DISTURBED_MAX;
use crate::lab::{self, Experiment, Verdict, bytes};
use crate::worker_processes::{Query, Ran};

/// Bytes of a tile, as in P4's smallest block.
const TILE_BYTES: usize = 2 << 10;

/// Tiles of a complete update of 16 MiB.
const COMPLETE_TILES: f64 = 8192.0;

/// The latency target of the planned way.
const TARGET: &str = "1 ms";

/// One in this many tiles is a partial update.
const PARTIAL_ONE_IN: u32 = 64;

/// Tiles of an update among mixed queries that is complete.
const MIXED_TILES: f64 = 64.0;

/// Blocks that are tried.
const BLOCKS: [usize; 4] = [32 << 10, 128 << 10, 512 << 10, 2 << 20];

/// Guaranteed rates, as shares of TCP's highest; TCP is measured up to 1.
const SHARES: [f64; 6] = [0.1, 0.25, 0.5, 0.75, 1.5, 2.0];

/// Shares of complete updates among mixed queries.
const MIXED: [f64; 4] = [0.0, 0.3, 0.6, 0.9];

/// The load of mixed queries: at 0.6 complete updates, this share of TCP's highest rate.
const MIXED_LOAD: f64 = 0.5;

/// The share of the rows due that must be read for a rate to be kept.
const KEPT_MIN: f64 = 0.95;

/// A block within this share of the highest throughput is as good.
const NEARLY_BEST: f64 = 0.95;

const WARM_UP: Duration = Duration::from_millis(1_000);
const SECONDS: f64 = 3.0;
const SECONDS_QUICK: f64 = 1.0;
const ROUNDS: u32 = 2;
const ROWS: u64 = 200_000;
const ROWS_QUICK: u64 = 20_000;

/// A way to run the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryWay {
    /// TCP, with its best fixed block.
    Tcp,
    /// Shared memory, with the same block.
    SameBlock,
    /// Shared memory, planned.
    Planned,
}

impl QueryWay {
    const ALL: [QueryWay; 3] = [QueryWay::Tcp, QueryWay::SameBlock, QueryWay::Planned];

    fn settings(self, block_bytes: usize) -> Vec<String> {
        let fixed = |link: &str| fixed(link, block_bytes);
        match self {
            QueryWay::Tcp => fixed("tcp"),
            QueryWay::SameBlock => fixed("shm"),
            QueryWay::Planned => {
                vec![
                    "link=shm".to_string(),
                    format!("latency_target.partial={TARGET}"),
                ]
            }
        }
    }
}

/// The settings of a fixed block.
fn fixed(link: &str, block_bytes: usize) -> Vec<String> {
    let rows = (block_bytes / TILE_BYTES).max(1);
    vec![
        format!("link={link}"),
        format!("chunk_rows={rows}"),
        "message_bytes=none".to_string(),
    ]
}

/// The load of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Tiles per second.
    pub tiles_per_s: f64,
    /// Partial updates of a million tiles.
    pub partial_per_million: u32,
    /// For mixed queries, the share of complete updates.
    pub mixed: Option<f64>,
}

/// A point, as one round measured it.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub way: QueryWay,
    pub load: Load,
    pub round: u32,
    /// Medians and p99 of the latency of partial and of complete updates, in milliseconds.
    pub partial_ms: (f64, f64),
    pub complete_ms: (f64, f64),
    /// Whether the rate was kept.
    pub is_kept: bool,
    /// CPU time of both processes, in percent of a core.
    pub cpu_percent: f64,
    /// The largest message at the end of the run.
    pub message_bytes: Option<usize>,
    /// Bytes of a message on average.
    pub message_bytes_mean: f64,
    /// The time for which workers waited for a core, as a share.
    pub waited: f64,
}

/// The throughput with a block.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sweep {
    pub block_bytes: usize,
    pub tcp_tiles_per_s: f64,
    pub shm_tiles_per_s: f64,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub rounds: u32,
    pub seconds: f64,
    pub sweep: Vec<Sweep>,
    /// TCP's best block, and its tiles per second.
    pub block_bytes: usize,
    pub tiles_per_s: f64,
    pub points: Vec<Point>,
    pub disturbed: usize,
}

/// The plan of the experiment.
pub struct Plan {
    rounds: u32,
    seconds: f64,
    rows: u64,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let quick = arguments.quick;
    let plan = Plan {
        rounds: arguments.rounds.unwrap_or(if quick { 1 } else { ROUNDS }),
        seconds: arguments
            .seconds
            .unwrap_or(if quick { SECONDS_QUICK } else { SECONDS }),
        rows: if quick { ROWS_QUICK } else { ROWS },
    };
    lab::conduct(&plan, &arguments.files, None)
}

/// The query; `pace` is the rate or the number of tiles.
fn sql(pace: &str, partial_per_million: u32) -> String {
    let filler = TILE_BYTES - 24;
    // Tiles have times a millisecond apart: the product scatters the partial ones among the others.
    let number = "ts_ms * 7919 % 1000000";
    format!(
        "CREATE TABLE tiles (ts_ms BIGINT, ip STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),\n\
         WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)\n\
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', {pace}, 'events_per_second' = '1000');\n\
         CREATE TABLE complete (ts_ms BIGINT, tile STRING, n BIGINT) WITH ('connector' = 'blackhole');\n\
         CREATE TABLE partial (ts_ms BIGINT, tile STRING, n BIGINT) WITH ('connector' = 'blackhole');\n\
         CREATE VIEW sent AS SELECT ts_ms, ip, ts, RPAD(ip, {filler}, 'x') AS tile FROM tiles;\n\
         CREATE VIEW numbered AS SELECT ts_ms, tile,\n\
         COUNT(*) OVER (PARTITION BY ip ORDER BY ts) AS n FROM sent;\n\
         INSERT INTO complete SELECT * FROM numbered WHERE {number} >= {partial_per_million};\n\
         INSERT INTO partial SELECT * FROM numbered WHERE {number} < {partial_per_million};\n"
    )
}

impl Plan {
    fn query(&self, pace: &str, partial_per_million: u32, settings: Vec<String>) -> Query {
        Query {
            sql: sql(pace, partial_per_million),
            processes: 2,
            settings,
        }
    }

    /// The throughput by block, over both links.
    fn sweep(&self) -> Result<Vec<Sweep>, String> {
        let rows = format!("'rows' = '{}'", self.rows);
        let partial = 1_000_000 / PARTIAL_ONE_IN;
        let most = |link: &str, block_bytes: usize| {
            let query = self.query(&rows, partial, fixed(link, block_bytes));
            let runs = (0..self.rounds).map(|_| Ok(query.to_end()?.rows_per_s));
            let runs = runs.collect::<Result<Vec<f64>, String>>()?;
            Ok::<f64, String>(lab::median(runs, |rows_per_s| rows_per_s))
        };
        let sweep = BLOCKS.into_iter().map(|block_bytes| {
            eprintln!("blocks of {}", bytes(block_bytes));
            Ok(Sweep {
                block_bytes,
                tcp_tiles_per_s: most("tcp", block_bytes)?,
                shm_tiles_per_s: most("shm", block_bytes)?,
            })
        });
        sweep.collect()
    }

    fn point(
        &self,
        way: QueryWay,
        load: Load,
        round: u32,
        block_bytes: usize,
    ) -> Result<Point, String> {
        let pace = format!("'rate' = '{:.0}'", load.tiles_per_s);
        let query = self.query(&pace, load.partial_per_million, way.settings(block_bytes));
        let ran = query.over(WARM_UP, Duration::from_secs_f64(self.seconds))?;
        let latency = |table: &str| {
            let ms = ran.sink(table)?.latency_ms;
            Ok::<(f64, f64), String>((ms.p50.unwrap_or(0.0), ms.p99.unwrap_or(0.0)))
        };
        let links = &ran.report.plan.remote_links;
        let link = links.iter().max_by_key(|link| link.send.bytes);
        let mean = link.map(|link| link.send.bytes as f64 / link.send.messages.max(1) as f64);
        Ok(Point {
            way,
            load,
            round,
            partial_ms: latency("partial")?,
            complete_ms: latency("complete")?,
            is_kept: ran.report.rows_per_s >= load.tiles_per_s * KEPT_MIN,
            cpu_percent: Ran::cpu(&ran),
            message_bytes: link.and_then(|link| link.message_bytes),
            message_bytes_mean: mean.unwrap_or(0.0),
            waited: ran.waited,
        })
    }
}

/// TCP's best block: the smallest one that is nearly as fast as the fastest.
fn best(sweep: &[Sweep]) -> Option<(usize, f64)> {
    let most = sweep.iter().map(|one| one.tcp_tiles_per_s);
    let most = most.fold(0.0, f64::max);
    let good = sweep.iter();
    let mut good = good.filter(|one| one.tcp_tiles_per_s >= most * NEARLY_BEST);
    good.next()
        .map(|one| (one.block_bytes, one.tcp_tiles_per_s))
}

/// The loads: guaranteed rates, then mixed queries.
fn loads(tiles_per_s: f64) -> Vec<Load> {
    let rates = SHARES.into_iter().map(|share| Load {
        tiles_per_s: share * tiles_per_s,
        partial_per_million: 1_000_000 / PARTIAL_ONE_IN,
        mixed: None,
    });
    let tiles = |share: f64| share * MIXED_TILES + (1.0 - share);
    let updates_per_s = MIXED_LOAD * tiles_per_s / tiles(0.6);
    let mixed = MIXED.into_iter().map(|share| Load {
        tiles_per_s: (updates_per_s * tiles(share)).max(100.0),
        partial_per_million: ((1.0 - share) / tiles(share) * 1e6).round() as u32,
        mixed: Some(share),
    });
    rates.chain(mixed).collect()
}

impl Experiment for Plan {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let points = (SHARES.len() + MIXED.len()) * QueryWay::ALL.len() * self.rounds as usize;
        let seconds = points as f64 * (self.seconds + WARM_UP.as_secs_f64() + 0.5);
        format!("{points} points, about {}", lab::minutes(seconds))
    }

    fn measure(&self) -> Result<Figures, String> {
        let sweep = self.sweep()?;
        let (block_bytes, tiles_per_s) = best(&sweep).ok_or("no block was measured")?;
        let cases = loads(tiles_per_s).into_iter();
        let cases = cases.flat_map(|load| QueryWay::ALL.map(|way| (load, way)));
        // TCP can't carry more than its highest rate.
        let cases =
            cases.filter(|(load, way)| load.tiles_per_s < tiles_per_s || *way != QueryWay::Tcp);
        let cases = cases.collect::<Vec<(Load, QueryWay)>>();
        let mut points = Vec::new();
        for round in lab::rounds(self.rounds) {
            for &(load, way) in round.order(&cases) {
                points.push(self.point(way, load, round.number, block_bytes)?);
            }
        }
        let disturbed = points.iter();
        let disturbed = disturbed.filter(|point: &&Point| point.waited > DISTURBED_MAX);
        Ok(Figures {
            rounds: self.rounds,
            seconds: self.seconds,
            sweep,
            block_bytes,
            tiles_per_s,
            disturbed: disturbed.count(),
            points,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        verdict::verdicts(figures)
    }

    fn text(&self, figures: &Figures) -> String {
        table::text(figures)
    }
}

/// The medians of a way under a load, over the rounds.
#[derive(Clone, Copy, Debug)]
struct Summary {
    partial_ms: (f64, f64),
    complete_ms: (f64, f64),
    is_kept: bool,
    cpu_percent: f64,
    message_bytes_mean: f64,
}

impl Figures {
    fn summary(&self, way: QueryWay, load: Load) -> Option<Summary> {
        let points = self.points.iter();
        let points = points.filter(|point| (point.way, point.load) == (way, load));
        let points = points.collect::<Vec<_>>();
        let median = |figure: fn(&Point) -> f64| lab::median(&points, |point| figure(point));
        (!points.is_empty()).then(|| Summary {
            partial_ms: (
                median(|point| point.partial_ms.0),
                median(|point| point.partial_ms.1),
            ),
            complete_ms: (
                median(|point| point.complete_ms.0),
                median(|point| point.complete_ms.1),
            ),
            is_kept: points.iter().all(|point| point.is_kept),
            cpu_percent: median(|point| point.cpu_percent),
            message_bytes_mean: median(|point| point.message_bytes_mean),
        })
    }

    /// The loads in ascending order, of mixed queries or of the others.
    fn loads(&self, mixed: bool) -> Vec<Load> {
        let loads = self.points.iter().map(|point| point.load);
        let mut loads = lab::distinct(loads.filter(|load| load.mixed.is_some() == mixed));
        loads.sort_by(|one, other| one.tiles_per_s.total_cmp(&other.tiles_per_s));
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_compiles_with_the_settings_of_all_ways() {
        for way in QueryWay::ALL {
            let settings = way.settings(64 << 10);
            let settings = settings.iter().filter_map(|one| one.split_once('='));
            let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
            let settings = settings.collect::<Vec<_>>();
            let text = sql("'rate' = '1000'", 10);
            let compiled =
                slackwater_sql::program::compile(&text, &settings, &slackwater::catalog::BuiltIn);
            let compiled = compiled.map_err(|error| error.render("query", &text));
            compiled.unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn the_best_block_is_the_smallest_that_is_nearly_as_fast() {
        let sweep = |block_bytes, tcp_tiles_per_s| Sweep {
            block_bytes,
            tcp_tiles_per_s,
            shm_tiles_per_s: 0.0,
        };
        let all = [sweep(1, 50.0), sweep(2, 96.0), sweep(3, 100.0)];
        assert_eq!(best(&all), Some((2, 96.0)));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn mixed_queries_have_as_many_updates_at_each_share() {
        let loads = loads(64_000.0);
        let mixed = loads.iter().filter_map(|load| Some((load.mixed?, *load)));
        for (share, load) in mixed {
            let partial = load.tiles_per_s * f64::from(load.partial_per_million) / 1e6;
            let complete = (load.tiles_per_s - partial) / MIXED_TILES;
            let found = complete / (complete + partial);
            assert!((found - share).abs() < 0.01, "{share} {found}");
        }
    }
}
