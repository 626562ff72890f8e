//! Two hosts for a master and a replica: this process's network, and a namespace with a virtual cable to it
//! and an MTU of 1,500 bytes, as on Ethernet. Only root can create it, with the program `ip`.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;

/// The master's side.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 91, 8, 1);

/// The replica's side.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 91, 8, 2);

/// A namespace and its cable, which are removed when this is dropped.
pub struct Network {
    name: String,
    /// The namespace, for a process that is to run in it.
    pub namespace: File,
}

impl Network {
    /// Creates both.
    ///
    /// # Errors
    ///
    /// If that is not allowed, or there is no `ip`.
    pub fn create() -> Result<Network, String> {
        // At most 15 bytes: "slkc", a process id of up to 7 digits, and a letter.
        let name = format!("slkc{}", std::process::id());
        ip(&["netns", "add", &name])?;
        let path = format!("/run/netns/{name}");
        let namespace = File::open(&path).map_err(|error| format!("{path}: {error}"));
        let network = match namespace {
            Ok(namespace) => Network { name, namespace },
            Err(error) => {
                let _ = ip(&["netns", "del", &name]);
                return Err(error);
            }
        };
        let name = &network.name;
        let (near, far) = (format!("{name}a"), format!("{name}b"));
        let of = |address: Ipv4Addr| format!("{address}/30");
        let peer = ["peer", "name", &far, "mtu", "1500", "netns", name];
        let cable = ["link", "add", &near, "mtu", "1500", "type", "veth"];
        ip(&[cable.as_slice(), &peer].concat())?;
        ip(&["addr", "add", &of(NEAR), "dev", &near])?;
        ip(&["link", "set", &near, "up"])?;
        ip(&["-n", name, "addr", "add", &of(FAR), "dev", &far])?;
        ip(&["-n", name, "link", "set", &far, "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The cable is removed with it, as soon as no process is left in it.
        let _ = ip(&["netns", "del", &self.name]);
        let _ = ip(&["link", "del", &format!("{}a", self.name)]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let failed = |reason: String| format!("ip {}: {reason}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(failed(reason.trim().to_string()))
}
