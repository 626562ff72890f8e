//! Perfect pipelining: the smallest block that takes a filter as long as it takes the link.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Lab, WIDTH, median};
use crate::pixels::halve;
use crate::tissue;

/// The computing of P4's filters, in nanoseconds per byte.
const PAPER_NS: f64 = 18.0;

/// The kinds of links in the calibration, and their names here.
const LINKS: [(&str, &str); 2] = [("tcp-link", "TCP"), ("shm-lent", "shared memory")];

/// How long the work on a block is measured.
const TIME: Duration = Duration::from_millis(300);

/// Measures both links.
pub fn run(lab: &mut Lab) -> Result<(), String> {
    let mut command = Command::new(&lab.program);
    command.args(["calibrate", "--json"]);
    // What is measured here is not for the user's queries.
    command.env("XDG_CACHE_HOME", lab.folder.path());
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("calibrate ({}): {said}", output.status));
    }
    let measured = serde_json::from_slice::<Value>(&output.stdout);
    let measured = measured.map_err(|error| format!("calibrate: {error}"))?;
    let byte_ns = halving_ns();
    lab.say(&format!(
        "\nPerfect pipelining: the smallest block that takes the link no longer than the filter. \
         Halving takes {byte_ns:.2} ns per byte\n"
    ));
    lab.say("| filter | TCP | shared memory |\n|---|---|---|");
    let mut rows = Vec::new();
    for (filter, ns) in [("halving", byte_ns), ("P4's 18 ns per byte", PAPER_NS)] {
        let blocks = LINKS.map(|(kind, _)| perfect(&measured, kind, ns));
        let cells = blocks
            .map(|block| block.map_or("none".to_string(), |bytes| format!("{bytes:.0} bytes")));
        lab.say(&format!("| {filter} | {} | {} |", cells[0], cells[1]));
        let [tcp, shm] = blocks;
        rows.push(json!({"filter": filter, "ns_per_byte": ns, "tcp_bytes": tcp, "shm_bytes": shm}));
    }
    lab.say("\n| message | TCP | shared memory |\n|---|---|---|");
    let points = LINKS.map(|(kind, _)| points(&measured, kind));
    for ((bytes, tcp), (_, shm)) in points[0].iter().zip(&points[1]) {
        lab.say(&format!("| {bytes:.0} bytes | {tcp:.0} ns | {shm:.0} ns |"));
    }
    lab.json.insert("pipelining".to_string(), rows.into());
    lab.json
        .insert("links".to_string(), measured["links"].clone());
    Ok(())
}

/// The time of a message by its size, in bytes and nanoseconds: what a stream of them takes.
fn points(measured: &Value, kind: &str) -> Vec<(f64, f64)> {
    let links = measured["links"].as_array().map_or(&[][..], Vec::as_slice);
    let of_kind = links.iter().filter(|link| link["kind"] == kind);
    let points = of_kind.filter_map(|link| {
        Some((
            link["size_bytes"].as_f64()?,
            1e9 / link["messages_per_s"].as_f64()?,
        ))
    });
    points.collect()
}

/// The size at which a message takes as long as the filter needs for it: between two measured sizes, the time
/// of a message is linear.
fn perfect(measured: &Value, kind: &str, ns_per_byte: f64) -> Option<f64> {
    let points = points(measured, kind);
    let spare = |(bytes, ns): (f64, f64)| bytes * ns_per_byte - ns;
    let first = *points.first()?;
    if spare(first) >= 0.0 {
        return Some(first.0);
    }
    let pairs = points.windows(2).find(|pair| spare(pair[1]) >= 0.0)?;
    let (before, after) = (spare(pairs[0]), spare(pairs[1]));
    Some(pairs[0].0 + (pairs[1].0 - pairs[0].0) * -before / (after - before))
}

/// What halving costs for each byte of its input, in nanoseconds: the median of many blocks of 128 × 128
/// pixels.
pub fn halving_ns() -> f64 {
    let side = 128;
    let pixels = (0..side * side)
        .flat_map(|at| tissue::pixel((at % side + WIDTH / 2) as i64, (at / side) as i64, 1));
    let pixels = pixels.collect::<Vec<u8>>();
    let until = Instant::now() + TIME;
    let mut times = Vec::new();
    while Instant::now() < until {
        let begin = Instant::now();
        black_box(halve(black_box(&pixels), side, side));
        times.push(begin.elapsed().as_nanos() as f64 / pixels.len() as f64);
    }
    median(&mut times)
}
