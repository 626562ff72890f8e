//! The processes: the parent starts two for each point, and they connect with each other.
//!
//! ```text
//! bench wait ── control ── sender   ═══ link or socket ═══ receiver ── control ── bench wait
//!                             └── socket: addresses, descriptors, the interval ──┘
//! ```
//!
//! Shutdown: each process answers once and ends. A process that fails reports the reason on standard
//! error; the other one sees the end of the link or of the socket and fails as well. Dropping a
//! [`PartProcess`] ends its process.

use std::os::fd::{AsFd, RawFd};

use serde::de::DeserializeOwned;
use slackwater_engine::time::now_ns;
use slackwater_link::set_timer_slack_ns;

use super::ends::{ReceivingEnd, SendingEnd};
use super::order::{Interval, Order, Part, Point, Received, Sent};
use super::way::{Transport, Way};
use super::{receiver, sender};
use crate::part_process::{PartProcess, pair};
use slackwater::measure;
use slackwater::measure::control::Control;
use slackwater::measure::program::inherit;

/// Time between the two sides' agreement and the first message.
const LEAD_NS: u64 = 5_000_000;

/// What the receiver sends when it is about to start.
const READY: &str = "ready";

/// Runs one side in this process.
pub fn run(descriptor: RawFd) -> Result<(), String> {
    let control = inherit(descriptor)?;
    let (order, peers) = control.expect::<Order>()?;
    let peer = peers.into_iter().next().map(Control::of);
    measure::pin(order.core)?;
    set_timer_slack_ns(1);
    match order.part {
        Part::Sender => control.send(&run_sender(&order, peer.as_ref())?, &[]),
        Part::Receiver => {
            let peer = peer.ok_or("the receiver received no socket to its sender")?;
            control.send(&run_receiver(&order, &peer)?, &[])
        }
    }
}

fn run_sender(order: &Order, peer: Option<&Control>) -> Result<Sent, String> {
    let mut end = SendingEnd::connect(order.way.transport, peer)?;
    if let Some(peer) = peer {
        peer.expect::<String>()?;
    }
    let begin_ns = now_ns() + LEAD_NS + order.warm_up_ns;
    let interval = Interval {
        begin_ns,
        end_ns: begin_ns + order.time_ns,
    };
    if let Some(peer) = peer {
        peer.send(&interval, &[])?;
    }
    let sent = sender::send(order, interval, &mut end)?;
    end.finish()?;
    Ok(sent)
}

fn run_receiver(order: &Order, peer: &Control) -> Result<Received, String> {
    let mut end = ReceivingEnd::connect(order.way.transport, peer)?;
    peer.send(&READY, &[])?;
    let (interval, _) = peer.expect::<Interval>()?;
    receiver::receive(order, interval, &mut end)
}

/// The answer of a side.
fn answer<T: DeserializeOwned>(side: &PartProcess, name: &str, way: Way) -> Result<T, String> {
    let answer = side.receive::<T>()?;
    answer.ok_or_else(|| {
        let Way { transport, mode } = way;
        format!("the {name} failed over {transport} with {mode}; see above for the reason")
    })
}

/// Measures a point: `order` is the sender's, and its receiver is on `receiver_core`.
pub fn measure(order: Order, receiver_core: usize, round: u32) -> Result<Point, String> {
    let (way, rate_per_s) = (order.way, order.rate_per_s);
    let sender = PartProcess::start("wait-part")?;
    if way.transport == Transport::Nothing {
        sender.send(&order, &[])?;
        let sent = answer(&sender, "sender", way)?;
        return Ok(Point {
            way,
            rate_per_s,
            round,
            sent,
            received: None,
        });
    }
    let receiver = PartProcess::start("wait-part")?;
    {
        // Only these two processes hold the socket: each detects by it that the other has ended.
        let (one, other) = pair()?;
        let receiving = Order {
            part: Part::Receiver,
            core: receiver_core,
            ..order
        };
        receiver.send(&receiving, &[other.as_fd()])?;
        sender.send(&order, &[one.as_fd()])?;
    }
    let sent = answer(&sender, "sender", way)?;
    let received = answer(&receiver, "receiver", way)?;
    Ok(Point {
        way,
        rate_per_s,
        round,
        sent,
        received: Some(received),
    })
}
