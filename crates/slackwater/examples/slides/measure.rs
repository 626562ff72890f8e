//! What `docs/slides.md` shows: P4's experiments with a slide's real pixels, through the query.
//!
//! ```text
//! slides measure [--seconds 1.5] [--rounds 3] [--only updates,mixed,pipelining,copies] [--json FILE]
//! ```
//!
//! Each point is a query of its own in two worker processes with a core each, over TCP or shared memory, and
//! a slide that is cut into tiles of one size: a block is a tile.

mod copies;
mod drive;
mod mixed;
mod pipelining;
mod updates;
mod usage;

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use super::options::Options;
use super::writer::Plan;

/// The picture in pixels: 16 MiB, as P4's.
const WIDTH: usize = 2560;
const HEIGHT: usize = 2176;

/// The bytes of the picture.
const PICTURE_BYTES: usize = WIDTH * HEIGHT * 3;

/// The sides of tiles, in pixels: blocks of 3, 12, 48, 192 and 768 KiB.
const SIDES: [usize; 5] = [32, 64, 128, 256, 512];

/// The ways that are compared unless `updates` has found better ones: TCP's best block and the same over
/// shared memory, and the planned one.
const FIXED: [Way; 3] = [
    Way {
        link: "tcp",
        side: 256,
    },
    Way {
        link: "shm",
        side: 256,
    },
    Way {
        link: "shm",
        side: 64,
    },
];

/// A link, and the side of the tiles of the slide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    link: &'static str,
    side: usize,
}

impl Way {
    fn block_bytes(self) -> usize {
        self.side * self.side * 3
    }

    fn name(self) -> String {
        let link = if self.link == "tcp" {
            "TCP"
        } else {
            "shared memory"
        };
        format!("{link}, {} KiB", self.block_bytes() / 1024)
    }
}

/// What measurements share.
struct Lab {
    folder: tempfile::TempDir,
    program: PathBuf,
    /// How long a point is measured.
    seconds: f64,
    rounds: usize,
    /// What was printed.
    text: String,
    json: serde_json::Map<String, Value>,
}

impl Lab {
    fn slide(&self, side: usize) -> PathBuf {
        self.folder.path().join(format!("slide-{side}.tif"))
    }

    /// Prints a line, and keeps it.
    fn say(&mut self, line: &str) {
        println!("{line}");
        self.text += line;
        self.text.push('\n');
    }
}

/// The load of the machine in the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_string()
}

/// `measure`.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let options = Options::read(arguments, &["seconds", "rounds", "only", "json"])?;
    let all = ["updates", "mixed", "pipelining", "copies"];
    let only = options
        .text("only")
        .map_or(all.to_vec(), |only| only.split(',').collect());
    if let Some(other) = only.iter().find(|name| !all.contains(name)) {
        return Err(format!(
            "--only: there is no '{other}', but {}",
            all.join(", ")
        ));
    }
    let seconds = options.number::<f64>("seconds", 1.5)?;
    if !(0.05..=60.0).contains(&seconds) {
        return Err(format!("--seconds {seconds}: must be from 0.05 to 60"));
    }
    let failed = |error: std::io::Error| error.to_string();
    let mut lab = Lab {
        folder: tempfile::tempdir().map_err(failed)?,
        program: std::env::current_exe().map_err(failed)?,
        seconds,
        rounds: options.number::<usize>("rounds", 3)?.clamp(1, 100),
        text: String::new(),
        json: serde_json::Map::new(),
    };
    let began = Instant::now();
    for side in SIDES {
        let plan = Plan {
            width: WIDTH,
            height: HEIGHT,
            tile: side,
            quality: 85,
            seed: 1,
        };
        plan.write(&lab.slide(side))?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let before = load();
    lab.say(&format!(
        "{cores} cores, a {build} build; load before {before}"
    ));
    lab.say(&format!(
        "a picture of {WIDTH} x {HEIGHT} pixels, {PICTURE_BYTES} bytes"
    ));
    let mut best = None;
    if only.contains(&"updates") {
        best = Some(updates::run(&mut lab)?);
    }
    if only.contains(&"mixed") {
        // Without the measurement that finds them.
        let fixed = best.unwrap_or(FIXED);
        mixed::run(&mut lab, fixed)?;
    }
    if only.contains(&"pipelining") {
        pipelining::run(&mut lab)?;
    }
    if only.contains(&"copies") {
        copies::run(&mut lab)?;
    }
    let after = load();
    lab.say(&format!(
        "\n{:.0} s; load after {after}",
        began.elapsed().as_secs_f64()
    ));
    let host = json!({"cores": cores, "build": build, "load_before": before, "load_after": after});
    lab.json.insert("host".to_string(), host);
    lab.json.insert("text".to_string(), lab.text.clone().into());
    if let Some(file) = options.text("json") {
        let text = serde_json::to_string_pretty(&lab.json).map_err(|error| error.to_string())?;
        std::fs::write(file, text + "\n").map_err(|error| format!("--json {file}: {error}"))?;
    }
    Ok(())
}

/// The value in the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The mean, and the value that 95 of 100 don't exceed.
fn mean_and_p95(values: &mut [f64]) -> (f64, f64) {
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    values.sort_by(f64::total_cmp);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, values[(values.len() * 95).div_ceil(100) - 1])
}
