//! A planned switch from the run that is active to its standby.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use super::messages::{Ask, Told};
use super::wire::{Place, Wire};
use crate::checkpoints::socket::{connect, receive, send};
use crate::checkpoints::{FromShelf, SHELF_SOCKET, ToShelf};

/// How long the active may take to save what it has read and to end, and the standby to go on.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the active may take to answer: it does so at once, unless it was stopped.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked who runs the query, once the active has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// Lets the standby of a query go on instead of the run that is active at `place`. Returns what has happened,
/// for people.
///
/// # Errors
///
/// Why that is not possible, or did not happen.
pub fn promote(place: &Place) -> Result<String, String> {
    let failed = |error: io::Error| format!("{place}: {error}");
    let ended = || match place {
        Place::Folder(_) => format!("{place}: the active has ended just now: try again"),
        Place::Address(_) => format!(
            "{place}: it closes connections without an answer: is --secret used there, and the same \
             here?"
        ),
    };
    let Some(active) = place.connect().map_err(failed)? else {
        return match place {
            Place::Folder(folder) => wake(folder),
            Place::Address(_) => Err(format!("{place}: nobody runs a query there")),
        };
    };
    let unheard = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => format!(
            "{place}: the active does not answer within {} s: is its process stopped?",
            ANSWER_PATIENCE.as_secs()
        ),
        _ => failed(error),
    };
    let before = ask(&active, &Ask::Who).map_err(unheard)?;
    let Some(Told::Active { pid: old, .. }) = before else {
        return Err(ended());
    };
    let standby = match ask(&active, &Ask::Promote).map_err(failed)? {
        Some(Told::HandsOver { standby }) => standby,
        Some(Told::Refused { reason }) => return Err(format!("{place}: {reason}")),
        _ => return Err(ended()),
    };
    // The end of the connection is the end of the active.
    active.await_answer(PATIENCE).map_err(failed)?;
    if let Ok(Some(Told::Refused { reason })) = receive::<Told>(&active) {
        return Err(format!("{place}: {reason}"));
    }
    if let Place::Address(_) = place {
        return Ok(format!(
            "process {old} has ended, and process {standby} continues\n"
        ));
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let connected = place.connect().map_err(failed)?;
        let answer = connected.and_then(|wire| ask(&wire, &Ask::Who).ok().flatten());
        if let Some(Told::Active { pid, number, .. }) = answer
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
        "{place}: process {old} has ended, and process {standby} does not run the query after {} s: look at \
         its messages, or run the query again",
        PATIENCE.as_secs()
    ))
}

/// Lets a standby go on that follows nobody.
fn wake(folder: &Path) -> Result<String, String> {
    let place = folder.display();
    if !folder.is_dir() {
        return Err(format!("{place}: there is no such folder"));
    }
    let nobody = format!(
        "{place}: nobody runs a query there, and none stands by\n  \
         = run it: slackwater run QUERY --state {place}"
    );
    let Ok(stream) = connect(folder, SHELF_SOCKET) else {
        return Err(nobody);
    };
    let answer = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| {
        send(&stream, &ToShelf::Promote)?;
        receive::<FromShelf>(&stream)
    });
    match answer {
        Ok(Some(FromShelf::Goes)) => Ok("the standby goes on\n".to_string()),
        Ok(Some(FromShelf::Refused { reason })) => Err(format!("{place}: {reason}")),
        Ok(_) => Err(nobody),
        Err(error) => Err(format!("{place}: the standby does not answer: {error}")),
    }
}

fn ask(wire: &Wire, ask: &Ask) -> io::Result<Option<Told>> {
    send(wire, ask)?;
    wire.await_answer(ANSWER_PATIENCE)?;
    receive::<Told>(wire)
}
