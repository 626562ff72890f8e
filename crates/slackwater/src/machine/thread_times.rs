//! What the system counts of a thread. Its file stays open, so that a reading is one system call.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The longest content of a thread's `schedstat`: three numbers of 20 digits, two spaces, a line's end.
const BYTES_MAX: usize = 3 * 20 + 3;

/// The times of one thread of this process.
#[derive(Debug, Default)]
pub struct ThreadTimes {
    thread: u64,
    /// `None` before the first reading, and if the system doesn't count.
    file: Option<File>,
}

impl ThreadTimes {
    /// The CPU time of a thread, by its number, and how long it was ready to run while another thread had its
    /// core, in nanoseconds; `None` if the system doesn't count them, or the thread has ended.
    pub fn read_ns(&mut self, thread: u64) -> Option<(u64, u64)> {
        if self.thread != thread {
            self.thread = thread;
            self.file = File::open(format!("/proc/self/task/{thread}/schedstat")).ok();
        }
        let mut text = [0; BYTES_MAX];
        let length = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::machine::own_cpu_ns;

    #[test]
    fn a_thread_is_counted_until_it_ends() {
        let (said, hear) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while own_cpu_ns() < 2_000_000 {}
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            said.send((own as u64, own_cpu_ns())).unwrap();
            let _ = ended.recv();
        });
        let (number, cpu_ns) = hear.recv().unwrap();
        let mut times = ThreadTimes::default();
        let Some((mut first_ns, _)) = times.read_ns(number) else {
            // A system that doesn't count.
            assert!(!std::path::Path::new("/proc/self/schedstat").exists());
            return;
        };
        // The scheduler counts up to its last tick or switch: the thread waits now, or soon will.
        for _ in 0..10_000 {
            if first_ns >= cpu_ns {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            (first_ns, _) = times.read_ns(number).unwrap();
        }
        assert!(first_ns >= cpu_ns, "{first_ns} of {cpu_ns}");
        let (second_ns, _) = times.read_ns(number).unwrap();
        assert!(second_ns >= first_ns);
        drop(end);
        thread.join().unwrap();
        // The kernel removes a thread a little after it has ended.
        while times.read_ns(number).is_some() {
            std::thread::yield_now();
        }
        assert_eq!(times.read_ns(0), None);
    }
}
