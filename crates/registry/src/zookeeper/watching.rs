//! A watch: a task that hears of changes from the servers, and a thread that tells its user.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use zookeeper_client as zk;

use super::Shared;
use super::connection::{Connection, OPERATION_TIMEOUT};
use super::layout;
use crate::error::Result;
use crate::thread::Thread;

/// The pause between attempts to reach servers that are away: each takes seconds itself.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// A watch in progress; dropping it ends it.
pub struct Watching {
    task: JoinHandle<()>,
    thread: Thread,
    _shared: Arc<Shared>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The thread ends when the task's end of the channel is gone.
        self.task.abort();
        self.thread.join();
    }
}

/// Starts to watch the keys with `prefix`.
pub fn start(
    shared: Arc<Shared>,
    prefix: String,
    changed: Box<dyn Fn() + Send>,
) -> Result<Watching> {
    // One that is waiting stands for all that come before it is taken.
    let (tell, changes) = sync_channel(1);
    let thread = Thread::start(shared.connection.place(), "registry-watch", move || {
        for () in changes {
            changed();
        }
    })?;
    let watcher = shared.wait(|connection| async move { begin(&connection).await })?;
    let connection = Arc::clone(&shared.connection);
    let task = shared
        .runtime
        .spawn(follow(connection, prefix, watcher, tell));
    Ok(Watching {
        task,
        thread,
        _shared: shared,
    })
}

async fn begin(connection: &Connection) -> Result<zk::PersistentWatcher> {
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    let keys = connection.node("keys");
    let client = connection.client(deadline).await?;
    let watch = client.watch(&keys, zk::AddWatchMode::PersistentRecursive);
    match timeout_at(deadline, watch).await {
        Ok(watcher) => watcher.map_err(|error| connection.error("", &error)),
        Err(_) => Err(connection.unreachable()),
    }
}

/// In another session, whenever the servers are back.
async fn begin_again(connection: &Connection) -> zk::PersistentWatcher {
    loop {
        match begin(connection).await {
            Ok(watcher) => return watcher,
            Err(_) => sleep(AWAY_PAUSE).await,
        }
    }
}

async fn follow(
    connection: Arc<Connection>,
    prefix: String,
    mut watcher: zk::PersistentWatcher,
    tell: SyncSender<()>,
) {
    let keys = format!("{}/", connection.node("keys"));
    loop {
        let event = watcher.changed().await;
        let is_news = match event.event_type {
            // The servers forget what happens while nobody is connected.
            zk::EventType::Session => event.session_state == zk::SessionState::SyncConnected,
            _ => {
                let name = event.path.strip_prefix(&keys);
                let key = name.and_then(layout::key);
                key.is_some_and(|key| key.starts_with(&prefix))
            }
        };
        let is_lost = event.session_state.is_terminated();
        if is_lost {
            watcher = begin_again(&connection).await;
        }
        if is_news || is_lost {
            // Full: one is waiting.
            let _ = tell.try_send(());
        }
    }
}
