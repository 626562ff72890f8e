//! How to serve, and what a server says that it is.

use std::net::SocketAddr;

use super::reply::Reply;

/// What a server is among those that replicate.
pub trait Role: Send + Sync {
    /// `master` or `slave`, as Redis calls them.
    fn name(&self) -> &'static str;

    /// The role, when so many bytes of changes were applied.
    fn role(&self, offset: u64) -> RoleAnswer;
}

/// What `ROLE` and `INFO replication` say.
pub enum RoleAnswer {
    /// It runs the query.
    Master {
        /// Bytes of changes.
        offset: u64,
    },
}

impl RoleAnswer {
    pub(super) fn reply(&self) -> Reply {
        match self {
            RoleAnswer::Master { offset } => Reply::Array(vec![
                Reply::text("master"),
                Reply::Integer(*offset as i64),
                Reply::Array(Vec::new()),
            ]),
        }
    }

    pub(super) fn info(&self) -> Vec<String> {
        match self {
            RoleAnswer::Master { offset } => vec![
                "role:master".to_owned(),
                "connected_slaves:0".to_owned(),
                format!("master_repl_offset:{offset}"),
            ],
        }
    }
}

/// The role of the process that runs the query.
pub struct Active;

impl Role for Active {
    fn name(&self) -> &'static str {
        "master"
    }

    fn role(&self, offset: u64) -> RoleAnswer {
        RoleAnswer::Master { offset }
    }
}

/// Cores of the two threads; `None` leaves a thread where the kernel puts it.
#[derive(Debug, Clone, Copy, Default)]
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
    pub role: Box<dyn Role>,
    /// Where the threads run.
    pub cores: SplitCores,
}
