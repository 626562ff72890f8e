//! What this process did, as a line of JSON at its end.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::options::options;

/// A counter with its name.
pub(crate) struct Counter(&'static str, AtomicU64);

impl Counter {
    const fn new(name: &'static str) -> Self {
        Self(name, AtomicU64::new(0))
    }

    pub(crate) fn add(&self, count: usize) {
        self.1.fetch_add(count as u64, Ordering::Relaxed);
    }
}

pub(crate) static OFFERED: Counter = Counter::new("offered");
pub(crate) static MOVED: Counter = Counter::new("moved");
pub(crate) static SENDS: Counter = Counter::new("sends");
pub(crate) static SENT: Counter = Counter::new("sent_bytes");
pub(crate) static RECEIVES: Counter = Counter::new("receives");
pub(crate) static RECEIVED: Counter = Counter::new("received_bytes");
pub(crate) static TCP_SENDS: Counter = Counter::new("tcp_sends");
pub(crate) static TCP_RECEIVES: Counter = Counter::new("tcp_receives");
pub(crate) static FUTEXES: Counter = Counter::new("futex_wakes");
pub(crate) static BELLS: Counter = Counter::new("socket_wakes");
pub(crate) static SLEEPS: Counter = Counter::new("sleeps");

static ALL: [&Counter; 11] = [
    &OFFERED,
    &MOVED,
    &SENDS,
    &SENT,
    &RECEIVES,
    &RECEIVED,
    &TCP_SENDS,
    &TCP_RECEIVES,
    &FUTEXES,
    &BELLS,
    &SLEEPS,
];

/// The line of this process.
fn line(pid: u32, program: &str) -> String {
    let escaped: String = program.chars().flat_map(char::escape_default).collect();
    let mut line = format!("{{\"pid\":{pid},\"program\":\"{escaped}\"");
    for Counter(name, count) in ALL {
        line.push_str(&format!(",\"{name}\":{}", count.load(Ordering::Relaxed)));
    }
    line + "}\n"
}

/// Appends the line to the file, if one was asked for.
pub(crate) fn write() {
    let Some(path) = &options().statistics else {
        return;
    };
    if ALL
        .iter()
        .all(|Counter(_, count)| count.load(Ordering::Relaxed) == 0)
    {
        return;
    }
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let line = line(std::process::id(), program.trim_end());
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        crate::report(&format!("--statistics {path}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_programs_are_escaped() {
        let line = super::line(7, "a\"b");
        assert!(
            line.starts_with("{\"pid\":7,\"program\":\"a\\\"b\",\"offered\":"),
            "{line}"
        );
        assert!(line.ends_with("}\n"), "{line}");
    }
}
