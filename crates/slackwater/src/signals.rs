//! Ctrl-C and SIGTERM: a thread that sleeps until one comes.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Calls `tell` for every SIGINT or SIGTERM until the guard is dropped.
pub fn watch(tell: impl Fn() + Send + 'static) -> std::io::Result<Guard> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || {
            for _ in signals.forever() {
                tell();
            }
        })?;
    Ok(Guard(handle))
}

/// Ends the watching when it is dropped.
pub struct Guard(Handle);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close();
    }
}
