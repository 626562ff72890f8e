//! The generator: a process of its own, whose two threads send the records and receive the rows.
//!
//! ```text
//! bench target ── order ──► generator: listens at two ports
//!      │    ◄── addresses ──
//!      ├── starts the engine, which connects to both
//!      │    ◄── interval ───  sends until its end and a little longer, then closes
//!      │ reads what the engine used at the interval's two ends
//!      │    ◄── figures ────  when the engine has disconnected, and every row was checked
//! ```
//!
//! Shutdown: the generator answers and ends, or reports the reason of a failure on standard error and
//! ends. It also ends when one of the connections ends, after [`TIMEOUT`] without data, and with the
//! process that started it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::RawFd;
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use slackwater_engine::time::now_ns;
use slackwater_link::set_timer_slack_ns;

use super::order::{Generated, Order};
use super::query::Addresses;
use super::receiver::{TIMEOUT, Tally, receive};
use super::sender::send;
use crate::common::{Interval, Latency};
use crate::part_process::PartProcess;
use slackwater::measure;
use slackwater::measure::program::inherit;

/// Time between the connections and the first record, in which the engine opens the rest of its parts.
const LEAD_NS: u64 = 50_000_000;

/// Runs the generator.
pub fn run(descriptor: RawFd) -> Result<(), String> {
    let control = inherit(descriptor)?;
    // If the parent process is killed, the figures are no longer needed.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("can't arrange to end with the parent process: {error}"))?;
    let (order, _) = control.expect::<Order>()?;
    measure::pin(order.core)?;
    let (records, rows) = (listen()?, listen()?);
    let addresses = Addresses {
        records: address(&records)?,
        rows: address(&rows)?,
    };
    control.send(&addresses, &[])?;
    let mut to_engine = accept(&records, "its records")?;
    let mut from_engine = accept(&rows, "its rows")?;
    let start_ns = now_ns() + LEAD_NS;
    let begin_ns = start_ns + order.warm_up_ns;
    let interval = Interval {
        begin_ns,
        end_ns: begin_ns + order.time_ns,
    };
    control.send(&interval, &[])?;
    let tally = Tally::new(&order, start_ns, interval);
    let receiving = std::thread::spawn(move || {
        set_timer_slack_ns(1);
        receive(&mut from_engine, tally)
    });
    set_timer_slack_ns(1);
    let sending = send(&order, start_ns, interval, &mut to_engine);
    // Ends the records, including those that were not accepted.
    drop(to_engine);
    let receiving = receiving.join().map_err(|_| "the receiver panicked")?;
    let (sent, lag) = sending?;
    let tally = receiving?;
    tally.check(&sent)?;
    let latencies = tally.latencies();
    let generated = Generated {
        sent,
        received: tally.received,
        rows: latencies.len(),
        latency: (!latencies.is_empty()).then(|| Latency::of(latencies)),
        lag,
        reads: tally.reads,
    };
    control.send(&generated, &[])
}

fn listen() -> Result<TcpListener, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|error| format!("no free port of the loopback address: {error}"))
}

fn address(listener: &TcpListener) -> Result<SocketAddr, String> {
    let address = listener.local_addr();
    address.map_err(|error| format!("can't read a socket's address: {error}"))
}

fn accept(listener: &TcpListener, what: &str) -> Result<TcpStream, String> {
    let failed = |error: std::io::Error| format!("the connection for {what}: {error}");
    let patience = Timespec {
        tv_sec: TIMEOUT.as_secs() as i64,
        tv_nsec: 0,
    };
    let polled = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&patience));
    if polled.map_err(|error| failed(error.into()))? == 0 {
        let seconds = TIMEOUT.as_secs();
        return Err(format!(
            "the query did not connect for {what} within {seconds} s"
        ));
    }
    let (stream, _) = listener.accept().map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    Ok(stream)
}

/// The generator, as the parent process sees it. Dropping this ends its process.
pub struct Generator(PartProcess);

impl Generator {
    /// Starts a generator with an order; returns the addresses at which it listens.
    pub fn start(order: &Order) -> Result<(Generator, Addresses), String> {
        let child = PartProcess::start("target-part")?;
        child.send(order, &[])?;
        let addresses = child.receive::<Addresses>()?;
        let addresses = addresses.ok_or("the generator has ended; see above for the reason")?;
        Ok((Generator(child), addresses))
    }

    /// The measured interval, which is known as soon as the query has connected. `None` if the process
    /// that runs the query ends before that.
    pub fn interval(&self, query: &Child) -> Result<Option<Interval>, String> {
        let failed = |error: rustix::io::Errno| format!("the process of the query: {error}");
        let pid = rustix::process::Pid::from_child(query);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let process = process.map_err(failed)?;
        let mut ends = [
            PollFd::new(&self.0, PollFlags::IN),
            PollFd::new(&process, PollFlags::IN),
        ];
        while let Err(error) = poll(&mut ends, None) {
            if error != rustix::io::Errno::INTR {
                return Err(failed(error));
            }
        }
        if ends[0].revents().is_empty() {
            return Ok(None);
        }
        self.0.receive::<Interval>()
    }

    /// The generator's process id.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// The generator's measurements; `None` if it failed and reported the reason on standard error.
    pub fn finish(&self) -> Result<Option<Generated>, String> {
        self.0.receive::<Generated>()
    }
}
