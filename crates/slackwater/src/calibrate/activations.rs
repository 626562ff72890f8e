//! Measures what an activation of a small query costs: a worker that was idle reads a record from a socket,
//! filters it, and writes it to a socket. After a long idle time caches are cold, so that the same work costs
//! several times as much; neither the wake-up alone nor the work alone shows that. With several arrivals in
//! an activation, and with many records in an arrival, it also measures what each of these costs.
//!
//! The CPU time of the process, without the threads that send and read here, is looked at before an arrival,
//! when the query is idle. What lies between two looks is one activation. The first quarter is a warm-up, and
//! the mean leaves out a tenth at either end, so a disturbance moves it little.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use slackwater_control::latency::model::Activation;

use crate::measure::pin;

/// The idle times in microseconds, each with the number of arrivals, and their number with `--quick`.
const IDLE: [(u64, u64, u64); 2] = [(1_000, 800, 300), (10_000, 150, 60)];

/// How many arrivals an activation finds where the cost of an arrival is measured.
const APART: u64 = 10;

/// How many records arrive together where the cost of a record is measured: 80 KB, which fit the smallest
/// default of a socket's buffer.
const TOGETHER: u64 = 400;

/// Where the reading of a record begins: 1234, which the query keeps; 9234 is dropped.
const READING_AT: usize = 37;

/// The share of arrivals that warm up, and the share that is left out at either end of the others.
const WARM_UP: f64 = 0.25;
const LEFT_OUT: f64 = 0.1;

/// A record of 200 bytes, of which the query reads three fields and keeps it.
const RECORD: &str = "1700000000000000000,1700000000000,17,1234,the north wall of the second hall,\
                      in order,nothing to add to this record except that it is as long as those of \
                      many a sensor and what they have to say every day\n";

/// Runs a query of one worker, with a way to wait, to its end; returns the number of rows that it wrote.
pub type Runs<'a> = dyn Fn(&str, &str) -> Result<u64, String> + 'a;

/// The cost of an activation after an idle time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activated {
    /// The idle time in microseconds.
    pub idle_us: u64,
    /// The number of records.
    pub count: u64,
    /// The CPU time of an activation of a worker that was woken, including the wake-up.
    pub woken_cpu_ns: f64,
    /// The CPU time of an activation of a worker that slept, including the sleep.
    pub slept_cpu_ns: f64,
}

impl From<&Activated> for Activation {
    fn from(activated: &Activated) -> Activation {
        Activation {
            idle_ns: activated.idle_us as f64 * 1e3,
            woken_ns: activated.woken_cpu_ns,
            slept_ns: activated.slept_cpu_ns,
        }
    }
}

/// What an activation costs more if it finds more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct More {
    /// The CPU time of a further arrival.
    pub arrival_cpu_ns: f64,
    /// The CPU time of a further record of which the query keeps half.
    pub record_cpu_ns: f64,
}

/// How records arrive.
#[derive(Clone, Copy)]
struct Arrivals {
    idle_us: u64,
    /// How often the idle time passes.
    count: u64,
    /// The arrivals in each, and the records of each arrival.
    apart: u64,
    together: u64,
    /// The core of the threads that send and read.
    core: usize,
}

/// What was measured.
pub struct Costs {
    /// Activations with one record, after all idle times.
    pub activations: Vec<Activated>,
    /// What more of them costs.
    pub more: More,
}

/// Measures activations, arrivals and records; records are sent and rows read on `core`.
pub fn costs(core: usize, quick: bool, runs: &Runs<'_>) -> Result<Costs, String> {
    let arrivals = IDLE.map(|(idle_us, count, hurried)| Arrivals {
        idle_us,
        count: if quick { hurried } else { count },
        apart: 1,
        together: 1,
        core,
    });
    let measured = arrivals.iter().map(|arrivals| {
        Ok(Activated {
            idle_us: arrivals.idle_us,
            count: arrivals.count,
            woken_cpu_ns: activation("interrupt", arrivals, runs)?,
            slept_cpu_ns: activation(&sleep(arrivals), arrivals, runs)?,
        })
    });
    let activations = measured.collect::<Result<Vec<Activated>, String>>()?;
    let [short, long] = arrivals;
    let more_ns = |arrivals: Arrivals, one: &Activated| {
        let many_ns = activation(&sleep(&arrivals), &arrivals, runs)?;
        let more = arrivals.apart * arrivals.together - 1;
        Ok::<f64, String>((many_ns - one.slept_cpu_ns).max(0.0) / more as f64)
    };
    let apart = Arrivals {
        apart: APART,
        ..long
    };
    let together = Arrivals {
        together: TOGETHER,
        ..short
    };
    let more = More {
        arrival_cpu_ns: more_ns(apart, &activations[1])?,
        record_cpu_ns: more_ns(together, &activations[0])?,
    };
    Ok(Costs { activations, more })
}

fn sleep(arrivals: &Arrivals) -> String {
    format!("sleep:{}us", arrivals.idle_us)
}

/// The CPU time of an activation of a worker that waits in a mode, in nanoseconds.
fn activation(wait: &str, arrivals: &Arrivals, runs: &Runs<'_>) -> Result<f64, String> {
    let failed = |error: std::io::Error| format!("the query that is measured: {error}");
    let (records, from) = listen().map_err(failed)?;
    let (rows, to) = listen().map_err(failed)?;
    let reader_cpu_ns = Mutex::new(0);
    let (written, (looks, kept)) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&records, arrivals, &reader_cpu_ns));
        let reading = scope.spawn(|| read(&rows, arrivals.core, &reader_cpu_ns));
        let written = runs(&query(from, to), wait);
        // A query that failed to start has not connected: the two threads wait for it.
        for address in [from, to] {
            drop(std::net::TcpStream::connect(address));
        }
        let panicked = "a measuring thread panicked";
        let sent = sending.join().map_err(|_| panicked)?.map_err(failed)?;
        reading.join().map_err(|_| panicked)?.map_err(failed)?;
        Ok::<_, String>((written?, sent))
    })?;
    if written != kept {
        return Err(format!(
            "the query that is measured wrote {written} of {kept} rows"
        ));
    }
    typical(&looks).ok_or_else(|| "the query that is measured had too few rows".to_string())
}

/// Writes the records of an arrival to `text`, and returns how many of them the query keeps: of several about
/// half, in no order that a processor could learn.
fn records(together: u64, random: &mut fastrand::Rng, text: &mut Vec<u8>) -> u64 {
    text.clear();
    let mut kept = 0;
    for _ in 0..together {
        let is_kept = together == 1 || random.bool();
        kept += u64::from(is_kept);
        text.extend_from_slice(RECORD.as_bytes());
        if !is_kept {
            let reading = text.len() - RECORD.len() + READING_AT;
            text[reading] = b'9';
        }
    }
    kept
}

/// The mean distance of looks, without those of the warm-up and without outliers.
fn typical(looks: &[u64]) -> Option<f64> {
    let warm_up = (looks.len() as f64 * WARM_UP) as usize;
    let between = looks[warm_up..].windows(2);
    // A thread may have been counted a little later than another one.
    let mut between = between
        .map(|two| two[1].saturating_sub(two[0]))
        .collect::<Vec<u64>>();
    between.sort_unstable();
    let outliers = (between.len() as f64 * LEFT_OUT) as usize;
    let typical = &between[outliers..between.len() - outliers];
    (!typical.is_empty()).then(|| typical.iter().sum::<u64>() as f64 / typical.len() as f64)
}

/// The query: a filter that keeps every record, and a projection.
pub(crate) fn query(from: SocketAddr, to: SocketAddr) -> String {
    format!(
        "CREATE TABLE records (due BIGINT, ms BIGINT, sensor INT, reading INT, place STRING, status STRING, \
         note STRING) WITH ('connector' = 'tcp', 'address' = '{from}');
         CREATE TABLE kept (due BIGINT, sensor INT, reading INT)
         WITH ('connector' = 'tcp', 'address' = '{to}');
         INSERT INTO kept SELECT due, sensor, reading FROM records WHERE reading < 1500;"
    )
}

fn listen() -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Sends records after each idle time, at absolute times. Returns the CPU time of the query before each, and
/// how many records it keeps.
fn send(
    listener: &TcpListener,
    arrivals: &Arrivals,
    reader_cpu_ns: &Mutex<u64>,
) -> std::io::Result<(Vec<u64>, u64)> {
    // Without the core the figures are less exact.
    let _ = pin(arrivals.core);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut random = fastrand::Rng::with_seed(7);
    let (mut text, mut looks, mut kept) = (Vec::new(), Vec::new(), 0);
    let begin = Instant::now();
    for number in 0..arrivals.count * arrivals.apart {
        let due =
            Duration::from_micros(arrivals.idle_us).mul_f64(number as f64 / arrivals.apart as f64);
        std::thread::sleep((begin + due).saturating_duration_since(Instant::now()));
        if number.is_multiple_of(arrivals.apart) {
            let reader_ns = *reader_cpu_ns.lock().unwrap_or_else(PoisonError::into_inner);
            let others_ns = cpu_ns(ClockId::ThreadCPUTime) + reader_ns;
            looks.push(cpu_ns(ClockId::ProcessCPUTime).saturating_sub(others_ns));
        }
        kept += records(arrivals.together, &mut random, &mut text);
        if stream.write_all(&text).is_err() {
            // The query has failed, and says why.
            break;
        }
    }
    Ok((looks, kept))
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads the rows to their end, and says how much CPU time that took.
fn read(listener: &TcpListener, core: usize, own_cpu_ns: &Mutex<u64>) -> std::io::Result<()> {
    let _ = pin(core);
    let (mut stream, _) = listener.accept()?;
    let mut buffer = [0; 65_536];
    while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
        let own_ns = cpu_ns(ClockId::ThreadCPUTime);
        *own_cpu_ns.lock().unwrap_or_else(PoisonError::into_inner) = own_ns;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use slackwater_control::latency::model::{REFERENCE_NS, REFERENCE_ROW_NS};
    use slackwater_sql::program::compile;

    use super::*;
    use crate::catalog::BuiltIn;

    #[test]
    fn the_assumed_work_of_the_measured_query_is_the_reference() {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 4000));
        let program = compile(&query(at, at), &[], &BuiltIn).unwrap().run;
        let work = program.nodes.iter().map(|node| node.facts().cost.work);
        let per_chunk = work.clone().map(|work| work.per_chunk_ns);
        assert_eq!(per_chunk.sum::<f64>(), REFERENCE_NS);
        // Half of the rows pass the filter.
        let taken = [1.0, 1.0, 0.5];
        assert_eq!(program.nodes.len(), taken.len());
        let per_row = work.zip(taken).map(|(work, rows)| work.per_row_ns * rows);
        assert_eq!(per_row.sum::<f64>(), REFERENCE_ROW_NS);
    }

    #[test]
    fn warm_up_and_outliers_are_left_out() {
        let mut at = 0;
        let looks = (0..40).map(|number| {
            at += match number {
                0..10 => 900,
                20 => 1,
                30 => 50_000,
                _ => 100,
            };
            at
        });
        assert_eq!(typical(&looks.collect::<Vec<u64>>()), Some(100.0));
        assert_eq!(typical(&[5]), None);
    }

    #[test]
    fn the_record_has_the_fields_of_the_query() {
        assert_eq!(RECORD.trim_end().split(',').count(), 7);
        assert!(
            RECORD.ends_with('\n') && (190..=210).contains(&RECORD.len()),
            "{}",
            RECORD.len()
        );
        let mut text = Vec::new();
        let kept = records(TOGETHER, &mut fastrand::Rng::with_seed(1), &mut text);
        let text = String::from_utf8(text).unwrap();
        let readings = text
            .lines()
            .map(|line| line.split(',').nth(3).unwrap().parse::<u64>().unwrap());
        assert_eq!(
            readings.filter(|&reading| reading < 1_500).count() as u64,
            kept
        );
        assert_eq!(text.lines().count() as u64, TOGETHER);
        assert!((TOGETHER / 3..TOGETHER * 2 / 3).contains(&kept), "{kept}");
    }
}
