//! A registry in `ZooKeeper`, for orchestrators on several hosts.
//!
//! The client is asynchronous: it runs on one thread, and callers wait for what they have asked it. Functions
//! of users are called on threads of their own.
//!
//! A connection that is lost is restored by the client within the session's time-out, and operations wait for
//! it. A session that is lost ends the candidacies that were made in it; the next operation begins another.
//!
//! Shutdown: dropping the last of the registry, its candidacies and its watches closes the session, and ends
//! the thread.

mod layout;
mod runtime;

mod connection;

mod reading;
mod writing;

mod election;
mod watching;

use std::sync::Arc;

use crate::error::Result;
use crate::key::{LEADER, check_key, check_prefix, check_value};
use crate::write::Write;
use crate::{Candidacy, Entry, Expect, Life, Registry, Stage, Term, Watch};
use connection::Connection;
use runtime::Runtime;

/// A registry in `ZooKeeper`.
pub struct ZooKeeper {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Runtime,
    connection: Arc<Connection>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let connection = Arc::clone(&self.connection);
        let place = connection.place().to_owned();
        // If it can't be closed, it ends by its time-out.
        let _ = self.runtime.wait(&place, async move {
            connection.close().await;
            Ok(())
        });
    }
}

impl ZooKeeper {
    /// Opens the registry at `path`, and makes it if it is not there and `may_make`.
    pub fn open(servers: &str, path: &str, may_make: bool) -> Result<ZooKeeper> {
        let connection = Arc::new(Connection::new(servers, path));
        let runtime = Runtime::start(connection.place())?;
        let shared = Arc::new(Shared {
            runtime,
            connection,
        });
        shared.wait(move |connection| async move { connection.open(may_make).await })?;
        Ok(ZooKeeper { shared })
    }
}

impl Shared {
    /// The result of an operation.
    fn wait<T, F>(&self, operation: impl FnOnce(Arc<Connection>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let operation = operation(Arc::clone(&self.connection));
        self.runtime.wait(self.connection.place(), operation)
    }
}

impl Registry for ZooKeeper {
    fn get(&self, key: &str) -> Result<Option<Entry>> {
        check_key(key)?;
        let key = key.to_owned();
        self.shared
            .wait(move |connection| async move { reading::get(&connection, &key).await })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>> {
        check_prefix(prefix)?;
        let prefix = prefix.to_owned();
        self.shared
            .wait(move |connection| async move { reading::list(&connection, &prefix).await })
    }

    fn put(
        &self,
        key: &str,
        value: Option<&[u8]>,
        expect: Expect,
        guard: Option<&Term>,
        life: Life,
    ) -> Result<u64> {
        let write = Write {
            key,
            value,
            expect,
            guard: guard.copied(),
            life,
        };
        write.check()?;
        let (key, value) = (key.to_owned(), value.map(<[u8]>::to_vec));
        self.shared.wait(move |connection| async move {
            let write = Write {
                key: &key,
                value: value.as_deref(),
                ..write
            };
            writing::put(&connection, &write).await
        })
    }

    fn watch(&self, prefix: &str, changed: Box<dyn Fn() + Send>) -> Result<Watch> {
        check_prefix(prefix)?;
        let watching = watching::start(Arc::clone(&self.shared), prefix.to_owned(), changed)?;
        Ok(Watch(Box::new(watching)))
    }

    fn elect(&self, candidate: &[u8], told: Box<dyn FnMut(Stage) + Send>) -> Result<Candidacy> {
        check_value(LEADER, candidate)?;
        let standing = election::start(Arc::clone(&self.shared), candidate, told)?;
        Ok(Candidacy(Box::new(standing)))
    }
}
