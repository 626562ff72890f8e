//! A copy of the filters that is slower than the other: it computes 2, 4 or 8 times as often. The time for a
//! picture over the ideal, and how long after a copy has become slow what was given to it before is done.
//!
//! The ideal follows from CPU times, so that other programs do not change it: a block costs what is repeated,
//! counted by the copies themselves, and the rest, which is what all processes use for a block when both
//! copies are equally fast. Each copy has a core, and blocks are divided so that both are done together.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::drive::Drive;
use super::pipelining::halving_ns;
use super::usage::Usage;
use super::{HEIGHT, Lab, WIDTH, Way, load, median};
use crate::hub::{Kind, Update};
use crate::slow::counted;

/// What a copy computes for each byte, in nanoseconds: five times P4's, as in `bench balance`.
const WORK_NS: f64 = 90.0;

/// How many times as often the slow copy computes.
const FACTORS: [i64; 3] = [2, 4, 8];

/// The sides of tiles: blocks of 12 and 3 KiB, near P4's 16 and 2.
const SIDES: [usize; 2] = [64, 32];

const BALANCERS: [&str; 2] = ["round_robin", "demand"];

/// When a copy becomes slow.
const SLOW_AFTER: Duration = Duration::from_millis(400);

const PATIENCE: Duration = Duration::from_secs(120);

/// The blocks of a run in which a copy becomes slow, by the side of tiles: about two seconds of work.
fn blocks(side: usize) -> usize {
    (2.0e9 / (WORK_NS * (side * side * 3) as f64)) as usize
}

/// A picture that was computed.
struct Whole {
    seconds: f64,
    usage: Usage,
    /// The blocks of the slow copy and of the other, and the CPU time of what they repeated.
    slow: (f64, f64),
    fast: (f64, f64),
}

impl Whole {
    fn blocks(&self) -> f64 {
        self.slow.0 + self.fast.0
    }

    /// The CPU time of a block's repeated work when it is computed by a fast copy.
    fn work_s(&self, factor: f64) -> f64 {
        (self.slow.1 + self.fast.1) / (self.fast.0 + self.slow.0 * factor)
    }

    /// The CPU time of a block besides the repeated work.
    fn rest_s(&self) -> f64 {
        (self.usage.all_s() - self.slow.1 - self.fast.1) / self.blocks()
    }
}

/// What was measured of a balancer and a factor, a value for each round.
#[derive(Default)]
struct Case {
    /// The time over the ideal.
    time: Vec<f64>,
    /// The same if each process had its core for itself: by the CPU time of the one that used most.
    cpu: Vec<f64>,
    /// The share of blocks that the slow copy computed, and the ideal one.
    share: Vec<f64>,
    ideal_share: Vec<f64>,
    reaction_ms: Vec<f64>,
    /// The shares of the time in which the query waited for cores, and in which the host took them.
    waited: Vec<f64>,
    stolen: Vec<f64>,
    work_us: Vec<f64>,
    rest_us: Vec<f64>,
}

/// Measures both links, blocks and balancers. Balancers take turns.
pub fn run(lab: &mut Lab) -> Result<(), String> {
    let repeat = (WORK_NS / halving_ns()).round().max(1.0);
    let rounds = lab.rounds;
    lab.say(&format!(
        "\nTwo copies that halve each block {repeat} times, one of them 2, 4 and 8 times as often: time for \
         {WIDTH} x {HEIGHT} pixels over the ideal, the same by CPU time, the slow copy's share of the blocks \
         (ideal), reaction in milliseconds, and how much shorter it is than in turn with the large blocks \
         over TCP. Medians of {rounds} (least to most); the query's threads waited for cores, and the host \
         took them, for these shares of the time\n"
    ));
    let columns = "time | CPU time | share | reaction | shorter | waited | stolen";
    lab.say(&format!("| link and block | balancer | slow | {columns} |"));
    lab.say("|---|---|---|---|---|---|---|---|---|---|");
    let (mut rows, mut costs) = (Vec::new(), Vec::new());
    // The reactions of the first way and balancer, by factor.
    let mut first_ms = None;
    for link in ["tcp", "shm"] {
        for side in SIDES {
            let way = Way { link, side };
            let mut cases = BALANCERS.map(|_| FACTORS.map(|_| Case::default()));
            let before = load();
            for round in 0..rounds {
                for (balancer, cases) in BALANCERS.into_iter().zip(&mut cases) {
                    measure(lab, (balancer, way, repeat as i64, round), cases)?;
                }
            }
            let loads = format!("load {before} to {}", load());
            let first_ms = *first_ms.get_or_insert_with(|| {
                let cases = cases[0].each_ref();
                cases.map(|case| median(&mut case.reaction_ms.clone()))
            });
            for (balancer, cases) in BALANCERS.into_iter().zip(&mut cases) {
                let cases_of = FACTORS.into_iter().zip(cases.iter_mut());
                for ((factor, case), first_ms) in cases_of.zip(first_ms) {
                    rows.push(case.json(balancer, way, factor));
                    lab.say(&case.row(balancer, way, factor, first_ms));
                }
                let of = |costs: fn(&Case) -> &Vec<f64>| spread(&mut costs(&cases[0]).clone(), 0);
                costs.push(format!(
                    "{}, {balancer}: a block costs {} us of repeated work and {} us of other; {loads}",
                    way.name(),
                    of(|case| &case.work_us),
                    of(|case| &case.rest_us)
                ));
            }
        }
    }
    lab.say("");
    costs.iter().for_each(|line| lab.say(line));
    lab.json.insert("copies".to_string(), rows.into());
    Ok(())
}

/// The median, the least and the most.
fn spread(values: &mut [f64], digits: usize) -> String {
    let middle = median(values);
    match values {
        [least, .., most] => format!("{middle:.digits$} ({least:.digits$} to {most:.digits$})"),
        _ => format!("{middle:.digits$}"),
    }
}

impl Case {
    fn row(&mut self, balancer: &str, way: Way, factor: i64, first_ms: f64) -> String {
        let percent = |values: &[f64]| 100.0 * median(&mut values.to_vec());
        let shorter = first_ms / median(&mut self.reaction_ms.clone());
        format!(
            "| {} | {balancer} | {factor} x | {} | {} | {:.0} % ({:.0} %) | {} | {shorter:.1} x | {:.0} % | \
             {:.0} % |",
            way.name(),
            spread(&mut self.time, 2),
            spread(&mut self.cpu, 2),
            percent(&self.share),
            percent(&self.ideal_share),
            spread(&mut self.reaction_ms, 0),
            percent(&self.waited),
            percent(&self.stolen),
        )
    }

    fn json(&self, balancer: &str, way: Way, factor: i64) -> Value {
        json!({"balancer": balancer, "link": way.link, "block_bytes": way.block_bytes(), "factor": factor,
            "time_over_ideal": self.time, "cpu_time_over_ideal": self.cpu, "share": self.share,
            "ideal_share": self.ideal_share, "reaction_ms": self.reaction_ms, "waited": self.waited,
            "stolen": self.stolen, "work_us": self.work_us, "rest_us": self.rest_us})
    }

    fn add(&mut self, whole: &Whole, factor: i64, rest_s: f64) {
        let (factor, work_s) = (factor as f64, whole.work_s(factor as f64));
        // Blocks per second.
        let (fast, slow) = (1.0 / (rest_s + work_s), 1.0 / (rest_s + work_s * factor));
        let ideal_s = whole.blocks() / (fast + slow);
        self.time.push(whole.seconds / ideal_s);
        self.cpu.push(whole.usage.most_s() / ideal_s);
        self.share.push(whole.slow.0 / whole.blocks());
        self.ideal_share.push(slow / (fast + slow));
        self.waited.push(whole.usage.waited_s / whole.seconds);
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        self.stolen
            .push(whole.usage.stolen_s / whole.seconds / cores);
        self.work_us.push(work_s * 1e6);
        self.rest_us.push(rest_s * 1e6);
    }
}

/// One round of a balancer: a query of its own, and all factors.
fn measure(
    lab: &Lab,
    (balancer, way, repeat, round): (&str, Way, i64, usize),
    cases: &mut [Case; 3],
) -> Result<(), String> {
    let name = format!("mark-{balancer}-{}-{}-{round}", way.link, way.side);
    let mark = lab.folder.path().join(name).display().to_string();
    let slow = format!("{mark}.slow");
    let failed = |error: std::io::Error| error.to_string();
    let work = format!(", repeat => {repeat}, mark => '{mark}'");
    // By demand only blocks are dealt, and not requests, too: all blocks come from one instance of `clip`.
    let setting = if balancer == "demand" {
        "auto"
    } else {
        balancer
    };
    let settings = format!("SET 'balancer' = '{setting}'; SET 'chunk_rows' = '1';");
    let mut drive = Drive::start(lab, way, &settings, &work)?;
    let set = |factor: i64| std::fs::write(&slow, factor.to_string()).map_err(failed);
    set(1)?;
    let rest_s = whole(&mut drive, &mark)?.rest_s();
    for (factor, case) in FACTORS.into_iter().zip(cases) {
        set(factor)?;
        case.add(&whole(&mut drive, &mark)?, factor, rest_s);
        set(1)?;
        let reaction = reaction(&mut drive, way.side, || set(factor))?;
        case.reaction_ms.push(reaction);
    }
    Ok(())
}

/// Computes the picture.
fn whole(drive: &mut Drive, mark: &str) -> Result<Whole, String> {
    let process = drive.query.process().ok_or("the query has ended")?;
    let counts = || Ok::<_, String>([counted(mark, true)?, counted(mark, false)?]);
    let (counts_before, usage_before) = (counts()?, Usage::of(process));
    let ms = drive.complete()?.wait(PATIENCE)?;
    let (usage, counts) = (Usage::of(process), counts()?);
    let since = |at: usize| {
        let (before, after) = (counts_before[at], counts[at]);
        (after.0 - before.0, after.1 - before.1)
    };
    Ok(Whole {
        seconds: ms.ok_or("an update does not come")? / 1e3,
        usage: usage.since(&usage_before),
        slow: since(0),
        fast: since(1),
    })
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
    let (mut last, mut later) = (0.0_f64, 0);
    for asked in &asked {
        let update = asked.row.recv_timeout(PATIENCE);
        let update = update.map_err(|_| "a block does not come".to_string())?;
        let done = clock + update.at.duration_since(origin).as_secs_f64() * 1e3;
        if made(&update)? < at {
            last = last.max(done - at);
        } else {
            later += 1;
        }
    }
    // If all blocks had been made by then, their end says nothing about the balancer.
    Ok(if later > 0 { last } else { f64::NAN })
}

/// When the query took the request, in milliseconds since 1970.
fn made(update: &Update) -> Result<f64, String> {
    let row = serde_json::from_str::<Value>(&update.line).map_err(|error| error.to_string())?;
    row["made"]
        .as_f64()
        .ok_or_else(|| format!("a row without a time: {}", update.line))
}
