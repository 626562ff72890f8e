//! The standby's own socket: agents of the active have it store what has changed.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use slackwater_checkpoint::manifest::Part;
use slackwater_checkpoint::{Runner, Store};

use super::following::Heard;
use super::kept::Kept;
use super::replica::Replica;
use crate::checkpoints::socket::{Listening, connect, receive, send};
use crate::checkpoints::{FromShelf, SHELF_SOCKET, ToShelf};

/// The most connections: one of each agent of the active.
const CONNECTIONS_MAX: usize = 256;

/// The pause if no descriptors are left.
const PAUSE: Duration = Duration::from_millis(20);

/// The standby's socket. Dropping it ends it: agents store for themselves then.
pub struct Shelf {
    shared: Arc<Shared>,
}

struct Shared {
    listening: Listening,
    store: Store,
    kept: Arc<Kept>,
    replica: Arc<Mutex<Replica>>,
    tell: Box<dyn Fn(Heard) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connections: Vec<(u64, UnixStream)>,
    next: u64,
    is_over: bool,
}

impl Shelf {
    /// Opens the shelf in the folder of the state. `tell` is called with [`Heard::Promote`].
    ///
    /// # Errors
    ///
    /// If another standby has one there, there can't be a socket, or no thread is left.
    pub fn open(
        folder: &Path,
        store: Store,
        kept: Arc<Kept>,
        replica: Arc<Mutex<Replica>>,
        tell: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Shelf, String> {
        if connect(folder, SHELF_SOCKET).is_ok() {
            return Err("another standby is there already: a query has one".to_string());
        }
        let failed = |error: io::Error| {
            format!(
                "{}: can't listen as {SHELF_SOCKET}: {error}",
                folder.display()
            )
        };
        let shared = Arc::new(Shared {
            listening: Listening::new(folder, SHELF_SOCKET).map_err(failed)?,
            store,
            kept,
            replica,
            tell: Box::new(tell),
            state: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("shelf".to_string())
            .spawn(move || accepting.accept())
            .map_err(failed)?;
        Ok(Shelf { shared })
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        for (_, stream) in state.connections.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        self.shared.listening.close();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }

    fn accept(self: Arc<Shared>) {
        loop {
            let Ok((stream, _)) = self.listening.socket.accept() else {
                if self.state().is_over {
                    return;
                }
                std::thread::sleep(PAUSE);
                continue;
            };
            let Some(connection) = self.enter(&stream) else {
                continue;
            };
            let serving = Arc::clone(&self);
            let served = std::thread::Builder::new()
                .name("store".to_string())
                .spawn(move || {
                    serving.serve(&stream);
                    serving.leave(connection);
                });
            if served.is_err() {
                self.leave(connection);
            }
        }
    }

    fn enter(&self, stream: &UnixStream) -> Option<u64> {
        let mut state = self.state();
        if state.is_over || state.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        let kept = stream.try_clone().ok()?;
        state.next += 1;
        let connection = state.next;
        state.connections.push((connection, kept));
        Some(connection)
    }

    fn leave(&self, connection: u64) {
        self.state()
            .connections
            .retain(|(known, _)| *known != connection);
    }

    fn serve(&self, stream: &UnixStream) {
        let Ok(runner) = Runner::new() else {
            return;
        };
        while let Ok(Some(message)) = receive::<ToShelf>(stream) {
            let answer = match message {
                ToShelf::Promote => FromShelf::Goes,
                ToShelf::Store {
                    memory,
                    epoch,
                    node,
                    parts,
                } => {
                    let mut bytes = parts.iter().map(|part| part.bytes);
                    let bytes = bytes.try_fold(0u64, u64::checked_add);
                    let data = bytes.ok_or_else(|| ErrorKind::InvalidData.into());
                    let data = data.and_then(|bytes| memory.read(bytes));
                    let data = data.map_err(|error: io::Error| error.to_string());
                    let stored =
                        data.and_then(|data| self.store(&runner, epoch, &node, &parts, data));
                    match stored {
                        Ok(parts) => FromShelf::Stored { parts },
                        Err(reason) => FromShelf::Refused { reason },
                    }
                }
            };
            let is_sent = send(stream, &answer).is_ok();
            // It ends this connection.
            if answer == FromShelf::Goes {
                (self.tell)(Heard::Promote);
            }
            if !is_sent {
                return;
            }
        }
    }

    /// Stores parts; returns what the checkpoint gets. Nothing is answered before it is stored.
    fn store(
        &self,
        runner: &Runner,
        epoch: u64,
        node: &str,
        parts: &[Part],
        mut data: Vec<u8>,
    ) -> Result<Vec<Part>, String> {
        let mut stored = Vec::new();
        for part in parts.iter().rev() {
            let bytes = data.split_off(data.len() - part.bytes as usize);
            let put = self.store.put_part(part, &bytes, || !self.state().is_over);
            runner.run(put).map_err(|error| error.to_string())?;
            self.kept.put(part, bytes);
            stored.push(part.clone());
        }
        stored.reverse();
        let mut replica = self.replica.lock().expect("no thread panics under it");
        let base = replica.base(runner, epoch, node, parts, &|| !self.state().is_over);
        drop(replica);
        // Without one the checkpoint is complete, too.
        let mut all = base.unwrap_or_default();
        all.append(&mut stored);
        Ok(all)
    }
}
