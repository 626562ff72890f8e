//! A copy of the filters that is slower than the other: it computes 2, 4 or 8 times as often. The time for a
//! picture over the ideal, and how long after a copy has become slow what was given to it before is done.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::drive::Drive;
use super::pipelining::halving_ns;
use super::{Lab, Way, median};
use crate::hub::{Kind, Update};

/// What a copy computes for each byte, in nanoseconds: five times P4's, as in `bench balance`.
const WORK_NS: f64 = 90.0;

/// How many times as often the slow copy computes.
const FACTORS: [i64; 3] = [2, 4, 8];

/// The sides of tiles: blocks of 12 and 3 KiB, near P4's 16 and 2.
const SIDES: [usize; 2] = [64, 32];

/// The part of the picture that is asked for, in pixels: 3 MiB.
const PART: i64 = 1024;

/// When a copy becomes slow.
const SLOW_AFTER: Duration = Duration::from_millis(400);

const PATIENCE: Duration = Duration::from_secs(120);

/// The blocks of a run in which a copy becomes slow, by the side of tiles: about two seconds of work.
fn blocks(side: usize) -> usize {
    (2.0e9 / (WORK_NS * (side * side * 3) as f64)) as usize
}

struct Case {
    balancer: &'static str,
    way: Way,
    /// Over the ideal, by factor.
    times: Vec<f64>,
    /// In milliseconds, by factor.
    reactions: Vec<f64>,
}

/// Measures both links, balancers and blocks.
pub fn run(lab: &mut Lab) -> Result<(), String> {
    let repeat = (WORK_NS / halving_ns()).round().max(1.0);
    lab.say(&format!(
        "\nTwo copies that halve each block {repeat} times, one of them 2, 4 and 8 times as often: time for \
         {PART} x {PART} pixels over the ideal; reaction, in milliseconds\n"
    ));
    lab.say("| balancer | link and block | 2 x | 4 x | 8 x | reaction 2 x | 4 x | 8 x |");
    lab.say("|---|---|---|---|---|---|---|---|");
    let mut cases = Vec::new();
    for balancer in ["round_robin", "demand"] {
        for link in ["tcp", "shm"] {
            for side in SIDES {
                let way = Way { link, side };
                let case = case(lab, balancer, way, repeat as i64)?;
                let times = case.times.iter().map(|time| format!("{time:.2}"));
                let reactions = case.reactions.iter().map(|ms| format!("{ms:.0}"));
                let cells = times.chain(reactions).collect::<Vec<String>>();
                lab.say(&format!(
                    "| {balancer} | {} | {} |",
                    way.name(),
                    cells.join(" | ")
                ));
                cases.push(case);
            }
        }
    }
    let rows = cases.iter().map(|case| {
        json!({"balancer": case.balancer, "link": case.way.link, "block_bytes": case.way.block_bytes(),
            "factors": FACTORS, "time_over_ideal": case.times, "reaction_ms": case.reactions})
    });
    lab.json
        .insert("copies".to_string(), rows.collect::<Vec<Value>>().into());
    Ok(())
}

fn case(lab: &Lab, balancer: &'static str, way: Way, repeat: i64) -> Result<Case, String> {
    let mark = lab
        .folder
        .path()
        .join(format!("mark-{balancer}-{}-{}", way.link, way.side));
    let slow = mark.with_extension("slow");
    let failed = |error: std::io::Error| error.to_string();
    let work = format!(", repeat => {repeat}, mark => '{}'", mark.display());
    let settings = format!("SET 'balancer' = '{balancer}'; SET 'chunk_rows' = '1';");
    let mut drive = Drive::start(lab, way, &settings, &work)?;
    let set = |factor: i64| std::fs::write(&slow, factor.to_string()).map_err(failed);
    let (mut times, mut reactions) = (Vec::new(), Vec::new());
    let (mut even, mut uneven) = (Vec::new(), [vec![], vec![], vec![]]);
    let mut of_factor = [vec![], vec![], vec![]];
    for _ in 0..lab.rounds {
        set(1)?;
        even.push(whole(&mut drive)?);
        for (number, factor) in FACTORS.into_iter().enumerate() {
            set(factor)?;
            uneven[number].push(whole(&mut drive)?);
            set(1)?;
            of_factor[number].push(reaction(&mut drive, way.side, || set(factor))?);
        }
    }
    let even = median(&mut even);
    for (number, factor) in FACTORS.into_iter().enumerate() {
        // All work over the sum of speeds.
        let ideal = even * 2.0 / (1.0 + 1.0 / factor as f64);
        times.push(median(&mut uneven[number]) / ideal);
        reactions.push(median(&mut of_factor[number]));
    }
    Ok(Case {
        balancer,
        way,
        times,
        reactions,
    })
}

/// How many milliseconds the part of the picture takes.
fn whole(drive: &mut Drive) -> Result<f64, String> {
    let asked = drive.ask(Kind::Complete, [0, 0, PART, PART])?;
    asked
        .wait(PATIENCE)?
        .ok_or("an update does not come".to_string())
}

fn now_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64() * 1e3)
}

/// Asks for single blocks as fast as the query takes them, and makes a copy slow meanwhile: how many
/// milliseconds later the last block was done that had been made before.
fn reaction(
    drive: &mut Drive,
    side: usize,
    become_slow: impl Fn() -> Result<(), String> + Send,
) -> Result<f64, String> {
    let (clock, origin) = (now_ms(), Instant::now());
    let mut asked = Vec::new();
    let at = std::thread::scope(|scope| {
        let slow = scope.spawn(move || {
            std::thread::sleep(SLOW_AFTER);
            become_slow().map(|()| now_ms())
        });
        for _ in 0..blocks(side) {
            asked.push(drive.ask(Kind::Complete, [0, 0, side as i64, side as i64])?);
        }
        slow.join()
            .map_err(|_| "the thread that marks a copy ended".to_string())?
    })?;
    let mut last: f64 = 0.0;
    for asked in &asked {
        let update = asked.row.recv_timeout(PATIENCE);
        let update = update.map_err(|_| "a block does not come".to_string())?;
        let done = clock + update.at.duration_since(origin).as_secs_f64() * 1e3;
        if made(&update)? < at {
            last = last.max(done - at);
        }
    }
    Ok(last)
}

/// When the query took the request, in milliseconds since 1970.
fn made(update: &Update) -> Result<f64, String> {
    let row = serde_json::from_str::<Value>(&update.line).map_err(|error| error.to_string())?;
    row["made"]
        .as_f64()
        .ok_or_else(|| format!("a row without a time: {}", update.line))
}
