//! Measures what an activation of a small query costs: a worker that was idle reads a record from a socket,
//! filters it, and writes it to a socket. After a long idle time caches are cold, so that the same work costs
//! several times as much; neither the wake-up alone nor the work alone shows that.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slackwater_control::latency::model::Activation;

use crate::measure::pin;

/// The idle times in microseconds, each with the number of records, and their number with `--quick`.
const IDLE: [(u64, u64, u64); 2] = [(1_000, 800, 300), (10_000, 150, 60)];

/// A record of 200 bytes, of which the query reads three fields.
const RECORD: &str = "1700000000000000000,1700000000000,17,1234,the north wall of the second hall,\
                      in order,nothing to add to this record except that it is as long as those of \
                      many a sensor and what they have to say every day\n";

/// What the worker of a query did.
#[derive(Clone, Copy, Debug)]
pub struct Worked {
    /// The rows that it wrote.
    pub rows: u64,
    /// The CPU time of its thread, in seconds.
    pub cpu_s: f64,
    /// Waits after which there was something to do.
    pub activations: u64,
    /// Timed sleeps.
    pub sleeps: u64,
}

/// Runs a query of one worker, with a way to wait, to its end.
pub type Runs<'a> = dyn Fn(&str, &str) -> Result<Worked, String> + 'a;

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

/// Measures activations after all idle times; records are sent and rows read on `core`.
pub fn activations(
    core: usize,
    sleep_ns: u64,
    quick: bool,
    runs: &Runs<'_>,
) -> Result<Vec<Activated>, String> {
    let measured = IDLE.iter().map(|&(idle_us, count, hurried)| {
        let count = if quick { hurried } else { count };
        let cost = |wait: &str| activation(wait, idle_us, count, core, sleep_ns, runs);
        Ok(Activated {
            idle_us,
            count,
            woken_cpu_ns: cost("interrupt")?,
            slept_cpu_ns: cost(&format!("sleep:{idle_us}us"))?,
        })
    });
    measured.collect()
}

/// The CPU time of an activation of a worker that waits in a mode, in nanoseconds.
fn activation(
    wait: &str,
    idle_us: u64,
    count: u64,
    core: usize,
    sleep_ns: u64,
    runs: &Runs<'_>,
) -> Result<f64, String> {
    let failed = |error: std::io::Error| format!("the query that is measured: {error}");
    let (records, from) = listen().map_err(failed)?;
    let (rows, to) = listen().map_err(failed)?;
    let worked = std::thread::scope(|scope| {
        let sending = scope.spawn(move || send(&records, idle_us, count, core));
        let reading = scope.spawn(move || read(&rows, core));
        let worked = runs(&query(from, to), wait);
        // A query that failed to start has not connected: the two threads wait for it.
        for address in [from, to] {
            drop(std::net::TcpStream::connect(address));
        }
        let panicked = "a measuring thread panicked";
        sending.join().map_err(|_| panicked)?.map_err(failed)?;
        reading.join().map_err(|_| panicked)?.map_err(failed)?;
        worked
    })?;
    if worked.rows != count || worked.activations == 0 {
        let rows = worked.rows;
        return Err(format!(
            "the query that is measured wrote {rows} of {count} rows"
        ));
    }
    let empty_sleeps = worked.sleeps.saturating_sub(worked.activations);
    let cpu_ns = worked.cpu_s * 1e9 - (empty_sleeps * sleep_ns) as f64;
    Ok(cpu_ns.max(0.0) / worked.activations as f64)
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

/// Sends a record after each idle time, at absolute times.
fn send(listener: &TcpListener, idle_us: u64, count: u64, core: usize) -> std::io::Result<()> {
    // Without the core the figures are less exact.
    let _ = pin(core);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let begin = Instant::now();
    for number in 1..=count {
        let due = begin + Duration::from_micros(idle_us * number);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stream.write_all(RECORD.as_bytes()).is_err() {
            // The query has failed, and says why.
            break;
        }
    }
    Ok(())
}

/// Reads the rows to their end.
fn read(listener: &TcpListener, core: usize) -> std::io::Result<()> {
    let _ = pin(core);
    let (mut stream, _) = listener.accept()?;
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use slackwater_control::latency::model::REFERENCE_NS;
    use slackwater_sql::program::compile;

    use super::*;
    use crate::catalog::BuiltIn;

    #[test]
    fn the_assumed_work_of_the_measured_query_is_the_reference() {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 4000));
        let program = compile(&query(at, at), &[], &BuiltIn).unwrap().run;
        let work = program
            .nodes
            .iter()
            .map(|node| node.facts().cost.work.per_chunk_ns);
        assert_eq!(work.sum::<f64>(), REFERENCE_NS);
    }

    #[test]
    fn the_record_has_the_fields_of_the_query() {
        assert_eq!(RECORD.trim_end().split(',').count(), 7);
        assert!(
            RECORD.ends_with('\n') && (190..=210).contains(&RECORD.len()),
            "{}",
            RECORD.len()
        );
    }
}
