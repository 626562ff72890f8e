//! Connections between the hosts of a cluster: encrypted, and open only to those that know its secret, or
//! that have a certificate of its authority.
//!
//! ```text
//! cluster.key ─ Secret ─ HKDF ─► key pairs (connecting, accepting) × (control, data) ─► Keys
//! h2.pem ─ Secret ─ Certificates ─────────────────────────────────────────────────────────► Keys
//!    Keys (control) ─► Door, Stream::connect ─► Stream      sessions: blocking, two threads
//!    Stream ─► Frames       messages of a session
//!    Keys (data)    ─► Secret::guard ─► link::tcp           links: a Seal each, without I/O
//! ```
//!
//! Invariants:
//!
//! - **Knowing the secret is what is proven.** Both sides show a raw public key (RFC 7250) whose private
//!   key follows from the secret, and sign the handshake of TLS 1.3 with it. Each accepts only the keys
//!   that follow from its own secret, so whoever sits between two hosts can hand on ciphertext, or cut, and
//!   nothing else.
//! - **Nothing to negotiate.** One version, one cipher suite, one group, one kind of signature; no names, no
//!   resumption, no early data. With certificates only the kind of signature is theirs.
//! - **A stranger gets an alert of TLS or nothing**, costs a limited key exchange, and is counted.
//! - **A connection that was cut off is an error**, never an end.
//!
//! Shutdown: [`Stream::shutdown`] ends a stream and wakes both of its threads; dropping a [`Door`] ends its
//! thread and the handshakes in progress.
//!
//! `docs/internals/security.md` has the labels, the limits, and what is not protected.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod certificates;
mod secret;

mod connection;
mod keys;
mod tls;

mod stream;

mod door;

pub mod frames;

#[doc(hidden)]
#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use door::{Door, HANDSHAKE_TIMEOUT, HANDSHAKES_MAX};
pub use secret::Secret;
pub use slackwater_link::tcp::Refusals;
pub use stream::Stream;
