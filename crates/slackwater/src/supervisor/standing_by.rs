//! A run that stands by: it holds the state of the query, until it is its turn.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slackwater_checkpoint::manifest::Manifest;
use slackwater_checkpoint::{Error, Kind, Store};

use super::StateOptions;
use super::events::RunEvent;
use super::query::{Query, Refused};
use crate::catalog::ProgramCatalog;
use crate::checkpoints::Survival;
use crate::standby::{Following, Heard, Kept, Known, Place, Readers, Replica, Shelf};
use crate::terminal::say;

/// How often it is looked whether somebody runs the query, while nobody does.
const LOOK: Duration = Duration::from_secs(1);

/// How a run has stood by.
pub enum Stood {
    /// It is its turn, with what it holds.
    Goes(Box<Replica>),
    /// It was stopped.
    Stopped,
}

/// Follows the run that is active until that is gone; with `alone`, also until nobody has run the query for
/// so long. Meanwhile, what it holds is shown to `readers`.
///
/// # Errors
///
/// If this query can't follow that one.
pub fn stand_by(
    query: &Query<'_>,
    catalog: &ProgramCatalog<'_>,
    state: &StateOptions,
    active: &Place,
    alone: Option<Duration>,
    readers: Option<&dyn Readers>,
) -> Result<Stood, Refused> {
    let usage = |reason: String| Refused::Usage(format!("--standby: {reason}"));
    let open = || Store::open(&state.place).map_err(|error| usage(error.to_string()));
    let kept = Arc::new(Kept::default());
    let replica = Replica::new(open()?, Arc::clone(&kept));
    let mut replica = replica.map_err(|error| usage(error.to_string()))?;
    replica.read(readers.iter().flat_map(|readers| readers.nodes()));
    let replica = Arc::new(Mutex::new(replica));
    let (sender, events) = query.signals.listen();
    let promoting = sender.clone();
    let shelf = match active {
        // On another host, the active stores for itself.
        Place::Address(_) => None,
        Place::Folder(folder) => {
            std::fs::create_dir_all(folder)
                .map_err(|error| usage(format!("{}: {error}", folder.display())))?;
            let promoted = move |heard| {
                // The queue has no receiver only when this run does not stand by any more.
                let _ = promoting.send(RunEvent::Active(heard));
            };
            let shelf = Shelf::open(folder, open()?, kept, Arc::clone(&replica), promoted);
            Some(shelf.map_err(usage)?)
        }
    };
    let standby = Standby {
        query,
        catalog,
        place: &state.place,
        active,
        alone,
        replica: &replica,
        readers,
    };
    query.serving.note(|known| known.stands_by = true);
    crate::service::tell_ready();
    let stood = standby.until_its_turn(&sender, &events)?;
    query.serving.note(|known| {
        (known.stands_by, known.is_connected, known.other) = (false, false, None);
    });
    drop(shelf);
    if !stood {
        return Ok(Stood::Stopped);
    }
    // Threads of the shelf may still answer an agent of the one that is gone.
    let empty = Replica::new(open()?, Arc::default()).map_err(|error| usage(error.to_string()))?;
    let mut held = replica.lock().expect("no thread panics under it");
    Ok(Stood::Goes(Box::new(std::mem::replace(&mut *held, empty))))
}

struct Standby<'a, 'q> {
    query: &'a Query<'q>,
    catalog: &'a ProgramCatalog<'q>,
    place: &'a str,
    active: &'a Place,
    /// After how long it runs the query if nobody does.
    alone: Option<Duration>,
    replica: &'a Mutex<Replica>,
    readers: Option<&'a dyn Readers>,
}

impl Standby<'_, '_> {
    /// Returns whether it is its turn; false if it was stopped.
    fn until_its_turn(
        &self,
        sender: &mpsc::SyncSender<RunEvent>,
        events: &mpsc::Receiver<RunEvent>,
    ) -> Result<bool, Refused> {
        let (begun, mut said) = (Instant::now(), false);
        let mut followed = None;
        loop {
            let serving = &self.query.serving;
            match Following::begin(self.active, serving.known().own) {
                Ok(Some(following)) => {
                    (said, followed) = (false, Some(following.pid));
                    serving.note(|known| {
                        (known.is_connected, known.other) = (true, following.serves);
                    });
                    let heard = self.follow(&following, sender, events)?;
                    serving.note(|known| known.is_connected = false);
                    if heard.is_none() {
                        return Ok(false);
                    }
                    // If that was only the connection, it is followed again.
                }
                Ok(None) | Err(_) if followed.is_some() => {
                    let pid = followed.unwrap_or_default();
                    say(&format!("standby: process {pid} is gone\n"));
                    return Ok(true);
                }
                Ok(None) if self.is_finished()? => return Ok(true),
                Ok(None) if self.alone.is_some_and(|alone| begun.elapsed() >= alone) => {
                    say("standby: nobody runs the query: this one does\n");
                    return Ok(true);
                }
                Ok(None) => {
                    if !said {
                        let place = self.place;
                        let (whose, also) = match self.active {
                            Place::Folder(_) => {
                                let also =
                                    format!(" (slackwater promote {place} makes it this one)");
                                (format!("with its state in {place}"), also)
                            }
                            Place::Address(remote) => {
                                (format!("at {}", remote.address), String::new())
                            }
                        };
                        say(&format!(
                            "standby: nobody runs a query {whose}: waiting for one{also}\n"
                        ));
                        said = true;
                    }
                    match self.wait(events, LOOK)? {
                        Some(Heard::Promote) => return Ok(true),
                        Some(_) => {}
                        None => return Ok(false),
                    }
                }
                Err(reason) => {
                    let active = self.active;
                    return Err(Refused::Usage(format!("--standby: {active}: {reason}")));
                }
            }
        }
    }

    /// Whether there is nothing left to do.
    fn is_finished(&self) -> Result<bool, Refused> {
        let newest = self.lock().newest();
        let newest = newest.map_err(|error| Refused::Usage(format!("--standby: {error}")))?;
        Ok(newest.is_some_and(|manifest| manifest.finished))
    }

    /// Waits while nobody runs the query; `None` if it is stopped.
    fn wait(
        &self,
        events: &mpsc::Receiver<RunEvent>,
        patience: Duration,
    ) -> Result<Option<Heard>, Refused> {
        let until = Instant::now() + patience;
        loop {
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(RunEvent::Signal) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Ok(RunEvent::Active(Heard::Promote)) => return Ok(Some(Heard::Promote)),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(Some(Heard::Gone)),
            }
        }
    }

    /// Follows the active until it is gone; `None` if this run is stopped.
    fn follow(
        &self,
        following: &Following,
        sender: &mpsc::SyncSender<RunEvent>,
        events: &mpsc::Receiver<RunEvent>,
    ) -> Result<Option<Heard>, Refused> {
        let telling = sender.clone();
        let listening = following.listen(move |heard| {
            // The queue has no receiver only when this run does not stand by any more.
            let _ = telling.send(RunEvent::Active(heard));
        });
        listening.map_err(|error| Refused::Query(format!("--standby: {error}")))?;
        self.check_store(following)?;
        let newest = self.lock().newest();
        let newest = newest.map_err(|error| Refused::Query(error.to_string()))?;
        if let Some(manifest) = &newest {
            self.come_to(manifest, following)?;
        }
        let from = newest.map(|manifest| format!(", from checkpoint {}", manifest.number));
        say(&format!(
            "standby: follows process {}{}\n",
            following.pid,
            from.unwrap_or_default()
        ));
        loop {
            match events.recv() {
                Ok(RunEvent::Signal) | Err(_) => return Ok(None),
                Ok(RunEvent::Active(Heard::Stored(number))) => {
                    let newest = newest_of(events, number);
                    self.stored(newest.0, following)?;
                    match newest.1 {
                        Some(RunEvent::Active(Heard::Gone)) => return Ok(Some(Heard::Gone)),
                        Some(RunEvent::Signal) => return Ok(None),
                        _ => {}
                    }
                }
                Ok(RunEvent::Active(Heard::Gone)) => return Ok(Some(Heard::Gone)),
                Ok(RunEvent::Active(Heard::Promote)) | Ok(_) => {}
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Replica> {
        self.replica.lock().expect("no thread panics under it")
    }

    /// Refuses to follow a run whose state is elsewhere.
    fn check_store(&self, following: &Following) -> Result<(), Refused> {
        let failed = |error: Error| Refused::Query(format!("--standby: {error}"));
        let Some(stamp) = following.stamp else {
            return Ok(());
        };
        if self.lock().has(stamp).map_err(failed)? {
            return Ok(());
        }
        // It may have been removed meanwhile, because there are newer ones.
        let newest = self.lock().newest().map_err(failed)?;
        if newest.is_some_and(|manifest| manifest.number > stamp.0) {
            return Ok(());
        }
        let Standby { place, active, .. } = self;
        Err(Refused::Usage(format!(
            "--standby: {place} is not the state of the run at {active}: record {} of that is not there\n  \
             = give both runs the same --state, and look whether it is mounted here",
            stamp.0
        )))
    }

    /// A checkpoint is stored.
    fn stored(&self, number: u64, following: &Following) -> Result<(), Refused> {
        let read = self.lock().checkpoint(number);
        match read {
            Ok(manifest) => self.come_to(&manifest, following)?,
            // There are newer ones, of which it is told.
            Err(error) if error.kind == Kind::Missing => {}
            Err(error) => self.warn(number, &error),
        }
        Ok(())
    }

    fn come_to(&self, manifest: &Manifest, following: &Following) -> Result<(), Refused> {
        let Query {
            program, members, ..
        } = self.query;
        if self.lock().number().is_none() {
            let survival = Survival::of(program, members, manifest, self.place);
            if let Some(refused) = survival.refusal(self.query.script.name()) {
                return Err(Refused::Usage(refused));
            }
        }
        let synced = self.lock().sync(self.catalog, members, manifest);
        match synced {
            Ok(_) => {
                if let Some(readers) = self.readers {
                    // Not under the lock: what is stored for the active needs it.
                    let added = self.lock().added();
                    readers.add(added);
                }
                let note = |known: &mut Known| known.number = Some(manifest.number);
                self.query.serving.note(note);
                following.holds(manifest.number);
            }
            // It comes back with the next one.
            Err(error) if error.kind == Kind::Missing => {}
            Err(error) => self.warn(manifest.number, &error),
        }
        Ok(())
    }

    fn warn(&self, number: u64, error: &Error) {
        eprintln!("warning: standby: checkpoint {number} is not held: {error}");
    }
}

/// The newest of the checkpoints that the next events are about, and the first other event.
fn newest_of(events: &mpsc::Receiver<RunEvent>, first: u64) -> (u64, Option<RunEvent>) {
    let mut newest = first;
    loop {
        match events.try_recv() {
            Ok(RunEvent::Active(Heard::Stored(number))) => newest = newest.max(number),
            Ok(event) => return (newest, Some(event)),
            Err(_) => return (newest, None),
        }
    }
}
