//! Ctrl-C, SIGTERM and SIGHUP: a thread that sleeps until one comes.

use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};

/// Calls `tell` for every SIGINT, SIGTERM or SIGHUP until the guard is dropped.
pub fn watch(tell: impl Fn() + Send + 'static) -> std::io::Result<Guard> {
    let mut signals = Signals::new(ending())?;
    let handle = signals.handle();
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    leave_lost_terminal();
                }
                tell();
            }
        })?;
    Ok(Guard(handle))
}

/// The signals that end a query. SIGHUP is excluded if it was ignored when this process started (`nohup`).
pub(crate) fn ending() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if mask.is_none_or(|mask| mask & (1 << (SIGHUP - 1)) == 0) {
        signals.push(SIGHUP);
    }
    signals
}

/// Makes a file that may not grow (`ulimit -f`) an error of the write instead of a signal.
pub(crate) fn ignore_file_limits() {
    // Having a handler is enough.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Redirects standard output and error of a closed terminal, because a failed write of a warning would panic.
fn leave_lost_terminal() {
    let Ok(nowhere) = std::fs::OpenOptions::new().write(true).open("/dev/null") else {
        return;
    };
    for descriptor in [1, 2] {
        let descriptor: RawFd = descriptor;
        // SAFETY: standard output and error are open as long as the process lives, and stay so: they are
        // not dropped here.
        let mut open = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let mut looked = [PollFd::new(&*open, PollFlags::empty())];
        let at_once = Timespec::default();
        let is_lost = poll(&mut looked, Some(&at_once)).is_ok()
            && looked[0].revents().contains(PollFlags::HUP);
        if is_lost {
            let _ = rustix::io::dup2(&nowhere, &mut open);
        }
    }
}

/// Stops watching for signals when it is dropped.
pub struct Guard(Handle);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close();
    }
}
