//! A planned switch from the run that is active to its standby.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::door::SOCKET;
use super::messages::{Ask, Told};
use crate::checkpoints::socket::{connect, receive, send};
use crate::checkpoints::{FromShelf, SHELF_SOCKET, ToShelf};

/// How long the active may take to save what it has read and to end, and the standby to go on.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked who runs the query, once the active has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// Lets the standby of the query with its state in `folder` go on instead of the one that is active. Returns
/// what has happened, for people.
///
/// # Errors
///
/// Why that is not possible, or did not happen.
pub fn promote(folder: &Path) -> Result<String, String> {
    if !folder.is_dir() {
        return Err(format!("{}: there is no such folder", folder.display()));
    }
    let place = folder.display();
    let failed = |error: std::io::Error| format!("{place}: {error}");
    let Ok(active) = connect(folder, SOCKET) else {
        return wake(folder);
    };
    let limit = |stream: &UnixStream| stream.set_read_timeout(Some(PATIENCE));
    limit(&active).map_err(failed)?;
    let before = ask(&active, &Ask::Who).map_err(failed)?;
    let Some(Told::Active { pid: old, .. }) = before else {
        return Err(format!("{place}: the active has ended just now: try again"));
    };
    let standby = match ask(&active, &Ask::Promote).map_err(failed)? {
        Some(Told::HandsOver { standby }) => standby,
        Some(Told::Refused { reason }) => return Err(format!("{place}: {reason}")),
        _ => return Err(format!("{place}: the active has ended just now: try again")),
    };
    // The end of the connection is the end of the active.
    if let Some((Told::Refused { reason }, _)) = receive::<Told>(&active).map_err(failed)? {
        return Err(format!("{place}: {reason}"));
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let answer = connect(folder, SOCKET).and_then(|stream| {
            limit(&stream)?;
            ask(&stream, &Ask::Who)
        });
        if let Ok(Some(Told::Active { pid, number })) = answer
            && pid != old
        {
            let from = number.map_or("the beginning".to_string(), |n| format!("checkpoint {n}"));
            return Ok(format!(
                "process {pid} has taken over from process {old}, from {from}\n"
            ));
        }
        std::thread::sleep(PAUSE);
    }
    Err(format!(
        "{place}: process {old} has ended, and process {standby} has not gone on within {} s: look at its \
         messages, or run the query again",
        PATIENCE.as_secs()
    ))
}

/// Lets a standby go on that follows nobody.
fn wake(folder: &Path) -> Result<String, String> {
    let place = folder.display();
    let nobody = format!(
        "{place}: nobody runs a query there, and none stands by\n  \
         = run it: slackwater run QUERY --state {place}"
    );
    let Ok(stream) = connect(folder, SHELF_SOCKET) else {
        return Err(nobody);
    };
    let answer = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| {
        send(&stream, &ToShelf::Promote, &[])?;
        receive::<FromShelf>(&stream)
    });
    match answer {
        Ok(Some((FromShelf::Goes, _))) => Ok("the standby goes on\n".to_string()),
        Ok(Some((FromShelf::Refused { reason }, _))) => Err(format!("{place}: {reason}")),
        Ok(_) => Err(nobody),
        Err(error) => Err(format!("{place}: the standby does not answer: {error}")),
    }
}

fn ask(stream: &UnixStream, ask: &Ask) -> std::io::Result<Option<Told>> {
    send(stream, ask, &[])?;
    Ok(receive::<Told>(stream)?.map(|(told, _)| told))
}
