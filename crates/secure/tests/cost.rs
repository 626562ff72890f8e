//! What a seal costs: CPU time per gigabyte and side of a link over loopback, in clear and sealed, for
//! frames of three lengths; and memory and CPU time per handshake. Prints each round and the medians.
//!
//! ```text
//! cargo test --release -p slackwater-secure --test cost -- --ignored --nocapture
//! ```

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use slackwater_link::tcp::{Acceptor, Identity, Seal, Settings, Writer};
use slackwater_link::{Listen, SendError, Sources, Waiter};
use slackwater_secure::Secret;

const ROUNDS: usize = 5;

const HANDSHAKES: u32 = 300;

const LINK: u64 = 1;

/// The lengths of frames, and how many gigabytes of each are sent.
const FRAMES: [(usize, f64); 3] = [(200, 0.2), (8 << 10, 1.0), (64 << 10, 2.0)];

/// The time that this thread has spent on a processor, in seconds.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn sleep(waiter: &Waiter, look: impl FnOnce() -> bool) {
    waiter.announce(Listen::Everything);
    if look() {
        waiter.retract();
    } else {
        let longest = Some(Duration::from_secs(1));
        waiter.wait(longest, Sources::All).expect("a wait");
    }
}

/// CPU seconds of the writing and of the reading thread, and seconds.
fn stream(secret: Option<&Secret>, length: usize, frames: u64) -> [f64; 3] {
    let identity = Identity {
        epoch: 1,
        token: [7; 16],
    };
    let settings = Settings::default();
    let guard = secret.map(Secret::guard);
    let any_port = "127.0.0.1:0".parse().expect("an address");
    let acceptor = Acceptor::bind_guarded(any_port, identity, settings, guard.clone());
    let acceptor = acceptor.expect("a port");
    let waiter = Waiter::new().expect("a waiter");
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let address = acceptor.local_address();
    let writing = std::thread::spawn(move || {
        let waiter = Waiter::new().expect("a waiter");
        let mut writer: Writer<std::sync::Arc<[u8]>> = Writer::connect_guarded(
            address,
            identity,
            LINK,
            "the reader",
            &waiter,
            settings,
            guard,
        );
        let payload: std::sync::Arc<[u8]> = vec![7; length].into();
        let start = cpu_s();
        for number in 0..frames {
            let mut message = vec![payload.clone()];
            while let Err(error) = writer.post(message) {
                assert!(matches!(error, SendError::Full(_)), "{:?}", writer.error());
                message = error.into_message();
                writer.push(false);
                sleep(&waiter, || writer.has_room());
            }
            if number % 64 == 63 {
                writer.push(false);
            }
        }
        writer.close();
        writer.push(false);
        while !writer.is_drained() {
            sleep(&waiter, || {
                writer.push(false);
                writer.is_drained()
            });
        }
        cpu_s() - start
    });
    let (start, started) = (cpu_s(), Instant::now());
    let mut received = 0;
    while !reader.is_closed() {
        match reader.receive().expect("a sound link") {
            Some(frame) => received += frame.len() as u64,
            None => {
                let mut found = None;
                sleep(&waiter, || {
                    found = reader.receive().expect("a sound link");
                    found.is_some() || reader.is_closed()
                });
                received += found.map_or(0, |frame| frame.len() as u64);
            }
        }
    }
    assert_eq!(received, frames * length as u64);
    let reading = cpu_s() - start;
    let writing = writing.join().expect("the writing thread");
    [writing, reading, started.elapsed().as_secs_f64()]
}

/// CPU milliseconds of a handshake at the connecting and at the accepting side.
fn handshakes(secret: &Secret) -> [f64; 2] {
    let guard = secret.guard();
    let mut spent = [0.0; 2];
    for _ in 0..HANDSHAKES {
        let start = cpu_s();
        let mut connecting = guard.connecting().expect("a seal");
        spent[0] += cpu_s() - start;
        let start = cpu_s();
        let mut accepting = guard.accepting().expect("a seal");
        spent[1] += cpu_s() - start;
        while !(connecting.is_ready() && accepting.is_ready()) {
            spent[0] += hand_over(&mut *connecting, &mut *accepting, &mut spent[1]);
            spent[1] += hand_over(&mut *accepting, &mut *connecting, &mut spent[0]);
        }
    }
    spent.map(|seconds| seconds * 1e3 / f64::from(HANDSHAKES))
}

/// Gives one side's messages to the other. Returns the time of the first, and adds that of the second.
fn hand_over(from: &mut dyn Seal, to: &mut dyn Seal, theirs: &mut f64) -> f64 {
    let start = cpu_s();
    let mut sent = Vec::new();
    from.pay(&mut sent).expect("memory takes everything");
    let ours = cpu_s() - start;
    let start = cpu_s();
    let mut rest = &sent[..];
    while !rest.is_empty() {
        to.take(&mut rest).expect("memory gives everything");
        to.open(&mut []).expect("a peer with the secret");
    }
    *theirs += cpu_s() - start;
    ours
}

/// The memory of a handshake in progress, of which a stranger sent the first message, in KB.
fn memory_kb(secret: &Secret) -> f64 {
    const HELD: usize = 2_000;
    let resident_kb = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse::<f64>().ok())
            .expect("a size")
    };
    let guard = secret.guard();
    let mut hello = Vec::new();
    let mut connecting = guard.connecting().expect("a seal");
    connecting.pay(&mut hello).expect("memory takes everything");
    let before = resident_kb();
    let seals = (0..HELD).map(|_| {
        let mut seal = guard.accepting().expect("a seal");
        let mut answer = Vec::new();
        seal.take(&mut &hello[..]).expect("memory gives everything");
        seal.open(&mut []).expect("a greeting");
        seal.pay(&mut answer).expect("memory takes everything");
        seal
    });
    let seals: Vec<_> = seals.collect();
    (resident_kb() - before) / seals.len() as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
#[ignore = "measures, for a minute"]
fn cost_of_a_seal() {
    let secret = Secret::generate().expect("randomness");
    println!("a handshake: {:.1} KB", memory_kb(&secret));
    for (length, gigabytes) in FRAMES {
        let frames = (gigabytes * 1e9) as u64 / length as u64;
        let mut figures = [[(); 3]; 2].map(|row| row.map(|()| Vec::new()));
        for round in 0..ROUNDS {
            // In turn, so that what else the machine does meets both.
            for (kind, secret) in [None, Some(&secret)].into_iter().enumerate() {
                let seconds = stream(secret, length, frames);
                let per_gigabyte = seconds.map(|seconds| seconds / gigabytes);
                println!("{length} bytes, round {round}, kind {kind}: {per_gigabyte:.3?} s/GB");
                for (all, one) in figures[kind].iter_mut().zip(per_gigabyte) {
                    all.push(one);
                }
            }
        }
        for (kind, figures) in ["in clear", "sealed"].iter().zip(figures) {
            let [writer, reader, time] = figures.map(median);
            println!(
                "{length} bytes, {kind}: writer {writer:.3}, reader {reader:.3} CPU s/GB, {:.2} GB/s",
                1.0 / time
            );
        }
    }
    let rounds = (0..ROUNDS).map(|_| handshakes(&secret));
    let (connecting, accepting): (Vec<_>, Vec<_>) = rounds.map(|[one, other]| (one, other)).unzip();
    println!(
        "a handshake: connecting {:.3}, accepting {:.3} CPU ms",
        median(connecting),
        median(accepting)
    );
}
