//! Latency of partial updates under a guaranteed rate of complete ones, and the highest rate of complete ones
//! under a guaranteed latency of partial ones.

use std::time::Duration;

use serde_json::{Value, json};
use slackwater_control::latency::chunk::{Demand, LinkPoint, latency_floor, plan_chunk};

use super::drive::Drive;
use super::{Lab, PICTURE_BYTES, SIDES, Way, mean_and_p95};

/// The mean time between partial updates, in milliseconds.
const PARTIAL_MS: f64 = 20.0;

/// The rates of complete updates, as shares of TCP's best.
const SHARES: [f64; 8] = [0.0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.3, 1.6];

/// The guaranteed latencies, as multiples of what a partial update takes over TCP alone.
const LATENCIES: [f64; 3] = [1.5, 3.0, 6.0];

/// The share of the bandwidth that the plan leaves free, as in `bench chunking`.
const RESERVE: f64 = 0.1;

/// A block over a link.
struct Point {
    way: Way,
    rate: f64,
    alone_ms: f64,
    full_ms: f64,
}

/// Measures, and returns the three ways that are compared.
pub fn run(lab: &mut Lab) -> Result<[Way; 3], String> {
    let time = Duration::from_secs_f64(lab.seconds);
    lab.say("\nComplete updates per second, as many as possible; mean of partial ones meanwhile, alone\n");
    lab.say("| block | TCP | shared memory |\n|---|---|---|");
    let mut points = Vec::new();
    for side in SIDES {
        let mut cells = Vec::new();
        for link in ["tcp", "shm"] {
            let way = Way { link, side };
            let mut drive = Drive::start(lab, way, "", "")?;
            let alone_ms = mean_and_p95(&mut drive.alone_ms(time / 2)?).0;
            let mut loaded = drive.load(None, PARTIAL_MS, time)?;
            let full_ms = mean_and_p95(&mut loaded.partial_ms).0;
            cells.push(format!(
                "{:.2}/s; {full_ms:.1} ms; {alone_ms:.1} ms",
                loaded.rate
            ));
            points.push(Point {
                way,
                rate: loaded.rate,
                alone_ms,
                full_ms,
            });
        }
        let bytes = side * side * 3 / 1024;
        lab.say(&format!("| {bytes} KiB | {} | {} |", cells[0], cells[1]));
    }
    let of_link = |link: &str| {
        points
            .iter()
            .filter(|point| point.way.link == link)
            .collect::<Vec<&Point>>()
    };
    let tcp = of_link("tcp");
    let most = tcp.iter().map(|point| point.rate).fold(0.0, f64::max);
    // The smallest block within 5 % of the highest rate.
    let best = tcp
        .iter()
        .find(|point| point.rate >= most * 0.95)
        .ok_or("no rate was measured")?;
    let (best_side, best_rate, alone_ms) = (best.way.side, best.rate, best.alone_ms);
    let planned = planned(&of_link("shm"), best_rate * 0.75);
    let ways = [
        Way {
            link: "tcp",
            side: best_side,
        },
        Way {
            link: "shm",
            side: best_side,
        },
        Way {
            link: "shm",
            side: planned,
        },
    ];
    let rows = points.iter().map(|point| {
        json!({"link": point.way.link, "block_bytes": point.way.block_bytes(), "rate": point.rate,
            "partial_alone_ms": point.alone_ms, "partial_full_ms": point.full_ms})
    });
    lab.json
        .insert("blocks".to_string(), rows.collect::<Vec<Value>>().into());
    lab.say(&format!(
        "\nTCP's best block: {} KiB, {best_rate:.2}/s; a partial update alone takes {alone_ms:.2} ms. \
         Planned: {} KiB",
        ways[0].block_bytes() / 1024, ways[2].block_bytes() / 1024
    ));
    guarantees(lab, ways, best_rate, alone_ms)?;
    Ok(ways)
}

/// The side of the block that the engine's planner chooses among those that there are, for complete updates
/// at this rate.
fn planned(points: &[&Point], rate: f64) -> usize {
    let points = points.iter().map(|point| LinkPoint {
        size_bytes: point.way.block_bytes(),
        latency_ns: point.full_ms * 1e6,
        bytes_per_s: point.rate * PICTURE_BYTES as f64,
    });
    let points = points.collect::<Vec<LinkPoint>>();
    let demand = Demand {
        bytes_per_s: rate * PICTURE_BYTES as f64,
        reserve: RESERVE,
        chunk_cost_ns: 0.0,
        floor_bytes: latency_floor(&points).unwrap_or(0),
        ceiling_bytes: SIDES[SIDES.len() - 1].pow(2) * 3,
    };
    let bytes = plan_chunk(&points, &demand).map_or(0, |plan| plan.size_bytes);
    let fits = SIDES.into_iter().find(|side| side * side * 3 >= bytes);
    fits.unwrap_or(SIDES[SIDES.len() - 1])
}

fn guarantees(lab: &mut Lab, ways: [Way; 3], best_rate: f64, alone_ms: f64) -> Result<(), String> {
    let time = Duration::from_secs_f64(lab.seconds * 1.5);
    let names = ways.map(Way::name);
    lab.say(
        "\nGuaranteed rate of complete updates: mean and p95 of partial ones. ! rate not kept\n",
    );
    lab.say(&format!(
        "| rate (share of TCP's) | {} |\n|---|---|---|---|",
        names.join(" | ")
    ));
    let mut found: [Vec<(f64, bool, f64, f64)>; 3] = Default::default();
    let mut drives = Vec::new();
    for way in ways {
        drives.push(Drive::start(lab, way, "", "")?);
    }
    for share in SHARES {
        let mut cells = Vec::new();
        for (drive, found) in drives.iter_mut().zip(&mut found) {
            // What is not kept at a rate is not kept at a higher one.
            if found.last().is_some_and(|last| !last.1) {
                cells.push(String::new());
                continue;
            }
            let mut loaded = drive.load(Some(best_rate * share), PARTIAL_MS, time)?;
            let (mean, p95) = mean_and_p95(&mut loaded.partial_ms);
            let mark = if loaded.is_kept { "" } else { " !" };
            cells.push(format!("{mean:.2} ms, {p95:.2} ms{mark}"));
            found.push((share, loaded.is_kept, mean, p95));
        }
        lab.say(&format!(
            "| {:.2}/s ({share}) | {} |",
            best_rate * share,
            cells.join(" | ")
        ));
    }
    let rows = names.iter().zip(&found).flat_map(|(name, found)| {
        found.iter().map(move |(share, is_kept, mean, p95)| {
            json!({"way": name, "share": share, "kept": is_kept, "mean_ms": mean, "p95_ms": p95})
        })
    });
    lab.json.insert(
        "guaranteed_rate".to_string(),
        rows.collect::<Vec<Value>>().into(),
    );
    lab.say(
        "\nGuaranteed mean of partial updates (of TCP's alone): highest rate of complete ones\n",
    );
    lab.say(&format!(
        "| latency | {} |\n|---|---|---|---|",
        names.join(" | ")
    ));
    let mut limits = Vec::new();
    for multiple in LATENCIES {
        let limit = alone_ms * multiple;
        let highest = found.iter().map(|found| {
            let kept = found
                .iter()
                .filter(|(_, is_kept, mean, _)| *is_kept && *mean <= limit);
            kept.map(|point| point.0 * best_rate).fold(0.0, f64::max)
        });
        let highest = highest.collect::<Vec<f64>>();
        let cells = highest
            .iter()
            .map(|rate| format!("{rate:.2}/s"))
            .collect::<Vec<String>>();
        lab.say(&format!(
            "| {limit:.2} ms ({multiple}) | {} |",
            cells.join(" | ")
        ));
        limits.push(json!({"limit_ms": limit, "rates": highest}));
    }
    lab.json
        .insert("guaranteed_latency".to_string(), limits.into());
    Ok(())
}
