//! Messages there and back between two processes, each with a reader and a writer: what a link costs over TCP
//! and over AF_XDP sockets. `tests/transport/bench.py` starts both, in network namespaces of their own.
//!
//! ```text
//! transport ping|pong tcp|xdp spin|sleep ADDRESS BYTES RATE SECONDS CORE
//! ```
//!
//! Each prints its port, and reads the other's address and port from its input. At rate 0, 64 messages (16 of
//! more than 4 KiB) are on their way at any time.

use std::io::{BufRead, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use slackwater_link::tcp::{Acceptor, Carrier, Identity, Reader, Settings, Writer};
use slackwater_link::{Listen, SendError, Sources, Waiter, pin_to_core, set_timer_slack_ns};

const IDENTITY: Identity = Identity {
    epoch: 1,
    token: *b"transport bench.",
};

struct Ends {
    reader: Reader,
    writer: Writer<Vec<u8>>,
    waiter: Waiter,
    spins: bool,
    // Until the end: writers may come again.
    _acceptor: Acceptor,
}

struct Arguments {
    pings: bool,
    frames: bool,
    spins: bool,
    address: IpAddr,
    bytes: usize,
    rate: f64,
    seconds: f64,
    core: usize,
}

fn arguments() -> Option<Arguments> {
    let all = std::env::args().skip(1).collect::<Vec<String>>();
    let [role, link, waiting, address, bytes, rate, seconds, core] = &all[..] else {
        return None;
    };
    let one_of = |value: &str, yes: &str, no: &str| match value {
        value if value == yes => Some(true),
        value if value == no => Some(false),
        _ => None,
    };
    Some(Arguments {
        pings: one_of(role, "ping", "pong")?,
        frames: one_of(link, "xdp", "tcp")?,
        spins: one_of(waiting, "spin", "sleep")?,
        address: address.parse().ok()?,
        bytes: bytes.parse().ok().filter(|bytes| *bytes >= 8)?,
        rate: rate.parse().ok()?,
        seconds: seconds.parse().ok()?,
        core: core.parse().ok()?,
    })
}

fn main() {
    let Some(arguments) = arguments() else {
        eprintln!(
            "error: give ping|pong tcp|xdp spin|sleep ADDRESS BYTES RATE SECONDS CORE, BYTES 8 or more"
        );
        std::process::exit(2);
    };
    if let Err(error) = run(&arguments) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    set_timer_slack_ns(1_000);
    pin_to_core(arguments.core)?;
    let carrier = Carrier {
        guard: None,
        transport: match arguments.frames {
            false => None,
            true => Some(device(arguments.address)?),
        },
    };
    let waiter = Waiter::new()?;
    let address = SocketAddr::from((arguments.address, 0));
    let settings = Settings::default();
    let acceptor = Acceptor::bind_guarded(address, IDENTITY, settings, carrier.clone())?;
    let reader = acceptor.reader(0, "the other process", &waiter);
    println!("{}", acceptor.local_address().port());
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let peer = line.trim().parse().map_err(std::io::Error::other)?;
    let writer = Writer::connect_guarded(
        peer,
        IDENTITY,
        0,
        "the other process",
        &waiter,
        settings,
        carrier,
    );
    let mut ends = Ends {
        reader,
        writer,
        waiter,
        spins: arguments.spins,
        _acceptor: acceptor,
    };
    match arguments.pings {
        true => ping(&mut ends, arguments),
        false => pong(&mut ends),
    }
    Ok(())
}

#[cfg(feature = "xdp")]
fn device(address: IpAddr) -> std::io::Result<std::sync::Arc<dyn slackwater_link::tcp::Transport>> {
    Ok(std::sync::Arc::new(slackwater_link::tcp::xdp::Device::at(
        address, 8,
    )?))
}

#[cfg(not(feature = "xdp"))]
fn device(
    _address: IpAddr,
) -> std::io::Result<std::sync::Arc<dyn slackwater_link::tcp::Transport>> {
    Err(std::io::Error::other("build it with --features xdp"))
}

fn now_ns() -> u64 {
    clock_ns(rustix::time::ClockId::Monotonic)
}

fn cpu_ns() -> u64 {
    clock_ns(rustix::time::ClockId::ProcessCPUTime)
}

fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Ends {
    /// Sends a message as soon as there is room.
    fn send(&mut self, mut message: Vec<u8>) {
        loop {
            match self.writer.post(vec![message]) {
                Ok(()) => return,
                Err(SendError::Full(mut pieces)) => {
                    message = pieces.pop().expect("the message");
                    self.writer.push(false);
                    self.rest(None, |ends| ends.writer.has_room());
                }
                Err(SendError::Closed(_)) => panic!("closed: {:?}", self.writer.error()),
            }
        }
    }

    fn receive(&mut self) -> Option<slackwater_link::Frame> {
        self.reader.receive().expect("a sound link")
    }

    /// Waits until something happens, a link is due, or `until_ns`; does not wait if `look` finds something.
    fn rest(&mut self, until_ns: Option<u64>, look: impl FnOnce(&mut Ends) -> bool) {
        if self.spins {
            std::hint::spin_loop();
            // Continues what the link did not take whole.
            self.writer.push(false);
            return;
        }
        self.waiter.announce(Listen::Everything);
        if look(self) {
            self.waiter.retract();
            return;
        }
        let due = [self.writer.due_ns(), self.reader.due_ns(), until_ns];
        let due_ns = due.into_iter().flatten().min();
        let timeout = due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns())));
        self.waiter.wait(timeout, Sources::All).expect("a wait");
        self.writer.push(false);
    }
}

/// Sends back what comes, all of a round together.
fn pong(ends: &mut Ends) {
    let spins = std::mem::replace(&mut ends.spins, false);
    let mut first = None;
    let mut count = 0;
    let mut found = None;
    loop {
        let mut has_some = false;
        while let Some(frame) = found.take().or_else(|| ends.receive()) {
            first.get_or_insert_with(|| (cpu_ns(), now_ns()));
            count += 1;
            ends.spins = spins;
            ends.send(frame.to_vec());
            has_some = true;
        }
        if has_some {
            ends.writer.push(false);
            continue;
        }
        if ends.reader.is_closed() {
            break;
        }
        ends.rest(None, |ends| {
            found = ends.receive();
            found.is_some() || ends.reader.is_closed()
        });
    }
    let (cpu, _) = first.unwrap_or_default();
    println!("{{\"cpu_ns\": {}, \"messages\": {count}}}", cpu_ns() - cpu);
    ends.writer.close();
    while !ends.writer.is_drained() && !ends.writer.is_closed() {
        ends.writer.push(false);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ping(ends: &mut Ends, arguments: &Arguments) {
    let mut latencies = Vec::with_capacity(1 << 20);
    let message = |bytes: usize| {
        let mut message = vec![7; bytes];
        message[..8].copy_from_slice(&now_ns().to_le_bytes());
        message
    };
    let stamp = |frame: &[u8]| u64::from_le_bytes(frame[..8].try_into().expect("eight bytes"));
    // Until the links are made, and warm. The acceptor's thread is on this core, too.
    let spins = std::mem::replace(&mut ends.spins, false);
    for _ in 0..200 {
        ends.send(message(arguments.bytes));
        ends.writer.push(false);
        while ends.receive().is_none() {
            ends.rest(None, |_| false);
        }
    }
    ends.spins = spins;
    let most = match (arguments.rate > 0.0, arguments.bytes > 4096) {
        (true, true) => 64,
        (true, false) => 512,
        (false, true) => 16,
        (false, false) => 64,
    };
    let (start, cpu) = (now_ns(), cpu_ns());
    let end = start + (arguments.seconds * 1e9) as u64;
    let pause_ns = match arguments.rate > 0.0 {
        true => 1e9 / arguments.rate,
        false => 0.0,
    };
    let (mut sent, mut received) = (0u64, 0u64);
    let mut found = None;
    loop {
        let now = now_ns();
        let due_at = |sent: u64| start + (sent as f64 * pause_ns) as u64;
        let mut has_sent = false;
        while now < end && sent - received < most && due_at(sent) <= now {
            ends.send(message(arguments.bytes));
            (sent, has_sent) = (sent + 1, true);
        }
        if has_sent {
            ends.writer.push(false);
        }
        let mut has_some = false;
        while let Some(frame) = found.take().or_else(|| ends.receive()) {
            latencies.push(now_ns().saturating_sub(stamp(&frame)) as u32);
            (received, has_some) = (received + 1, true);
        }
        if now >= end && received == sent {
            break;
        }
        if has_some {
            continue;
        }
        let next = (sent - received < most && now < end).then(|| due_at(sent).min(end));
        ends.rest(next, |ends| {
            found = ends.receive();
            found.is_some()
        });
    }
    let (elapsed, cpu) = (now_ns() - start, cpu_ns() - cpu);
    latencies.sort_unstable();
    let at = |share: f64| f64::from(latencies[(latencies.len() as f64 * share) as usize]) / 1e3;
    println!(
        "{{\"cpu_ns\": {cpu}, \"messages\": {received}, \"rate\": {:.0}, \"p50_us\": {:.1}, \
         \"p99_us\": {:.1}}}",
        received as f64 / elapsed as f64 * 1e9,
        at(0.5),
        at(0.99),
    );
    ends.writer.close();
    while !ends.writer.is_drained() && !ends.writer.is_closed() {
        ends.writer.push(false);
        std::thread::sleep(Duration::from_millis(1));
    }
}
