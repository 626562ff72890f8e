//! The two sides as programs: a leader that takes orders, and the follower that it starts.
//!
//! The leader reads orders from its standard input and writes answers to its standard output, a
//! line of JSON each. It starts its follower as a thread, for links inside a process, or as another
//! process of the same program with the control socket as an inherited descriptor.

use std::io::{BufRead, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};

use super::control::Control;
use super::frames::FrameSide;
use super::order::{Answer, Order};
use super::patterns;
use super::queues::LinkSide;
use super::side::Side;
use super::{Cores, Kind, pin};

/// What the follower sends before and after each order.
const READY: &str = "ready";

/// Runs one of this program's own kinds as the leader or, given the control socket, as the follower. `again`
/// creates the command that starts the follower.
pub fn run(
    kind: Kind,
    cores: Cores,
    follow: Option<RawFd>,
    again: impl FnOnce(RawFd) -> Result<Command, String>,
) -> Result<(), String> {
    let Some(descriptor) = follow else {
        if kind == Kind::InProcess {
            let (leader, follower) = LinkSide::pair()?;
            return lead_thread(leader, follower, cores);
        }
        let (control, child) = start_follower(again)?;
        let led = lead_kind(kind, &control, cores);
        // The end of the control socket ends the follower.
        drop(control);
        return with_child(child, led);
    };
    pin(cores.follower)?;
    let control = inherit(descriptor)?;
    match kind {
        Kind::InProcess => Err("a link inside a process has no second process".to_string()),
        Kind::ShmLent => follow_all(FrameSide::shared_memory(&control, false)?, &control),
        Kind::ShmCopied => follow_all(FrameSide::shared_memory(&control, true)?, &control),
        Kind::TcpLink => follow_all(FrameSide::tcp(&control)?, &control),
    }
}

fn lead_kind(kind: Kind, control: &Control, cores: Cores) -> Result<(), String> {
    pin(cores.leader)?;
    match kind {
        Kind::InProcess => unreachable!("it has no second process"),
        Kind::ShmLent => lead_all(FrameSide::shared_memory(control, false)?, control),
        Kind::ShmCopied => lead_all(FrameSide::shared_memory(control, true)?, control),
        Kind::TcpLink => lead_all(FrameSide::tcp(control)?, control),
    }
}

/// The control socket that this process was started with.
pub fn inherit(descriptor: RawFd) -> Result<Control, String> {
    if descriptor <= 2 {
        return Err(format!(
            "--follow {descriptor}: not the descriptor of a socket"
        ));
    }
    // SAFETY: the process that started this one passed it on for this use alone; a wrong number is
    // found by the first call.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(Control::of(socket))
}

/// Starts the follower as another process; `again` gets the number of its control socket.
pub fn start_follower(
    again: impl FnOnce(RawFd) -> Result<Command, String>,
) -> Result<(Control, Child), String> {
    let (control, theirs) = Control::pair()?;
    // Unlike the pair itself, a duplicate stays open when another program is started.
    let inherited = rustix::io::dup(&theirs).map_err(|error| format!("no descriptor: {error}"))?;
    let mut command = again(inherited.as_raw_fd())?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command
        .spawn()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    Ok((control, child))
}

/// Waits for the follower's end after the leader's.
pub fn with_child(mut child: Child, led: Result<(), String>) -> Result<(), String> {
    if led.is_err() {
        // The follower may be waiting for the leader. The leader's error is returned; the follower prints its
        // own.
        let _ = child.kill();
    }
    let _ = child.wait();
    led
}

/// Leads with the follower as a thread of this process.
pub fn lead_thread<S: Side + Send>(leader: S, follower: S, cores: Cores) -> Result<(), String> {
    let (control, theirs) = Control::pair()?;
    std::thread::scope(|scope| {
        let following = scope.spawn(move || {
            pin(cores.follower)?;
            follow_all(follower, &Control::of(theirs))
        });
        let leading = scope.spawn(move || {
            pin(cores.leader)?;
            lead_all(leader, &control)
        });
        // The leader's control socket is gone with it, which ends the follower.
        let led = leading.join().map_err(|_| "the leader panicked")?;
        let followed = following.join().map_err(|_| "the follower panicked")?;
        led.and(followed)
    })
}

/// Follows orders until the leader is gone.
pub fn follow_all<S: Side>(mut side: S, control: &Control) -> Result<(), String> {
    while let Some((order, _)) = control.receive::<Order>()? {
        let ready = || control.send(&READY, &[]);
        let cpu_s = patterns::follow(&mut side, &order, ready)?;
        control.send(&cpu_s, &[])?;
    }
    Ok(())
}

/// Takes orders from standard input until it ends.
pub fn lead_all<S: Side>(mut side: S, control: &Control) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input: {error}"))?;
        let order = serde_json::from_str::<Order>(&line)
            .map_err(|error| format!("an order that can't be read: {error}"))?;
        let answer = match side.supports(&order) {
            Err(reason) => Answer::Unsupported(reason),
            Ok(()) => {
                lead_one(&mut side, control, &order.warm_up())?;
                lead_one(&mut side, control, &order)?
            }
        };
        let answer = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
        let written = writeln!(out, "{answer}").and_then(|()| out.flush());
        written.map_err(|error| format!("standard output: {error}"))?;
    }
    Ok(())
}

fn lead_one<S: Side>(side: &mut S, control: &Control, order: &Order) -> Result<Answer, String> {
    side.prepare(order)?;
    control.send(order, &[])?;
    control.expect::<String>()?;
    let mut sample = patterns::lead(side, order)?;
    let (receiver_cpu_s, _) = control.expect::<f64>()?;
    sample.receiver_cpu_s = receiver_cpu_s;
    Ok(Answer::Sample(sample))
}
