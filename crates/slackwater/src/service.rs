//! What a service manager is told: a unit of systemd with `Type=notify` has started when this process says so
//! (`sd_notify(3)`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the service manager's socket. Processes that this one starts must not have it: they are not the
/// service.
pub(crate) const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells the service manager, if there is one, that this process does what it is for.
pub(crate) fn tell_ready() {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE).filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = tell(&socket, b"READY=1") {
        let socket = socket.display();
        eprintln!(
            "warning: {SOCKET_VARIABLE}={socket}: {error}: systemd is not told that this is ready"
        );
    }
}

fn tell(socket: &OsStr, state: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state, &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(by: &UnixDatagram, socket: &OsStr) -> Vec<u8> {
        tell(socket, b"READY=1").unwrap();
        let mut heard = [0; 64];
        let length = by.recv(&mut heard).unwrap();
        heard[..length].to_vec()
    }

    #[test]
    fn sockets_in_folders_and_abstract_ones_hear_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by = UnixDatagram::bind(&path).unwrap();
        assert_eq!(heard(&by, path.as_os_str()), b"READY=1");

        let name = format!("slackwater-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by = UnixDatagram::bind_addr(&address).unwrap();
        assert_eq!(heard(&by, OsStr::new(&format!("@{name}"))), b"READY=1");
    }
}
