//! The highest rate of complete updates while partial updates keep a guaranteed latency.

use serde::Serialize;

use super::bench::{Asked, Bench, is_kept, least_rate};
use super::effort::Effort;
use super::order::Load;
use super::search::Search;
use super::sweep::Sweep;
use super::way::Way;

/// A way under a guaranteed latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtLatency {
    /// The way that was measured.
    pub way: Way,
    /// The guaranteed mean latency of partial updates, as a multiple of their latency over TCP with its
    /// best block and no complete updates.
    pub multiple: f64,
    /// The guaranteed latency as a time.
    pub latency_us: f64,
    /// The highest rate of complete updates that was seen to keep the guarantee; 0 if none was.
    pub complete_per_s: f64,
    /// The lowest rate that was seen not to keep it, or the highest rate without a guarantee.
    pub not_kept_per_s: f64,
    /// Bytes of a block at the rate that was kept.
    pub block_bytes: usize,
}

/// Searches the rate of all ways under all guarantees, the tightest first: a probe of each way in turn. A
/// rate that keeps a guarantee also keeps the looser ones.
pub fn measure(
    bench: &mut Bench<'_>,
    effort: &Effort,
    sweep: &Sweep,
) -> Result<Vec<AtLatency>, String> {
    let mut rows: Vec<AtLatency> = Vec::new();
    let mut guarantees = effort.guarantees.clone();
    guarantees.sort_by(f64::total_cmp);
    for multiple in guarantees {
        let latency_us = sweep.alone_us * multiple;
        let ways = bench.plan.ways.clone();
        let search = |&way: &Way| {
            let tighter = rows.iter().rev().find(|row| row.way == way);
            let kept = tighter.map_or(0.0, |row| row.complete_per_s);
            let search = Search::new(sweep.highest_per_s(way), least_rate(effort));
            (way, search.from(kept))
        };
        let mut searches = ways.iter().map(search).collect::<Vec<_>>();
        for round in 0..effort.probes {
            for (way, search) in &mut searches {
                let Some(complete_per_s) = search.next() else {
                    continue;
                };
                let asked = Asked {
                    transport: way.transport(),
                    partitions: 1,
                    block_bytes: sweep.block(bench.plan.image_bytes, *way, complete_per_s),
                    load: Load::Rates {
                        complete_per_s,
                        partial_per_s: effort.partial_per_s,
                    },
                };
                let mut kept = false;
                for _ in 0..effort.tries {
                    let point = bench.measure(effort, round, asked)?;
                    let in_time = point.seen.partial.mean_us <= latency_us;
                    kept = in_time && is_kept(&point, complete_per_s);
                    if kept {
                        break;
                    }
                }
                search.tried(complete_per_s, kept);
            }
        }
        rows.extend(searches.into_iter().map(|(way, search)| AtLatency {
            way,
            multiple,
            latency_us,
            complete_per_s: search.kept(),
            not_kept_per_s: search.not_kept(),
            block_bytes: sweep.block(bench.plan.image_bytes, way, search.kept()),
        }));
    }
    Ok(rows)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A way under a guarantee of this many times 600 us.
    pub fn at_latency(way: Way, multiple: f64, complete_per_s: f64) -> AtLatency {
        AtLatency {
            way,
            multiple,
            latency_us: multiple * 600.0,
            complete_per_s,
            not_kept_per_s: complete_per_s + 5.0,
            block_bytes: 4096,
        }
    }
}
