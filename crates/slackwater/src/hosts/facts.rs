//! What is known of a host: its name and address, what its processes may use, and which program it runs.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::calibrate::{self, WaitCosts};
use crate::machine::{Described, Machine};

/// A host, as it describes itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    /// The host's name.
    pub name: String,
    /// The address at which its processes listen for links.
    pub address: IpAddr,
    /// The ports at which they may listen; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// The process id of its agent.
    pub pid: u32,
    /// Its nodes and cores.
    pub topology: Described,
    /// The CPU quota of its processes in cores, if a container limits them.
    pub quota_cores: Option<f64>,
    /// Whether memory is bound to NUMA nodes.
    pub binds_memory: bool,
    /// What waiting costs there.
    pub costs: WaitCosts,
}

impl Facts {
    /// This host, whose processes only connect to each other.
    pub fn alone(machine: &Machine, costs: WaitCosts) -> Facts {
        Facts {
            costs,
            ..Facts::here("", Ipv4Addr::LOCALHOST.into(), machine)
        }
    }

    /// This host; `machine` is what its processes may use.
    pub fn here(name: &str, address: IpAddr, machine: &Machine) -> Facts {
        Facts {
            name: name.to_string(),
            address,
            ports: None,
            pid: std::process::id(),
            topology: (&machine.topology).into(),
            quota_cores: machine.quota_cores,
            binds_memory: machine.binds_memory,
            costs: calibrate::costs().into(),
        }
    }

    /// What its processes may use.
    pub fn machine(&self) -> Machine {
        Machine {
            topology: self.topology.clone().into(),
            quota_cores: self.quota_cores,
            binds_memory: self.binds_memory,
            notes: Vec::new(),
            hosts: None,
        }
    }
}

/// A build of this program. Worker processes compile the same SQL to the same plan only if they run the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The version.
    pub version: String,
    /// The optional connectors.
    pub features: Vec<String>,
    /// The processor architecture.
    pub processor: String,
    /// What tells two builds of one version apart.
    pub id: String,
}

/// The optional connectors and formats, and whether this build has them.
const FEATURES: [(&str, bool); 6] = [
    ("kafka", cfg!(feature = "kafka")),
    ("kafka-tls", cfg!(feature = "kafka-tls")),
    ("sqlite", cfg!(feature = "sqlite")),
    ("postgres", cfg!(feature = "postgres")),
    ("parquet", cfg!(feature = "parquet")),
    ("s3", cfg!(feature = "s3")),
];

impl Build {
    /// The build that this process runs.
    pub fn this() -> Build {
        let features = FEATURES.iter().filter(|(_, has)| *has);
        Build {
            version: env!("CARGO_PKG_VERSION").to_string(),
            features: features.map(|(name, _)| name.to_string()).collect(),
            processor: std::env::consts::ARCH.to_string(),
            id: build_id().unwrap_or_default(),
        }
    }
}

/// The start of the linker's note of the build: lengths of name and id, type, name.
const BUILD_ID_NOTE: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

/// Bytes of the id.
const BUILD_ID_BYTES: usize = 20;

/// Linkers put notes at the start of a program.
const NOTES_BYTES_MAX: usize = 64 << 10;

/// The id that the linker gave this program, if it gave one; for messages its first four bytes are enough.
fn build_id() -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let program = std::fs::File::open("/proc/self/exe").ok()?;
    program
        .take(NOTES_BYTES_MAX as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    let note = memchr::memmem::find(&bytes, &BUILD_ID_NOTE)?;
    let id = bytes.get(note + BUILD_ID_NOTE.len()..)?;
    let id = id.get(..BUILD_ID_BYTES)?.iter();
    Some(id.map(|byte| format!("{byte:02x}")).collect())
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Build {
            version,
            features,
            processor,
            id,
        } = self;
        let id = id.get(..8).unwrap_or("unknown");
        let features = match features.is_empty() {
            true => "no features".to_string(),
            false => features.join(", "),
        };
        write!(
            f,
            "slackwater {version} ({processor}, build {id}, {features})"
        )
    }
}

/// The name of this host, as the kernel knows it.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "localhost".to_string(), |name| name.trim().to_string())
}
