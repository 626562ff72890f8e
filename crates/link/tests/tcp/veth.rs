//! A pair of virtual interfaces in a network namespace of the test's own, and AF_XDP devices at both.

use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;

use slackwater_link::tcp::Transport;
use slackwater_link::tcp::xdp::Device;

use crate::rough_port::rough_transport;

pub const WRITER: &str = "slackw0";
pub const READER: &str = "slackw1";

/// More than any test has connections at once, those that are being replaced included.
const CONNECTIONS: usize = 64;

thread_local! {
    /// The namespace of this test's thread: its devices by their names, or that there can't be any.
    static LAB: RefCell<Lab> = const { RefCell::new(Lab::Unknown) };
}

enum Lab {
    Unknown,
    Without,
    With(Vec<Device>),
}

/// Makes the namespace if there is none yet. Returns whether this is not possible.
pub fn skips() -> bool {
    LAB.with_borrow_mut(|lab| {
        if let Lab::Unknown = lab {
            *lab = match make() {
                Ok(()) => Lab::With(Vec::new()),
                Err(reason) => {
                    println!("skipped AF_XDP, which needs root and the program `ip`: {reason}");
                    Lab::Without
                }
            };
        }
        matches!(lab, Lab::Without)
    })
}

/// A transport through this interface.
pub fn transport(interface: &str) -> Arc<dyn Transport> {
    if skips() {
        return rough_transport(5);
    }
    LAB.with_borrow_mut(|lab| {
        let Lab::With(devices) = lab else {
            unreachable!("asked above");
        };
        let found = devices.iter().find(|device| device.name() == interface);
        let device = found.cloned().unwrap_or_else(|| {
            let device = Device::open(interface, CONNECTIONS).expect("a device");
            devices.push(device.clone());
            device
        });
        Arc::new(device) as Arc<dyn Transport>
    })
}

fn make() -> Result<(), String> {
    // SAFETY: this thread has no other namespaces to keep; threads that it starts are in the same one.
    let left = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if left != 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    let pair = [
        "link", "add", WRITER, "type", "veth", "peer", "name", READER,
    ];
    ip(&["link", "set", "lo", "up"])?;
    ip(&pair)?;
    ip(&["link", "set", WRITER, "up"])?;
    ip(&["link", "set", READER, "up"])?;
    ip(&["addr", "add", "10.77.0.1/24", "dev", WRITER])?;
    ip(&["addr", "add", "10.77.0.2/24", "dev", READER])
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("can't run ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
