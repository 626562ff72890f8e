//! A network namespace for each process, all of them on one bridge: the closest to several hosts that one
//! machine offers. Only root can create them, with the program `ip`.

use std::net::Ipv4Addr;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Name of the network interface in each namespace.
const INTERFACE: &str = "slk0";

/// The network's address: that of process 0 ends with `.1`; an experiment has far fewer than 254
/// processes.
const NETWORK: [u8; 3] = [10, 91, 7];

/// A bridge with a virtual cable to each process; both are removed when this is dropped.
pub struct Network {
    bridge: String,
}

impl Network {
    /// Creates a bridge without cables.
    ///
    /// # Errors
    ///
    /// If that isn't allowed, or there is no `ip`.
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
    /// The error message of `ip`.
    pub fn attach(&self, pid: u32) -> Result<(), String> {
        let pid = pid.to_string();
        // The cable is named after the process, whose namespace removes it some time after the process
        // has ended.
        let cable = format!("slk{pid}");
        ip(&[
            "link", "add", &cable, "type", "veth", "peer", "name", INTERFACE, "netns", &pid,
        ])?;
        ip(&["link", "set", &cable, "master", &self.bridge, "up"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Cables are removed with the namespaces of their processes.
        let _ = ip(&["link", "del", &self.bridge]);
    }
}

/// Whether this process may create namespaces.
pub fn are_allowed() -> bool {
    rustix::process::geteuid().is_root() && Network::create().is_ok()
}

/// The address of a process.
pub fn address(number: usize) -> Ipv4Addr {
    let [one, two, three] = NETWORK;
    Ipv4Addr::new(one, two, three, number as u8 + 1)
}

/// Leaves the network of this process for an empty one. Must be called before any thread is started.
///
/// # Errors
///
/// If that isn't allowed.
pub fn leave() -> Result<(), String> {
    // SAFETY: a new network namespace takes neither memory nor descriptors away from this thread, and
    // there is no other thread yet.
    let left = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    left.map_err(|error| format!("can't create a network namespace: {error}"))
}

/// Assigns the address of process `number`, once the process is attached.
///
/// # Errors
///
/// The error message of `ip`.
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
