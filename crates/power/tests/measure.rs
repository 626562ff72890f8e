//! What a beat saves and what the manager costs: figures for people, printed and not asserted.
//!
//! ```text
//! cargo build --release -p slackwater-power
//! POWER_PROGRAM=target/release/slackwater-power \
//!   cargo test -p slackwater-power --test main measure -- --ignored --nocapture
//! ```

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slackwater_power::{resp, system};

use crate::manager::{Place, eventually};
use crate::redis::{Server, group, server};

/// Replicas, writes a second, and how long each part is measured.
const REPLICAS: usize = 3;
const RATE: u64 = 1_500;
const PART: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(5);

/// CPU time, and how often a process slept.
fn cost(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let sleeps = line
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0);
    (system::cpu_time_ns(pid).unwrap_or(0), sleeps)
}

fn load(address: SocketAddr, writes: &AtomicU64, goes_on: &AtomicBool) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut replies = stream.try_clone().unwrap();
    let reader =
        thread::spawn(move || while replies.read(&mut [0; 65_536]).is_ok_and(|read| read > 0) {});
    let value = "x".repeat(1_024);
    let start = Instant::now();
    for number in 0u64.. {
        if !goes_on.load(Ordering::Relaxed) {
            break;
        }
        let due = start + Duration::from_nanos(number * 1_000_000_000 / RATE);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let command = resp::command(&["SET", &format!("key:{:06}", number % 1_000), &value]);
        stream.write_all(&command).unwrap();
        writes.fetch_add(1, Ordering::Relaxed);
    }
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    reader.join().unwrap();
}

/// Ends the load also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "measures for minutes"]
fn a_beat_saves_cpu_time_of_a_replica() {
    // Nothing is pinned: what is measured is the beat.
    let place = Place::without_clocks();
    let Some((master, replicas)) = group(&place, REPLICAS) else {
        return;
    };
    let (writes, goes_on) = (AtomicU64::new(0), AtomicBool::new(true));
    let part = |name: &str, more: &[(&'static str, u32)]| {
        let servers = replicas.iter().map(|replica| ("replica", replica.pid()));
        let all = servers.chain([("master", master.pid())]);
        let all = all.chain(more.iter().copied());
        let all = all.collect::<Vec<(&str, u32)>>();
        let before = all.iter().map(|(_, pid)| cost(*pid));
        let before = before.collect::<Vec<(u64, u64)>>();
        let (written, began) = (writes.load(Ordering::Relaxed), Instant::now());
        let mut lags = Vec::new();
        while began.elapsed() < PART {
            let sent = master.offset();
            lags.push(sent - replicas[0].offset());
            thread::sleep(Duration::from_millis(97));
        }
        let seconds = began.elapsed().as_secs_f64();
        let written = (writes.load(Ordering::Relaxed) - written).max(1);
        lags.sort_unstable();
        println!(
            "{name}: {:.0} SET/s, bytes behind at {} looks: median {}, most {}",
            written as f64 / seconds,
            lags.len(),
            lags[lags.len() / 2],
            lags[lags.len() - 1]
        );
        for ((name, pid), before) in all.iter().zip(&before) {
            let (cpu_ns, sleeps) = cost(*pid);
            let cpu_ns = cpu_ns - before.0;
            println!(
                "  {name:8} {:6.2} us/write  {:5.2} % of a core  {:6.0} sleeps/s",
                cpu_ns as f64 / 1e3 / written as f64,
                cpu_ns as f64 / 1e7 / seconds,
                (sleeps - before.1) as f64 / seconds
            );
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| load(master.address(), &writes, &goes_on));
        let _ends = Ends(&goes_on);
        for _ in 0..3 {
            part("as it is", &[]);
            let mut manager = place.manage(master.address(), &["--lag", "20ms"]);
            eventually("a beat", || {
                let beats = |replica: &Server| {
                    server(&place, replica).is_some_and(|server| server.beats > 100)
                };
                replicas.iter().all(beats)
            });
            // Rounds are short for a while after a change.
            thread::sleep(SETTLE);
            let head = manager.head().unwrap();
            let beat = server(&place, &replicas[0]).and_then(|server| server.beat_ns);
            part(
                &format!("with a beat of {:?} us", beat.map(|ns| ns / 1_000)),
                &[("hand", manager.hand), ("head", head)],
            );
            for (name, pid) in [("hand", manager.hand), ("head", head)] {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let lines = status
                    .lines()
                    .filter(|line| line.starts_with("VmRSS") || line.starts_with("RssAnon"));
                println!("  {name}: {}", lines.collect::<Vec<&str>>().join(", "));
            }
            assert_eq!(manager.stop(), Some(0));
        }
    });
    let mut manager = place.manage(master.address(), &["--lag", "20ms"]);
    let head = manager.head();
    thread::sleep(Duration::from_secs(25));
    let pids = [manager.hand, head.or_else(|| manager.head()).unwrap()];
    let before = pids.map(cost);
    thread::sleep(3 * PART);
    let seconds = 3.0 * PART.as_secs_f64();
    for ((pid, before), name) in pids.iter().zip(before).zip(["hand", "head"]) {
        let (cpu_ns, sleeps) = cost(*pid);
        println!(
            "in silence, {name}: {:.3} % of a core, {:.2} sleeps/s",
            (cpu_ns - before.0) as f64 / 1e7 / seconds,
            (sleeps - before.1) as f64 / seconds
        );
    }
}
