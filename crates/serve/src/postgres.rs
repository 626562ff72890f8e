//! PostgreSQL's protocol, for psql and the drivers of all languages.
//!
//! A connection is read and written by one thread with an asynchronous runtime; what the backend does runs on
//! other threads, of which there is a bounded number. Everything that a client can make large has a limit, in
//! [`Limits`] or next to the code that it belongs to.
//!
//! The messages are read by our own code: the decoders of the crate `pgwire` (0.42) index beyond the end of a
//! message that lies about its lengths, and panic.

mod begin;
mod catalog;
mod cells;
mod civil;
mod command;
mod conversation;
mod copy;
mod extended;
pub mod fuzz;
mod local;
mod message;
mod numeric;
mod parameters;
mod qualified;
mod rows;
mod scram;
mod settings;
mod statement_set;
mod statements;
mod types;
mod wire;
mod words;
mod work;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::backend::{Backend, Kind, Refusal};

pub use scram::Passwords;

use begin::Guests;
use catalog::Catalog;
use conversation::Shared;

/// What clients may use at most.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections of clients that were let in.
    pub connections: usize,
    /// Connections of clients that were not let in yet. If there are more, the one that has come the least
    /// far is closed, so that nobody can keep others out by connections that do nothing.
    pub waiting: usize,
    /// Threads on which statements run. A statement holds one while it works, and SUBSCRIBE all the time.
    pub threads: usize,
    /// How many SUBSCRIBE there may be: fewer than threads.
    pub streams: usize,
    /// Bytes of a message: of a statement, or of its parameters. Memory for this is taken per connection.
    pub message_bytes: usize,
    /// How long a client may take until it is let in.
    pub begin_time: Duration,
    /// How long a client may take to receive a piece of an answer.
    pub send_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            waiting: 256,
            threads: 64,
            streams: 48,
            message_bytes: 1 << 20,
            begin_time: Duration::from_secs(10),
            send_time: Duration::from_secs(600),
        }
    }
}

/// How clients connect.
pub struct Options {
    /// Where they connect to.
    pub address: SocketAddr,
    /// Who may connect; `None` lets everybody in, which is allowed on loopback addresses only.
    pub passwords: Option<Passwords>,
    /// The certificate and the key, for clients that want TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// What they may use.
    pub limits: Limits,
}

/// The open door. Closes when it is dropped.
pub struct Door {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Reads a certificate with its chain, and its key, both as PEM.
///
/// # Errors
///
/// If a file can't be read, or they do not belong together.
pub fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Refusal> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        let message = format!("{}: {error}", path.display());
        Refusal::new(Kind::System, message).hint("give the certificate and the key as PEM files")
    };
    let chain =
        CertificateDer::pem_file_iter(certificate).map_err(|error| failed(certificate, &error))?;
    let chain: Result<Vec<_>, _> = chain.collect();
    let chain = chain.map_err(|error| failed(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret));
    config
        .map(Arc::new)
        .map_err(|error| failed(certificate, &error))
}

/// Opens the door.
///
/// # Errors
///
/// If the address is not free, or is not a loopback address and there are no passwords.
pub fn open(backend: Arc<dyn Backend>, options: Options) -> Result<Door, Refusal> {
    let address = options.address;
    if options.passwords.is_none() && !address.ip().is_loopback() {
        let message = format!(
            "{address}: PostgreSQL's protocol is not offered to other machines without passwords"
        );
        return Err(Refusal::new(Kind::Denied, message)
            .hint("give a file of passwords, or listen on 127.0.0.1"));
    }
    let failed = |error: std::io::Error| Refusal::new(Kind::System, format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let limits = options.limits;
    let shared = Arc::new(Shared {
        catalog: Catalog::new(Arc::clone(&backend)),
        backend,
        streams: Arc::new(Semaphore::new(limits.streams)),
        running: Mutex::default(),
    });
    let tls = options.tls.map(TlsAcceptor::from);
    let guests = Arc::new(Guests::new(shared, options.passwords, tls, limits));
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(guests.limits.threads)
        .thread_name("postgres")
        .build()
        .map_err(failed)?;
    let run = move || {
        runtime.block_on(async {
            tokio::select! {
                () = accept(listener, guests) => {}
                _ = stopped => {}
            }
        });
        // Statements that still run are cancelled, and nobody waits for them.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new()
        .name("postgres".to_owned())
        .spawn(run)
        .map_err(failed)?;
    Ok(Door {
        address,
        stop: Some(stop),
        thread: Some(thread),
    })
}

/// How long no connection is accepted after one could not be: files have run out, perhaps.
const PAUSE: Duration = Duration::from_millis(100);

async fn accept(listener: TcpListener, guests: Arc<Guests>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                guests.receive(socket);
                // Those that are here already come first.
                tokio::task::yield_now().await;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

impl Door {
    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "the door's thread does not panic");
        }
    }
}
