//! A real master with real replicas, and clients of the master: all of them run at the same time.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::dilation::Dilation;
use super::load::{Done, Load};
use super::server::{Kind, Server, Setup};
use super::workload::Workload;
use crate::common::Usage;
use crate::usage::Reading;

/// How long replicas may take to apply what they were sent, some of them slowed, on a machine with fewer
/// cores than servers.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often replicas are asked whether they have applied everything.
const LOOK: Duration = Duration::from_millis(20);

/// How the servers are started.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The kind of server.
    pub kind: &'a Kind,
    /// The folder for logs.
    pub folder: &'a Path,
    /// Real replicas.
    pub replicas: u32,
    /// What makes the master slow.
    pub slow_master: Option<&'a Dilation>,
    /// What makes the replicas slow.
    pub slow_replicas: Option<&'a Dilation>,
}

/// The servers.
pub struct Servers {
    /// The master.
    pub master: Server,
    /// Its replicas.
    pub replicas: Vec<Server>,
}

/// What was used in a run.
#[derive(Clone, Debug)]
pub struct Used {
    /// What the clients did.
    pub done: Done,
    /// The master,
    pub master: Usage,
    /// and each replica, until it had applied everything.
    pub replicas: Vec<Usage>,
}

impl Used {
    /// CPU time of the master per operation, in microseconds.
    pub fn master_us(&self) -> f64 {
        self.master.cpu_s * 1e6 / self.done.operations.max(1) as f64
    }

    /// CPU time of a replica per operation of the clients, in microseconds: the mean of all replicas.
    pub fn replica_us(&self) -> f64 {
        let cpu_s = self
            .replicas
            .iter()
            .map(|replica| replica.cpu_s)
            .sum::<f64>();
        let count = self.replicas.len().max(1) as f64 * self.done.operations.max(1) as f64;
        cpu_s * 1e6 / count
    }
}

impl Servers {
    /// Starts them, and waits until the replicas follow.
    ///
    /// # Errors
    ///
    /// If one does not start, or does not follow.
    pub fn start(wanted: &Wanted<'_>) -> Result<Servers, String> {
        let mut setup = Setup {
            kind: wanted.kind,
            folder: wanted.folder,
            address: Ipv4Addr::LOCALHOST,
            namespace: None,
            master: None,
            dilation: wanted.slow_master,
            core: None,
        };
        let master = Server::start(&setup, &[])?;
        setup.master = Some(master.address);
        setup.dilation = wanted.slow_replicas;
        let replicas = (0..wanted.replicas).map(|_| {
            let replica = Server::start(&setup, &[])?;
            replica.wait_for_link()?;
            Ok(replica)
        });
        let replicas = replicas.collect::<Result<Vec<Server>, String>>()?;
        Ok(Servers { master, replicas })
    }

    /// Runs clients, and waits until the replicas have applied everything.
    ///
    /// # Errors
    ///
    /// If a server fails, or a replica does not catch up.
    pub fn run(&self, load: &Load, workload: &mut Workload) -> Result<Used, String> {
        let read = |server: &Server| Reading::of_process(server.pid());
        let master = read(&self.master)?;
        let replicas = self.replicas.iter().map(read);
        let replicas = replicas.collect::<Result<Vec<Reading>, String>>()?;
        let done = load.run(workload)?;
        let master = master.until(&read(&self.master)?);
        self.settle()?;
        let replicas = self.replicas.iter().zip(replicas);
        let replicas = replicas.map(|(server, begin)| Ok(begin.until(&read(server)?)));
        Ok(Used {
            done,
            master,
            replicas: replicas.collect::<Result<Vec<Usage>, String>>()?,
        })
    }

    /// Waits until the replicas have applied everything.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn settle(&self) -> Result<(), String> {
        let mut client = self.master.client()?;
        let started = Instant::now();
        let offset = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
        let wanted = offset(client.info("replication", "master_repl_offset")?);
        for replica in &self.replicas {
            let mut client = replica.client()?;
            while offset(client.info("replication", "slave_repl_offset")?) < wanted {
                if started.elapsed() > PATIENCE {
                    return Err(format!("{}: it does not catch up", replica.address));
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }
}
