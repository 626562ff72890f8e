//! Reads by key while rows come in.

use std::time::Duration;

use slackwater_engine::time::now_ns;

use super::Plan;
use super::figures::{Reads, ReadsRound};
use super::server::{Server, quantile, refused};
use crate::common::sleep_until;
use crate::lab;

/// Clients that read at a time.
const CLIENTS: u64 = 4;

/// The keys of the view.
const KEYS: i64 = 10_000;

/// Rows come in for this time before anything is measured.
const WARM_UP: Duration = Duration::from_secs(3);

/// Measures CPU time with and without reads, alternately.
pub fn measure(plan: &Plan) -> Result<Reads, String> {
    let server = Server::start(&plan.folder, "reads")?;
    let table = format!(
        "CREATE TABLE visits (ts_ms BIGINT, page_id BIGINT, duration INT, \
         ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) \
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rate' = '{}/s')",
        plan.rows_per_s
    );
    server.run(&[
        &table,
        &format!(
            "CREATE MATERIALIZED VIEW totals AS SELECT page_id % {KEYS} AS k, COUNT(*) AS n, \
             MAX(duration) AS longest FROM visits GROUP BY page_id % {KEYS}"
        ),
    ])?;
    std::thread::sleep(WARM_UP);
    let time = Duration::from_secs_f64(plan.seconds);
    let (mut rounds, mut times_ms) = (Vec::new(), Vec::new());
    for round in lab::rounds(plan.rounds) {
        let mut percents = [0.0; 2];
        let mut reads = 0;
        for &with_reads in round.order(&[false, true]) {
            percents[usize::from(with_reads)] = match with_reads {
                false => server.usage_over(time)?.percent(),
                true => {
                    let (percent, mut read_ms) = read(&server, plan.reads_per_s, time)?;
                    reads = read_ms.len() as u64;
                    times_ms.append(&mut read_ms);
                    percent
                }
            };
        }
        let round = ReadsRound {
            without_percent: percents[0],
            with_percent: percents[1],
            reads_per_s: reads as f64 / plan.seconds,
        };
        eprintln!("reads: {}", round.line());
        rounds.push(round);
    }
    Ok(Reads {
        rows_per_s: plan.rows_per_s,
        more_percent: lab::spread(&rounds, ReadsRound::more_percent),
        p50_ms: quantile(&mut times_ms, 0.5),
        p99_ms: quantile(&mut times_ms, 0.99),
        rounds,
    })
}

/// Reads at a rate for a while: the CPU time of the server and its jobs, and how long each read took.
fn read(server: &Server, per_s: f64, time: Duration) -> Result<(f64, Vec<f64>), String> {
    let end_ns = now_ns() + time.as_nanos() as u64;
    let every_ns = (1e9 * CLIENTS as f64 / per_s) as u64;
    let query = "SELECT n, longest FROM totals WHERE k = $1";
    std::thread::scope(|scope| {
        let client = |number: u64| -> Result<Vec<f64>, String> {
            let mut client = server.client()?;
            let failed = |error| refused(query, &error);
            let prepared = client.prepare(query).map_err(failed)?;
            let mut random = fastrand::Rng::with_seed(number);
            let mut times_ms = Vec::new();
            let mut due_ns = now_ns() + every_ns * number / CLIENTS;
            while due_ns < end_ns {
                sleep_until(due_ns);
                let begun_ns = now_ns();
                let rows = client.query(&prepared, &[&random.i64(0..KEYS)]);
                if rows.map_err(failed)?.len() > 1 {
                    return Err(format!("{query}: more than one row"));
                }
                times_ms.push((now_ns() - begun_ns) as f64 / 1e6);
                // A client that is behind does not send a burst.
                due_ns = (due_ns + every_ns).max(begun_ns);
            }
            Ok(times_ms)
        };
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || client(number)));
        let clients = clients.collect::<Vec<_>>();
        let usage = server.usage_over(time);
        let mut times_ms = Vec::new();
        for client in clients {
            let read = client.join().map_err(|_| "a client panicked")?;
            times_ms.append(&mut read?);
        }
        Ok((usage?.percent(), times_ms))
    })
}
