//! A network namespace for each process, all of them on one bridge: hosts, as far as one machine has
//! them. Root alone can make them, and `ip` does it.

use std::net::Ipv4Addr;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// What a process sees of the bridge.
const INTERFACE: &str = "slk0";

/// The address of process 0 is `.1`; a bench has far fewer than 254.
const NETWORK: [u8; 3] = [10, 91, 7];

/// A bridge with a cable to each process; both go when this is dropped.
pub struct Network {
    bridge: String,
}

impl Network {
    /// A bridge without cables.
    ///
    /// # Errors
    ///
    /// Where that isn't allowed, or there is no `ip`.
    pub fn create() -> Result<Network, String> {
        // At most 15 bytes: "slkb" and a process id of up to 7 digits.
        let network = Network {
            bridge: format!("slkb{}", std::process::id()),
        };
        ip(&["link", "add", &network.bridge, "type", "bridge"])?;
        ip(&["link", "set", &network.bridge, "up"])?;
        Ok(network)
    }

    /// Connects a process that is in a namespace of its own.
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn attach(&self, pid: u32) -> Result<(), String> {
        let pid = pid.to_string();
        // By the process, whose namespace takes it away some time after the process has ended.
        let cable = format!("slk{pid}");
        ip(&[
            "link", "add", &cable, "type", "veth", "peer", "name", INTERFACE, "netns", &pid,
        ])?;
        ip(&["link", "set", &cable, "master", &self.bridge, "up"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Cables go with the namespaces of their processes.
        let _ = ip(&["link", "del", &self.bridge]);
    }
}

/// Whether this process may make namespaces.
pub fn are_allowed() -> bool {
    rustix::process::geteuid().is_root() && Network::create().is_ok()
}

/// The address of a process.
pub fn address(number: usize) -> Ipv4Addr {
    let [one, two, three] = NETWORK;
    Ipv4Addr::new(one, two, three, number as u8 + 1)
}

/// Leaves the network of this process for an empty one. To be called before any thread is started.
///
/// # Errors
///
/// Where that isn't allowed.
pub fn leave() -> Result<(), String> {
    // SAFETY: a network namespace of its own takes no memory and no descriptor away from this thread,
    // and there is no other one yet.
    let left = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    left.map_err(|error| format!("can't have a network namespace: {error}"))
}

/// Takes the address of process `number` into use, once the process is attached.
///
/// # Errors
///
/// What `ip` says.
pub fn join(number: usize) -> Result<(), String> {
    let address = format!("{}/24", address(number));
    ip(&["addr", "add", &address, "dev", INTERFACE])?;
    ip(&["link", "set", INTERFACE, "up"])?;
    ip(&["link", "set", "lo", "up"])
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let failed = |reason: String| format!("ip {}: {reason}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(
        String::from_utf8_lossy(&output.stderr).trim().to_string(),
    ))
}
