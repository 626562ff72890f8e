//! The tests of `tcp_frames.rs` through AF_XDP sockets on a pair of virtual interfaces. They need root:
//! without it, they say so, and run over UDP. Each test has a network namespace of its own, which ends with
//! its threads.

#![cfg(all(not(loom), feature = "xdp"))]

#[path = "tcp/harness.rs"]
mod harness;

#[path = "tcp/breaks.rs"]
mod breaks;
#[path = "tcp/credits.rs"]
mod credits;
#[path = "tcp/ends.rs"]
mod ends;
#[path = "tcp/frames.rs"]
mod frames;
#[path = "tcp/idle.rs"]
mod idle;
#[path = "tcp/rough_port.rs"]
mod rough_port;
#[path = "tcp/streams.rs"]
mod streams;
#[path = "tcp/veth.rs"]
mod veth;

use slackwater_link::tcp::{Carrier, Guard};

fn guard() -> Option<std::sync::Arc<dyn Guard>> {
    None
}

fn reading() -> Carrier {
    Carrier {
        guard: None,
        transport: Some(veth::transport(veth::READER)),
    }
}

fn writing() -> Carrier {
    Carrier {
        guard: None,
        transport: Some(veth::transport(veth::WRITER)),
    }
}

#[test]
fn an_interface_has_one_device() {
    if veth::skips() {
        return;
    }
    use slackwater_link::tcp::xdp::Device;
    let first = Device::open(veth::READER, 2).expect("a device");
    let error = match Device::open(veth::READER, 2) {
        Ok(_) => panic!("two devices at one queue"),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains(veth::READER) && error.contains("--processes 1"),
        "{error}"
    );
    drop(first);
    let error = match Device::open("lo", 2) {
        Ok(_) => panic!("not an Ethernet interface"),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains("interface lo") && error.contains("Ethernet"),
        "{error}"
    );
    // The first one left nothing behind.
    let again = Device::at("10.77.0.2".parse().expect("an address"), 1).expect("a device");
    assert_eq!(again.name(), veth::READER);
    let error = match Device::at("10.77.0.99".parse().expect("an address"), 1) {
        Ok(_) => panic!("nobody's address"),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains("10.77.0.99") && error.contains("--address"),
        "{error}"
    );
}
