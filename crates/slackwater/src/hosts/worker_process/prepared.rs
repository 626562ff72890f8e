//! What a worker process needs before its part can run: its workers, and how it reaches the others.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use slackwater_engine::counters::clock;
use slackwater_engine::runtime::{Runtime, RuntimeOptions};

use super::{FromHost, Watches};
use crate::hosts::channel::Channel;
use crate::hosts::executor::Inbox;
use crate::hosts::protocol::{Neighbors, ProcessCommand, Start};

/// The addresses of all processes, which come once all of them listen.
pub fn addresses(
    channel: &Channel,
    watches: &mut Watches,
) -> Result<Vec<Option<SocketAddr>>, String> {
    loop {
        match channel.receive() {
            Ok(Some((ProcessCommand::Connect(addresses), _))) => return Ok(addresses),
            // An agent asks for it as soon as the process runs.
            Ok(Some((ProcessCommand::ReportActivity, _))) => watches.host = true,
            Ok(Some((ProcessCommand::Clock { offset_ns }, _))) => clock::set(offset_ns),
            _ => return Err("was not told where the other processes listen".to_string()),
        }
    }
}

/// Starts the workers of this process.
pub fn start_runtime(start: &Start, inbox: Inbox<FromHost>) -> Result<Runtime, String> {
    let own = |of_worker: &[Option<usize>]| {
        let workers = of_worker.iter().zip(&start.deployment.process_of);
        let own = workers.filter(|(_, process)| **process == start.process);
        own.map(|(value, _)| *value).collect::<Vec<_>>()
    };
    let cores = own(&start.cores);
    let workers = RuntimeOptions {
        wait: start.wait,
        costs: start.costs.into(),
        nodes: own(&start.memory_nodes),
        ..RuntimeOptions::on(&cores)
    };
    Runtime::start(&workers, inbox).map_err(|error| error.to_string())
}

/// The sockets to the other processes of this host, indexed by their numbers among all processes.
pub fn by_number(
    sockets: Vec<OwnedFd>,
    neighbors: &Neighbors,
    start: &Start,
) -> Vec<Option<OwnedFd>> {
    let here = neighbors.first..neighbors.first + neighbors.count;
    let mut sockets = sockets.into_iter();
    let all = 0..start.names.len();
    let socket = all.map(|process| {
        let is_other = here.contains(&process) && process != start.process;
        is_other.then(|| sockets.next()).flatten()
    });
    socket.collect()
}
