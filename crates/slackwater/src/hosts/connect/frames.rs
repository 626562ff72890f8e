//! The transport of frames between hosts, for `SET 'link' = 'xdp'`.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use slackwater_link::tcp::Transport;
use slackwater_sql::settings::LinkKind;

use super::Part;

/// The device at the interface with this process's own address, if links between hosts go over frames.
pub(super) fn transport(
    part: &Part<'_>,
    address: IpAddr,
) -> io::Result<Option<Arc<dyn Transport>>> {
    if part.kind != LinkKind::Xdp {
        return Ok(None);
    }
    match connections(part) {
        0 => Ok(None),
        connections => open(address, connections).map(Some),
    }
}

/// How many connections this process has at once, at most: each link, and its successor when it is replaced.
fn connections(part: &Part<'_>) -> usize {
    let own = part.links(true).filter(|(_, link)| {
        let ends = [link.from, link.to];
        ends.iter()
            .any(|end| part.deployment.process(*end) == part.process)
    });
    2 * own.count()
}

#[cfg(feature = "xdp")]
fn open(address: IpAddr, connections: usize) -> io::Result<Arc<dyn Transport>> {
    use slackwater_link::tcp::xdp::{CONNECTIONS_MAX, Device};

    if connections > CONNECTIONS_MAX {
        let most = CONNECTIONS_MAX / 2;
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "SET 'link' = 'xdp': this process has {} links to other hosts, and at most {most} go over \
             frames: lower the parallelism, or SET 'link' = 'auto'",
                connections / 2
            ),
        ));
    }
    Ok(Arc::new(Device::at(address, connections)?))
}

#[cfg(not(feature = "xdp"))]
fn open(_address: IpAddr, _connections: usize) -> io::Result<Arc<dyn Transport>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "SET 'link' = 'xdp': this program was built without AF_XDP: build it with --features \
         slackwater/xdp, or SET 'link' = 'auto'",
    ))
}
