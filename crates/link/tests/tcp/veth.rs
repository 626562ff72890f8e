//! A pair of virtual interfaces in a network namespace of the test's own, and AF_XDP devices at both.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use slackwater_link::tcp::Transport;
use slackwater_link::tcp::xdp::Device;

use crate::rough_port::rough_transport;

pub const WRITER: &str = "slackw0";
pub const READER: &str = "slackw1";

/// More than any test has connections at once, those that are being replaced included.
const CONNECTIONS: usize = 64;

/// The namespaces of tests, by what the kernel calls them: their devices, or that there can't be any. Threads
/// that a test starts are in its namespace.
static LABS: Mutex<Vec<(PathBuf, Lab)>> = Mutex::new(Vec::new());

enum Lab {
    Without,
    With(Vec<Device>),
}

/// Makes the namespace if there is none yet. Returns whether this is not possible.
pub fn skips() -> bool {
    in_lab(|lab| matches!(lab, Lab::Without))
}

/// A transport through this interface.
pub fn transport(interface: &str) -> Arc<dyn Transport> {
    in_lab(|lab| {
        let Lab::With(devices) = lab else {
            return rough_transport(5);
        };
        let found = devices.iter().find(|device| device.name() == interface);
        let device = found.cloned().unwrap_or_else(|| {
            let device = Device::open(interface, CONNECTIONS).expect("a device");
            devices.push(device.clone());
            device
        });
        Arc::new(device)
    })
}

fn in_lab<T>(use_it: impl FnOnce(&mut Lab) -> T) -> T {
    let own = || std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
    let first = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let mut labs = LABS.lock().unwrap_or_else(PoisonError::into_inner);
    if own() == first && !labs.iter().any(|(name, _)| *name == first) {
        let lab = match make() {
            Ok(()) => Lab::With(Vec::new()),
            Err(reason) => {
                println!("skipped AF_XDP, which needs root and the program `ip`: {reason}");
                Lab::Without
            }
        };
        labs.push((own(), lab));
    }
    let own = own();
    let found = labs.iter_mut().find(|(name, _)| *name == own);
    use_it(&mut found.expect("made above").1)
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
