//! How to serve, and what a server says that it is.

use std::net::SocketAddr;

use super::reply::Reply;

/// What a server is among those that replicate, when so many bytes of changes were applied.
pub type Role = Box<dyn Fn(u64) -> RoleAnswer + Send>;

/// What `ROLE` and `INFO replication` say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleAnswer {
    /// It runs the query.
    Master {
        /// How far it is.
        offset: u64,
        /// Where those that follow it are read, and how far they are.
        replicas: Vec<(SocketAddr, u64)>,
    },
    /// It follows the one that runs the query.
    Replica {
        /// Where that one is read, if it is.
        master: Option<SocketAddr>,
        /// Whether it is there.
        is_connected: bool,
        /// How far this one is.
        offset: u64,
    },
}

impl RoleAnswer {
    /// `master` or `slave`, as Redis calls them.
    pub(super) fn name(&self) -> &'static str {
        match self {
            RoleAnswer::Master { .. } => "master",
            RoleAnswer::Replica { .. } => "slave",
        }
    }

    pub(super) fn reply(&self) -> Reply {
        let text = |shown: &dyn ToString| Reply::text(&shown.to_string());
        match self {
            RoleAnswer::Master { offset, replicas } => {
                let replicas = replicas.iter().map(|(at, offset)| {
                    Reply::Array(vec![text(&at.ip()), text(&at.port()), text(offset)])
                });
                Reply::Array(vec![
                    Reply::text(self.name()),
                    Reply::Integer(*offset as i64),
                    Reply::Array(replicas.collect()),
                ])
            }
            RoleAnswer::Replica {
                master,
                is_connected,
                offset,
            } => {
                let (host, port) = host_and_port(*master);
                let state = match is_connected {
                    true => "connected",
                    false => "connect",
                };
                Reply::Array(vec![
                    Reply::text(self.name()),
                    Reply::text(&host),
                    Reply::Integer(i64::from(port)),
                    Reply::text(state),
                    Reply::Integer(*offset as i64),
                ])
            }
        }
    }

    pub(super) fn info(&self) -> Vec<String> {
        let mut lines = vec![format!("role:{}", self.name())];
        match self {
            RoleAnswer::Master { offset, replicas } => {
                lines.push(format!("connected_slaves:{}", replicas.len()));
                for (number, (at, applied)) in replicas.iter().enumerate() {
                    lines.push(format!(
                        "slave{number}:ip={},port={},state=online,offset={applied},lag=0",
                        at.ip(),
                        at.port()
                    ));
                }
                lines.push(format!("master_repl_offset:{offset}"));
            }
            RoleAnswer::Replica {
                master,
                is_connected,
                offset,
            } => {
                let (host, port) = host_and_port(*master);
                let status = if *is_connected { "up" } else { "down" };
                lines.extend([
                    format!("master_host:{host}"),
                    format!("master_port:{port}"),
                    format!("master_link_status:{status}"),
                    "master_sync_in_progress:0".to_owned(),
                    format!("slave_repl_offset:{offset}"),
                    "slave_read_only:1".to_owned(),
                    "connected_slaves:0".to_owned(),
                    format!("master_repl_offset:{offset}"),
                ]);
            }
        }
        lines
    }
}

/// A master that is read nowhere has no address.
fn host_and_port(master: Option<SocketAddr>) -> (String, u16) {
    master.map_or_else(Default::default, |at| (at.ip().to_string(), at.port()))
}

/// Cores of the two threads; `None` leaves a thread where the kernel puts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SplitCores {
    /// The main thread's, which may be slow.
    pub main: Option<usize>,
    /// The ReadHandler's.
    pub handler: Option<usize>,
}

/// How to serve.
pub struct Options {
    /// Where clients connect.
    pub address: SocketAddr,
    /// What they have to say first.
    pub password: Option<String>,
    /// What this server is.
    pub role: Role,
    /// Where the threads run.
    pub cores: SplitCores,
}
