//! What other commands ask: a manager's page, and a server that is to be promoted.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::client::{Client, Login, Lost};
use crate::error::{Error, Result};
use crate::resp::Reply;
use crate::run::page_path;
use crate::system;

/// The longest that a manager takes for its page.
const PAGE_MAX: Duration = Duration::from_secs(5);
/// The most bytes of a page.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// Asks the manager beside a journal for a page.
pub fn page(journal: &Path, path: &str) -> Result<String> {
    let socket = page_path(journal);
    let failed = |error: std::io::Error| Error::failed(socket.display(), error);
    let mut stream = UnixStream::connect(&socket).map_err(|error| {
        failed(error).hint(
            "is a manager running? --journal FILE names the one that is meant; it takes its user",
        )
    })?;
    stream.set_read_timeout(Some(PAGE_MAX)).map_err(failed)?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .map_err(failed)?;
    let mut text = String::new();
    stream
        .take(PAGE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_string()),
        _ => Err(Error::failed(socket.display(), body.trim())),
    }
}

/// Has a manager raise a server, and promotes it then. Says what was done.
pub fn promote(journal: &Path, address: SocketAddr, login: Option<&Login>) -> Result<String> {
    // Without a manager nothing is slow.
    let raised = match UnixStream::connect(page_path(journal)) {
        Err(_) => "no manager runs".to_string(),
        Ok(_) => {
            page(journal, &format!("/raise/{address}"))?;
            "raised".to_string()
        }
    };
    let replies = ask(address, login, &[&["REPLICAOF", "NO", "ONE"]]);
    let replies = replies.map_err(|why| Error::failed(address, why))?;
    match replies.first().and_then(Reply::error) {
        None => Ok(format!("{address}: {raised}, and promoted\n")),
        Some(said) => {
            Err(Error::failed(address, said).hint("the user needs +replicaof; see --config"))
        }
    }
}

/// Asks a server once.
pub fn ask(
    address: SocketAddr,
    login: Option<&Login>,
    commands: &[&[&str]],
) -> std::result::Result<Vec<Reply>, Lost> {
    // Connecting is waited for here: nothing else is to be done.
    TcpStream::connect_timeout(&address, PAGE_MAX).map_err(Lost::System)?;
    let mut client = Client::connect(address, login, system::now_ns()).map_err(Lost::System)?;
    client.ask(commands, system::now_ns());
    loop {
        if let Some(replies) = client.step(system::now_ns())? {
            return Ok(replies);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
