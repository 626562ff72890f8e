//! Hosts to which nothing comes.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::cluster::{Cluster, Engine, wait_until};
use super::figures::Idle;
use super::{HOSTS, Way};
use crate::lab::processes::with_descendants;
use crate::usage::Reading;

/// How long the hosts may take to start, and to come to rest after the rows.
const PATIENCE: Duration = Duration::from_secs(60);

/// They are at rest if nothing happens for this long: longer than any interval at which hosts speak to
/// each other while there is work.
const REST: Duration = Duration::from_secs(2);

/// Rows before the silence.
const ROWS: &str = "1000,a\n1500,b\n2500,c\n";

/// Starts the hosts, waits until they are at rest, and watches them.
pub fn measure(engine: &Engine, way: Way, seconds: u64) -> Result<Idle, String> {
    eprintln!("idle: {}, {seconds} s", way.name());
    let failed = |error: std::io::Error| format!("127.0.0.1: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let text = format!(
        "CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts) \
         WITH ('connector' = 'tcp', 'address' = '{address}', \
         'format' = 'csv');\n\
         CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'blackhole');\n\
         INSERT INTO o SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND) \
         GROUP BY window_start, window_end, k;\n"
    );
    let mut cluster = engine.start(way, &text)?;
    let mut peer = peer(&listener, &mut cluster)?;
    peer.write_all(ROWS.as_bytes()).map_err(failed)?;
    let mut last = activity(&cluster)?;
    wait_until("the hosts are at rest", PATIENCE, || {
        std::thread::sleep(REST);
        let now = activity(&cluster)?;
        let rest = now.switches() == last.switches();
        last = now;
        Ok(rest)
    })
    .or_else(|error| {
        // What doesn't come to rest is what is measured.
        eprintln!("note: {error}");
        Ok::<(), String>(())
    })?;
    let begin = activity(&cluster)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let end = activity(&cluster)?;
    if begin.processes != end.processes {
        return Err(
            "a process has ended, or was started, while idle hosts were watched".to_string(),
        );
    }
    let usages = begin.readings.iter().zip(&end.readings);
    let usages = usages.map(|(begin, end)| begin.until(end));
    let usages = usages.collect::<Vec<_>>();
    Ok(Idle {
        way,
        hosts: HOSTS,
        processes: begin.processes.len(),
        seconds,
        wake_ups: usages.iter().map(|usage| usage.voluntary_switches).sum(),
        cpu_ms: usages.iter().map(|usage| usage.cpu_s * 1e3).sum(),
    })
}

/// The connection of the source.
fn peer(listener: &TcpListener, cluster: &mut Cluster) -> Result<TcpStream, String> {
    let mut found = None;
    wait_until("the query connects to its source", PATIENCE, || {
        if cluster.orchestrator.is_over() {
            return Err(cluster.orchestrator.failed("it has ended"));
        }
        found = listener.accept().ok().map(|(stream, _)| stream);
        Ok(found.is_some())
    })?;
    found.ok_or_else(|| "the query has not connected".to_string())
}

/// What all processes have done so far.
struct Activity {
    processes: Vec<u32>,
    readings: Vec<Reading>,
}

impl Activity {
    fn switches(&self) -> u64 {
        self.readings.iter().map(Reading::voluntary_switches).sum()
    }
}

fn activity(cluster: &Cluster) -> Result<Activity, String> {
    let mut own = vec![&cluster.orchestrator];
    own.extend(&cluster.agents);
    let processes = own.iter().flat_map(|own| with_descendants(own.id()));
    let processes = processes.collect::<Vec<u32>>();
    let readings = processes.iter().map(|&pid| Reading::of_process(pid));
    Ok(Activity {
        readings: readings.collect::<Result<Vec<Reading>, String>>()?,
        processes,
    })
}
