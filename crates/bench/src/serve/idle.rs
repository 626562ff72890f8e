//! Jobs to which nothing comes.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::Plan;
use super::figures::Idle;
use super::server::{PATIENCE, Server};

/// After the last job was created, until they are idle: their first checkpoint is stored.
const SETTLE: Duration = Duration::from_secs(12);

/// How long they are watched.
const WATCHED: Duration = Duration::from_secs(30);

/// Creates the jobs, waits, and watches them.
pub fn measure(plan: &Plan) -> Result<Idle, String> {
    let failed = |error: std::io::Error| format!("127.0.0.1: {error}");
    let peer = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = peer.local_addr().map_err(failed)?;
    // A peer that accepts, and says nothing. The thread ends with the process.
    std::thread::spawn(move || peer.incoming().flatten().collect::<Vec<_>>());
    let server = Server::start(&plan.folder, "idle")?;
    let table = format!(
        "CREATE TABLE t (k BIGINT, v BIGINT) WITH ('connector' = 'tcp', 'address' = '{address}', \
         'format' = 'csv')"
    );
    server.run(&[&table])?;
    let before = server.processes().len();
    let begun = Instant::now();
    for number in 0..plan.jobs {
        server.run(&[&format!(
            "CREATE MATERIALIZED VIEW v{number} AS SELECT k, COUNT(*) AS n FROM t WHERE v > {number} \
             GROUP BY k"
        )])?;
    }
    let created_s = begun.elapsed().as_secs_f64();
    std::thread::sleep(SETTLE);
    let begin = Instant::now();
    let usage = server.usage_over(WATCHED)?;
    if begin.elapsed() > WATCHED + PATIENCE {
        return Err("the machine is too busy to watch idle jobs".to_string());
    }
    let processes = server.processes();
    let (mut pss_kb, mut rss_kb) = (0, 0);
    for pid in &processes {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        pss_kb += field(&text, "Pss:").ok_or_else(|| format!("{path} has no line Pss"))?;
        rss_kb += field(&text, "Rss:").ok_or_else(|| format!("{path} has no line Rss"))?;
    }
    Ok(Idle {
        jobs: plan.jobs,
        processes: (processes.len() - before) as u32,
        created_s,
        pss_mb: pss_kb as f64 / 1e3,
        rss_mb: rss_kb as f64 / 1e3,
        watched_s: usage.wall_s,
        wake_ups: usage.voluntary_switches,
        cpu_ms: usage.cpu_s * 1e3,
    })
}

/// The kilobytes of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
