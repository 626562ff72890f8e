//! Whether a table's brokers are reachable: reported once when the last one is lost, and once when one is
//! back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The state of a table's brokers. The instances of a table share it.
#[derive(Debug)]
pub(crate) struct Presence {
    table: String,
    servers: String,
    away: AtomicBool,
    /// The last error of a connection.
    reason: Mutex<String>,
}

impl Presence {
    pub(crate) fn new(table: &str, servers: &str) -> Presence {
        Presence {
            table: table.to_string(),
            servers: servers.to_string(),
            away: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    /// A connection failed; others may still work.
    pub(crate) fn note(&self, reason: &str) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason.to_string();
    }

    /// The last failure, in parentheses; empty if there was none.
    pub(crate) fn reason(&self) -> String {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        // librdkafka's text ends with its internal state, which users don't need.
        match reason.split(" (after ").next() {
            None | Some("") => String::new(),
            Some(reason) => format!(": {reason}"),
        }
    }

    /// No broker is reachable any more.
    pub(crate) fn lost(&self) {
        if !self.away.swap(true, Ordering::Relaxed) {
            let (table, servers) = (&self.table, &self.servers);
            let reason = self.reason();
            eprintln!(
                "warning: table '{table}': no broker of {servers} answers{reason}; waiting for one"
            );
        }
    }

    /// A broker has answered.
    pub(crate) fn back(&self) {
        if self.is_away() && self.away.swap(false, Ordering::Relaxed) {
            let (table, servers) = (&self.table, &self.servers);
            eprintln!("note: table '{table}': a broker of {servers} answers again");
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        // Relaxed, as above: a report for the user, which orders nothing.
        self.away.load(Ordering::Relaxed)
    }
}
